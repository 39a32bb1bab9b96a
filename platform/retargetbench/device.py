"""Choice of the device, in one place."""

from __future__ import annotations

import torch

from retargetbench.errors import UsageError


def resolve_device(device: str) -> torch.device:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device; ``auto`` is cuda where there is one.

    Raises:
        UsageError: the name is unknown, or cuda is asked for and there is none.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise UsageError(f"device {device!r} is not one of: auto, cpu, cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device 'cuda' is asked for, but torch sees none; use --device cpu or auto")
    return torch.device(device)
