"""``bench run``, ``bench score``, ``bench report`` and ``bench push``."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from retargetbench.benchmark.config import HELP, ExecutorName, RunConfig, parse_names, parse_option_texts
from retargetbench.errors import TrackingError, UsageError
from retargetbench.plugins import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retargetbench.benchmark.report import Report
    from retargetbench.benchmark.run_folder import RunFolder
    from retargetbench.benchmark.runner import Stopwatch

_DEFAULTS = RunConfig()
_FORMATS: dict[str, Literal["text", "md", "csv", "tex"]] = {"txt": "text", "md": "md", "csv": "csv", "tex": "tex"}


def _help(name: str) -> str:
    """Return the line of help for a field of `RunConfig`, with its default."""
    default = getattr(_DEFAULTS, name)
    shown = ",".join(default) if isinstance(default, tuple) else default
    return f"{HELP[name][0].upper()}{HELP[name][1:]} [default: {shown}]."


# Options without a default here: what is not given comes from the suite, and else from RunConfig.
Dataset = Annotated[str | None, typer.Option(metavar="SPEC", help=_help("dataset"), show_default=False)]
Split = Annotated[str | None, typer.Option(metavar="ATOMS", help=_help("split"), show_default=False)]
SplitName = Annotated[str | None, typer.Option(metavar="NAME", help=_help("split_name"), show_default=False)]
Full = Annotated[
    bool | None, typer.Option("--full/--default-set", help="All rows of the atoms, or the quick default set.")
]
Metrics = Annotated[str | None, typer.Option(metavar="NAMES", help=_help("metrics"), show_default=False)]
Device = Annotated[str | None, typer.Option(metavar="DEVICE", help=_help("device"), show_default=False)]
Seed = Annotated[int | None, typer.Option(min=0, help=_help("seed"), show_default=False)]
Workers = Annotated[int | None, typer.Option(min=1, help=_help("workers"), show_default=False)]
ExecutorOption = Annotated[ExecutorName | None, typer.Option(help=_help("executor"), show_default=False)]
Cluster = Annotated[
    list[str] | None,
    typer.Option("--cluster", metavar="KEY=VALUE", help="Parameter of submitit, such as slurm_partition=gpu; repeat."),
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder of all runs.")]
RunName = Annotated[
    str | None, typer.Option("--run", metavar="ID", help="Name of the run's folder; by default from its content.")
]
TrackingUri = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="MLflow; by default $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db in the working folder.",
        show_default=False,
    ),
]
Track = Annotated[bool, typer.Option("--track/--no-track", help="Whether to send the results to MLflow.")]
Force = Annotated[bool, typer.Option("--force", help="Forget the results of an earlier run and compute them again.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``bench``."""
    app.command("run")(run_command)
    app.command("score")(score_command)
    app.command("report")(report_command)
    app.command("push")(push_command)


def run_command(
    *,
    suite: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take all that is not given here from a suite, by name or file.")
    ] = None,
    dataset: Dataset = None,
    methods: Annotated[str | None, typer.Option(metavar="NAMES", help=_help("methods"), show_default=False)] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.OPTION=VALUE", help="Option of a method; repeat for more."),
    ] = None,
    split: Split = None,
    split_name: SplitName = None,
    full: Full = None,
    metrics: Metrics = None,
    workers: Workers = None,
    executor: ExecutorOption = None,
    cluster: Cluster = None,
    device: Device = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    run: RunName = None,
    tracking_uri: TrackingUri = None,
    track: Track = True,
    force: Force = False,
) -> None:
    """Compare methods on the tasks of a split.

    Every task is retargeted and the motions are judged; the table is printed and goes to files and to MLflow. The same
    command continues a run that was interrupted. Exit code 1 means that a task failed; the table counts it.
    """
    from retargetbench.benchmark.progress import Progress
    from retargetbench.benchmark.runner import Stopwatch, run_benchmark

    given = {
        "dataset": dataset,
        "methods": methods if methods is None else parse_names(methods),
        "options": options and parse_option_texts(options),
        "split": split,
        "split_name": split_name,
        "full": full,
        "metrics": metrics if metrics is None else parse_names(metrics),
        "workers": workers,
        "executor": executor,
        "cluster": cluster and parse_cluster(cluster),
        "device": device,
        "seed": seed,
    }
    config = _make_config(suite, given)
    watch = Stopwatch()
    with Progress() as progress, saying_that_it_continues():
        folder, report = run_benchmark(config, out=out, progress=progress, watch=watch, run=run, force=force)
    _finish(folder, report, watch, tracking_uri if track else None, track=track)


