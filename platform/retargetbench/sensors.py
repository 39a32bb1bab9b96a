"""Semantically consistent sensors: 288 named points on the skin of any humanoid, and how they move.

A sensor is named by its bone, its place along the bone and its angle around the bone, so that sensor 137 of one
character means the same spot of the body as sensor 137 of another. Contact is measured between sensors, and MeshRet
learns from them.

Source: Ye et al., "Skinned Motion Retargeting with Dense Geometric Interaction Perception" (MeshRet), NeurIPS 2024,
§3.2 and appendix C. The paper leaves open which 18 bones, which part of the mesh, which hit and which tangent frame;
`extract_sensors` says what we chose and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import torch

from retargetbench._sensor_geometry import (
    bone_ends,
    bone_rays,
    check_facing,
    last_of_each,
    plausible_hits,
    tangent_frames,
)
from retargetbench.caching import per_character
from retargetbench.errors import UsageError
from retargetbench.kinematics import Skinner
from retargetbench.mesh.rays import cast_rays
from retargetbench.sensor_names import (
    ALONG,
    AROUND,
    BONES,
    OBSERVED_PARTS,
    PART_SLICES,
    PARTS,
    SENSOR_COUNT,
    SENSOR_NAMES,
    SENSORS_PER_BONE,
    Part,
    SensorBone,
    SensorName,
    bone_slice,
)
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.skeleton import Skeleton

__all__ = [
    "ALONG",
    "AROUND",
    "BONES",
    "OBSERVED_PARTS",
    "PARTS",
    "PART_SLICES",
    "SENSORS_PER_BONE",
    "SENSOR_COUNT",
    "SENSOR_NAMES",
    "HitRule",
    "Part",
    "SensorBone",
    "SensorName",
    "Sensors",
    "bone_slice",
    "extend_to_all_joints",
    "extract_sensors",
    "sensor_forward_kinematics",
]

HitRule = Literal["last", "first"]
"""Which of several hits of a ray becomes the sensor: the outermost surface, or the innermost."""


@dataclass(frozen=True, eq=False)
class Sensors:
    """The sensors of one character in the house rest pose, S = 288 in the order of `SENSOR_NAMES`.

    An invalid sensor has no spot on this body (its ray leaves through an opening, or meets the wrong side). It
    holds zeros, an identity frame and its bone's joint as only influence, so that it moves without NaN; mask it.

    Attributes:
        positions: (S, 3) metres.
        frames: tangent frames, (S, 3, 3); columns are u (along the bone, on the surface), v = w × u and w (outward
            normal), orthonormal and right-handed. A world vector x is ``frame.mT @ x`` as the sensor sees it.
        valid: (S,) bool.
        faces: face that each sensor lies on, (S,) int64; -1 where invalid.
        barycentric: place within that face, (S, 3).
        weights: skin weights over the character's J joints, (S, J).
        radius: distance from the bone, (S,) metres.
    """

    positions: torch.Tensor
    frames: torch.Tensor
    valid: torch.Tensor
    faces: torch.Tensor
    barycentric: torch.Tensor
    weights: torch.Tensor
    radius: torch.Tensor

    @cached_property
    def arm_radius(self) -> float:
        """Median radius of the valid sensors on upper arms and forearms, metres; NaN where there is none."""
        bones = [side + name for side in ("Left", "Right") for name in ("Arm", "ForeArm")]
        radius = torch.cat([self.radius[bone_slice(bone)][self.valid[bone_slice(bone)]] for bone in bones])
        return float(radius.double().quantile(0.5)) if len(radius) else math.nan

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Sensors:
        """Return the same sensors on another device or in another floating-point type."""
        moved: dict[str, torch.Tensor] = {}
        for field in fields(self):
            tensor: torch.Tensor = getattr(self, field.name)
            moved[field.name] = tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
        return replace(self, **moved)


_BLOCK_WEIGHT = 0.25  # share of a hit's skin weight that must lie on the block's joints


@per_character
def extract_sensors(character: Character, *, hit: HitRule = "last") -> Sensors:
    """Find the 288 sensors of a character; the result is remembered with the character.

    From each place along a bone four rays leave, perpendicular to the bone; where a ray meets the skin that belongs
    to the bone is the sensor. Computed in float64 and stored in the character's type.

    Choices where the paper is silent or contradicts itself (figures: eight Mixamo characters):

    - The ray of algorithm 1 is perpendicular to the bone only if the bone is perpendicular to the forward direction.
      We project the forward direction first; both agree where the paper's is perpendicular. A foot that points
      straight ahead (sine below 0.35) takes the up vector, which in the plane of the foot projects to the same
      line: on the feet of these characters the two differ by 1° to 24°.
    - Skin belongs to a bone if at least a quarter of its weight *at the hit* lies on joints of the bone's block
      (`BONES`). Weights and surface are linear on a face, so the sensors do not depend on how the mesh is cut into
      triangles or whether seams are welded. 94 % are valid, as many as with whole faces that have a vertex in the
      block; faces of the bone's own joint alone leave 72 %.
    - The last hit counts, the visible surface: inner layers, mouths and skirts give several.
    - A hit of a limb's ray beyond the body's median plane is invalid, as is a hit farther away than three times the
      median of its bone and 5 % of the height.
    - The head ends at ``HeadTop_End``, else right above its joint at the height of its highest vertex; a hand ends
      at twice the distance of ``HandMiddle1``, else at its farthest vertex along the forearm.
    - Normals are barycentric mixtures of area-weighted vertex normals, turned outward along the ray.

    Args:
        character: in the house convention, so that +Z is the front.
        hit: which hit of a ray counts.

    Raises:
        CharacterError: the hips say that the character does not face +Z.
        UsageError: ``hit`` is neither ``last`` nor ``first``.
    """
    if hit not in get_args(HitRule):
        raise UsageError(f"hit {hit!r} is not one of: {', '.join(get_args(HitRule))}")
    check_facing(character)
    vertices = character.rest_vertices.double()
    starts, ends = bone_ends(character, vertices)
    origins, rays, tangents, bone_directions, usable = bone_rays(starts, ends, character.height)
    faces, barycentric, distance = _meet_blocks(character, vertices, origins, rays, usable, hit)
    points = origins + distance[:, None] * rays
    valid = plausible_hits(character, starts, ends, points, distance)
    frames = tangent_frames(character, vertices, faces, barycentric, rays, tangents, bone_directions)
    joint_weights = (barycentric[..., None] * character.weights.double()[character.faces[faces]]).sum(-2)
    joints = [character.skeleton.canonical[canonical_index(BONES[name.bone].name)] for name in SENSOR_NAMES]
    alone = torch.nn.functional.one_hot(torch.tensor(joints), character.skeleton.joint_count).to(joint_weights)
    dtype = character.bind_vertices.dtype
    return Sensors(
        positions=torch.where(valid[:, None], points, 0.0).to(dtype),
        frames=torch.where(valid[:, None, None], frames, torch.eye(3).to(frames)).to(dtype),
        valid=valid,
        faces=torch.where(valid, faces, -1),
        barycentric=torch.where(valid[:, None], barycentric, 0.0).to(dtype),
        weights=torch.where(valid[:, None], joint_weights, alone).to(dtype),
        radius=torch.where(valid, distance, 0.0).to(dtype),
    )


def _meet_blocks(
    character: Character,
    vertices: torch.Tensor,
    origins: torch.Tensor,
    rays: torch.Tensor,
    usable: torch.Tensor,
    hit: HitRule,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cast each bone's rays at the skin of its block: face (S,), -1 for none, barycentric (S, 3), distance (S,)."""
    chosen = torch.full((SENSOR_COUNT,), -1, device=character.device)
    barycentric = origins.new_zeros(SENSOR_COUNT, 3)
    distance = origins.new_full((SENSOR_COUNT,), math.nan)
    corner_weights = character.canonical_weights.double()[character.faces]
    for block in dict.fromkeys(bone.block for bone in BONES):
        members = [s for s, name in enumerate(SENSOR_NAMES) if BONES[name.bone].block == block]
        sensors = torch.tensor(members, device=character.device)[usable[members]]
        weight = corner_weights[..., [canonical_index(name) for name in block]].sum(-1)
        # The weight inside a face never exceeds that of its heaviest corner, so nothing is lost by leaving these out.
        faces = (weight.amax(-1) >= _BLOCK_WEIGHT).nonzero()[:, 0]
        hits = cast_rays(origins[sensors], rays[sensors], vertices[character.faces[faces]])
        kept = ((hits.barycentric * weight[faces[hits.face]]).sum(-1) >= _BLOCK_WEIGHT).nonzero()[:, 0]
        kept = kept[hits.distance[kept].argsort(descending=hit == "first", stable=True)]
        ray, winner = last_of_each(hits.ray[kept], len(sensors))
        chosen[sensors[ray]] = faces[hits.face[kept[winner]]]
        barycentric[sensors[ray]] = hits.barycentric[kept[winner]]
        distance[sensors[ray]] = hits.distance[kept[winner]]
    return chosen, barycentric, distance


