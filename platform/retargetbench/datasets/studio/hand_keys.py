"""From keys of a hand to where the hand is in every frame, carried along by the posed body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from retargetbench.caching import per_character
from retargetbench.datasets.capsule_ik import apply
from retargetbench.datasets.studio.actions import POSES
from retargetbench.datasets.studio.arms import Arm, arm_frames, elbow_bend, feasible_hand, pose_arm, reachable
from retargetbench.datasets.studio.places import PLACES, find_place
from retargetbench.mesh.rays import vertex_normals
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.studio.actions import HandKey
    from retargetbench.datasets.studio.places import SkinPoint

TOUCH_CLEARANCE = 0.003
"""What a touching place keeps from the skin, heights."""

_CHEST, _HIPS = canonical_index("Spine2"), 0
_ELBOW = (0.5, -0.7, -0.6)
_SWIVELS_DEG = torch.arange(-80.0, 81.0, 10.0, dtype=torch.float64)
_COMFORT_DEG = 20.0  # so far from its wanted rotation is a hand as bad as an elbow ...
_SWIVEL_COST_DEG = 45.0  # ... turned so far from its natural place ...
_CLEARANCE_COST = 0.02  # ... or an arm that is so many heights too near to the trunk
_ARM_RADIUS = 0.03  # heights
_TRUNK_SAMPLES = 500
_ARM_TOUCH_ROUNDS = 8
_AT_ELBOW = 0.2  # share of the forearm; nearer to the elbow, its place alone decides
_FINGER_PADS = (0.55, -0.83, 0.0)  # of fingertips that touch: aslant between the tips and the palm's side


@dataclass(frozen=True, eq=False)
class Posed:
    """A body in motion.

    Attributes:
        body: on 22 joints.
        rotations: of the joints in the world, (T, 22, 3, 3).
        positions: (T, 22, 3) metres.
    """

    body: Character
    rotations: torch.Tensor
    positions: torch.Tensor

    def skin(self, point: SkinPoint) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where a point of the skin is and its normal, (T, 3) each."""
        rest = self.body.skeleton.rest_positions.double()
        used = point.weights > 0
        turned = apply(self.rotations[:, used], point.position - rest[used]) + self.positions[:, used]
        normal = apply(self.rotations[:, used], point.normal.expand(int(used.sum()), 3))
        weights = point.weights[used, None]
        return (weights * turned).sum(1), torch.nn.functional.normalize((weights * normal).sum(1), dim=-1)


@dataclass(frozen=True, eq=False)
class HandTarget:
    """Where a key puts a hand, in every frame.

    Attributes:
        control: position of a point of the hand, (T, 3) metres.
        offset: that point from the wrist in the T-pose, (3,) metres.
        rotation: of the hand in the world, (T, 3, 3).
        upper: rotation of the upper arm in the world, (T, 3, 3).
        normal: of the touched skin, zero where nothing is touched, (T, 3).
    """

    control: torch.Tensor
    offset: torch.Tensor
    rotation: torch.Tensor
    upper: torch.Tensor
    normal: torch.Tensor


def resolved(key: HandKey) -> HandKey:
    """Return a key with the fields of its named pose filled in where it does not say otherwise."""
    if key.pose is None:
        return key
    named = {name: value for name, value in POSES[key.pose].items() if getattr(key, name) is None}
    return key.model_copy(update=named)


