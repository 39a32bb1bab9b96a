"""Solves a score of the capsule dataset for one body: trunk from curves, legs and arms by two-bone inverse kinematics.

What a hand touches is a skinned point of the body's own surface with its normal, so the hand follows the surface when
the trunk bends, and the palm stays the same small clearance away on every body. Rotations are matrices here, (..., 3, 3),
float64; the result is rounded so that every machine gets the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import roma
import torch

from retargetbench.datasets.capsule_motions import FPS
from retargetbench.kinematics import forward_kinematics, hemisphere_continuous
from retargetbench.motion import Motion
from retargetbench.skeleton import CANONICAL_PARENTS, canonical_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from retargetbench.datasets.capsule_bodies import Body
    from retargetbench.datasets.capsule_motions import Hand, Score
    from retargetbench.skeleton import Skeleton

    Array = NDArray[np.float64]

TOUCH_CLEARANCE = 0.003
"""What a touching palm keeps from the surface, metres: a body that is not penetrated."""

_APPROACH = 0.1  # heights by which a hand's path to or from a touch bulges away from the surface
_ARM_CLEARANCE = 0.008  # metres that a posed arm should keep from the trunk
_CLEARANCE_PER_RADIAN = 0.02  # metres of missing clearance that are as bad as an elbow a radian from its natural place
_DECIMALS = 6


def solve(body: Body, score: Score) -> Motion:
    """Solve a score for a body.

    Returns:
        The motion of the 22 canonical joints, float32, at `FPS`. The root moves by the one root rule: displacement
        and drop of the hips are the same number of heights on every body.
    """
    skeleton = body.character.skeleton.to(dtype=torch.float64)
    frames = torch.arange(score.frames, dtype=torch.float64)
    curve = {name: eased(keys, frames) for name, keys in score.trunk.items()}
    zero = torch.zeros_like(frames)
    feet = {side: _foot_path(score, side, frames) for side in ("Left", "Right")}

    local = torch.eye(3, dtype=torch.float64).repeat(score.frames, 22, 1, 1)
    local[:, 0] = _about("y", curve.get("hips_yaw", zero))
    spine = _about("y", curve.get("twist", zero) / 3) @ (
        _about("z", -curve.get("lean", zero) / 3) @ _about("x", curve.get("bend", zero) / 3)
    )
    look = _about("y", curve.get("turn", zero) / 2) @ _about("x", curve.get("nod", zero) / 2)
    for name in ("Spine", "Spine1", "Spine2"):
        local[:, canonical_index(name)] = spine
    for name in ("Neck", "Head"):
        local[:, canonical_index(name)] = look

    forward = smoothed((feet["Left"][0][:, 2] + feet["Right"][0][:, 2]) / 2)
    offset = torch.stack([curve.get("hips_x", zero), curve.get("hips_y", zero - 0.006), forward], -1)
    root = skeleton.offsets[0] + offset * skeleton.height

    for side in ("Left", "Right"):
        _solve_leg(skeleton, root, local, side, *feet[side])
    world, positions = _pose(skeleton, root, local)
    arm = LeftArm(body)
    for side, keys in (("Left", score.left), ("Right", score.right)):
        _solve_arm(arm, world, positions, local, side, keys, frames)
    rotations = hemisphere_continuous(roma.rotmat_to_unitquat(local))
    return Motion(_rounded(root), _rounded(rotations), FPS)


def two_bone(
    start: torch.Tensor, end: torch.Tensor, lengths: tuple[float, float], pole: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Bend a limb of two bones so that it reaches from ``start`` to ``end``.

    An end out of reach is approached along the straight line as far as the limb goes.

    Args:
        start: position of the first joint, (..., 3) metres.
        end: where the third joint should be, (..., 3) metres.
        lengths: of the two bones, metres.
        pole: direction to which the middle joint bends, (..., 3), not along the limb.

    Returns:
        Unit directions of the two bones and of the hinge between them, each (..., 3).

    Source: the law of cosines.

    Example:
        >>> start, end = torch.zeros(3), torch.tensor([0.0, -1.0, 1.0])
        >>> first, second, hinge = two_bone(start, end, (1.0, 1.0), torch.tensor([0.0, -1.0, 0.0]))
        >>> first.round(decimals=3).tolist(), second.round(decimals=3).tolist()
        ([0.0, -1.0, 0.0], [0.0, 0.0, 1.0])
    """
    first, second = lengths
    axis = end - start
    distance = axis.norm(dim=-1, keepdim=True)
    axis = axis / distance
    reach = distance.clamp(abs(first - second) + 1e-6, (first + second) * (1 - 1e-7))
    along = (first**2 - second**2 + reach**2) / (2 * reach)
    aside = (first**2 - along**2).clamp_min(0).sqrt()
    hinge = torch.nn.functional.normalize(torch.linalg.cross(axis, pole.expand_as(axis)), dim=-1)
    bend = torch.linalg.cross(hinge, axis)
    upper = (along * axis + aside * bend) / first
    lower = (reach * axis - first * upper) / second
    return upper, lower, hinge


