"""``bench data``: import and build datasets, list what is in them, and report what is odd about them."""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - Typer reads annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from retargetbench.cli.data_build import builders
from retargetbench.cli.groups import BenchGroup
from retargetbench.cli.listing import format_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

app = typer.Typer(help="Import, build, check and list datasets.")
_importers = typer.Typer(help="Make a dataset of your own files.")
app.add_typer(_importers, name="import", cls=BenchGroup)
app.add_typer(builders, name="build", cls=BenchGroup)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Spec = Annotated[str, typer.Argument(metavar="DATASET", help="A dataset folder, or the name of a registered dataset.")]

_PLAIN_LINE_EVERY = 2.0  # seconds between progress lines where there is no terminal
_PLAIN_LINE_SHARE = 0.1  # of all there is to do, between such lines

_LEGEND = """\
height m  length of eight bones from foot to head by R2ET's rule, which errors are divided by; shorter than the body
sole m    height of the lowest sole above the floor, at rest
off T °   the farthest of upper arms and thighs from a T-pose
floor m   height of the lowest sole over the clip
root m/s  largest speed of the hips from frame to frame
turn °    largest turn of a joint from frame to frame
inside %  arm vertices of the source inside its own body; – where the mesh has no arms or it was not measured"""
"""What the columns of the tables of ``bench data check`` mean."""


@_importers.command("r2et")
def import_r2et(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Folder with R2ET's shape and BVH files.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the new dataset.")],
    *,
    name: Annotated[str, typer.Option("--name", help="Name of the dataset in tables.")] = "r2et_mixamo",
    straighten: Annotated[bool, typer.Option("--straighten", help="Make every rest an exact T-pose.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a dataset that is there already.")] = False,
) -> None:
    """Import R2ET's Mixamo files.

    The dataset has characters with all joints, clips, ground truth and a frozen split. Files that cannot be used are
    left out and named; the exit code is then 1.
    """
    from retargetbench.datasets.importers.r2et import import_r2et as run_import

    with _progress("import") as progress:
        report = run_import(source, output, name=name, straighten=straighten, force=force, progress=progress)
    for note in report.notes:
        typer.echo(f"note: {note}", err=True)
    for problem in report.problems:
        typer.echo(f"left out: {problem}", err=True)
    dataset = report.dataset
    typer.echo(
        f"{dataset.name}: {len(dataset.character_names)} characters, {len(dataset.clip_names)} clips, "
        f"{len(dataset.split().rows)} rows, hash {dataset.hash}, in {output}"
    )
    if report.problems:
        raise typer.Exit(1)


@app.command()
def check(
    dataset: Spec,
    *,
    as_json: AsJson = False,
    penetration: Annotated[
        bool, typer.Option("--penetration/--no-penetration", help="Also measure sources that penetrate themselves.")
    ] = True,
) -> None:
    """Report what is odd about a dataset.

    It looks at units, rest, missing parts, feet, jumps, penetration and damaged files. The exit code is 1 if a part of
    the dataset cannot be used.
    """
    from dataclasses import asdict

    from retargetbench.datasets.check import check_dataset
    from retargetbench.datasets.opening import open_dataset

    opened = open_dataset(dataset)
    with _progress("check") as progress:
        report = check_dataset(opened, penetration=penetration, progress=progress)
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2, ensure_ascii=False))
    else:
        typer.echo(f"{report.name}, hash {report.hash}\n")
        _print_table(
            ("character", "joints", "vertices", "height m", "sole m", "off T °", "rest"),
            [
                (c.name, c.joints, c.vertices, c.height, c.lowest_sole, round(c.largest_t_angle_deg, 1), c.rest)
                for c in report.characters
            ],
        )
        _print_table(
            ("character", "motion", "frames", "fps", "floor m", "root m/s", "turn °", "inside %"),
            [
                (
                    c.character,
                    c.motion,
                    c.frames,
                    round(c.fps, 2),
                    c.floor,
                    round(c.fastest_root, 2),
                    round(c.largest_turn_deg, 1),
                    "–" if c.penetration is None else round(c.penetration, 2),
                )
                for c in report.clips
            ],
        )
        typer.echo(_LEGEND + "\n")
        rows = [(finding.level, finding.subject, finding.text) for finding in report.findings]
        _print_table(("level", "what", "finding"), rows or [("", "", "nothing odd")])
    if report.has_errors:
        raise typer.Exit(1)


@app.command()
def show(dataset: Spec, *, as_json: AsJson = False) -> None:
    """List the characters, clips and splits of a dataset."""
    from retargetbench.datasets.opening import open_dataset
    from retargetbench.datasets.summary import summarise

    summary = summarise(open_dataset(dataset))
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    typer.echo(f"{summary['name']}, hash {summary['hash']}, {summary['bytes'] / 1e6:.1f} MB\n")
    for key in ("characters", "clips", "splits"):
        rows = summary[key]
        if rows:
            _print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])


def _print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [
        [
            f"{round(value, 3) + 0.0:.3f}" if isinstance(value, float) and headings[i].endswith(" m") else _cell(value)
            for i, value in enumerate(row)
        ]
        for row in rows
    ]
    typer.echo(format_table(headings, cells, shutil.get_terminal_size().columns) + "\n")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on a terminal and a plain line now and then elsewhere, both on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title)
            yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)
        return
    last_time, last_done = -_PLAIN_LINE_EVERY, 0

    def print_line(done: int, total: int, what: str) -> None:
        nonlocal last_time, last_done
        now = time.monotonic()
        if now - last_time >= _PLAIN_LINE_EVERY or done - last_done >= _PLAIN_LINE_SHARE * total:
            last_time, last_done = now, done
            typer.echo(f"{title} {done + 1}/{total} {what}", err=True)

    yield print_line
