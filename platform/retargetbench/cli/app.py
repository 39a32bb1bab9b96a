"""The application ``bench``: its commands, those of plugins, and its entry point."""

from __future__ import annotations

import io
import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from retargetbench.cli import data, doctor, listing, plugin, render, retarget, run
from retargetbench.cli.errors import run_guarded
from retargetbench.cli.groups import BenchGroup
from retargetbench.plugins import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typer.core import TyperGroup


def _print_version(*, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"retargetbench {version('retargetbench')}")
        raise typer.Exit


def _describe(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug messages; works anywhere.")] = False,
) -> None:
    """A neutral benchmark of skinned motion retargeting: same characters, same clips, same metrics."""


def build_command() -> TyperGroup:
    """Put together all commands of ``bench``, those of plugins last."""
    # Plain help: rich costs 0.1 s on every start and draws boxes into the documents.
    app = typer.Typer(cls=BenchGroup, rich_markup_mode=None, add_completion=False, callback=_describe)
    run.register(app)
    retarget.register(app)
    render.register(app)
    app.add_typer(data.app, name="data", cls=BenchGroup)
    app.add_typer(listing.app, name="list", cls=BenchGroup)
    app.add_typer(plugin.app, name="plugin", cls=BenchGroup)
    app.command("doctor")(doctor.doctor)
    group = typer.main.get_group(app)
    for name, command in catalogue().commands.items():
        group.add_command(command, name)
    return group


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``bench``.

    Args:
        argv: the arguments, those of the process by default.

    Returns:
        The exit code: 0 ok, 1 something failed, 2 wrong use, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]

    def act() -> None:
        command = build_command()
        with command.make_context("bench", arguments) as context:
            command.invoke(context)

    for stream in (sys.stdout, sys.stderr):
        # Names of files may hold bytes that are no text, and tables hold arrows that not every terminal can show.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with _logging_to_stderr(logging.DEBUG if debug else logging.WARNING):
        return run_guarded(act, debug=debug)


@contextmanager
def _logging_to_stderr(level: int) -> Iterator[None]:
    """Show log messages on standard error, those of RetargetBench from ``level`` on."""
    root, ours = logging.getLogger(), logging.getLogger("retargetbench")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    level_before = ours.level
    root.addHandler(handler)
    ours.setLevel(level)
    try:
        yield
    finally:
        ours.setLevel(level_before)
        root.removeHandler(handler)
