"""Quality gates: known defects give the numbers that one works out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import igl
import pytest
import roma
import torch

from retargetbench.clip import Clip
from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.contact_shape import contact_shape
from retargetbench.datasets.studio.gates import (
    ACCELERATION_RATIO,
    CONTACT_GAP,
    FOOT_DRIFT,
    FOOT_SPEED,
    LIMIT_SHARE,
    PENETRATION,
    UNFOLDED_DEPTH,
    Quality,
    failed_gates,
    measure_quality,
    resting_slip,
)
from retargetbench.datasets.studio.performance import Contact, FootTrack, Performance
from retargetbench.datasets.studio.places import find_place
from retargetbench.errors import CharacterError, DatasetError
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.metrics.base import Evaluation
from retargetbench.metrics.penetration import Penetration
from retargetbench.motion import Motion
from retargetbench.skeleton import canonical_index

FRAMES, FPS = 31, 30.0
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


@pytest.fixture(scope="module")
def body():
    return open_dataset("capsules").character("stout")


def about(axis, degrees):
    """Rotations by angles (T,) about an axis, (T, 4)."""
    return roma.rotvec_to_unitquat(torch.deg2rad(torch.as_tensor(degrees).float())[..., None] * torch.tensor(axis))


def motion_of(body, root=(0.0, 0.0, 0.0), **joints):
    """The T-pose moved by ``root`` ((3,) or (T, 3)) with some joints turned."""
    rotations = torch.tensor([0.0, 0.0, 0.0, 1.0]).repeat(FRAMES, 22, 1)
    for joint, rotation in joints.items():
        rotations[:, canonical_index(joint)] = rotation
    return Motion(body.skeleton.offsets[0].float() + torch.as_tensor(root).expand(FRAMES, 3), rotations, FPS)


def track(planted):
    still = torch.zeros(FRAMES)
    return FootTrack(torch.zeros(FRAMES, 2), still, still, about(X, still), still, torch.zeros(FRAMES, 3), planted)


def contact(moving, first, second=None, *, gap=0.0, active=None):
    active = torch.ones(FRAMES, dtype=torch.bool) if active is None else active
    slides = second is not None
    return Contact(moving, first, second or first, torch.linspace(0, 1, FRAMES), active, gap, slides)


def performance(*contacts, planted=None):
    planted = torch.ones(FRAMES, dtype=torch.bool) if planted is None else planted
    rotations = torch.tensor([0.0, 0.0, 0.0, 1.0]).repeat(FRAMES, 22, 1)
    feet = (track(planted), track(planted))
    hands = {"left": "flat", "right": "flat"}
    return Performance("test", "free", FPS, rotations, torch.zeros(FRAMES, 3), feet, contacts, hands)


PERFECT = Quality(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)


def test_the_still_t_pose_passes_all_gates(body):
    quality = measure_quality(body, motion_of(body), performance(), None)
    assert failed_gates(quality, body.height) == ()
    assert quality.contact_gap is quality.contact_distance is None
    assert quality.penetration == quality.foot_speed == quality.foot_drift == quality.acceleration == 0
    assert quality.acceleration_ratio == 1
    assert quality.foot_height == pytest.approx(0, abs=1e-6)
    assert quality.limit_excess_deg == quality.limit_share == 0


@pytest.mark.parametrize("direction", [(1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (0.6, 0.0, 0.8)])
def test_feet_that_move_by_three_centimetres_in_a_second_are_found(body, direction):
    root = 0.03 * torch.linspace(0, 1, FRAMES)[:, None] * torch.tensor(direction)
    quality = measure_quality(body, motion_of(body, root), performance(), None)
    assert quality.foot_drift == pytest.approx(0.03, rel=1e-4)
    assert quality.foot_speed == pytest.approx(0.03, rel=1e-4)
    assert "foot_drift" in failed_gates(quality, body.height)


def test_a_foot_may_move_between_two_plants(body):
    planted = torch.ones(FRAMES, dtype=torch.bool)
    planted[10:20] = False
    step = torch.linspace(0, 1, FRAMES).mul(FRAMES - 1).sub(9).div(11).clamp(0, 1)
    root = 0.3 * step[:, None] * torch.tensor([0.0, 0.0, 1.0])
    quality = measure_quality(body, motion_of(body, root), performance(planted=planted), None)
    assert quality.foot_drift == pytest.approx(0, abs=1e-5)
    never = torch.zeros(FRAMES, dtype=torch.bool)
    assert measure_quality(body, motion_of(body, root), performance(planted=never), None).foot_speed is None


def test_planted_feet_in_the_air_have_a_height(body):
    quality = measure_quality(body, motion_of(body, (0.0, 0.02, 0.0)), performance(), None)
    assert quality.foot_height == pytest.approx(0.02, abs=1e-5)


def test_a_foot_that_rolls_over_its_ball_does_not_slip(body):
    # Hips, legs and ankle turn as one about the ball; the toes stay on the floor.
    pitch = torch.linspace(0, 40, FRAMES)
    ball = body.skeleton.rest_positions[canonical_index("LeftToeBase")].float()
    from_ball = body.skeleton.offsets[0].float() - ball
    turn = about(X, pitch)
    root = ball + roma.quat_action(turn, from_ball.expand(FRAMES, 3)) - body.skeleton.offsets[0].float()
    motion = motion_of(body, root, Hips=turn, LeftToeBase=roma.quat_inverse(turn))
    lifted = track(torch.zeros(FRAMES, dtype=torch.bool))
    rolling = replace(performance(), feet=(track(torch.ones(FRAMES, dtype=torch.bool)), lifted))
    quality = measure_quality(body, motion, rolling, None)
    assert float((root[-1] - root[0]).norm()) > 0.3
    assert quality.foot_drift < 1e-4
    assert quality.foot_speed < 1e-3


def test_a_foot_that_rolls_over_its_heel_hardly_slips(body):
    pitch = torch.linspace(-25, 0, FRAMES)
    rest = body.rest_vertices[body.dominant_joint == canonical_index("LeftFoot")]
    heel = torch.tensor([0.0, 0.0, float(rest[:, 2].min())])
    from_heel = body.skeleton.offsets[0].float() - heel
    turn = about(X, pitch)
    root = heel + roma.quat_action(turn, from_heel.expand(FRAMES, 3)) - body.skeleton.offsets[0].float()
    lifted = track(torch.zeros(FRAMES, dtype=torch.bool))
    rolling = replace(performance(), feet=(track(torch.ones(FRAMES, dtype=torch.bool)), lifted))
    quality = measure_quality(body, motion_of(body, root, Hips=turn), rolling, None)
    assert quality.foot_drift < FOOT_DRIFT / 2


def moved_part(*steps):
    """Two frames of three vertices, two low and one high, that make these steps along x."""
    part = torch.tensor([[[0.0, 0.0, 0.0], [0.0, 0.001, 1.0], [0.0, 0.5, 0.0]]]).repeat(2, 1, 1)
    part[1, :, 0] += torch.tensor(steps)
    return part


def test_slip_is_that_of_the_lowest_skin():
    toes, heel = moved_part(0.01, 0.03, 9.0), moved_part(0.5, 0.5, 0.5)
    on_toes = torch.tensor([[0.0, 0.2], [0.0, 0.2]])
    torch.testing.assert_close(resting_slip((toes, heel), on_toes, 1.0), torch.tensor([[0.02, 0.0]]))
    torch.testing.assert_close(resting_slip((toes, heel), on_toes, 0.1), torch.tensor([[0.01, 0.0]]))


def test_of_toes_and_heel_the_one_that_holds_the_foot_counts():
    toes, heel = moved_part(0.02, 0.02, 0.02), moved_part(0.01, 0.01, 0.01)
    for lifts, slip in (
        ([[0.0, 0.0], [0.0, 0.0]], 0.01),  # flat
        ([[0.0, 0.1], [0.0, 0.1]], 0.02),  # on the ball
        ([[0.1, 0.0], [0.1, 0.0]], 0.01),  # on the heel
        ([[0.0, 0.0], [0.0, 0.1]], 0.02),  # comes up on the ball
        ([[0.1, 0.0], [0.0, 0.1]], 0.01),  # tips over at once
    ):
        torch.testing.assert_close(resting_slip((toes, heel), torch.tensor(lifts), 1.6), torch.tensor([[slip, 0.0]]))


def test_the_distance_of_places_on_both_thighs_is_twice_theirs_from_the_middle(body):
    place = find_place(body, "left_thigh_inner").position
    quality = measure_quality(
        body, motion_of(body), performance(contact("left_thigh_inner", "right_thigh_inner")), None
    )
    assert quality.contact_distance == pytest.approx(2 * float(place[0]), rel=1e-4)
    assert 0 < quality.contact_gap <= quality.contact_distance + 1e-6


def test_only_what_is_more_than_the_wanted_gap_counts(body):
    contacts = [contact("left_thigh_inner", "right_thigh_inner", gap=gap) for gap in (0.0, 0.01, 0.5)]
    gaps = [measure_quality(body, motion_of(body), performance(c), None).contact_gap for c in contacts]
    assert gaps[1] == pytest.approx(gaps[0] - 0.01 * body.height, rel=1e-4)
    assert gaps[2] == 0


def test_frames_without_contact_do_not_count(body):
    active = torch.zeros(FRAMES, dtype=torch.bool)
    active[:10] = True
    swing = torch.cat([torch.zeros(10), torch.linspace(0, 40, FRAMES - 10)])
    motion = motion_of(body, LeftUpLeg=about(Z, swing))
    alone = performance(contact("left_thigh_inner", "right_thigh_inner", active=active))
    whole = performance(contact("left_thigh_inner", "right_thigh_inner"))
    still = measure_quality(body, motion_of(body), whole, None)
    assert measure_quality(body, motion, alone, None).contact_gap == pytest.approx(still.contact_gap)
    assert measure_quality(body, motion, whole, None).contact_gap > still.contact_gap + 0.1


def rest_patches(body, shape):
    """The points of a contact's patches in the T-pose, as two tensors."""
    motion = motion_of(body)
    points = shape.skinner.pose_motion(motion)[:1].double()
    return points[:, : shape.moving_count], points[:, shape.moving_count :]


