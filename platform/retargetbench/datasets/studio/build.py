"""Builds the dataset: bodies from recipes, actions on the reference body, and every action on every body.

Three stages with files between them (`retargetbench.datasets.studio.build_store`); each does only what is missing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from retargetbench.datasets.studio.build_store import BuildStore, has_key
from retargetbench.datasets.studio.choreography import choreograph
from retargetbench.datasets.studio.fingers import shaped_body
from retargetbench.datasets.studio.gates import Quality, measure_quality
from retargetbench.datasets.studio.solver import copy_performance
from retargetbench.datasets.studio.verified import REFERENCE_ROUNDS, Verified, solve_verified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retargetbench.benchmark.executors import Executor
    from retargetbench.character import Character
    from retargetbench.datasets.studio.actions import Action
    from retargetbench.datasets.studio.performance import Performance
    from retargetbench.datasets.studio.recipes import BodyRecipe

REFERENCE = "adult_09"
"""The body on which actions are made: an adult of average build."""

CLIPS_PER_JOB = 6
"""Clips of one body that a worker makes before it reports; the body's samples are prepared once for them."""

_BODY_MODULES = ("anny_bodies", "recipes", "sculpting", "pack_bodies")
_OTHER_MODULES = ("build", "dataset", "pack", "statistics")  # beginnings of names; they change no number of a clip


@dataclass(frozen=True)
class Take:
    """One variant of an action."""

    action: Action
    variant: int = 0

    @property
    def name(self) -> str:
        """Name of its clips."""
        return self.action.name if self.variant == 0 else f"{self.action.name}_v{self.variant}"


@dataclass(frozen=True)
class BuildPlan:
    """What is to be built."""

    folder: Path
    recipes: tuple[BodyRecipe, ...]
    takes: tuple[Take, ...]
    seed: int = 0

    @property
    def store(self) -> BuildStore:
        """Where it is kept on the way."""
        return BuildStore(self.folder)

    def body_key(self, recipe: BodyRecipe) -> str:
        """Key of a body."""
        return _key(_code(_BODY_MODULES), asdict(recipe))

    def performance_key(self, take: Take) -> str:
        """Key of an action on the reference body."""
        reference = next(recipe for recipe in self.recipes if recipe.name == REFERENCE)
        action = take.action.model_dump(mode="json")
        return _key(_code(), torch.__version__, self.body_key(reference), action, take.variant, self.seed)

    def clip_key(self, recipe: BodyRecipe, take: Take) -> str:
        """Key of a clip."""
        return _key(self.performance_key(take), self.body_key(recipe))


@dataclass(frozen=True)
class _PerformanceJob:
    plan: BuildPlan
    take: Take


@dataclass(frozen=True)
class _ClipJob:
    plan: BuildPlan
    recipe: BodyRecipe
    takes: tuple[Take, ...]


Progress = "Callable[[str, int, int], None]"


def build_bodies(
    plan: BuildPlan, make: Callable[[BodyRecipe], Character], progress: Callable[[str, int, int], None]
) -> None:
    """Make the bodies that are missing.

    Args:
        plan: what is to be built.
        make: builds the body of a recipe, as `AnnyBodies.build` does, or takes it from a pack.
        progress: told the stage, how much is done, and of how much.
    """
    missing = [r for r in plan.recipes if not has_key(plan.store.body_file(r.name), plan.body_key(r))]
    for done, recipe in enumerate(missing):
        progress("bodies", done, len(missing))
        plan.store.write_body(plan.body_key(recipe), make(recipe))
    progress("bodies", len(missing), len(missing))


def build_performances(plan: BuildPlan, executor: Executor, progress: Callable[[str, int, int], None]) -> None:
    """Make the performances on the reference body that are missing."""
    missing = [
        _PerformanceJob(plan, take)
        for take in plan.takes
        if not has_key(plan.store.performance_file(take.name), plan.performance_key(take))
    ]
    progress("actions", 0, len(missing))
    for done, _ in enumerate(executor.run(_make_performance, missing), start=1):
        progress("actions", done, len(missing))


def build_clips(plan: BuildPlan, executor: Executor, progress: Callable[[str, int, int], None]) -> None:
    """Make the clips that are missing."""
    jobs = []
    for recipe in plan.recipes:
        missing = [
            t for t in plan.takes if not has_key(plan.store.clip_file(recipe.name, t.name), plan.clip_key(recipe, t))
        ]
        jobs += [
            _ClipJob(plan, recipe, tuple(missing[start : start + CLIPS_PER_JOB]))
            for start in range(0, len(missing), CLIPS_PER_JOB)
        ]
    total = sum(len(job.takes) for job in jobs)
    progress("clips", 0, total)
    done = 0
    for job, _ in executor.run(_make_clips, jobs):
        done += len(job.takes)
        progress("clips", done, total)


def _make_performance(job: _PerformanceJob) -> None:
    """Choreograph an action and solve it on the reference body."""
    store = job.plan.store
    hands = job.take.action.hands
    body = shaped_body(store.read_body(REFERENCE), hands.left, hands.right)
    draft = choreograph(job.take.action, body, seed=job.plan.seed, variant=job.take.variant)
    body = shaped_body(store.read_body(REFERENCE), draft.hands["left"], draft.hands["right"])
    verified = solve_verified(body, draft, None, REFERENCE_ROUNDS)
    motion = verified.solution.motion
    hips = (motion.root_translation - body.skeleton.rest_positions[0].double()) / body.height
    performance = replace(draft, name=job.take.name, rotations=motion.local_rotations, hips=hips)
    store.write_performance(job.plan.performance_key(job.take), performance, verified.quality.to_row())


def _make_clips(job: _ClipJob) -> None:
    """Solve actions on one body, and measure what was solved and what plain copying gives."""
    store = job.plan.store
    character = store.read_body(job.recipe.name)
    for take in job.takes:
        performance, row = store.read_performance(take.name)
        reference = Quality(**row)
        body = shaped_body(character, performance.hands["left"], performance.hands["right"])
        copied = copy_performance(body, performance)
        of_copy = measure_quality(body, copied.float_motion, performance, reference)
        if job.recipe.name == REFERENCE:
            verified = _as_it_is(body, performance, of_copy)
        else:
            verified = solve_verified(body, performance, reference)
        store.write_clip(
            job.plan.clip_key(job.recipe, take),
            job.recipe.name,
            take.name,
            verified.solution.rotations.numpy(),
            verified.solution.root.numpy(),
            {
                "quality": verified.quality.to_row(),
                "failed": list(verified.failed),
                "tries": verified.tries,
                "copy": of_copy.to_row(),
                "terms": verified.solution.terms,
            },
        )


def _as_it_is(body: Character, performance: Performance, quality: Quality) -> Verified:
    """The reference body keeps the performance that was made on it."""
    from retargetbench.datasets.studio.gates import failed_gates

    return Verified(copy_performance(body, performance), quality, failed_gates(quality, body.height), 0)


def _key(*parts: object) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _code(modules: Sequence[str] | None = None) -> str:
    """Digest of the modules of this package that clips depend on."""
    folder = Path(__file__).parent
    files = sorted(folder.glob("*.py"))
    if modules is not None:
        files = [file for file in files if file.stem in modules]
    else:
        files = [file for file in files if not file.stem.startswith(_OTHER_MODULES)]
    return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()[:16]
