"""Named places of the body: what actions touch, and with what, found on any body by rays from its bones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from retargetbench._sensor_geometry import bone_ends
from retargetbench.caching import per_character
from retargetbench.errors import CharacterError
from retargetbench.mesh.rays import cast_rays, vertex_normals
from retargetbench.sensor_names import BONES
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character


class Place(NamedTuple):
    """A place on the skin: where a ray that leaves a bone hits it last, or what of it is farthest in a direction.

    Attributes:
        bone: of `retargetbench.sensors.BONES`.
        along: where the ray leaves, as a share of the bone's length; None for the bone's farthest skin.
        toward: direction in the T-pose (to the left, up, forward).
    """

    bone: str
    along: float | None
    toward: tuple[float, float, float]


_MIDDLE: dict[str, Place] = {
    "belly": Place("Spine", 0.2, (0, 0, 1)),
    "lower_belly": Place("Hips", 0.3, (0, 0, 1)),
    "stomach": Place("Spine1", 0.4, (0, 0, 1)),
    "chest": Place("Spine2", 0.35, (0, 0, 1)),
    "collar": Place("Spine2", 0.85, (0, 0, 1)),
    "lower_back": Place("Spine", 0.2, (0, 0, -1)),
    "upper_back": Place("Spine2", 0.4, (0, 0, -1)),
    "throat": Place("Neck", 0.15, (0, -0.15, 1)),
    "nape": Place("Neck", 0.6, (0, 0, -1)),
    "chin": Place("Head", 0.0, (0, -0.08, 1)),
    "mouth": Place("Head", 0.13, (0, 0, 1)),
    "nose": Place("Head", 0.3, (0, 0, 1)),
    "forehead": Place("Head", 0.74, (0, 0, 1)),
    "crown": Place("Head", 0.6, (0, 1, 0)),
    "back_of_head": Place("Head", 0.6, (0, 0, -1)),
}

# Of the left side; x is away from the median plane.
_SIDED: dict[str, Place] = {
    "ribs": Place("Spine1", 0.6, (1, 0, 0.35)),
    "waist": Place("Spine", 0.3, (1, 0, 0.15)),
    "hip": Place("Hips", 0.3, (1, 0, 0.25)),
    "belly_side": Place("Spine", 0.2, (0.45, 0, 1)),
    "breast": Place("Spine2", 0.3, (0.8, 0, 1)),
    "shoulder_blade": Place("Spine2", 0.4, (1.1, 0, -1)),
    "kidney": Place("Spine", 0.5, (1, 0, -1)),
    "buttock": Place("Hips", 0.1, (0.55, -0.25, -1)),
    "cheek": Place("Head", 0.27, (0.6, 0, 0.9)),
    "eye": Place("Head", 0.48, (0.28, 0, 1)),
    "temple": Place("Head", 0.54, (1, 0, 0.8)),
    "ear": Place("Head", 0.3, (1, 0, 0.25)),
    "neck_side": Place("Neck", 0.7, (1, 0, 0.2)),
    "shoulder": Place("LeftArm", 0.08, (0, 1, 0)),
    "upper_arm_outer": Place("LeftArm", 0.55, (0, 1, 0)),
    "upper_arm_front": Place("LeftArm", 0.55, (0, 0, 1)),
    "upper_arm_inner": Place("LeftArm", 0.6, (0, -1, 0)),
    "upper_arm_back": Place("LeftArm", 0.6, (0, 0, -1)),
    "elbow": Place("LeftForeArm", 0.02, (0, 0, -1)),
    "elbow_pit": Place("LeftForeArm", 0.05, (0, 0, 1)),
    "forearm_outer": Place("LeftForeArm", 0.5, (0, 1, 0)),
    "forearm_inner": Place("LeftForeArm", 0.5, (0, -1, 0)),
    "forearm_thumb_side": Place("LeftForeArm", 0.5, (0, 0, 1)),
    "forearm_edge": Place("LeftForeArm", 0.5, (0, 0, -1)),
    "wrist_inner": Place("LeftForeArm", 0.93, (0, -1, 0)),
    "wrist_outer": Place("LeftForeArm", 0.93, (0, 1, 0)),
    "palm": Place("LeftHand", 0.42, (0, -1, 0)),
    "back_of_hand": Place("LeftHand", 0.42, (0, 1, 0)),
    "hand_edge": Place("LeftHand", 0.35, (0, 0, -1)),
    "thumb_side": Place("LeftHand", 0.5, (0.15, -0.2, 1)),
    "fingers": Place("LeftHand", 0.5, (0.5, -1, 0)),
    "fingertips": Place("LeftHand", None, (1, -0.5, 0)),
    "knuckles": Place("LeftHand", 0.3, (1, -0.05, 0.16)),
    "thigh_front": Place("LeftUpLeg", 0.6, (0, 0, 1)),
    "thigh_outer": Place("LeftUpLeg", 0.45, (1, 0, 0.1)),
    "thigh_inner": Place("LeftUpLeg", 0.6, (-1, 0, 0)),
    "thigh_back": Place("LeftUpLeg", 0.5, (0, 0, -1)),
    "knee": Place("LeftLeg", 0.02, (0, 0, 1)),
    "knee_outer": Place("LeftLeg", 0.02, (1, 0, 0)),
    "knee_inner": Place("LeftLeg", 0.02, (-1, 0, 0)),
    "shin": Place("LeftLeg", 0.5, (0, 0, 1)),
    "calf": Place("LeftLeg", 0.4, (0, 0, -1)),
    "calf_inner": Place("LeftLeg", 0.4, (-1, 0, 0)),
    "calf_outer": Place("LeftLeg", 0.4, (1, 0, 0)),
    "ankle_outer": Place("LeftLeg", 0.93, (1, 0, 0)),
    "ankle_inner": Place("LeftLeg", 0.93, (-1, 0, 0)),
    "ankle_front": Place("LeftLeg", 0.9, (0, 0, 1)),
    "heel": Place("LeftFoot", 0.0, (0, -0.45, -1)),
    "instep": Place("LeftFoot", 0.5, (0, 1, 0)),
    "foot_inner": Place("LeftFoot", 0.8, (-1, 0, 0)),
    "foot_outer": Place("LeftFoot", 0.8, (1, 0, 0)),
    "toes": Place("LeftFoot", 0.9, (0, 0, 1)),
}


def _mirrored(place: Place) -> Place:
    x, y, z = place.toward
    return Place(place.bone.replace("Left", "Right"), place.along, (-x, y, z))


PLACES: dict[str, Place] = {
    **_MIDDLE,
    **{f"left_{name}": place for name, place in _SIDED.items()},
    **{f"right_{name}": _mirrored(place) for name, place in _SIDED.items()},
}
"""All places by name. In the T-pose palms look down.

