"""``bench list``: what is installed, as a table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import shutil
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retargetbench.plugins import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retargetbench.benchmark.suites import Suite
    from retargetbench.builtin import Kind

app = typer.Typer(help="List what is installed.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Tell all about this one.")]

Row = dict[str, Any]


@app.command()
def methods(name: Name = None, *, as_json: AsJson = False) -> None:
    """List retargeting methods, or tell all about one."""
    if name is not None:
        from retargetbench.cli.listing_details import describe_method

        _show_one(describe_method(name), as_json=as_json)
        return
    rows = _with_origin("method", (dataclasses.asdict(info) for info in catalogue().registered.methods.values()))
    _show(rows, ("name", "year", "needs_training", "uses_geometry", "plugin", "summary"), as_json=as_json)


@app.command()
def metrics(name: Name = None, *, as_json: AsJson = False) -> None:
    """List the columns of the table, or tell all about one.

    Of one column or metric it tells the formula, the unit, what it is blind to, and its source.
    """
    if name is not None:
        from retargetbench.cli.listing_details import describe_metric

        _show_one(describe_metric(name), as_json=as_json)
        return
    columns = (
        dataclasses.asdict(column) | {"metric": info.name, "metric_version": info.version}
        for info in catalogue().registered.metrics.values()
        for column in info.columns
    )
    rows = _with_origin("column", columns)
    _show(rows, ("name", "unit", "direction", "default", "metric", "plugin", "summary"), as_json=as_json)


@app.command()
def datasets(name: Name = None, *, as_json: AsJson = False) -> None:
    """List datasets known by name, or tell all about one."""
    if name is not None:
        from retargetbench.cli.listing_details import describe_dataset

        _show_one(describe_dataset(name), as_json=as_json)
        return
    rows = _with_origin("dataset", (dataclasses.asdict(info) for info in catalogue().registered.datasets.values()))
    _show(rows, ("name", "licence", "plugin", "summary"), as_json=as_json)


@app.command()
def plugins(*, as_json: AsJson = False) -> None:
    """List installed plugins, broken ones with the reason."""
    origin = catalogue().registered.origin
    rows = []
    for info in catalogue().plugins:
        provides: dict[str, list[str]] = {}
        for (kind, name), plugin in origin.items():
            if plugin == info.name:
                provides.setdefault(kind, []).append(name)
        named = (f"{kind}s {', '.join(names)}" for kind, names in provides.items() if kind != "column")
        summary = info.error or "; ".join(named)
        rows.append(dataclasses.asdict(info) | {"provides": provides, "summary": summary})
    _show(rows, ("name", "state", "distribution", "version", "summary"), as_json=as_json)


@app.command()
def suites(name: Name = None, *, as_json: AsJson = False) -> None:
    """List runs that are written down, for bench run --suite."""
    from retargetbench.benchmark.suites import load_suite, suite_names

    rows = [_suite_row(suite) for suite in map(load_suite, suite_names() if name is None else [name])]
    if name is not None:
        _show_one(rows[0], as_json=as_json)
        return
    _show(rows, ("name", "dataset", "origin", "summary"), as_json=as_json)


def _suite_row(suite: Suite) -> Row:
    from retargetbench.benchmark.suites import PACKAGE, suite_names

    origin = PACKAGE if suite.name in suite_names() else "file"
    return {"name": suite.name, "summary": suite.summary, "origin": origin, **suite.settings}


def _with_origin(kind: Kind, found: Iterable[Row]) -> list[Row]:
    """Add the plugin to each row, and a row with the error for each name that several plugins claim."""
    known = catalogue()
    rows = []
    for row in found:
        plugin = known.origin(kind, row["name"])
        rows.append(
            row
            | {
                "plugin": plugin.name,
                "distribution": plugin.distribution,
                "plugin_version": plugin.version,
                "error": "",
            }
        )
    for (conflict_kind, name), plugins in known.conflicts.items():
        if conflict_kind == kind:
            message = known.conflict_message(kind, name)
            rows.append({"name": name, "plugin": ", ".join(plugins), "error": message, "summary": message})
    return rows


def _show(rows: Sequence[Row], keys: Sequence[str], *, as_json: bool) -> None:
    """Print rows as JSON with everything in them, or as a table of some of it and a hint at what is not used."""
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    cells = [[_text(row.get(key, "")) for key in keys] for row in rows]
    typer.echo(format_table([key.replace("_", " ") for key in keys], cells, shutil.get_terminal_size().columns))
    unused = [info.name for info in catalogue().plugins if info.state == "broken"]
    if unused and "state" not in keys:
        typer.echo(f"Broken plugins, see 'bench list plugins': {', '.join(unused)}", err=True)


def _show_one(row: Row, *, as_json: bool) -> None:
    """Print one thing with everything that is known about it."""
    from retargetbench.cli.listing_details import render_details

    typer.echo(json.dumps(row, indent=2, ensure_ascii=False) if as_json else render_details(row))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Align columns with blanks, and break the last one so that lines fit into ``width`` characters.

    Example:
        >>> print(format_table(["name", "summary"], [["copy", "rotations as they are"]], 20))
        name  summary
        copy  rotations as
              they are
    """
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings) - 1)]
    indent = sum(widths) + 2 * len(widths)
    lines = []
    for row in (headings, *rows):
        start = "".join(f"{cell:<{size}}  " for cell, size in zip(row, widths, strict=False))
        lines += textwrap.wrap(
            row[-1],
            max(width, indent + 20),
            initial_indent=start,
            subsequent_indent=" " * indent,
            drop_whitespace=True,
            break_on_hyphens=False,
        ) or [start.rstrip()]
    return "\n".join(lines)