def eased(keys: Sequence[tuple[int, float]], frames: torch.Tensor) -> torch.Tensor:
    """Evaluate key frames (frame, value) with smoothstep between them and constant ends, (T,)."""
    times = torch.tensor([frame for frame, _ in keys], dtype=torch.float64)
    values = torch.tensor([value for _, value in keys], dtype=torch.float64)
    segment, share = _segments(times, frames)
    return torch.lerp(values[segment], values[segment + 1], _smoothstep(share))


def smoothed(values: torch.Tensor, sigma: float = 5.0) -> torch.Tensor:
    """Blur a curve (T,) over time by a Gaussian of ``sigma`` frames; the ends are held."""
    radius = int(4 * sigma)
    steps = torch.arange(-radius, radius + 1, dtype=values.dtype)
    kernel = torch.exp(-0.5 * (steps / sigma) ** 2)
    padded = torch.nn.functional.pad(values[None, None], (radius, radius), mode="replicate")
    return torch.nn.functional.conv1d(padded, (kernel / kernel.sum())[None, None])[0, 0]


@dataclass(frozen=True, eq=False)
class _HandPose:
    """A hand posed against the resting body; ``weights`` (22,) say with which joints the pose moves."""

    wrist: torch.Tensor
    """Position of the wrist, (3,) metres."""
    rotation: torch.Tensor
    """Rotation of the hand, (3, 3)."""
    approach: torch.Tensor
    """How the path bulges away from what is touched, (3,) metres; zero for a free hand."""
    pole: torch.Tensor
    """Direction of the elbow, (3,)."""
    weights: torch.Tensor
    """Skin weights of what is touched, (22,)."""

    def mirrored(self) -> _HandPose:
        """Return the same pose of the right hand."""
        flip = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
        swap = [*range(6), *range(10, 14), *range(6, 10), *range(18, 22), *range(14, 18)]
        return _HandPose(
            self.wrist * flip,
            flip[:, None] * self.rotation * flip,
            self.approach * flip,
            self.pole * flip,
            self.weights[swap],
        )


