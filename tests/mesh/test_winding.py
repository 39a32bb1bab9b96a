"""Winding numbers against libigl's sum of solid angles, where rays are easy and where they meet vertices and edges."""

from __future__ import annotations

import importlib.util
import itertools

import pytest
import torch
from closed_shapes import (
    LATTICE,
    SHAPES,
    ball,
    box,
    distances,
    joined,
    on_lattice,
    random_points,
    ring,
    solid_angle_winding,
    tangle,
)

from retargetbench.datasets.capsules import open_capsules
from retargetbench.errors import MissingExtraError, UsageError
from retargetbench.mesh import winding
from retargetbench.mesh.winding import frame_chunks, winding_number

HAS_WARP = importlib.util.find_spec("warp") is not None


@pytest.fixture(
    params=["torch", pytest.param("warp", marks=pytest.mark.skipif(not HAS_WARP, reason="warp-lang is not installed"))]
)
def backend(request):
    return request.param


def turned_and_moved(mesh, frames):
    """The mesh in poses that differ by frame, (B, N, 3)."""
    angle = torch.arange(frames) * 0.7
    turn = torch.zeros(frames, 3, 3)
    turn[:, 0, 0] = turn[:, 2, 2] = angle.cos()
    turn[:, 0, 2] = angle.sin()
    turn[:, 2, 0] = -angle.sin()
    turn[:, 1, 1] = 1
    return torch.einsum("bij,nj->bni", turn, mesh[0]) + angle[:, None, None] * torch.tensor([0.3, -0.1, 0.2])


@pytest.mark.parametrize("shape", SHAPES)
def test_winding_numbers_are_those_of_solid_angles(shape, backend, device):
    mesh = SHAPES[shape]
    points = random_points(mesh, 2000)
    points = points[distances(mesh, points) > 1e-5]  # nearer to the surface, float32 decides the side
    expected = solid_angle_winding(mesh, points)
    assert len(expected.unique()) > 1
    found = winding_number(mesh[0].to(device), mesh[1].to(device), points.to(device), backend=backend)
    assert found.dtype == torch.int32
    assert found.device == points.to(device).device
    assert torch.equal(found.cpu(), expected)


def adversarial_points(mesh):
    """Points of the lattice straight below and above vertices, middles of edges, and on the planes of symmetry."""
    vertices, faces = mesh
    edges = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    # Middles of edges between lattice points lie on the lattice of half its width, still exact in float32.
    columns = torch.cat([vertices, vertices[edges].mean(1)])[:, :2]
    heights = on_lattice(torch.linspace(float(vertices[:, 2].min()), float(vertices[:, 2].max()), 9)) + LATTICE / 4
    below = torch.cat([columns.repeat_interleave(9, 0), heights.repeat(len(columns))[:, None]], -1)
    across = on_lattice(random_points(mesh, 600)) + torch.tensor([0.0, 0.0, LATTICE / 4])
    planes = [across * torch.tensor([0.0, 1.0, 1.0]), across * torch.tensor([1.0, 0.0, 1.0])]
    on_axis = across * torch.tensor([0.0, 0.0, 1.0])
    return torch.cat([below, *planes, on_axis])


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_through_vertices_edges_and_symmetry_planes_are_counted_once(shape, backend, device):
    mesh = (on_lattice(SHAPES[shape][0]), SHAPES[shape][1])
    points = adversarial_points(mesh)
    points = points[distances(mesh, points) > 1e-6]
    assert len(points) > 900
    found = winding_number(mesh[0].to(device), mesh[1].to(device), points.to(device), backend=backend)
    assert torch.equal(found.cpu(), solid_angle_winding(mesh, points))