def test_a_hand_two_centimetres_from_the_belly_has_a_gap_of_two_centimetres(body):
    shape = contact_shape(body, "left_palm", "belly", "belly")
    moving, touched = rest_patches(body, shape)
    palm, belly = find_place(body, "left_palm"), find_place(body, "belly")
    rotation = roma.special_procrustes(-belly.normal[:, None] @ palm.normal[None] + 1e-9 * torch.eye(3).double())
    turned = (moving - palm.position) @ rotation.T
    for wanted in (0.02, 0.1):
        placed = turned + belly.position + wanted * belly.normal
        posed = torch.cat([placed, touched], 1)
        assert float(shape.distance(posed, None)) == pytest.approx(wanted, abs=1e-5)
        slow = min(
            igl.point_mesh_squared_distance(points[0].numpy(), mesh[0].numpy(), faces.numpy())[0].min() ** 0.5
            for points, mesh, faces in (
                (placed, touched, shape.touched_faces),
                (touched, placed, shape.moving_faces),
            )
        )
        assert float(shape.gap(posed)) == pytest.approx(slow, abs=1e-6)
        # A round palm comes nearer than its middle only where the belly is rounder than flat.
        assert slow == pytest.approx(wanted, abs=0.005)


@pytest.mark.parametrize("off", [-0.03, -0.01, 0.01])
def test_a_hand_in_the_belly_is_as_deep_as_its_deepest_point(body, off):
    shape = contact_shape(body, "left_palm", "belly", "belly")
    moving, touched = rest_patches(body, shape)
    palm, belly = find_place(body, "left_palm"), find_place(body, "belly")
    rotation = roma.special_procrustes(-belly.normal[:, None] @ palm.normal[None] + 1e-9 * torch.eye(3).double())
    placed = (moving - palm.position) @ rotation.T + belly.position + off * belly.normal
    mesh = touched[0, shape.way_count :].numpy()
    faces = (shape.touched_faces - shape.way_count).numpy()
    signed = igl.signed_distance(placed[0].numpy(), mesh, faces, sign_type=igl.SIGNED_DISTANCE_TYPE_PSEUDONORMAL)[0]
    expected = max(0.0, -signed.min())
    assert (expected > 0) == (off < 0)
    assert float(shape.depth(torch.cat([placed, touched], 1))) == pytest.approx(expected, abs=1e-6)


