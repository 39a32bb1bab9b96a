"""The score step: metrics judge motions, one task after the other, and every value is kept with its key.

A value is computed once for a motion, a metric and its version, however often and with whatever other metrics the
step runs. Tasks are loaded, judged, written and dropped, so memory does not grow with their number.
"""

from __future__ import annotations

import io
import math
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from retargetbench.benchmark.containment import contained
from retargetbench.benchmark.executors import Lost, run_isolating
from retargetbench.benchmark.known_scores import lay_out_known_scores
from retargetbench.benchmark.opened import character_on, clip_on, created_metric, opened_dataset
from retargetbench.benchmark.plan import GROUND_TRUTH, SOURCE
from retargetbench.benchmark.predictions import content_key, read_key, read_motion
from retargetbench.benchmark.run_folder import RunFolder, read_json
from retargetbench.benchmark.score_records import (
    ScoreRecord,
    read_record,
    value_key,
    write_frames,
    write_record,
)
from retargetbench.device import resolve_device
from retargetbench.discovery import one_line
from retargetbench.errors import CharacterError, FileFormatError, PluginError
from retargetbench.metrics.base import UNDEFINED, Evaluation, MetricValue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from retargetbench.benchmark.executors import Executor
    from retargetbench.benchmark.plan import Plan
    from retargetbench.benchmark.progress import Progress
    from retargetbench.clip import Clip
    from retargetbench.datasets.base import SplitRow
    from retargetbench.motion import Motion
    from retargetbench.registry import MetricInfo

KEY_COLUMNS = ("atom", "source", "motion", "target", "method", "failure")
"""Columns of ``scores.parquet`` before those of the metrics; ``failure`` is empty or says why a value is missing."""


@dataclass(frozen=True)
class ScoreJob:
    """Everything that is judged on one task."""

    folder: Path
    dataset: str
    dataset_hash: str
    row: SplitRow
    labels: tuple[str, ...]
    metrics: tuple[MetricInfo, ...]
    device: str

    def subject_key(self, label: str) -> str | None:
        """Content key of what is judged, or None where there is no motion."""
        return _subject_key(RunFolder(self.folder), self.dataset_hash, label, self.row)

    def missing(self, record: ScoreRecord, subject_key: str, metric: MetricInfo) -> frozenset[str]:
        """Columns of a metric that have no value yet."""
        names = [column.name for column in metric.columns]
        return frozenset(n for n in names if record.get(n, value_key(subject_key, metric, n)) is None)

    def is_done(self) -> bool:
        """Whether every value is there."""
        for label in self.labels:
            key = self.subject_key(label)
            record = read_record(RunFolder(self.folder).score(label, self.row))
            if key is not None and any(self.missing(record, key, metric) for metric in self.metrics):
                return False
        return True


def _subject_key(folder: RunFolder, dataset_hash: str, label: str, row: SplitRow) -> str | None:
    if label == SOURCE:
        return content_key("source", dataset_hash, row.source, row.motion)
    if label == GROUND_TRUTH:
        return content_key("ground truth", dataset_hash, row.source, row.motion, row.target)
    return read_key(folder.prediction(label, row))


def plan_score_jobs(plan: Plan, rows: Sequence[SplitRow], folder: RunFolder) -> list[ScoreJob]:
    """Make a job for each source clip, and one for each task with its ground truth and its predictions.

    The ground truth is judged for every task and not once per target, because metrics such as the contact error
    compare it with the source.
    """

    def job(row: SplitRow, labels: tuple[str, ...]) -> ScoreJob:
        return ScoreJob(folder.path.resolve(), plan.dataset, plan.dataset_hash, row, labels, plan.metrics, plan.device)

    methods = tuple(method.label for method in plan.methods)
    sources = {(row.source, row.motion): source_row(row) for row in rows}
    return [job(row, (SOURCE,)) for row in sources.values()] + [job(row, (GROUND_TRUTH, *methods)) for row in rows]


def source_row(row: SplitRow) -> SplitRow:
    """Return the row under which a task's source clip is judged: its own character is the target."""
    return type(row)(row.atom, row.source, row.motion, row.source)


