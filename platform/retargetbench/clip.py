"""A clip is a character in motion; a task asks for that motion on another character."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from retargetbench.errors import CharacterError
from retargetbench.motion import Motion, check_motion_fits

if TYPE_CHECKING:
    import torch

    from retargetbench.character import Character

SplitAtom = Literal["UC+UM", "UC+SM", "SC+UM", "SC+SM"]
"""Target character unseen/seen (UC/SC) and motion unseen/seen (UM/SM) in training."""

SPLIT_ATOMS: tuple[SplitAtom, ...] = get_args(SplitAtom)


@dataclass(frozen=True, eq=False)
class Clip:
    """A character and a motion of all its joints.

    Raises:
        CharacterError: the motion has another number of joints than the character.
    """

    name: str
    character: Character
    motion: Motion

    def __post_init__(self) -> None:
        check_motion_fits(self.motion, self.character.skeleton)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Clip:
        """Return the same clip on another device or in another floating-point type."""
        return Clip(self.name, self.character.to(device, dtype), self.motion.to(device, dtype))


@dataclass(frozen=True, eq=False)
class Task:
    """Put the motion of ``source`` on ``target``.

    ``ground_truth`` is a motion of all the target's joints with as many frames and the frame rate of the source,
    or None where none is known.

    Raises:
        CharacterError: the ground truth does not fit the target, or has another length or frame rate.
    """

    source: Clip
    target: Character
    ground_truth: Motion | None
    atom: SplitAtom

    def __post_init__(self) -> None:
        truth = self.ground_truth
        if truth is None:
            return
        check_motion_fits(truth, self.target.skeleton)
        if truth.frame_count != self.source.motion.frame_count or abs(truth.fps - self.source.motion.fps) > 1e-3:
            raise CharacterError(
                f"{self.name}: the ground truth has {truth.frame_count} frames at {truth.fps:g} fps, the source "
                f"{self.source.motion.frame_count} at {self.source.motion.fps:g}; they must agree"
            )

    @property
    def name(self) -> str:
        """``source character / motion / target``: unique within a split."""
        return f"{self.source.character.name}/{self.source.name}/{self.target.name}"
