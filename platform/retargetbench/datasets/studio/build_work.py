"""What workers do in a build: solve a performance on the reference body, and clips on one body."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from retargetbench.datasets.studio.build_store import read_digest, write_failure
from retargetbench.datasets.studio.fingers import shaped_body
from retargetbench.datasets.studio.gates import Quality, failed_gates, measure_quality
from retargetbench.datasets.studio.keys import KEY_STEP, interpolate_keys
from retargetbench.datasets.studio.pack_motions import FPS, MotionKeys, rounded_keys
from retargetbench.datasets.studio.verified import REFERENCE_SETTINGS, solve_verified
from retargetbench.discovery import one_line
from retargetbench.motion import Motion

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.studio.build_store import BuildStore
    from retargetbench.datasets.studio.performance import Performance
    from retargetbench.datasets.studio.takes import Take

WORK_VERSION = 1
"""Raised when this module changes what it makes; files of another version are made anew."""

CLIP_MODULES = ("verified", "fingers", "pack_motions", "pack_bodies")
"""Modules of this package on which clips depend, with what these import."""

PERFORMANCE_MODULES = (*CLIP_MODULES, "choreography")
"""The same for performances."""


@dataclass(frozen=True)
class PerformanceJob:
    """A take that is to be solved on the reference body."""

    store: BuildStore
    reference: str
    take: Take
    key: str


@dataclass(frozen=True)
class ClipJob:
    """Clips of one body: names of takes with the keys of their files."""

    store: BuildStore
    character: str
    is_reference: bool
    clips: tuple[tuple[str, str], ...]


def make_performance(job: PerformanceJob) -> None:
    """Draft a take and solve it on the reference body; one that cannot be made is kept as a failure."""
    try:
        character = _body(job.store, job.reference)
        draft = job.take.origin.draft(lambda left, right: shaped_body(character, left, right))
        body = shaped_body(character, draft.hands["left"], draft.hands["right"])
        verified = solve_verified(body, draft, None, REFERENCE_SETTINGS)
        keys = rounded_keys(MotionKeys(verified.solution.rotations, verified.solution.root))
        quality = measure_quality(body, _motion(keys), draft, None)
        rotations, root = interpolate_keys(keys.rotations, keys.root)
        hips = (root - _rest_of_hips(body)) / body.height
        performance = replace(draft, name=job.take.name, rotations=rotations, hips=hips)
    except Exception as error:  # one take that cannot be made does not end the build
        write_failure(job.store.performance_file(job.take.name), job.key, one_line(error), traceback.format_exc())
        return
    job.store.write_performance(job.key, performance, quality.to_row())


def make_clips(job: ClipJob) -> None:
    """Solve takes on one body, each by itself, and measure what comes of it and what plain copying gives."""
    for take, key in job.clips:
        try:
            keys, meta = _make_clip(job, take)
        except Exception as error:  # one clip that cannot be made does not end the build
            write_failure(job.store.clip_file(job.character, take), key, one_line(error), traceback.format_exc())
        else:
            job.store.write_clip(key, job.character, take, keys, meta)


def _make_clip(job: ClipJob, take: str) -> tuple[MotionKeys, dict[str, Any]]:
    """Make a clip and the record of it."""
    performance, row = job.store.read_performance(take)
    body = shaped_body(_body(job.store, job.character), performance.hands["left"], performance.hands["right"])
    copied = _copied_keys(body, performance)
    if job.is_reference:  # it keeps what was solved on it
        keys, tries = rounded_keys(copied), 0
        quality = of_copy = Quality(**row)
    else:
        of_copy = measure_quality(body, _motion(copied), performance, None)
        verified = solve_verified(body, performance, of_copy)
        keys, tries = rounded_keys(MotionKeys(verified.solution.rotations, verified.solution.root)), verified.tries
        quality = measure_quality(body, _motion(keys), performance, of_copy)
    return keys, {
        "quality": quality.to_row(),
        "failed": list(failed_gates(quality, body.height)),
        "tries": tries,
        "copy": of_copy.to_row(),
        "contact_share": _contact_share(performance),
    }


def _copied_keys(body: Character, performance: Performance) -> MotionKeys:
    """Rotations of the reference as they are, and the hips by the root rule, as the method ``copy`` has it but for a
    constant shift of its height, on which neither contacts nor penetration depend."""
    hips = _rest_of_hips(body) + performance.hips[::KEY_STEP] * body.height
    return MotionKeys(performance.rotations[::KEY_STEP], hips)


def _rest_of_hips(body: Character) -> torch.Tensor:
    return body.skeleton.rest_positions[0].double()


def _motion(keys: MotionKeys) -> Motion:
    """The motion of 22 joints through keys, float32 as readers of the pack get it."""
    rotations, root = interpolate_keys(keys.rotations, keys.root)
    return Motion(root.float(), rotations.float(), FPS)


def _contact_share(performance: Performance) -> float:
    """Share of the frames in which any contact holds."""
    active = [contact.active for contact in performance.contacts]
    return float(torch.stack(active).any(0).double().mean()) if active else 0.0


def _body(store: BuildStore, name: str) -> Character:
    """Read a body, or take it from the last jobs: what was computed for it is remembered with it."""
    return _remembered_body(store, name, read_digest(store.body_file(name)))


@lru_cache(maxsize=2)
def _remembered_body(store: BuildStore, name: str, digest: str) -> Character:
    return store.read_body(name)
