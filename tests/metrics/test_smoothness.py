"""Acceleration and jerk against closed forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion

from retargetbench.clip import Clip
from retargetbench.metrics.base import Evaluation, MetricValue
from retargetbench.metrics.smoothness import Smoothness, acceleration, jerk
from retargetbench.motion import Motion

if TYPE_CHECKING:
    from retargetbench.character import Character

COLUMNS = frozenset({"acceleration", "acceleration_ratio", "jerk", "jerk_ratio"})


def _moved_along(path: torch.Tensor) -> torch.Tensor:
    """22 joints that all move along x by ``path`` (T,), (T, 22, 3)."""
    start = torch.randn(1, 22, 3, generator=torch.Generator().manual_seed(0), dtype=path.dtype)
    return start + path[:, None, None] * torch.tensor([1.0, 0.0, 0.0], dtype=path.dtype)


def _character(scale: float = 1.0) -> Character:
    return random_character(human_skeleton(scale=scale), name=f"body {scale}")


def _values(source: Motion, motion: Motion, *, size: float = 1.0) -> dict[str, MetricValue]:
    return Smoothness().evaluate(Evaluation(Clip("c", _character(), source), _character(size), motion), COLUMNS)


@pytest.mark.parametrize("fps", [24.0, 30.0, 120.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_free_fall_accelerates_by_g_and_has_no_jerk(device, dtype, fps):
    time = torch.arange(20, dtype=torch.float64) / fps
    positions = _moved_along(-0.5 * 9.81 * time**2).to(device=device, dtype=dtype)
    # float32 rounds positions of a metre at 1e-7, which the third difference multiplies by up to 8 fps³.
    tolerance = 8 * 3e-7 * fps**3 if dtype == torch.float32 else 1e-7 * fps
    found = acceleration(positions, fps)
    assert found.dtype == dtype
    assert found.device.type == device.type
    torch.testing.assert_close(found[1:-1], torch.full_like(found[1:-1], 9.81), atol=tolerance / fps * 2, rtol=0)
    torch.testing.assert_close(
        jerk(positions, fps)[2:-1], torch.zeros(17, dtype=dtype, device=device), atol=tolerance, rtol=0
    )


@pytest.mark.parametrize("fps", [24.0, 30.0, 120.0])
def test_a_cubic_has_the_jerk_of_its_third_derivative(fps):
    time = torch.arange(20, dtype=torch.float64) / fps
    found = jerk(_moved_along(2.0 * time**3), fps)
    torch.testing.assert_close(found[2:-1], torch.full((17,), 12.0, dtype=torch.float64), atol=1e-6, rtol=0)


def test_a_sine_has_the_mean_acceleration_and_jerk_of_its_derivatives():
    amplitude, omega, fps = 0.1, 2 * math.pi, 120.0
    time = torch.arange(10 * 120 + 3, dtype=torch.float64) / fps  # third differences span ten whole periods
    positions = _moved_along(amplitude * torch.sin(omega * time))
    # The mean of |sin| is 2/π; differences damp by (sin(ω/2fps) / (ω/2fps))^n, under 0.04 % here.
    assert float(acceleration(positions[:-1], fps).nanmean()) == pytest.approx(
        amplitude * omega**2 * 2 / math.pi, rel=1e-3
    )
    assert float(jerk(positions, fps).nanmean()) == pytest.approx(amplitude * omega**3 * 2 / math.pi, rel=1e-3)


def test_values_are_in_seconds_so_the_frame_rate_of_a_smooth_motion_does_not_matter():
    def values(fps: float) -> tuple[float, float]:
        time = torch.arange(int(4 * fps) + 1, dtype=torch.float64) / fps
        positions = _moved_along(0.1 * torch.sin(3 * time) + 0.2 * torch.cos(2 * time))
        return float(acceleration(positions, fps).nanmean()), float(jerk(positions, fps).nanmean())

    assert values(30.0) == pytest.approx(values(120.0), rel=0.03)  # the ends of the clip differ by a frame


def test_values_equal_the_slow_statement():
    p = np.random.default_rng(0).normal(size=(7, 22, 3))
    second = [np.mean([np.linalg.norm(p[t + 1, j] - 2 * p[t, j] + p[t - 1, j]) for j in range(22)]) * 30**2
              for t in range(1, 6)]  # fmt: skip
    third = [
        np.mean([np.linalg.norm(p[t + 1, j] - 3 * p[t, j] + 3 * p[t - 1, j] - p[t - 2, j]) for j in range(22)]) * 30**3
        for t in range(2, 6)
    ]
    np.testing.assert_allclose(acceleration(torch.tensor(p), 30.0), [np.nan, *second, np.nan], rtol=1e-12)
    np.testing.assert_allclose(jerk(torch.tensor(p), 30.0), [np.nan, np.nan, *third, np.nan], rtol=1e-12)


def test_steady_motion_and_rest_score_zero():
    still = torch.ones(6, 22, 3)
    steady = _moved_along(torch.arange(6.0, dtype=torch.float64) / 4)
    for measure in (acceleration, jerk):
        assert float(measure(still, 60.0).nanmean()) == 0.0
        assert float(measure(steady, 60.0).nanmean()) == pytest.approx(0.0, abs=1e-8)


def test_jitter_raises_both_in_proportion():
    smooth = torch.zeros(30, 22, 3, dtype=torch.float64)
    noise = torch.randn(30, 22, 3, dtype=torch.float64)
    for measure in (acceleration, jerk):
        one, two = (float(measure(smooth + size * noise, 30.0).nanmean()) for size in (0.001, 0.002))
        assert two == pytest.approx(2 * one)


def test_moving_and_turning_the_whole_clip_changes_nothing():
    positions = torch.randn(8, 22, 3, dtype=torch.float64)
    turn = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    for measure in (acceleration, jerk):
        moved = measure(positions @ turn.mT + 5.0, 30.0)
        torch.testing.assert_close(moved, measure(positions, 30.0), equal_nan=True)


def test_a_batch_equals_single_clips():
    positions = torch.randn(3, 6, 22, 3)
    for measure in (acceleration, jerk):
        single = torch.stack([measure(clip, 30.0) for clip in positions])
        torch.testing.assert_close(measure(positions, 30.0), single, equal_nan=True)


def test_ratios_are_one_for_the_source_on_a_body_of_another_size():
    motion = random_motion(human_skeleton(), 12)
    larger = Motion(2 * motion.root_translation, motion.local_rotations, motion.fps)
    values = _values(motion, larger, size=2.0)
    of_source = _values(motion, motion)
    assert values["acceleration_ratio"].value == pytest.approx(1.0)
    assert values["jerk_ratio"].value == pytest.approx(1.0)
    assert values["acceleration"].value == pytest.approx(2 * of_source["acceleration"].value)
    assert values["jerk"].value == pytest.approx(2 * of_source["jerk"].value)


def test_ratios_are_undefined_where_the_source_is_still():
    motion = random_motion(human_skeleton(), 8)
    still = Motion(motion.root_translation[:1].expand(8, 3), motion.local_rotations[:1].expand(8, -1, 4), motion.fps)
    values = _values(still, motion)
    assert values["acceleration"].is_defined
    assert not values["acceleration_ratio"].is_defined
    assert not values["jerk_ratio"].is_defined


@pytest.mark.parametrize(
    ("frames", "defined"),
    [(1, set()), (2, set()), (3, {"acceleration", "acceleration_ratio"}), (4, set(COLUMNS))],
)
def test_clips_too_short_for_a_difference_are_undefined(frames, defined):
    motion = random_motion(human_skeleton(), frames)
    assert {name for name, value in _values(motion, motion).items() if value.is_defined} == defined


def test_only_the_wanted_columns_are_computed():
    motion = random_motion(human_skeleton(), 8)
    evaluation = Evaluation(Clip("c", _character(), motion), _character(), motion)
    assert set(Smoothness().evaluate(evaluation, frozenset({"jerk_ratio"}))) == {"jerk_ratio"}
