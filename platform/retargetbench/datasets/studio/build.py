"""Builds the dataset: bodies, performances on the reference body, and every performance on every body.

Three stages with files between them (`retargetbench.datasets.studio.build_store`); each makes what is missing and
nothing else. The key of a file says what it was made from: the content of what it reads, the seed, the version of torch
and the source code behind it in this package. Code elsewhere in the platform is not part of it.

Every clip is solved by itself, so its bytes depend on nothing but its key: a build of a few characters and actions
gives the same bytes as a build of all. (Solving six clips of a body together saves no time with this solver, 22.1 s
against 20.4 s of processor time for six clips on ``pear``, and changes results: sums in another order differ in the
last bits, and 24 steps with nearest neighbours make up to degrees of them.) For the same reason another processor or
version of torch may give other solutions; the gates hold for those that are shipped.
"""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from retargetbench.datasets.studio.build_store import BuildStore, has_key, read_digest, read_failure, write_failure
from retargetbench.datasets.studio.build_work import (
    CLIP_MODULES,
    PERFORMANCE_MODULES,
    WORK_VERSION,
    ClipJob,
    PerformanceJob,
    make_clips,
    make_performance,
)
from retargetbench.discovery import one_line
from retargetbench.errors import DatasetError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retargetbench.benchmark.executors import Executor
    from retargetbench.benchmark.progress import Progress
    from retargetbench.datasets.studio.build_bodies import BodySource
    from retargetbench.datasets.studio.takes import Take

CLIPS_PER_JOB = 8
"""Clips of one body with the same hands that a worker makes before it reports; each is kept as soon as it is made.

To prepare a body takes a second or two, about half as long as a clip, and every worker does it for itself.
"""


