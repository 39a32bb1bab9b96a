"""Bodies of the shipped capsule dataset: a skeleton and a skinned mannequin from a row of body measures.

A body is the union of seven closed tubes: trunk with neck and head, two arms with clavicle and hand, two legs, two
feet. Every tube is closed and faces outward, so the union is what winding numbers take it for, and no two parts need
to be stitched. Lengths are fractions of the stature, so a row reads like a table of anthropometry.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from retargetbench.character import Character
from retargetbench.datasets.capsule_tubes import (
    Profile,
    Tube,
    around,
    chain_weights,
    close_rings,
    spread,
    straight_tube,
)
from retargetbench.skeleton import CANONICAL_PARENTS, canonical_index, canonical_skeleton

if TYPE_CHECKING:
    from collections.abc import Callable

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
    ankle: float = 0.045
    """Height of the ankle."""
    neck: float = 0.05
    """Neck joint to head joint."""
    head: float = 0.125
    """Head joint to crown."""
    head_radius: float = 0.045
    """Half the width of the head."""
    shoulders: float = 0.105
    """Half the distance between the upper arm joints."""
    pelvis: float = 0.052
    """Half the distance between the thigh joints, which are half of it below the hips joint."""
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

    def in_metres(self) -> Build:
        """Return the same measures in metres."""
        scaled: dict[str, Any] = {}
        for measure in fields(self):
            value = getattr(self, measure.name)
            if measure.name not in ("name", "stature", "segments"):
                value = tuple(self.stature * v for v in value) if isinstance(value, tuple) else self.stature * value
            scaled[measure.name] = value
        return Build(**scaled)


BUILDS: tuple[Build, ...] = (
    Build("average", 1.75),
    Build(
        "child", 1.12, hips=0.45, head=0.185, head_radius=0.076, shoulders=0.1, pelvis=0.05, arm=0.28, hand=0.085,
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
        "stout", 1.66, hips=0.49, head=0.13, head_radius=0.051, shoulders=0.125, pelvis=0.066, arm=0.32, hand=0.1,
        foot=0.08, arm_radius=0.036, leg_radius=0.06, chest=(0.115, 0.085), belly=(0.145, 0.145), segments=20,
    ),
)  # fmt: skip
"""The characters, by name."""


class Body:
    """A body of the dataset: measures in metres, joints, trunk surface and, on demand, the skinned character."""

    def __init__(self, build: Build) -> None:
        self.measures = build.in_metres()

    @cached_property
    def joints(self) -> Array:
        """Rest positions of the 22 canonical joints, (22, 3) metres; T-pose, soles at y = 0, facing +Z."""
        m = self.measures
        chin = m.stature - m.head
        neck = chin - m.neck
        trunk = neck - m.hips
        at: dict[str, tuple[float, float, float]] = {
            "Hips": (0, m.hips, 0),
            "Spine": (0, m.hips + 0.15 * trunk, 0),
            "Spine1": (0, m.hips + 0.35 * trunk, 0),
            "Spine2": (0, m.hips + 0.6 * trunk, 0),
            "Neck": (0, neck, 0),
            "Head": (0, chin, 0),
        }
        hip, arm = m.hips - 0.5 * m.pelvis, neck - 0.4 * m.neck
        for side, sign in (("Left", 1), ("Right", -1)):
            leg, shoulder = sign * m.pelvis, sign * m.shoulders
            at[side + "UpLeg"] = (leg, hip, 0)
            at[side + "Leg"] = (leg, m.ankle + 0.49 * (hip - m.ankle), 0)
            at[side + "Foot"] = (leg, m.ankle, 0)
            at[side + "ToeBase"] = (leg, 0.27 * m.ankle, m.foot)
            at[side + "Shoulder"] = (0.35 * shoulder, arm, 0)
            at[side + "Arm"] = (shoulder, arm, 0)
            at[side + "ForeArm"] = (shoulder + sign * 0.52 * m.arm, arm, 0)
            at[side + "Hand"] = (shoulder + sign * m.arm, arm, 0)
        rest = np.zeros((22, 3))
        for name, position in at.items():
            rest[canonical_index(name)] = position
        return rest

    def joint(self, name: str) -> Array:
        """Return the rest position of a canonical joint, (3,) metres."""
        return np.asarray(self.joints[canonical_index(name)])

    @cached_property
    def trunk(self) -> Trunk:
        """The surface of trunk, neck and head."""
        return Trunk(self.measures, self.joints)

    def palm(self, side: str) -> Array:
        """Return the middle of the palm relative to the wrist in the rest pose, (3,) metres; palms face down."""
        sign = 1.0 if side == "Left" else -1.0
        return np.array([sign * 0.45 * self.measures.hand, -0.42 * self.measures.arm_radius, 0.0])

    def thigh_surface(self, share: float, azimuth: float) -> tuple[Array, Array, Array]:
        """Find a point on the surface of the left thigh.

        Args:
            share: how far from knee to hip, 0..1.
            azimuth: 0 in front, positive outward, radians.

        Returns:
            The point (3,) in metres, the outward normal (3,), and the skin weights there (22,).
        """
        middle = (1 - share) * self.joint("LeftLeg") + share * self.joint("LeftUpLeg")

        def at(height: float, angle: float) -> Array:
            half = self._leg_profile(np.array(height))
            return np.array([middle[0] + half[0] * np.sin(angle), height, half[1] * np.cos(angle)])

        height = float(middle[1])
        return at(height, azimuth), _surface_normal(at, height, azimuth), self._leg_weights(middle[1:2])[0]

    @cached_property
    def character(self) -> Character:
        """The skinned character, float32."""
        left = [self._arm(), self._leg(), self._foot()]
        parts = [self.trunk.tube(self.measures.segments), *left, *(part.mirrored() for part in left)]
        firsts = np.cumsum([0, *(len(part.vertices) for part in parts[:-1])])
        vertices = np.concatenate([part.vertices for part in parts]).round(_DECIMALS)
        faces = np.concatenate([part.faces + first for part, first in zip(parts, firsts, strict=True)])
        joints, weights = _strongest(np.concatenate([part.weights for part in parts]), 4)
        parents = np.maximum(CANONICAL_PARENTS, 0)
        offsets = np.concatenate([self.joints[:1], self.joints[1:] - self.joints[parents[1:]]])
        skeleton = canonical_skeleton(torch.from_numpy(offsets.round(_DECIMALS)))
        inverse_bind = torch.eye(4, dtype=torch.float64).repeat(22, 1, 1)
        inverse_bind[:, :3, 3] = -skeleton.rest_positions
        return Character(
            name=self.measures.name,
            skeleton=skeleton.to(dtype=torch.float32),
            bind_vertices=torch.from_numpy(vertices).float(),
            inverse_bind=inverse_bind.float(),
            faces=torch.from_numpy(faces),
            influence_joints=torch.from_numpy(joints),
            influence_weights=torch.from_numpy(weights).float(),
            provenance={"made by": "retargetbench.datasets.capsules", "licence": "Apache-2.0"},
        )

    def _arm(self) -> Tube:
        """Left clavicle, arm and hand, along +X; the palm is the flat lower side."""
        m, r = self.measures, self.measures.arm_radius
        chain = ("LeftShoulder", "LeftArm", "LeftForeArm", "LeftHand")
        start, shoulder, elbow, wrist = (float(self.joint(name)[0]) for name in chain)
        tip = wrist + m.hand
        # position along the arm, half thickness (y), half width (z)
        profile = Profile(np.array([
            (start, 0.55 * r, 0.7 * r),
            (shoulder, 1.1 * r, 1.1 * r),
            (shoulder + 0.3 * (elbow - shoulder), r, r),
            (elbow, 0.85 * r, 0.85 * r),
            (elbow + 0.3 * (wrist - elbow), 0.85 * r, 0.85 * r),
            (wrist, 0.55 * r, 0.65 * r),
            (wrist + 0.3 * m.hand, 0.42 * r, 1.15 * r),
            (wrist + 0.7 * m.hand, 0.38 * r, 1.1 * r),
            (tip, 0.2 * r, 0.65 * r),
        ]))  # fmt: skip
        stations = spread([start, shoulder, elbow, wrist, tip], [2, 6, 5, 4])
        vertices, faces = straight_tube(
            self.joint("LeftArm"), (0, 1, 2), stations, profile(stations), (start - 0.4 * r, tip + 0.3 * r), self._limb
        )
        blends = np.array([1.0, 0.9, 0.7]) * r
        return Tube(vertices, faces, chain_weights(vertices[:, 0], chain, self.joints[:, 0], blends))

    def _leg(self) -> Tube:
        """Left leg without the foot, along -Y; its ends are hidden in trunk and foot."""
        r = self.measures.leg_radius
        hip, knee, ankle = (float(self.joint(name)[1]) for name in ("LeftUpLeg", "LeftLeg", "LeftFoot"))
        profile = self._leg_profile
        stations = spread([profile.end, hip, knee, ankle, profile.start], [1, 5, 5, 1])
        tips = (profile.end + 0.3 * r, profile.start - 0.1 * r)
        vertices, faces = straight_tube(
            self.joint("LeftUpLeg"), (1, 0, 2), stations, profile(stations), tips, self._limb
        )
        return Tube(vertices, faces, self._leg_weights(vertices[:, 1]))

    def _leg_weights(self, height: Array) -> Array:
        """Return the skin weights of the left leg at heights (N,), (N, 22)."""
        chain = ("Hips", "LeftUpLeg", "LeftLeg", "LeftFoot")
        blends = np.array([0.6, 0.9, 0.4]) * self.measures.leg_radius
        return chain_weights(-height, chain, -self.joints[:, 1], blends)

    @cached_property
    def _leg_profile(self) -> Profile:
        """Half width (x) and half depth (z) of the leg by height."""
        r = self.measures.leg_radius
        hip, knee, ankle = (float(self.joint(name)[1]) for name in ("LeftUpLeg", "LeftLeg", "LeftFoot"))
        return Profile(np.array([
            (ankle - 0.3 * r, 0.45 * r, 0.5 * r),
            (ankle, 0.47 * r, 0.55 * r),
            (ankle + 0.65 * (knee - ankle), 0.72 * r, 0.78 * r),
            (knee, 0.72 * r, 0.72 * r),
            (knee + 0.7 * (hip - knee), r, r),
            (hip + 0.5 * r, 0.75 * r, 0.75 * r),
        ]))  # fmt: skip

    def _foot(self) -> Tube:
        """Left foot, along +Z, with a flat sole at y = 0."""
        m, width = self.measures, 0.62 * self.measures.leg_radius
        heel, tip = -0.35 * m.foot, 1.45 * m.foot
        # position along the foot, half width, height of the instep
        profile = Profile(np.array([
            (heel, 0.7 * width, 1.0 * m.ankle),
            (0.0, 0.85 * width, 1.35 * m.ankle),
            (0.6 * m.foot, width, 0.95 * m.ankle),
            (m.foot, 1.1 * width, 0.6 * m.ankle),
            (tip, 0.7 * width, 0.3 * m.ankle),
        ]))  # fmt: skip
        stations = spread([heel, 0.0, m.foot, tip], [2, 4, 2])
        tips = (heel - 0.12 * m.foot, tip + 0.12 * m.foot)
        vertices, faces = straight_tube(
            np.array([m.pelvis, 0.0, 0.0]), (2, 0, 1), stations, profile(stations), tips, self._limb, flat=True
        )
        blends = np.array([0.25 * m.foot])
        return Tube(
            vertices, faces, chain_weights(vertices[:, 2], ("LeftFoot", "LeftToeBase"), self.joints[:, 2], blends)
        )

    @property
    def _limb(self) -> int:
        """Vertices around a limb."""
        return 3 * self.measures.segments // 5


class Trunk:
    """The surface of trunk, neck and head: ellipses stacked along Y, with a depth of their own in front and behind.

    Args:
        measures: in metres.
        joints: rest positions, (22, 3) metres.
    """

    def __init__(self, measures: Build, joints: Array) -> None:
        m = measures
        self._heights = joints[:, 1]
        neck, chin = (float(self._heights[canonical_index(name)]) for name in ("Neck", "Head"))
        trunk, middle = neck - m.hips, m.stature - 0.5 * m.head
        (chest, chest_depth), (belly, belly_depth) = m.chest, m.belly
        hip = m.pelvis + 0.85 * m.leg_radius
        throat = 0.55 * m.head_radius + 0.16 * m.neck
        hip_joint = m.hips - 0.5 * m.pelvis
        crotch = hip_joint - m.leg_radius
        # height, half width, depth in front, depth behind
        rows = [
            (crotch, 0.35 * hip, 0.35 * m.leg_radius, 0.5 * m.leg_radius),
            (hip_joint, hip, 0.5 * (belly_depth + m.leg_radius), 1.3 * m.leg_radius),
            (m.hips + 0.22 * trunk, belly, belly_depth, 0.8 * chest_depth),
            (m.hips + 0.66 * trunk, chest, chest_depth, chest_depth),
            (neck - 0.4 * m.neck, 0.8 * m.shoulders, 0.75 * chest_depth, 0.75 * chest_depth),
            (neck + 0.24 * m.neck, 1.3 * throat, 1.1 * throat, 1.2 * throat),
            (0.5 * (neck + chin), throat, throat, throat),
            (chin, 0.75 * m.head_radius, 0.9 * m.head_radius, 0.8 * m.head_radius),
        ]
        for up in (0.0, 0.4, 0.7, 0.9, 0.97):
            radius = m.head_radius * np.sqrt(1 - up**2)
            rows.append((middle + 0.5 * up * m.head, radius, 1.15 * radius, 1.15 * radius))
        self.half_axes = Profile(np.array(rows))
        """Half width, depth in front and depth behind at heights (...), (..., 3) metres."""
        self._stations = spread([crotch, m.hips, neck, chin, middle, self.half_axes.end], [4, 12, 2, 2, 4])
        self._tips = np.array([[0.0, crotch - 0.2 * m.leg_radius, 0.0], [0.0, m.stature, 0.0]])
        bones = np.diff(self._heights[[canonical_index(name) for name in TRUNK_JOINTS]])
        self._blends = 0.7 * np.minimum(bones, np.append(bones[1:], bones[-1]))

    def surface(self, height: Array | float, azimuth: Array | float) -> Array:
        """Return surface points, (..., 3) metres, by height and azimuth (0 in front, positive to the left), radians."""
        width, front, back = np.moveaxis(self.half_axes(np.asarray(height)), -1, 0)
        depth = np.where(np.cos(azimuth) >= 0, front, back)
        return np.stack(np.broadcast_arrays(width * np.sin(azimuth), height, depth * np.cos(azimuth)), -1)

    def normal(self, height: float, azimuth: float) -> Array:
        """Return the outward unit normal of the surface, (3,)."""
        return _surface_normal(self.surface, height, azimuth)

    def weights(self, height: Array) -> Array:
        """Return the skin weights at heights (N,), (N, 22)."""
        return chain_weights(height, TRUNK_JOINTS, self._heights, self._blends)

    def clearance(self, points: Array) -> Array:
        """Return how far points (..., 3) are outside the surface, metres, from the axis outward; negative inside."""
        height = points[..., 1]
        width, front, back = np.moveaxis(self.half_axes(height), -1, 0)
        depth = np.where(points[..., 2] >= 0, front, back)
        level = np.hypot(points[..., 0] / width, points[..., 2] / depth)
        radius = np.hypot(points[..., 0], points[..., 2])
        beside = (height < self.half_axes.start) | (height > self.half_axes.end)
        return np.where(beside, np.inf, radius * (1 - 1 / np.maximum(level, 1e-9)))

    def tube(self, segments: int) -> Tube:
        """Return the surface as a closed tube with ``segments`` vertices around."""
        rings = self.surface(self._stations[:, None], around(segments)[None])
        vertices, faces = close_rings(rings, *self._tips)
        return Tube(vertices, faces, self.weights(vertices[:, 1]))


def _surface_normal(surface: Callable[[float, float], Array], height: float, azimuth: float) -> Array:
    """Return the outward unit normal, (3,), of a surface over height and azimuth, by central differences."""
    step = 1e-4
    up = surface(height + step, azimuth) - surface(height - step, azimuth)
    left = surface(height, azimuth + step) - surface(height, azimuth - step)
    normal = np.cross(left, up)
    return np.asarray(normal / np.linalg.norm(normal))


def _strongest(weights: Array, count: int) -> tuple[NDArray[np.int64], Array]:
    """Keep the strongest ``count`` influences of each vertex, normalised: joints and weights, (V, count)."""
    joints = np.argsort(-weights, axis=1, kind="stable")[:, :count]
    kept = np.take_along_axis(weights, joints, axis=1)
    kept = (kept / kept.sum(1, keepdims=True)).round(_DECIMALS)
    kept[:, 0] += 1 - kept.sum(1)
    return np.where(kept > 0, joints, 0), kept