def hand_target(
    posed: Posed, arm: Arm, key: HandKey, frame: int, swing: tuple[torch.Tensor, torch.Tensor] | None
) -> HandTarget:
    """Find where a key puts a hand.

    Args:
        posed: body with everything posed that the key may touch.
        arm: of the hand.
        key: see `resolved`.
        frame: of the key; the elbow is placed as the body is then.
        swing: of the hanging arm forward, and bend of its elbow beyond hanging, (T,) radians each, or None.
    """
    turn = {"chest": posed.rotations[:, _CHEST], "hips": posed.rotations[:, _HIPS]}.get(
        key.frame, torch.eye(3, dtype=torch.float64).expand(len(posed.rotations), 3, 3)
    )
    shoulder = posed.positions[:, arm.shoulder]
    pole = apply(turn if key.elbow else posed.rotations[:, _CHEST], arm.vector(key.elbow or _ELBOW))
    fingers = None if key.fingers is None else apply(turn, arm.vector(key.fingers))
    palm = None if key.palm is None else apply(turn, arm.vector(key.palm))
    if key.touch is None:
        assert key.reach is not None
        reach = arm.vector(key.reach).expand(len(turn), 3)
        if swing is not None:
            reach = _swung(arm, reach, *swing)
        control = shoulder + arm.length * apply(turn, reach)
        target = _Wanted(control, torch.zeros(3, dtype=torch.float64), torch.zeros_like(control), fingers, palm)
    else:
        point, normal = posed.skin(find_place(posed.body, key.touch))
        point = point + (key.gap + TOUCH_CLEARANCE) * posed.body.height * normal
        name = f"{('left', 'right')[arm.side]}_{key.with_}"
        if not PLACES[name].bone.endswith("Hand"):
            return _arm_touch(posed, arm, find_place(posed.body, name), point, normal, fingers, pole)
        own = find_place(posed.body, name)
        out = own.normal if key.with_ != "fingertips" else arm.vector(_FINGER_PADS)
        target = _Wanted(point, own.position - arm.rest_hand, normal, fingers, palm, out)
    rotation = target.rotation(arm, shoulder, pole)
    if key.elbow is None:
        pole = _best_pole(posed, arm, target, rotation, pole, frame)
        rotation = target.rotation(arm, shoulder, pole)
    wrist = reachable(arm, shoulder, target.control - apply(rotation, target.offset.expand_as(pole)))
    upper, _ = arm_frames(arm, shoulder, wrist, pole)
    return HandTarget(target.control, target.offset, rotation, upper, target.normal)


