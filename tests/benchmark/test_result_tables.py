"""The result table in all its forms, against values put in by hand."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pandas as pd
import pytest

from retargetbench.benchmark.comparisons import compare_methods, render_comparisons
from retargetbench.benchmark.plan import Plan, PlannedMethod
from retargetbench.benchmark.statistics import Estimate
from retargetbench.benchmark.tables import (
    Table,
    column_title,
    format_estimate,
    format_number,
    make_table,
    render_csv,
    render_latex,
    render_markdown,
    render_text,
)
from retargetbench.metrics import BUILTIN_METRICS
from retargetbench.registry import Column, MetricInfo

ERROR = Column("error", "m", "lower", "an error")
CLEARANCE = Column("clearance_of_all_hands", "%", "higher", "a clearance")
RATIO = Column("ratio", "", "none", "a ratio")
METRICS = (MetricInfo("first", "m:A", (ERROR, CLEARANCE)), MetricInfo("second", "m:B", (RATIO,)))


def plan(*labels: str, metrics: tuple[MetricInfo, ...] = METRICS, atoms: tuple[str, ...] = ("UC+UM", "SC+SM")) -> Plan:
    methods = tuple(PlannedMethod(label, label) for label in labels)
    return Plan("d", "d", "h", "default", "s", atoms, False, methods, metrics, "cpu", 0, {})  # type: ignore[arg-type]


def scores(values: dict[str, dict[str, list[float]]], column: str = "error", **failures: int) -> pd.DataFrame:
    """Scores from method → atom → values of one column; the other columns are undefined."""
    rows = []
    for method, atoms in values.items():
        for atom, numbers in atoms.items():
            for k, number in enumerate(numbers):
                others = dict.fromkeys(("error", "clearance_of_all_hands", "ratio"), math.nan)
                failed = "broken" if k < failures.get(method, 0) else ""
                row = {"atom": atom, "source": "a", "motion": f"m{k}", "target": "b", "method": method}
                rows.append({**row, "failure": failed, **others, column: math.nan if failed else number})
    return pd.DataFrame(rows)


TWO_METHODS = {
    "source": {"UC+UM": [math.nan] * 3, "SC+SM": [math.nan]},
    "ground-truth": {"UC+UM": [0.0] * 3, "SC+SM": [0.0]},
    "good": {"UC+UM": [1.0, 2.0, 3.0], "SC+SM": [4.0]},
    "bad": {"UC+UM": [2.0, 4.0, 6.0], "SC+SM": [8.0]},
}


@pytest.fixture
def table() -> Table:
    return make_table(plan("good", "bad"), scores(TWO_METHODS, bad=1))


def cell(text: str, method: str, atom: str, column: str) -> str:
    lines = [[part.strip() for part in line.strip("|\n").split("|")] for line in text.splitlines()]
    (row,) = [line for line in lines if line[:2] == [method, atom]]
    (k,) = [k for k, title in enumerate(lines[0]) if title.split(" ")[0] == column]
    return row[k]


def test_rows_are_methods_by_atom_and_the_mean_of_the_atoms(table: Table) -> None:
    assert [(row.atom, row.method) for row in table.rows] == [
        (atom, method) for atom in ("UC+UM", "SC+SM", "mean") for method in ("source", "ground-truth", "good", "bad")
    ]
    by = {(row.method, row.atom): row for row in table.rows}
    assert by["good", "UC+UM"].estimates["error"].mean == 2.0
    assert by["good", "mean"].estimates["error"].mean == 3.0
    assert (by["good", "UC+UM"].count, by["good", "UC+UM"].failed) == (3, 0)
    assert (by["source", "UC+UM"].count, by["source", "UC+UM"].failed) == (3, 0)
    assert by["good", "mean"].count == sum(by["good", atom].count for atom in ("UC+UM", "SC+SM"))


def test_failed_tasks_are_counted_and_left_out_of_the_mean(table: Table) -> None:
    by = {(row.method, row.atom): row for row in table.rows}
    assert (by["bad", "UC+UM"].count, by["bad", "UC+UM"].failed) == (3, 1)
    assert by["bad", "UC+UM"].estimates["error"].mean == 5.0
    assert (by["bad", "SC+SM"].count, by["bad", "SC+SM"].failed) == (1, 1)
    assert math.isnan(by["bad", "SC+SM"].estimates["error"].mean)
    assert by["bad", "mean"].failed == 2
    assert table.failed == 2


def test_one_atom_needs_no_mean_over_atoms() -> None:
    only = make_table(plan("good", atoms=("UC+UM",)), scores({"good": {"UC+UM": [1.0]}}))
    assert [row.atom for row in only.rows] == ["UC+UM"] * 3


def test_markdown_shows_mean_and_half_width_and_a_dash_where_nothing_is_defined(table: Table) -> None:
    text = render_markdown(table)
    assert text.splitlines()[0] == "| method | atom | n | failed | error ↓ [m] | clearance_of_all_hands ↑ [%] | ratio |"
    assert cell(text, "source", "UC+UM", "error") == "–"
    assert cell(text, "ground-truth", "UC+UM", "error") == "0"
    # Resampling 1, 2, 3 gives means from 1 to 3; the middle 95 % of 27 equally likely samples leave out both ends.
    assert cell(text, "good", "UC+UM", "error").startswith("**2.000 ± ")
    assert cell(text, "good", "SC+SM", "error") == "4.000"


def test_only_the_best_of_several_methods_is_bold(table: Table) -> None:
    text = render_markdown(table)
    assert "**" in cell(text, "good", "UC+UM", "error")
    assert "**" not in cell(text, "bad", "UC+UM", "error")
    assert "**" not in cell(text, "ground-truth", "UC+UM", "error")
    assert "**" not in cell(text, "good", "SC+SM", "error")  # the rival failed


def test_the_direction_decides_which_method_is_best() -> None:
    values = {"good": {"UC+UM": [1.0, 2.0]}, "bad": {"UC+UM": [3.0, 4.0]}}
    one_atom = plan("good", "bad", atoms=("UC+UM",))
    higher = render_markdown(make_table(one_atom, scores(values, "clearance_of_all_hands")))
    assert "**" in cell(higher, "bad", "UC+UM", "clearance_of_all_hands")
    assert "**" not in render_markdown(make_table(one_atom, scores(values, "ratio")))


def test_csv_has_mean_bounds_and_count_of_every_column(table: Table) -> None:
    (good,) = [
        r for r in csv.DictReader(io.StringIO(render_csv(table))) if (r["method"], r["atom"]) == ("good", "UC+UM")
    ]
    assert (float(good["error"]), int(good["error_n"])) == (2.0, 3)
    assert 1.0 <= float(good["error_low"]) < 2.0 < float(good["error_high"]) <= 3.0
    assert good["ratio"] == good["ratio_low"] == ""
    assert good["ratio_n"] == "0"


def test_latex_escapes_names_and_rules_off_atoms(table: Table) -> None:
    text = render_latex(table)
    assert r"clearance\_of\_all\_hands $\uparrow$ [\%]" in text
    assert text.count(r"\midrule") == 3
    assert r"\textbf{2.000 $\pm$" in text
    assert text.count(r"\\") == 1 + 12
    assert "–" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_text_fits_the_screen_and_keeps_metrics_together(table: Table, width: int) -> None:
    lines = render_text(table, width=width).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if line.startswith("method")]
    if width >= 120:
        assert len(heads) == 1
    for title in ("error ↓ [m]", "clearance_of_all_hands ↑ [%]", "ratio"):
        assert sum(title in head for head in heads) == 1


def test_all_builtin_columns_fit_120_characters() -> None:
    names = [c.name for metric in BUILTIN_METRICS for c in metric.columns]
    frame = pd.DataFrame(
        [
            {"atom": "UC+UM", "source": "a", "motion": f"m{k}", "target": "b", "method": method, "failure": ""}
            | dict.fromkeys(names, 1.0 / (k + 3))
            for method in ("source", "ground-truth", "meshret-without-sensors")
            for k in range(4)
        ]
    )
    text = render_text(
        make_table(plan("meshret-without-sensors", metrics=BUILTIN_METRICS, atoms=("UC+UM",)), frame), width=120
    )
    assert max(map(len, text.splitlines())) <= 120
    assert all(any(name in line.split() for line in text.splitlines()) for name in names)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.146412, "0.1464"),
        (9.99999, "10.00"),
        (123456.7, "123457"),
        (-0.5, "-0.5000"),
        (0.00012344, "0.0001234"),
        (0.0000123, "1.230e-05"),
        (2.5e7, "2.500e+07"),
        (0.0, "0"),
        (math.inf, "inf"),
        (math.nan, "–"),
    ],
)
def test_numbers_have_four_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_mean_without_bounds_is_shown_alone() -> None:
    assert format_estimate(Estimate(2.0, math.nan, math.nan, 1), 1) == "2.000"
    assert format_estimate(Estimate(2.0, 2.0, 2.0, 5), 5) == "2.000"


def test_values_of_some_tasks_alone_say_of_how_many() -> None:
    assert format_estimate(Estimate(2.0, 1.9, 2.1, 5), 8) == "2.000 ± 0.10 (5)"
    assert format_estimate(Estimate(2.0, math.nan, math.nan, 1), 8) == "2.000 (1)"
    assert format_estimate(Estimate(math.nan, math.nan, math.nan, 0), 8) == "–"


def test_rounding_errors_are_not_shown_as_results() -> None:
    assert format_estimate(Estimate(2.5e-7, 1e-7, 4e-7, 5), 5) == "<1e-06"
    assert format_number(-2.5e-7) == ">-1e-06"
    assert format_number(2.5e-6) == "2.500e-06"


def test_titles_name_direction_and_unit() -> None:
    assert column_title(ERROR) == "error ↓ [m]"
    assert column_title(RATIO) == "ratio"


def test_methods_are_compared_task_by_task() -> None:
    comparisons = compare_methods(plan("good", "bad"), scores(TWO_METHODS))
    by = {(item.atom, item.column.name): item for item in comparisons}
    pair = by["UC+UM", "error"]
    assert (pair.first, pair.second) == ("good", "bad")
    assert pair.difference.mean == np.mean([1 - 2, 2 - 4, 3 - 6])
    assert pair.difference.count == 3
    assert pair.better == "good"
    assert by["mean", "error"].difference.mean == -3.0
    assert by["SC+SM", "error"].better == ""  # one task is no evidence
    assert by["UC+UM", "ratio"].better == ""
    assert render_comparisons(comparisons).splitlines()[1].startswith("UC+UM,error,good,bad,-2,")


def test_a_comparison_leaves_out_tasks_that_one_method_failed_on() -> None:
    comparisons = compare_methods(plan("good", "bad"), scores(TWO_METHODS, bad=1))
    pair = next(item for item in comparisons if (item.atom, item.column.name) == ("UC+UM", "error"))
    assert (pair.difference.mean, pair.difference.count) == (-2.5, 2)


def test_a_column_where_higher_is_better_prefers_the_larger_mean() -> None:
    values = {"good": {"UC+UM": [1.0, 2.0, 3.0]}, "bad": {"UC+UM": [3.0, 4.0, 5.5]}}
    comparisons = compare_methods(plan("good", "bad", atoms=("UC+UM",)), scores(values, "clearance_of_all_hands"))
    assert [item.better for item in comparisons] == ["", "bad", ""]