class LeftArm:
    """Finds the poses of a body's left arm at key frames, on the body at rest."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.trunk = body.trunk
        build, rest = body.build, body.joints
        self.stature = build.stature
        self.height = body.character.height
        self.shoulder, self.elbow, self.hand = (rest[canonical_index("Left" + n)] for n in ("Arm", "ForeArm", "Hand"))
        self.lengths = (float(self.elbow[0] - self.shoulder[0]), float(self.hand[0] - self.elbow[0]))
        self.radius = build.arm_radius * build.stature
        self.hips, self.neck = (float(rest[canonical_index(name), 1]) for name in ("Hips", "Neck"))
        self.thigh = (build.pelvis + build.leg_radius) * build.stature

    def pose(self, key: Hand) -> _HandPose:
        """Return the pose of a key frame."""
        gap = key.gap * self.height
        if key.touch == "hang":
            return self._hang(key.swing)
        if key.touch == "wave":
            return self._wave(key.swing)
        if key.touch == "palms":
            return self._palms(gap)
        if key.touch == "thigh":
            return self._thigh(gap)
        chest = self.hips + 0.6 * (self.neck - self.hips)
        head = 0.5 * (float(self.body.joints[canonical_index("Head"), 1]) + self.stature)
        height, azimuth, fingers, pole = {
            "belly": (self.hips + 0.25 * (self.neck - self.hips), 40.0, (-0.7, 0.6, 0.0), (0.7, -0.5, -0.4)),
            "chest": (chest + key.swing * self.radius, -22.0, (-1.0, 0.0, 0.0), (0.8, -0.6, 0.0)),
            "head": (head, 85.0, (0.0, 0.7, -0.6), (0.9, -0.3, 0.5)),
        }[key.touch]
        angle = math.radians(azimuth)
        point = self.trunk.surface(np.array(height), np.array(angle))
        return self._touch(
            point, self.trunk.normal(height, angle), fingers, pole, self.trunk.weights(np.array([height]))[0], gap
        )

    def _touch(
        self,
        point: Array,
        normal: Array,
        fingers: tuple[float, float, float],
        pole: tuple[float, float, float],
        weights: Array,
        gap: float,
    ) -> _HandPose:
        """Lay the palm on a surface point, with the fingers as far along ``fingers`` as the surface allows."""
        along = np.asarray(fingers) - np.dot(fingers, normal) * normal
        along /= np.linalg.norm(along)
        rotation = np.stack([along, normal, np.cross(along, normal)], -1)
        wrist = point + (TOUCH_CLEARANCE + gap) * normal - rotation @ self.body.palm("Left")
        return _HandPose(
            torch.from_numpy(wrist),
            torch.from_numpy(rotation),
            torch.from_numpy(normal * _APPROACH * self.height),
            torch.from_numpy(self._free_pole(wrist, np.asarray(pole))),
            torch.from_numpy(weights),
        )

    def _palms(self, gap: float) -> _HandPose:
        """Palms meet in the plane between the arms, in front of the chest."""
        low, high = self.hips + 0.2 * (self.neck - self.hips), self.hips + 0.75 * (self.neck - self.hips)
        depth = float(self.trunk.half_axes(np.linspace(low, high, 16))[:, 1].max())
        point = np.array([0.0, high - 0.1 * (high - low), depth + 0.07 * self.stature])
        return self._touch(point, np.array([1.0, 0.0, 0.0]), (0.0, 0.6, 0.8), (0.8, -0.6, 0.0), _one_hot("Spine2"), gap)

    def _thigh(self, gap: float) -> _HandPose:
        """The palm on the front of the thigh, a third of it above the knee."""
        point, normal = self.body.thigh_front(0.4)
        return self._touch(point, normal, (-0.25, -1.0, 0.0), (0.8, 0.2, -0.6), _one_hot("LeftUpLeg"), gap)

    def _hang(self, swing: float) -> _HandPose:
        """The arm hangs as straight down as the body allows, swung forward by ``swing`` degrees, elbow a bit bent."""
        aside = torch.arange(4.0, 75.0, dtype=torch.float64)
        upper = _about("x", torch.tensor(-swing, dtype=torch.float64)) @ _about("z", aside - 90.0)
        lower = upper @ _about("y", torch.tensor(-14.0, dtype=torch.float64))
        clear = self._clearance(upper[:, :, 0].numpy(), lower[:, :, 0].numpy()) >= _ARM_CLEARANCE
        first = int(clear.argmax())
        return self._free(upper[first].numpy(), lower[first].numpy())

    def _wave(self, outward: float) -> _HandPose:
        """Upper arm out to the side, forearm upright, palm to the front."""
        upper = _rotation("z", math.radians(-12.0)) @ _rotation("x", math.radians(-90.0))
        lower = _rotation("z", math.radians(90.0 - outward)) @ _rotation("x", math.radians(-90.0))
        return self._free(upper, lower)

    def _free(self, upper: Array, lower: Array) -> _HandPose:
        """A hand in line with its forearm, carried by the chest."""
        wrist = self.shoulder + self.lengths[0] * upper[:, 0] + self.lengths[1] * lower[:, 0]
        bend = upper[:, 0] - lower[:, 0]
        return _HandPose(
            torch.from_numpy(wrist),
            torch.from_numpy(lower),
            torch.zeros(3, dtype=torch.float64),
            torch.from_numpy(bend / np.linalg.norm(bend)),
            torch.from_numpy(_one_hot("Spine2")),
        )

    def _free_pole(self, wrist: Array, natural: Array) -> Array:
        """Turn the elbow out of the body: the pole nearest to the natural one whose arm is clear of the trunk."""
        axis = wrist - self.shoulder
        axis = axis / np.linalg.norm(axis)
        base = natural - (natural @ axis) * axis
        base /= np.linalg.norm(base)
        turns = np.radians([sign * angle for angle in range(0, 121, 6) for sign in (1, -1)])
        poles = np.cos(turns)[:, None] * base + np.sin(turns)[:, None] * np.cross(axis, base)
        upper, lower, _ = two_bone(
            torch.from_numpy(self.shoulder), torch.from_numpy(wrist).expand(len(poles), 3),
            self.lengths, torch.from_numpy(poles),
        )  # fmt: skip
        missing = np.maximum(_ARM_CLEARANCE - self._clearance(upper.numpy(), lower.numpy()), 0.0)
        cost = np.abs(turns) + missing / _CLEARANCE_PER_RADIAN
        return np.asarray(poles[cost.argmin()])

    def _clearance(self, upper: Array, lower: Array) -> Array:
        """Return how far arms stay from trunk and thigh, (N,) metres.

        The half of the upper arm at the shoulder and the quarter of the forearm at the wrist are left out: they are
        joined to the body, or meant to touch it.

        Args:
            upper: directions of the upper arm, (N, 3).
            lower: directions of the forearm, (N, 3).
        """
        share = np.linspace(0, 1, 9)[:, None]
        elbow = self.shoulder + self.lengths[0] * upper[:, None]
        first = self.shoulder + self.lengths[0] * (0.5 + 0.5 * share) * upper[:, None]
        second = elbow + self.lengths[1] * 0.75 * share * lower[:, None]
        radii = self.radius * np.concatenate([np.linspace(1.0, 0.85, 9), np.linspace(0.85, 0.65, 9)])
        points = np.concatenate([first, second], axis=1)
        thigh = np.where(points[..., 1] < self.hips, np.abs(points[..., 0]) - self.thigh, np.inf)
        return np.asarray((np.minimum(self.trunk.clearance(points), thigh) - radii).min(-1))


def _solve_leg(
    skeleton: Skeleton, root: torch.Tensor, local: torch.Tensor, side: str, offset: torch.Tensor, pitch: torch.Tensor
) -> None:
    """Write the leg's local rotations so that the foot follows its offset from rest (T, 3) in heights and its pitch."""
    hip, knee, ankle = (canonical_index(side + name) for name in ("UpLeg", "Leg", "Foot"))
    world, positions = _pose(skeleton, root, local)
    target = skeleton.rest_positions[ankle] + offset * skeleton.height
    lengths = (float(skeleton.offsets[knee].norm()), float(skeleton.offsets[ankle].norm()))
    pole = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    upper, lower, hinge = two_bone(positions[:, hip], target, lengths, pole)
    rest = _frame(
        torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64), torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64)
    )
    thigh, shin = _frame(upper, hinge) @ rest.mT, _frame(lower, hinge) @ rest.mT
    local[:, hip] = world[:, CANONICAL_PARENTS[hip]].mT @ thigh
    local[:, knee] = thigh.mT @ shin
    local[:, ankle] = shin.mT @ _about("x", pitch)


