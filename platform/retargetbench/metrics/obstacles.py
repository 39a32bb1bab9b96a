"""Limbs and the closed body parts that they should stay out of, prepared once per character.

Whether a vertex is inside is decided by the exact winding number of the body part, so the part has to be closed, and
vertices that are at or in the body by anatomy or clothing must not count. Both follow from the rest pose.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from scipy.spatial import cKDTree

from retargetbench.caching import per_character
from retargetbench.kinematics import Skinner
from retargetbench.mesh.closing import ClosedSurface, close_surface, orient_outwards, weld
from retargetbench.mesh.distance import FaceClusters, largest_distance
from retargetbench.mesh.winding import winding_number
from retargetbench.skeleton import CANONICAL_JOINTS, canonical_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retargetbench.character import Character

LIMBS: dict[str, tuple[str, ...]] = {
    "left_arm": ("LeftArm", "LeftForeArm", "LeftHand"),
    "right_arm": ("RightArm", "RightForeArm", "RightHand"),
    "left_leg": ("LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase"),
    "right_leg": ("RightUpLeg", "RightLeg", "RightFoot", "RightToeBase"),
}
"""Body parts of each limb, from the trunk outwards; the first two are the ends of its first bone."""

Definition = Literal["arms", "limbs", "self"]
"""What may enter what: arms the rest of the body, all limbs the trunk, or each limb everything else."""

_DEFINITIONS: dict[Definition, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = {
    "arms": ((("left_arm", "right_arm"), ("left_arm", "right_arm")),),
    "limbs": ((tuple(LIMBS), tuple(LIMBS)),),
    "self": tuple(((limb,), (limb,)) for limb in LIMBS),
}
"""For each obstacle the limbs that may enter it, and the limbs that it is without."""

GUARD_RADII = 1.0
"""Vertices closer to the body at rest than this many radii of their limb never count.

Chosen on 15 characters in seven mild poses, in which only joints fold: 0.005 % of the limbs' vertices are then still
reported, against 0.26 % without a guard.
"""

_FRAMES_AT_ONCE = 64
"""Frames whose meshes are kept at a time, so that memory does not grow with the clip."""


@dataclass(frozen=True, eq=False)
class Obstacle:
    """Limb vertices, and a closed part of the body that they may enter.

    Attributes:
        limb_vertices: the mesh's vertices on the limbs, N of them, (N,) int64.
        limb: of each the number of its limb in `LIMBS`, (N,) int64.
        area: of each a third of the faces around it at rest, (N,) m².
        can_count: whether it is outside the body and away from it at rest, (N,) bool.
        surface: the closed body part.
        points: where its points are among those of `BodyModel`, (M,) int64.
        rest: its points at rest, (M, 3) metres.
    """

    limb_vertices: torch.Tensor
    limb: torch.Tensor
    area: torch.Tensor
    can_count: torch.Tensor
    surface: ClosedSurface
    points: torch.Tensor
    rest: torch.Tensor

    @property
    def is_empty(self) -> bool:
        """Whether there are no limb vertices, or no body to enter."""
        return len(self.limb_vertices) == 0 or self.surface.is_empty

    @cached_property
    def clusters(self) -> FaceClusters:
        """Faces of the surface in groups, for distances."""
        return FaceClusters.from_rest(self.rest, self.surface.faces)

    def find_inside(self, posed: torch.Tensor) -> torch.Tensor:
        """Find the limb vertices that are inside and can count.

        Args:
            posed: points of `BodyModel`, (T, P, 3) metres.

        Returns:
            (T, N) bool.
        """
        body, limbs = posed.index_select(1, self.points), posed.index_select(1, self.limb_vertices)
        return (winding_number(body, self.surface.faces, limbs) > 0) & self.can_count

    def measure_depth(self, posed: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        """Measure how far the deepest of the vertices ``inside`` (T, N) is from the surface, (T,) metres."""
        body, limbs = posed.index_select(1, self.points), posed.index_select(1, self.limb_vertices)
        return largest_distance(body, self.clusters, limbs, inside)

    def find_behind_nearest_normal(self, posed: torch.Tensor) -> torch.Tensor:
        """Find limb vertices that can count and are behind the normal of the nearest vertex of the body, (T, N) bool.

        This is the test that papers use. It is wrong for about one vertex in ten (see `Penetration`).
        """
        body = posed.index_select(1, self.points)
        limbs = posed.index_select(1, self.limb_vertices)
        normals = _vertex_normals(body, self.surface.faces)
        # A frame at a time: the search tree of one frame is SciPy's, and all pairs at once would fill the memory.
        behind = []
        for mesh, normal, points in zip(body, normals, limbs, strict=True):
            _, nearest = cKDTree(mesh.cpu().numpy()).query(points.cpu().numpy())
            chosen = torch.from_numpy(np.asarray(nearest)).to(mesh.device)
            behind.append(((points - mesh[chosen]) * normal[chosen]).sum(-1) < 0)
        return torch.stack(behind) & self.can_count


@dataclass(frozen=True, eq=False)
class BodyModel:
    """The obstacles of one definition, and the skinning of the points that they need.

    Attributes:
        skinner: poses P points: all vertices, then the apexes of the closed surfaces.
        obstacles: one for ``arms`` and ``limbs``, four for ``self``.
    """

    skinner: Skinner
    obstacles: tuple[Obstacle, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be measured: no limbs, or no body."""
        return all(obstacle.is_empty for obstacle in self.obstacles)

    def pose_in_chunks(self, rotations: torch.Tensor, positions: torch.Tensor) -> Iterator[torch.Tensor]:
        """Pose the points a few frames at a time, each (t, P, 3) metres.

        Args:
            rotations: world rotations of all joints, (T, J, 3, 3).
            positions: world positions of all joints, (T, J, 3) metres.
        """
        for start in range(0, len(positions), _FRAMES_AT_ONCE):
            frames = slice(start, start + _FRAMES_AT_ONCE)
            yield self.skinner.pose(rotations[frames], positions[frames])


