"""A motion: root translation and local rotations over time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from retargetbench.errors import CharacterError

if TYPE_CHECKING:
    from retargetbench.skeleton import Skeleton


@dataclass(frozen=True, eq=False)
class Motion:
    """Root translation (T, 3) metres and local rotations (T, J, 4), unit quaternions xyzw, at ``fps`` frames a second.

    A local rotation of identity means rest. The root translation is the world position of joint 0.

    Raises:
        CharacterError: shapes do not fit, there is no frame, a value is not finite, a quaternion is not unit
            within 1e-3, or the frame rate is not between 1 and 1000.
    """

    root_translation: torch.Tensor
    local_rotations: torch.Tensor
    fps: float

    def __post_init__(self) -> None:
        frames = self.root_translation.shape[0] if self.root_translation.ndim else 0
        shape = tuple(self.local_rotations.shape)
        if tuple(self.root_translation.shape) != (frames, 3) or len(shape) != 3 or shape[0] != frames or shape[2] != 4:
            raise CharacterError(
                f"a motion needs root_translation (T, 3) and local_rotations (T, J, 4), got "
                f"{tuple(self.root_translation.shape)} and {shape}"
            )
        if frames == 0:
            raise CharacterError("a motion needs at least one frame, got none")
        if not 1.0 <= float(self.fps) <= 1000.0:
            raise CharacterError(f"fps must be between 1 and 1000, got {self.fps}")
        if not bool(torch.isfinite(self.root_translation).all() and torch.isfinite(self.local_rotations).all()):
            raise CharacterError("a motion holds values that are not finite (NaN or infinity)")
        deviation = float((self.local_rotations.norm(dim=-1) - 1).abs().max())
        if deviation > 1e-3:
            raise CharacterError(f"local rotations must be unit quaternions; one is off by {deviation:.3g}")

    @property
    def frame_count(self) -> int:
        """Number of frames, T."""
        return int(self.root_translation.shape[0])

    @property
    def joint_count(self) -> int:
        """Number of joints, J."""
        return int(self.local_rotations.shape[1])

    @property
    def duration(self) -> float:
        """Time from the first to the last frame, seconds."""
        return (self.frame_count - 1) / self.fps

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.local_rotations.device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Motion:
        """Return the same motion on another device or in another floating-point type."""
        return replace(
            self,
            root_translation=self.root_translation.to(device=device, dtype=dtype),
            local_rotations=self.local_rotations.to(device=device, dtype=dtype),
        )

    def frames(self, start: int, stop: int) -> Motion:
        """Return frames ``start`` (included) to ``stop`` (left out)."""
        return replace(
            self,
            root_translation=self.root_translation[start:stop],
            local_rotations=self.local_rotations[start:stop],
        )


def check_motion_fits(motion: Motion, skeleton: Skeleton) -> None:
    """Raise `CharacterError` when a motion has another number of joints than a skeleton."""
    if motion.joint_count != skeleton.joint_count:
        raise CharacterError(
            f"local_rotations must be (T, {skeleton.joint_count}, 4) to match the skeleton's "
            f"{skeleton.joint_count} joints, got {tuple(motion.local_rotations.shape)}"
        )
