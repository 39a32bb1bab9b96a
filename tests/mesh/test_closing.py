"""Closing by cones: whatever the faces, every edge has its opposite and winding numbers are whole."""

from __future__ import annotations

import logging
import math

import igl
import numpy as np
import pytest
import torch
import trimesh
from closed_shapes import ball, box, distances, inside_out, joined, random_points, ring, tensors

from retargetbench.mesh.closing import boundary_edges, close_surface, orient_outwards, weld
from retargetbench.mesh.winding import winding_number


def edge_balance(faces) -> dict[tuple[int, int], int]:
    """How often each directed edge occurs beyond its opposite, counted one by one."""
    counts: dict[tuple[int, int], int] = {}
    for face in faces.tolist():
        for a, b in zip(face, face[1:] + face[:1], strict=True):
            counts[a, b] = counts.get((a, b), 0) + 1
            counts[b, a] = counts.get((b, a), 0) - 1
    return {edge: count for edge, count in counts.items() if count > 0}


def assert_closed(surface, points):
    """No edge lacks its opposite, and solid angles sum to whole numbers everywhere."""
    assert edge_balance(surface.faces) == {}
    mesh = (surface.take(points), surface.faces)
    queries = random_points(mesh, 300)
    queries = queries[distances(mesh, queries) > 1e-4]
    found = igl.winding_number(*(np.ascontiguousarray(x) for x in (mesh[0].double(), mesh[1], queries.double())))
    assert np.abs(found - found.round()).max() < 1e-9
    assert torch.equal(winding_number(*mesh, queries), torch.from_numpy(found.round().astype(np.int32)))


def volume(mesh) -> float:
    return trimesh.Trimesh(mesh[0].double().numpy(), mesh[1].numpy(), process=False).volume


@pytest.mark.parametrize("mesh", [ball(), box(), ring(), joined(ball(), ring())], ids=["ball", "box", "ring", "two"])
def test_a_closed_mesh_stays_as_it_is(mesh):
    assert len(boundary_edges(mesh[1].numpy())) == 0
    surface = close_surface(mesh[1])
    assert surface.loops == ()
    assert torch.equal(surface.vertices, torch.arange(len(mesh[0])))
    assert torch.equal(surface.faces, mesh[1])
    assert torch.equal(surface.take(mesh[0]), mesh[0])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_any_part_of_a_ball_and_a_ring_can_be_closed(seed, share, device):
    vertices, faces = joined(ball(), (ring()[0] + 1.5, ring()[1]))
    kept = torch.rand(len(faces), generator=torch.Generator().manual_seed(seed)) < share
    surface = close_surface(faces[kept].to(device))
    assert surface.vertices.device == surface.faces.device == faces.to(device).device
    assert_closed(surface.to("cpu"), vertices)


@pytest.mark.parametrize("seed", range(4))
def test_random_triangles_with_edges_of_many_faces_can_be_closed(seed):
    generator = torch.Generator().manual_seed(seed)
    faces = torch.stack([torch.randperm(8, generator=generator)[:3] for _ in range(40)])
    shared = {tuple(sorted(edge)) for edge in edge_balance(faces)}
    assert max(edge_balance(faces).values()) > 1
    assert len(shared) < 40
    assert_closed(close_surface(faces), torch.rand(8, 3, generator=generator))


@pytest.mark.parametrize(
    ("faces", "apexes"),
    [
        ([[0, 1, 2]], 1),
        ([[0, 1, 2], [0, 3, 4]], 1),  # two loops that touch in a point
        ([[0, 1, 2], [3, 4, 5]], 2),
        ([[0, 1, 2], [0, 1, 3], [0, 1, 4]], 1),  # three faces run along one edge the same way
        ([[0, 1, 2], [0, 1, 2]], 1),  # one face twice
        ([[0, 1, 2], [0, 2, 1]], 0),  # two faces back to back
        ([[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1]], 1),  # a Möbius band, which has no sides
    ],
)
def test_each_component_of_the_boundary_gets_one_apex(faces, apexes):
    surface = close_surface(torch.tensor(faces))
    assert len(surface.loops) == apexes
    assert_closed(surface, torch.rand(6, 3, generator=torch.Generator().manual_seed(1)))


def test_boundary_edges_are_counted_as_often_as_their_opposites_lack():
    assert boundary_edges(np.array([[5, 1, 2]])).tolist() == [[1, 2], [5, 1], [2, 5]]
    along_one_edge = boundary_edges(np.array([[0, 1, 2], [0, 1, 3], [1, 0, 4]])).tolist()
    assert along_one_edge.count([0, 1]) == 1
    twice = boundary_edges(np.array([[0, 1, 2], [0, 1, 2]])).tolist()
    assert sorted(twice) == [[0, 1], [0, 1], [1, 2], [1, 2], [2, 0], [2, 0]]


def test_a_pipe_cut_at_both_ends_gets_flat_lids():
    # A pipe of 16 sides with radius 0.3 and length 2 has the volume of its cross-section of 16 triangles times 2.
    mesh = trimesh.creation.cylinder(radius=0.3, height=2.0, sections=16)
    wall = np.abs(mesh.face_normals[:, 2]) < 0.5
    vertices, faces = tensors(mesh)
    surface = close_surface(faces[torch.from_numpy(wall)])
    points = surface.take(vertices)
    assert sorted(points[-2:].tolist()) == [[pytest.approx(0, abs=1e-7)] * 2 + [z] for z in (-1.0, 1.0)]
    assert volume((points, surface.faces)) == pytest.approx(16 * 0.5 * 0.3**2 * math.sin(math.tau / 16) * 2, rel=1e-6)


