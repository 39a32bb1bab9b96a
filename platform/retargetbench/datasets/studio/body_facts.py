"""Figures of how a body is built, for the manifest, plots of distributions, and to tell how unlike two bodies are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from retargetbench.sensors import extract_sensors
from retargetbench.skeleton import CANONICAL_JOINTS, canonical_index

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from retargetbench.character import Character

    Array = np.ndarray[Any, Any]

BUILD: tuple[str, ...] = (
    "height", "arm_radius_ratio", "chest_girth_ratio", "waist_girth_ratio", "hip_girth_ratio", "arm_ratio", "leg_ratio",
    "head_ratio",
)  # fmt: skip
"""Facts that together say how a body is built."""

_TRUNK = frozenset({"Hips", "Spine", "Spine1", "Spine2", "LeftShoulder", "RightShoulder"})
_LOINS = _TRUNK | {"LeftUpLeg", "RightUpLeg"}
_SLICES = 15
"""Heights at which a girth is looked for."""

_SEAT_DROP = 0.03
"""How far below the hip joints the fullest place of the hips is looked for, heights."""


def body_facts(character: Character) -> dict[str, float]:
    """Measure how a body is built, in the T-pose.

    Girths are those of a tape, the perimeter of the convex hull of a level slice of the trunk: chest at its fullest
    between Spine2 and the shoulders, waist at its narrowest between hips and Spine2, hips at their fullest around the
    hip joints.

    Args:
        character: at a T-pose, any joints.

    Returns:
        ``height`` by the house rule and ``stature`` from floor to crown, metres; ``arm_radius_ratio``, the median
        radius of the arms' sensors; girths of chest, waist and hips; lengths of arm, hand-less (``arm_ratio``), of the
        leg down to the ankle (``leg_ratio``), from neck to crown (``head_ratio``), and from shoulder joint to shoulder
        joint (``shoulder_ratio``), all of these divided by the height; and ``forearm_ratio`` of forearm and upper arm,
        ``shank_ratio`` of shank and thigh. What cannot be measured is missing.
    """
    joints = _rest_positions(character)
    vertices = character.rest_vertices.double().numpy()
    height = character.height

    def length(*chain: str) -> float:
        points = np.stack([joints[name] for name in chain])
        return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())

    arm = [length(f"{s}Arm", f"{s}ForeArm", f"{s}Hand") for s in ("Left", "Right")]
    leg = [length(f"{s}UpLeg", f"{s}Leg", f"{s}Foot") for s in ("Left", "Right")]
    seat, hips, chest = joints["LeftUpLeg"][1], joints["Hips"][1], joints["Spine2"][1]
    facts = {
        "height": height,
        "stature": float(np.ptp(vertices[:, 1])),
        "arm_radius_ratio": extract_sensors(character).arm_radius / height,
        "chest_girth_ratio": max(_girths(character, _TRUNK, chest, joints["LeftArm"][1])) / height,
        "waist_girth_ratio": min(_girths(character, _LOINS, hips, chest)) / height,
        "hip_girth_ratio": max(_girths(character, _LOINS, seat - _SEAT_DROP * height, hips)) / height,
        "arm_ratio": sum(arm) / 2 / height,
        "leg_ratio": sum(leg) / 2 / height,
        "head_ratio": float(vertices[:, 1].max() - joints["Neck"][1]) / height,
        "shoulder_ratio": length("LeftArm", "RightArm") / height,
        "forearm_ratio": length("LeftForeArm", "LeftHand") / length("LeftArm", "LeftForeArm"),
        "shank_ratio": length("LeftLeg", "LeftFoot") / length("LeftUpLeg", "LeftLeg"),
    }
    return {name: value for name, value in facts.items() if math.isfinite(value)}


def build_of(facts: dict[str, float]) -> tuple[float, ...]:
    """Return the facts that say how a body is built; 0 for one that could not be measured."""
    return tuple(facts.get(name, 0.0) for name in BUILD)


def _rest_positions(character: Character) -> dict[str, Array]:
    skeleton = character.skeleton
    rest = skeleton.rest_positions.double().numpy()
    return {name: rest[skeleton.canonical[k]] for k, name in enumerate(CANONICAL_JOINTS)}


def _girths(character: Character, parts: Collection[str], low: float, high: float) -> list[float]:
    """Girths of what belongs to some canonical joints at heights from ``low`` to ``high``; NaN if there is none."""
    vertices = character.rest_vertices.double().numpy()
    faces = character.faces.numpy()
    owners = character.dominant_joint.numpy()
    belongs = np.isin(owners, [canonical_index(name) for name in parts])
    faces = faces[belongs[faces].all(-1)]
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    start, end = vertices[edges[:, 0]], vertices[edges[:, 1]]
    girths = []
    for level in np.linspace(low, high, _SLICES):
        crosses = (start[:, 1] < level) != (end[:, 1] < level)
        a, b = start[crosses], end[crosses]
        share = (level - a[:, 1]) / (b[:, 1] - a[:, 1])
        points = (a + share[:, None] * (b - a))[:, [0, 2]]
        try:
            girths.append(float(ConvexHull(points).area))  # in the plane, the area of a hull is its perimeter
        except (QhullError, ValueError):
            continue
    return girths or [math.nan]