def score(plan: Plan, rows: Sequence[SplitRow], folder: RunFolder, executor: Executor, progress: Progress) -> None:
    """Compute every value that is not there yet, and write ``scores.parquet``.

    Args:
        plan: what is done.
        rows: the tasks.
        folder: where predictions are and values go.
        executor: who works.
        progress: told after each task.
    """
    jobs = plan_score_jobs(plan, rows, folder)
    lay_out_known_scores(opened_dataset(plan.dataset).known_scores, jobs, folder)
    jobs = [job for job in jobs if not job.is_done()]
    progress.start("score tasks and sources", len(jobs))
    for job, result in run_isolating(executor, score_job, jobs, lambda job: [job]):
        if isinstance(result, Lost):
            for label in job.labels:
                _fail(job, label, result.reason, "")
        progress.advance()
    buffer = io.BytesIO()
    collect_scores(plan, rows, folder).to_parquet(buffer, index=False)
    folder.write(folder.scores_file, buffer.getvalue())


def score_job(job: ScoreJob) -> None:
    """Compute the values of a job that are not there yet."""
    device = resolve_device(job.device)
    dataset = opened_dataset(job.dataset)
    try:
        task = dataset.task(job.row)
        source = clip_on(task.source, device)
        target = character_on(task.target, device)
        truth = None if task.ground_truth is None else task.ground_truth.to(device)
    except Exception as error:  # a task that cannot be read costs only itself
        for label in job.labels:
            _fail(job, label, one_line(error), traceback.format_exc())
        return
    for label in job.labels:
        try:
            motion = _motion_of(job, label, source, truth)
            if motion is None:
                _score_nothing(job, label)
                continue
            known_truth = None if label == SOURCE else truth
            evaluation = Evaluation(source, target, motion.to(device), known_truth)
        except Exception as error:  # a motion that does not fit its target is a failure of that motion
            _fail(job, label, one_line(error), traceback.format_exc())
            continue
        _score_subject(job, label, evaluation)


def _motion_of(job: ScoreJob, label: str, source: Clip, truth: Motion | None) -> Motion | None:
    """Return the motion to judge, or None where there is none."""
    if label == SOURCE:
        return source.motion
    if label == GROUND_TRUTH:
        return truth
    path = RunFolder(job.folder).prediction(label, job.row)
    try:
        return read_motion(path) if path.exists() else None
    except (FileFormatError, CharacterError):
        path.unlink(missing_ok=True)  # the next run makes it again
        raise


def _score_nothing(job: ScoreJob, label: str) -> None:
    """Record that a task has no ground truth: all its values are undefined. No prediction needs no record."""
    key = job.subject_key(label)
    if key is None:
        return
    record = ScoreRecord()
    for metric in job.metrics:
        for column in metric.columns:
            record.values[column.name] = (value_key(key, metric, column.name), UNDEFINED.value)
    write_record(RunFolder(job.folder), label, job.row, record)


def _score_subject(job: ScoreJob, label: str, evaluation: Evaluation) -> None:
    """Judge one motion by all metrics; what is finished is written before the next metric begins."""
    folder = RunFolder(job.folder)
    key = job.subject_key(label)
    assert key is not None
    record = read_record(folder.score(label, job.row))
    for metric in job.metrics:
        wanted = job.missing(record, key, metric)
        if not wanted:
            continue
        record.failures.pop(metric.name, None)
        record.tracebacks.pop(metric.name, None)
        try:
            with contained():
                given = created_metric(metric).evaluate(_own_copy(evaluation, metric), wanted)
            values = _checked(given, wanted, evaluation.motion.frame_count)
        except Exception as error:  # whatever a metric raises costs its own columns on this task
            record.failures[metric.name] = one_line(error)
            record.tracebacks[metric.name] = traceback.format_exc()
        else:
            write_frames(folder, label, job.row, values)
            for name, value in values.items():
                record.values[name] = (value_key(key, metric, name), value.value)
        write_record(folder, label, job.row, record)


