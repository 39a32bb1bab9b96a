"""Bodies for speed measurements: the shipped mannequin, finer, with and without fingers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from retargetbench.datasets.capsule_bodies import BUILDS, Body
from retargetbench.datasets.capsules import open_capsules
from retargetbench.kinematics import forward_kinematics
from retargetbench.skeleton import Skeleton, canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character

SEGMENTS = 47
"""Vertices around the trunk before faces are cut into four; gives 13 674 vertices, as many as detailed bodies have."""


def fine_body(name: str, *, segments: int = SEGMENTS) -> Character:
    """Make a body of the capsule dataset with a finer mesh; its surface is the same up to the size of its faces."""
    build = next(build for build in BUILDS if build.name == name)
    return _quarter_faces(Body(replace(build, segments=segments)).character)


def _quarter_faces(character: Character) -> Character:
    """Cut every face into four at the middles of its edges."""
    faces, count = character.faces, character.vertex_count
    ends = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).sort(1).values
    edges, edge = torch.unique(ends, dim=0, return_inverse=True)
    ab, bc, ca = (count + edge).chunk(3)
    a, b, c = faces.T
    quarters = [torch.stack(corners, 1) for corners in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
    weights = torch.cat([character.weights, character.weights[edges].mean(1)])
    strongest = weights.topk(4, 1)
    return replace(
        character,
        bind_vertices=torch.cat([character.bind_vertices, character.bind_vertices[edges].mean(1)]),
        faces=torch.cat(quarters),
        influence_joints=strongest.indices,
        influence_weights=strongest.values / strongest.values.sum(1, keepdim=True),
    )


def body_with_soft_skin(character: Character, *, fingers: bool) -> Character:
    """Give every vertex the four joints next to it, nearer ones more; with fingers of 3 joints each there are 52."""
    skeleton = character.skeleton
    if fingers:
        skeleton = _add_fingers(skeleton)
    nearest = torch.cdist(character.rest_vertices, skeleton.rest_positions).topk(4, 1, largest=False)
    weights = 1 / nearest.values.square().clamp_min(1e-6)
    inverse_bind = torch.eye(4).repeat(skeleton.joint_count, 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    return replace(
        character,
        skeleton=skeleton,
        bind_vertices=character.rest_vertices,
        inverse_bind=inverse_bind,
        influence_joints=nearest.indices,
        influence_weights=weights / weights.sum(1, keepdim=True),
    )


def _add_fingers(skeleton: Skeleton) -> Skeleton:
    names, parents, offsets = list(skeleton.names), list(skeleton.parents), [skeleton.offsets]
    for side, sign in (("Left", 1.0), ("Right", -1.0)):
        for finger in range(5):
            parent = canonical_index(f"{side}Hand")
            for phalanx in range(3):
                sideways = 0.015 * (finger - 2) if phalanx == 0 else 0.0
                names.append(f"{side}Hand{finger}{phalanx}")
                parents.append(parent)
                offsets.append(torch.tensor([[sign * (0.07 if phalanx == 0 else 0.025), 0.0, sideways]]))
                parent = len(names) - 1
    return Skeleton(tuple(names), tuple(parents), torch.cat(offsets), skeleton.canonical)


def copied_poses(source: str, character: Character, frames: int) -> tuple[torch.Tensor, torch.Tensor]:
    """World rotations (T, 22, 3, 3) and positions (T, 22, 3) of frames from all motions of another body.

    Rotations are copied, so hands that touch the other body are inside a stouter one.
    """
    dataset = open_capsules()
    clips = [dataset.clip(source, motion) for owner, motion in dataset.clip_names if owner == source]
    rotations = torch.cat([clip.motion.local_rotations for clip in clips])
    chosen = torch.linspace(0, len(rotations) - 1, frames).long()
    root = character.skeleton.rest_positions[:1].expand(frames, 3)
    return forward_kinematics(character.skeleton, root, rotations[chosen])


def random_poses(skeleton: Skeleton, frames: int) -> tuple[torch.Tensor, torch.Tensor]:
    """World rotations (T, J, 3, 3) and positions (T, J, 3) of frames with random rotations of all joints."""
    generator = torch.Generator().manual_seed(0)
    rotations = torch.nn.functional.normalize(torch.randn(frames, skeleton.joint_count, 4, generator=generator), dim=-1)
    return forward_kinematics(skeleton, torch.zeros(frames, 3), rotations)
