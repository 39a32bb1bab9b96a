"""The largest distance to a mesh against libigl's and closed forms."""

from __future__ import annotations

import pytest
import torch
import trimesh
from closed_shapes import ball, box, distances, joined, random_points, ring, tangle

from retargetbench.mesh import distance
from retargetbench.mesh.distance import FaceClusters, largest_distance, point_triangle_distance

MESHES = {"box": box(), "ball": ball(subdivisions=3), "ring": ring(), "tangle": tangle(), "two": joined(ball(), ring())}
ROUNDING = 1e-6
"""Metres: a few float32 roundings at the size of a person."""


def frames_of(mesh, count, seed=0):
    """The mesh bent and moved by frame: rest clusters meet poses they were not made for, (B, N, 3)."""
    generator = torch.Generator().manual_seed(seed)
    bend = torch.eye(3) + 0.4 * torch.randn(count, 3, 3, generator=generator)
    moved = torch.einsum("bij,nj->bni", bend, mesh[0]) + torch.randn(count, 1, 3, generator=generator)
    return moved + 0.1 * torch.sin(5 * moved.roll(1, -1))


def points_of(frames, count, seed=1):
    """Points in and around each frame, (B, M, 3)."""
    return torch.stack([random_points((frame, None), count, seed + i) for i, frame in enumerate(frames)])


def expected(frames, faces, points, chosen):
    """Frame by frame and point by point, in float64."""
    return torch.stack(
        [
            distances((frame, faces), at[some]).max() if some.any() else torch.zeros((), dtype=torch.float64)
            for frame, at, some in zip(frames, points, chosen, strict=True)
        ]
    )


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("share", [1.0, 0.3, 0.02])
def test_the_largest_distance_is_that_of_libigl(shape, share, device):
    mesh = MESHES[shape]
    frames = frames_of(mesh, 5)
    points = points_of(frames, 60)
    chosen = torch.rand(5, 60, generator=torch.Generator().manual_seed(7)) < share
    chosen[:, 3] = True
    clusters = FaceClusters.from_rest(mesh[0].to(device), mesh[1].to(device))
    found = largest_distance(frames.to(device), clusters, points.to(device), chosen.to(device))
    assert found.device == frames.to(device).device
    torch.testing.assert_close(found.cpu().double(), expected(frames, mesh[1], points, chosen), rtol=0, atol=ROUNDING)


def test_in_the_middle_of_a_box_it_is_half_the_side():
    vertices, faces = box(0.5)
    clusters = FaceClusters.from_rest(vertices, faces)
    points = torch.tensor([[0.0, 0.0, 0.0], [0.3, 0.1, 0.0], [0.0, 0.0, 0.45], [0.5, 0.5, 2.5]])
    for number, depth in enumerate([0.5, 0.2, 0.05, 2.0]):
        one = torch.arange(4) == number
        assert largest_distance(vertices[None], clusters, points[None], one[None]).item() == pytest.approx(depth)
    every = torch.tensor([[True, True, True, False]])
    assert largest_distance(vertices[None], clusters, points[None], every).item() == pytest.approx(0.5)


def test_frames_without_chosen_points_and_points_on_the_surface_give_zero(device):
    vertices, faces = (x.to(device) for x in ball())
    clusters = FaceClusters.from_rest(vertices, faces)
    frames = vertices.expand(3, -1, 3)
    points = torch.cat([frames[:, :1], torch.zeros(3, 1, 3, device=device), frames[:, :2].mean(1, keepdim=True)], 1)
    chosen = torch.tensor([[False] * 3, [True, False, False], [False, True, False]], device=device)
    found = largest_distance(frames, clusters, points, chosen)
    assert found[:2].tolist() == [0, 0]
    assert found[2] == pytest.approx(0.97, abs=0.03)
    for shape in ((0, 4), (3, 0)):
        nothing = largest_distance(
            frames[: shape[0]],
            clusters,
            torch.zeros(*shape, 3, device=device),
            torch.ones(shape, dtype=torch.bool, device=device),
        )
        assert nothing.tolist() == [0] * shape[0]


@pytest.mark.parametrize("pairs_at_once", [1, 400, 5000, 2**30])
def test_frames_alone_together_and_in_small_groups_give_the_same_bits(monkeypatch, pairs_at_once):
    mesh = MESHES["ball"]
    frames = frames_of(mesh, 8)
    points = points_of(frames, 40)
    chosen = torch.rand(8, 40, generator=torch.Generator().manual_seed(2)) < torch.linspace(0, 1, 8)[:, None]
    clusters = FaceClusters.from_rest(*mesh)
    together = largest_distance(frames, clusters, points, chosen)
    assert together[0] == 0
    assert (together[1:] > 0).all()
    monkeypatch.setattr(distance, "_PAIRS_AT_ONCE_CPU", pairs_at_once)
    assert torch.equal(largest_distance(frames, clusters, points, chosen), together)
    for i in range(8):
        one = slice(i, i + 1)
        assert torch.equal(largest_distance(frames[one], clusters, points[one], chosen[one]), together[one])