def test_the_ball_with_a_cap_cut_off_holds_what_is_left_of_it():
    # A ball of radius 1 cut at height 0.5 has the volume π (2/3 + 0.5 − 0.5³/3).
    vertices, faces = tensors(trimesh.creation.icosphere(subdivisions=5))
    below = (vertices[faces][..., 2] < 0.5).all(-1)
    vertices[:, 2] = vertices[:, 2].where(vertices[:, 2] < 0.5, 0.5)
    surface = close_surface(faces[below])
    assert len(surface.loops) == 1
    assert volume((surface.take(vertices), surface.faces)) == pytest.approx(
        math.pi * (2 / 3 + 0.5 - 0.5**3 / 3), rel=0.03
    )


def test_an_apex_is_the_mean_of_its_loop_in_every_frame():
    vertices, faces = ball(subdivisions=1)
    surface = close_surface(faces[:50])
    frames = torch.rand(2, 3, len(vertices), 3, generator=torch.Generator().manual_seed(0))
    taken = surface.take(frames)
    count = len(surface.vertices)
    assert taken.shape == (2, 3, count + len(surface.loops), 3)
    assert torch.equal(taken[..., :count, :], frames[..., surface.vertices, :])
    for number, loop in enumerate(surface.loops):
        borders = {v for face in surface.faces.tolist() if count + number in face for v in face} - {count + number}
        assert sorted(loop.tolist()) == sorted(borders)
        torch.testing.assert_close(
            taken[..., count + number, :], frames[..., surface.vertices[loop], :].mean(-2), rtol=0, atol=1e-6
        )


def test_numbers_of_vertices_need_not_be_dense():
    surface = close_surface(torch.tensor([[70, 9, 400]]))
    assert surface.vertices.tolist() == [9, 70, 400]
    assert surface.faces[0].tolist() == [1, 0, 2]
    assert surface.take(torch.rand(500, 3)).shape == (4, 3)


def test_no_faces_give_an_empty_surface():
    surface = close_surface(torch.zeros(0, 3, dtype=torch.int64))
    assert surface.is_empty
    assert not close_surface(torch.tensor([[0, 1, 2]])).is_empty
    assert surface.take(torch.rand(2, 5, 3)).shape == (2, 0, 3)
    assert orient_outwards(surface, torch.zeros(0, 3)) is surface


def unwelded(mesh):
    """Every face with corners of its own, as files with seams everywhere have them."""
    return mesh[0][mesh[1]].reshape(-1, 3), torch.arange(3 * len(mesh[1])).view(-1, 3)


def test_welding_finds_the_vertices_of_a_mesh_cut_along_every_edge(device):
    mesh = ball()
    vertices, faces = (x.to(device) for x in unwelded(mesh))
    assert len(boundary_edges(faces.cpu().numpy())) == 3 * len(mesh[1])
    representative, welded = (x.cpu() for x in weld(vertices, faces))
    assert len(boundary_edges(welded.numpy())) == 0
    assert len(representative.unique()) == len(mesh[0])
    assert torch.equal(vertices.cpu()[representative], vertices.cpu())
    assert torch.equal(vertices.cpu()[welded], vertices.cpu()[faces.cpu()])
    # The first vertex at a position stands for all of them.
    assert (representative <= torch.arange(len(representative))).all()
    assert torch.equal(representative[representative], representative)


def test_welding_joins_zeros_of_either_sign_but_not_near_positions():
    vertices = torch.tensor([[0.0, 1.0, 0.0], [-0.0, 1.0, -0.0], [1e-7, 1.0, 0.0], [3.0, 0.0, 0.0]])
    representative, faces = weld(vertices, torch.tensor([[1, 2, 3], [0, 1, 3], [0, 3, 1], [1, 1, 2]]))
    assert representative.tolist() == [0, 0, 2, 3]
    assert faces.tolist() == [[0, 2, 3]]


def test_a_part_that_is_inside_out_is_turned_and_named_in_a_warning(caplog):
    mesh = joined(ball(), inside_out(box(0.3, (3.0, 0.0, 0.0))), ring())
    surface = close_surface(mesh[1])
    with caplog.at_level(logging.WARNING, "retargetbench"):
        turned = orient_outwards(surface, surface.take(mesh[0]))
    assert "1 part(s) of the surface are inside out" in caplog.text
    points = torch.tensor([[3.0, 0.05, 0.0], [0.1, 0.2, 0.0], [2.0, 2.0, 2.0]])
    assert winding_number(mesh[0], surface.faces, points).tolist() == [-1, 1, 0]
    assert winding_number(mesh[0], turned.faces, points).tolist() == [1, 1, 0]
    unchanged = (turned.faces == surface.faces).all(-1)
    assert int((~unchanged).sum()) == 12


def test_parts_that_face_outwards_or_hold_next_to_nothing_stay(caplog):
    tiny = inside_out(ball(0.02, (2.0, 0.0, 0.0)))
    mesh = joined(ball(), tiny)
    surface = close_surface(mesh[1])
    assert orient_outwards(surface, mesh[0]) is surface
    alone = close_surface(tiny[1])
    assert torch.equal(orient_outwards(alone, tiny[0]).faces, tiny[1].flip(-1))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_orientation_does_not_depend_on_where_the_mesh_is_or_how_it_is_numbered(shift):
    mesh = joined(ball(0.5, (1.0, 0.0, 0.0)), inside_out(ball(0.4, (-1.0, 0.0, 0.0))))
    order = torch.randperm(len(mesh[0]), generator=torch.Generator().manual_seed(0))
    vertices, faces = mesh[0][order] + shift, order.argsort()[mesh[1]]
    surface = close_surface(faces)
    turned = orient_outwards(surface, surface.take(vertices))
    points = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.1, 0.0], [0.0, 0.0, 0.0]]) + shift
    assert winding_number(surface.take(vertices), turned.faces, points).tolist() == [1, 1, 0]
