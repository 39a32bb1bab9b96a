"""Executors: all jobs done, deaths of workers contained, nothing depends on who works."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch

from retargetbench.benchmark.executors import Executor, InProcess, Lost, Processes, Submitit, run_isolating
from retargetbench.errors import RetargetBenchError

Job = tuple[str, ...]


def count_letters(job: Job) -> int:
    return sum(map(len, job))


def threads(_: Job) -> int:
    return torch.get_num_threads()


def die_at_bad(job: Job) -> int:
    """Do a job whose parts are files to touch; the part ``bad`` kills the process."""
    for name in job:
        if name.endswith("bad"):
            os.kill(os.getpid(), signal.SIGKILL)
        Path(name).touch()
    return len(job)


def die_once(job: Job) -> int:
    """Kill the process on the first try."""
    mark = Path(job[0])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def raise_error(job: Job) -> int:
    raise ValueError(f"cannot do {job[0]}")


def wait_long(job: Job) -> int:
    Path(job[0]).write_text(str(os.getpid()))
    time.sleep(60)
    return 0


def singles(job: Job) -> list[Job]:
    return [(part,) for part in job]


JOBS: list[Job] = [("a",), ("bb", "c"), ("dddd",), ()]


@pytest.mark.parametrize("executor", [InProcess(), Processes(2)], ids=["in process", "two processes"])
def test_every_job_is_done_once(executor: Executor) -> None:
    with closing(executor):
        assert sorted(executor.run(count_letters, JOBS)) == sorted((job, count_letters(job)) for job in JOBS)
        assert list(executor.run(count_letters, [])) == []


@pytest.mark.parametrize("executor", [InProcess(), Processes(1)], ids=["in process", "one process"])
def test_jobs_compute_with_one_thread(executor: Executor) -> None:
    with closing(executor):
        assert [result for _, result in executor.run(threads, [()])] == [1]


def test_processes_are_used_again_by_the_next_run() -> None:
    with closing(Processes(1)) as executor:
        first = [result for _, result in executor.run(process_id, [()])]
        assert first == [result for _, result in executor.run(process_id, [()])]
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(first[0])), 0)


def process_id(_: Job) -> int:
    return os.getpid()


def test_a_killed_worker_costs_only_its_own_part_of_a_job(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "bad", "two", "three")]
    jobs: list[Job] = [tuple(paths[:3]), (paths[3],)]
    with closing(Processes(2)) as executor:
        results = dict(run_isolating(executor, die_at_bad, jobs, singles))
    lost = {job: result for job, result in results.items() if isinstance(result, Lost)}
    assert list(lost) == [(paths[1],)]
    assert "SIGKILL" in lost[(paths[1],)].reason
    assert all(Path(path).exists() for path in (paths[0], paths[2], paths[3]))


def test_a_worker_that_dies_once_is_tried_again(tmp_path: Path) -> None:
    with closing(Processes(1)) as executor:
        results = list(run_isolating(executor, die_once, [(str(tmp_path / "mark"),)], singles))
    assert [result for _, result in results] == [1]


def test_an_error_of_the_platform_ends_the_run_and_says_where() -> None:
    with closing(Processes(1)) as executor, pytest.raises(RetargetBenchError, match="ValueError: cannot do it") as info:
        list(executor.run(raise_error, [("it",)]))
    assert "raise_error" in "".join(info.value.__notes__)


def test_workers_end_when_the_run_is_given_up(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    executor = Processes(2)
    results = executor.run(first_waits, [(str(mark),), ("quick", str(mark))])
    next(results)
    worker = int(mark.read_text())
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def first_waits(job: Job) -> int:
    """Wait for long in the first job; in the second until the first has begun."""
    if job[0] != "quick":
        return wait_long(job)
    while not Path(job[1]).exists() or not Path(job[1]).read_text():
        time.sleep(0.05)
    return 1


@pytest.fixture
def submitit_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submitit:
    """Two cluster jobs on this machine, which can import this file."""
    pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return Submitit(2, tmp_path / "submitit", cluster="local")


def test_submitit_does_every_job_on_its_local_executor(submitit_executor: Submitit) -> None:
    results = sorted(submitit_executor.run(count_letters, JOBS))
    assert results == sorted((job, count_letters(job)) for job in JOBS)


@pytest.mark.slow
def test_submitit_reports_the_jobs_of_a_dead_cluster_job_as_lost(submitit_executor: Submitit, tmp_path: Path) -> None:
    good, bad = (str(tmp_path / "good"),), (str(tmp_path / "bad"),)
    results = dict(submitit_executor.run(die_at_bad, [good, bad]))
    assert results[good] == 1
    assert isinstance(results[bad], Lost)


@pytest.mark.slow
def test_submitit_reports_an_error_of_the_platform(submitit_executor: Submitit) -> None:
    with pytest.raises(RetargetBenchError, match=r"cluster job .* failed") as info:
        list(submitit_executor.run(raise_error, [("it",)]))
    assert "ValueError: cannot do it" in "".join(info.value.__notes__)
