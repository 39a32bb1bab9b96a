"""A whole run: plan, predict, score, report, each leaving files that the next one reads."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retargetbench.benchmark.executors import Executor, InProcess, Processes, Submitit
from retargetbench.benchmark.plan import make_plan, read_plan, select_metrics, write_plan
from retargetbench.benchmark.predict import predict
from retargetbench.benchmark.report import Report, write_report
from retargetbench.benchmark.run_folder import RunFolder, check_run_name
from retargetbench.benchmark.score import score
from retargetbench.errors import UsageError
from retargetbench.rigs import CENTIMETRE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retargetbench.benchmark.config import RunConfig
    from retargetbench.benchmark.plan import Plan
    from retargetbench.benchmark.progress import Progress


@dataclass
class Stopwatch:
    """How long each stage of a run took, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time until the context ends to a stage."""
        start = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

    def __str__(self) -> str:
        return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in self.seconds.items())


def run_benchmark(
    config: RunConfig,
    *,
    out: Path,
    progress: Progress,
    watch: Stopwatch,
    run: str | None = None,
    force: bool = False,
    predictions: Path | None = None,
    unit: float = CENTIMETRE,
) -> tuple[RunFolder, Report]:
    """Do what a configuration asks for; what an earlier, interrupted or finished run has done is not done again.

    Args:
        config: what is asked for.
        out: folder of all runs.
        progress: told how far the run is.
        watch: told how long each stage takes.
        run: name of the run's folder; from what is compared by default.
        force: forget the results of an earlier run.
        predictions: folder with motions of another program, which take the place of a method's.
        unit: metres per unit of BVH files in that folder.

    Returns:
        The folder of the run and its report; failures of single tasks are in the report.

    Raises:
        UnknownNameError: a name is unknown; nothing is done then.
        UsageError: options do not fit each other, or the folder holds another run.
    """
    with watch.measure("plan"):
        plan = make_plan(config, predictions=predictions, unit=unit)
        folder = RunFolder(out / (plan.run_id if run is None else check_run_name(run)))
        if force:
            folder.forget_results()
        else:
            _check_same_run(folder, plan)
        write_plan(folder, plan, config)
    return folder, _finish(plan, config, folder, progress, watch, with_predictions=True)


def score_run(folder: RunFolder, config: RunConfig, *, progress: Progress, watch: Stopwatch) -> Report:
    """Judge the motions of a run by the metrics of a configuration; no method is run.

    Args:
        folder: a run.
        config: gives metrics, device, workers and executor; the rest is the run's own.
        progress: told how far it is.
        watch: told how long each stage takes.
    """
    with watch.measure("plan"):
        plan = dataclasses.replace(read_plan(folder), metrics=select_metrics(config.metrics), device=config.device)
        write_plan(folder, plan, config)
    return _finish(plan, config, folder, progress, watch, with_predictions=False)


def _finish(
    plan: Plan, config: RunConfig, folder: RunFolder, progress: Progress, watch: Stopwatch, *, with_predictions: bool
) -> Report:
    rows = plan.rows()
    with contextlib.closing(make_executor(config, folder)) as executor:
        if with_predictions:
            with watch.measure("predict"):
                predict(plan, rows, folder, executor, progress)
        with watch.measure("score"):
            score(plan, rows, folder, executor, progress)
    with watch.measure("report"):
        report = write_report(folder)
    folder.remove_unfinished()
    return report


def make_executor(config: RunConfig, folder: RunFolder) -> Executor:
    """Return what does the work; one local worker is this process itself.

    Raises:
        MissingExtraError: submitit is asked for and not installed.
    """
    if config.executor == "submitit":
        return Submitit(config.workers, folder.path.resolve() / "submitit", config.cluster)
    return InProcess() if config.workers == 1 else Processes(config.workers)


def _check_same_run(folder: RunFolder, plan: Plan) -> None:
    """Refuse to mix two runs in one folder."""
    if folder.plan_file.is_file() and (known := read_plan(folder).run_id) != plan.run_id:
        raise UsageError(
            f"{folder.path} holds another run ({known}, this one is {plan.run_id}); choose another --run, or --force "
            f"to forget its results"
        )
