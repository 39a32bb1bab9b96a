"""What a result was computed with: versions, commit, device."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from retargetbench.plugins import catalogue

_PACKAGES = ("retargetbench", "torch", "numpy", "scipy", "roma", "trimesh", "warp-lang")


def describe_environment(device: torch.device) -> dict[str, str]:
    """Name everything that may explain why two results differ.

    Returns:
        ``python``, the versions of the packages that compute, ``plugin:<name>`` for each working plugin, ``device``,
        and ``git_commit`` where RetargetBench runs from a checkout.
    """
    described = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            described[package] = version(package)
        except PackageNotFoundError:
            continue
    described |= {f"plugin:{info.name}": info.version for info in catalogue().plugins if info.state == "ok"}
    described["device"] = device_name(device)
    commit = find_git_commit()
    return described | ({"git_commit": commit} if commit else {})


def device_name(device: torch.device) -> str:
    """Return the name of a device for people: of the graphics card, or of the processor type."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"{device.type} ({platform.machine()})"


def find_git_commit() -> str | None:
    """Find the commit of the checkout that this package is run from; changed files are marked by ``-dirty``.

    A package that is installed somewhere below another project's checkout has no commit.
    """
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    commit = _git(here.parent, "rev-parse", "HEAD")
    changed = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git says, or None where it fails or does not exist."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - git is found by PATH
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
