"""Where jobs are done: in this process, in processes beside it, or on a cluster.

A job is a picklable value and the work on it a module-level function, so that every executor can carry both. Results
go through files; what a job returns is small. Every process computes with one thread: sums of several threads depend
on their number, and results must not depend on how many workers there are.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import torch

from retargetbench.errors import MissingExtraError, RetargetBenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from pathlib import Path

J = TypeVar("J")
R = TypeVar("R")

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Lost:
    """A job whose process died, so that there is no result."""

    reason: str
    """How it died, one line."""


class Executor(Protocol):
    """Does jobs, in any order."""

    def run(self, work: Callable[[J], R], jobs: Sequence[J]) -> Iterator[tuple[J, R | Lost]]:
        """Do all jobs and give each with its result as soon as it is there.

        An exception that ``work`` raises is an error of the platform and ends the run; what plugins raise, ``work``
        itself turns into results.
        """

    def close(self) -> None:
        """End what was started; the executor is not used any more."""


class InProcess:
    """Does one job after the other in this process."""

    def run(self, work: Callable[[J], R], jobs: Sequence[J]) -> Iterator[tuple[J, R | Lost]]:
        """Do all jobs in their order."""
        for job in jobs:
            with _one_thread():
                result = work(job)
            yield job, result

    def close(self) -> None:
        """There is nothing to end."""


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread for a while."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass
class _Worker(Generic[J]):
    """A process and the job it works on."""

    process: BaseProcess
    connection: Connection
    job: J | None = None


class Processes:
    """Does jobs in processes of this machine, which live until `close`.

    A process that dies (out of memory, a crash in native code) costs only its own job; a new one takes its place.
    Processes are spawned, because forked ones cannot use cuda.
    """

    def __init__(self, workers: int) -> None:
        self._limit = workers
        self._workers: list[_Worker[Any]] = []

    def run(self, work: Callable[[J], R], jobs: Sequence[J]) -> Iterator[tuple[J, R | Lost]]:
        """Do all jobs; each idle process takes the next one."""
        waiting = list(reversed(jobs))
        try:
            while waiting or any(worker.job is not None for worker in self._workers):
                while waiting and (idle := _idle(self._workers, self._limit)) is not None:
                    idle.job = waiting.pop()
                    # A worker that died while it was idle shows when its answer is waited for.
                    with contextlib.suppress(OSError):
                        idle.connection.send((work, idle.job))
                yield from _collect(self._workers)
        except BaseException:
            for worker in self._workers:
                worker.process.terminate()
            self.close()
            raise

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.connection.send(None)
            worker.connection.close()
            worker.process.join()
        self._workers.clear()


def _idle(workers: list[_Worker[J]], limit: int) -> _Worker[J] | None:
    """Return a worker without a job, a new one if there may be more, or None."""
    for worker in workers:
        if worker.job is None:
            return worker
    if len(workers) == limit:
        return None
    workers.append(_start_worker())
    return workers[-1]


def _start_worker() -> _Worker[Any]:
    """Spawn a process that starts with one thread; the variables must be set before it imports torch."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    try:
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    theirs.close()
    return _Worker(process, ours)


def _collect(workers: list[_Worker[J]]) -> Iterator[tuple[J, Any | Lost]]:
    """Wait until a worker has answered or died, and give what its job came to."""
    busy = {worker.connection: worker for worker in workers if worker.job is not None}
    for connection in wait(list(busy)):
        worker = busy[cast("Connection", connection)]
        job = cast("J", worker.job)
        try:
            error, result = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            worker.connection.close()
            workers.remove(worker)
            yield job, Lost(_cause_of_death(worker.process.exitcode))
            continue
        worker.job = None
        if error is not None:
            summary, where = error
            failure = RetargetBenchError(f"a worker process failed: {summary}")
            failure.add_note(where)
            raise failure
        yield job, result


def _cause_of_death(exit_code: int | None) -> str:
    """Say how a process ended."""
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"the worker process was ended by {name}{hint}"
    return f"the worker process ended with exit code {exit_code}"


