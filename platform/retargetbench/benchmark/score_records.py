"""Values of one method for one task, with the key that each was computed under."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from retargetbench.benchmark.predictions import UNREADABLE, content_key
from retargetbench.benchmark.run_folder import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from retargetbench.benchmark.run_folder import RunFolder
    from retargetbench.datasets.base import SplitRow
    from retargetbench.metrics.base import MetricValue
    from retargetbench.registry import MetricInfo


def value_key(subject_key: str, metric: MetricInfo, column: str) -> str:
    """Name a value by all it depends on: what is judged, the metric and its version, the column."""
    return content_key("value", subject_key, metric.name, metric.version, column)


@dataclass
class ScoreRecord:
    """What is known about one method on one task.

    Attributes:
        values: column → (key, value); NaN where the metric is undefined.
        failures: metric → why it raised.
        tracebacks: metric → where it raised.
    """

    values: dict[str, tuple[str, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    tracebacks: dict[str, str] = field(default_factory=dict)

    def get(self, column: str, key: str) -> float | None:
        """Return a value if it was computed under this key."""
        known, value = self.values.get(column, ("", math.nan))
        return value if known == key else None


def read_record(path: Path) -> ScoreRecord:
    """Read a record; an empty one where there is no readable file."""
    stored = read_json(path)
    try:
        values = {
            name: (v["key"], math.nan if v["value"] is None else float(v["value"]))
            for name, v in stored["values"].items()
        }
        return ScoreRecord(values, dict(stored["failures"]), dict(stored["tracebacks"]))
    except (AttributeError, KeyError, TypeError, ValueError):  # a file of somebody else is as good as none
        return ScoreRecord()


def write_record(folder: RunFolder, label: str, row: SplitRow, record: ScoreRecord) -> None:
    """Write a record; JSON has no NaN, so an undefined value is null."""
    values = {
        name: {"key": key, "value": None if math.isnan(value) else value}
        for name, (key, value) in record.values.items()
    }
    stored = {"values": values, "failures": record.failures, "tracebacks": record.tracebacks}
    folder.write_json(folder.score(label, row), stored)


def write_frames(folder: RunFolder, label: str, row: SplitRow, values: dict[str, MetricValue]) -> None:
    """Add values by frame to a task's ``.npz`` file: column → (T,), single precision."""
    new = {
        name: value.per_frame.detach().cpu().float().numpy()
        for name, value in values.items()
        if value.per_frame is not None
    }
    if not new:
        return
    path = folder.frames(label, row)
    arrays: dict[str, Any] = read_frames(path) | new
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    folder.write(path, buffer.getvalue())


def read_frames(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the values by frame of a task, column → (T,); empty where there are none."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except UNREADABLE:
        return {}
