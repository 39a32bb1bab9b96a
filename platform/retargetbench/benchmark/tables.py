"""The result table: what is averaged over tasks, and how it looks as Markdown, CSV, LaTeX and plain text."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from retargetbench.benchmark.plan import REFERENCES
from retargetbench.benchmark.statistics import Estimate, estimate_mean, estimate_mean_of_groups
from retargetbench.registry import COLUMN_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from retargetbench.benchmark.plan import Plan
    from retargetbench.registry import Column

MEAN = "mean"
"""Stands for the mean over atoms where an atom is named otherwise."""

UNDEFINED_TEXT = "–"
LEGEND = (
    "mean ± half of the 95 % bootstrap interval over tasks; in brackets the number of tasks with a value where that is "
    "less than n; bold is the best method of an atom; source and ground-truth are references"
)
"""What the cells say, beside tables that leave the run folder."""
_ARROWS = {"lower": "↓", "higher": "↑", "none": ""}
_SCREEN_WIDTH = 120
_SMALLEST = 1e-6
"""Values below a millionth of their unit are rounding and not worth digits."""


@dataclass(frozen=True)
class TableRow:
    """One method on one atom, or its mean over the atoms."""

    method: str
    atom: str
    count: int
    """Tasks, whether or not there is a value."""
    failed: int
    """Those of them of which a value is missing because something failed."""
    estimates: Mapping[str, Estimate]
    """Column → mean over tasks."""


@dataclass(frozen=True)
class Table:
    """All rows, atom by atom, and the columns by metric."""

    blocks: tuple[tuple[Column, ...], ...]
    """Columns of each metric."""
    rows: tuple[TableRow, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns."""
        return tuple(column for block in self.blocks for column in block)

    @property
    def failed(self) -> int:
        """Failures over all methods and atoms."""
        return sum(row.failed for row in self.rows if row.atom != MEAN)

    def is_best(self, row: TableRow, column: Column) -> bool:
        """Whether a method's mean is the best on its atom; references do not compete, nor a method alone."""
        rivals = [r for r in self.rows if r.atom == row.atom and r.method not in REFERENCES]
        values = [r.estimates[column.name].mean for r in rivals if not math.isnan(r.estimates[column.name].mean)]
        if len(values) < 2 or row.method in REFERENCES or column.direction == "none":
            return False
        return row.estimates[column.name].mean == (min if column.direction == "lower" else max)(values)


def make_table(plan: Plan, scores: pd.DataFrame) -> Table:
    """Average the scores of a run over tasks; where several atoms were run, over the atoms too.

    Args:
        plan: gives atoms, methods and columns.
        scores: content of ``scores.parquet``.
    """
    names = [column.name for column in plan.columns]
    rows = []
    for atom in atoms_and_mean(plan):
        for label in plan.labels:
            groups = values_by_atom(plan, scores, label, atom)
            failed = sum(int((g["failure"] != "").sum()) for g in groups)
            estimates = {
                name: estimate_mean_of_groups([g[name].to_numpy() for g in groups], seed=plan.seed)
                if atom == MEAN
                else estimate_mean(groups[0][name].to_numpy(), seed=plan.seed)
                for name in names
            }
            rows.append(TableRow(label, atom, sum(map(len, groups)), failed, estimates))
    return Table(tuple(metric.columns for metric in plan.metrics), tuple(rows))


def atoms_and_mean(plan: Plan) -> tuple[str, ...]:
    """Return the atoms of a run, then `MEAN` where there are several."""
    return (*plan.atoms, MEAN) if len(plan.atoms) > 1 else plan.atoms


def values_by_atom(plan: Plan, scores: pd.DataFrame, label: str, atom: str) -> list[pd.DataFrame]:
    """Return the scores of a method on an atom, or, for `MEAN`, on each atom; tasks in the order of the split."""
    of_method = scores[scores["method"] == label]
    return [of_method[of_method["atom"] == name] for name in (plan.atoms if atom == MEAN else (atom,))]


def format_number(value: float, *, digits: int = 4) -> str:
    """Write a number with some significant digits, without an exponent where that stays short.

    Example:
        >>> format_number(0.146412), format_number(1234.56), format_number(0.0), format_number(3.2e-7)
        ('0.1464', '1235', '0', '<1e-06')
    """
    if math.isnan(value):
        return UNDEFINED_TEXT
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) < _SMALLEST:
        return f"{'<' if value > 0 else '>-'}{_SMALLEST:g}"
    scientific = f"{value:.{digits - 1}e}"
    exponent = int(scientific.partition("e")[2])  # after rounding: 9.9999 has four digits as 10.00
    return f"{value:.{max(0, digits - 1 - exponent)}f}" if -4 <= exponent < 6 else scientific


def format_estimate(estimate: Estimate, tasks: int) -> str:
    """Write a mean with half the length of its interval, and of how many tasks it is where that is not all of them.

    Args:
        estimate: what is written.
        tasks: number of tasks of the row.

    Example:
        >>> estimate = Estimate(0.14641, 0.134, 0.158, 24)
        >>> format_estimate(estimate, 24), format_estimate(estimate, 30)
        ('0.1464 ± 0.012', '0.1464 ± 0.012 (24)')
    """
    text = format_number(estimate.mean)
    if estimate.half_width > 0 and abs(estimate.mean) >= _SMALLEST and math.isfinite(estimate.half_width):
        text += f" ± {format_number(estimate.half_width, digits=2)}"
    return text if estimate.count in (0, tasks) else f"{text} ({estimate.count})"