``fingertips`` are the palm's side of the finger that reaches farthest; ``knuckles`` the front of a fist, or the back of
the fingers' roots; ``mouth`` is the upper lip, because a ray between the lips runs into the head, and ``eye`` the upper
lid or brow, because sockets are hollow.
"""

_BLOCK_WEIGHT = 0.25  # share of skin weight that must be the bone's block's, as for sensors

# Blocks narrower than those of sensors: a ray up from the foot runs on inside the leg.
_EXTREMITIES = {
    f"{side}{bone}": tuple(side + joint for joint in joints)
    for side in ("Left", "Right")
    for bone, joints in (("Hand", ("Hand",)), ("Foot", ("Foot", "ToeBase")))
}


@dataclass(frozen=True, eq=False)
class SkinPoint:
    """A point of the skin in the T-pose.

    Attributes:
        position: (3,) metres.
        normal: outward, (3,).
        weights: of the 22 canonical joints, (22,).
    """

    position: torch.Tensor
    normal: torch.Tensor
    weights: torch.Tensor


@per_character
def rest_normals(body: Character) -> torch.Tensor:
    """Return the outward unit normals of the vertices at the T-pose, (V, 3) float64; remembered per body."""
    return vertex_normals(body.rest_vertices.double(), body.faces)


@per_character
def find_place(body: Character, name: str) -> SkinPoint:
    """Find a named place on a body at its T-pose; remembered per body.

    Raises:
        CharacterError: the ray meets no skin of its bone.
        KeyError: there is no such place.
    """
    place = PLACES[name]
    number = [bone.name for bone in BONES].index(place.bone)
    vertices = body.rest_vertices.double()
    toward = torch.nn.functional.normalize(vertices.new_tensor(place.toward), dim=0)
    block = [canonical_index(joint) for joint in _EXTREMITIES.get(place.bone, BONES[number].block)]
    if place.along is None:
        found = _farthest_vertex(body, vertices, block, toward)
    else:
        starts, ends = bone_ends(body, vertices)
        found = _last_hit(body, vertices, block, torch.lerp(starts[number], ends[number], place.along), toward)
    if found is None:
        raise CharacterError(f"{body.name}: no skin was found for the place {name}")
    corners, shares = found
    normal = torch.nn.functional.normalize(shares @ rest_normals(body)[corners], dim=0)
    weights = shares @ body.canonical_weights.double()[corners]
    return SkinPoint(shares @ vertices[corners], normal, weights / weights.sum())


def _last_hit(
    body: Character, vertices: torch.Tensor, block: list[int], origin: torch.Tensor, ray: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Corners of the last face of a block of joints that a ray meets, and their shares of the hit."""
    hits = cast_rays(origin[None], ray[None], vertices[body.faces])
    corner_weights = body.canonical_weights.double()[body.faces[hits.face]][..., block].sum(-1)
    own = ((hits.barycentric * corner_weights).sum(-1) >= _BLOCK_WEIGHT).nonzero()[:, 0]
    if len(own) == 0:
        return None
    last = own[hits.distance[own].argmax()]
    return body.faces[hits.face[last]], hits.barycentric[last]


def _farthest_vertex(
    body: Character, vertices: torch.Tensor, block: list[int], toward: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The vertex of a block of joints that is farthest in a direction, in the form of `_last_hit`."""
    own = (body.canonical_weights[:, block].sum(-1) >= _BLOCK_WEIGHT).nonzero()[:, 0]
    if len(own) == 0:
        return None
    return own[(vertices[own] @ toward).argmax()][None], vertices.new_ones(1)
