"""Means with confidence intervals over tasks, by the bootstrap.

Intervals are percentile intervals: tasks are drawn with replacement within each split atom, and the middle 95 % of
the means are kept. Tasks that share a character or a clip are not independent of each other, so intervals say how
much a number depends on the choice of tasks, not how it would carry over to new characters.

Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Values = NDArray[np.float64]

REPLICATES = 2000
"""Bootstrap samples behind every interval."""

CONFIDENCE = 0.95

_DRAWS_AT_ONCE = 1 << 21  # indices in memory at a time


@dataclass(frozen=True)
class Estimate:
    """A mean over tasks with its 95 % interval; NaN where there is nothing to average, or too little for bounds."""

    mean: float
    low: float
    high: float
    count: int
    """Tasks with a defined value."""

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2


UNDEFINED_ESTIMATE = Estimate(math.nan, math.nan, math.nan, 0)


def estimate_mean(values: Values, *, seed: int) -> Estimate:
    """Average the values of one group of tasks.

    Args:
        values: one per task, (n,); NaN where undefined, which is left out.
        seed: of the bootstrap.

    Example:
        >>> estimate_mean(np.array([1.0, 3.0, np.nan]), seed=0)
        Estimate(mean=2.0, low=1.0, high=3.0, count=2)
    """
    return estimate_mean_of_groups([values], seed=seed)


def estimate_mean_of_groups(groups: Sequence[Values], *, seed: int) -> Estimate:
    """Average the means of several groups of tasks, each group counting the same.

    Groups without a defined value are left out. Each group is resampled by random numbers of its own, so that groups
    of one size do not draw the same tasks.

    Args:
        groups: values by group, (n_g,) each.
        seed: of the bootstrap.
    """
    defined = [(k, values[~np.isnan(values)]) for k, values in enumerate(groups)]
    defined = [(k, values) for k, values in defined if values.size]
    if not defined:
        return UNDEFINED_ESTIMATE
    mean = float(np.mean([values.mean() for _, values in defined]))
    count = sum(values.size for _, values in defined)
    if not np.isfinite(mean) or max(values.size for _, values in defined) < 2:
        return Estimate(mean, math.nan, math.nan, count)
    replicates = np.mean([_resampled_means(values, (seed, k)) for k, values in defined], axis=0)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(replicates, [tail, 100 - tail])
    return Estimate(mean, float(low), float(high), count)


def estimate_difference_of_groups(first: Sequence[Values], second: Sequence[Values], *, seed: int) -> Estimate:
    """Average the paired differences ``first − second`` over the tasks on which both are defined.

    Args:
        first: values of one method by group, (n_g,) each.
        second: values of another method on the same tasks in the same order.
        seed: of the bootstrap.
    """
    with np.errstate(invalid="ignore"):  # infinite on both sides: the difference is undefined
        differences = [a - b for a, b in zip(first, second, strict=True)]
    return estimate_mean_of_groups(differences, seed=seed)


def _resampled_means(values: Values, seed: tuple[int, int]) -> Values:
    """Return the means of `REPLICATES` samples with replacement, (R,)."""
    generator = np.random.default_rng(seed)
    step = max(1, _DRAWS_AT_ONCE // values.size)
    means = [
        values[generator.integers(0, values.size, (min(step, REPLICATES - start), values.size))].mean(axis=1)
        for start in range(0, REPLICATES, step)
    ]
    return np.concatenate(means)
