"""Tracks of feet found in a motion: where each foot is planted, and what it does in between.

A motion is taken apart exactly into what `retargetbench.datasets.studio.performance.FootTrack` holds; where a foot
is planted, it is then held in place, since recorded and copied feet never stand quite still.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import roma
import torch

from retargetbench.datasets.studio.curves import min_jerk
from retargetbench.datasets.studio.keys import KEY_STEP
from retargetbench.datasets.studio.legs import LEG_JOINTS, foot_pivots
from retargetbench.datasets.studio.performance import FootTrack
from retargetbench.kinematics import hemisphere_continuous

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.skeleton import Skeleton

FOOT_HEIGHT = 0.03 / 1.8
"""Heel or ball that are lower may be planted, heights; 3 cm of 180 cm."""

FOOT_STEP = 0.01 / 1.8
"""Heel or ball that move less in a frame of 1/30 s may be planted, heights; 1 cm of 180 cm."""

MAJORITY = 5
"""Frames over which the majority decides."""

SHORTEST_STAND = 4
"""Frames; a foot that is planted for a shorter while is not."""

HELD_BEYOND = 2
"""Frames by which a foot is held longer than it is said to be planted, so that splines through keys lie flat there."""

BLEND = 5
"""Frames before and after that in which the foot goes over to what it does otherwise."""

_MOST_DRIFT = 0.02  # heights that a foot may go during one stand; one that goes farther shuffles
_MOST_TURN = math.radians(20.0)
_SHUFFLE = 4  # frames of a shuffling foot between two stands
_MOST_TOES = math.radians(50.0)
_LEAST_BEND = 0.03  # leg lengths that a knee is off the line from hip to ankle before it alone tells its direction


class FootShape(NamedTuple):
    """A foot in the T-pose, and the size of who has it.

    Attributes:
        side: 0 for the left foot, 1 for the right.
        ankle: (3,) metres.
        heel: seen from the ankle, (3,) metres.
        ball: the toe joint seen from the ankle, (3,) metres.
        height: of the person, metres.
    """

    side: int
    ankle: torch.Tensor
    heel: torch.Tensor
    ball: torch.Tensor
    height: float


def foot_of_skeleton(skeleton: Skeleton, body: Character, side: int) -> FootShape:
    """Return the shape of a foot without skin: the heel is where the body has it, scaled by the length of the foot.

    Args:
        skeleton: of the 22 joints, with the body's rest pose.
        body: with skin.
        side: 0 for the left foot, 1 for the right.
    """
    _, _, ankle, toe = LEG_JOINTS[side]
    rest = skeleton.rest_positions.double()
    pivots = foot_pivots(body, side)
    ball = rest[toe] - rest[ankle]
    size = ball.norm() / pivots.ball.double().norm()
    return FootShape(side, rest[ankle], ball + size * (pivots.heel - pivots.ball).double(), ball, skeleton.height)


def foot_track(foot: FootShape, rotations: torch.Tensor, positions: torch.Tensor) -> FootTrack:
    """Find the track of a foot, planted where it rests.

    Args:
        foot: of who moves.
        rotations: world rotations at 30 frames a second, (T, 22, 3, 3).
        positions: of the joints, where the floor is as in the T-pose, (T, 22, 3) metres.

    Returns:
        The track, float64, in heights of who moves. Farther than `HELD_BEYOND` and `BLEND` frames from a stand
        `retargetbench.datasets.studio.legs.ankle_path` gives ankle and foot of the motion, unless they are below the
        floor. In a stand place, yaw and lift are constant, the foot does not stand on its edge, and the toes stay flat
        while the heel comes up.
    """
    track = take_apart(foot, rotations, positions)
    return _hold(replace(track, planted=steady_stands(resting_frames(foot, rotations, positions), track)))


def take_apart(foot: FootShape, rotations: torch.Tensor, positions: torch.Tensor) -> FootTrack:
    """Take the motion of a foot apart without changing it; see `foot_track`. No frame is planted."""
    hip, knee, ankle, toe = LEG_JOINTS[foot.side]
    thigh, turned_foot, turned_toe = rotations.double()[:, [hip, ankle, toe]].unbind(1)
    at = positions.double()
    quaternion = roma.rotmat_to_unitquat(turned_foot)
    # The twist about Y of a swing-twist decomposition: it has no trouble with toes that point straight down.
    yaw = _unwrapped(2 * torch.atan2(quaternion[:, 1], quaternion[:, 3]))
    turned = _about(1, yaw)
    tilt = turned.mT @ turned_foot
    pivot = torch.where((tilt[:, 1, 2] < 0)[:, None], foot.ball, foot.heel)
    rolled = pivot - (tilt @ pivot[..., None])[..., 0]
    flat = (at[:, ankle] - foot.ankle - (turned @ rolled[..., None])[..., 0]) / foot.height
    toes = roma.rotmat_to_unitquat(turned_foot.mT @ turned_toe)
    bent = 2 * torch.atan2(toes[:, 0], toes[:, 3])
    return FootTrack(
        place=flat[:, [0, 2]],
        lift=flat[:, 1],
        yaw=yaw,
        tilt=hemisphere_continuous(roma.rotmat_to_unitquat(tilt)),
        toes=torch.remainder(bent + math.pi, 2 * math.pi) - math.pi,
        knee=_knee_direction(at[:, hip], at[:, knee], at[:, ankle], thigh),
        planted=torch.zeros(len(at), dtype=torch.bool),
    )


def sole_points(foot: FootShape, rotations: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return where heel and ball are, their heights seen from those in the T-pose, (T, 2, 3) metres."""
    _, _, ankle, toe = LEG_JOINTS[foot.side]
    behind = positions.double()[:, ankle] + rotations.double()[:, ankle] @ foot.heel
    points = torch.stack([behind, positions.double()[:, toe]], 1)
    points[..., 1] -= foot.ankle[1] + torch.stack([foot.heel[1], foot.ball[1]])
    return points


