"""``bench data build``: make a dataset from recipes and actions."""

from __future__ import annotations

import contextlib
import math
import shutil
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - Typer reads annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from retargetbench.benchmark.config import ExecutorName, RunConfig, parse_names
from retargetbench.cli.listing import format_table
from retargetbench.cli.run import parse_cluster, saying_that_it_continues
from retargetbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retargetbench.datasets.studio.build_pack import Outcome

WORK_SUFFIX = ".work"
"""Of the folder beside the pack in which files are kept on the way."""

_WORST_SHOWN = 10

builders = typer.Typer(help="Make a dataset from recipes.")


@builders.command("studio")
def build_studio(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the new pack.")],
    *,
    characters: Annotated[
        str | None,
        typer.Option(metavar="N|NAMES", help="How many, or names separated by commas [default: all of the package]."),
    ] = None,
    actions: Annotated[
        str, typer.Option(metavar="NAMES", help="Actions or families separated by commas, or all.")
    ] = "all",
    motions: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Mixamo-named BVH files to take instead of actions; contacts are detected."),
    ] = None,
    variants: Annotated[int, typer.Option(min=1, help="How many variants of each action.")] = 1,
    bodies: Annotated[
        str | None,
        typer.Option(metavar="DATASET", help="Take bodies of a dataset or pack, by folder or name; none are built."),
    ] = None,
    reference: Annotated[
        str, typer.Option(metavar="NAME", help="The body on which actions are made, of average build.")
    ] = "adult_09",
    seed: Annotated[int, typer.Option(min=0, help="Seed of small movements, variants and made-up bodies.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes or cluster jobs that work at the same time.")] = 1,
    executor: Annotated[
        ExecutorName, typer.Option(help="local (processes) or submitit (SLURM where there is one).")
    ] = "local",
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster", metavar="KEY=VALUE", help="Parameter of submitit, such as slurm_partition=gpu; repeat."
        ),
    ] = None,
) -> None:
    """Build the dataset studio, or a larger or smaller one like it.

    Every action, or every motion of a library, is solved on every body and measured. What passes the quality gates is
    in the pack, and quality.csv says why the rest is not. The same command continues a build that was interrupted:
    what is finished lies in DIR.work, which may be deleted after the last build. Exit code 1 means that something
    could not be made at all.
    """
    from retargetbench.benchmark.progress import Progress
    from retargetbench.benchmark.run_folder import RunFolder
    from retargetbench.benchmark.runner import make_executor
    from retargetbench.datasets.studio.build import BuildPlan, build_bodies, build_clips, build_performances
    from retargetbench.datasets.studio.build_bodies import choose_bodies
    from retargetbench.datasets.studio.build_pack import outcome, pack_build
    from retargetbench.datasets.studio.dataset import StudioDataset
    from retargetbench.datasets.studio.detection import performances_from_folder
    from retargetbench.datasets.studio.fingers import shaped_body
    from retargetbench.datasets.studio.pack import check_place
    from retargetbench.datasets.studio.takes import ALL, authored_takes, choose_actions, stored_takes

    if motions is not None and (actions != ALL or variants != 1):
        raise UsageError("--motions takes the place of --actions and --variants; leave these out")
    chosen = choose_actions(parse_names(actions)) if motions is None else ()
    config = RunConfig(executor=executor, workers=workers, cluster=parse_cluster(cluster or []), seed=seed)
    check_place(output)
    source, cast = choose_bodies(bodies, characters=characters, reference=reference, seed=seed)
    lost_files: Mapping[str, str] = {}
    plan = BuildPlan(output.with_name(output.name + WORK_SUFFIX), cast, reference)
    with saying_that_it_continues(), Progress() as progress:
        lost_bodies = build_bodies(plan, source, progress)
        if motions is None:
            takes = authored_takes(chosen, variants=variants, seed=seed)
        else:
            body = shaped_body(plan.store.read_body(reference), "relaxed", "relaxed")
            library = performances_from_folder(motions, body)
            takes, lost_files = stored_takes(library.performances), library.failures
            for file, reason in lost_files.items():
                progress.note(f"left out: {file}: {reason}")
        plan = replace(plan, takes=takes)
        with contextlib.closing(make_executor(config, RunFolder(plan.folder))) as doer:
            lost_takes = build_performances(plan, doer, progress)
            lost_clips = build_clips(plan, doer, progress, without=(*lost_bodies, *lost_takes))
        pack_build(
            plan,
            output,
            roles=source.roles,
            seed=seed,
            lost_bodies=lost_bodies,
            lost_takes=lost_takes,
            lost_clips=lost_clips,
        )
    dataset = StudioDataset(output)
    typer.echo(
        f"{dataset.name}: {len(dataset.character_names)} characters, {len(plan.takes)} actions, "
        f"{len(dataset.split().rows) if dataset.splits else 0} rows, hash {dataset.hash}, in {output}\n"
    )
    result = outcome(dataset.quality())
    typer.echo(_summary(result))
    for name, reason in lost_bodies.items():
        typer.echo(f"left out: body {name}: {reason}", err=True)
    for reason, count in result.not_made.items():
        typer.echo(f"left out: {count} {'clip' if count == 1 else 'clips'}: {reason}", err=True)
    if lost_files or lost_bodies or result.not_made:
        raise typer.Exit(1)


def _summary(result: Outcome) -> str:
    """Return what came of the build as text."""
    width = shutil.get_terminal_size().columns
    worst = [
        (name, f"{passed} of {tried}", f"{passed / tried:.1%}")
        for name, (passed, tried) in list(result.characters.items())[:_WORST_SHOWN]
    ]
    parts = [
        f"{result.passed} of {result.tried} clips pass all quality gates ({result.passed / result.tried:.1%})",
        format_table(("character, worst first", "pass", "share"), worst, width),
    ]
    if result.gates:
        gates = [(gate, str(count)) for gate, count in result.gates.items()]
        parts.append(format_table(("gate", "clips that fail it"), gates, width))
    compared = [
        (name, f"{truth:.4g}", f"{copy:.4g}", f"{copy / truth:.1f}" if truth > 0 else "–")
        for name, (truth, copy) in result.compared.items()
        if not math.isnan(truth)
    ]
    if compared:
        headings = ("mean of clips that pass", "ground truth", "plain Copy", "ratio")
        parts.append(format_table(headings, compared, width))
    return "\n\n".join(parts)
