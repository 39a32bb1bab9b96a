"""Joint error: hand-worked values, invariances, and an independent slow statement."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion

from retargetbench.clip import Clip
from retargetbench.metrics.base import Evaluation
from retargetbench.metrics.joints import JointError, joint_error, joint_error_local
from retargetbench.motion import Motion
from retargetbench.skeleton import canonical_index

COLUMNS = frozenset({"mse", "mse_local", "rms_distance"})


def _evaluation(motion: Motion, truth: Motion | None) -> Evaluation:
    character = random_character(human_skeleton(extra_joints=True))
    return Evaluation(Clip("walk", character, motion), character, motion, truth)


def _slow_error(positions: np.ndarray, truth: np.ndarray, height: float, *, local: bool) -> list[float]:
    """Eq. 10 read aloud, one joint at a time."""
    by_frame = []
    for t in range(len(positions)):
        total = 0.0
        for j in range(positions.shape[1]):
            if local:
                difference = (positions[t, j] - positions[t, 0]) - (truth[t, j] - truth[t, 0])
            else:
                shift = truth[0, 0] - positions[0, 0]
                difference = positions[t, j] + np.array([shift[0], 0.0, shift[2]]) - truth[t, j]
            total += float(np.dot(difference, difference)) / height
        by_frame.append(total / positions.shape[1])
    return by_frame


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_errors_equal_the_slow_statement(device, dtype):
    rng = np.random.default_rng(0)
    positions, truth = rng.normal(size=(2, 7, 22, 3))
    for function, local in ((joint_error, False), (joint_error_local, True)):
        found = function(
            torch.tensor(positions, dtype=dtype, device=device), torch.tensor(truth, dtype=dtype, device=device), 1.7
        )
        assert found.dtype == dtype
        assert found.device.type == device.type
        expected = _slow_error(positions, truth, 1.7, local=local)
        np.testing.assert_allclose(found.cpu(), expected, rtol=1e-5 if dtype == torch.float32 else 1e-12)


def test_the_ground_truth_itself_scores_zero():
    motion = random_motion(human_skeleton(extra_joints=True), 9)
    values = JointError().evaluate(_evaluation(motion, motion), COLUMNS)
    assert {name: value.value for name, value in values.items()} == dict.fromkeys(COLUMNS, 0.0)


def test_a_hand_three_centimetres_off_gives_the_number_worked_out_by_hand():
    truth = torch.randn(5, 22, 3, dtype=torch.float64)
    moved = truth.clone()
    moved[:, canonical_index("LeftHand"), 1] += 0.03
    expected = torch.full((5,), 0.03**2 / 22 / 1.5, dtype=torch.float64)
    torch.testing.assert_close(joint_error(moved, truth, 1.5), expected)
    torch.testing.assert_close(joint_error_local(moved, truth, 1.5), expected)


def test_a_body_that_floats_ten_centimetres_pays_in_mse_and_not_in_mse_local():
    motion = random_motion(human_skeleton(extra_joints=True), 6)
    floating = Motion(motion.root_translation + torch.tensor([0.0, 0.1, 0.0]), motion.local_rotations, motion.fps)
    evaluation = _evaluation(floating, motion)
    values = JointError().evaluate(evaluation, COLUMNS)
    assert values["mse"].value == pytest.approx(0.01 / evaluation.target.height)
    assert values["mse_local"].value == pytest.approx(0.0, abs=1e-12)
    assert values["rms_distance"].value == pytest.approx(0.1 / evaluation.target.height)
    assert values["rms_distance"].per_frame is not None
    torch.testing.assert_close(
        values["rms_distance"].per_frame, torch.full((6,), 0.1 / evaluation.target.height, dtype=torch.float64)
    )


def test_a_horizontal_shift_of_the_whole_clip_does_not_count():
    truth = torch.randn(5, 22, 3, dtype=torch.float64)
    moved = truth + torch.tensor([3.0, 0.0, -2.0])
    torch.testing.assert_close(joint_error(moved, truth, 1.0), torch.zeros(5, dtype=torch.float64))


def test_drift_counts_from_the_first_frame_on():
    truth = torch.zeros(4, 22, 3, dtype=torch.float64)
    drift = torch.arange(4.0, dtype=torch.float64)[:, None, None] * torch.tensor([0.1, 0.0, 0.0])
    expected = torch.tensor([0.0, 0.01, 0.04, 0.09], dtype=torch.float64) / 2.0
    torch.testing.assert_close(joint_error(truth + drift, truth, 2.0), expected)


def test_errors_grow_with_the_defect():
    truth = torch.randn(5, 22, 3)
    noise = torch.randn(5, 22, 3)
    for function in (joint_error, joint_error_local):
        errors = [float(function(truth + size * noise, truth, 1.0).mean()) for size in (0.0, 0.01, 0.02, 0.1)]
        assert errors == sorted(errors)
        assert errors[0] < errors[1] < errors[2] < errors[3]


def test_turning_both_motions_together_changes_nothing():
    positions, truth = torch.randn(2, 5, 22, 3, dtype=torch.float64)
    sine, cosine = math.sin(0.7), math.cos(0.7)
    turn = torch.tensor([[cosine, 0.0, sine], [0.0, 1.0, 0.0], [-sine, 0.0, cosine]], dtype=torch.float64)
    for function in (joint_error, joint_error_local):
        torch.testing.assert_close(function(positions @ turn.mT, truth @ turn.mT, 1.0), function(positions, truth, 1.0))


def test_mse_grows_with_the_size_of_everything_and_rms_distance_does_not():
    found = []
    for scale in (1.0, 3.0):
        skeleton = human_skeleton(scale=scale)
        character = random_character(skeleton)
        motion, truth = random_motion(skeleton, 6, seed=1), random_motion(skeleton, 6, seed=2)
        motion, truth = (Motion(m.root_translation * scale, m.local_rotations, m.fps) for m in (motion, truth))
        found.append(JointError().evaluate(Evaluation(Clip("c", character, motion), character, motion, truth), COLUMNS))
    assert found[1]["mse"].value == pytest.approx(3 * found[0]["mse"].value)
    assert found[1]["mse_local"].value == pytest.approx(3 * found[0]["mse_local"].value)
    assert found[1]["rms_distance"].value == pytest.approx(found[0]["rms_distance"].value)


def test_a_batch_of_clips_with_their_own_heights_equals_single_clips():
    positions, truth = torch.randn(2, 3, 5, 22, 3)
    heights = torch.tensor([0.8, 1.6, 2.0])
    for function in (joint_error, joint_error_local):
        single = [function(positions[b], truth[b], float(heights[b])) for b in range(3)]
        torch.testing.assert_close(function(positions, truth, heights), torch.stack(single))


@pytest.mark.parametrize("frames", [1, 2])
def test_the_shortest_clips_have_values(frames):
    skeleton = human_skeleton(extra_joints=True)
    evaluation = _evaluation(random_motion(skeleton, frames, seed=1), random_motion(skeleton, frames, seed=2))
    values = JointError().evaluate(evaluation, COLUMNS)
    assert all(value.is_defined and value.per_frame.shape == (frames,) for value in values.values())


def test_without_ground_truth_nothing_is_defined():
    motion = random_motion(human_skeleton(extra_joints=True), 4)
    values = JointError().evaluate(_evaluation(motion, None), COLUMNS)
    assert set(values) == COLUMNS
    assert not any(value.is_defined for value in values.values())


def test_only_the_wanted_columns_are_computed():
    motion = random_motion(human_skeleton(extra_joints=True), 4)
    assert set(JointError().evaluate(_evaluation(motion, motion), frozenset({"mse_local"}))) == {"mse_local"}
