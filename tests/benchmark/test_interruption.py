"""``kill -9`` in the middle, then the same command: nothing finished is done again, and the tables are the same."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_pipeline import TABLES, only_run, times

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from fake_plugins import PluginFolder

COMMAND = ("--methods", "slow,copy", "--metrics", "tall_value,mse")


def files(folder: str, count: int) -> bool:
    """Whether a folder of the run holds at least so many files."""
    runs = list(Path("runs").glob("*"))
    return bool(runs) and sum(path.is_file() for path in (runs[0] / folder).rglob("*")) >= count


def kill_when(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    """Wait until a run has come far enough, then end it as nothing can prevent."""
    deadline = time.monotonic() + 120
    while not ready():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_run_that_is_killed_in_predict_and_in_score_is_continued(
    start_bench: Callable[..., subprocess.Popen[str]],
    bench: Callable[..., int],
    lab: PluginFolder,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = workplace / "log"
    # Predictions come in groups of one target, four clips each, so the second target is under way when the kill comes.
    kill_when(start_bench(*COMMAND, LAB_METHOD_SECONDS="0.3", LAB_LOG=str(log)), lambda: files("predictions/slow", 4))
    predicted = times(only_run(), "predictions")
    assert 4 <= len(predicted) < 24
    assert not (only_run() / "scores.parquet").exists()

    kill_when(start_bench(*COMMAND, LAB_METRIC_SECONDS="0.2", LAB_LOG=str(log)), lambda: files("scores", 5))
    scored = times(only_run(), "scores", "frames")
    assert 5 <= len(scored) < 60
    assert times(only_run(), "predictions").items() >= predicted.items()
    all_predicted = times(only_run(), "predictions")

    monkeypatch.setenv("LAB_LOG", str(log))
    assert bench("--methods", "slow,copy", metrics="tall_value,mse") == 0
    assert times(only_run(), "predictions") == all_predicted
    last_written = max(scored.values())
    after = times(only_run(), "scores", "frames")
    # The file that was being written when the kill came may have been completed since.
    assert all(after[path] == written for path, written in scored.items() if written < last_written)
    assert not (only_run() / ".unfinished").exists()

    continued = {name: (only_run() / name).read_bytes() for name in TABLES}
    assert bench("--methods", "slow,copy", "--out", "whole", metrics="tall_value,mse") == 0
    (whole,) = Path("whole").iterdir()
    assert continued == {name: (whole / name).read_bytes() for name in TABLES}
    assert {path.name: path.read_bytes() for path in (only_run() / "plots").iterdir()} == {
        path.name: path.read_bytes() for path in (whole / "plots").iterdir()
    }


def test_no_task_is_judged_twice_after_a_kill(
    start_bench: Callable[..., subprocess.Popen[str]],
    bench: Callable[..., int],
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = workplace / "log"
    started = start_bench("--methods", "copy", "--metrics", "tall_value", LAB_METRIC_SECONDS="0.1", LAB_LOG=str(log))
    kill_when(started, lambda: files("scores", 6))
    before = log.read_text().splitlines()
    finished = sum(path.is_file() for path in (only_run() / "scores").rglob("*"))
    monkeypatch.setenv("LAB_LOG", str(log))
    assert bench("--methods", "copy", metrics="tall_value") == 0
    after = log.read_text().splitlines()[len(before) :]
    # 6 source clips, and 12 tasks with ground truth and one method.
    assert len(after) == 30 - finished


@pytest.mark.slow
def test_ctrl_c_ends_the_run_and_its_workers(start_bench: Callable[..., subprocess.Popen[str]]) -> None:
    process = start_bench("--methods", "slow", "--metrics", "mse", "--workers", "2", LAB_METHOD_SECONDS="0.5")
    deadline = time.monotonic() + 120
    while not files("predictions", 1):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert process.stderr is not None
    said = process.stderr.read()
    assert "Traceback" not in said
    assert said.endswith("interrupted; what is finished is kept, and the same command continues\n")
    made = len(times(only_run(), "predictions"))
    time.sleep(2)
    assert len(times(only_run(), "predictions")) == made