def score_command(
    run: Annotated[str | None, typer.Argument(help="A run to judge again: its folder or id.")] = None,
    *,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Motions of another program: DIR/<source>/<motion>/<target>.npz or .bvh."),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of that program in tables.")] = None,
    unit: Annotated[float, typer.Option(min=1e-6, max=1e3, help="Metres per unit of BVH files.")] = 0.01,
    dataset: Dataset = None,
    split: Split = None,
    split_name: SplitName = None,
    full: Full = None,
    metrics: Metrics = None,
    workers: Workers = None,
    executor: ExecutorOption = None,
    cluster: Cluster = None,
    device: Device = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    tracking_uri: TrackingUri = None,
    track: Track = True,
) -> None:
    """Judge the motions of a run anew, or those of another program.

    An npz file of another program holds root_translation (T, 3) in metres, local_rotations (T, 22, 4) or (T, J, 4) as
    unit quaternions xyzw against the target's rest, and fps; Y is up. A BVH file has the target's joint names and
    bone lengths. GLB files cannot be read yet. A missing file is a failure of its task.
    """
    from retargetbench.benchmark.plan import read_config
    from retargetbench.benchmark.progress import Progress
    from retargetbench.benchmark.run_folder import get_run
    from retargetbench.benchmark.runner import Stopwatch, run_benchmark, score_run

    work = {
        "metrics": metrics if metrics is None else parse_names(metrics),
        "workers": workers,
        "executor": executor,
        "cluster": cluster and parse_cluster(cluster),
        "device": device,
    }
    what = {"dataset": dataset, "split": split, "split_name": split_name, "full": full, "seed": seed}
    if (run is None) == (predictions is None) or (predictions is None) != (name is None):
        raise UsageError("give either a run, or --predictions DIR together with --name NAME")
    watch = Stopwatch()
    if run is not None:
        fixed = [f"--{key.replace('_', '-')}" for key, value in what.items() if value is not None]
        if fixed:
            raise UsageError(f"{', '.join(fixed)} cannot change for a run that is there; start another by bench run")
        folder = get_run(run, out)
        if executor == "local" and not cluster:
            work["cluster"] = {}  # those of the run were meant for its jobs
        config = dataclasses.replace(read_config(folder), **_given(work))
        with Progress() as progress:
            report = score_run(folder, config, progress=progress, watch=watch)
    else:
        if name in catalogue().registered.methods:
            raise UsageError(f"{name!r} is the name of an installed method; give the other program a name of its own")
        config = _make_config(None, {**what, **work, "methods": (name,)})
        with Progress() as progress:
            folder, report = run_benchmark(
                config, out=out, progress=progress, watch=watch, predictions=predictions, unit=unit
            )
    _finish(folder, report, watch, tracking_uri, track=track)


def report_command(
    run: Annotated[str, typer.Argument(help="A run: its folder or id.")],
    *,
    table_format: Annotated[
        Literal["text", "md", "csv", "tex"] | None,
        typer.Option("--format", help="Form of the table; by default that of FILE's suffix, else text."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write it there.")] = None,
    out: Out = Path("runs"),
) -> None:
    """Print the table of a run, or write it to a file.

    The files in the run's folder are made anew.
    """
    from retargetbench.benchmark.report import render_summary, render_table, write_report
    from retargetbench.benchmark.run_folder import get_run

    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    by_suffix = _FORMATS.get(suffix)
    if table_format is not None and by_suffix is not None and table_format != by_suffix:
        raise UsageError(f"{output} would hold a table of format {table_format}; give it another suffix or format")
    form = table_format or by_suffix or "text"
    report = write_report(get_run(run, out))
    text = render_summary(report) if form == "text" else render_table(report, form)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}; choose a folder that exists") from None
    typer.echo(f"wrote {output}")


def push_command(
    run: Annotated[str, typer.Argument(help="A run: its folder or id.")],
    *,
    tracking_uri: TrackingUri = None,
    out: Out = Path("runs"),
) -> None:
    """Send the results of a run to MLflow.

    What is there already is brought up to date. Results whose metrics the run no longer has are deleted in MLflow and
    sent anew.
    """
    from retargetbench.benchmark.run_folder import get_run
    from retargetbench.benchmark.tracking import push_run

    tracked = push_run(get_run(run, out), tracking_uri)
    typer.echo(f"MLflow      {tracked.uri}; open it by: {tracked.how_to_open}")


@contextmanager
def saying_that_it_continues() -> Iterator[None]:
    """Say to whoever interrupts that nothing finished is lost."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; what is finished is kept, and the same command continues") from None


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _make_config(suite: str | None, given: dict[str, Any]) -> RunConfig:
    """Put together what is given, what a suite says and the defaults, in this order of strength."""
    settings: dict[str, Any] = {}
    if suite is not None:
        from retargetbench.benchmark.suites import load_suite

        settings |= load_suite(suite).settings
    given = _given(given)
    if "methods" not in given and "options" in given:
        labels = {**settings.get("options", {}), **given["options"]}
        given["options"] = {
            label: {**settings.get("options", {}).get(label, {}), **given["options"].get(label, {})} for label in labels
        }
    elif "methods" in given:
        settings.pop("options", None)  # they belong to the suite's methods
    return RunConfig(**(settings | given))


def parse_cluster(texts: list[str]) -> dict[str, str]:
    """Read ``--cluster key=value`` arguments.

    Raises:
        UsageError: a text does not look like that.
    """
    parameters = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"--cluster {text!r} must look like key=value, such as slurm_partition=gpu")
        parameters[name] = value
    return parameters


def _finish(folder: RunFolder, report: Report, watch: Stopwatch, tracking_uri: str | None, *, track: bool) -> None:
    """Print the results and where they are, send them to MLflow, and exit with 1 if anything failed."""
    from retargetbench.benchmark.report import render_summary

    typer.echo(render_summary(report))
    typer.echo(f"run folder  {folder.path} (tables, plots, {folder.scores_file.name})")
    if track:
        from retargetbench.benchmark.tracking import push_run

        try:
            with watch.measure("MLflow"):
                tracked = push_run(folder, tracking_uri)
            typer.echo(f"MLflow      {tracked.uri}; open it by: {tracked.how_to_open}")
        except TrackingError as error:
            typer.echo(f"warning: {error}; send the results later by: bench push {folder.path}", err=True)
    if report.table.failed:
        typer.echo(f"tracebacks  {folder.path / 'failures'} and {folder.path / 'scores'}, one JSON file for each task")
    typer.echo(f"time        {watch}", err=True)
    if report.table.failed:
        raise typer.Exit(1)
