"""Gaits: steps, hips, pelvis, spine and arm swing of walking, running, sidestepping, turning and marching.

Everything is in heights and free of any body, as `retargetbench.datasets.studio.performance.FootTrack` is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from retargetbench.datasets.studio.actions import Channel, Gait


@dataclass(frozen=True, eq=False)
class FootCurves:
    """What one foot does in a gait; T frames, float64. Fields mean what they mean in `FootTrack`.

    Attributes:
        place: x (to the left) and z (forward) of the flat foot from its place at rest, (T, 2) heights.
        lift: of the heel or ball on which the foot would roll above the floor, (T,) heights, never below 0.
        yaw: about Y, to the left positive, (T,) radians.
        pitch: toes down positive, (T,) radians; the foot rolls over its ball where positive, over its heel where
            negative.
        planted: whether it rests on the floor, rolling or flat, (T,) bool; place and yaw are then constant, lift is 0.
    """

    place: torch.Tensor
    lift: torch.Tensor
    yaw: torch.Tensor
    pitch: torch.Tensor
    planted: torch.Tensor


@dataclass(frozen=True, eq=False)
class GaitCurves:
    """What a gait does to the body; T frames, float64.

    Attributes:
        feet: of the left and the right foot.
        hips: displacement of the hips from the T-pose (x to the left, y up, z forward, in the world), (T, 3) heights.
            It brings its own bent knees: nothing is to be subtracted for standing.
        trunk: channels to add to those of the action, by name, (T,) degrees: ``hips_yaw`` (with the direction of
            travel), ``hips_pitch``, ``hips_roll``, ``twist``, ``lean``, ``bend``, ``turn``, and both ``*_protract``.
        swing: of the hanging arms forward, left and right, 2 of (T,) radians.
        elbow: by how much both elbows are bent beyond hanging, 2 of (T,) radians; 0 except in running and marching.
    """

    feet: tuple[FootCurves, FootCurves]
    hips: torch.Tensor
    trunk: Mapping[Channel, torch.Tensor]
    swing: tuple[torch.Tensor, torch.Tensor]
    elbow: tuple[torch.Tensor, torch.Tensor]
