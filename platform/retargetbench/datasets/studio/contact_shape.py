"""How far the skins around two places of a body are from each other: what gates measure contacts by.

It is measured on the triangles of the mesh, not with the samples and tangent planes of the solver.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.spatial import cKDTree

from retargetbench.caching import per_character
from retargetbench.datasets.studio.places import PLACES, find_place
from retargetbench.kinematics import Skinner
from retargetbench.mesh.distance import point_triangle_distance
from retargetbench.sensor_names import BONES
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character

MOVING_RADIUS = 0.02
TOUCHED_RADIUS = 0.035
"""Radii of the patches around the place that comes and the place that is touched, heights."""

_WAY_POINTS = 17
"""Points of the way along which a contact slides, with both ends."""

_NEAREST_POINTS = 8
_NEAREST_FACES = 24
"""How many of the nearest vertices of one patch are measured against how many of the nearest faces of the other."""

_BEHIND = 0.5
"""Cosine to the inward normal from which a point that is nearest to a vertex is below the skin there, not beside it."""


@dataclass(frozen=True, eq=False)
class ContactShape:
    """The skin around two places that touch, on one body.

    Attributes:
        skinner: poses the points of the moving patch, then of the touched patch. In each the named places come first:
            one of the moving patch, W of the touched one; vertices of the mesh follow.
        moving_count: points of the moving patch.
        way_count: W.
        moving_faces: triangles of the moving patch, (F, 3) int64.
        touched_faces: triangles of the touched patch, numbered from its own first point, (G, 3) int64.
    """

    skinner: Skinner
    moving_count: int
    way_count: int
    moving_faces: torch.Tensor
    touched_faces: torch.Tensor

    def gap(self, posed: torch.Tensor) -> torch.Tensor:
        """Measure how far both patches are from each other.

        It is the smallest distance of a point of one patch to a face of the other: never too small, and too large only
        where two edges cross in the air or where sizes of faces differ much.

        Args:
            posed: points of the skinner, (T, P, 3) metres.

        Returns:
            (T,) metres; where one skin is in the other, the distance to it from inside.
        """
        moving, touched = posed[:, : self.moving_count], posed[:, self.moving_count :]
        one, other = _nearest_points(moving, touched)
        return torch.minimum(
            _distance_to_faces(one, touched, self.touched_faces).amin(-1),
            _distance_to_faces(other, moving, self.moving_faces).amin(-1),
        )

    def depth(self, posed: torch.Tensor) -> torch.Tensor:
        """Measure how deep the moving patch is in the touched skin.

        It is the largest distance to the touched patch among the points of the moving one that are behind it: which
        come nearest to one of its vertices from below, by `_BEHIND`.

        Args:
            posed: points of the skinner, (T, P, 3) metres.

        Returns:
            (T,) metres; 0 where nothing is inside.
        """
        moving, touched = posed[:, : self.moving_count], posed[:, self.moving_count :]
        behind = _ways_behind(moving, touched, self.touched_faces)
        deepest = behind.topk(min(_NEAREST_POINTS, behind.shape[1]), dim=1)
        points = moving.gather(1, deepest.indices[..., None].expand(-1, -1, 3))
        depths = _distance_to_faces(points, touched, self.touched_faces)
        return torch.where(deepest.values > 0, depths, 0.0).amax(-1)

    def distance(self, posed: torch.Tensor, share: torch.Tensor | None) -> torch.Tensor:
        """Measure how far the named places are from each other.

        Args:
            posed: points of the skinner, (T, P, 3) metres.
            share: how far along the way the touched place is, (T,) from 0 to 1; None: wherever it is nearest.

        Returns:
            (T,) metres.
        """
        moving, way = posed[:, 0], posed[:, self.moving_count : self.moving_count + self.way_count]
        distances: torch.Tensor = (way - moving[:, None]).norm(dim=-1)
        if share is not None:
            at = (share * (self.way_count - 1)).round().long()
            distances = distances.gather(1, at[:, None])
        return distances.amin(-1)


@per_character
def contact_shape(body: Character, moving: str, first: str, second: str) -> ContactShape:
    """Prepare patches around two places; remembered per body.

    A patch has the vertices within a radius of its place that move with the same limb, and all faces around them. The
    touched place may wander from ``first`` to ``second``, straight through the T-pose and from there onto the skin.

    Args:
        body: on the 22 canonical joints.
        moving: place of the arm or leg that comes.
        first: place that is touched at the beginning.
        second: place that is touched at the end.

    Raises:
        CharacterError: a place has no skin.
    """
    rest, weights = body.rest_vertices.double(), body.canonical_weights.double()
    faces = body.faces
    starts = find_place(body, moving)
    near, corners = _patch(rest, faces, _limb(body, moving), starts.position[None], MOVING_RADIUS * body.height)
    ends = [find_place(body, first), find_place(body, second)]
    limb = _limb(body, first) | _limb(body, second)
    way, way_weights = ends[0].position[None], ends[0].weights[None]
    if first != second:
        share = torch.linspace(0, 1, _WAY_POINTS, dtype=rest.dtype, device=rest.device)[1:-1, None]
        straight = torch.lerp(ends[0].position, ends[1].position, share)
        own = limb.nonzero()[:, 0]
        on_skin = own[torch.cdist(straight, rest[own]).argmin(-1)]
        way = torch.cat([way, rest[on_skin], ends[1].position[None]])
        way_weights = torch.cat([way_weights, weights[on_skin], ends[1].weights[None]])
    around, touched_corners = _patch(rest, faces, limb, way, TOUCHED_RADIUS * body.height)
    bound = _bound_at_rest(body)
    points = torch.cat([starts.position[None], rest[near], way, rest[around]])
    point_weights = torch.cat([starts.weights[None], weights[near], way_weights, weights[around]])
    return ContactShape(
        skinner=Skinner.from_points(bound, points.to(body.bind_vertices), point_weights.to(body.bind_vertices)),
        moving_count=1 + len(near),
        way_count=len(way),
        moving_faces=corners + 1,
        touched_faces=touched_corners + len(way),
    )


def _bound_at_rest(body: Character) -> Character:
    """Return the body with its mesh bound in the T-pose, where places are found."""
    inverse_bind = torch.eye(4, dtype=body.inverse_bind.dtype, device=body.device).repeat(
        body.skeleton.joint_count, 1, 1
    )
    inverse_bind[:, :3, 3] = -body.skeleton.rest_positions.to(inverse_bind)
    return replace(body, bind_vertices=body.rest_vertices, inverse_bind=inverse_bind)


def _limb(body: Character, place: str) -> torch.Tensor:
    """Which vertices move mostly with the bone of a place or the bones beside it, (V,) bool."""
    (block,) = (bone.block for bone in BONES if bone.name == PLACES[place].bone)
    joints = torch.tensor([canonical_index(joint) for joint in block], device=body.device)
    return torch.isin(body.dominant_joint, joints)


def _patch(
    rest: torch.Tensor, faces: torch.Tensor, limb: torch.Tensor, places: torch.Tensor, radius: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the skin around places (W, 3).

    Returns:
        Vertices of all faces that have a vertex of the limb within the radius, (N,), and these faces by their place
        among them, (F, 3). The vertex nearest to each place always counts, as there may be none nearer.
    """
    own = limb.nonzero()[:, 0]
    distances = torch.cdist(places, rest[own])
    within = torch.zeros_like(limb)
    within[own[(distances <= radius).any(0)]] = True
    within[own[distances.argmin(-1)]] = True
    chosen = faces[within[faces].any(-1) & limb[faces].all(-1)]
    if len(chosen) == 0:
        chosen = faces[within[faces].any(-1)]
    vertices, corners = torch.unique(chosen, return_inverse=True)
    return vertices, corners.view(-1, 3)