def resting_frames(foot: FootShape, rotations: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Find the frames in which heel or ball rests, (T,) bool; see `foot_track` for the arguments.

    Source: Villegas et al., "Contact-Aware Retargeting of Skinned Motion", ICCV 2021: toes are planted if low and
    slow, heels if slow, by the majority of 5 frames, at the scale of 180 cm. We ask that heels are low, too, since a
    foot that is held up would stand otherwise, and look at points of the sole.
    """
    points = sole_points(foot, rotations, positions) / foot.height
    step = torch.zeros_like(points[..., 0])
    if len(points) > 1:
        (speed,) = torch.gradient(points, dim=0)
        step = speed.norm(dim=-1)
    resting = ((points[..., 1] <= FOOT_HEIGHT) & (step <= FOOT_STEP)).any(-1)
    radius = MAJORITY // 2
    padded = torch.cat([resting[:1].expand(radius), resting, resting[-1:].expand(radius)])
    return padded.unfold(0, MAJORITY, 1).sum(-1) > radius


def steady_stands(resting: torch.Tensor, track: FootTrack) -> torch.Tensor:
    """Keep what is a stand of the resting frames: longer than a moment and without shuffling or turning, (T,) bool.

    A longer way is cut into stands with a few frames between them. Stands begin and end with key frames, since between
    two keys of which one is in motion a foot moves; see `retargetbench.datasets.studio.keys`.
    """
    values = torch.cat([track.place / _MOST_DRIFT, track.yaw[:, None] / _MOST_TURN], -1)
    stands = torch.zeros_like(resting)
    for start, stop in runs_of(resting):
        begin = start
        while stop - begin >= SHORTEST_STAND:
            part = values[begin:stop]
            span = (part.cummax(0).values - part.cummin(0).values).amax(-1)
            length = int((span <= 1).sum())  # the span only grows
            if length >= SHORTEST_STAND:
                first, last = (-(-begin // KEY_STEP) * KEY_STEP, (begin + length - 1) // KEY_STEP * KEY_STEP)
                stands[first : last + 1] = True
                begin += length + _SHUFFLE
            else:
                begin += 1
    return stands


def runs_of(mask: torch.Tensor) -> list[tuple[int, int]]:
    """Return begin and end (left out) of all runs of true frames of a mask (T,)."""
    edges = torch.cat([mask.new_zeros(1), mask, mask.new_zeros(1)]).int().diff()
    return list(zip((edges == 1).nonzero()[:, 0].tolist(), (edges == -1).nonzero()[:, 0].tolist(), strict=True))


def _hold(track: FootTrack) -> FootTrack:
    """Hold the foot in place where it is planted, and blend that in and out."""
    frames = len(track.place)
    tilt = roma.unitquat_to_rotmat(track.tilt)
    pitch = torch.asin((-tilt[:, 1, 2]).clamp(-1, 1))
    values = torch.cat([track.place, torch.stack([track.lift.clamp_min(0), track.yaw, track.toes], -1)], -1)
    held = values.clone()
    flat = torch.zeros(frames, dtype=torch.float64)
    stands = runs_of(track.planted)
    for number, (start, stop) in enumerate(stands):
        wanted = values[start:stop].quantile(0.5, dim=0).expand(stop - start, -1).clone()
        wanted[:, 2] = 0.0
        wanted[:, 4] = -pitch[start:stop].clamp(0, _MOST_TOES)
        held[start:stop] = wanted
        flat[start:stop] = 1.0
        before = start - stands[number - 1][1] if number > 0 else 2 * start
        after = stands[number + 1][0] - stop if number + 1 < len(stands) else 2 * (frames - stop)
        for room, edge, step in ((before, start, -1), (after, stop - 1, 1)):
            still = min(HELD_BEYOND, room // 3)
            blend = min(BLEND, (start if step < 0 else frames - stop) - still, room - 2 * still)
            away = torch.arange(1, still + blend + 1)
            share = 1 - min_jerk(((away - still) / (blend + 1.0)).double())
            held[edge + step * away] += share[:, None] * (held[edge] - values[edge])
            at_rest = away[:still]
            held[edge + step * at_rest, :4] = held[edge, :4]
            held[edge + step * at_rest, 4] = -pitch[edge + step * at_rest].clamp(0, _MOST_TOES)
            flat[edge + step * away] = torch.maximum(flat[edge + step * away], share)
    # Without its roll a planted foot has its sole on the floor and not an edge of it.
    pitched = _about(0, pitch)
    rest = roma.rotmat_to_rotvec(pitched.mT @ tilt)
    return replace(
        track,
        place=held[:, :2],
        lift=held[:, 2].clamp_min(0),
        yaw=held[:, 3],
        toes=held[:, 4],
        tilt=hemisphere_continuous(
            roma.rotmat_to_unitquat(pitched @ roma.rotvec_to_rotmat(rest * (1 - flat)[:, None]))
        ),
    )


def _knee_direction(hip: torch.Tensor, knee: torch.Tensor, ankle: torch.Tensor, thigh: torch.Tensor) -> torch.Tensor:
    """Direction of the knee from the leg's own plane, and of a straight leg from the front of its thigh, (T, 3)."""
    axis = torch.nn.functional.normalize(ankle - hip, dim=-1)
    length = (knee - hip).norm(dim=-1, keepdim=True) + (ankle - knee).norm(dim=-1, keepdim=True)

    def aside(vector: torch.Tensor) -> torch.Tensor:
        return vector - (vector * axis).sum(-1, keepdim=True) * axis

    return torch.nn.functional.normalize(aside(knee - hip) / length + _LEAST_BEND * aside(thigh[..., 2]), dim=-1)


def _about(axis: int, angle: torch.Tensor) -> torch.Tensor:
    """Rotation matrices about X (0), Y (1) or Z (2) by angles (T,) in radians, (T, 3, 3)."""
    turned: torch.Tensor = roma.rotvec_to_rotmat(angle[:, None] * torch.eye(3, dtype=angle.dtype)[axis])
    return turned


def _unwrapped(angle: torch.Tensor) -> torch.Tensor:
    """Angles (T,) without jumps by whole turns, beginning within half a turn of nought."""
    step = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    first = torch.remainder(angle[:1] + math.pi, 2 * math.pi) - math.pi
    return torch.cat([first, first + step.cumsum(0)])
