"""Rays against triangle meshes, and vertex normals that do not depend on how vertices are shared."""

from __future__ import annotations

from typing import NamedTuple

import torch

_BARYCENTRIC_SLACK = 1e-9  # a ray through a shared edge must not slip between the two faces by rounding
_FLAT = 1e-12  # seen edge-on or without area: determinant over the lengths of ray and edges is rounding below this
_FACES_PER_CHUNK = 65_536
_CANCELLED = 1e-6  # normals that cancel to this share of their size, as on two-sided cloth, say nothing


class RayHits(NamedTuple):
    """Every meeting of every ray with every face, in no particular order.

    Attributes:
        ray: index of the ray, (H,) int64.
        face: index of the face, (H,) int64.
        distance: along the ray in units of its direction's length, (H,).
        barycentric: weights of the face's three corners, (H, 3); they sum to 1.
    """

    ray: torch.Tensor
    face: torch.Tensor
    distance: torch.Tensor
    barycentric: torch.Tensor


def cast_rays(origins: torch.Tensor, directions: torch.Tensor, corners: torch.Tensor) -> RayHits:
    """Intersect half-lines with triangles, from either side, and return all hits.

    Determinant, barycentric coordinates and distance of Möller and Trumbore's test are all linear in
    ``(d, o × d, o)``, so that all rays against all faces are a few matrix products. Use float64: float32 misplaces
    hits by micrometres and loses rays on thin faces.

    Args:
        origins: (R, 3).
        directions: (R, 3), not necessarily unit.
        corners: corners of the faces, (F, 3, 3).

    Returns:
        All hits in front of the origin (distance > 0). A ray through a shared edge hits both faces; faces without
        area and faces seen edge-on are never hit.

    Source: Möller and Trumbore, "Fast, minimum storage ray/triangle intersection", 1997.

    Example:
        >>> triangle = torch.tensor([[[0.0, 0, 2], [1, 0, 2], [0, 1, 2]]], dtype=torch.float64)
        >>> hits = cast_rays(triangle.new_tensor([[0.25, 0.5, 0]]), triangle.new_tensor([[0, 0, 1]]), triangle)
        >>> hits.distance.tolist(), hits.barycentric.tolist()
        ([2.0], [[0.25, 0.25, 0.5]])
    """
    chunks = [
        _cast_chunk(origins, directions, corners[start : start + _FACES_PER_CHUNK], start)
        for start in range(0, max(1, len(corners)), _FACES_PER_CHUNK)
    ]
    return RayHits(*(torch.cat(parts) for parts in zip(*chunks, strict=True)))


def _cast_chunk(origins: torch.Tensor, directions: torch.Tensor, corners: torch.Tensor, first_face: int) -> RayHits:
    """Intersect with consecutive faces whose first has the index ``first_face``."""
    a, first_edge, second_edge = corners[:, 0], corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal = torch.linalg.cross(first_edge, second_edge)
    moment = torch.linalg.cross(origins, directions)
    determinant = -directions @ normal.T
    size = directions.norm(dim=-1)[:, None] * (first_edge.norm(dim=-1) * second_edge.norm(dim=-1))
    inverse = torch.where(determinant.abs() > _FLAT * size, 1 / determinant, torch.nan)
    along_first = (moment @ second_edge.T + directions @ torch.linalg.cross(a, second_edge).T) * inverse
    along_second = -(moment @ first_edge.T + directions @ torch.linalg.cross(a, first_edge).T) * inverse
    distance = (origins @ normal.T - (a * normal).sum(-1)) * inverse
    inside = (along_first >= -_BARYCENTRIC_SLACK) & (along_second >= -_BARYCENTRIC_SLACK)
    hit = inside & (along_first + along_second <= 1 + _BARYCENTRIC_SLACK) & (distance > 0)  # NaN compares false
    ray, face = hit.nonzero(as_tuple=True)
    second, third = along_first[ray, face].clamp(0, 1), along_second[ray, face].clamp(0, 1)
    barycentric = torch.stack([(1 - second - third).clamp_min(0), second, third], -1)
    barycentric = barycentric / barycentric.sum(-1, keepdim=True)
    return RayHits(ray, face + first_face, distance[ray, face], barycentric)


def vertex_normals(vertices: torch.Tensor, faces: torch.Tensor) -> torch.Tensor:
    """Compute area-weighted unit normals of the vertices, (V, 3).

    Vertices at exactly one place count as one, so meshes that double their vertices along seams get the same
    normals as welded ones. A vertex whose faces cancel out, as on two-sided cloth, gets zero.

    Args:
        vertices: (V, 3).
        faces: (F, 3) int64.
    """
    places, place_of = torch.unique(vertices, dim=0, return_inverse=True)
    corners = vertices[faces]
    area_normals = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    flat = place_of[faces].reshape(-1)
    total = torch.zeros_like(places).index_add_(0, flat, area_normals.repeat_interleave(3, 0))
    area = vertices.new_zeros(len(places)).index_add_(0, flat, area_normals.norm(dim=-1).repeat_interleave(3))
    length = total.norm(dim=-1)
    usable = length > _CANCELLED * area
    return torch.where(usable[:, None], total / length.clamp_min(1e-300)[:, None], 0.0)[place_of]