def test_contact_errors_are_of_the_signed_distance(body):
    """Copied to the body as it stands, the same hand is as far from the belly however near it should be."""
    errors = []
    for gap in (0.0, 0.01):
        wanted = performance(contact("left_palm", "belly", gap=gap))
        errors.append(measure_quality(body, motion_of(body), wanted, None).contact_error)
    assert errors[0] - errors[1] == pytest.approx(0.01 * body.height, abs=1e-5)


def test_patches_belong_to_the_limbs_of_their_places(body):
    shape = contact_shape(body, "left_palm", "left_thigh_front", "left_knee")
    moving, touched = rest_patches(body, shape)
    assert float((moving[0] - find_place(body, "left_palm").position).norm(dim=-1).max()) < 0.1 * body.height
    assert float(touched[0, :, 1].max()) < body.skeleton.hip_height
    assert float(touched[0, shape.way_count :, 0].min()) > -0.02


def test_a_sliding_contact_is_measured_at_the_nearest_point_of_its_way(body):
    shape = contact_shape(body, "right_palm", "left_thigh_front", "left_shin")
    moving, touched = rest_patches(body, shape)
    for step in (0, 5, shape.way_count - 1):
        placed = moving - moving[:, :1] + touched[:, step : step + 1] + torch.tensor([0.0, 0.0, 0.01]).double()
        posed = torch.cat([placed, touched], 1)
        assert float(shape.distance(posed, None)) <= 0.01 + 1e-9
        share = torch.tensor([step / (shape.way_count - 1)])
        assert float(shape.distance(posed, share)) == pytest.approx(0.01)
    assert float(shape.distance(posed, torch.zeros(1))) > 0.2
    ends = [find_place(body, name).position for name in ("left_thigh_front", "left_shin")]
    torch.testing.assert_close(touched[0, [0, shape.way_count - 1]], torch.stack(ends), atol=1e-5, rtol=0)


