"""Figures made of straight tubes, where every sensor's place is known, and changes of a mesh that must not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from rigs import human_skeleton

from retargetbench.character import Character
from retargetbench.skeleton import CANONICAL_JOINTS, Skeleton, canonical_index, canonical_skeleton

if TYPE_CHECKING:
    from pathlib import Path

MIXAMO_NAMES = (
    "AJ", "Big_Vegas", "Goblin_D_Shareyko", "Mousey", "Ortiz", "Peasant_Man", "Sporty_Granny", "Warrok_W_Kurniawan",
)  # fmt: skip
ARM_RADIUS = 0.04
_SIDES = 16  # a multiple of four, so that the rays of all four angles meet an edge at exactly the radius


def tube(axis: int, stops: tuple[float, float], centre: tuple[float, float, float], radius: float):
    """Vertices and faces of an open tube along a coordinate axis, in rings 2 cm apart."""
    rings = np.linspace(*stops, round(abs(stops[1] - stops[0]) / 0.02) + 1)
    angles = 2 * np.pi * np.arange(_SIDES) / _SIDES
    vertices = np.tile(np.asarray(centre, float), (len(rings), _SIDES, 1))
    vertices[..., axis] = rings[:, None]
    vertices[..., (axis + 1) % 3] += radius * np.cos(angles)
    vertices[..., (axis + 2) % 3] += radius * np.sin(angles)
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(len(rings) - 1), np.arange(_SIDES), indexing="ij"))
    corner = i * _SIDES + j
    right, above = i * _SIDES + (j + 1) % _SIDES, corner + _SIDES
    diagonal = right + _SIDES
    # Rings run along the axis and around it anticlockwise, so this order faces outward if the stops increase.
    faces = np.concatenate([np.stack([corner, right, diagonal], -1), np.stack([corner, diagonal, above], -1)])
    return vertices.reshape(-1, 3), faces if stops[1] > stops[0] else faces[:, ::-1]


def figure(
    parts: list[tuple[np.ndarray, np.ndarray, list[str]]],
    skeleton: Skeleton | None = None,
    *,
    name: str = "figure",
    dtype: torch.dtype = torch.float64,
) -> Character:
    """Join parts, (vertices, faces, name of the joint that holds each vertex), to a character bound at its rest."""
    skeleton = skeleton or human_skeleton()
    vertices = np.concatenate([part[0] for part in parts])
    firsts = np.cumsum([0, *(len(part[0]) for part in parts)])
    faces = np.concatenate([part[1] + first for part, first in zip(parts, firsts, strict=False)])
    joints = [skeleton.canonical[canonical_index(joint)] for part in parts for joint in part[2]]
    inverse_bind = torch.eye(4, dtype=torch.float64).repeat(skeleton.joint_count, 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions.double()
    character = Character(
        name,
        skeleton,
        torch.tensor(vertices),
        inverse_bind,
        torch.tensor(faces.copy()),
        torch.tensor(joints)[:, None],
        torch.ones(len(joints), 1, dtype=torch.float64),
    )
    return character.to(dtype=dtype)


def _held(vertices: np.ndarray, axis: int, stops: list[tuple[float, str]]) -> list[str]:
    """Joint of each vertex: of the last stop that its coordinate, turned to grow along the bone, has passed."""
    values = vertices[:, axis]
    return [next(name for bound, name in reversed(stops) if value >= bound - 1e-9) for value in values]


def arm_parts(*, radius: float = ARM_RADIUS, end: float = 0.92, forearm: float = 0.25):
    """Both arms of `human_skeleton` as tubes; ``end`` is where they stop along X."""
    parts = []
    for side, sign in (("Left", 1), ("Right", -1)):
        vertices, faces = tube(0, (sign * 0.1, sign * end), (0, 1.44, 0), radius)
        stops = [(-1.0, side + "Arm"), (0.45, side + "ForeArm"), (0.45 + forearm, side + "Hand")]
        parts.append((vertices, faces, _held(abs(vertices), 0, stops)))
    return parts


def tube_figure(*, arm_radius: float = ARM_RADIUS, dtype: torch.dtype = torch.float64, name: str = "tubes"):
    """A whole body of tubes around the bones of `human_skeleton`; every vertex has one joint."""
    trunk, trunk_faces = tube(1, (0.85, 1.55), (0, 0, 0), 0.13)
    spine = [(-1.0, "Hips"), (1.1, "Spine"), (1.22, "Spine1"), (1.34, "Spine2"), (1.49, "Neck")]
    head, head_faces = tube(1, (1.45, 1.8), (0, 0, 0.01), 0.09)
    parts = [
        (trunk, trunk_faces, _held(trunk, 1, spine)),
        (head, head_faces, _held(head, 1, [(-1.0, "Neck"), (1.59, "Head")])),
        *arm_parts(radius=arm_radius),
    ]
    for side, sign in (("Left", 1), ("Right", -1)):
        leg, leg_faces = tube(1, (0.05, 0.99), (sign * 0.1, 0, 0), 0.06)
        parts.append((leg, leg_faces, _held(leg, 1, [(-1.0, side + "Leg"), (0.5, side + "UpLeg")])))
        foot, foot_faces = tube(2, (-0.06, 0.2), (sign * 0.1, 0.05, 0), 0.05)
        parts.append((foot, foot_faces, _held(foot, 2, [(-1.0, side + "Foot"), (0.1, side + "ToeBase")])))
    return figure(parts, name=name, dtype=dtype)


def deformed(character: Character) -> Character:
    """Bend the mesh smoothly without any symmetry and blend weights along it, the skeleton kept."""
    x, y, z = character.bind_vertices.T
    bend = torch.stack(
        [0.01 * torch.sin(9 * y + 2 * z), 0.008 * torch.sin(7 * x + 1), 0.012 * torch.cos(8 * y - 5 * x)]
    )
    own = character.influence_joints[:, 0]
    parent = torch.tensor([max(p, 0) for p in character.skeleton.parents])[own]
    share = 0.3 + 0.2 * torch.sin(11 * x + 5 * y)
    return replace(
        character,
        bind_vertices=character.bind_vertices + bend.T,
        influence_joints=torch.stack([own, parent], -1),
        influence_weights=torch.stack([1 - share, share], -1),
    )


def reordered(character: Character, seed: int = 0) -> Character:
    """Shuffle vertices, faces and the first corner of every face."""
    rng = np.random.default_rng(seed)
    order = torch.tensor(rng.permutation(character.vertex_count))
    place = torch.argsort(order)
    faces = place[character.faces][torch.tensor(rng.permutation(len(character.faces)))]
    turn = (torch.arange(3) + torch.tensor(rng.integers(0, 3, len(faces)))[:, None]) % 3
    return replace(
        character,
        bind_vertices=character.bind_vertices[order],
        faces=faces.gather(1, turn),
        influence_joints=character.influence_joints[order],
        influence_weights=character.influence_weights[order],
    )


def unwelded(character: Character) -> Character:
    """Give every face three vertices of its own."""
    corners = character.faces.reshape(-1)
    return replace(
        character,
        bind_vertices=character.bind_vertices[corners],
        faces=torch.arange(len(corners)).view(-1, 3),
        influence_joints=character.influence_joints[corners],
        influence_weights=character.influence_weights[corners],
    )


def subdivided(character: Character) -> Character:
    """Cut every face into four at the middles of its edges; weights of the new vertices are means."""
    faces = character.faces.numpy()
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), -1)
    unique, place = np.unique(edges, axis=0, return_inverse=True)
    ab, bc, ca = (character.vertex_count + place.reshape(3, -1)).reshape(3, -1)
    a, b, c = faces.T
    cut = np.concatenate([np.stack(t, -1) for t in ((a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca))])
    ends = torch.tensor(unique)
    return replace(
        character,
        bind_vertices=torch.cat([character.bind_vertices, character.bind_vertices[ends].mean(1)]),
        faces=torch.tensor(cut),
        influence_joints=torch.cat(
            [character.influence_joints.repeat(1, 2), character.influence_joints[ends].flatten(1)]
        ),
        influence_weights=torch.cat(
            [character.influence_weights.repeat(1, 2) / 2, character.influence_weights[ends].flatten(1) / 2]
        ),
    )


def mirrored(character: Character) -> Character:
    """Exchange left and right of a character of the 22 canonical joints."""
    swap = [CANONICAL_JOINTS.index(_other_side(name)) for name in CANONICAL_JOINTS]
    flip = torch.tensor([-1.0, 1.0, 1.0], dtype=character.bind_vertices.dtype)
    skeleton = canonical_skeleton(character.skeleton.offsets[swap] * flip)
    inverse_bind = character.inverse_bind.clone()
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    return replace(
        character,
        skeleton=skeleton,
        bind_vertices=character.bind_vertices * flip,
        inverse_bind=inverse_bind,
        faces=character.faces.flip(-1),
        influence_joints=torch.tensor(swap)[character.influence_joints],
    )


def scaled(character: Character, scale: float) -> Character:
    """The same character ``scale`` times as large."""
    skeleton = character.skeleton
    inverse_bind = character.inverse_bind.clone()
    inverse_bind[:, :3, 3] *= scale
    return replace(
        character,
        skeleton=Skeleton(skeleton.names, skeleton.parents, scale * skeleton.offsets, skeleton.canonical),
        bind_vertices=scale * character.bind_vertices,
        inverse_bind=inverse_bind,
    )


def _other_side(name: str) -> str:
    if name.startswith("Left"):
        return "Right" + name[4:]
    return "Left" + name[5:] if name.startswith("Right") else name


def mixamo_character(shared: Path, name: str, dtype: torch.dtype = torch.float64) -> Character:
    """A real character of R2ET's shape files, read without the project's own readers."""
    with np.load(shared / "data" / "r2et_mixamo" / "shape" / f"{name}.npz") as file:
        offsets, vertices = file["skeleton"] / 100.0, file["rest_vertices"] / 100.0
        faces, weights = file["rest_faces"].astype(np.int64), file["skinning_weights"].astype(np.float64)
    skeleton = canonical_skeleton(torch.tensor(offsets, dtype=torch.float64))
    inverse_bind = torch.eye(4, dtype=torch.float64).repeat(22, 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    character = Character(
        name,
        skeleton,
        torch.tensor(vertices + offsets[0], dtype=torch.float64),
        inverse_bind,
        torch.tensor(faces),
        torch.arange(22).repeat(len(weights), 1),
        torch.tensor(weights / weights.sum(-1, keepdims=True)),
    )
    return character.to(dtype=dtype)