def _serve(connection: Connection) -> None:
    """Work until told to stop or until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C reaches the whole group; the parent decides
    torch.set_num_threads(1)
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        if message is None:
            return
        work, job = message
        answer: tuple[tuple[str, str] | None, Any]
        try:
            answer = (None, work(job))
        except Exception as error:  # as text: not every exception survives pickling
            answer = ((f"{type(error).__name__}: {error}", traceback.format_exc()), None)
        try:
            connection.send(answer)
        except OSError:
            return


class Submitit:
    """Does jobs on a SLURM cluster, or in processes of this machine where there is none.

    Args:
        workers: how many cluster jobs share the work.
        folder: where submitit keeps its files; all machines must see it.
        parameters: what `submitit.AutoExecutor.update_parameters` takes, such as ``slurm_partition``.
        cluster: ``slurm``, ``local``, or None to look.
    """

    def __init__(
        self, workers: int, folder: Path, parameters: Mapping[str, str] | None = None, cluster: str | None = None
    ) -> None:
        self.workers = workers
        self.folder = folder
        self.parameters = dict(parameters or {})
        self.cluster = cluster

    def run(self, work: Callable[[J], R], jobs: Sequence[J]) -> Iterator[tuple[J, R | Lost]]:
        """Deal the jobs out to cluster jobs; those of one that dies are all lost."""
        try:
            import submitit
        except ImportError:
            raise MissingExtraError("submitit", "cluster", "the executor 'submitit'") from None
        executor = submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
        numbers = {name: int(value) if value.isdigit() else value for name, value in self.parameters.items()}
        executor.update_parameters(**{"cpus_per_task": 1, "timeout_min": 24 * 60, **numbers})
        hands = [list(jobs[k :: self.workers]) for k in range(min(self.workers, len(jobs)))]
        pending = {executor.submit(_do_hand, work, hand): hand for hand in hands}
        try:
            while pending:
                done = [job for job in pending if job.done()]
                for job in done:
                    hand = pending.pop(job)
                    results: Sequence[R | Lost] = _results_of(job, len(hand))
                    yield from zip(hand, results, strict=True)
                if not done:
                    time.sleep(_POLL_SECONDS)
        except BaseException:
            for job in pending:
                job.cancel()
            raise

    def close(self) -> None:
        """There is nothing to end: cluster jobs end when their work is done."""


def _do_hand(work: Callable[[J], R], hand: list[J]) -> list[R]:
    """Do all jobs of one cluster job."""
    torch.set_num_threads(1)
    return [work(job) for job in hand]


def _results_of(job: Any, count: int) -> list[Any]:
    """Return what a cluster job gave, or why it gave nothing."""
    import submitit

    try:
        return cast("list[Any]", job.result())
    except submitit.core.utils.FailedJobError as error:
        failure = RetargetBenchError(f"cluster job {job.job_id} failed; see {job.paths.stderr}")
        failure.add_note(str(error))
        raise failure from None
    except submitit.core.utils.UncompletedJobError:
        return [Lost(f"cluster job {job.job_id} ended without a result; see {job.paths.stderr}")] * count


def run_isolating(
    executor: Executor, work: Callable[[J], R], jobs: Sequence[J], split: Callable[[J], Sequence[J]]
) -> Iterator[tuple[J, R | Lost]]:
    """Do all jobs; one that is lost is tried once more, and then in its parts, so that only the guilty part fails.

    Args:
        executor: does the jobs.
        work: a module-level function.
        jobs: picklable.
        split: the smallest parts of a job; a job that is its own smallest part gives itself.

    Yields:
        Every job, or every part of a job that was split, with its result.
    """
    lost: list[J] = []
    for job, result in executor.run(work, jobs):
        if isinstance(result, Lost):
            lost.append(job)
        else:
            yield job, result
    if not lost:
        return
    parts: list[J] = []
    for job, result in executor.run(work, lost):
        if not isinstance(result, Lost) or len(split(job)) == 1:
            yield job, result
        else:
            parts.extend(split(job))
    yield from executor.run(work, parts)
