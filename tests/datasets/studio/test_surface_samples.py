"""Samples of the skin: on the faces asked for, spread evenly, and moved as the platform moves skin."""

from __future__ import annotations

import pytest
import roma
import torch

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.places import rest_normals
from retargetbench.datasets.studio.surface_samples import joint_transforms, pose_rows, sample_surface
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.skeleton import canonical_index


@pytest.fixture(scope="module", params=["stout", "child"])
def body(request):
    return open_dataset("capsules").character(request.param)


@pytest.fixture(scope="module")
def torso(body):
    """Faces whose skin is the hips' or the spine's."""
    part = body.dominant_joint[body.faces]
    return ((part == canonical_index("Hips")) | (part == canonical_index("Spine1"))).all(-1).nonzero()[:, 0]


def poses(body, frames=5):
    generator = torch.Generator().manual_seed(1)
    axes = torch.randn(frames, 22, 3, generator=generator, dtype=torch.float64)
    root = torch.randn(frames, 3, generator=generator, dtype=torch.float64)
    return forward_kinematics(body.skeleton, root, roma.rotvec_to_unitquat(0.4 * axes))


def distances_to_triangles(points, corners):
    """From each point to the nearest of all triangles by quadratic minimisation over each face and its edges, (N,)."""
    a, b, c = (corners[:, k] for k in range(3))
    best = torch.full((len(points),), torch.inf, dtype=points.dtype)
    normal = torch.nn.functional.normalize(torch.linalg.cross(b - a, c - a), dim=-1)
    for k, point in enumerate(points):
        for start, end in ((a, b), (b, c), (c, a)):
            span = end - start
            along = (((point - start) * span).sum(-1) / span.square().sum(-1)).clamp(0, 1)
            best[k] = torch.minimum(best[k], (start + along[:, None] * span - point).norm(dim=-1).min())
        height = ((point - a) * normal).sum(-1)
        foot = point - height[:, None] * normal
        inside = torch.ones(len(a), dtype=torch.bool)
        for start, end in ((a, b), (b, c), (c, a)):
            inside &= (torch.linalg.cross(end - start, foot - start) * normal).sum(-1) >= 0
        if inside.any():
            best[k] = torch.minimum(best[k], height[inside].abs().min())
    return best


def test_samples_lie_on_the_faces_asked_for(body, torso):
    samples = sample_surface(body, torso, 60)
    corners = body.rest_vertices.double()[body.faces[torso]]
    assert len(samples) == 60
    assert distances_to_triangles(samples.positions, corners).max() < 1e-9


def test_samples_have_unit_normals_that_look_outwards_and_weights_that_sum_to_one(body, torso):
    samples = sample_surface(body, torso, 60)
    torch.testing.assert_close(samples.normals.norm(dim=-1), torch.ones(60, dtype=torch.float64))
    torch.testing.assert_close(samples.weights.sum(-1), torch.ones(60, dtype=torch.float64), atol=1e-6, rtol=0)
    nearest = torch.cdist(samples.positions, body.rest_vertices.double()).argmin(-1)
    assert ((samples.normals * rest_normals(body)[nearest]).sum(-1) > 0.5).all()


def test_samples_are_spread_more_evenly_than_random_points_and_leave_no_hole(body, torso):
    count = 80
    samples = sample_surface(body, torso, count)
    generator = torch.Generator().manual_seed(0)
    corners = body.rest_vertices.double()[body.faces[torso]]
    a, b, c = corners.unbind(1)
    area = torch.linalg.cross(b - a, c - a).norm(dim=-1) / 2
    face = torch.multinomial(area, 3000, replacement=True, generator=generator)
    shares = torch.distributions.Dirichlet(torch.ones(3, dtype=torch.float64)).sample((3000,))
    anywhere = (shares[..., None] * corners[face]).sum(1)

    def nearest_neighbour(points):
        return (torch.cdist(points, points) + torch.eye(len(points)) * 1e3).min(-1).values

    # A hexagonal lattice with one point for each share of the area has this distance between neighbours.
    ideal = float((2 * area.sum() / (3**0.5 * count)).sqrt())
    assert nearest_neighbour(samples.positions).min() > 0.45 * ideal
    assert nearest_neighbour(anywhere[:count]).min() < 0.3 * ideal
    assert torch.cdist(anywhere, samples.positions).min(-1).values.max() < 1.3 * ideal


def test_a_seed_gives_the_same_samples_again_and_another_gives_others(body, torso):
    first, again, other = (sample_surface(body, torso, 20, seed=seed).positions for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("faces", "count"), [([], 10), ([0, 1], 0)])
def test_nothing_to_sample_gives_no_samples(body, faces, count):
    samples = sample_surface(body, torch.tensor(faces, dtype=torch.int64), count)
    assert len(samples) == 0
    assert samples.weights.shape == (0, 22)
    assert pose_rows(samples.skinning_rows()[0], torch.zeros(4, 22, 3, 4, dtype=torch.float64)).shape == (4, 0, 3)


def test_one_sample_is_enough(body, torso):
    assert len(sample_surface(body, torso[:1], 1)) == 1


def test_posed_samples_are_where_the_platform_skins_them(body):
    samples = sample_surface(body, torch.arange(len(body.faces)), 50)
    double = body.to(dtype=torch.float64)
    rotations, positions = poses(double)
    rest = double.skeleton.rest_positions
    posed = pose_rows(samples.skinning_rows()[0], joint_transforms(rest, rotations, positions))
    expected = Skinner.from_points(double, samples.positions, samples.weights).pose(rotations, positions)
    # capsule bodies are bound at their T-pose in float32, so their inverse binds are rounded to 1e-7
    torch.testing.assert_close(posed, expected, atol=1e-5, rtol=0)


def test_normals_turn_with_a_body_that_turns_as_a_whole(body):
    samples = sample_surface(body, torch.arange(len(body.faces)), 50)
    turn = roma.rotvec_to_rotmat(torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64))
    rest = body.skeleton.rest_positions.double()
    transforms = joint_transforms(rest, turn.expand(1, 22, 3, 3), (rest @ turn.T)[None] + 0.7)
    posed = pose_rows(samples.skinning_rows()[1], transforms)[0]
    torch.testing.assert_close(posed, samples.normals @ turn.T, atol=1e-6, rtol=0)  # weights are float32


def test_normals_follow_the_blend_of_their_joints_rotations(body):
    samples = sample_surface(body, torch.arange(len(body.faces)), 30)
    rotations, positions = poses(body.to(dtype=torch.float64))
    transforms = joint_transforms(body.skeleton.rest_positions.double(), rotations, positions)
    posed = pose_rows(samples.skinning_rows()[1], transforms)
    blended = torch.einsum("nj,tjab,nb->tna", samples.weights, rotations, samples.normals)
    torch.testing.assert_close(posed, blended)


def test_joined_and_taken_samples_keep_their_order(body, torso):
    first, second = sample_surface(body, torso, 5), sample_surface(body, torso, 7, seed=1)
    both = first.joined(second)
    assert len(both) == 12
    assert torch.equal(both.take(torch.arange(5, 12)).positions, second.positions)
    assert torch.equal(both.take(torch.arange(12) < 5).weights, first.weights)
