"""Clips of a pack: rotation vectors and root positions at the keys, as whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import roma
import torch

from retargetbench.datasets.studio.keys import interpolate_keys
from retargetbench.datasets.studio.pack_files import differences, from_differences
from retargetbench.motion import Motion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retargetbench.skeleton import Skeleton

    Array = np.ndarray[Any, Any]

ROTATION_STEP = np.pi / 32767
"""Of the components of a rotation vector, radians; a rotation is off by at most 0.005 degrees at the keys."""

ROOT_STEP = 1e-4
"""Of a root position, metres."""

FPS = 30.0
"""Frames a second of the clips; keys are every second frame."""


@dataclass(frozen=True, eq=False)
class MotionKeys:
    """A motion of the 22 canonical joints at its keys.

    Attributes:
        rotations: local rotations, unit quaternions xyzw, (K, 22, 4).
        root: positions of the hips, (K, 3) metres.
    """

    rotations: torch.Tensor
    root: torch.Tensor

    @property
    def count(self) -> int:
        """Number of keys, K."""
        return len(self.root)


@dataclass(frozen=True, eq=False)
class WholeKeys:
    """A motion at its keys as it is stored: int16 rotation vectors (K, 22, 3) and int32 root positions (K, 3)."""

    rotations: Array
    root: Array

    @classmethod
    def of(cls, keys: MotionKeys) -> WholeKeys:
        """Round keys to whole numbers."""
        vectors = roma.unitquat_to_rotvec(keys.rotations.detach().double().cpu(), shortest_arc=True).numpy()
        # The length of a vector can exceed π by a rounding error.
        rotations = np.round(vectors / ROTATION_STEP).clip(-32767, 32767).astype(np.int16)
        root = np.round(keys.root.detach().double().cpu().numpy() / ROOT_STEP).astype(np.int32)
        return cls(rotations, root)

    def keys(self) -> MotionKeys:
        """Return the keys that are meant, float64."""
        vectors = torch.from_numpy(self.rotations.astype(np.float64) * ROTATION_STEP)
        return MotionKeys(roma.rotvec_to_unitquat(vectors), torch.from_numpy(self.root.astype(np.float64) * ROOT_STEP))


def rounded_keys(keys: MotionKeys) -> MotionKeys:
    """Return the keys as a reader of the pack gets them: measure these."""
    return WholeKeys.of(keys).keys()


def motions_to_arrays(motions: Sequence[MotionKeys]) -> dict[str, Array]:
    """Pack motions of one character, in their order."""
    whole = [WholeKeys.of(keys) for keys in motions]
    return {
        "rotations": differences(np.concatenate([w.rotations for w in whole])),
        "root": differences(np.concatenate([w.root for w in whole])),
    }


def motions_from_arrays(arrays: Mapping[str, Array], counts: Sequence[int]) -> tuple[WholeKeys, ...]:
    """Unpack motions.

    Args:
        arrays: what `motions_to_arrays` returned.
        counts: keys of each motion.

    Raises:
        KeyError, ValueError: an array is missing or has another size.
    """
    total = sum(counts)
    cuts = np.cumsum(counts)[:-1]
    rotations = from_differences(arrays["rotations"], (total, 22, 3), "int16")
    root = from_differences(arrays["root"], (total, 3), "int32")
    return tuple(WholeKeys(*pair) for pair in zip(np.split(rotations, cuts), np.split(root, cuts), strict=True))


def full_motion(keys: MotionKeys, skeleton: Skeleton, fingers: torch.Tensor) -> Motion:
    """Return the motion of all joints at all frames, float32.

    Args:
        keys: of the canonical joints.
        skeleton: J joints.
        fingers: rotations that joints which are not canonical keep, (J, 4).
    """
    rotations, root = interpolate_keys(keys.rotations.double(), keys.root.double())
    every = fingers.float().expand(len(root), -1, -1).clone()
    every[:, list(skeleton.canonical)] = rotations.float()
    return Motion(root.float(), every, FPS)