@pytest.mark.parametrize("shape", SHAPES)
def test_faces_that_stand_a_hair_off_upright_are_counted_exactly(shape, backend):
    # Sheared and pressed flat to 2 µm, seen from above every face is next to a line, and float32 products of
    # coordinates do not tell its sides. Both shapes are exact images of each other: whole numbers times powers of 2.
    def whole(positions):
        low, high = SHAPES[shape][0].amin(0), SHAPES[shape][0].amax(0)
        return ((positions - low) / (high - low) * torch.tensor([1000, 32, 1000]) + 200).round()

    def pressed(positions):
        u, v, w = positions.unbind(-1)
        return torch.stack([0.5 + u * 2.0**-12, 0.5 + u * 2.0**-12 + v * 2.0**-24, w * LATTICE], -1)

    mesh = (whole(SHAPES[shape][0]), SHAPES[shape][1])
    points = whole(random_points(SHAPES[shape], 3000))
    on_columns = mesh[0][torch.arange(2000) % len(mesh[0])] + torch.tensor([0.0, 1.0, 0.0])
    points = torch.cat([points, torch.cat([on_columns[:, :2], points[:2000, 2:]], -1)])
    points = points[distances(mesh, points) > 1e-3]
    found = winding_number(pressed(mesh[0]), mesh[1], pressed(points), backend=backend)
    assert torch.equal(found, solid_angle_winding(mesh, points))


def test_every_point_of_a_coarse_lattice_in_a_lattice_solid_is_counted_exactly(backend):
    # Most of the 13³ points have vertices, edges or upright faces straight above them.
    mesh = joined(box(0.5), box(0.25, (0.5, 0.5, 0.0)), box(0.125))
    steps = torch.arange(-6, 7) / 8
    points = torch.cartesian_prod(steps, steps, steps + LATTICE)
    on_surface = distances(mesh, points) < 1e-6
    assert on_surface.float().mean() < 0.5
    points = points[~on_surface]
    inside = [((points - middle).abs() < half).all(-1) for half, middle in
              ((0.5, torch.zeros(3)), (0.25, torch.tensor([0.5, 0.5, 0.0])), (0.125, torch.zeros(3)))]  # fmt: skip
    expected = torch.stack(inside).int().sum(0)
    assert expected.max() == 2
    assert torch.equal(winding_number(*mesh, points, backend=backend), expected.int())


def test_a_point_on_the_surface_gets_the_number_of_one_of_its_sides(backend):
    mesh = box(0.5)
    corners, middles = mesh[0], mesh[0][mesh[1]].mean(1)
    found = winding_number(*mesh, torch.cat([corners, middles]), backend=backend)
    assert set(found.tolist()) <= {0, 1}


def test_where_bodies_overlap_the_number_is_two_or_three(backend):
    mesh = joined(ball(1.0), ball(1.0, (0.5, 0.0, 0.0)), ball(1.0, (0.0, 0.5, 0.0)))
    points = torch.tensor([[0.2, 0.2, 0.1], [-0.9, 0.0, 0.0], [-0.4, 0.5, 0.0], [2.0, 0.0, 0.0], [0.2, 0.2, -3.0]])
    assert winding_number(*mesh, points, backend=backend).tolist() == [3, 1, 2, 0, 0]


def test_a_skinned_body_of_seven_overlapping_tubes_agrees_with_solid_angles(backend):
    character = open_capsules().character("stout")
    mesh = (character.rest_vertices, character.faces)
    points = torch.cat([random_points(mesh, 800), character.skeleton.rest_positions])
    expected = solid_angle_winding(mesh, points)
    assert expected.max() == 2
    assert torch.equal(winding_number(*mesh, points, backend=backend), expected)


@pytest.mark.skipif(not HAS_WARP, reason="warp-lang is not installed")
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e4])
def test_backends_agree_at_any_scale_and_far_from_the_origin(scale):
    mesh = tangle(3)
    for shift in (0.0, 100.0):
        vertices = mesh[0] * scale + shift * scale
        points = random_points((vertices, mesh[1]), 3000)
        both = [winding_number(vertices, mesh[1], points, backend=name) for name in ("torch", "warp")]
        assert torch.equal(*both)
        assert len(both[0].unique()) > 3