def _solve_arm(
    arm: LeftArm,
    world: torch.Tensor,
    positions: torch.Tensor,
    local: torch.Tensor,
    side: str,
    keys: Sequence[Hand],
    frames: torch.Tensor,
) -> None:
    """Write the arm's local rotations so that the hand follows its keys."""
    poses = [arm.pose(key) if side == "Left" else arm.pose(key).mirrored() for key in keys]
    wrist, hand, pole = _follow(arm.body, poses, keys, world, positions, frames)
    shoulder, elbow, end = (canonical_index(side + name) for name in ("Arm", "ForeArm", "Hand"))
    upper, lower, hinge = two_bone(positions[:, shoulder], wrist, arm.lengths, pole)
    along = torch.tensor([1.0 if side == "Left" else -1.0, 0.0, 0.0], dtype=torch.float64)
    # In the T-pose the elbow points back, so that the forearm bends forward.
    rest = _frame(along, torch.linalg.cross(along, torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64)))
    upper_rotation, lower_rotation = _frame(upper, hinge) @ rest.mT, _frame(lower, hinge) @ rest.mT
    lower_rotation = lower_rotation @ _about("x", torch.rad2deg(_twist(lower_rotation.mT @ hand) / 2))
    local[:, shoulder] = world[:, CANONICAL_PARENTS[shoulder]].mT @ upper_rotation
    local[:, elbow] = upper_rotation.mT @ lower_rotation
    local[:, end] = lower_rotation.mT @ hand