def _nearest_points(first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick in each frame the points of each set that are nearest to the other one, (T, K, 3) and (T, L, 3)."""
    picked: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for pair in zip(first, second, strict=True):
        arrays = [points.cpu().numpy() for points in pair]
        for points, array, other, kept in zip(pair, arrays, reversed(arrays), picked, strict=True):
            distances, _ = cKDTree(other).query(array)
            order = np.argsort(distances, kind="stable")[:_NEAREST_POINTS]
            kept.append(points[torch.from_numpy(order).to(points.device)])
    return torch.stack(picked[0]), torch.stack(picked[1])


def _ways_behind(points: torch.Tensor, mesh: torch.Tensor, faces: torch.Tensor) -> torch.Tensor:
    """How far points (T, K, 3) are from the nearest vertex of a mesh (T, N, 3) if they are below it, else 0, (T, K)."""
    corners = mesh[:, faces]
    by_face = torch.linalg.cross(corners[:, :, 1] - corners[:, :, 0], corners[:, :, 2] - corners[:, :, 0])
    normals = torch.zeros_like(mesh).index_add_(1, faces.flatten(), by_face.repeat_interleave(3, 1))
    used = torch.unique(faces)
    nearest = [
        used.cpu()[torch.from_numpy(cKDTree(own.cpu().numpy()).query(query.cpu().numpy())[1])]
        for own, query in zip(mesh[:, used], points, strict=True)
    ]
    chosen = torch.stack(nearest).to(mesh.device)[..., None].expand(-1, -1, 3)
    apart = points - mesh.gather(1, chosen)
    way = apart.norm(dim=-1)
    below = -(apart * torch.nn.functional.normalize(normals.gather(1, chosen), dim=-1)).sum(-1)
    return torch.where(below > _BEHIND * way, way, 0.0)


def _distance_to_faces(points: torch.Tensor, mesh: torch.Tensor, faces: torch.Tensor) -> torch.Tensor:
    """Measure the distance of points (T, K, 3) to the nearest faces of a mesh (T, N, 3), (T, K) metres."""
    corners = mesh[:, faces]
    middles = corners.mean(-2)
    count = min(_NEAREST_FACES, len(faces))
    offsets = (middles[:, None] - points[:, :, None]).square().sum(-1)
    nearest = offsets.topk(count, dim=-1, largest=False).indices
    frame = torch.arange(len(mesh), device=mesh.device)[:, None, None]
    triangles = corners[frame, nearest]
    by_coordinate = points.permute(2, 0, 1)[..., None].expand(-1, -1, -1, count)
    return point_triangle_distance(by_coordinate, triangles.permute(3, 4, 0, 1, 2)).amin(-1)
