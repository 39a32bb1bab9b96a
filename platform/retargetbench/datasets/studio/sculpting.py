"""Changes of a body at its T-pose: parts made longer, thicker or larger, and surfaces triangulated anew.

All of them give back a character bound at its T-pose with the soles on the floor.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from retargetbench.character import Character
from retargetbench.errors import CharacterError, MissingExtraError
from retargetbench.skeleton import CANONICAL_JOINTS, Skeleton, canonical_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retargetbench.datasets.studio.recipes import MeshRecipe

_WHOLE_PARTS = ("Head", "LeftHand", "RightHand", "LeftFoot", "RightFoot", "LeftToeBase", "RightToeBase")
_ARM_PARTS = ("Shoulder", "Arm", "ForeArm", "Hand")
_INFLUENCES = 8
"""Weights that a vertex of a new triangulation keeps; three corners of five each would be up to fifteen."""


def bound_at_rest(
    name: str, skeleton: Skeleton, vertices: torch.Tensor, faces: torch.Tensor, weights: torch.Tensor
) -> Character:
    """Make a character whose mesh is bound at its rest, soles on the floor.

    Args:
        name: of the character.
        skeleton: J joints.
        vertices: at rest, (V, 3) metres.
        faces: (F, 3) int64.
        weights: dense, (V, J); the largest `_INFLUENCES` of a vertex are kept and normalised.
    """
    down = skeleton.offsets.new_tensor([0.0, float(vertices[:, 1].min()), 0.0])
    offsets = skeleton.offsets.clone()
    offsets[0] -= down
    grounded = Skeleton(skeleton.names, skeleton.parents, offsets, skeleton.canonical)
    kept, joints = weights.sort(dim=-1, descending=True, stable=True)
    count = min(_INFLUENCES, int((kept > 0).sum(-1).max()))
    kept, joints = kept[:, :count], joints[:, :count]
    inverse_bind = torch.eye(4, dtype=vertices.dtype).repeat(skeleton.joint_count, 1, 1)
    inverse_bind[:, :3, 3] = -grounded.rest_positions.to(vertices)
    return Character(
        name,
        grounded,
        vertices - down.to(vertices),
        inverse_bind,
        faces,
        torch.where(kept > 0, joints, 0),
        kept / kept.sum(-1, keepdim=True),
    )


def scale_parts(character: Character, scales: Mapping[str, tuple[float, float]]) -> Character:
    """Scale parts of a body along and across their bones.

    Every joint gets a scale in the axes of the T-pose, where bones of arms run along X and all others along Y. Head,
    hands and feet scale alike in all directions by ``along``, fingers and toes with them. Joints move with the part
    of their parent, and skin is blended between the parts by its weights.

    Args:
        character: in a T-pose.
        scales: part → (along, across), as in `BodyRecipe.scales`.
    """
    skeleton = character.skeleton
    rest = skeleton.rest_positions.double()
    of_joint = torch.ones(skeleton.joint_count, 3, dtype=torch.float64)
    for part, (along, across) in scales.items():
        for name in [part] if part in CANONICAL_JOINTS else [f"Left{part}", f"Right{part}"]:
            of_joint[skeleton.canonical[canonical_index(name)]] = _axes(name, along, across)
    canonical = set(skeleton.canonical)
    positions: list[torch.Tensor] = []
    for joint, parent in enumerate(skeleton.parents):
        if joint not in canonical and parent >= 0:
            of_joint[joint] = of_joint[parent]
        offset = skeleton.offsets[joint].double()
        positions.append(offset if parent < 0 else positions[parent] + of_joint[parent] * offset)
    moved = torch.stack(positions)
    vertices = character.rest_vertices.double()
    weights = character.weights.double()
    # Σ_j w_j (p'_j + s_j (v − p_j)), which is linear in v.
    posed = weights @ (moved - of_joint * rest) + (weights @ of_joint) * vertices
    offsets = torch.stack([p if j == 0 else p - moved[skeleton.parents[j]] for j, p in enumerate(moved)])
    scaled = Skeleton(skeleton.names, skeleton.parents, offsets, skeleton.canonical)
    return replace(
        bound_at_rest(character.name, scaled, posed, character.faces, weights), provenance=character.provenance
    )


def _axes(joint: str, along: float, across: float) -> torch.Tensor:
    """Scale along x, y and z for a joint's part."""
    if joint in _WHOLE_PARTS:
        return torch.full((3,), along, dtype=torch.float64)
    if joint.removeprefix("Left").removeprefix("Right") in _ARM_PARTS:
        return torch.tensor([along, across, across], dtype=torch.float64)
    return torch.tensor([across, along, across], dtype=torch.float64)


def retriangulate(character: Character, mesh: MeshRecipe) -> Character:
    """Give a body another triangulation; skin weights come from the nearest points of the old surface.

    Args:
        character: with one closed surface.
        mesh: the wanted triangulation.

    Raises:
        CharacterError: no closed surface with about this number of vertices was found.
        MissingExtraError: fast-simplification or libigl is not installed.
    """
    if mesh.kind == "original":
        return character
    try:
        import fast_simplification
        import igl
        import trimesh
    except ImportError as error:
        raise MissingExtraError(error.name or "fast-simplification", "studio", "building bodies") from None
    old = character.rest_vertices.double().numpy()
    faces = character.faces.numpy()
    fine, fine_faces = (old, faces) if mesh.kind == "decimated" else trimesh.remesh.subdivide(old, faces)
    # A closed surface has 2 (V − χ) faces. Decimation can pinch it; with other settings it then does not.
    euler_number = trimesh.Trimesh(old, faces, process=False).euler_number
    for aggressiveness, fewer in itertools.product((3, 5, 7), range(0, 40, 4)):
        vertices, new_faces = fast_simplification.simplify(
            fine.astype(np.float32),
            fine_faces,
            target_count=2 * (mesh.vertices - euler_number) - fewer,
            agg=aggressiveness,
        )
        surface = trimesh.Trimesh(vertices, new_faces, process=False)
        is_closed = surface.is_watertight and surface.is_winding_consistent and surface.euler_number == euler_number
        if is_closed and abs(len(vertices) - mesh.vertices) < 0.02 * mesh.vertices:
            break
    else:
        raise CharacterError(f"{character.name}: no closed surface of about {mesh.vertices} vertices was found")
    _, face, nearest = igl.point_mesh_squared_distance(vertices.astype(np.float64), old, faces.astype(np.int64))
    shares = trimesh.triangles.points_to_barycentric(old[faces[face]], nearest).clip(0)
    corner_weights = character.weights.double()[torch.from_numpy(faces[face].astype(np.int64))]
    weights = (torch.from_numpy(shares / shares.sum(-1, keepdims=True))[..., None] * corner_weights).sum(1)
    return replace(
        bound_at_rest(
            character.name,
            character.skeleton,
            torch.from_numpy(vertices.astype(np.float64)),
            torch.from_numpy(new_faces.astype(np.int64)),
            weights,
        ),
        provenance=character.provenance,
    )
