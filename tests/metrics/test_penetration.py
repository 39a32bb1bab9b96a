"""Penetration against numbers worked out by hand and plain geometry of boxes and balls."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import roma
import torch
from penetration_rigs import HALF_WIDTH, RINGS, box_figure, evaluation, folded, rest_motion, sphere_figure
from sensor_rigs import reordered, scaled, subdivided, unwelded
from torch.nn.functional import pad

from retargetbench.datasets.opening import open_dataset
from retargetbench.metrics import BUILTIN_METRICS
from retargetbench.metrics.base import Evaluation
from retargetbench.metrics.obstacles import body_model
from retargetbench.metrics.penetration import Penetration, percent_inside
from retargetbench.motion import Motion
from retargetbench.skeleton import canonical_index

(INFO,) = (info for info in BUILTIN_METRICS if info.name == "penetration")
COLUMNS = frozenset(column.name for column in INFO.columns)
ARM_VERTICES = 2 * 16 * len(RINGS)


def evaluate(character, motion, columns=COLUMNS):
    return Penetration().evaluate(evaluation(character, motion), frozenset(columns))


def value(character, motion, column="penetration"):
    return evaluate(character, motion, {column})[column].value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_folded_forearm_gives_the_numbers_worked_out_by_hand(device, dtype):
    # Folded at 0.45, a ring at x comes to 0.9 − x. The 8 rings from 0.78 to 0.92 of 42 are then within ±0.13.
    # An end ring has half the area of another, so by area it is 7.5 of 41. At 45° around the arm the skin is
    # 0.13 − 0.04 / √2 from two sides of the box. Rings 0.10 and 0.12 are inside at rest and 0.14 and 0.16 nearer than
    # the arm's radius of 0.04, so 4 of 42 never count.
    character = box_figure(0.45, dtype=dtype).to(device)
    values = evaluate(character, folded(character, left=(True,)))
    assert values["penetration"].value == pytest.approx(100 * 8 / 84, rel=1e-6)
    assert values["penetration_left_arm"].value == pytest.approx(100 * 8 / 42, rel=1e-6)
    assert values["penetration_right_arm"].value == 0
    assert values["penetration_area"].value == pytest.approx(100 * 7.5 / 82, rel=1e-5)
    assert values["penetration_depth"].value == pytest.approx(HALF_WIDTH - 0.04 * math.sqrt(0.5), abs=1e-6)
    assert values["penetration_guard"].value == pytest.approx(100 * 4 / 42, rel=1e-6)


def test_limbs_in_the_trunk_are_counted_over_all_limb_vertices():
    character = box_figure(0.45)
    legs = sum(int((character.dominant_joint == canonical_index(side + "Leg")).sum()) for side in ("Left", "Right"))
    share = 100 * 8 * 16 / (ARM_VERTICES + legs)
    motion = folded(character, left=(True,))
    assert value(character, motion, "penetration_limbs") == pytest.approx(share, rel=1e-6)
    assert value(character, motion, "penetration_self") == pytest.approx(share, rel=1e-6)


def test_only_self_penetration_sees_a_leg_in_the_other():
    character = box_figure()
    angle = math.asin(0.17 / 0.65)
    motion = rest_motion(character)
    turn = roma.rotvec_to_unitquat(torch.tensor([0.0, 0.0, -angle], dtype=torch.float64))
    motion.local_rotations[0, canonical_index("LeftUpLeg")] = turn
    hip = character.skeleton.rest_positions[canonical_index("LeftUpLeg")]
    left, right = (
        character.rest_vertices[character.dominant_joint == canonical_index(side + "Leg")] for side in ("Left", "Right")
    )
    in_right = strictly_within(roma.quat_action(turn.expand(len(left), 4), left - hip) + hip, right)
    in_left = strictly_within(roma.quat_action(roma.quat_inverse(turn).expand(len(right), 4), right - hip) + hip, left)
    assert in_right > 0
    assert in_left > 0
    share = 100 * (in_right + in_left) / (ARM_VERTICES + len(left) + len(right))
    values = evaluate(character, motion)
    assert values["penetration_self"].value == pytest.approx(share, rel=1e-6)
    assert values["penetration"].value == values["penetration_limbs"].value == 0


def strictly_within(points, box):
    """Number of points inside the box around some other points."""
    return int(((points > box.amin(0)) & (points < box.amax(0))).all(-1).sum())


def test_nothing_penetrates_at_rest():
    characters = [box_figure(), sphere_figure(0.45), *map_bodies()]
    for character in characters:
        values = evaluate(character, rest_motion(character))
        for column in COLUMNS - {"penetration_guard", "penetration_nearest_normal"}:
            assert values[column].value == 0, (character.name, column)


def map_bodies():
    dataset = open_dataset("capsules")
    return [dataset.character(name) for name in dataset.character_names]


@pytest.mark.parametrize("elbow", [0.37, 0.41, 0.45, 0.49, 0.53])
def test_shares_inside_a_box_are_those_of_plain_geometry(elbow):
    moved = 2 * elbow - RINGS[elbow - 1e-9 <= RINGS]
    share = 100 * np.count_nonzero(abs(moved) < HALF_WIDTH) / (2 * len(RINGS))
    character = box_figure(elbow)
    assert value(character, folded(character, left=(True,))) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("elbow", [0.47, 0.50, 0.53])
def test_shares_and_depths_in_a_ball_that_was_cut_are_those_of_plain_geometry(elbow):
    # The faces of the ball are at most 0.1 mm inside the sphere; no vertex is that near to it.
    character = sphere_figure(elbow)
    moved = 2 * elbow - RINGS[elbow - 1e-9 <= RINGS]
    radii = np.hypot(moved, 0.04)
    assert abs(radii - 0.2).min() > 2e-4
    values = evaluate(character, folded(character, left=(True,), right=(True,)))
    assert values["penetration"].value == pytest.approx(100 * np.count_nonzero(radii < 0.2) / len(RINGS), rel=1e-6)
    assert values["penetration_depth"].value == pytest.approx(0.2 - radii.min(), abs=2e-4)
    # On a ball the nearest vertex's normal is right, here for lack of anything but a ball.
    assert values["penetration_nearest_normal"].value == pytest.approx(values["penetration"].value, abs=0.3)


def test_penetration_grows_as_the_hand_is_pushed_in():
    figures = [box_figure(elbow) for elbow in (0.53, 0.51, 0.49, 0.47, 0.45)]
    values = [evaluate(figure, folded(figure, left=(True,))) for figure in figures]
    for column in ("penetration", "penetration_area", "penetration_limbs", "penetration_self"):
        shares = [found[column].value for found in values]
        assert shares[0] == 0
        assert all(low < high for low, high in itertools.pairwise(shares)), column
    depths = [found["penetration_depth"].value for found in values]
    assert depths[0] == 0
    # From the middle of the box on, another side is nearer.
    assert all(low < high for low, high in itertools.pairwise(depths[:4]))


def test_order_of_vertices_and_faces_does_not_matter():
    character = box_figure()
    motion = folded(character, left=(True,), right=(True,))
    expected = evaluate(character, motion)
    shuffled = evaluate(reordered(character), motion)
    for column in COLUMNS:
        assert shuffled[column].value == pytest.approx(expected[column].value, rel=1e-6), column


def test_seams_at_which_vertices_are_doubled_do_not_open_the_body():
    character = unwelded(box_figure())
    values = evaluate(character, folded(character, left=(True,)))
    assert values["penetration_area"].value == pytest.approx(100 * 7.5 / 82, rel=1e-5)
    assert values["penetration_depth"].value == pytest.approx(HALF_WIDTH - 0.04 * math.sqrt(0.5), abs=1e-6)


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_shares_do_not_depend_on_size_and_depth_grows_with_it(scale):
    small = box_figure()
    large = scaled(small, scale)
    expected, found = (evaluate(figure, folded(figure, left=(True,))) for figure in (small, large))
    for column in COLUMNS - {"penetration_depth"}:
        assert found[column].value == pytest.approx(expected[column].value, rel=1e-5), column
    assert found["penetration_depth"].value == pytest.approx(scale * expected["penetration_depth"].value, rel=1e-4)


def test_turning_and_moving_everything_changes_nothing():
    character = box_figure()
    motion = folded(character, left=(True,))
    turn = roma.rotvec_to_unitquat(torch.tensor([0.4, 1.1, -0.3], dtype=torch.float64))
    rotations = motion.local_rotations.clone()
    rotations[:, 0] = roma.quat_product(turn.expand(1, 4), rotations[:, 0])
    moved = Motion(motion.root_translation + torch.tensor([3.0, 1.0, -2.0]), rotations, motion.fps)
    expected, found = evaluate(character, motion), evaluate(character, moved)
    for column in COLUMNS:
        assert found[column].value == pytest.approx(expected[column].value, abs=1e-5), column


def test_the_share_by_area_hardly_depends_on_the_density_of_the_mesh():
    coarse = box_figure()
    fine = subdivided(coarse)
    values = [evaluate(figure, folded(figure, left=(True,))) for figure in (coarse, fine)]
    # Half a ring's distance at the side of the box is the most that either can be off.
    assert values[1]["penetration_area"].value == pytest.approx(values[0]["penetration_area"].value, abs=0.7)


def test_skin_inside_two_shells_counts():
    # A shirt: the box once more, a little larger, held by the same joint. Parity would call its inside outside.
    figure = box_figure()
    trunk = figure.dominant_joint == canonical_index("Spine1")
    middle = figure.bind_vertices[trunk].mean(0)
    shirt = middle + 1.05 * (figure.bind_vertices[trunk] - middle)
    place = torch.full((figure.vertex_count,), -1)
    place[trunk] = figure.vertex_count + torch.arange(int(trunk.sum()))
    dressed = replace(
        figure,
        bind_vertices=torch.cat([figure.bind_vertices, shirt]),
        faces=torch.cat([figure.faces, place[figure.faces[trunk[figure.faces].all(-1)]]]),
        influence_joints=torch.cat([figure.influence_joints, figure.influence_joints[trunk]]),
        influence_weights=torch.cat([figure.influence_weights, figure.influence_weights[trunk]]),
    )
    assert value(dressed, folded(dressed, left=(True,))) == pytest.approx(100 * 8 / 84, rel=1e-6)


def test_a_shell_that_is_inside_out_counts_as_the_body_it_is():
    figure = box_figure()
    trunk = figure.dominant_joint == canonical_index("Spine1")
    of_trunk = trunk[figure.faces].all(-1)
    turned = replace(figure, faces=torch.where(of_trunk[:, None], figure.faces.flip(-1), figure.faces))
    assert value(turned, folded(turned, left=(True,))) == pytest.approx(100 * 8 / 84, rel=1e-6)


def test_frames_count_alike_and_long_clips_are_as_short_ones():
    character = box_figure()
    folds = tuple(frame % 4 == 1 for frame in range(150))
    values = evaluate(character, folded(character, left=folds))
    share = torch.tensor(folds) * 100 * 8 / 84
    torch.testing.assert_close(values["penetration"].per_frame.double(), share, rtol=1e-6, atol=0, check_dtype=False)
    assert values["penetration"].value == pytest.approx(float(share.mean()), rel=1e-6)
    deepest = HALF_WIDTH - 0.04 * math.sqrt(0.5)
    assert values["penetration_depth"].value == pytest.approx(deepest, abs=1e-6)
    depths = values["penetration_depth"].per_frame.double()
    torch.testing.assert_close(depths, torch.tensor(folds) * deepest, rtol=0, atol=1e-6, check_dtype=False)


def test_other_characters_and_the_ground_truth_do_not_matter():
    source, target = box_figure(0.53), box_figure(0.45)
    motion = folded(target, left=(True,))
    judged = Evaluation(evaluation(source, motion).source, target, motion, ground_truth=rest_motion(target))
    assert Penetration().evaluate(judged, frozenset({"penetration"}))["penetration"].value == pytest.approx(
        100 * 8 / 84, rel=1e-6
    )


@pytest.mark.parametrize("missing", ["arms", "body"])
def test_a_mesh_without_arms_or_without_body_has_no_penetration(missing):
    figure = box_figure()
    arms = torch.isin(figure.dominant_joint, torch.tensor([canonical_index(s + "Arm") for s in ("Left", "Right")]))
    for name in ("LeftForeArm", "RightForeArm", "LeftHand", "RightHand"):
        arms |= figure.dominant_joint == canonical_index(name)
    kept = ~arms if missing == "arms" else arms
    place = torch.cumsum(kept, 0) - 1
    part = replace(
        figure,
        bind_vertices=figure.bind_vertices[kept],
        faces=place[figure.faces[kept[figure.faces].all(-1)]],
        influence_joints=figure.influence_joints[kept],
        influence_weights=figure.influence_weights[kept],
    )
    values = evaluate(part, rest_motion(part))
    of_arms = COLUMNS - {"penetration_limbs", "penetration_self"}
    assert not any(values[column].is_defined for column in of_arms)


def test_only_the_wanted_columns_are_given():
    character = box_figure()
    for columns in ({"penetration_guard"}, {"penetration_self"}, {"penetration_area", "penetration_limbs"}):
        assert evaluate(character, rest_motion(character), columns).keys() == columns


def test_a_remembered_model_is_that_of_the_character():
    character = box_figure()
    assert body_model(character, "arms") is body_model(character, "arms")
    assert body_model(box_figure(), "arms") is not body_model(character, "arms")
    assert len(body_model(character, "self").obstacles) == 4


def test_shares_have_leading_axes_and_none_are_undefined():
    inside = torch.tensor([[True, False, True], [False, False, True]])
    torch.testing.assert_close(percent_inside(inside), torch.tensor([200 / 3, 100 / 3]))
    torch.testing.assert_close(percent_inside(inside, torch.tensor([1.0, 1.0, 2.0])), torch.tensor([75.0, 50.0]))
    assert torch.isnan(percent_inside(pad(inside, (0, -3)))).all()
