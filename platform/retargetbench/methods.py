"""What a retargeting method gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch

from retargetbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.motion import Motion


class RetargetMethod(ABC):
    """A retargeting method; subclass it and implement `retarget`.

    Options arrive as keyword arguments of the constructor and are declared by `options`, so that ``bench run --set
    copy.root=none`` can be checked before any work is done.
    """

    version: ClassVar[str] = "1"
    """Raise it whenever results change: predictions are cached by it."""

    options: ClassVar[Mapping[str, tuple[str, ...] | type]] = {}
    """Accepted options: name → the allowed words, or the type of the value."""

    def __init__(self, *, device: torch.device | str = "cpu", **options: object) -> None:
        self.device = torch.device(device)
        for name, value in options.items():
            self._check_option(name, value)
        self.config: dict[str, object] = dict(options)

    @classmethod
    def _check_option(cls, name: str, value: object) -> None:
        accepted = ", ".join(sorted(cls.options)) or "none"
        if name not in cls.options:
            raise UsageError(f"{cls.__name__} has no option {name!r}; accepted: {accepted}")
        allowed = cls.options[name]
        if isinstance(allowed, tuple):
            if value not in allowed:
                raise UsageError(f"option {name}={value!r} is not one of: {', '.join(allowed)}")
        elif not isinstance(value, allowed) and not (allowed is float and isinstance(value, int)):
            raise UsageError(f"option {name}={value!r} must be of type {allowed.__name__}")

    @abstractmethod
    def retarget(self, sources: Sequence[Clip], target: Character) -> list[Motion]:
        """Put the motions of ``sources`` on ``target``.

        Args:
            sources: clips of any length and frame rate, all of their tensors on ``self.device``.
            target: the character to move, on ``self.device``.

        Returns:
            For each source a motion of the target's 22 canonical joints, (T, 22, 4), with the source's frames and
            frame rate. Joints that are not canonical are filled in by the platform.
        """