def _swung(arm: Arm, reach: torch.Tensor, forward: torch.Tensor, bend: torch.Tensor) -> torch.Tensor:
    """Swing a reach (T, 3) forward and bend the elbow farther, by (T,) radians each; lengths of the arm."""
    distance = reach.norm(dim=-1)
    total = elbow_bend(arm, distance * arm.length) + bend
    first, second = arm.lengths
    nearer = (first**2 + second**2 + 2 * first * second * total.cos()).sqrt() / arm.length
    # The wrist goes forward by half of what the elbow bends, as bones of equal length do.
    angle = forward + bend / 2
    cosine, sine = angle.cos(), angle.sin()
    x, y, z = (reach * (nearer / distance)[:, None]).unbind(-1)
    return torch.stack([x, cosine * y + sine * z, cosine * z - sine * y], -1)


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What a key asks of a hand: fields of `HandTarget`, directions of fingers and palm (T, 3) or None.

    ``out`` is the direction in the T-pose that is to look against ``normal``, (3,), or None.
    """

    control: torch.Tensor
    offset: torch.Tensor
    normal: torch.Tensor
    fingers: torch.Tensor | None
    palm: torch.Tensor | None
    out: torch.Tensor | None = None

    def rotation(self, arm: Arm, shoulder: torch.Tensor, pole: torch.Tensor) -> torch.Tensor:
        """Turn the hand; what is not asked for comes from the forearm. Batched over whatever ``pole`` is, (..., 3)."""
        wrist = self.control
        if self.out is not None:  # the palm lies on the skin, so that the wrist is about a thumb's width above it
            wrist = wrist + 0.12 * arm.lengths[1] * self.normal
        _, forearm = arm_frames(arm, shoulder, reachable(arm, shoulder, wrist), pole)
        fingers = forearm @ arm.along if self.fingers is None else self.fingers
        palm = -forearm[..., :, 1] if self.palm is None else self.palm
        if self.out is None:
            return _frame(fingers, palm) @ _frame(arm.along, arm.along.new_tensor([0.0, -1.0, 0.0])).mT
        lying = _across(arm.along, self.out)
        down = arm.along.new_tensor([0.0, -1.0, 0.0])
        if float(lying.norm()) < 0.5:  # tips or knuckles point at the skin, so that the palm's side tells the turn
            return _frame(-self.normal, palm) @ _frame(self.out, down).mT
        level = _across(fingers, self.normal)
        # Fingers that would point straight into the skin lie along it upwards.
        upward = _across(level.new_tensor([0.0, 1.0, 0.0]).expand_as(level), self.normal)
        return _frame(-self.normal, level + 0.05 * upward) @ _frame(self.out, lying).mT


def _best_pole(
    posed: Posed, arm: Arm, wanted: _Wanted, rotation: torch.Tensor, pole: torch.Tensor, frame: int
) -> torch.Tensor:
    """Turn the elbow so that the wrist is at ease and the arm clear of the trunk in the frame of the key, (T, 3)."""
    shoulder, control = posed.positions[frame, arm.shoulder], wanted.control[frame]
    wrist = reachable(arm, shoulder, control - rotation[frame] @ wanted.offset)
    axis = torch.nn.functional.normalize(wrist - shoulder, dim=0)
    base = torch.nn.functional.normalize(_across(pole[frame], axis), dim=0)
    angle = torch.deg2rad(_SWIVELS_DEG)[:, None]
    poles = angle.cos() * base + angle.sin() * torch.linalg.cross(axis, base)
    at_key = _Wanted(
        control.expand_as(poles),
        wanted.offset,
        wanted.normal[frame],
        None if wanted.fingers is None else wanted.fingers[frame].expand_as(poles),
        None if wanted.palm is None else wanted.palm[frame].expand_as(poles),
        wanted.out,
    )
    hands = at_key.rotation(arm, shoulder, poles)
    wrists = reachable(arm, shoulder, control - apply(hands, wanted.offset))
    upper, forearm = arm_frames(arm, shoulder, wrists, poles)
    twist, possible = (each[0] for each in feasible_hand(forearm[None], hands[None]))
    missed = (possible.mT @ hands).diagonal(dim1=-2, dim2=-1).sum(-1)
    missed_deg = torch.rad2deg(torch.acos(((missed - 1) / 2).clamp(-1, 1)))
    bent = (possible @ arm.along * (forearm @ arm.along)).sum(-1)
    ease = torch.rad2deg(twist.abs() + torch.acos(bent.clamp(-1, 1)))
    elbows = shoulder + arm.lengths[0] * (upper @ arm.along)
    near = _nearness(posed, frame, arm, elbows, upper, wrists)
    cost = (
        (missed_deg / _COMFORT_DEG) ** 2
        + 0.5 * (ease / 90) ** 2
        + (_SWIVELS_DEG / _SWIVEL_COST_DEG) ** 2
        + (near / _CLEARANCE_COST) ** 2
    )
    # The lowest point of a parabola, so that a hair's difference of two bodies does not turn the elbow by a whole step.
    best = int(cost[1:-1].argmin()) + 1
    left, low, right = cost[best - 1 : best + 2].tolist()
    curvature = left - 2 * low + right
    beside = 0.5 * (left - right) / curvature if curvature > 0 else 0.0
    swivel = torch.deg2rad(_SWIVELS_DEG[best] + max(-0.5, min(0.5, beside)) * (_SWIVELS_DEG[1] - _SWIVELS_DEG[0]))
    chosen = swivel.cos() * base + swivel.sin() * torch.linalg.cross(axis, base)
    chest = posed.rotations[:, _CHEST]
    return apply(chest, chest[frame].mT @ chosen)


def _nearness(
    posed: Posed, frame: int, arm: Arm, elbows: torch.Tensor, upper: torch.Tensor, wrists: torch.Tensor
) -> torch.Tensor:
    """By how much arms with these elbows and wrists (N, 3) are too near to the trunk, (N,) heights."""
    vertices, normals, part = _trunk_skin(posed.body)
    rest = posed.body.skeleton.rest_positions.double()
    turn = posed.rotations[frame, part]
    skin = apply(turn, vertices - rest[part]) + posed.positions[frame, part]
    along = elbows - arm.lengths[0] * 0.35 * (upper @ arm.along)
    points = torch.stack([along, elbows, torch.lerp(elbows, wrists, 0.3), torch.lerp(elbows, wrists, 0.6)], 1)
    nearest = torch.cdist(points, skin).argmin(-1)
    away = ((points - skin[nearest]) * apply(turn, normals)[nearest]).sum(-1) / posed.body.height
    return (_ARM_RADIUS - away).clamp_min(0).amax(-1)


@per_character
def _trunk_skin(body: Character) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Some vertices of hips, spine and head at rest with normals (N, 3) each, and the joint of each (N,)."""
    chosen = (body.dominant_joint < 6).nonzero()[:, 0]
    chosen = chosen[:: max(1, len(chosen) // _TRUNK_SAMPLES)]
    vertices = body.rest_vertices.double()
    return vertices[chosen], vertex_normals(vertices, body.faces)[chosen], body.dominant_joint[chosen]


def _arm_touch(
    posed: Posed,
    arm: Arm,
    own: SkinPoint,
    point: torch.Tensor,
    normal: torch.Tensor,
    fingers: torch.Tensor | None,
    pole: torch.Tensor,
) -> HandTarget:
    """Bring a place of forearm or upper arm to a point: the bone passes it at the place's own distance from the bone.

    The wrist follows from the elbow, which lies on a sphere about the shoulder: of all directions of the forearm that
    are left, the one nearest to the wanted direction of the fingers is taken.
    """
    shoulder = posed.positions[:, arm.shoulder]
    upper, lower = arm.lengths
    rest_elbow = arm.rest_hand - lower * arm.along
    from_elbow = own.position - rest_elbow
    share = float(from_elbow @ arm.along) / lower
    out = _across(own.normal, arm.along)
    target = point + float(_across(from_elbow, arm.along).norm()) * normal
    wanted = apply(posed.rotations[:, _CHEST], arm.vector((-0.4, -0.2, 1.0))) if fingers is None else fingers
    wanted = torch.nn.functional.normalize(wanted, dim=-1)
    origin = torch.zeros(3, dtype=torch.float64)
    wrist = target
    rotation = upper_arm = torch.eye(3, dtype=torch.float64).expand(len(target), 3, 3)
    for _ in range(_ARM_TOUCH_ROUNDS):
        elbow, along = _bones_through(shoulder, target, wanted, share, arm)
        wrist = elbow + lower * along
        axis = torch.nn.functional.normalize(wrist - shoulder, dim=-1)
        bend = _across(elbow - shoulder, axis)
        pole = torch.where(bend.norm(dim=-1, keepdim=True) > 1e-3, bend, pole)
        rotation = _frame(along, -normal) @ _frame(arm.along, out).mT
        upper_arm, _ = arm_frames(arm, shoulder, reachable(arm, shoulder, wrist), pole)
        pose = pose_arm(arm, shoulder, wrist, origin.expand_as(wrist), rotation, upper_arm)
        turn = pose.forearm if share > 0 else pose.upper
        reached = shoulder + upper * (pose.upper @ arm.along) + apply(turn, from_elbow.expand_as(wrist))
        target = target + point - reached
    return HandTarget(wrist, origin, rotation, upper_arm, normal)


def _bones_through(
    shoulder: torch.Tensor, target: torch.Tensor, wanted: torch.Tensor, share: float, arm: Arm
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the elbow and the direction of a forearm that passes a target at a share of its length, (T, 3) each."""
    upper, lower = arm.lengths
    way = target - shoulder
    distance = way.norm(dim=-1, keepdim=True)
    straight = way / distance
    part = share * lower
    if part < _AT_ELBOW * lower:
        return shoulder + upper * straight, wanted
    cosine = ((distance**2 + part**2 - upper**2) / (2 * part * distance)).clamp(-1, 1)
    along = cosine * straight + (1 - cosine**2).sqrt() * torch.nn.functional.normalize(
        _across(wanted, straight), dim=-1
    )
    return target - part * along, along


def _across(vector: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
    """Part of vectors (..., 3) that is perpendicular to unit axes (..., 3)."""
    return vector - (vector * axis).sum(-1, keepdim=True) * axis


def _frame(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Right-handed frame as columns: along ``first``, as far as possible along ``second``, and across, (..., 3, 3)."""
    x = torch.nn.functional.normalize(first, dim=-1)
    y = torch.nn.functional.normalize(_across(second, x), dim=-1)
    x = x.expand_as(y)
    return torch.stack([x, y, torch.linalg.cross(x, y)], -1)
