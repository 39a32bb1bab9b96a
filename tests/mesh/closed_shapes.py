"""Closed meshes and points for the tests of exact mesh geometry, and libigl's answers about them."""

from __future__ import annotations

import igl
import numpy as np
import torch
import trimesh

from retargetbench.mesh.closing import close_surface

LATTICE = 2.0**-12
"""Metres: sums and differences of such coordinates are exact, and rays meet vertices and edges exactly."""


def tensors(mesh: trimesh.Trimesh) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(np.array(mesh.vertices), dtype=torch.float32), torch.tensor(np.array(mesh.faces))


def joined(*parts: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Put meshes side by side in one, without cutting them where they overlap."""
    firsts = np.cumsum([0, *(len(vertices) for vertices, _ in parts)])
    faces = [faces + int(first) for (_, faces), first in zip(parts, firsts, strict=False)]
    return torch.cat([vertices for vertices, _ in parts]), torch.cat(faces)


def on_lattice(positions: torch.Tensor) -> torch.Tensor:
    return (positions / LATTICE).round() * LATTICE


def ball(radius: float = 1.0, middle: tuple[float, float, float] = (0.0, 0.0, 0.0), subdivisions: int = 2):
    vertices, faces = tensors(trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius))
    return vertices + torch.tensor(middle), faces


def box(half: float = 0.5, middle: tuple[float, float, float] = (0.0, 0.0, 0.0)):
    vertices, faces = tensors(trimesh.creation.box((2 * half,) * 3))
    return vertices + torch.tensor(middle), faces


def ring():
    return tensors(trimesh.creation.torus(major_radius=0.7, minor_radius=0.25, major_sections=24, minor_sections=12))


def inside_out(mesh: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return mesh[0], mesh[1].flip(-1)


def tangle(seed: int = 0, faces: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Random triangles over random points, closed: non-manifold everywhere, with winding numbers of both signs."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(24, 3, generator=generator)
    corners = torch.stack([torch.randperm(24, generator=generator)[:3] for _ in range(faces)])
    surface = close_surface(corners)
    return surface.take(points), surface.faces


def random_points(mesh: tuple[torch.Tensor, torch.Tensor], count: int, seed: int = 1) -> torch.Tensor:
    """Points in and a little around the mesh."""
    low, high = mesh[0].amin(0), mesh[0].amax(0)
    share = torch.rand(count, 3, generator=torch.Generator().manual_seed(seed)) * 1.2 - 0.1
    return low + share * (high - low)


SHAPES = {
    "ball": ball(),
    "box": box(),
    "ring": ring(),
    "two balls that overlap": joined(ball(), ball(0.8, (0.6, 0.1, -0.2))),
    "ball inside out": inside_out(ball()),
    "ball with a cavity": joined(ball(), inside_out(ball(0.5, (0.1, 0.2, 0.0)))),
    "random faces closed by cones": tangle(),
}


def solid_angle_winding(mesh: tuple[torch.Tensor, torch.Tensor], points: torch.Tensor) -> torch.Tensor:
    """Winding numbers of points (M, 3) by libigl: the sum of all solid angles in float64, rounded."""
    found = igl.winding_number(*(np.ascontiguousarray(x) for x in (mesh[0].double(), mesh[1], points.double())))
    # Points on the surface, or a hair from it, have no whole number.
    assert np.abs(found - found.round()).max() < 1e-3
    return torch.from_numpy(found.round().astype(np.int32))


def distances(mesh: tuple[torch.Tensor, torch.Tensor], points: torch.Tensor) -> torch.Tensor:
    """Distances of points (M, 3) to a mesh by libigl, float64."""
    arrays = (np.ascontiguousarray(x) for x in (points.double(), mesh[0].double(), mesh[1]))
    return torch.from_numpy(np.sqrt(igl.point_mesh_squared_distance(*arrays)[0]))