def _follow(
    body: Body,
    poses: Sequence[_HandPose],
    keys: Sequence[Hand],
    world: torch.Tensor,
    positions: torch.Tensor,
    frames: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Carry key poses along with the posed body and blend them over time: wrist (T, 3), hand (T, 3, 3), pole (T, 3)."""
    weights = torch.stack([pose.weights for pose in poses])
    blend = torch.einsum("kj,tjab->tkab", weights, world)
    carried = positions - (world @ torch.from_numpy(body.joints)[:, :, None])[..., 0]
    shift = torch.einsum("kj,tja->tka", weights, carried)
    turn = roma.special_procrustes(blend)
    # The palm's point is skinned as a point; the wrist is held to it rigidly.
    palm = torch.stack([pose.wrist + pose.rotation @ torch.from_numpy(body.palm("Left")) for pose in poses])
    lever = torch.stack([pose.wrist for pose in poses]) - palm
    wrist = _apply(blend, palm) + shift + _apply(turn, lever)
    approach = _apply(turn, torch.stack([pose.approach for pose in poses]))
    hand = roma.rotmat_to_unitquat(turn @ torch.stack([pose.rotation for pose in poses]))
    pole = _apply(world[:, [canonical_index("Spine2")]], torch.stack([pose.pole for pose in poses]))

    segment, share = _segments(torch.tensor([key.frame for key in keys], dtype=torch.float64), frames)
    row = torch.arange(len(frames))
    here, there = (row, segment), (row, segment + 1)
    u = _smoothstep(share)[:, None]
    # A hold between equal keys must not bulge away from the surface.
    moving = torch.tensor([_differ(a, b) for a, b in zip(keys, keys[1:], strict=False)])[segment, None]
    first, last = approach[here] * moving, approach[there] * moving
    path = (1 - u) ** 2 * (1 + 2 * u) * wrist[here] + u**2 * (3 - 2 * u) * wrist[there]
    path = path + 3 * u * (1 - u) * ((1 - u) * first + u * last)
    rotation = roma.unitquat_to_rotmat(_slerp(hand[here], hand[there], u))
    return path, rotation, torch.lerp(pole[here], pole[there], u)


def _differ(a: Hand, b: Hand) -> bool:
    return (a.touch, a.gap, a.swing) != (b.touch, b.gap, b.swing)


def _foot_path(score: Score, side: str, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a foot's offset from rest (T, 3) in heights and its pitch (T,), toes down, in degrees."""
    height, forward, pitch = (torch.zeros_like(frames) for _ in range(3))
    for step in score.steps:
        if step.foot == side:
            share = ((frames - step.start) / (step.end - step.start)).clamp(0, 1)
            lift = 16 * (share * (1 - share)) ** 2
            height = height + 0.055 * lift
            forward = forward + step.length * _smoothstep(share)
            pitch = pitch + 14.0 * lift * (1 - share)
    return torch.stack([torch.zeros_like(frames), height, forward], -1), pitch


def _pose(skeleton: Skeleton, root: torch.Tensor, local: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return forward_kinematics(skeleton, root, roma.rotmat_to_unitquat(local))


def _frame(along: torch.Tensor, hinge: torch.Tensor) -> torch.Tensor:
    """Return the frame of a bone as columns: along it, its hinge, and the cross product of both."""
    return torch.stack([along, hinge, torch.linalg.cross(along, hinge)], -1)


def _apply(rotation: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return (rotation @ vector[..., None])[..., 0]


def _twist(rotation: torch.Tensor) -> torch.Tensor:
    """Return the turn about X within rotations over time (T, 3, 3), radians, without jumps."""
    quaternion = hemisphere_continuous(roma.rotmat_to_unitquat(rotation))
    quaternion = quaternion * torch.where(quaternion[:1, 3:] < 0, -1.0, 1.0)
    return torch.from_numpy(np.unwrap((2 * torch.atan2(quaternion[:, 0], quaternion[:, 3])).numpy(), period=4 * np.pi))


def _about(axis: str, angle: torch.Tensor) -> torch.Tensor:
    """Return rotations about a coordinate axis, (..., 3, 3), by angles in degrees."""
    direction = torch.zeros(3, dtype=torch.float64)
    direction["xyz".index(axis)] = 1.0
    return roma.rotvec_to_rotmat(torch.deg2rad(angle)[..., None] * direction)


def _rotation(axis: str, angle: float) -> Array:
    return _about(axis, torch.tensor(math.degrees(angle), dtype=torch.float64)).numpy()


def _one_hot(name: str) -> Array:
    return np.eye(22)[canonical_index(name)]


def _slerp(a: torch.Tensor, b: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Interpolate unit quaternions (T, 4) the short way with one share each, (T, 1)."""
    b = torch.where((a * b).sum(-1, keepdim=True) < 0, -b, b)
    rotvec = roma.unitquat_to_rotvec(roma.quat_product(roma.quat_conjugation(a), b))
    return roma.quat_product(a, roma.rotvec_to_unitquat(share * rotvec))


def _segments(times: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each frame the key before it, (T,), and how far it is to the next one, 0..1."""
    segment = (torch.searchsorted(times, frames, right=True) - 1).clamp(0, len(times) - 2)
    share = (frames - times[segment]) / (times[segment + 1] - times[segment])
    return segment, share.clamp(0, 1)


def _smoothstep(share: torch.Tensor) -> torch.Tensor:
    return share**2 * (3 - 2 * share)


def _rounded(values: torch.Tensor) -> torch.Tensor:
    return values.round(decimals=_DECIMALS).float()
