"""Poses of a hand against a resting body: hanging clear of it, raised, or with the palm on a point of its surface.

Everything is worked out for the left arm and mirrored, since bodies are symmetric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from retargetbench.datasets.capsule_ik import about, two_bone
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from retargetbench.datasets.capsule_bodies import Body
    from retargetbench.datasets.capsule_motions import Hand

    Array = NDArray[np.float64]
    Vector = tuple[float, float, float]

TOUCH_CLEARANCE = 0.003
"""What a touching palm keeps from the surface, metres: the body is not penetrated."""

_APPROACH = 0.1  # heights by which a hand's path to or from a touch bulges away from the surface
_ARM_CLEARANCE = 0.008  # metres that an arm should keep from trunk and thighs
_HANGING_CLEARANCE = 2.5  # arm radii from the axis of a hanging hand to trunk and thighs
_CLEARANCE_PER_RADIAN = 0.02  # metres of missing clearance as bad as an elbow a radian from its natural place
_MIRROR = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
_OTHER_SIDE = (*range(6), *range(10, 14), *range(6, 10), *range(18, 22), *range(14, 18))


@dataclass(frozen=True, eq=False)
class HandPose:
    """A hand posed against the resting body."""

    wrist: torch.Tensor
    """Position of the wrist, (3,) metres."""
    anchor: torch.Tensor
    """Point that is held to the body: the palm in a touch, else the wrist, (3,) metres."""
    rotation: torch.Tensor
    """Rotation of the hand, (3, 3)."""
    approach: torch.Tensor
    """How the path to and from the pose bulges away from the body, (3,) metres."""
    pole: torch.Tensor
    """Direction of the elbow, (3,)."""
    weights: torch.Tensor
    """Skin weights of what the pose is held to, (22,)."""

    def mirrored(self) -> HandPose:
        """Return the same pose of the right hand."""
        return HandPose(
            self.wrist * _MIRROR,
            self.anchor * _MIRROR,
            _MIRROR[:, None] * self.rotation * _MIRROR,
            self.approach * _MIRROR,
            self.pole * _MIRROR,
            self.weights[list(_OTHER_SIDE)],
        )


class LeftArm:
    """Finds the poses of a body's left arm at key frames."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self._shoulder, elbow, hand = (body.joint("Left" + name) for name in ("Arm", "ForeArm", "Hand"))
        self.lengths = (float(elbow[0] - self._shoulder[0]), float(hand[0] - elbow[0]))
        """Lengths of upper arm and forearm, metres."""
        self._hips, self._neck = (float(body.joint(name)[1]) for name in ("Hips", "Neck"))
        self._known: dict[tuple[str, float, float, float], HandPose] = {}

    def pose(self, key: Hand) -> HandPose:
        """Return the pose of a key frame; equal keys give the same pose."""
        if key.pose not in self._known:
            self._known[key.pose] = self._find(key)
        return self._known[key.pose]

    def _find(self, key: Hand) -> HandPose:
        gap = key.gap * self.body.character.height
        if key.touch == "hang":
            return self._hang(key.swing)
        if key.touch == "wave":
            return self._wave(key.swing)
        if key.touch == "palms":
            return self._palms(gap)
        if key.touch == "thigh":
            point, normal, weights = self.body.thigh_surface(0.55, math.radians(40.0))
            return self._touch(point, normal, (-0.2, -1.0, 0.3), (1.0, 0.4, 0.0), weights, gap)
        stature, radius = self.body.measures.stature, self.body.measures.arm_radius
        # height, azimuth in degrees, direction of the fingers, natural direction of the elbow
        height, azimuth_deg, fingers, pole = {
            "belly": (self._along_trunk(0.36) + key.level * radius, 18.0, (-1.0, -0.25, 0.0), (0.7, -0.5, -0.4)),
            "chest": (self._along_trunk(0.6) + key.level * radius, -22.0, (-1.0, 0.0, 0.0), (0.8, -0.6, 0.0)),
            "head": (0.5 * (float(self.body.joint("Head")[1]) + stature), 85.0, (0.0, 0.7, -0.6), (0.9, -0.3, 0.5)),
        }[key.touch]
        trunk, azimuth = self.body.trunk, math.radians(azimuth_deg)
        weights = trunk.weights(np.array([height]))[0]
        return self._touch(trunk.surface(height, azimuth), trunk.normal(height, azimuth), fingers, pole, weights, gap)

    def _along_trunk(self, share: float) -> float:
        """Return the height that is ``share`` of the way from hips to neck, metres."""
        return self._hips + share * (self._neck - self._hips)

    def _touch(
        self, point: Array, normal: Array, fingers: Vector, pole: Vector, weights: Array, gap: float
    ) -> HandPose:
        """Lay the palm on a surface point, with the fingers as far along ``fingers`` as the surface allows."""
        along = np.asarray(fingers) - np.dot(fingers, normal) * normal
        along /= np.linalg.norm(along)
        rotation = np.stack([along, normal, np.cross(along, normal)], -1)
        palm = point + (TOUCH_CLEARANCE + gap) * normal
        wrist = palm - rotation @ self.body.palm("Left")
        return HandPose(
            torch.from_numpy(wrist),
            torch.from_numpy(palm),
            torch.from_numpy(rotation),
            torch.from_numpy(normal * _APPROACH * self.body.character.height),
            torch.from_numpy(self._clear_pole(wrist, np.asarray(pole))),
            torch.from_numpy(weights),
        )

    def _palms(self, gap: float) -> HandPose:
        """Palms meet in the plane between the arms, in front of chest and belly."""
        low, high = self._along_trunk(0.2), self._along_trunk(0.75)
        depth = float(self.body.trunk.half_axes(np.linspace(low, high, 16))[:, 1].max())
        point = np.array([0.0, self._along_trunk(0.7), depth + 0.07 * self.body.measures.stature])
        return self._touch(point, np.array([1.0, 0.0, 0.0]), (0.0, 0.6, 0.8), (0.8, -0.6, 0.0), _only("Spine2"), gap)

    def _hang(self, swing_deg: float) -> HandPose:
        """The arm hangs as straight down as the body allows, swung forward, elbow a little bent."""
        measures = self.body.measures
        aside = torch.arange(4.0, 75.0, dtype=torch.float64)
        upper = about("x", -swing_deg) @ about("z", aside - 90.0)
        lower = upper @ about("y", -14.0)
        directions = upper[:, :, 0].numpy(), lower[:, :, 0].numpy()
        beside = (
            self._shoulder + self.lengths[0] * directions[0] + (self.lengths[1] + measures.hand / 2) * directions[1]
        )
        # Hands hang farther from the body than an arm is thick, or else metrics of contact take them for touching it.
        clear = (self._clearance(*directions) >= _ARM_CLEARANCE) & (
            self._distance(beside) >= _HANGING_CLEARANCE * measures.arm_radius
        )
        first = int(clear.argmax())
        return self._free(upper[first], lower[first], approach=(0.3, 0.0, 1.0))

    def _wave(self, outward_deg: float) -> HandPose:
        """Upper arm out to the side, forearm upright, palm to the front."""
        palm_forward = about("x", -90.0)
        return self._free(about("z", -12.0) @ palm_forward, about("z", 90.0 - outward_deg) @ palm_forward)

    def _free(self, upper: torch.Tensor, lower: torch.Tensor, approach: Vector = (0.0, 0.0, 0.0)) -> HandPose:
        """A hand in line with its forearm, carried by the chest."""
        wrist = torch.from_numpy(self._shoulder) + self.lengths[0] * upper[:, 0] + self.lengths[1] * lower[:, 0]
        bend = upper[:, 0] - lower[:, 0]
        way = torch.tensor(approach, dtype=torch.float64) * _APPROACH * self.body.character.height
        return HandPose(wrist, wrist, lower, way, bend / bend.norm(), torch.from_numpy(_only("Spine2")))

    def _clear_pole(self, wrist: Array, natural: Array) -> Array:
        """Turn the elbow out of the body, as little from its natural direction as its clearance is worth."""
        axis = wrist - self._shoulder
        axis = axis / np.linalg.norm(axis)
        base = natural - (natural @ axis) * axis
        base /= np.linalg.norm(base)
        turns = np.radians(np.arange(-120.0, 121.0, 6.0))
        poles = np.cos(turns)[:, None] * base + np.sin(turns)[:, None] * np.cross(axis, base)
        start = torch.from_numpy(self._shoulder)
        end = torch.from_numpy(wrist).expand(len(poles), 3)
        upper, lower, _ = two_bone(start, end, self.lengths, torch.from_numpy(poles))
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
        elbow = self._shoulder + self.lengths[0] * upper[:, None]
        first = self._shoulder + self.lengths[0] * (0.5 + 0.5 * share) * upper[:, None]
        second = elbow + self.lengths[1] * 0.75 * share * lower[:, None]
        radii = np.concatenate([np.linspace(1.0, 0.85, 9), np.linspace(0.85, 0.65, 9)]) * self.body.measures.arm_radius
        return np.asarray((self._distance(np.concatenate([first, second], axis=1)) - radii).min(-1))

    def _distance(self, points: Array) -> Array:
        """Return how far points (..., 3) are from trunk and left thigh, metres; negative inside."""
        measures = self.body.measures
        beside_thigh = np.abs(points[..., 0]) - measures.pelvis - measures.leg_radius
        thigh = np.where(points[..., 1] < self._hips, beside_thigh, np.inf)
        return np.minimum(self.body.trunk.clearance(points), thigh)


def _only(name: str) -> Array:
    """Return skin weights of one joint alone, (22,)."""
    weights = np.zeros(22)
    weights[canonical_index(name)] = 1.0
    return weights
