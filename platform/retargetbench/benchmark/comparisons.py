"""Methods against each other on the same tasks."""

from __future__ import annotations

import csv
import io
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retargetbench.benchmark.statistics import Estimate, estimate_difference_of_groups
from retargetbench.benchmark.tables import atoms_and_mean, csv_number, values_by_atom

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from retargetbench.benchmark.plan import Plan
    from retargetbench.registry import Column

_TASK = ["source", "motion", "target"]


@dataclass(frozen=True)
class Comparison:
    """One method minus another, over the tasks on which both have a value."""

    atom: str
    column: Column
    first: str
    second: str
    difference: Estimate

    @property
    def better(self) -> str:
        """The better method where the interval leaves zero out and the column has a direction, else empty."""
        if self.column.direction == "none" or not (self.difference.low > 0 or self.difference.high < 0):
            return ""
        first_is_lower = self.difference.high < 0
        return self.first if first_is_lower == (self.column.direction == "lower") else self.second


def compare_methods(plan: Plan, scores: pd.DataFrame) -> list[Comparison]:
    """Compare every pair of methods on every atom and column by a paired bootstrap over tasks.

    Args:
        plan: gives atoms, methods and columns.
        scores: content of ``scores.parquet``.
    """
    comparisons = []
    for atom in atoms_and_mean(plan):
        for first, second in itertools.combinations([method.label for method in plan.methods], 2):
            pairs = list(
                zip(values_by_atom(plan, scores, first, atom), values_by_atom(plan, scores, second, atom), strict=True)
            )
            paired = [(a, a[_TASK].merge(b, on=_TASK, how="left", validate="one_to_one")) for a, b in pairs]
            for column in plan.columns:
                difference = estimate_difference_of_groups(
                    [a[column.name].to_numpy() for a, _ in paired],
                    [b[column.name].to_numpy() for _, b in paired],
                    seed=plan.seed,
                )
                comparisons.append(Comparison(atom, column, first, second, difference))
    return comparisons


def render_comparisons(comparisons: Sequence[Comparison]) -> str:
    """Return comparisons as CSV, one line each."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["atom", "metric", "first", "second", "difference", "low", "high", "n", "better"])
    for item in comparisons:
        difference = item.difference
        numbers = [csv_number(value) for value in (difference.mean, difference.low, difference.high)]
        writer.writerow([item.atom, item.column.name, item.first, item.second, *numbers, difference.count, item.better])
    return buffer.getvalue()
