"""Motions that methods gave: how they are checked, named by content, written and read."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy as np
import torch

from retargetbench.errors import FileFormatError, MethodOutputError
from retargetbench.motion import Motion
from retargetbench.skeleton import CANONICAL_JOINTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retargetbench.clip import Clip
    from retargetbench.datasets.base import SplitRow

UNREADABLE = (
    OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What NumPy and zipfile raise on damaged files, an array in place of an archive, and encrypted or odd archives."""

_FORMAT = "1"  # part of every key: raise it when the same method output would be stored as something else
_UNIT_TOLERANCE = 1e-3
_FPS_TOLERANCE = 1e-3


def content_key(*parts: object) -> str:
    """Return a hash (20 hexadecimal digits) of some values, different when any of them differs.

    Example:
        >>> content_key("a", "bc") == content_key("ab", "c")
        False
    """
    return hashlib.sha256(repr(tuple(map(str, parts))).encode()).hexdigest()[:20]


def prediction_key(method_key: str, dataset_hash: str, row: SplitRow, seed: int) -> str:
    """Name what a method gives for a task by everything that it depends on."""
    return content_key("prediction", _FORMAT, method_key, dataset_hash, row.source, row.motion, row.target, seed)


def check_outputs(outputs: object, sources: Sequence[Clip]) -> list[Motion]:
    """Return what a method gave, if it is one canonical motion per source.

    Raises:
        MethodOutputError: it is not; the message names the first offender.
    """
    if not isinstance(outputs, list | tuple):
        raise MethodOutputError(f"retarget must return a list of motions, got {type(outputs).__name__}")
    if len(outputs) != len(sources):
        raise MethodOutputError(f"retarget must return one motion per source, {len(sources)}, got {len(outputs)}")
    return [_checked(motion, source) for motion, source in zip(outputs, sources, strict=True)]


def _checked(motion: object, source: Clip) -> Motion:
    name = f"{source.character.name}/{source.name}"
    if not isinstance(motion, Motion):
        raise MethodOutputError(f"{name}: retarget must return motions, got {type(motion).__name__}")
    frames = source.motion.frame_count
    shapes = (tuple(motion.root_translation.shape), tuple(motion.local_rotations.shape))
    if shapes != ((frames, 3), (frames, 22, 4)):
        raise MethodOutputError(
            f"{name}: the motion must have root_translation ({frames}, 3) and local_rotations ({frames}, 22, 4) like "
            f"the source's {frames} frames, got {shapes[0]} and {shapes[1]}"
        )
    if not (motion.root_translation.is_floating_point() and motion.local_rotations.is_floating_point()):
        raise MethodOutputError(
            f"{name}: the motion must hold floating-point numbers, got {motion.root_translation.dtype} and "
            f"{motion.local_rotations.dtype}"
        )
    # Tensors are mutable, so what Motion checked when it was made need not hold any more.
    if not bool(torch.isfinite(motion.root_translation).all() and torch.isfinite(motion.local_rotations).all()):
        raise MethodOutputError(f"{name}: the motion holds values that are not finite (NaN or infinity)")
    lengths = motion.local_rotations.norm(dim=-1)
    if float((lengths - 1).abs().max()) > _UNIT_TOLERANCE:
        frame, joint = divmod(int((lengths - 1).abs().argmax()), 22)
        raise MethodOutputError(
            f"{name}: local rotations must be unit quaternions; that of {CANONICAL_JOINTS[joint]} in frame {frame} has "
            f"length {float(lengths[frame, joint]):.3g}"
        )
    if abs(motion.fps - source.motion.fps) > _FPS_TOLERANCE:
        raise MethodOutputError(f"{name}: the motion has {motion.fps:g} fps, the source {source.motion.fps:g}")
    return motion


def encode_motion(motion: Motion, key: str) -> bytes:
    """Return a motion as the content of an ``.npz`` file: single precision, with its key."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        key=np.array(key),
        fps=np.array(motion.fps, dtype=np.float64),
        root_translation=motion.root_translation.detach().cpu().float().numpy(),
        local_rotations=motion.local_rotations.detach().cpu().float().numpy(),
    )
    return buffer.getvalue()


def read_key(path: Path) -> str | None:
    """Return the key of a stored motion, or None where there is no readable one."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return str(stored["key"])
    except UNREADABLE:
        return None


def read_motion(path: Path) -> Motion:
    """Read a motion from an ``.npz`` file with ``root_translation`` (T, 3), ``local_rotations`` (T, J, 4) and ``fps``.

    Raises:
        FileFormatError: the file is not one, or an array is missing or has another shape.
        CharacterError: the values are not a motion.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            root, rotations = (stored[name].astype(np.float32) for name in ("root_translation", "local_rotations"))
            fps = float(stored["fps"])
    except UNREADABLE as error:
        # What NumPy does not know it takes for a pickle, and advises to load it unsafely.
        detail = "" if "pickle" in str(error) else f": {error}"
        raise FileFormatError(
            path, f"is not an .npz with root_translation (T, 3), local_rotations (T, J, 4) and fps{detail}"
        ) from None
    return Motion(torch.from_numpy(root), torch.from_numpy(rotations), fps)