def test_coordinates_of_very_different_size_leave_no_crack(backend):
    # Skinned symmetric bodies have vertices a rounding error off their plane of symmetry, and so have points.
    vertices, faces = ball(1.0, subdivisions=3)
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(vertices.shape, generator=generator) * 10.0 ** torch.randint(
        -20, -6, vertices.shape, generator=generator
    )
    vertices = torch.where(vertices.abs() < 1e-6, noise, vertices)
    assert (vertices.abs() < 1e-6).sum() > 30
    points = torch.rand(4000, 3, generator=generator) * 1.6 - 0.8
    tiny = 10.0 ** -(20 * torch.rand(4000, generator=generator) + 5)
    points[:2000, 0] = tiny[:2000]
    points[1000:3000, 1] = -tiny[1000:3000]
    away = (points.norm(dim=-1) - 1).abs() > 0.03
    points = points[away]
    expected = (points.norm(dim=-1) < 1).int()
    assert 0 < expected.sum() < len(points)
    assert torch.equal(winding_number(vertices, faces, points, backend=backend), expected)


def test_the_direction_of_the_ray_makes_no_difference(backend):
    # Turning the axes round is exact, and sends the ray along x and y in turn.
    mesh = tangle(5)
    points = random_points(mesh, 2000)
    points = points[distances(mesh, points) > 1e-5]
    numbers = [
        winding_number(mesh[0].roll(turn, -1), mesh[1], points.roll(turn, -1), backend=backend) for turn in range(3)
    ]
    assert torch.equal(numbers[0], numbers[1])
    assert torch.equal(numbers[0], numbers[2])


def test_faces_turned_over_change_the_sign(backend):
    mesh = tangle(6)
    points = random_points(mesh, 1000)
    points = points[distances(mesh, points) > 1e-5]
    there, back = (winding_number(mesh[0], faces, points, backend=backend) for faces in (mesh[1], mesh[1].flip(-1)))
    assert torch.equal(there, -back)


def test_the_order_of_vertices_faces_corners_and_points_does_not_matter(backend):
    mesh = tuple(x.clone() for x in SHAPES["random faces closed by cones"])
    mesh = (on_lattice(mesh[0]), mesh[1])
    points = adversarial_points(mesh)  # on the surface too: ties are decided by position alone
    generator = torch.Generator().manual_seed(4)
    of_vertices, of_faces, of_points = (torch.randperm(len(x), generator=generator) for x in (mesh[0], mesh[1], points))
    faces = of_vertices.argsort()[mesh[1]][of_faces]
    faces = torch.stack([face.roll(i % 3) for i, face in enumerate(faces)])
    shuffled = winding_number(mesh[0][of_vertices], faces, points[of_points], backend=backend)
    assert torch.equal(shuffled, winding_number(*mesh, points, backend=backend)[of_points])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_leading_axes_and_single_frames_give_the_same_numbers(backend, device, dtype):
    mesh = ring()
    posed = turned_and_moved(mesh, 6).to(device, dtype)
    points = random_points((posed.cpu().flatten(0, 1), None), 6 * 300).view(6, 300, 3).to(device, dtype)
    faces = mesh[1].to(device)
    together = winding_number(posed, faces, points, backend=backend)
    assert together.shape == (6, 300)
    assert 0 < together.sum() < together.numel()
    grid = winding_number(posed.view(2, 1, 3, -1, 3), faces, points.view(2, 1, 3, -1, 3), backend=backend)
    assert torch.equal(grid, together.view(2, 1, 3, 300))
    for frame in range(6):
        assert torch.equal(winding_number(posed[frame], faces, points[frame], backend=backend), together[frame])