def test_penetration_is_that_of_the_metrics(body):
    motion = motion_of(body, LeftArm=about(Z, torch.linspace(0, -110, FRAMES)))
    quality = measure_quality(body, motion, performance(), None)
    evaluation = Evaluation(Clip("test", body, motion), body, motion)
    expected = Penetration().evaluate(evaluation, frozenset({"penetration", "penetration_depth"}))
    assert quality.penetration == expected["penetration"].value > PENETRATION
    assert quality.penetration_depth == expected["penetration_depth"].value > UNFOLDED_DEPTH
    assert {"penetration", "unfolded_depth"} <= set(failed_gates(quality, body.height))


def test_acceleration_is_free_of_size_and_compared_with_the_reference(body):
    time = torch.arange(FRAMES) / FPS
    root = torch.stack([time.square(), 0 * time, 0 * time], -1)
    motion = motion_of(body, root)
    reference = measure_quality(body, motion, performance(), None)
    assert reference.acceleration == pytest.approx(2 / body.height, rel=1e-2)  # float32 positions, times fps²
    assert reference.acceleration_ratio == 1
    doubled = measure_quality(body, motion_of(body, 2 * root), performance(), reference)
    assert doubled.acceleration_ratio == pytest.approx(2, rel=1e-2)
    assert "acceleration" in failed_gates(doubled, body.height)
    still = measure_quality(body, motion_of(body), performance(), None)
    assert measure_quality(body, motion, performance(), still).acceleration_ratio == math.inf