def _own_copy(evaluation: Evaluation, metric: MetricInfo) -> Evaluation:
    """Return motions that a plugin's metric may write into; those of the core share what they compute from them."""
    if metric.target.startswith("retargetbench."):
        return evaluation
    source, truth = evaluation.source, evaluation.ground_truth
    return Evaluation(
        replace(source, motion=_copied(source.motion)),
        evaluation.target,
        _copied(evaluation.motion),
        None if truth is None else _copied(truth),
    )


def _copied(motion: Motion) -> Motion:
    return replace(
        motion, root_translation=motion.root_translation.clone(), local_rotations=motion.local_rotations.clone()
    )


def _checked(values: object, wanted: frozenset[str], frames: int) -> dict[str, MetricValue]:
    """Return what a metric gave, if it is a value for each wanted column, and one per frame where it has those."""
    if not isinstance(values, dict) or not all(isinstance(v, MetricValue) for v in values.values()):
        raise PluginError("evaluate must return a dict of MetricValue by column")
    absent = wanted - set(values)
    if absent:
        raise PluginError(f"evaluate gave no value for {', '.join(sorted(absent))}")
    return {name: _checked_value(name, values[name], frames) for name in sorted(wanted)}


def _checked_value(name: str, value: MetricValue, frames: int) -> MetricValue:
    """Return a value as a plain number, with its values by frame on the CPU."""
    try:
        number = float(value.value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise PluginError(f"{name}: the value must be a number, got {value.value!r:.80}") from None
    by_frame = value.per_frame
    if by_frame is None:
        return MetricValue(number)
    if not isinstance(by_frame, torch.Tensor) or by_frame.is_meta:
        raise PluginError(f"{name}: per_frame must be a tensor, got {type(by_frame).__name__}")
    if tuple(by_frame.shape) != (frames,):
        raise PluginError(
            f"{name}: per_frame must be ({frames},) like the motion's frames, got {tuple(by_frame.shape)}"
        )
    return MetricValue(number, by_frame.detach().cpu())


def _fail(job: ScoreJob, label: str, why: str, where: str) -> None:
    """Record why a motion cannot be judged; values that are there stay."""
    folder = RunFolder(job.folder)
    key = job.subject_key(label)
    if key is None:
        return
    record = read_record(folder.score(label, job.row))
    for metric in job.metrics:
        if job.missing(record, key, metric):
            record.failures[metric.name] = why
            record.tracebacks[metric.name] = where
    write_record(folder, label, job.row, record)


def collect_scores(plan: Plan, rows: Sequence[SplitRow], folder: RunFolder) -> pd.DataFrame:
    """Gather the values of all tasks: a row per task and method, the references first."""
    import pandas as pd

    records = []
    for row in rows:
        for label in plan.labels:
            judged = source_row(row) if label == SOURCE else row
            failure, values = _row_values(plan, folder, label, judged)
            records.append((row.atom, row.source, row.motion, row.target, label, failure, *values))
    names = [column.name for column in plan.columns]
    frame = pd.DataFrame(records, columns=[*KEY_COLUMNS, *names])
    return frame.astype(dict.fromkeys(KEY_COLUMNS, "str") | dict.fromkeys(names, "float64"))


def _row_values(plan: Plan, folder: RunFolder, label: str, row: SplitRow) -> tuple[str, list[float]]:
    """Return why values are missing, or an empty text, and the values in the order of the columns."""
    key = _subject_key(folder, plan.dataset_hash, label, row)
    if key is None:
        failure = read_json(folder.failure(label, row))
        why = failure["reason"] if isinstance(failure, dict) else "there is no prediction"
        return why, [math.nan] * len(plan.columns)
    record = read_record(folder.score(label, row))
    failures = [f"{m.name}: {record.failures[m.name]}" for m in plan.metrics if m.name in record.failures]
    known = [
        record.get(column.name, value_key(key, metric, column.name))
        for metric in plan.metrics
        for column in metric.columns
    ]
    return "; ".join(failures), [math.nan if value is None else value for value in known]
