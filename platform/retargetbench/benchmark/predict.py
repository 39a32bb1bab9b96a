"""The predict step: methods put motions on targets, and every motion is checked and written by itself.

Tasks are grouped by target and retargeted together, up to a number of frames. Groups depend on the plan alone, not
on what is done already nor on the number of workers, because the last bits of a method may depend on what it computes
together. A group that fails is done task by task, so that only the guilty task has no motion.
"""

from __future__ import annotations

import statistics
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from retargetbench.benchmark.containment import contained
from retargetbench.benchmark.environment import device_name
from retargetbench.benchmark.executors import Lost, run_isolating
from retargetbench.benchmark.external import import_job
from retargetbench.benchmark.opened import character_on, clip_on, created_method, opened_dataset
from retargetbench.benchmark.predict_jobs import plan_jobs
from retargetbench.benchmark.predictions import check_outputs, encode_motion
from retargetbench.benchmark.run_folder import read_json
from retargetbench.device import resolve_device
from retargetbench.discovery import one_line
from retargetbench.metrics import SPEED
from retargetbench.transfer import from_canonical_motion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retargetbench.benchmark.executors import Executor
    from retargetbench.benchmark.plan import Plan
    from retargetbench.benchmark.predict_jobs import PredictJob
    from retargetbench.benchmark.progress import Progress
    from retargetbench.benchmark.run_folder import RunFolder
    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.datasets.base import SplitRow
    from retargetbench.methods import RetargetMethod

_SPEED_REPEATS = 3
_SPEED_SECONDS = 0.5


def predict(plan: Plan, rows: Sequence[SplitRow], folder: RunFolder, executor: Executor, progress: Progress) -> None:
    """Make every motion that is not there yet.

    Args:
        plan: what is done.
        rows: the tasks.
        folder: where motions, failures and speeds go.
        executor: who works.
        progress: told after each job.
    """
    for method in plan.methods:
        jobs = plan_jobs(plan, rows, folder, method)
        if method.error:
            for job in jobs:
                for row in job.rows:
                    job.fail(row, method.error)
            continue
        missing = [sum(not job.is_done(row) for row in job.rows) for job in jobs]
        open_jobs = [job for job, count in zip(jobs, missing, strict=True) if count]
        kept = len(rows) - sum(missing)
        if kept:
            progress.note(f"predict {method.label}: {kept} of {len(rows)} motions are there already")
        progress.start(f"predict {method.label}", sum(len(job.rows) for job in open_jobs))
        work = import_job if method.predictions else predict_job
        for job, result in run_isolating(executor, work, open_jobs, _single_tasks):
            if isinstance(result, Lost):
                for row in job.rows:
                    if not job.is_done(row):
                        job.fail(row, result.reason)
            progress.advance(len(job.rows))
        if not method.predictions:
            _measure_speed(folder, jobs[0], executor)


def _single_tasks(job: PredictJob) -> list[PredictJob]:
    return [replace(job, rows=(row,)) for row in job.rows]


def predict_job(job: PredictJob) -> None:
    """Make the motions of a job that are not there yet."""
    method = created_method(job.method.method, job.method.options, resolve_device(job.device))
    for rows, clips in _groups(job, method.device):
        missing = [k for k, row in enumerate(rows) if not job.is_done(row)]
        known_to_fail = any(job.has_failed(rows[k]) for k in missing)
        if not missing:
            continue
        if known_to_fail or not _retarget(job, method, rows, clips, missing, alone=len(rows) == 1):
            for k in missing:
                if not job.is_done(rows[k]):
                    _retarget(job, method, rows[k : k + 1], clips[k : k + 1], [0], alone=True)


def _groups(job: PredictJob, device: torch.device) -> Iterator[tuple[list[SplitRow], list[Clip]]]:
    """Load clips one after the other and give them in groups of at most ``max_frames`` frames."""
    dataset = opened_dataset(job.dataset, job.method.label)
    rows: list[SplitRow] = []
    clips: list[Clip] = []
    for row in job.rows:
        try:
            clip = clip_on(dataset.clip(row.source, row.motion), device)
        except Exception as error:  # a clip that cannot be read costs its own tasks
            job.fail(row, one_line(error), traceback.format_exc())
            continue
        if clips and sum(c.motion.frame_count for c in clips) + clip.motion.frame_count > job.max_frames:
            yield rows, clips
            rows, clips = [], []
        rows.append(row)
        clips.append(clip)
    if rows:
        yield rows, clips


def _retarget(
    job: PredictJob,
    method: RetargetMethod,
    rows: Sequence[SplitRow],
    clips: Sequence[Clip],
    missing: Sequence[int],
    *,
    alone: bool,
) -> bool:
    """Retarget a group and write what is missing; a failure is recorded only when the task is alone."""
    try:
        target = character_on(opened_dataset(job.dataset, job.method.label).character(rows[0].target), method.device)
        torch.manual_seed(job.seed)
        with contained():
            outputs = method.retarget(clips, target)
        motions = check_outputs(outputs, clips)
        contents = {
            k: encode_motion(from_canonical_motion(target.skeleton, motions[k], clips[k]), job.key(rows[k]))
            for k in missing
        }
    except Exception as error:  # whatever a method raises is its failure on these tasks
        if alone:
            job.fail(rows[0], one_line(error), traceback.format_exc())
        return False
    for k, content in contents.items():
        job.finish(rows[k], content)
    return True


def _measure_speed(folder: RunFolder, job: PredictJob, executor: Executor) -> None:
    """Measure a method's speed once, while nothing else is running."""
    path = folder.speed(job.method.label)
    known = read_json(path)
    if isinstance(known, dict) and known.get("key") == job.method.key:
        return
    for _, result in executor.run(speed_job, [job]):
        if not isinstance(result, Lost):
            folder.write_json(path, {"key": job.method.key, **result})


def speed_job(job: PredictJob) -> dict[str, object]:
    """Measure how many frames a method retargets in a second, warmed up.

    The first group of the job is retargeted once untimed, then several times; the median counts. A method that
    fails on it has no speed.

    Returns:
        ``frames_per_second`` (None where the method fails) and ``device``.
    """
    method = created_method(job.method.method, job.method.options, resolve_device(job.device))
    result: dict[str, object] = {SPEED.name: None, "device": device_name(method.device)}
    group = next(_groups(job, method.device), None)
    if group is None:
        return result
    rows, clips = group
    try:
        target = character_on(opened_dataset(job.dataset, job.method.label).character(rows[0].target), method.device)
        times: list[float] = []
        _timed(method, clips, target)
        while len(times) < _SPEED_REPEATS or (sum(times) < _SPEED_SECONDS and len(times) < 20 * _SPEED_REPEATS):
            times.append(_timed(method, clips, target))
    except Exception:  # recorded, with its reason, by the step that makes the motions
        return result
    frames = sum(clip.motion.frame_count for clip in clips)
    return result | {SPEED.name: frames / statistics.median(times)}


def _timed(method: RetargetMethod, clips: Sequence[Clip], target: Character) -> float:
    """Return the seconds that a method needs for a group."""
    _wait_for(method.device)
    start = time.perf_counter()
    with contained():
        method.retarget(clips, target)
    _wait_for(method.device)
    return time.perf_counter() - start


def _wait_for(device: torch.device) -> None:
    """Wait until a device has done what was asked of it; only cuda works on after the call returns."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