def column_title(column: Column) -> str:
    """Return a column's name, the direction that is better, and its unit: ``penetration ↓ [%]``."""
    arrow = _ARROWS[column.direction]
    return " ".join(filter(None, (column.name, arrow, f"[{column.unit}]" if column.unit else "")))


def render_markdown(table: Table) -> str:
    """Return the table as Markdown; the best method of an atom is bold."""
    lines = [["method", "atom", "n", "failed", *map(column_title, table.columns)]]
    lines.append(["---", "---", *["---:"] * (len(lines[0]) - 2)])
    for row in table.rows:
        cells = []
        for column in table.columns:
            text = format_estimate(row.estimates[column.name], row.count)
            cells.append(f"**{text}**" if table.is_best(row, column) else text)
        lines.append([row.method, row.atom, str(row.count), str(row.failed), *cells])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + f"\n{LEGEND[0].upper()}{LEGEND[1:]}.\n"


def render_csv(table: Table) -> str:
    """Return the table as CSV: for each column its mean, the bounds of the interval and the number of values."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    parts = ("", *COLUMN_PARTS)
    writer.writerow(["method", "atom", "n", "failed", *(f"{c.name}{part}" for c in table.columns for part in parts)])
    for row in table.rows:
        cells: list[str] = []
        for column in table.columns:
            estimate = row.estimates[column.name]
            cells += [csv_number(value) for value in (estimate.mean, estimate.low, estimate.high)]
            cells.append(str(estimate.count))
        writer.writerow([row.method, row.atom, row.count, row.failed, *cells])
    return buffer.getvalue()


def csv_number(value: float) -> str:
    """Write a number for programs: nine significant digits, nothing where it is undefined."""
    return "" if math.isnan(value) else f"{value:.9g}"


def render_latex(table: Table) -> str:
    """Return the table as a LaTeX ``tabular`` for the package booktabs; the best method of an atom is bold."""
    head = ["method", "atom", "$n$", "failed", *(_latex_title(column) for column in table.columns)]
    lines = [f"% needs \\usepackage{{booktabs}}; {LEGEND}"]
    lines += [rf"\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}", r"\toprule", rf"{' & '.join(head)} \\"]
    atom = ""
    for row in table.rows:
        if row.atom != atom:
            lines.append(r"\midrule")
            atom = row.atom
        cells = [_latex_text(row.method), _latex_text(row.atom), str(row.count), str(row.failed)]
        for column in table.columns:
            text = _latex_text(format_estimate(row.estimates[column.name], row.count))
            cells.append(rf"\textbf{{{text}}}" if table.is_best(row, column) else text)
        lines.append(rf"{' & '.join(cells)} \\")
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(lines)


def _latex_title(column: Column) -> str:
    arrow = {"lower": r"$\downarrow$", "higher": r"$\uparrow$", "none": ""}[column.direction]
    unit = column.unit.replace("²", "$^2$").replace("³", "$^3$")
    return " ".join(filter(None, (_latex_text(column.name), arrow, f"[{_latex_text(unit)}]" if unit else "")))


def _latex_text(text: str) -> str:
    for mark in "_%&#":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("±", r"$\pm$").replace("–", "--").replace("<", "$<$").replace(">", "$>$")


def render_text(table: Table, *, width: int = _SCREEN_WIDTH) -> str:
    """Return the table for a screen: blocks of columns that fit its width, metrics kept together where they fit."""
    labels = [["method", "atom", "n", "failed"]]
    labels += [[row.method, row.atom, str(row.count), str(row.failed)] for row in table.rows]
    cells = {
        column.name: [
            column_title(column),
            *(format_estimate(row.estimates[column.name], row.count) for row in table.rows),
        ]
        for column in table.columns
    }
    left = sum(_width(column) + 2 for column in zip(*labels, strict=True))
    texts = []
    for names in _pack(table.blocks, {name: _width(lines) + 2 for name, lines in cells.items()}, width - left):
        lines = [[*label, *(cells[name][k] for name in names)] for k, label in enumerate(labels)]
        texts.append(align(lines, right_from=2))
    return "\n".join(texts or [align(labels, right_from=2)])


def _pack(blocks: Sequence[Sequence[Column]], widths: Mapping[str, int], room: int) -> list[list[str]]:
    """Deal columns out to parts that fit; a new part begins with a metric unless the metric alone is too wide."""
    parts: list[list[str]] = []
    used = room
    for block in blocks:
        names = [column.name for column in block]
        whole = sum(widths[name] for name in names)
        for k, name in enumerate(names):
            if not parts or used + (whole if k == 0 and whole <= room else widths[name]) > room:
                parts.append([])
                used = 0
            parts[-1].append(name)
            used += widths[name]
    return parts


def align(lines: Sequence[Sequence[str]], *, right_from: int) -> str:
    """Return cells in columns two blanks apart, those from ``right_from`` on aligned right.

    Example:
        >>> print(align([["a", "n"], ["long", "12"]], right_from=1), end="")
        a      n
        long  12
    """
    widths = [_width(column) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(
            cell.rjust(width) if k >= right_from else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        + "\n"
        for line in lines
    )


def _width(cells: Iterable[str]) -> int:
    return int(np.max([len(cell) for cell in cells]))
