"""``bench plugin``: start a plugin, and check what it gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retargetbench.errors import PluginError, UnknownNameError, UsageError
from retargetbench.plugins import catalogue

if TYPE_CHECKING:
    from retargetbench.builtin import Kind

app = typer.Typer(help="Write and check plugins.")

_CHECKED: tuple[Kind, ...] = ("method", "metric", "dataset")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the plugin and of what is in it, such as my_method.")],
    *,
    kind: Annotated[Literal["method", "metric", "dataset"], typer.Option(help="What the plugin brings.")] = "method",
    folder: Annotated[Path, typer.Option("--dir", help="Folder to put the package into.")] = Path(),
) -> None:
    """Write a complete package that works, with tests."""
    from retargetbench.scaffold import write_plugin

    package = write_plugin(name, folder, kind)
    steps = [f"pip install -e {package}", f"bench plugin check {name}"]
    if kind == "dataset":
        steps.insert(1, f"python -m retargetbench_{name}.make")
    typer.echo("\n  ".join([f"wrote {package}\nnext:", *steps]))


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="Name of a method, metric, column or dataset, or of a plugin.")],
    *,
    device: Annotated[str, typer.Option(help="For methods: auto, cpu or cuda.")] = "cpu",
) -> None:
    """Check that a plugin keeps what every one must.

    Methods: shapes, devices, batches, repetition and more. Metrics: a value of every column for a perfect motion,
    values by frame. Datasets: everything in them can be read.
    """
    subjects = _find_subjects(name)  # an unknown name is answered before torch is imported

    from retargetbench.testing import check_dataset_plugin, check_method, check_metric

    passed = True
    for kind, subject in subjects:
        if kind == "method":
            report = check_method(subject, device=device)
        else:
            report = check_metric(subject) if kind == "metric" else check_dataset_plugin(subject)
        typer.echo(str(report))
        passed &= report.passed
    if not passed:
        raise typer.Exit(1)


def _find_subjects(name: str) -> list[tuple[Kind, str]]:
    """Return kind and name of everything that a name means; that of a plugin alone means all it registers.

    Raises:
        UnknownNameError: it means nothing that can be checked.
        UsageError: several plugins provide it.
        PluginError: the plugin of this name is not used.
    """
    known = catalogue()
    named: list[tuple[Kind, str]] = [(kind, name) for kind in _CHECKED]
    if ("column", name) in known.registered.origin:
        named.append(("metric", known.column(name)[0].name))
    found = [key for key in dict.fromkeys(named) if key in known.registered.origin]
    if found:
        return found
    for kind in (*_CHECKED, "column"):
        if (kind, name) in known.conflicts:
            raise UsageError(known.conflict_message(kind, name))
    provided = [key for key, plugin in known.registered.origin.items() if plugin == name and key[0] in _CHECKED]
    if provided:
        return [(kind, subject) for kind in _CHECKED for key_kind, subject in provided if key_kind == kind]
    for info in known.plugins:
        if info.name == name and info.state != "ok":
            raise PluginError(f"plugin {info.origin} is {info.state}: {info.error}")
    available = {subject for kind, subject in known.registered.origin if kind in _CHECKED}
    raise UnknownNameError("method, metric or dataset", name, available)
