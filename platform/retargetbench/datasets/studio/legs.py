"""Legs of any body from the track of its feet: two-bone inverse kinematics that keeps planted feet exactly in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import roma
import torch

from retargetbench.caching import per_character
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import FootTrack

LEG_JOINTS: tuple[tuple[int, int, int, int], ...] = tuple(
    (canonical_index(f"{side}UpLeg"), canonical_index(f"{side}Leg"), canonical_index(f"{side}Foot"),
     canonical_index(f"{side}ToeBase"))
    for side in ("Left", "Right")
)  # fmt: skip
"""Hip, knee, ankle and toe joint of the left and the right leg."""

LONGEST_REACH = 0.997
"""Share of the stretched leg that is used at most; a leg that is straight to the last degree pops."""


class FootPivots(NamedTuple):
    """Where a foot rolls on the floor, seen from its ankle at rest.

    Attributes:
        heel: (3,) metres.
        ball: the toe joint, so that toes that stay on the floor do not move at all, (3,) metres.
    """

    heel: torch.Tensor
    ball: torch.Tensor


@per_character
def foot_pivots(body: Character, side: int) -> FootPivots:
    """Find heel and ball of the left (0) or right (1) foot; remembered per body.

    The heel is on the floor below the rearmost skin of the foot; a mesh without skin on that foot has it below the
    ankle.
    """
    _, _, ankle, toe = LEG_JOINTS[side]
    rest = body.skeleton.to_canonical().rest_positions.double()
    part = body.dominant_joint
    skin = body.rest_vertices[(part == ankle) | (part == toe)].double()
    rearmost = float(skin[:, 2].min()) if len(skin) else float(rest[ankle, 2])
    floor = -float(rest[ankle, 1])
    return FootPivots(
        heel=rest.new_tensor([0.0, floor, rearmost - float(rest[ankle, 2])]),
        ball=rest[toe] - rest[ankle],
    )


def ankle_path(body: Character, side: int, track: FootTrack, height: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute where the ankle of a body is and how its foot is turned.

    Args:
        body: with its 22 joints.
        side: 0 for the left foot, 1 for the right.
        track: of that foot, T frames.
        height: of the body, metres.

    Returns:
        World positions of the ankle (T, 3), metres, and world rotations of the foot (T, 3, 3).
    """
    rest = body.skeleton.to_canonical().rest_positions.to(track.place)[LEG_JOINTS[side][2]]
    pivots = foot_pivots(body, side)
    up = track.yaw.new_tensor([0.0, 1.0, 0.0])
    yaw = roma.rotvec_to_rotmat(track.yaw[:, None] * up)
    tilt = roma.unitquat_to_rotmat(track.tilt)
    # Toes that point down: the foot's own forward axis sinks.
    on_ball = (tilt[:, 1, 2] < 0)[:, None]
    pivot = torch.where(on_ball, pivots.ball.to(track.place), pivots.heel.to(track.place))
    flat = torch.stack([track.place[:, 0], track.lift, track.place[:, 1]], -1) * height
    rolled = pivot - (tilt @ pivot[..., None])[..., 0]
    return rest + flat + (yaw @ rolled[..., None])[..., 0], yaw @ tilt


def pose_leg(
    body: Character,
    side: int,
    hips_rotation: torch.Tensor,
    hips_position: torch.Tensor,
    ankle: torch.Tensor,
    foot: torch.Tensor,
    knee: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Solve one leg; differentiable.

    Args:
        body: with its 22 joints.
        side: 0 for the left leg, 1 for the right.
        hips_rotation: (..., 3, 3).
        hips_position: (..., 3) metres.
        ankle: where the ankle should be, (..., 3) metres; an ankle out of reach is approached.
        foot: world rotation of the foot, (..., 3, 3).
        knee: direction of the knee, (..., 3).

    Returns:
        Local rotations of hip, knee and ankle joint, each (..., 3, 3), and by how much the leg is too short,
        (...) metres.

    Source: the law of cosines. The knee's axis is that of the leg's own plane; rests are a T-pose whose legs are
    straight, so the plane at rest is the one through +Z.
    """
    hip, shin, end, _ = LEG_JOINTS[side]
    offsets = body.skeleton.to_canonical().offsets.to(ankle)
    start = hips_position + (hips_rotation @ offsets[hip, :, None])[..., 0]
    first, second = float(offsets[shin].norm()), float(offsets[end].norm())
    axis = ankle - start
    distance = axis.norm(dim=-1, keepdim=True)
    axis = axis / distance
    longest = LONGEST_REACH * (first + second)
    reach = distance.clamp(abs(first - second) + 1e-3, longest)
    along = (first**2 - second**2 + reach**2) / (2 * reach)
    aside = (first**2 - along**2).clamp_min(1e-12).sqrt()
    hinge = torch.nn.functional.normalize(torch.linalg.cross(axis, knee), dim=-1)
    bend = torch.linalg.cross(hinge, axis)
    thigh = _frame((along * axis + aside * bend) / first, hinge) @ _rest_frame(offsets[shin]).mT
    calf = _frame(((reach - along) * axis - aside * bend) / second, hinge) @ _rest_frame(offsets[end]).mT
    short = (distance[..., 0] - longest).clamp_min(0)
    return hips_rotation.mT @ thigh, thigh.mT @ calf, calf.mT @ foot, short


def pose_legs(
    body: Character,
    hips_rotation: torch.Tensor,
    hips_position: torch.Tensor,
    feet: tuple[FootTrack, FootTrack],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Solve both legs of a body for the tracks of its feet.

    Args:
        body: with its 22 joints.
        hips_rotation: (T, 3, 3).
        hips_position: (T, 3) metres.
        feet: tracks of the left and the right foot, T frames.

    Returns:
        Local rotations of hip, knee, ankle and toe joint of the left and then the right leg, (T, 8, 3, 3), and by how
        much a leg is too short for its track, (T, 2) metres.
    """
    rotations, shortages = [], []
    for side, track in enumerate(feet):
        ankle, foot = ankle_path(body, side, track, body.height)
        *leg, short = pose_leg(body, side, hips_rotation, hips_position, ankle, foot, track.knee)
        across = track.toes.new_tensor([1.0, 0.0, 0.0])
        rotations += [*leg, roma.rotvec_to_rotmat(track.toes[:, None] * across)]
        shortages.append(short)
    return torch.stack(rotations, -3), torch.stack(shortages, -1)


def _frame(along: torch.Tensor, hinge: torch.Tensor) -> torch.Tensor:
    """Frame of a bone as columns: along it, its hinge, and the cross product of both, (..., 3, 3)."""
    across = torch.linalg.cross(along, hinge)
    return torch.stack([along, hinge, across], -1)


def _rest_frame(offset: torch.Tensor) -> torch.Tensor:
    """The same frame in the T-pose, where the knee points forward, (3, 3)."""
    along = offset / offset.norm()
    hinge = torch.nn.functional.normalize(torch.linalg.cross(along, along.new_tensor([0.0, 0.0, 1.0])), dim=0)
    return _frame(along, hinge)
