"""Shapes of hands: fingers held the same way on every body, and bodies with such hands on the 22 canonical joints."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.caching import per_character
from retargetbench.datasets.studio.sculpting import bound_at_rest
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.skeleton import strip_namespace

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.studio.actions import HandShape
    from retargetbench.skeleton import Skeleton

_FINGERS = ("Index", "Middle", "Ring", "Pinky", "Thumb")
_BENDS: dict[HandShape, tuple[tuple[float, float, float], ...]] = {
    "flat": ((-16, -8, -4), (-18, -6, -4), (-18, -6, -4), (-20, -8, -5), (-28, -5, 0)),
    "relaxed": ((0, 5, 4), (2, 8, 5), (4, 9, 6), (4, 8, 6), (8, 12, 10)),
    "fist": ((62, 86, 56), (64, 90, 58), (66, 90, 58), (64, 86, 56), (-6, 68, 54)),
    "point": ((-17, -8, -6), (64, 90, 58), (66, 90, 58), (64, 86, 56), (-6, 68, 54)),
}
"""Bend of the three joints of index, middle, ring and little finger towards the palm, and of the thumb across it,
degrees, from the rest of the bodies, whose fingers are bent by about 20° and 10° already."""

_SPREADS: dict[HandShape, float] = {"flat": 0.5, "relaxed": 0.7, "fist": 0.1, "point": 0.1}
"""Share that stays of the angles between fingers."""

_THUMB_TURNS: dict[HandShape, tuple[float, float, float]] = {
    "flat": (0, 0, 0),
    "relaxed": (0, 0, 0),
    "fist": (-35, 25, 0),
    "point": (-35, 25, 0),
}
"""Turn of the three joints of the thumb about the palm's normal, away from the fingers, degrees."""


def finger_rotations(skeleton: Skeleton, left: HandShape, right: HandShape) -> torch.Tensor:
    """Return local rotations of all joints with both hands in their shapes and everything else at rest, (J, 4).

    Fingers bend about the axis that is perpendicular to them and to the palm's normal, which looks down in the T-pose;
    thumbs about that of the arm, so that they come in front of the palm with their pads turned to the fingers. Then the
    first joints turn about the palm's normal, which closes the gaps between the fingers.
    """
    names = [strip_namespace(name) for name in skeleton.names]
    rest = skeleton.rest_positions.double()
    bends, turns = rest.new_zeros(2, skeleton.joint_count, 3)
    for side, shape in (("Left", left), ("Right", right)):
        middle = _finger(names, f"{side}HandMiddle")
        ahead = _azimuth(rest, middle) if len(middle) > 1 else 0.0
        for finger, angles in zip(_FINGERS, _BENDS[shape], strict=True):
            joints = _finger(names, f"{side}Hand{finger}")
            if len(joints) < 2:
                continue
            if finger == "Thumb":
                axis = rest.new_tensor([1.0, 0.0, 0.0])
                away = -1 if side == "Left" else 1
                turn = [away * math.radians(angle) for angle in _THUMB_TURNS[shape]]
            else:
                along = rest[joints[-1]] - rest[joints[0]]
                axis = torch.nn.functional.normalize(torch.stack([along[2], along.new_zeros(()), -along[0]]), dim=0)
                apart = math.remainder(_azimuth(rest, joints) - ahead, math.tau)
                turn = [(_SPREADS[shape] - 1) * apart, 0.0, 0.0]
            bends[joints] = torch.deg2rad(rest.new_tensor(angles[: len(joints)]))[:, None] * axis
            turns[joints, 1] = rest.new_tensor(turn[: len(joints)])
    bent, turned = roma.rotvec_to_unitquat(torch.stack([bends, turns]))
    rotations: torch.Tensor = roma.quat_product(turned, bent)
    return rotations


def _finger(names: list[str], stem: str) -> list[int]:
    """Joints of a finger from the palm to its tip; without its end, which turns nothing."""
    return [names.index(name) for k in (1, 2, 3) if (name := f"{stem}{k}") in names]


def _azimuth(rest: torch.Tensor, joints: list[int]) -> float:
    """Direction of a finger in the plane of the palm, radians about Y."""
    x, _, z = (rest[joints[-1]] - rest[joints[0]]).tolist()
    return math.atan2(-z, x)


@per_character
def shaped_body(character: Character, left: HandShape, right: HandShape) -> Character:
    """Return a body on the 22 canonical joints whose hands have these shapes at rest; remembered per character.

    It moves exactly as the character does whose finger joints keep their shapes; only skin that hangs on fingers and
    on the forearm at once would be an exception.

    Args:
        character: at a T-pose, with any joints.
        left: shape of the left hand.
        right: shape of the right hand.
    """
    skeleton = character.skeleton
    rotations = finger_rotations(skeleton, left, right).to(character.bind_vertices)
    world, positions = forward_kinematics(skeleton, skeleton.offsets[0].to(character.bind_vertices), rotations)
    vertices = Skinner.from_character(character).pose(world, positions)
    canonical = skeleton.to_canonical()
    body = bound_at_rest(character.name, canonical, vertices, character.faces, character.canonical_weights)
    return replace(body, provenance=character.provenance)
