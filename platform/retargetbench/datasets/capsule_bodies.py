"""Bodies of the shipped capsule dataset: a skeleton and a skinned mannequin from a row of body measures.

A body is the union of seven closed tubes: trunk with neck and head, two arms with clavicle and hand, two legs, two
feet. Every tube is closed and faces outward, so the union is what winding numbers take it for, and no two parts need
to be stitched. Lengths are fractions of the stature, so a row reads like a table of anthropometry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.interpolate import PchipInterpolator

from retargetbench.character import Character
from retargetbench.skeleton import CANONICAL_JOINTS, CANONICAL_PARENTS, canonical_index, canonical_skeleton

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

TRUNK_JOINTS = ("Hips", "Spine", "Spine1", "Spine2", "Neck", "Head")
"""Joints that move the trunk tube, from below."""

_DECIMALS = 6
"""Micrometres: rounding hides the last bits in which machines differ, so that the content hash is the same."""


@dataclass(frozen=True)
class Build:
    """Measures of a body; all but ``stature`` and ``segments`` are fractions of the stature."""

    name: str
    stature: float
    """Sole to crown, metres."""
    hips: float = 0.53
    """Height of the hips joint."""
    head: float = 0.125
    """Head joint to crown."""
    head_radius: float = 0.045
    """Half the width of the head."""
    shoulders: float = 0.105
    """Half the distance between the upper arm joints."""
    pelvis: float = 0.052
    """Half the distance between the thigh joints."""
    arm: float = 0.315
    """Upper arm joint to wrist."""
    hand: float = 0.095
    """Wrist to fingertips."""
    foot: float = 0.085
    """Ankle to toe base, along the floor."""
    arm_radius: float = 0.026
    """Radius of the upper arm."""
    leg_radius: float = 0.046
    """Radius of the thigh."""
    chest: tuple[float, float] = (0.082, 0.06)
    """Half width and half depth at the chest."""
    belly: tuple[float, float] = (0.076, 0.06)
    """Half width, and depth in front of the spine, at the belly."""
    segments: int = 18
    """Vertices around the trunk; limbs have 3/5 of them."""


BUILDS: tuple[Build, ...] = (
    Build("average", 1.75),
    Build(
        "child", 1.12, hips=0.45, head=0.185, head_radius=0.076, shoulders=0.1, pelvis=0.05, arm=0.27, hand=0.085,
        foot=0.08, arm_radius=0.027, leg_radius=0.047, chest=(0.078, 0.062), belly=(0.09, 0.08), segments=16,
    ),
    Build(
        "giant", 2.35, hips=0.54, head=0.1, head_radius=0.036, shoulders=0.125, arm=0.325, arm_radius=0.034,
        leg_radius=0.05, chest=(0.1, 0.072), belly=(0.088, 0.065), segments=20,
    ),
    Build(
        "longarm", 1.68, hips=0.48, shoulders=0.105, arm=0.4, hand=0.115, foot=0.08, arm_radius=0.025,
        chest=(0.082, 0.06), belly=(0.078, 0.06), segments=16,
    ),
    Build(
        "slim", 1.82, hips=0.545, head=0.12, head_radius=0.042, shoulders=0.097, pelvis=0.045, arm_radius=0.0195,
        leg_radius=0.034, chest=(0.074, 0.048), belly=(0.06, 0.044), segments=14,
    ),
    Build(
        "stout", 1.66, hips=0.49, head=0.13, head_radius=0.051, shoulders=0.125, pelvis=0.066, arm=0.305, hand=0.095,
        foot=0.08, arm_radius=0.036, leg_radius=0.06, chest=(0.115, 0.085), belly=(0.155, 0.155), segments=20,
    ),
)  # fmt: skip
"""The characters, by name."""


class Body:
    """A body of the dataset: measures, joints, trunk surface and, on demand, the skinned character."""

    def __init__(self, build: Build) -> None:
        self.build = build

    @cached_property
    def joints(self) -> Array:
        """Rest positions of the 22 canonical joints, (22, 3) metres; T-pose, soles at y = 0, facing +Z."""
        b = self.build
        neck = 1 - b.head - 0.05
        trunk = neck - b.hips
        at: dict[str, tuple[float, float, float]] = {
            "Hips": (0, b.hips, 0),
            "Spine": (0, b.hips + 0.15 * trunk, 0),
            "Spine1": (0, b.hips + 0.35 * trunk, 0),
            "Spine2": (0, b.hips + 0.6 * trunk, 0),
            "Neck": (0, neck, 0),
            "Head": (0, 1 - b.head, 0),
        }
        thigh, ankle, wrist_height = b.hips - 0.025, 0.045, neck - 0.02
        for side, sign in (("Left", 1), ("Right", -1)):
            leg, shoulder = sign * b.pelvis, sign * b.shoulders
            at[side + "UpLeg"] = (leg, thigh, 0)
            at[side + "Leg"] = (leg, ankle + 0.49 * (thigh - ankle), 0)
            at[side + "Foot"] = (leg, ankle, 0)
            at[side + "ToeBase"] = (leg, 0.012, b.foot)
            at[side + "Shoulder"] = (0.35 * shoulder, wrist_height, 0)
            at[side + "Arm"] = (shoulder, wrist_height, 0)
            at[side + "ForeArm"] = (shoulder + sign * 0.52 * b.arm, wrist_height, 0)
            at[side + "Hand"] = (shoulder + sign * b.arm, wrist_height, 0)
        rest = np.zeros((22, 3))
        for name, position in at.items():
            rest[canonical_index(name)] = position
        return rest * b.stature

    @cached_property
    def offsets(self) -> Array:
        """Rest offsets to the parents, (22, 3) metres; row 0 is the rest position of the hips."""
        parents = np.maximum(CANONICAL_PARENTS, 0)
        return np.concatenate([self.joints[:1], self.joints[1:] - self.joints[parents[1:]]])

    @cached_property
    def trunk(self) -> Trunk:
        """The surface of trunk, neck and head."""
        return Trunk(self.build, self.joints)

    @property
    def palm_thickness(self) -> float:
        """Distance of the palm's surface from the hand's bone, metres."""
        return 0.42 * self.build.arm_radius * self.build.stature

    def palm(self, side: str) -> Array:
        """Return the middle of the palm relative to the wrist in the rest pose, (3,) metres; palms face down."""
        sign = 1.0 if side == "Left" else -1.0
        return np.array([sign * 0.45 * self.build.hand * self.build.stature, -self.palm_thickness, 0.0])

    def thigh_front(self, share: float) -> tuple[Array, Array]:
        """Return the point on the front of the left thigh, ``share`` of the way from knee to hip, and its normal."""
        knee, hip = (self.joints[canonical_index(name)] for name in ("LeftLeg", "LeftUpLeg"))
        point = knee + share * (hip - knee)
        profile = self._leg_profile() * self.build.stature
        depth, above = (float(_interpolate(profile, np.array(point[1] + step))[1]) for step in (0.0, 1e-4))
        normal = np.array([0.0, -(above - depth) / 1e-4, 1.0])
        return point + [0.0, 0.0, depth], normal / np.linalg.norm(normal)

    @cached_property
    def character(self) -> Character:
        """The skinned character, float32."""
        left = [self._arm(), self._leg(), self._foot()]
        parts = [self.trunk.tube(self.build.segments), *left, *(part.mirrored() for part in left)]
        firsts = np.cumsum([0, *(len(part.vertices) for part in parts)])
        vertices = np.concatenate([part.vertices for part in parts]).round(_DECIMALS)
        faces = np.concatenate([part.faces + first for part, first in zip(parts, firsts, strict=False)])
        joints, weights = _strongest(np.concatenate([part.weights for part in parts]), 4)
        offsets = torch.from_numpy(self.offsets.round(_DECIMALS))
        rest = canonical_skeleton(offsets).rest_positions
        inverse_bind = torch.eye(4, dtype=torch.float64).repeat(22, 1, 1)
        inverse_bind[:, :3, 3] = -rest
        return Character(
            name=self.build.name,
            skeleton=canonical_skeleton(offsets.float()),
            bind_vertices=torch.from_numpy(vertices).float(),
            inverse_bind=inverse_bind.float(),
            faces=torch.from_numpy(faces),
            influence_joints=torch.from_numpy(joints),
            influence_weights=torch.from_numpy(weights).float(),
            provenance={"made by": "retargetbench.datasets.capsules", "licence": "Apache-2.0"},
        )

    def _arm(self) -> Tube:
        """Left clavicle, arm and hand: a tube along +X."""
        b, r = self.build, self.build.arm_radius
        chain = ("LeftShoulder", "LeftArm", "LeftForeArm", "LeftHand")
        start, shoulder, elbow, wrist = (self.joints[canonical_index(name), 0] / b.stature for name in chain)
        tip = wrist + b.hand
        # along the arm: position, half thickness (y), half width (z)
        profile = np.array([
            (start, 0.55 * r, 0.7 * r),
            (shoulder, 1.1 * r, 1.1 * r),
            (shoulder + 0.3 * (elbow - shoulder), r, r),
            (elbow, 0.85 * r, 0.85 * r),
            (elbow + 0.3 * (wrist - elbow), 0.85 * r, 0.85 * r),
            (wrist, 0.55 * r, 0.65 * r),
            (wrist + 0.3 * b.hand, 0.42 * r, 1.15 * r),
            (wrist + 0.7 * b.hand, 0.38 * r, 1.1 * r),
            (tip, 0.2 * r, 0.65 * r),
        ])  # fmt: skip
        s = _spread([start, shoulder, elbow, wrist, tip], [2, 6, 5, 4])
        thickness, width = _interpolate(profile, s).T
        angles = _angles(3 * b.segments // 5)
        rings = np.stack(
            np.broadcast_arrays(
                s[:, None],
                self.joints[canonical_index("LeftArm"), 1] / b.stature + thickness[:, None] * np.cos(angles),
                width[:, None] * np.sin(angles),
            ),
            -1,
        )
        tube = _closed_tube(rings * b.stature, _pole(rings, 0, -0.4 * r), _pole(rings, -1, 0.3 * r), b.stature)
        weights = _chain_weights(tube[0][:, 0], chain, self.joints[:, 0], np.array([1.0, 0.9, 0.7]) * r * b.stature)
        return Tube(*tube, weights)

    def _leg(self) -> Tube:
        """Left leg without the foot: a tube along -Y."""
        b, r = self.build, self.build.leg_radius
        chain = ("Hips", "LeftUpLeg", "LeftLeg", "LeftFoot")
        hip, knee, ankle = (self.joints[canonical_index(name), 1] / b.stature for name in chain[1:])
        profile = self._leg_profile()
        y = _spread([float(profile[-1, 0]), hip, knee, ankle, float(profile[0, 0])], [1, 5, 5, 1])
        half_x, half_z = _interpolate(profile, y).T
        angles = _angles(3 * b.segments // 5)
        rings = np.stack(
            np.broadcast_arrays(
                b.pelvis + half_x[:, None] * np.cos(angles),
                y[:, None],
                half_z[:, None] * np.sin(angles),
            ),
            -1,
        )
        tube = _closed_tube(
            rings * b.stature, _pole(rings, 0, 0.3 * r, axis=1), _pole(rings, -1, -0.1 * r, axis=1), b.stature
        )
        # Along -Y, so that the chain runs upward in the coordinate that the weights see.
        weights = _chain_weights(-tube[0][:, 1], chain, -self.joints[:, 1], np.array([0.6, 0.9, 0.4]) * r * b.stature)
        return Tube(*tube, weights)

    def _leg_profile(self) -> Array:
        """Return rows of height, half width (x) and half depth (z) of the leg, from below, in statures."""
        b, r = self.build, self.build.leg_radius
        hip, knee, ankle = (
            self.joints[canonical_index(name), 1] / b.stature for name in ("LeftUpLeg", "LeftLeg", "LeftFoot")
        )
        return np.array([
            (ankle - 0.3 * r, 0.45 * r, 0.5 * r),
            (ankle, 0.47 * r, 0.55 * r),
            (ankle + 0.65 * (knee - ankle), 0.72 * r, 0.78 * r),
            (knee, 0.72 * r, 0.72 * r),
            (knee + 0.7 * (hip - knee), r, r),
            (hip + 0.5 * r, 0.75 * r, 0.75 * r),
        ])  # fmt: skip

    def _foot(self) -> Tube:
        """Left foot: a tube along +Z with a flat sole at y = 0."""
        b = self.build
        heel, ball, tip = -0.35 * b.foot, b.foot, 1.45 * b.foot
        width = 0.62 * b.leg_radius
        profile = np.array([
            (heel, 0.7 * width, 0.045),
            (0.0, 0.85 * width, 0.062),
            (0.6 * ball, width, 0.042),
            (ball, 1.1 * width, 0.026),
            (tip, 0.7 * width, 0.014),
        ])  # fmt: skip
        z = _spread([heel, 0.0, ball, tip], [2, 4, 2])
        half_x, top = _interpolate(profile, z).T
        angles = _angles(b.segments // 2)
        rings = np.stack(
            np.broadcast_arrays(
                b.pelvis + half_x[:, None] * np.cos(angles),
                top[:, None] * np.maximum(np.sin(angles), 0.0),
                z[:, None],
            ),
            -1,
        )
        tube = _closed_tube(
            rings * b.stature,
            _pole(rings, 0, -0.12 * b.foot, axis=2),
            _pole(rings, -1, 0.12 * b.foot, axis=2),
            b.stature,
        )
        weights = _chain_weights(
            tube[0][:, 2], ("LeftFoot", "LeftToeBase"), self.joints[:, 2], np.array([0.25 * b.foot * b.stature])
        )
        return Tube(*tube, weights)


class Trunk:
    """The surface of trunk, neck and head: ellipses stacked along Y, rounder in front than behind."""

    def __init__(self, build: Build, joints: Array) -> None:
        b = build
        self._stature = b.stature
        self._heights = joints[[canonical_index(name) for name in TRUNK_JOINTS], 1]
        neck, chin = (float(y) / b.stature for y in self._heights[4:])
        trunk, middle = neck - b.hips, 1 - 0.5 * b.head
        (chest, chest_depth), (belly, belly_depth) = b.chest, b.belly
        hip = b.pelvis + 0.85 * b.leg_radius
        neck_radius = 0.55 * b.head_radius + 0.008
        crotch = b.hips - 0.025 - b.leg_radius
        # height, half width, depth in front, depth behind
        profile = [
            (crotch, 0.35 * hip, 0.35 * b.leg_radius, 0.5 * b.leg_radius),
            (b.hips - 0.025, hip, 0.5 * (belly_depth + b.leg_radius), 1.3 * b.leg_radius),
            (b.hips + 0.22 * trunk, belly, belly_depth, 0.8 * chest_depth),
            (b.hips + 0.66 * trunk, chest, chest_depth, chest_depth),
            (neck - 0.02, 0.8 * b.shoulders, 0.75 * chest_depth, 0.75 * chest_depth),
            (neck + 0.012, 1.3 * neck_radius, 1.1 * neck_radius, 1.2 * neck_radius),
            (0.5 * (neck + chin), neck_radius, neck_radius, neck_radius),
            (chin, 0.75 * b.head_radius, 0.9 * b.head_radius, 0.8 * b.head_radius),
        ]
        for up in (0.0, 0.4, 0.7, 0.9, 0.97):
            radius = b.head_radius * np.sqrt(1 - up**2)
            profile.append((middle + 0.5 * up * b.head, radius, 1.15 * radius, 1.15 * radius))
        self._profile = np.array(profile) * b.stature
        stops = [crotch, b.hips, neck, chin, middle, float(profile[-1][0])]
        self._rings = _spread(stops, [4, 12, 2, 2, 4]) * b.stature
        widths = np.diff(self._heights)
        self._blends = 0.7 * np.minimum(widths, np.append(widths[1:], widths[-1]))

    def half_axes(self, y: Array) -> Array:
        """Return half width, depth in front and depth behind at heights y, (..., 3) metres."""
        return _interpolate(self._profile, y)

    def surface(self, y: Array, azimuth: Array) -> Array:
        """Return surface points, (..., 3) metres, by height and azimuth (0 in front, positive to the left), radians."""
        width, front, back = np.moveaxis(self.half_axes(y), -1, 0)
        depth = np.where(np.cos(azimuth) >= 0, front, back)
        return np.stack(np.broadcast_arrays(width * np.sin(azimuth), y, depth * np.cos(azimuth)), -1)

    def normal(self, y: float, azimuth: float) -> Array:
        """Return the outward unit normal of the surface, (3,)."""
        step = 1e-4
        along = self.surface(np.array(y + step), np.array(azimuth)) - self.surface(
            np.array(y - step), np.array(azimuth)
        )
        around = self.surface(np.array(y), np.array(azimuth + step)) - self.surface(
            np.array(y), np.array(azimuth - step)
        )
        normal = np.cross(along, around)
        return np.asarray(normal / np.linalg.norm(normal))

    def weights(self, y: Array) -> Array:
        """Return the skin weights at heights y, (N, 22)."""
        return _partition(np.asarray(y), TRUNK_JOINTS, self._heights[1:], self._blends)

    def clearance(self, points: Array) -> Array:
        """Return how far points (..., 3) are outside the surface, metres, from the axis outward; negative inside."""
        width, front, back = np.moveaxis(self.half_axes(points[..., 1]), -1, 0)
        depth = np.where(points[..., 2] >= 0, front, back)
        level = np.hypot(points[..., 0] / width, points[..., 2] / depth)
        beside = (points[..., 1] < self._profile[0, 0]) | (points[..., 1] > self._profile[-1, 0])
        radius = np.hypot(points[..., 0], points[..., 2])
        return np.where(beside, np.inf, radius * (1 - 1 / np.maximum(level, 1e-9)))

    def tube(self, segments: int) -> Tube:
        """Return the surface as a closed tube with ``segments`` vertices around."""
        rings = self.surface(self._rings[:, None], _angles(segments)[None])
        bottom = np.array([0.0, self._rings[0] - 0.01 * self._stature, 0.0])
        crown = np.array([0.0, self._stature, 0.0])
        vertices, faces = _closed_tube(rings, bottom, crown, 1.0)
        return Tube(vertices, faces, self.weights(vertices[:, 1]))


@dataclass(frozen=True, eq=False)
class Tube:
    """A closed surface with skin weights: vertices (V, 3) metres, faces (F, 3), weights (V, 22)."""

    vertices: Array
    faces: NDArray[np.int64]
    weights: Array

    def mirrored(self) -> Tube:
        """Return the other side: x negated, faces turned over, left joints swapped for right ones."""
        swap = [canonical_index(_other_side(k)) for k in range(22)]
        return Tube(self.vertices * [-1.0, 1.0, 1.0], self.faces[:, ::-1], self.weights[:, swap])


def _other_side(joint: int) -> str:
    name = CANONICAL_JOINTS[joint]
    if name.startswith("Left"):
        return "Right" + name[4:]
    return "Left" + name[5:] if name.startswith("Right") else name


def _angles(count: int) -> Array:
    return np.arange(count) * (2 * np.pi / count)


def _spread(stops: Sequence[float], counts: Sequence[int]) -> Array:
    """Return the stops with each gap divided into so many equal steps."""
    pieces = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(stops, stops[1:], counts, strict=False)]
    return np.append(np.concatenate(pieces), stops[-1])


def _interpolate(profile: Array, at: Array) -> Array:
    """Interpolate rows (position, values…) without overshoot; constant beyond both ends."""
    curve = PchipInterpolator(profile[:, 0], profile[:, 1:])
    return np.asarray(curve(np.clip(at, profile[0, 0], profile[-1, 0])))


def _pole(rings: Array, ring: int, beyond: float, axis: int = 0) -> Array:
    """Return the point that closes a tube: the middle of its first or last ring, moved outward along an axis."""
    middle = rings[ring].mean(0)
    middle[axis] += beyond
    return np.asarray(middle)


def _closed_tube(rings: Array, start: Array, end: Array, scale: float) -> tuple[Array, NDArray[np.int64]]:
    """Join rings (R, S, 3), which run counter-clockwise seen from the end, and close both ends with a pole."""
    count, around = rings.shape[:2]
    vertices = np.concatenate([rings.reshape(-1, 3), [start * scale, end * scale]])
    this = np.arange(count * around).reshape(count, around)
    nxt = np.roll(this, -1, axis=1)
    a, b, c, d = this[:-1], nxt[:-1], nxt[1:], this[1:]
    first, last = count * around, count * around + 1
    faces = [
        np.stack([a, b, c], -1).reshape(-1, 3),
        np.stack([a, c, d], -1).reshape(-1, 3),
        np.stack(np.broadcast_arrays(first, nxt[0], this[0]), -1),
        np.stack(np.broadcast_arrays(last, this[-1], nxt[-1]), -1),
    ]
    return vertices, np.concatenate(faces)


def _partition(at: Array, chain: Sequence[str], borders: Array, blends: Array) -> Array:
    """Return weights (N, 22) of a chain of joints; ``chain[i + 1]`` takes over at ``borders[i]`` ± ``blends[i]``."""
    share = np.clip((at[:, None] - borders) / (2 * blends) + 0.5, 0.0, 1.0)
    beyond = share**2 * (3 - 2 * share)
    reach = np.concatenate([np.ones((len(at), 1)), np.cumprod(beyond, axis=1)], axis=1)
    leave = np.concatenate([1 - beyond, np.ones((len(at), 1))], axis=1)
    weights = np.zeros((len(at), 22))
    weights[:, [canonical_index(name) for name in chain]] = reach * leave
    return weights


def _chain_weights(at: Array, chain: Sequence[str], joints: Array, blends: Array) -> Array:
    """Return weights (N, 22) of a limb whose joints lie at ``joints`` (22,) along the limb's axis."""
    borders = np.array([joints[canonical_index(name)] for name in chain[1:]])
    return _partition(at, chain, borders, blends)


def _strongest(weights: Array, count: int) -> tuple[NDArray[np.int64], Array]:
    """Keep the strongest ``count`` influences of each vertex, normalised: joints and weights, (V, count)."""
    joints = np.argsort(-weights, axis=1, kind="stable")[:, :count]
    kept = np.take_along_axis(weights, joints, axis=1)
    kept = (kept / kept.sum(1, keepdims=True)).round(_DECIMALS)
    kept[:, 0] += 1 - kept.sum(1)
    return np.where(kept > 0, joints, 0), kept
