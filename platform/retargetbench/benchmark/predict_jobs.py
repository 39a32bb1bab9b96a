"""Jobs of the predict step: which tasks are done together, and what is known about each of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from retargetbench.benchmark.predictions import prediction_key, read_key
from retargetbench.benchmark.run_folder import RunFolder, read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retargetbench.benchmark.plan import Plan, PlannedMethod
    from retargetbench.datasets.base import SplitRow

MAX_ROWS_PER_JOB = 16
"""Tasks that one worker takes at a time, all of one target."""

MAX_FRAMES_PER_CALL = 2048
"""Frames that a method gets at once; a longer clip comes alone."""


@dataclass(frozen=True)
class PredictJob:
    """Tasks of one target for one method."""

    folder: Path
    dataset: str
    dataset_hash: str
    method: PlannedMethod
    rows: tuple[SplitRow, ...]
    device: str
    seed: int
    max_frames: int = MAX_FRAMES_PER_CALL

    def key(self, row: SplitRow) -> str:
        """Content key of the motion for a task."""
        return prediction_key(self.method.key, self.dataset_hash, row, self.seed)

    def is_done(self, row: SplitRow) -> bool:
        """Whether the motion is there already."""
        return read_key(RunFolder(self.folder).prediction(self.method.label, row)) == self.key(row)

    def has_failed(self, row: SplitRow) -> bool:
        """Whether an earlier run recorded that this method fails on this task."""
        record = read_json(RunFolder(self.folder).failure(self.method.label, row))
        return isinstance(record, dict) and record.get("key") == self.key(row)

    def fail(self, row: SplitRow, why: str, where: str = "") -> None:
        """Record that there is no motion, and take away one of an earlier version."""
        folder = RunFolder(self.folder)
        folder.write_json(
            folder.failure(self.method.label, row), {"key": self.key(row), "reason": why, "traceback": where}
        )
        folder.prediction(self.method.label, row).unlink(missing_ok=True)

    def finish(self, row: SplitRow, content: bytes) -> None:
        """Write a motion, and forget a failure of an earlier run."""
        folder = RunFolder(self.folder)
        folder.write(folder.prediction(self.method.label, row), content)
        folder.failure(self.method.label, row).unlink(missing_ok=True)


def plan_jobs(plan: Plan, rows: Sequence[SplitRow], folder: RunFolder, method: PlannedMethod) -> list[PredictJob]:
    """Group the tasks of a method by target."""
    by_target = sorted(rows, key=lambda row: row.target)
    jobs = []
    for _, group in groupby(by_target, key=lambda row: row.target):
        tasks = tuple(group)
        jobs += [
            PredictJob(
                folder.path.resolve(),
                plan.dataset,
                plan.dataset_hash,
                method,
                tasks[k : k + MAX_ROWS_PER_JOB],
                plan.device,
                plan.seed,
            )
            for k in range(0, len(tasks), MAX_ROWS_PER_JOB)
        ]
    return jobs
