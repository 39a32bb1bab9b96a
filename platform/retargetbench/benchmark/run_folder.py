"""The folder of a run: where everything lies, and files that are there whole or not at all.

::

    runs/<run>/plan.json                                           what was asked for, versions and hashes
    runs/<run>/predictions/<method>/<source>/<motion>/<target>.npz motions
    runs/<run>/scores/<method>/<source>/<motion>/<target>.json     values and their keys; also of the references
    runs/<run>/frames/<method>/<source>/<motion>/<target>.npz      values by frame
    runs/<run>/failures/<method>/<source>/<motion>/<target>.json   why there is no prediction
    runs/<run>/speed/<method>.json                                 frames per second
    runs/<run>/scores.parquet, table.md, …                         what `report` makes of them
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from retargetbench.errors import RetargetBenchError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retargetbench.datasets.base import SplitRow

PLAN_FILE = "plan.json"
SCORES_FILE = "scores.parquet"

_RUNS_NAMED = 10

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_WRITE_ATTEMPTS = 3


def file_name(name: str) -> str:
    """Turn the name of a character or motion into a file name that every system takes, one to one.

    Example:
        >>> file_name("Hip Hop/2"), file_name("..")
        ('Hip Hop%2F2', '%2E.')
    """
    safe = quote(name, safe=" !#$&'()+,-.;=@[]^_`{}~")
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe


def task_path(row: SplitRow, suffix: str) -> Path:
    """Return the relative path of a task's file: ``<source>/<motion>/<target><suffix>``."""
    return Path(file_name(row.source), file_name(row.motion), file_name(row.target) + suffix)


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run, and atomic writing into it."""

    path: Path

    @property
    def plan_file(self) -> Path:
        """What the run was asked to do."""
        return self.path / PLAN_FILE

    @property
    def scores_file(self) -> Path:
        """One row per task and method."""
        return self.path / SCORES_FILE

    def prediction(self, label: str, row: SplitRow) -> Path:
        """Motion of a method for a task."""
        return self.path / "predictions" / label / task_path(row, ".npz")

    def failure(self, label: str, row: SplitRow) -> Path:
        """Why a method has no motion for a task."""
        return self.path / "failures" / label / task_path(row, ".json")

    def score(self, label: str, row: SplitRow) -> Path:
        """Values of a method for a task."""
        return self.path / "scores" / label / task_path(row, ".json")

    def frames(self, label: str, row: SplitRow) -> Path:
        """Values by frame of a method for a task."""
        return self.path / "frames" / label / task_path(row, ".npz")

    def speed(self, label: str) -> Path:
        """How fast a method is."""
        return self.path / "speed" / f"{label}.json"

    def write(self, path: Path, data: bytes) -> None:
        """Write a file of this run so that at any time, even after ``kill -9``, it is whole or absent.

        Raises:
            RetargetBenchError: the file system refuses.
        """
        unfinished = self.path / ".unfinished"
        for attempt in range(_WRITE_ATTEMPTS):
            temporary = unfinished / uuid.uuid4().hex
            try:
                unfinished.mkdir(parents=True, exist_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary.write_bytes(data)
                os.replace(temporary, path)
                return
            except FileNotFoundError as error:
                # The same command in another terminal has finished and removed the folder of unfinished files.
                if attempt == _WRITE_ATTEMPTS - 1:
                    raise RetargetBenchError(f"{path} cannot be written: {error.strerror}") from None
            except OSError as error:
                raise RetargetBenchError(f"{path} cannot be written: {error.strerror or error}") from None

    def write_json(self, path: Path, value: Any) -> None:
        """Write a value as JSON, readable by people."""
        self.write(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())

    def forget_results(self) -> None:
        """Delete everything that can be computed again."""
        for name in ("predictions", "scores", "frames", "failures", "speed"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def remove_unfinished(self) -> None:
        """Delete what an earlier, killed process left half written."""
        shutil.rmtree(self.path / ".unfinished", ignore_errors=True)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None where there is no readable one."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def check_run_name(name: str) -> str:
    """Return a name that can be a run's folder or a method's label.

    Raises:
        UsageError: it cannot.
    """
    if not _RUN_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a folder name here; use up to 100 letters, digits, '.', '_' and '-', a letter or "
            f"digit first"
        )
    return name


def find_runs(out: Path) -> Iterator[RunFolder]:
    """Give all runs of a folder, sorted by name."""
    for plan in sorted(out.glob(f"*/{PLAN_FILE}")):
        yield RunFolder(plan.parent)


def get_run(run: str, out: Path = Path("runs")) -> RunFolder:
    """Return a run by its folder or by its id.

    Raises:
        UnknownNameError: it is neither.
    """
    for path in (Path(run), out / run):
        if (path / PLAN_FILE).is_file():
            return RunFolder(path)
    known = sorted(find_runs(out), key=lambda folder: folder.plan_file.stat().st_mtime, reverse=True)
    names = [folder.path.name for folder in known]
    older = f"The newest {_RUNS_NAMED} of {len(names)} runs are named" if len(names) > _RUNS_NAMED else ""
    raise UnknownNameError(f"run in {out}", run, names[:_RUNS_NAMED], note=older)