def test_frames_that_are_views_of_one_another_are_read_right(backend):
    mesh = ring()
    points = random_points(mesh, 200)
    expected = winding_number(*mesh, points, backend=backend)
    found = winding_number(mesh[0].expand(3, -1, 3), mesh[1], points.expand(3, -1, 3), backend=backend)
    assert torch.equal(found, expected.expand(3, -1))
    padded = torch.cat([mesh[0], mesh[0]], -1)[:, :3]
    assert torch.equal(winding_number(padded, mesh[1], points, backend=backend), expected)


@pytest.mark.parametrize("faces_at_once", [1, 600, 2000])
def test_chunks_of_frames_do_not_change_the_numbers(monkeypatch, faces_at_once):
    mesh = ring()
    posed = turned_and_moved(mesh, 7)
    points = random_points((posed.flatten(0, 1), None), 7 * 100).view(7, 100, 3)
    expected = winding_number(posed, mesh[1], points, backend="torch")
    monkeypatch.setattr(winding, "_FACES_AT_ONCE_CPU", faces_at_once)
    assert torch.equal(winding_number(posed, mesh[1], points, backend="torch"), expected)


@pytest.mark.parametrize(("frames", "faces"), [(0, 10), (1, 0), (5, 10), (1000, 3000), (3, 10**9)])
def test_chunks_cover_every_frame_once_and_stay_small(frames, faces, device):
    chunks = list(frame_chunks(frames, faces, device))
    assert list(itertools.chain.from_iterable(range(chunk.start, chunk.stop) for chunk in chunks)) == list(
        range(frames)
    )
    assert all((chunk.stop - chunk.start == 1) or (chunk.stop - chunk.start) * faces <= 2**21 for chunk in chunks)


@pytest.mark.parametrize("batch", [(), (0,), (3,), (2, 0), (2, 2)])
@pytest.mark.parametrize(("vertices", "points", "faces"), [(8, 0, 12), (8, 5, 12), (8, 5, 0), (0, 5, 0), (0, 0, 0)])
def test_empty_frames_points_and_meshes_give_zeros_of_the_right_shape(backend, batch, vertices, points, faces):
    mesh = box()
    found = winding_number(
        mesh[0][:vertices].expand(*batch, vertices, 3),
        mesh[1][:faces],
        torch.full((*batch, points, 3), 7.0),
        backend=backend,
    )
    assert found.shape == (*batch, points)
    assert found.dtype == torch.int32
    assert not found.any()


def test_inputs_stay_as_they_are_and_no_gradient_flows(backend):
    mesh = ring()
    vertices, points = mesh[0].clone().requires_grad_(), random_points(mesh, 50).requires_grad_()
    before = [x.detach().clone() for x in (vertices, mesh[1], points)]
    assert not winding_number(vertices, mesh[1], points, backend=backend).requires_grad
    assert all(torch.equal(x, y) for x, y in zip((vertices, mesh[1], points), before, strict=True))


def test_shapes_that_do_not_fit_and_unknown_backends_are_refused():
    vertices, faces = box()
    for bad in (torch.zeros(4, 5, 3), torch.zeros(5, 2)):
        with pytest.raises(UsageError, match=r"same leading axes"):
            winding_number(vertices, faces, bad)
    with pytest.raises(UsageError, match=r"faces \(F, 3\), got \(12, 2\)"):
        winding_number(vertices, faces[:, :2], vertices)
    for points in (vertices, vertices[:0]):
        with pytest.raises(UsageError, match="'embree' is not one of: auto, torch, warp"):
            winding_number(vertices, faces, points, backend="embree")


def test_without_warp_auto_takes_torch_and_warp_names_the_extra(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "warp" else find_spec(name))
    mesh = ball()
    assert winding_number(*mesh, torch.zeros(1, 3)).tolist() == [1]
    with pytest.raises(MissingExtraError, match=r"retargetbench\[fast\]"):
        winding_number(*mesh, torch.zeros(1, 3), backend="warp")
