"""Arms over time: hands move from key to key in arcs, wrists a little behind, and stay on what they touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.datasets.capsule_ik import apply, slerp
from retargetbench.datasets.studio.arms import elbow_bend, pose_arm, reachable, swung_wrist
from retargetbench.datasets.studio.curves import FPS, blurred, key_progress, min_jerk, through_keys
from retargetbench.datasets.studio.hand_keys import HandTarget, hand_target, resolved
from retargetbench.kinematics import hemisphere_continuous

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.datasets.studio.actions import HandKey
    from retargetbench.datasets.studio.arms import Arm, ArmPose
    from retargetbench.datasets.studio.hand_keys import Posed

_BULGE = 0.09  # heights by which a path to or from a touch leaves the straight line, along the skin's normal
_BULGE_SHARE = 0.4  # of the way, at most
_LEAST_SWING = 0.25  # of a way far from the shoulder
_PAST, _CLEAR = 0.7, 1.0  # of the nearer end's distance from the shoulder: ways that come nearer than this pass by it
_DRAG = 1.5 / FPS  # seconds by which the wrist's turn follows its way
_TURN_BLUR = 1.2  # frames


def move_arm(
    posed: Posed,
    arm: Arm,
    keys: Sequence[HandKey],
    time: torch.Tensor,
    wander: torch.Tensor,
    swing: tuple[torch.Tensor, torch.Tensor] | None,
) -> ArmPose:
    """Move an arm through the keys of its hand.

    Args:
        posed: body with everything posed that the hand may touch.
        arm: which.
        keys: of its hand.
        time: of the frames, (T,) seconds.
        wander: small displacement where nothing is touched, (T, 3) metres.
        swing: of the hanging arm forward, and bend of its elbow beyond hanging, (T,) radians each, or None.
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
    control = control + _arc(posed, arm, keys, targets, time)
    hand = _blurred_turns(_blended([target.rotation for target in targets], keys, time - _DRAG))
    plane = _blurred_turns(_blended([target.upper for target in targets], keys, time))
    return pose_arm(arm, posed.positions[:, arm.shoulder], control, offset, hand, plane)


def _blended(targets: Sequence[torch.Tensor], keys: Sequence[HandKey], time: torch.Tensor) -> torch.Tensor:
    """Turn from key to key through rotations (T, 3, 3) of each, at times (T,); (T, 3, 3)."""
    before, share = key_progress([key.at for key in keys], [key.through for key in keys], time)
    rotations = torch.stack([roma.rotmat_to_unitquat(target) for target in targets], 1)
    row, after = torch.arange(len(time)), (before + 1).clamp_max(len(keys) - 1)
    turns: torch.Tensor = roma.unitquat_to_rotmat(slerp(rotations[row, before], rotations[row, after], share[:, None]))
    return turns


def _blurred_turns(turns: torch.Tensor) -> torch.Tensor:
    """Smooth rotations (T, 3, 3) over time."""
    quaternions = blurred(hemisphere_continuous(roma.rotmat_to_unitquat(turns)), _TURN_BLUR)
    smooth: torch.Tensor = roma.unitquat_to_rotmat(torch.nn.functional.normalize(quaternions, dim=-1))
    return smooth


def _arc(
    posed: Posed, arm: Arm, keys: Sequence[HandKey], targets: Sequence[HandTarget], time: torch.Tensor
) -> torch.Tensor:
    """How the wrist's way differs from straight lines as shoulder and elbow turn evenly, (T, 3) metres.

    A way past the shoulder is all of a swing, since straight on it would fold the arm and throw the elbow about; on
    other ways a part of it gives the arcs of real hands.
    """
    if len(keys) == 1:
        return torch.zeros(len(time), 3, dtype=torch.float64)
    shoulder = posed.positions[:, arm.shoulder]
    wrists = torch.stack(
        [
            reachable(arm, shoulder, target.control - apply(target.rotation, target.offset.expand_as(target.control)))
            for target in targets
        ],
        1,
    )
    away = (wrists - shoulder[:, None]).norm(dim=-1)
    before, share = key_progress([key.at for key in keys], [key.through for key in keys], time)
    row = torch.arange(len(time))
    straight = torch.lerp(wrists[row, before], wrists[row, before + 1], share[:, None])
    upper = _blended([target.upper for target in targets], keys, time)
    bends = torch.stack([elbow_bend(arm, away[:, k]) for k in range(len(keys))], 1)
    swung = swung_wrist(arm, shoulder, upper, torch.lerp(bends[row, before], bends[row, before + 1], share))
    shares = torch.stack([_swing_share(wrists[:, k : k + 2], shoulder, keys[k : k + 2]) for k in range(len(keys) - 1)])
    return shares[before, row, None] * (swung - straight)


def _swing_share(wrists: torch.Tensor, shoulder: torch.Tensor, keys: Sequence[HandKey]) -> torch.Tensor:
    """How much of the way between two wrists (T, 2, 3) is a swing about shoulder and elbow, (T,) from 0 to 1."""
    if all(key.touch is not None and key.gap == 0 for key in keys):
        return torch.zeros(len(wrists), dtype=torch.float64)
    start, end = (wrists - shoulder[:, None]).unbind(1)
    way = end - start
    nearest = (-(start * way).sum(-1) / (way**2).sum(-1).clamp_min(1e-12)).clamp(0, 1)[:, None]
    shorter = torch.minimum(start.norm(dim=-1), end.norm(dim=-1))
    passing = (start + nearest * way).norm(dim=-1) / shorter
    return _LEAST_SWING + (1 - _LEAST_SWING) * (1 - min_jerk((passing - _PAST) / (_CLEAR - _PAST)))


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
