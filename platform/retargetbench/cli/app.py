"""The application ``bench``: its commands, those of plugins, and its entry point."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from retargetbench.cli import data, doctor, listing, plugin, retarget, run
from retargetbench.cli.errors import WRONG_USE, run_guarded
from retargetbench.errors import UnknownNameError
from retargetbench.plugins import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class BenchGroup(TyperGroup):
    """A group of commands that answers an unknown command with the closest match and all there are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help when no command is named, as wrong use."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(WRONG_USE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first argument names.

        Raises:
            UnknownNameError: there is none.
        """
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise UnknownNameError(f"{ctx.command_path} command", args[0], self.commands)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help text."""
        return sorted(self.commands)


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
