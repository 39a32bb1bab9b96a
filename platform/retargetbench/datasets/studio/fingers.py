"""Shapes of hands: fingers held the same way on every body, and bodies with such hands on the 22 canonical joints."""

from __future__ import annotations

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

_FINGERS = ("Index", "Middle", "Ring", "Pinky")
_CURLS: dict[HandShape, tuple[tuple[float, float, float], ...]] = {
    "flat": ((-16, -8, -4), (-18, -6, -4), (-18, -6, -4), (-20, -8, -5)),
    "relaxed": ((0, 5, 4), (2, 8, 5), (4, 9, 6), (4, 8, 6)),
    "fist": ((52, 82, 50), (56, 86, 52), (58, 86, 52), (56, 82, 50)),
    "point": ((-14, -6, -4), (56, 86, 52), (58, 86, 52), (56, 82, 50)),
}
"""Bend of the three joints of index, middle, ring and little finger towards the palm, degrees, from the rest of the
bodies, whose fingers are bent by about 20° and 10° already."""

_THUMBS: dict[HandShape, tuple[float, float, float]] = {
    "flat": (0, 0, 0),
    "relaxed": (8, 12, 10),
    "fist": (25, 38, 40),
    "point": (22, 35, 35),
}
"""Bend of the three joints of the thumb across the palm, degrees."""


def finger_rotations(skeleton: Skeleton, left: HandShape, right: HandShape) -> torch.Tensor:
    """Return local rotations of all joints with both hands in their shapes and everything else at rest, (J, 4).

    Fingers bend about the axis that is perpendicular to them and to the palm's normal, which looks down in the T-pose;
    thumbs about the axis between their own direction and the palm's normal, so that they close in front of the palm.
    """
    rotations = torch.zeros(skeleton.joint_count, 4, dtype=torch.float64)
    rotations[:, 3] = 1.0
    names = [strip_namespace(name) for name in skeleton.names]
    rest = skeleton.rest_positions.double()
    for side, shape in (("Left", left), ("Right", right)):
        for finger, bends in (*zip(_FINGERS, _CURLS[shape], strict=True), ("Thumb", _THUMBS[shape])):
            joints = [names.index(name) for k in (1, 2, 3) if (name := f"{side}Hand{finger}{k}") in names]
            if len(joints) < 2:
                continue
            along = torch.nn.functional.normalize(rest[joints[-1]] - rest[joints[0]], dim=0)
            towards = rest.new_tensor([0.0, -1.0, 0.0])
            if finger == "Thumb":  # towards the little finger, in front of the palm
                towards = rest.new_tensor([0.0, -0.6, -0.8])
            axis = torch.nn.functional.normalize(torch.linalg.cross(along, towards), dim=0)
            for joint, bend in zip(joints, bends, strict=False):
                rotations[joint] = roma.rotvec_to_unitquat(torch.deg2rad(torch.tensor(float(bend))) * axis)
    return rotations


@per_character
def shaped_body(character: Character, left: HandShape, right: HandShape) -> Character:
    """Return a body on the 22 canonical joints whose hands have these shapes at rest; remembered per character.

    It moves exactly as the character does whose finger joints keep their shapes.

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
