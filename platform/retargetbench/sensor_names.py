"""The names of the 288 sensors: which bones carry them, in which order they stand, which parts observe which."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from retargetbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Part = Literal["torso", "head", "left_arm", "left_leg", "right_arm", "right_leg"]
"""A part of the body, made of consecutive bones."""

PARTS: tuple[Part, ...] = get_args(Part)
"""All parts, in the order of their sensors."""

ALONG: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)
"""Places along a bone, as shares of its length from its parent's end."""

AROUND: tuple[float, ...] = (0.0, 0.5 * math.pi, math.pi, 1.5 * math.pi)
"""Angles around a bone, radians; 0 points where the character faces."""


class SensorBone(NamedTuple):
    """A bone that carries sensors: canonical joints it runs between, its part, and the joints whose skin it sees.

    ``end`` is None for the head and the hands, whose far end is found on the character.
    """

    name: str
    end: str | None
    part: Part
    block: tuple[str, ...]


class SensorName(NamedTuple):
    """What a sensor means on every character."""

    bone: int
    along: float
    around: float


def _side_bones(side: Literal["Left", "Right"]) -> tuple[SensorBone, ...]:
    """Three bones of an arm and three of a leg."""
    arm = tuple(side + name for name in ("Shoulder", "Arm", "ForeArm", "Hand"))
    leg = ("Hips", *(side + name for name in ("UpLeg", "Leg", "Foot", "ToeBase")))
    arm_part: Part = "left_arm" if side == "Left" else "right_arm"
    leg_part: Part = "left_leg" if side == "Left" else "right_leg"
    return (
        SensorBone(arm[1], arm[2], arm_part, arm),
        SensorBone(arm[2], arm[3], arm_part, arm[1:]),
        SensorBone(arm[3], None, arm_part, arm[1:]),
        SensorBone(leg[1], leg[2], leg_part, leg),
        SensorBone(leg[2], leg[3], leg_part, leg[1:]),
        SensorBone(leg[3], leg[4], leg_part, leg[1:]),
    )


# Arms are left out of the torso's block: in a T-pose a ray from Spine2 to the side runs inside the arm to the palm.
_TORSO_BLOCK = ("Hips", "Spine", "Spine1", "Spine2", "Neck", "LeftShoulder", "RightShoulder")

BONES: tuple[SensorBone, ...] = (
    SensorBone("Hips", "Spine", "torso", _TORSO_BLOCK),
    SensorBone("Spine", "Spine1", "torso", _TORSO_BLOCK),
    SensorBone("Spine1", "Spine2", "torso", _TORSO_BLOCK),
    SensorBone("Spine2", "Neck", "torso", _TORSO_BLOCK),
    SensorBone("Neck", "Head", "head", ("Neck", "Head", "Spine2", "LeftShoulder", "RightShoulder")),
    SensorBone("Head", None, "head", ("Head", "Neck")),
    *_side_bones("Left"),
    *_side_bones("Right"),
)
"""The 18 bones: those between the 22 canonical joints without clavicles and connectors, and three leaf ends."""

SENSORS_PER_BONE = len(ALONG) * len(AROUND)

SENSOR_NAMES: tuple[SensorName, ...] = tuple(
    SensorName(bone, along, around) for bone in range(len(BONES)) for along in ALONG for around in AROUND
)
"""The 288 names in the order of every sensor tensor: by bone, then along it, then around it."""

SENSOR_COUNT = len(SENSOR_NAMES)


def bone_slice(name: str) -> slice:
    """Return where the 16 sensors of a bone stand.

    Raises:
        UsageError: no sensor bone has this name.

    Example:
        >>> bone_slice("LeftHand")
        slice(128, 144, None)
    """
    names = [bone.name for bone in BONES]
    if name not in names:
        raise UsageError(f"no sensor bone is named {name!r}; accepted: {', '.join(names)}")
    return slice(names.index(name) * SENSORS_PER_BONE, (names.index(name) + 1) * SENSORS_PER_BONE)


def _part_slice(part: Part) -> slice:
    of_part = [b for b, bone in enumerate(BONES) if bone.part == part]
    return slice(of_part[0] * SENSORS_PER_BONE, (of_part[-1] + 1) * SENSORS_PER_BONE)


PART_SLICES: Mapping[Part, slice] = MappingProxyType({part: _part_slice(part) for part in PARTS})
"""Where the sensors of each part stand; parts are contiguous."""

OBSERVED_PARTS: Mapping[Part, tuple[Part, ...]] = MappingProxyType(
    {
        "left_arm": ("right_arm", "head", "torso"),
        "right_arm": ("left_arm", "head", "torso"),
        "left_leg": ("right_leg", "torso"),
        "right_leg": ("left_leg", "torso"),
    }
)
"""Limbs observe, and these are the parts each of them observes (MeshRet, appendix C)."""
