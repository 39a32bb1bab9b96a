"""Arms over time: hands move from key to key in arcs, wrists a little behind, and stay on what they touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.datasets.capsule_ik import apply, slerp
from retargetbench.datasets.studio.arms import pose_arm
from retargetbench.datasets.studio.curves import FPS, blurred, key_progress, through_keys
from retargetbench.datasets.studio.hand_keys import HandTarget, hand_target, resolved
from retargetbench.kinematics import hemisphere_continuous

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.datasets.studio.actions import HandKey
    from retargetbench.datasets.studio.arms import Arm, ArmPose
    from retargetbench.datasets.studio.hand_keys import Posed

_BULGE = 0.09  # heights by which a path to or from a touch leaves the straight line, along the skin's normal
_BULGE_SHARE = 0.4  # of the way, at most
_DRAG = 1.5 / FPS  # seconds by which the wrist's turn follows its way
_TURN_BLUR = 1.2  # frames


def move_arm(
    posed: Posed,
    arm: Arm,
    keys: Sequence[HandKey],
    time: torch.Tensor,
    wander: torch.Tensor,
    swing: torch.Tensor | None,
) -> ArmPose:
    """Move an arm through the keys of its hand.

    Args:
        posed: body with everything posed that the hand may touch.
        arm: which.
        keys: of its hand.
        time: of the frames, (T,) seconds.
        wander: small displacement where nothing is touched, (T, 3) metres.
        swing: of the hanging arm forward, (T,) radians, or None.
    """
    times, passing = [key.at for key in keys], [key.through for key in keys]
    frames = (torch.tensor(times) * FPS).round().long().clamp_max(len(time) - 1).tolist()
    targets = [
        hand_target(posed, arm, resolved(key), frame, swing if key.pose == "hang" else None)
        for key, frame in zip(keys, frames, strict=True)
    ]
    free = torch.tensor([float(key.touch is None) for key in keys], dtype=torch.float64)
    path = torch.stack([target.control for target in targets], 1) + free[:, None] * wander[:, None]
    control = through_keys(path, times, passing, time)
    before, share = key_progress(times, passing, time)
    after = (before + 1).clamp_max(len(keys) - 1)
    u = share[:, None]
    bulges = torch.stack(
        [_bulge(posed, keys[k : k + 2], targets[k : k + 2]) for k in range(len(keys) - 1)]
        or [torch.zeros(2, *control.shape, dtype=control.dtype)]
    )
    row = torch.arange(len(time))
    leaving, arriving = bulges[before, 0, row], bulges[before, 1, row]
    control = control + 3 * u * (1 - u) * ((1 - u) * leaving + u * arriving)
    offsets = torch.stack([target.offset for target in targets])
    offset = torch.lerp(offsets[before], offsets[after], u)
    poles = torch.stack([torch.nn.functional.normalize(target.pole, dim=-1) for target in targets], 1)
    pole = torch.lerp(poles[row, before], poles[row, after], u)
    return pose_arm(arm, posed.positions[:, arm.shoulder], control, offset, _turn(targets, keys, time), pole)


def _turn(targets: Sequence[HandTarget], keys: Sequence[HandKey], time: torch.Tensor) -> torch.Tensor:
    """Blend the rotations of the hand, a little later than its way, (T, 3, 3)."""
    before, share = key_progress([key.at for key in keys], [key.through for key in keys], time - _DRAG)
    rotations = torch.stack([roma.rotmat_to_unitquat(target.rotation) for target in targets], 1)
    row, after = torch.arange(len(time)), (before + 1).clamp_max(len(keys) - 1)
    blended = hemisphere_continuous(slerp(rotations[row, before], rotations[row, after], share[:, None]))
    smooth = torch.nn.functional.normalize(blurred(blended, _TURN_BLUR), dim=-1)
    turn: torch.Tensor = roma.unitquat_to_rotmat(smooth)
    return turn


def _bulge(posed: Posed, keys: Sequence[HandKey], targets: Sequence[HandTarget]) -> torch.Tensor:
    """How the way between two keys leaves the straight line at its begin and its end, (2, T, 3) metres.

    Away from the skin on the way to and from a touch; along the rounding of the body where the hand slides; not at all
    where it stays.
    """
    way = targets[1].control - targets[0].control
    length = way.norm(dim=-1, keepdim=True)
    normals = torch.stack([target.normal for target in targets])
    if all(key.touch is not None and key.gap == 0 for key in keys) and keys[0].with_ == keys[1].with_:
        # Sagitta of the arc between two normals; the weights of the caller sum to 3/4 in the middle.
        angle = torch.acos((normals[0] * normals[1]).sum(-1, keepdim=True).clamp(-1, 1))
        middle = torch.nn.functional.normalize(normals.sum(0), dim=-1)
        sagitta = 0.5 * length * torch.tan(angle / 4)
        return torch.stack([sagitta / 0.75 * middle] * 2)
    size = torch.minimum(_BULGE_SHARE * length, torch.full_like(length, _BULGE * posed.body.height))
    return normals * size


def arm_directions(arm: Arm, pose: ArmPose, chest: torch.Tensor) -> torch.Tensor:
    """Return the direction of the upper arm in the frame of the chest (T, 3, 3), (T, 3)."""
    return apply(chest.mT, pose.upper @ arm.along)
