"""Inverse kinematics, easing and tubes of which the shipped dataset is made, against closed forms and SciPy."""

from __future__ import annotations

import math

import igl
import numpy as np
import pytest
import torch
import trimesh
from scipy.interpolate import PchipInterpolator
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation, Slerp

from retargetbench.datasets.capsule_bodies import BUILDS, Body
from retargetbench.datasets.capsule_ik import (
    about,
    bone_frame,
    eased,
    segments,
    slerp,
    smoothed,
    smoothstep,
    twist_about_x,
    two_bone,
)
from retargetbench.datasets.capsule_tubes import Profile, around, chain_weights, close_rings, spread, straight_tube
from retargetbench.skeleton import canonical_index

BODIES = [pytest.param(Body(build), id=build.name) for build in BUILDS]


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_limb_of_two_bones_reaches_its_end_and_bends_towards_the_pole():
    start, toward, pole = random(200, 3), random(200, 3, seed=1), random(200, 3, seed=2)
    first, second = 0.4, 0.3
    distance = torch.linspace(0.11, 0.69, 200, dtype=torch.float64)[:, None]
    end = start + toward / toward.norm(dim=-1, keepdim=True) * distance
    upper, lower, hinge = two_bone(start, end, (first, second), pole)
    torch.testing.assert_close(start + first * upper + second * lower, end, rtol=0, atol=1e-12)
    for direction in (upper, lower, hinge):
        torch.testing.assert_close(direction.norm(dim=-1), torch.ones(200, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (upper * hinge).sum(-1).abs().max() < 1e-12
    assert (lower * hinge).sum(-1).abs().max() < 1e-12
    axis = (end - start) / distance
    aside = pole - (pole * axis).sum(-1, keepdim=True) * axis
    middle = first * upper - first * (upper * axis).sum(-1, keepdim=True) * axis
    assert torch.nn.functional.cosine_similarity(aside, middle, dim=-1).min() > 1 - 1e-9


@pytest.mark.parametrize(("distance", "reach"), [(5.0, 0.7), (0.7, 0.7), (0.01, 0.1)])
def test_an_end_out_of_reach_is_approached_along_the_line(distance, reach):
    end = torch.tensor([0.0, -distance, 0.0], dtype=torch.float64)
    upper, lower, _ = two_bone(torch.zeros(3).double(), end, (0.4, 0.3), torch.tensor([0.0, 0.0, 1.0]).double())
    reached = 0.4 * upper + 0.3 * lower
    torch.testing.assert_close(reached, end / distance * reach, rtol=0, atol=2e-6)


def test_a_bone_frame_is_a_right_handed_rotation():
    along = torch.nn.functional.normalize(random(20, 3), dim=-1)
    hinge = torch.nn.functional.normalize(torch.linalg.cross(along, random(20, 3, seed=1)), dim=-1)
    frame = bone_frame(along, hinge)
    torch.testing.assert_close(frame.mT @ frame, torch.eye(3).double().expand(20, 3, 3), rtol=0, atol=1e-12)
    assert torch.linalg.det(frame).min() > 0
    torch.testing.assert_close(frame[..., 0], along)


@pytest.mark.parametrize("axis", ["x", "y", "z"])
def test_rotations_about_axes_are_those_of_scipy(axis):
    angles = np.linspace(-200, 200, 9)
    expected = Rotation.from_euler(axis, angles[:, None], degrees=True).as_matrix()
    np.testing.assert_allclose(about(axis, torch.from_numpy(angles)).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(about(axis, -50.0).numpy(), expected[3], atol=1e-12)


def test_twist_is_followed_through_more_than_a_full_turn():
    angles = torch.linspace(0, 500, 60, dtype=torch.float64)
    torch.testing.assert_close(twist_about_x(about("x", angles)), angles, rtol=0, atol=1e-6)
    torch.testing.assert_close(twist_about_x(about("x", -angles)), -angles, rtol=0, atol=1e-6)
    # A swing across x adds no twist.
    swung = about("z", 40.0) @ about("x", torch.linspace(-120, 120, 30, dtype=torch.float64))
    torch.testing.assert_close(
        twist_about_x(swung), torch.linspace(-120, 120, 30, dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_slerp_goes_the_short_way_like_scipy():
    first, second = (torch.nn.functional.normalize(random(40, 4, seed=seed), dim=-1) for seed in (0, 1))
    share = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None]
    found = slerp(first, second, share)
    for a, b, t, between in zip(first, second, share[:, 0], found, strict=True):
        scipys = Slerp([0, 1], Rotation.from_quat(np.stack([a.numpy(), b.numpy()])))(float(t)).as_quat()
        assert abs(np.dot(scipys, between.numpy())) > 1 - 1e-12
    other_sign = slerp(first, -second, share)
    torch.testing.assert_close((other_sign * found).sum(-1).abs(), torch.ones(40).double(), rtol=0, atol=1e-12)


def test_times_are_found_between_keys_and_held_beyond_them():
    keys = torch.tensor([2.0, 4.0, 10.0], dtype=torch.float64)
    before, share = segments(keys, torch.tensor([0.0, 2.0, 3.0, 4.0, 7.0, 10.0, 12.0], dtype=torch.float64))
    assert before.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert share.tolist() == [0, 0, 0.5, 0, 0.5, 1, 1]


def test_easing_starts_and_stops_without_speed_and_passes_through_its_keys():
    frames = torch.linspace(-1, 11, 2401, dtype=torch.float64)
    values = eased([(0, 1.0), (4, 3.0), (10, -2.0)], frames)
    at = {frame: float(values[int((frame + 1) * 200)]) for frame in (-1, 0, 4, 10, 11)}
    assert at == pytest.approx({-1: 1.0, 0: 1.0, 4: 3.0, 10: -2.0, 11: -2.0})
    speed = values.diff() * 200
    for key in (0, 4, 10):
        assert abs(float(speed[int((key + 1) * 200) - 1])) < 0.02
    assert values.max() == pytest.approx(3.0)
    assert smoothstep(torch.tensor([0.0, 0.5, 1.0])).tolist() == [0, 0.5, 1]


def test_blurring_is_that_of_scipy_with_held_ends():
    values = random(70)
    expected = gaussian_filter1d(values.numpy(), 5.0, mode="nearest", truncate=4.0)
    np.testing.assert_allclose(smoothed(values, 5.0).numpy(), expected, atol=1e-12)


def test_profiles_neither_overshoot_nor_go_on_beyond_their_ends():
    rows = np.array([(0.0, 1.0, 5.0), (1.0, 3.0, 5.0), (1.5, 3.0, 2.0), (4.0, 0.5, 2.0)])
    profile = Profile(rows)
    at = np.linspace(-2, 6, 400)
    found = profile(at)
    assert found.min(0).tolist() == pytest.approx([0.5, 2.0], abs=1e-12)
    assert found.max(0).tolist() == pytest.approx([3.0, 5.0], abs=1e-12)
    np.testing.assert_allclose(profile(rows[:, 0]), rows[:, 1:])
    inner = (at > 0) & (at < 4)
    np.testing.assert_allclose(found[inner], PchipInterpolator(rows[:, 0], rows[:, 1:])(at[inner]))


@pytest.mark.parametrize(
    ("axes", "flat"), [((0, 1, 2), False), ((1, 0, 2), False), ((2, 0, 1), True), ((2, 0, 1), False)]
)
def test_a_straight_tube_holds_what_a_prism_and_two_pyramids_hold(axes, flat):
    # On axis 1 the tube runs downwards, since x crossed with z is −y.
    stations = np.array([3.0, 2.0, 1.0]) if axes == (1, 0, 2) else np.array([1.0, 2.0, 3.0])
    tips = (stations[0] + (stations[0] - stations[1]) / 2, stations[-1] + (stations[1] - stations[0]) / 2)
    vertices, faces = straight_tube(
        np.array([0.3, -0.2, 0.1]), axes, stations, np.full((3, 2), (0.5, 0.25)), tips, 12, flat=flat
    )
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    assert mesh.is_watertight
    base = 12 / 2 * math.sin(math.tau / 12) * 0.5 * 0.25 * (0.5 if flat else 1.0)
    assert mesh.volume == pytest.approx(base * 2 + 2 * base * 0.5 / 3)


def test_rings_are_joined_to_a_ball():
    heights = np.cos(np.linspace(math.pi, 0, 42))[1:-1]
    angle = around(60)
    radius = np.sqrt(1 - heights**2)
    rings = np.stack(
        [np.outer(radius, np.cos(angle)), np.outer(radius, np.sin(angle)), np.outer(heights, angle * 0 + 1)], -1
    )
    vertices, faces = close_rings(rings, np.array([0.0, 0.0, -1.0]), np.array([0.0, 0.0, 1.0]))
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    assert mesh.is_watertight
    assert mesh.euler_number == 2
    assert mesh.volume == pytest.approx(4 / 3 * math.pi, rel=0.01)


def test_a_mirrored_tube_still_faces_outwards_and_belongs_to_the_other_side():
    tube = Body(BUILDS[0])._arm()
    mirrored = tube.mirrored()
    there, here = (trimesh.Trimesh(t.vertices, t.faces, process=False) for t in (tube, mirrored))
    assert here.volume == pytest.approx(there.volume)
    assert here.volume > 0
    assert mirrored.weights[:, canonical_index("RightHand")].tolist() == (
        tube.weights[:, canonical_index("LeftHand")].tolist()
    )
    again = mirrored.mirrored()
    assert np.array_equal(again.vertices, tube.vertices)
    assert np.array_equal(again.faces, tube.faces)
    assert np.array_equal(again.weights, tube.weights)


def test_chain_weights_pass_from_joint_to_joint_and_sum_to_one():
    joints = np.zeros(22)
    chain = ("LeftArm", "LeftForeArm", "LeftHand")
    joints[[canonical_index(name) for name in chain]] = [0.0, 1.0, 2.0]
    at = np.array([-1.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0])
    weights = chain_weights(at, chain, joints, np.array([0.2, 0.1]))
    np.testing.assert_allclose(weights.sum(1), 1)
    columns = weights[:, [canonical_index(name) for name in chain]]
    np.testing.assert_allclose(columns[:, 0], [1, 1, 1, 0.5, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(columns[:, 1], [0, 0, 0, 0.5, 1, 1, 0.5, 0], atol=1e-12)
    np.testing.assert_allclose(columns[:, 2], [0, 0, 0, 0, 0, 0, 0.5, 1], atol=1e-12)


def test_gaps_between_stops_are_divided_evenly():
    assert spread([0.0, 1.0, 0.0], [4, 2]).tolist() == [0, 0.25, 0.5, 0.75, 1, 0.5, 0]
    assert around(4).tolist() == pytest.approx([0, math.pi / 2, math.pi, 1.5 * math.pi])


@pytest.mark.parametrize("body", BODIES)
def test_the_trunk_normal_is_upright_on_its_surface_and_points_out(body):
    trunk = body.trunk
    for share in (0.2, 0.45, 0.7):
        height = float((1 - share) * body.joint("Hips")[1] + share * body.joint("Neck")[1])
        for azimuth in (-2.5, -0.4, 0.3, 1.2):
            normal, point = trunk.normal(height, azimuth), trunk.surface(height, azimuth)
            assert np.linalg.norm(normal) == pytest.approx(1)
            beside = trunk.surface(height + 1e-5, azimuth), trunk.surface(height, azimuth + 1e-5)
            for other in beside:
                along = (other - point) / np.linalg.norm(other - point)
                assert abs(normal @ along) < 1e-3
            assert trunk.clearance(point) == pytest.approx(0, abs=1e-9)
            assert trunk.clearance(point + 0.01 * normal) > 0
            assert trunk.clearance(point - 0.01 * normal) < 0
    assert trunk.clearance(np.array([0.0, 99.0, 0.0])) == np.inf


@pytest.mark.parametrize("body", BODIES)
def test_points_on_the_thigh_are_on_the_skin_of_the_body(body):
    character = body.character
    mesh = (character.rest_vertices.double().numpy(), character.faces.numpy())
    for share, azimuth in ((0.3, 0.0), (0.55, 0.7), (0.6, -0.3)):
        point, normal, weights = body.thigh_surface(share, azimuth)
        distance = np.sqrt(igl.point_mesh_squared_distance(point[None], *mesh)[0][0])
        assert distance < (1 - math.cos(math.pi / 8)) * body.measures.leg_radius  # limbs have at least 8 sides
        assert np.linalg.norm(normal) == pytest.approx(1)
        assert normal @ [math.sin(azimuth), 0, math.cos(azimuth)] > 0.9
        assert weights.sum() == pytest.approx(1)
        assert weights.argmax() == canonical_index("LeftUpLeg")