def test_an_elbow_hyperextended_by_twenty_degrees_is_ten_beyond_its_range(body):
    angles = torch.zeros(FRAMES)
    angles[:2] = 20.0
    quality = measure_quality(body, motion_of(body, LeftForeArm=about(Y, angles)), performance(), None)
    assert quality.limit_excess_deg == pytest.approx(10, abs=1e-3)
    assert quality.limit_share == pytest.approx(2 / FRAMES)
    assert "joint_limits" in failed_gates(quality, body.height)


def test_four_degrees_beyond_a_range_are_recorded_and_pass(body):
    quality = measure_quality(body, motion_of(body, LeftForeArm=about(Y, 14.0)), performance(), None)
    assert quality.limit_excess_deg == pytest.approx(4, abs=1e-3)
    assert quality.limit_share == 0
    assert "joint_limits" not in failed_gates(quality, body.height)


@pytest.mark.parametrize(
    ("figure", "gate", "threshold"),
    [
        ("contact_gap", "contact_gap", CONTACT_GAP * 1.75),
        ("penetration", "penetration", PENETRATION),
        ("unfolded_depth", "unfolded_depth", UNFOLDED_DEPTH),
        ("foot_speed", "foot_speed", FOOT_SPEED),
        ("foot_drift", "foot_drift", FOOT_DRIFT),
        ("acceleration_ratio", "acceleration", ACCELERATION_RATIO),
        ("limit_share", "joint_limits", LIMIT_SHARE),
    ],
)
def test_a_gate_closes_just_above_its_threshold(figure, gate, threshold):
    assert failed_gates(replace(PERFECT, **{figure: threshold}), 1.75) == ()
    assert failed_gates(replace(PERFECT, **{figure: math.nextafter(threshold, math.inf)}), 1.75) == (gate,)
    assert failed_gates(replace(PERFECT, **{figure: math.nan}), 1.75) == (gate,)


def test_the_gap_that_passes_grows_with_the_body():
    assert math.isclose(1.75 * CONTACT_GAP, 0.015)
    gap = replace(PERFECT, contact_gap=0.01)
    assert failed_gates(gap, 1.75) == ()
    assert failed_gates(gap, 1.0) == ("contact_gap",)


def test_what_could_not_be_measured_passes():
    unknown = Quality(**{field.name: None for field in fields(Quality)[:-2]}, limit_excess_deg=0.0, limit_share=0.0)
    assert failed_gates(unknown, 1.7) == ()


def test_rows_are_plain_numbers(body):
    quality = measure_quality(body, motion_of(body), performance(contact("left_palm", "belly")), None)
    assert Quality(**json.loads(json.dumps(quality.to_row()))) == quality


def test_motions_that_do_not_fit_are_refused(body):
    motion = motion_of(body)
    with pytest.raises(DatasetError, match=r"test on stout: .* 31 frames at 30\.0 fps, got 30 at 30\.0"):
        measure_quality(body, motion.frames(0, 30), performance(), None)
    with pytest.raises(CharacterError, match="motion of 20"):
        measure_quality(body, replace(motion, local_rotations=motion.local_rotations[:, :20]), performance(), None)


def test_a_body_bound_in_another_pose_gives_the_same_figures(body):
    bent = motion_of(body, LeftArm=about(Z, torch.full((FRAMES,), -40.0)))
    rotations, positions = forward_kinematics(body.skeleton, bent.root_translation[0], bent.local_rotations[0])
    world = Skinner.from_character(body).pose(rotations, positions)
    inverse_bind = torch.eye(4).repeat(22, 1, 1)
    inverse_bind[:, :3, :3] = rotations.transpose(-1, -2)
    inverse_bind[:, :3, 3] = -(rotations.transpose(-1, -2) @ positions[..., None])[..., 0]
    # Skin of several bones does not come back to where it was, but palm and belly are far from the shoulder.
    rebound = replace(body, bind_vertices=world, inverse_bind=inverse_bind)
    shapes = [contact_shape(b, "left_palm", "belly", "belly") for b in (body, rebound)]
    one, other = (rest_patches(b, shape) for b, shape in zip((body, rebound), shapes, strict=True))
    torch.testing.assert_close(one[0], other[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(one[1], other[1], atol=1e-4, rtol=0)