@dataclass(frozen=True)
class BuildPlan:
    """What is to be built.

    Attributes:
        folder: where files are kept on the way.
        cast: names of the characters that get clips.
        reference: name of the body on which performances are made, of the cast or not.
        takes: the performances.
    """

    folder: Path
    cast: tuple[str, ...]
    reference: str
    takes: tuple[Take, ...] = ()

    @property
    def store(self) -> BuildStore:
        """The files."""
        return BuildStore(self.folder)

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of all bodies that are needed, the reference first."""
        return (self.reference, *(name for name in self.cast if name != self.reference))

    def performance_key(self, take: Take) -> str:
        """Key of a performance; the reference body must be there."""
        body = read_digest(self.store.body_file(self.reference))
        hands = [take.left, take.right]
        return _key(_versions(PERFORMANCE_MODULES), take.name, take.origin.identity(), hands, body)

    def clip_keys(self) -> dict[tuple[str, str], str]:
        """Keys of all clips by character and take; bodies and performances must be there."""
        bodies = {name: read_digest(self.store.body_file(name)) for name in self.cast}
        versions = _versions(CLIP_MODULES)
        keys = {}
        for take in self.takes:
            performance = read_digest(self.store.performance_file(take.name))
            for name, body in bodies.items():
                keys[name, take.name] = _key(versions, performance, body, name == self.reference)
        return keys


def build_bodies(plan: BuildPlan, source: BodySource, progress: Progress) -> dict[str, str]:
    """Make the bodies that are missing.

    Args:
        plan: what is to be built; its takes do not matter yet.
        source: builds the bodies, or has them.
        progress: shows the stage.

    Returns:
        Why a body could not be made, by name.

    Raises:
        DatasetError: the reference body could not be made.
        MissingExtraError: the source needs a package that is not installed.
    """
    plan.store.remove_unfinished()
    keys = {name: source.key(name) for name in plan.bodies}
    missing = [name for name in plan.bodies if not has_key(plan.store.body_file(name), keys[name])]
    progress.start("bodies", len(missing))
    for name in missing:
        try:
            body = source.make(name)
        except MissingExtraError:
            raise
        except Exception as error:  # one body that cannot be built does not end the build
            write_failure(plan.store.body_file(name), keys[name], one_line(error))
        else:
            plan.store.write_body(keys[name], body)
        progress.advance()
    failures = _failures(plan.store.body_file, plan.bodies)
    if plan.reference in failures:
        raise DatasetError(f"the reference body {plan.reference} cannot be made: {failures[plan.reference]}")
    return failures


def build_performances(plan: BuildPlan, executor: Executor, progress: Progress) -> dict[str, str]:
    """Make the performances on the reference body that are missing.

    Returns:
        Why a performance could not be made, by take.
    """
    keys = {take.name: plan.performance_key(take) for take in plan.takes}
    jobs = [
        PerformanceJob(plan.store, plan.reference, take, keys[take.name])
        for take in plan.takes
        if not has_key(plan.store.performance_file(take.name), keys[take.name])
    ]
    progress.start("actions", len(jobs))
    lost = {}
    for job, result in executor.run(make_performance, jobs):
        if result is not None:
            lost[job.take.name] = result.reason
        progress.advance()
    return lost | _failures(plan.store.performance_file, [take.name for take in plan.takes if take.name not in lost])


def build_clips(
    plan: BuildPlan, executor: Executor, progress: Progress, *, without: Sequence[str] = ()
) -> dict[tuple[str, str], str]:
    """Make the clips that are missing.

    Args:
        plan: what is to be built; bodies and performances must be there.
        executor: does the work.
        progress: shows the stage.
        without: names of bodies and takes that could not be made.

    Returns:
        Why a clip could not be made, by character and take; not of those without.
    """
    takes = [take for take in plan.takes if take.name not in without]
    cast = [name for name in plan.cast if name not in without]
    keys = plan.clip_keys()
    jobs = []
    for name in cast:
        # Clips with the same hands follow one another, because a body is prepared for each pair of hands anew.
        missing = sorted(
            (take for take in takes if not has_key(plan.store.clip_file(name, take.name), keys[name, take.name])),
            key=lambda take: (take.left, take.right),
        )
        for _, alike in groupby(missing, lambda take: (take.left, take.right)):
            clips = [(take.name, keys[name, take.name]) for take in alike]
            jobs += [
                ClipJob(plan.store, name, name == plan.reference, tuple(clips[start : start + CLIPS_PER_JOB]))
                for start in range(0, len(clips), CLIPS_PER_JOB)
            ]
    progress.start("clips", sum(len(job.clips) for job in jobs))
    failures: dict[tuple[str, str], str] = {}
    for job, result in executor.run(make_clips, jobs):
        if result is not None:
            # A process died; what it had made before is kept.
            open_clips = [
                take for take, key in job.clips if not has_key(plan.store.clip_file(job.character, take), key)
            ]
            failures |= {(job.character, take): result.reason for take in open_clips}
        progress.advance(len(job.clips))
    for name in cast:
        for take in takes:
            if (name, take.name) not in failures and (reason := read_failure(plan.store.clip_file(name, take.name))):
                failures[name, take.name] = reason
    return failures


def _failures(file: Callable[[str], Path], names: Sequence[str]) -> dict[str, str]:
    return {name: reason for name in names if (reason := read_failure(file(name))) is not None}


def _versions(modules: Sequence[str]) -> list[object]:
    """What clips depend on besides their input."""
    return [WORK_VERSION, torch.__version__, _code_behind(tuple(modules))]


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _code_behind(modules: tuple[str, ...]) -> str:
    """Digest of modules of this package and of those that they import from it, whatever they import for types alone."""
    folder = Path(__file__).parent
    found: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        file = folder / f"{name}.py"
        if name not in found and file.is_file():
            found[name] = file.read_bytes()
            waiting += _imports(ast.parse(found[name]))
    return hashlib.sha256(b"".join(name.encode() + code for name, code in sorted(found.items()))).hexdigest()[:16]


def _imports(node: ast.AST) -> list[str]:
    """Names of modules of this package that code imports when it runs."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return []
    package = f"{__package__}."
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
        return [(node.module or "").removeprefix(package)]
    return [name for child in ast.iter_child_nodes(node) for name in _imports(child)]
