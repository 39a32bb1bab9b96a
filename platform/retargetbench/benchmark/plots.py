"""Plots of a result table as PNG: bars with intervals, and contact against penetration."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from retargetbench.benchmark.tables import MEAN, column_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from retargetbench.benchmark.tables import Table, TableRow
    from retargetbench.registry import Column

MAIN_COLUMNS = ("mse", "contact_error", "penetration", "foot_skate")
"""Columns of the bar plot, those of them that were computed."""

TRADE_OFF = ("contact_error", "penetration")
"""Columns of the scatter plot: a method can trade one for the other."""

_COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#bbbbbb",
)  # P. Tol, bright, colour-blind safe


def draw_plots(table: Table, title: str = "") -> dict[str, bytes]:
    """Draw a table's overall rows.

    Args:
        table: the table.
        title: stands above each plot.

    Returns:
        File name → PNG; the same table gives the same bytes. A plot whose columns were not computed is left out.
    """
    atoms = {row.atom for row in table.rows}
    rows = [row for row in table.rows if row.atom == MEAN or len(atoms) == 1]
    columns = {column.name: column for column in table.columns}
    main = [columns[name] for name in MAIN_COLUMNS if name in columns] or list(table.columns[:4])
    plots = {}
    if main:
        plots["metrics.png"] = _png(_bars(rows, main), title)
    if all(name in columns for name in TRADE_OFF):
        plots["contact_penetration.png"] = _png(_scatter(rows, [columns[name] for name in TRADE_OFF]), title)
    return plots


def _figure(width: float, height: float, panels: int) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure that needs no display and no global state of matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _bars(rows: Sequence[TableRow], columns: Sequence[Column]) -> Figure:
    figure, panels = _figure(3.2 * len(columns), 0.8 + 0.4 * len(rows), len(columns))
    places = range(len(rows))
    for k, (axes, column) in enumerate(zip(panels, columns, strict=True)):
        estimates = [row.estimates[column.name] for row in rows]
        means = [e.mean if math.isfinite(e.mean) else 0.0 for e in estimates]
        axes.barh(places, means, color=[_COLOURS[j % len(_COLOURS)] for j in places], height=0.7)
        for place, e in zip(places, estimates, strict=True):
            if math.isfinite(e.half_width):
                axes.plot([e.low, e.high], [place, place], color="black", linewidth=1.2)
            elif math.isnan(e.mean):
                axes.text(0.0, place, " –", va="center")
        axes.set_yticks(places, [row.method for row in rows] if k == 0 else [""] * len(rows))
        axes.invert_yaxis()
        axes.locator_params(axis="x", nbins=4)  # labels of small numbers are long
        axes.set_title(column_title(column), fontsize=9)
    return figure


def _scatter(rows: Sequence[TableRow], columns: Sequence[Column]) -> Figure:
    figure, (axes,) = _figure(6.2, 3.6, 1)
    for j, row in enumerate(rows):
        x, y = (row.estimates[column.name] for column in columns)
        if not (math.isfinite(x.mean) and math.isfinite(y.mean)):
            continue
        colour = _COLOURS[j % len(_COLOURS)]
        axes.plot([x.low, x.high], [y.mean, y.mean], color=colour, linewidth=1)
        axes.plot([x.mean, x.mean], [y.low, y.high], color=colour, linewidth=1)
        axes.plot(x.mean, y.mean, "o", color=colour, label=row.method)
    axes.set_xlabel(column_title(columns[0]))
    axes.set_ylabel(column_title(columns[1]))
    axes.margins(0.15)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    return figure


def _png(figure: Figure, title: str) -> bytes:
    if title:
        figure.suptitle(title, fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()