def extend_to_all_joints(
    skeleton: Skeleton, world_rotations: torch.Tensor, world_positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Let every joint of a rig move rigidly with the canonical joint that it is or hangs under.

    Args:
        skeleton: J joints.
        world_rotations: of the 22 canonical joints, (..., 22, 3, 3).
        world_positions: of the 22 canonical joints, (..., 22, 3) metres.

    Returns:
        The same of all joints, (..., J, 3, 3) and (..., J, 3).
    """
    nearest = list(skeleton.nearest_canonical)
    rest = skeleton.rest_positions.to(world_positions)
    arm = rest - rest[list(skeleton.canonical)][nearest]
    rotations = world_rotations[..., nearest, :, :]
    return rotations, world_positions[..., nearest, :] + (rotations @ arm[..., None])[..., 0]


def sensor_forward_kinematics(
    sensors: Sensors,
    character: Character,
    world_rotations: torch.Tensor,
    world_positions: torch.Tensor,
    *,
    on_surface: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Move the sensors with the joints; differentiable in both arguments that change.

    Positions are blended as the paper does it, interpolated weights on the interpolated point, which is off the posed
    surface by as much as skin weights vary within a face; ``on_surface`` skins the face's corners first. A blend of
    rotations is no rotation, so frames are made orthonormal again, the normal first.

    Args:
        sensors: of ``character``.
        character: J joints.
        world_rotations: (..., J, 3, 3); see `extend_to_all_joints` for motions of the 22 canonical joints.
        world_positions: (..., J, 3) metres.
        on_surface: keep the sensors exactly on the posed mesh.

    Returns:
        Positions (..., S, 3) in metres and frames (..., S, 3, 3) in the layout of `Sensors`.

    Source: MeshRet eq. 2; the paper does not say whether frames are made orthonormal.
    """
    rest = sensors.positions.to(world_positions)
    joints = character.skeleton.rest_positions.to(world_positions)
    weights = sensors.weights.to(world_positions)
    shift = world_positions - (world_rotations @ joints[..., None])[..., 0]
    transforms = torch.cat([world_rotations.flatten(-2), shift], -1)
    blended = weights @ transforms
    rotation, translation = blended[..., :9].reshape(*blended.shape[:-1], 3, 3), blended[..., 9:]
    positions = (rotation @ rest[..., None])[..., 0] + translation
    if on_surface:
        skinned = _surface_skinner(sensors, character).pose(world_rotations, world_positions)
        positions = torch.where(sensors.valid[:, None], skinned, positions)
    u, _, w = (rotation @ sensors.frames.to(rotation)).unbind(-1)
    w = torch.nn.functional.normalize(w, dim=-1)
    u = torch.nn.functional.normalize(u - (u * w).sum(-1, keepdim=True) * w, dim=-1)
    return positions, torch.stack([u, torch.linalg.cross(w, u), w], -1)


def _surface_skinner(sensors: Sensors, character: Character) -> Skinner:
    """Skinning rows of the sensors as barycentric means of their corners' rows; invalid sensors have rows of zero."""
    corners = character.faces[sensors.faces]
    points = torch.nn.functional.pad(character.bind_vertices[corners], (0, 1), value=1.0)
    rows = torch.einsum("sc,scj,scx->sjx", sensors.barycentric.to(points), character.weights[corners], points)
    joints = torch.arange(character.skeleton.joint_count, device=character.device)
    return Skinner(character.skeleton, character.inverse_bind, joints, rows.flatten(-2))
