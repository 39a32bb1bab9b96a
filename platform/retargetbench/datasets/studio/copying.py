"""Puts a performance on a body without looking at its skin: rotations of the reference, steps, and the root rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.datasets.studio.keys import interpolate_keys
from retargetbench.datasets.studio.legs import LEG_JOINTS, pose_legs
from retargetbench.datasets.studio.performance import FootTrack
from retargetbench.kinematics import hemisphere_continuous
from retargetbench.motion import Motion
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import Performance


@dataclass(frozen=True, eq=False)
class Solution:
    """A performance on a body.

    Attributes:
        rotations: local rotations of the 22 joints at key frames, (K, 22, 4).
        root: position of the hips, (K, 3) metres.
        fps: of the motion that is interpolated through the keys.
        unknowns: what the solver found, from which it can go on.
    """

    rotations: torch.Tensor
    root: torch.Tensor
    fps: float
    unknowns: torch.Tensor | None = None

    @property
    def motion(self) -> Motion:
        """The motion through all keys, T = 2 K − 1 frames."""
        rotations, root = interpolate_keys(self.rotations, self.root)
        return Motion(root, rotations, self.fps)

    @property
    def float_motion(self) -> Motion:
        """The same in float32, as the mesh of a body is."""
        motion = self.motion
        return Motion(motion.root_translation.float(), motion.local_rotations.float(), self.fps)


def copy_performance(body: Character, performance: Performance) -> Solution:
    """Put a performance on a body without looking at its skin: rotations of the reference, steps and root rule.

    Args:
        body: with its 22 joints and the hands of the performance, at the T-pose.
        performance: T = 2 K − 1 frames.
    """
    rotations = performance.rotations[::2].double().clone()
    feet = tuple(every_second(track) for track in performance.feet)
    root = _root_on_reachable_ground(body, performance, feet)  # type: ignore[arg-type]
    hips = roma.unitquat_to_rotmat(rotations[:, 0])
    legs, _ = pose_legs(body, hips, root, feet)  # type: ignore[arg-type]
    for k, joint in enumerate(j for leg in LEG_JOINTS for j in leg):
        rotations[:, joint] = roma.rotmat_to_unitquat(legs[:, k])
    return Solution(hemisphere_continuous(rotations), root, performance.fps)


def every_second(track: FootTrack) -> FootTrack:
    """The track at key frames."""
    return replace(track, **{name: getattr(track, name)[::2] for name in FootTrack.__dataclass_fields__})


def _root_on_reachable_ground(
    body: Character, performance: Performance, feet: tuple[FootTrack, FootTrack]
) -> torch.Tensor:
    """Hips by the root rule, shifted by one constant: so that both legs reach the floor wherever a foot is planted, or
    so that the seat is on the floor."""
    rest = body.skeleton.to_canonical().rest_positions.double()[canonical_index("Hips")]
    root = rest + performance.hips[::2].double() * body.height
    hips = roma.unitquat_to_rotmat(performance.rotations[::2, 0].double())
    if performance.seated:
        return root + _lift_of_seat(body, root, performance.rotations[::2, 0].double())
    planted = torch.stack([track.planted for track in feet], -1)
    down = root.new_tensor([0.0, 1.0, 0.0])
    low, high = 0.0, 0.12 * body.height

    def worst(drop: float) -> float:
        _, short = pose_legs(body, hips, root - drop * down, feet)
        return float(torch.where(planted, short, 0.0).max())

    if worst(0.0) <= 0.0:
        return root
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if worst(middle) > 0.0 else (low, middle)
    return root - high * down


def _lift_of_seat(body: Character, root: torch.Tensor, hips: torch.Tensor) -> torch.Tensor:
    """By how much the body has to be lifted so that the lowest skin of the hips is on the floor, (3,) metres."""
    skin = body.rest_vertices[body.dominant_joint == canonical_index("Hips")].double()
    from_hips = skin - body.skeleton.to_canonical().rest_positions.double()[0]
    lowest = (roma.unitquat_to_rotmat(hips)[:, 1] @ from_hips.T).amin(-1) + root[:, 1]
    return torch.stack([root.new_zeros(()), -lowest.min(), root.new_zeros(())])
