"""``bench plugin``: start a plugin, and check what it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Write and check plugins.")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the plugin and of its method, such as my_method.")],
    *,
    folder: Annotated[Path, typer.Option("--dir", help="Folder to put the package into.")] = Path(),
) -> None:
    """Write a complete package that works, with tests."""
    from retargetbench.scaffold import write_plugin

    package = write_plugin(name, folder)
    typer.echo(f"wrote {package}\nnext:\n  pip install -e {package}\n  bench plugin check {name}")


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="Name of a method, see bench list methods.")],
    *,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
) -> None:
    """Check that a plugin keeps what every one must."""
    from retargetbench.plugins import catalogue

    catalogue().method(name)  # an unknown name is answered before torch is imported

    from retargetbench.testing import check_method

    report = check_method(name, device=device)
    typer.echo(str(report))
    if not report.passed:
        raise typer.Exit(1)