def test_numbering_and_clusters_make_no_difference():
    mesh = MESHES["two"]
    frames = frames_of(mesh, 3)
    points = points_of(frames, 30)
    chosen = torch.ones(3, 30, dtype=torch.bool)
    generator = torch.Generator().manual_seed(3)
    order, of_faces, of_points = (torch.randperm(n, generator=generator) for n in (len(mesh[0]), len(mesh[1]), 30))
    first = largest_distance(frames, FaceClusters.from_rest(*mesh), points, chosen)
    renumbered = FaceClusters.from_rest(mesh[0][order], order.argsort()[mesh[1]][of_faces])
    second = largest_distance(frames[:, order], renumbered, points[:, of_points], chosen)
    # Grouped by nonsense, clusters are large and rule out little, but the answer stays.
    nonsense = FaceClusters.from_rest(torch.rand(mesh[0].shape, generator=generator), mesh[1])
    third = largest_distance(frames, nonsense, points, chosen)
    torch.testing.assert_close(second, first, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(third, first, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
def test_clusters_hold_every_face_and_its_vertices(mesh):
    clusters = FaceClusters.from_rest(*mesh)
    assert {tuple(face) for face in clusters.faces.flatten(0, 1).tolist()} == {tuple(face) for face in mesh[1].tolist()}
    assert clusters.faces.shape[1] <= distance._FACES_PER_CLUSTER
    for faces, members in zip(clusters.faces, clusters.members, strict=True):
        assert set(faces.flatten().tolist()) == set(members.tolist())
        middle = mesh[0][members.unique()].double().mean(0)
        offsets = (mesh[0][members].double() - middle).norm(dim=-1)
        assert offsets[0] == offsets.min()


def by_trimesh(points, triangles):
    """Distance of each point (M, 3) to its own triangle (M, 3, 3), float64."""
    nearest = trimesh.triangles.closest_point(triangles.double().numpy(), points.double().numpy())
    return torch.from_numpy(nearest).sub(points.double()).norm(dim=-1)


def distance_to_triangles(points, triangles):
    return point_triangle_distance(points.T.contiguous(), triangles.permute(1, 2, 0).contiguous())


def triangles_and_points(height, dtype, count=4000):
    """Triangles with edges up to about a metre and about this height, and points all around, near and on them."""
    generator = torch.Generator().manual_seed(0)
    a, along, aside = (torch.rand(count, 3, generator=generator, dtype=dtype) - 0.5 for _ in range(3))
    share = torch.rand(count, 1, generator=generator, dtype=dtype)
    triangles = torch.stack([a, a + along, a + share * along + height * aside], 1)
    points = a + 3 * (torch.rand(count, 3, generator=generator, dtype=dtype) - 0.5)
    inside = torch.rand(2000, 3, 1, generator=generator, dtype=dtype)
    points[:2000] = (inside / inside.sum(1, keepdim=True) * triangles[:2000]).sum(1)
    points[1000:2000] += 0.02 * (torch.rand(1000, 3, generator=generator, dtype=dtype) - 0.5)
    points[2000:2200] = triangles[2000:2200, 1]
    points[2200:2400] = triangles[2200:2400, :2].mean(1)
    return points, triangles


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_distance_to_a_triangle_over_its_face_edges_and_corners(dtype, tolerance):
    points, triangles = triangles_and_points(1.0, dtype)
    torch.testing.assert_close(
        distance_to_triangles(points, triangles).double(), by_trimesh(points, triangles), rtol=0, atol=tolerance
    )


@pytest.mark.parametrize("height", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 0.0])
def test_slivers_are_measured_to_a_few_ten_thousandths_of_their_length(height):
    points, triangles = triangles_and_points(height, torch.float32)
    off = (distance_to_triangles(points, triangles).double() - by_trimesh(points, triangles)).abs()
    longest = (triangles - triangles.roll(1, 1)).norm(dim=-1).amax(-1)
    assert (off / longest).max() < 2e-4  # half the root of float32's resolution


def test_triangles_without_area_are_measured_as_the_segment_or_point_that_they_are():
    # Along x on a lattice, so that areas are exactly zero: from (0, 0, 0) to (1, 0, 0), and all of it in a point.
    generator = torch.Generator().manual_seed(1)
    points = 4 * torch.rand(500, 3, generator=generator) - 2
    inner = (torch.rand(500, generator=generator) * 64).floor() / 64
    ends = torch.zeros(500, 3, 3)
    ends[:, 1, 0] = 1.0
    ends[:, 2, 0] = inner
    offset = points - torch.stack([points[:, 0].clamp(0, 1), torch.zeros(500), torch.zeros(500)], -1)
    for corners in ([0, 1, 2], [2, 0, 1], [1, 2, 0], [1, 0, 2]):
        torch.testing.assert_close(
            distance_to_triangles(points, ends[:, corners]), offset.norm(dim=-1), rtol=0, atol=ROUNDING
        )
    torch.testing.assert_close(
        distance_to_triangles(points, torch.zeros(500, 3, 3)), points.norm(dim=-1), rtol=0, atol=ROUNDING
    )
