"""Closing a part of a mesh: the surface that is left when limbs are cut off, made watertight.

Only indices are computed here, once per character; posed positions follow from them in every frame.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

_log = logging.getLogger(__name__)

NEGLIGIBLE_VOLUME = 1e-3
"""Share of the enclosed volume up to which a component that is inside out is left as it is."""


@dataclass(frozen=True, eq=False)
class ClosedSurface:
    """A closed triangle surface over some vertices of a mesh, and an apex over each of its former holes.

    Attributes:
        vertices: the mesh's vertices that the surface uses, (N,) int64.
        faces: triangles in the surface's own numbers, (F, 3) int64: below N the vertices, from N on the apexes.
        loops: for each apex the numbers of the vertices whose mean it is.
    """

    vertices: torch.Tensor
    faces: torch.Tensor
    loops: tuple[torch.Tensor, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is no face."""
        return len(self.faces) == 0

    def take(self, values: torch.Tensor) -> torch.Tensor:
        """Take values of the mesh's vertices (..., V, C) to the surface's points, (..., N + apexes, C).

        An apex gets the mean of its loop, which is right for positions and for whatever is linear in them.
        """
        of_vertices = values[..., self.vertices, :]
        means = [of_vertices[..., loop, :].mean(-2, keepdim=True) for loop in self.loops]
        return torch.cat([of_vertices, *means], -2)

    def to(self, device: torch.device | str) -> ClosedSurface:
        """Return the same surface on another device."""
        loops = tuple(loop.to(device) for loop in self.loops)
        return ClosedSurface(self.vertices.to(device), self.faces.to(device), loops)


def weld(vertices: torch.Tensor, faces: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find vertices at equal positions: seams of texture and shading, which are no holes of the surface.

    Args:
        vertices: positions, (V, 3).
        faces: triangles, (F, 3) int64.

    Returns:
        For each vertex the first one at its position, (V,) int64, and the faces that use only first vertices; faces
        that have become a line or a point are left out.

    Example:
        >>> corners = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 1, 0]])
        >>> weld(corners, torch.tensor([[0, 1, 2], [3, 5, 4]]))
        (tensor([0, 1, 2, 0, 4, 2]), tensor([[0, 1, 2],
                [0, 2, 4]]))
    """
    # Adding zero makes -0.0 equal to 0.0.
    positions = vertices.detach().cpu().numpy() + 0.0
    _, first, group = np.unique(positions, axis=0, return_index=True, return_inverse=True)
    representative = torch.from_numpy(first[group.reshape(-1)]).to(faces.device)
    welded = representative[faces]
    a, b, c = welded.unbind(-1)
    return representative, welded[(a != b) & (b != c) & (c != a)]


def boundary_edges(faces: Integers) -> Integers:
    """List the directed edges a → b that lack an opposite b → a, as often as it is lacking, (K, 2).

    Edges of the same direction that several faces share count that often, so the surface may be non-manifold.
    """
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    low, high = edges.min(1), edges.max(1)
    pairs, pair = np.unique(np.stack([low, high], 1), axis=0, return_inverse=True)
    surplus = np.bincount(pair.reshape(-1), np.where(edges[:, 0] == low, 1, -1), len(pairs)).astype(np.int64)
    directed = np.where(surplus[:, None] > 0, pairs, pairs[:, ::-1])
    return np.repeat(directed, np.abs(surplus), axis=0)


def close_surface(faces: torch.Tensor) -> ClosedSurface:
    """Close a set of faces by a cone over each connected component of its boundary.

    Every boundary edge a → b gets the triangle (b, a, apex), the apex being the mean of the component's vertices.
    Afterwards every directed edge has its opposite, whatever the boundary: several loops that touch, and edges that
    more than two faces share, need no special care. Holes of the mesh are closed like cuts.

    Args:
        faces: triangles over a mesh's vertices, (F, 3) int64, in any number, none included.
    """
    part = faces.detach().cpu().numpy()
    vertices, local = np.unique(part, return_inverse=True)
    local_faces = local.reshape(-1, 3).astype(np.int64)
    boundary = boundary_edges(local_faces)
    cones: list[Integers] = [local_faces]
    loops: list[torch.Tensor] = []
    if len(boundary):
        component = _components(boundary, len(vertices))[boundary[:, 0]]
        for label in np.unique(component):
            edges = boundary[component == label]
            apex = np.full(len(edges), len(vertices) + len(loops))
            cones.append(np.stack([edges[:, 1], edges[:, 0], apex], 1))
            loops.append(torch.from_numpy(np.unique(edges)))
    surface = ClosedSurface(torch.from_numpy(vertices), torch.from_numpy(np.concatenate(cones)), tuple(loops))
    return surface.to(faces.device)


def orient_outwards(surface: ClosedSurface, points: torch.Tensor) -> ClosedSurface:
    """Turn components of a closed surface that are inside out, so that their inside counts +1 and not -1.

    Components with at most `NEGLIGIBLE_VOLUME` of the enclosed volume stay as they are.

    Args:
        surface: a closed surface.
        points: positions of its points at rest, as `ClosedSurface.take` gives them, (N + apexes, 3).
    """
    if surface.is_empty:
        return surface
    faces = surface.faces.cpu().numpy()
    label = _components(np.concatenate([faces[:, :2], faces[:, 1:]]), len(points))[faces[:, 0]]
    corners = points.detach().cpu().double().numpy()[faces]
    # The volume of a closed surface does not depend on the origin; the middle keeps rounding small.
    a, b, c = (corners[:, k] - corners.mean((0, 1)) for k in range(3))
    volumes = np.bincount(label, np.einsum("fi,fi->f", a, np.cross(b, c)) / 6)
    inside_out = volumes < -NEGLIGIBLE_VOLUME * np.abs(volumes).sum()
    if not inside_out.any():
        return surface
    _log.warning("%d part(s) of the surface are inside out and were turned", int(inside_out.sum()))
    turned = np.where(inside_out[label][:, None], faces[:, ::-1], faces)
    return replace(surface, faces=torch.from_numpy(turned).to(surface.faces.device))


def _components(edges: Integers, count: int) -> Integers:
    """Label ``count`` vertices by connected component of the graph with these edges, (count,)."""
    graph = coo_matrix((np.ones(len(edges), dtype=np.int8), (edges[:, 0], edges[:, 1])), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)
