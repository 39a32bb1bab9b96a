"""The steps of finding sensors: ends of bones, rays, which hits to believe, tangent frames."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import torch

from retargetbench.errors import CharacterError
from retargetbench.mesh.rays import vertex_normals
from retargetbench.sensor_names import BONES, SENSOR_NAMES, SENSORS_PER_BONE
from retargetbench.skeleton import canonical_index, strip_namespace

if TYPE_CHECKING:
    from retargetbench.character import Character

logger = logging.getLogger(__name__)

_FACING_COSINE = 0.7  # hips turned farther than 45° from +Z are no accident: left and right are exchanged, say
_PARALLEL_TO_FORWARD = 0.35  # below this sine "front" no longer names a direction around the bone
_SHORTEST_BONE = 1e-6  # of the height
_FARTHEST_RADII = 3.0  # a hit beyond this many median distances of its bone lies on something else ...
_FARTHEST_HEIGHTS = 0.05  # ... unless it is within this share of the height
_SHORTEST_TANGENT = 1e-3


def check_facing(character: Character) -> None:
    """Refuse a character whose hips do not face +Z, and warn when its toes point backward."""
    left_thigh, right_thigh, left, left_toe, right, right_toe = _rest(
        character, "LeftUpLeg", "RightUpLeg", "LeftFoot", "LeftToeBase", "RightFoot", "RightToeBase"
    )
    across = left_thigh - right_thigh
    ahead = torch.linalg.cross(across, across.new_tensor([0.0, 1.0, 0.0]))
    ahead = ahead / ahead.norm()
    if not float(ahead[2]) >= _FACING_COSINE:  # also refuses NaN: both thighs start at one place or one above another
        shown = ", ".join(f"{value:.2f}" for value in ahead.tolist())
        raise CharacterError(
            f"{character.name}: LeftUpLeg and RightUpLeg say that the character faces ({shown}), but the house "
            f"convention is +Z; turn the character, or check that left and right are not exchanged"
        )
    if float((left_toe - left + right_toe - right)[2]) <= 0:
        logger.warning(
            "%s: the toes do not point to +Z as the hips do; its sensors may be back to front", character.name
        )


def _rest(character: Character, *names: str) -> torch.Tensor:
    """Rest positions of canonical joints, (N, 3) float64."""
    joints = [character.skeleton.canonical[canonical_index(name)] for name in names]
    return character.skeleton.rest_positions[joints].to(character.device, torch.float64)


def bone_ends(character: Character, vertices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rest positions of both ends of the 18 bones, (18, 3) each; a bone whose end cannot be found has length 0."""
    starts = _rest(character, *(bone.name for bone in BONES))
    ends = [
        _leaf_end(character, vertices, bone.name, start) if bone.end is None else _rest(character, bone.end)[0]
        for bone, start in zip(BONES, starts, strict=True)
    ]
    return starts, torch.stack(ends)


def _leaf_end(character: Character, vertices: torch.Tensor, bone: str, start: torch.Tensor) -> torch.Tensor:
    """Far end of the head or a hand, (3,)."""
    short = [strip_namespace(name) for name in character.skeleton.names]
    marker, reach = ("HeadTop_End", 1.0) if bone == "Head" else (f"{bone}Middle1", 2.0)
    if marker in short:
        offset = character.skeleton.rest_positions[short.index(marker)].to(start) - start
        if float(offset.norm()) > _SHORTEST_BONE * character.height:
            return start + reach * offset
    if bone == "Head":
        direction = start.new_tensor([0.0, 1.0, 0.0])
    else:
        direction = torch.nn.functional.normalize(start - _rest(character, bone.replace("Hand", "ForeArm"))[0], dim=-1)
    own = vertices[character.dominant_joint == canonical_index(bone)]
    return start + ((own - start) @ direction).amax().clamp_min(0) * direction if len(own) else start