@per_character
def body_model(character: Character, definition: Definition) -> BodyModel:
    """Prepare what a penetration metric needs to know of a character; remembered per character."""
    obstacles: list[Obstacle] = []
    apexes: list[torch.Tensor] = []
    for limbs, removed in _DEFINITIONS[definition]:
        obstacle = _obstacle(character, limbs, removed, first_apex=character.vertex_count + len(apexes))
        apexes += [obstacle.surface.vertices[loop] for loop in obstacle.surface.loops]
        obstacles.append(obstacle)
    skinner = Skinner.from_points(character, character.bind_vertices, character.weights, means=apexes)
    return BodyModel(skinner, tuple(obstacles))


def _obstacle(character: Character, limbs: tuple[str, ...], removed: tuple[str, ...], *, first_apex: int) -> Obstacle:
    """Close the body without some limbs, and find which vertices of ``limbs`` can count against it."""
    rest, part = character.rest_vertices, character.dominant_joint
    limb_of_part = torch.full((len(CANONICAL_JOINTS),), -1, dtype=torch.int64, device=part.device)
    for number, names in enumerate(LIMBS.values()):
        limb_of_part[[canonical_index(name) for name in names]] = number
    limb = limb_of_part[part]

    def belongs_to(chosen: tuple[str, ...]) -> torch.Tensor:
        numbers = torch.tensor([list(LIMBS).index(name) for name in chosen], device=part.device)
        return torch.isin(limb, numbers)

    # Seams of texture would be holes. They are told by the file's own positions, which are equal to the last bit.
    _, welded = weld(character.bind_vertices, character.faces)
    surface = close_surface(welded[~belongs_to(removed)[welded].any(-1)])
    body_at_rest = surface.take(rest)
    surface = orient_outwards(surface, body_at_rest)

    vertices = belongs_to(limbs).nonzero()[:, 0]
    can_count = torch.ones(len(vertices), dtype=torch.bool, device=part.device)
    if len(vertices) and not surface.is_empty:
        at, of = rest[vertices].cpu().numpy(), rest[surface.vertices].cpu().numpy()
        distance, _ = cKDTree(of).query(at)
        radii = torch.stack([_limb_radius(character, name) for name in LIMBS])
        is_near = torch.from_numpy(distance).to(rest) < GUARD_RADII * radii[limb[vertices]]
        is_inside = winding_number(body_at_rest, surface.faces, rest[vertices]) > 0
        can_count = ~(is_near | is_inside)
    apexes = first_apex + torch.arange(len(surface.loops), device=part.device)
    return Obstacle(
        limb_vertices=vertices,
        limb=limb[vertices],
        area=_vertex_areas(rest, character.faces)[vertices],
        can_count=can_count,
        surface=surface,
        points=torch.cat([surface.vertices, apexes]),
        rest=body_at_rest,
    )


def _limb_radius(character: Character, limb: str) -> torch.Tensor:
    """Median distance of the skin of a limb's first segment from its bone at rest, () metres; 0 without such skin."""
    start, end = (canonical_index(name) for name in LIMBS[limb][:2])
    joints = character.skeleton.to_canonical().rest_positions.to(character.rest_vertices)
    bone = torch.nn.functional.normalize(joints[end] - joints[start], dim=0)
    skin = character.rest_vertices[character.dominant_joint == start] - joints[start]
    if len(skin) == 0:
        return bone.new_zeros(())
    # `median` would be the lower of the middle two.
    radius: torch.Tensor = (skin - (skin @ bone)[:, None] * bone).norm(dim=-1).quantile(0.5)
    return radius


def _vertex_areas(vertices: torch.Tensor, faces: torch.Tensor) -> torch.Tensor:
    """A third of the area of the faces around each vertex, (V,) m²."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    third = torch.linalg.cross(b - a, c - a).norm(dim=-1) / 6
    return vertices.new_zeros(len(vertices)).index_add_(0, faces.reshape(-1), third.repeat_interleave(3))


def _vertex_normals(vertices: torch.Tensor, faces: torch.Tensor) -> torch.Tensor:
    """Area-weighted normals of posed vertices (T, M, 3), not normalised."""
    a, b, c = (vertices.index_select(1, faces[:, k]) for k in range(3))
    normal = torch.linalg.cross(b - a, c - a).repeat_interleave(3, 1)
    return torch.zeros_like(vertices).index_add_(1, faces.reshape(-1), normal)
