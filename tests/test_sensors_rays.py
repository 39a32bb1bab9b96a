"""Rays and normals against trimesh with Embree and against solving one triangle at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import trimesh

from retargetbench.mesh.rays import cast_rays, vertex_normals


def bumpy_sphere() -> trimesh.Trimesh:
    """A star-shaped body with folds deep enough that rays meet it up to six times."""
    mesh = trimesh.creation.icosphere(subdivisions=3)
    x, y, z = mesh.vertices.T
    return trimesh.Trimesh(mesh.vertices * (1 + 0.45 * np.sin(9 * x + 4 * y) * np.cos(8 * z))[:, None], mesh.faces)


def rays_through(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(count, 3))
    return rng.normal(size=(count, 3)) * 0.3, directions / np.linalg.norm(directions, axis=-1, keepdims=True)


def test_first_hits_agree_with_embree(device):
    mesh = bumpy_sphere()
    origins, directions = rays_through(400)
    corners = torch.tensor(mesh.triangles, device=device)
    hits = cast_rays(torch.tensor(origins, device=device), torch.tensor(directions, device=device), corners)
    nearest = np.full(400, np.inf)
    np.minimum.at(nearest, hits.ray.cpu().numpy(), hits.distance.cpu().numpy())
    points, ray, _ = mesh.ray.intersects_location(origins, directions, multiple_hits=False)
    expected = np.full(400, np.inf)
    expected[ray] = np.linalg.norm(points - origins[ray], axis=-1)
    assert type(mesh.ray).__module__ == "trimesh.ray.ray_pyembree"
    assert (np.isinf(nearest) == np.isinf(expected)).all()
    met = np.isfinite(expected)
    assert met.sum() > 300
    assert np.abs(nearest[met] - expected[met]).max() < 1e-5  # Embree works in float32


def test_all_hits_agree_with_solving_every_triangle():
    mesh = bumpy_sphere()
    origins, directions = rays_through(20, seed=1)
    hits = cast_rays(torch.tensor(origins), torch.tensor(directions), torch.tensor(mesh.triangles))
    found = {(int(r), int(f)): (float(t), b) for r, f, t, b in zip(*hits, strict=True)}
    expected = 0
    for r in range(20):
        for f, (a, b, c) in enumerate(mesh.triangles):
            # origin + t · direction = a + u (b − a) + v (c − a)
            t, u, v = np.linalg.solve(np.stack([-directions[r], b - a, c - a], -1), origins[r] - a)
            if t > 0 and u >= 0 and v >= 0 and u + v <= 1:
                expected += 1
                distance, barycentric = found[r, f]
                assert abs(distance - t) < 1e-9
                assert np.abs(barycentric.numpy() - [1 - u - v, u, v]).max() < 1e-9
    assert len(hits.ray) == expected > 20


def test_a_ray_along_an_edge_shared_by_two_faces_does_not_slip_between_them():
    rng = np.random.default_rng(2)
    for _ in range(50):
        a, b = rng.normal(size=(2, 3))
        left, right = rng.normal(size=(2, 3))
        origin = rng.normal(size=3)
        through = a + rng.uniform(0.1, 0.9) * (b - a)
        corners = torch.tensor(np.array([[a, b, left], [b, a, right]]))
        hits = cast_rays(torch.tensor(origin[None]), torch.tensor((through - origin)[None]), corners)
        assert hits.face.tolist() == [0, 1]
        assert torch.allclose(hits.distance, torch.ones(2, dtype=torch.float64), atol=1e-9)


def test_faces_behind_edge_on_or_without_area_are_not_hit():
    ray = torch.tensor([[0.1, 0.1, 0.0]], dtype=torch.float64), torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    behind = [[0.0, 0, -1], [1, 0, -1], [0, 1, -1]]
    edge_on = [[0.1, 0.1, 1], [0.1, 0.1, 2], [0.1, 1, 1]]
    line = [[0.0, 0, 1], [0.1, 0.1, 1], [0.2, 0.2, 1]]
    hits = cast_rays(*ray, torch.tensor([behind, edge_on, line], dtype=torch.float64))
    assert len(hits.ray) == 0


def test_many_faces_give_the_same_hits_as_few(monkeypatch):
    mesh = bumpy_sphere()
    origins, directions = (torch.tensor(values) for values in rays_through(20))
    whole = cast_rays(origins, directions, torch.tensor(mesh.triangles))
    monkeypatch.setattr("retargetbench.mesh.rays._FACES_PER_CHUNK", 100)
    chunked = cast_rays(origins, directions, torch.tensor(mesh.triangles))
    key = [torch.argsort(hits.ray * len(mesh.faces) + hits.face) for hits in (whole, chunked)]
    for one, other in zip(whole, chunked, strict=True):
        assert torch.allclose(one[key[0]].double(), other[key[1]].double(), atol=1e-12)


@pytest.mark.parametrize("empty", ["rays", "faces"])
def test_no_rays_or_no_faces_give_no_hits(empty):
    rays = torch.zeros(0 if empty == "rays" else 1, 3, dtype=torch.float64)
    hits = cast_rays(rays, rays + 1, torch.rand(0 if empty == "faces" else 1, 3, 3, dtype=torch.float64))
    assert hits.barycentric.shape == (0, 3)


def test_normals_of_a_welded_mesh_are_those_of_trimesh():
    mesh = trimesh.creation.icosphere(subdivisions=2)
    normals = vertex_normals(torch.tensor(mesh.vertices), torch.tensor(mesh.faces)).numpy()
    weighted = np.zeros_like(mesh.vertices)
    for face, normal, area in zip(mesh.faces, mesh.face_normals, mesh.area_faces, strict=True):
        weighted[face] += area * normal
    assert np.abs(normals - weighted / np.linalg.norm(weighted, axis=-1, keepdims=True)).max() < 1e-9
    assert np.abs(normals - mesh.vertices).max() < 0.03  # and nearly the sphere's own


def test_normals_do_not_see_seams():
    mesh = trimesh.creation.icosphere(subdivisions=2)
    vertices, faces = torch.tensor(mesh.vertices), torch.tensor(mesh.faces)
    welded = vertex_normals(vertices, faces)[faces]
    split = vertex_normals(vertices[faces].reshape(-1, 3), torch.arange(3 * len(faces)).view(-1, 3)).view(-1, 3, 3)
    assert (welded - split).abs().max() < 1e-12


def test_two_sided_cloth_has_no_normal():
    vertices = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
    assert (vertex_normals(vertices, torch.tensor([[0, 1, 2], [2, 1, 0]])) == 0).all()