def bone_rays(
    starts: torch.Tensor, ends: torch.Tensor, height: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Origins, directions, directions a quarter turn further and bone directions, (S, 3) each, and which to use."""
    span = ends - starts
    length = span.norm(dim=-1, keepdim=True)
    bone = torch.nn.functional.normalize(span, dim=-1)
    up, forward = bone.new_tensor([0.0, 1.0, 0.0]), bone.new_tensor([0.0, 0.0, 1.0])
    front = forward - (bone @ forward)[:, None] * bone
    above = up - (bone @ up)[:, None] * bone
    front = torch.where(front.norm(dim=-1, keepdim=True) < _PARALLEL_TO_FORWARD, above, front)
    front = torch.nn.functional.normalize(front, dim=-1)
    side = torch.linalg.cross(front, bone)
    names = [(bone, along, math.cos(angle), math.sin(angle)) for bone, along, angle in SENSOR_NAMES]
    index = torch.tensor([name[0] for name in names], device=starts.device)
    along, cosine, sine = starts.new_tensor([name[1:] for name in names]).T[..., None]
    origins = torch.lerp(starts[index], ends[index], along)
    rays = cosine * front[index] + sine * side[index]
    tangents = cosine * side[index] - sine * front[index]
    return origins, rays, tangents, bone[index], (length[:, 0] > _SHORTEST_BONE * height)[index]


def last_of_each(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For each number below ``count`` that occurs: the number, and where it occurs last."""
    last = torch.full((count,), -1, device=values.device)
    last.scatter_reduce_(0, values, torch.arange(len(values), device=values.device), "amax")
    present = (last >= 0).nonzero()[:, 0]
    return present, last[present]


def plausible_hits(
    character: Character, starts: torch.Tensor, ends: torch.Tensor, points: torch.Tensor, distance: torch.Tensor
) -> torch.Tensor:
    """Which hits lie on the bone's side of the body and not too far from the bone, (S,) bool."""
    median_plane = _rest(character, "LeftUpLeg", "RightUpLeg")[:, 0].mean()
    limb = torch.tensor([bone.part not in ("torso", "head") for bone in BONES], device=starts.device)
    side = torch.where(limb, (starts + ends)[:, 0] / 2 - median_plane, 0.0)
    by_bone = distance.view(len(BONES), SENSORS_PER_BONE)
    across = (points[:, 0] - median_plane).view_as(by_bone) * side[:, None] < 0
    own = torch.where(across, torch.nan, by_bone)
    farthest = (_FARTHEST_RADII * own.nanmedian(-1, keepdim=True).values).clamp_min(
        _FARTHEST_HEIGHTS * character.height
    )
    return (own <= farthest).reshape(-1)  # NaN, no hit, compares false


def tangent_frames(
    character: Character,
    vertices: torch.Tensor,
    faces: torch.Tensor,
    barycentric: torch.Tensor,
    rays: torch.Tensor,
    tangents: torch.Tensor,
    bone_directions: torch.Tensor,
) -> torch.Tensor:
    """Frames (u, v, w) of the surface at the hits, (S, 3, 3)."""
    corners = character.faces[faces]
    a, b, c = vertices[corners].unbind(-2)
    of_face = torch.nn.functional.normalize(torch.linalg.cross(b - a, c - a), dim=-1, eps=1e-300)
    mixed = (barycentric[..., None] * vertex_normals(vertices, character.faces)[corners]).sum(-2)
    normal = torch.where(mixed.norm(dim=-1, keepdim=True) > _SHORTEST_TANGENT, mixed, of_face)
    normal = torch.nn.functional.normalize(normal, dim=-1)
    normal = torch.where((normal * rays).sum(-1, keepdim=True) < 0, -normal, normal)
    along = bone_directions - (bone_directions * normal).sum(-1, keepdim=True) * normal
    around = tangents - (tangents * normal).sum(-1, keepdim=True) * normal
    along = torch.where(along.norm(dim=-1, keepdim=True) < _SHORTEST_TANGENT, around, along)
    along = torch.nn.functional.normalize(along, dim=-1)
    return torch.stack([along, torch.linalg.cross(normal, along), normal], -1)
