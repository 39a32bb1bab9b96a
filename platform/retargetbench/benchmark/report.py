"""The report step: from scores to tables, comparisons, failures and plots in the run folder.

All of it is made from ``scores.parquet``, ``plan.json`` and the measured speeds; nothing is judged again. Tables hold
no times, so an interrupted and continued run gives the same bytes as an uninterrupted one.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from retargetbench.benchmark.comparisons import compare_methods, render_comparisons
from retargetbench.benchmark.plan import read_plan
from retargetbench.benchmark.plots import draw_plots
from retargetbench.benchmark.run_folder import read_json
from retargetbench.benchmark.tables import (
    Table,
    align,
    csv_number,
    format_number,
    make_table,
    render_csv,
    render_latex,
    render_markdown,
    render_text,
)
from retargetbench.discovery import one_line
from retargetbench.errors import RetargetBenchError
from retargetbench.metrics import SPEED

if TYPE_CHECKING:
    import pandas as pd

    from retargetbench.benchmark.plan import Plan
    from retargetbench.benchmark.run_folder import RunFolder

TableFormat = Literal["md", "csv", "tex", "text"]

REPORT_FILES = ("table.md", "table.csv", "table.tex", "comparisons.csv", "failures.csv", "speed.csv")
"""Files that the report step writes beside the plots."""

_FAILURES_SHOWN = 10
_RENDERERS = {"md": render_markdown, "csv": render_csv, "tex": render_latex, "text": render_text}


@dataclass(frozen=True)
class Speed:
    """How fast a method is, warmed up, with one processor thread or on a graphics card."""

    frames_per_second: float
    """NaN where it could not be measured."""
    device: str


@dataclass(frozen=True, eq=False)
class Report:
    """What a run came to."""

    plan: Plan
    scores: pd.DataFrame
    table: Table
    speeds: dict[str, Speed]
    """Label of a method → its speed."""

    @property
    def failures(self) -> pd.DataFrame:
        """Rows of the scores of which something failed."""
        return self.scores[self.scores["failure"] != ""]


def read_report(folder: RunFolder) -> Report:
    """Read the scores of a run and average them.

    Raises:
        RetargetBenchError: the run has no scores yet.
    """
    import pandas as pd

    plan = read_plan(folder)
    if not folder.scores_file.is_file():
        raise RetargetBenchError(
            f"{folder.path} has no {folder.scores_file.name} yet; finish it by its bench run command"
        )
    try:
        scores = pd.read_parquet(folder.scores_file)
    except (OSError, ValueError) as error:  # pyarrow's errors are among them
        raise RetargetBenchError(
            f"{folder.scores_file} cannot be read: {one_line(error)}; make it anew by its bench run command"
        ) from None
    speeds = {}
    for method in plan.methods:
        measured = read_json(folder.speed(method.label))
        if isinstance(measured, dict) and measured.get("key") == method.key:
            value = measured.get(SPEED.name)
            speeds[method.label] = Speed(
                float(value) if isinstance(value, int | float) else math.nan, str(measured.get("device", ""))
            )
    return Report(plan, scores, make_table(plan, scores), speeds)


def write_report(folder: RunFolder) -> Report:
    """Write tables, comparisons, failures, speeds and plots of a run.

    Raises:
        RetargetBenchError: the run has no scores yet.
    """
    report = read_report(folder)
    texts = {
        "table.md": render_markdown(report.table),
        "table.csv": render_csv(report.table),
        "table.tex": render_latex(report.table),
        "comparisons.csv": render_comparisons(compare_methods(report.plan, report.scores)),
        "failures.csv": report.failures[["atom", "source", "motion", "target", "method", "failure"]].to_csv(
            index=False, lineterminator="\n"
        ),
        "speed.csv": _speed_csv(report),
    }
    for name, text in texts.items():
        folder.write(folder.path / name, text.encode())
    for name, image in draw_plots(report.table, _title(report)).items():
        folder.write(folder.path / "plots" / name, image)
    return report


def _title(report: Report) -> str:
    """Say in a few words what plots show."""
    plan = report.plan
    tasks = len(report.scores) // len(plan.labels)
    return f"{plan.dataset_name}, {', '.join(plan.atoms)}, {tasks} tasks; lines are 95 % intervals"


def render_table(report: Report, table_format: TableFormat) -> str:
    """Return the table of a report in one of the formats."""
    return _RENDERERS[table_format](report.table)


def render_summary(report: Report) -> str:
    """Return what is shown at the end of a run: what was compared, the table, speeds and the first failures."""
    plan = report.plan
    tasks = len(report.scores) // len(plan.labels)
    parts = [
        f"dataset {plan.dataset_name} ({plan.dataset_hash}), split {plan.split_name} ({plan.split_hash}), "
        f"{', '.join(plan.atoms)}, {'full' if plan.full else 'default'} set, {tasks} tasks; mean ± half of the 95 % "
        f"bootstrap interval over tasks, in brackets the number of tasks where a value is not defined on all\n",
        render_text(report.table),
    ]
    if report.speeds:
        lines = [["method", SPEED.name, "device"]]
        lines += [[label, format_number(s.frames_per_second), s.device] for label, s in report.speeds.items()]
        parts.append(align(lines, right_from=3))
    failures = report.failures
    if len(failures):
        shown = [
            f"failed: {row.method} {row.source}/{row.motion}/{row.target}: {row.failure}\n"
            for row in failures.head(_FAILURES_SHOWN).itertuples()
        ]
        if len(failures) > _FAILURES_SHOWN:
            shown.append(f"… {len(failures) - _FAILURES_SHOWN} more in failures.csv\n")
        parts.append("".join(shown))
    return "\n".join(parts)


def _speed_csv(report: Report) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["method", SPEED.name, "device"])
    for label, speed in report.speeds.items():
        writer.writerow([label, csv_number(speed.frames_per_second), speed.device])
    return buffer.getvalue()
