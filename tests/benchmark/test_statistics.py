"""Bootstrap means against SciPy's bootstrap and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from retargetbench.benchmark.statistics import (
    UNDEFINED_ESTIMATE,
    estimate_difference_of_groups,
    estimate_mean,
    estimate_mean_of_groups,
)


def test_mean_and_interval_agree_with_scipys_percentile_bootstrap() -> None:
    values = np.random.default_rng(1).gamma(2.0, size=24)
    ours = estimate_mean(values, seed=0)
    reference = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(2)
    ).confidence_interval
    assert ours.mean == pytest.approx(values.mean(), rel=1e-12)
    # Two bootstraps differ by the noise of a 2.5 % quantile of 2000 samples, about 4 % of the interval.
    width = reference.high - reference.low
    assert ours.low == pytest.approx(reference.low, abs=0.06 * width)
    assert ours.high == pytest.approx(reference.high, abs=0.06 * width)


def test_interval_of_many_values_is_that_of_the_normal_distribution() -> None:
    values = np.random.default_rng(3).normal(5.0, 2.0, size=3000)
    half_width = 1.96 * values.std() / math.sqrt(values.size)
    assert estimate_mean(values, seed=0).half_width == pytest.approx(half_width, rel=0.06)


def test_undefined_values_are_left_out() -> None:
    values = np.array([1.0, np.nan, 2.0, 4.0, np.nan])
    assert estimate_mean(values, seed=0) == estimate_mean(np.array([1.0, 2.0, 4.0]), seed=0)
    assert estimate_mean(values, seed=0).count == 3


def test_nothing_defined_gives_an_undefined_estimate() -> None:
    nothing = estimate_mean(np.array([np.nan, np.nan]), seed=0)
    assert nothing is UNDEFINED_ESTIMATE
    assert nothing.count == 0
    assert estimate_mean(np.array([]), seed=0) is UNDEFINED_ESTIMATE


def test_one_value_has_no_interval() -> None:
    one = estimate_mean(np.array([3.0]), seed=0)
    assert (one.mean, one.count) == (3.0, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)


def test_an_infinite_value_gives_an_infinite_mean_without_an_interval() -> None:
    estimate = estimate_mean(np.array([1.0, np.inf]), seed=0)
    assert estimate.mean == math.inf
    assert math.isnan(estimate.half_width)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    values = np.random.default_rng(4).normal(size=20)
    assert estimate_mean(values, seed=7) == estimate_mean(values, seed=7)
    assert estimate_mean(values, seed=7).low != estimate_mean(values, seed=8).low


def test_groups_count_the_same_whatever_their_size() -> None:
    small, large = np.full(2, 10.0), np.full(50, 0.0)
    assert estimate_mean_of_groups([small, large], seed=0).mean == 5.0


def test_groups_are_resampled_independently() -> None:
    values = np.random.default_rng(5).normal(size=200)
    one = estimate_mean(values, seed=0).half_width
    # The mean of two independent groups of equal spread is narrower by the square root of two.
    both = estimate_mean_of_groups([values, values.copy()], seed=0).half_width
    assert both == pytest.approx(one / math.sqrt(2), rel=0.1)


def test_a_group_without_values_does_not_count() -> None:
    full = np.array([1.0, 2.0])
    assert estimate_mean_of_groups([np.array([np.nan]), full], seed=0).mean == 1.5


def test_paired_difference_is_sharper_than_the_spread_of_the_tasks() -> None:
    random = np.random.default_rng(6)
    hard = random.normal(0.0, 10.0, size=40)
    first, second = hard + random.normal(1.0, 0.1, size=40), hard
    difference = estimate_difference_of_groups([first], [second], seed=0)
    assert difference.mean == pytest.approx((first - second).mean(), rel=1e-12)
    assert 0.9 < difference.low < difference.high < 1.1
    assert estimate_mean(first, seed=0).half_width > 10 * difference.half_width


def test_paired_difference_uses_only_tasks_that_both_methods_have() -> None:
    first, second = np.array([1.0, np.nan, 5.0]), np.array([0.0, 3.0, np.nan])
    difference = estimate_difference_of_groups([first], [second], seed=0)
    assert (difference.mean, difference.count) == (1.0, 1)
