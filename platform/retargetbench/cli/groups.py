"""Groups of commands that answer an unknown command with the closest match."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from retargetbench.cli.errors import WRONG_USE
from retargetbench.errors import UnknownNameError


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
