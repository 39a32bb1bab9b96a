"""Points spread evenly over parts of a body's skin, with their normals, and how they move with the 22 joints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from retargetbench.datasets.studio.places import rest_normals

if TYPE_CHECKING:
    from retargetbench.character import Character

_CANDIDATES = 4
"""Random points from which each sample is chosen."""


@dataclass(frozen=True, eq=False)
class SurfaceSamples:
    """Points of the skin in the T-pose, N of them, which lie on its faces and not only at its vertices.

    Attributes:
        positions: (N, 3) metres.
        normals: outward, (N, 3).
        weights: of the 22 canonical joints, (N, 22).
    """

    positions: torch.Tensor
    normals: torch.Tensor
    weights: torch.Tensor

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, chosen: torch.Tensor) -> SurfaceSamples:
        """Return the samples with these indices, or where a mask is true."""
        return SurfaceSamples(self.positions[chosen], self.normals[chosen], self.weights[chosen])

    def joined(self, other: SurfaceSamples) -> SurfaceSamples:
        """Return these samples followed by others."""
        return SurfaceSamples(
            torch.cat([self.positions, other.positions]),
            torch.cat([self.normals, other.normals]),
            torch.cat([self.weights, other.weights]),
        )

    def skinning_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rows that pose the points and rows that turn the normals, both (N, 88); see `pose_rows`."""
        one = torch.ones_like(self.positions[:, :1])
        points = torch.cat([self.positions, one], -1)
        normals = torch.cat([self.normals, 0 * one], -1)
        weights = self.weights[:, :, None]
        return (weights * points[:, None]).flatten(1), (weights * normals[:, None]).flatten(1)


def pose_rows(rows: torch.Tensor, transforms: torch.Tensor) -> torch.Tensor:
    """Pose rows (N, 88) of `SurfaceSamples.skinning_rows` by transforms (T, 22, 3, 4), (T, N, 3).

    Blended normals are not of unit length.
    """
    frames = len(transforms)
    stacked = transforms.permute(1, 3, 0, 2).reshape(rows.shape[1], 3 * frames)
    return (rows @ stacked).view(-1, frames, 3).transpose(0, 1)


def joint_transforms(rest: torch.Tensor, rotations: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the transforms from the T-pose to the world, (..., 22, 3, 4).

    Args:
        rest: joints in the T-pose, (22, 3) metres.
        rotations: world rotations, (..., 22, 3, 3).
        positions: world positions, (..., 22, 3) metres.
    """
    shift = positions - (rotations @ rest[:, :, None])[..., 0]
    return torch.cat([rotations, shift[..., None]], -1)


def sample_surface(body: Character, faces: torch.Tensor, count: int, *, seed: int = 0) -> SurfaceSamples:
    """Spread points over some faces of a body: random candidates, thinned by farthest-point sampling.

    Args:
        body: with its 22 joints, at the T-pose.
        faces: indices of the faces, (F,) int64.
        count: number of points; none where there are no faces.
        seed: of the candidates.

    Source: Eldar et al., "The farthest point strategy for progressive image sampling", 1997.
    """
    vertices = body.rest_vertices.double()
    corners = body.faces[faces]
    normals = rest_normals(body)
    weights = body.canonical_weights.double()
    if len(corners) == 0 or count == 0:
        return SurfaceSamples(vertices[:0], vertices[:0], weights[:0])
    a, b, c = vertices[corners].unbind(1)
    area = torch.linalg.cross(b - a, c - a).norm(dim=-1)
    generator = torch.Generator().manual_seed(seed)
    total = _CANDIDATES * count
    jitter, u, v = torch.rand(3, total, generator=generator, dtype=torch.float64)
    # Evenly spaced along the summed areas, so that no large face goes without.
    steps = (torch.arange(total) + jitter) / total
    face = torch.searchsorted(area.cumsum(0) / area.sum(), steps).clamp_max(len(corners) - 1)
    root = u.sqrt()
    shares = torch.stack([1 - root, root * (1 - v), root * v], -1)
    candidates = corners[face]

    def mixed(values: torch.Tensor) -> torch.Tensor:
        return (shares[..., None] * values[candidates]).sum(1)

    points = mixed(vertices)
    chosen = _farthest_points(points, count)
    return SurfaceSamples(
        points[chosen], torch.nn.functional.normalize(mixed(normals)[chosen], dim=-1), mixed(weights)[chosen]
    )


def _farthest_points(points: torch.Tensor, count: int) -> torch.Tensor:
    """Indices of points that are far from one another, (count,), beginning with the first."""
    chosen = torch.zeros(count, dtype=torch.int64)
    distance = (points - points[0]).square().sum(-1)
    for k in range(1, count):
        chosen[k] = distance.argmax()
        distance = torch.minimum(distance, (points - points[chosen[k]]).square().sum(-1))
    return chosen
