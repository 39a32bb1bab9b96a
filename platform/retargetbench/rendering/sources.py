"""What is to be drawn: clips of datasets, or a task of a run: its source, its truth and what methods made of it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from retargetbench.benchmark.opened import opened_dataset
from retargetbench.benchmark.plan import GROUND_TRUTH, SOURCE, read_plan
from retargetbench.benchmark.predictions import read_motion
from retargetbench.benchmark.run_folder import read_json
from retargetbench.clip import Clip
from retargetbench.errors import RetargetBenchError, UnknownNameError, UsageError
from retargetbench.rendering.scenes import BODY_COLOUR, Subject
from retargetbench.retargeting import load_clip
from retargetbench.skeleton import CANONICAL_JOINTS
from retargetbench.transfer import from_canonical_motion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.benchmark.plan import Plan
    from retargetbench.benchmark.run_folder import RunFolder
    from retargetbench.datasets.base import SplitRow

MOST_CLIPS = 64
"""So many clips fit into one picture at most."""

_SOURCE_COLOUR = (0.80, 0.72, 0.60)
_TRUTH_COLOUR = (0.62, 0.76, 0.64)
_OFFERED = 5
"""Names that a message about an unknown task offers."""


@dataclass(frozen=True, eq=False)
class TaskSubjects:
    """A task as it is drawn.

    Attributes:
        title: source, motion and target.
        subjects: source, ground truth where there is one, and the methods.
        notes: what is missing, one line each.
    """

    title: str
    subjects: tuple[Subject, ...]
    notes: tuple[str, ...]


def find_clips(references: Sequence[str]) -> tuple[Subject, ...]:
    """Load clips by ``DATASET:CHARACTER/MOTION``; ``*`` and ``?`` in character and motion stand for any letters.

    Raises:
        UsageError: a reference is none, nothing matches a pattern, or there are more than `MOST_CLIPS`.
        UnknownNameError: there is no such dataset, character or motion.
    """
    clips: list[Clip] = []
    for reference in references:
        spec, _, part = reference.rpartition(":")
        if spec and any(sign in part for sign in "*?"):
            dataset = opened_dataset(spec)
            pattern = part.replace("[", "[[]")  # brackets are letters of names
            names = [(c, m) for c, m in dataset.clip_names if fnmatchcase(f"{c}/{m}", pattern)]
            if not names:
                raise UsageError(f"no clip of dataset {dataset.name} matches {part!r}; bench data show lists them")
            if len(clips) + len(names) > MOST_CLIPS:
                raise UsageError(f"{reference} matches {len(names)} clips, of which {MOST_CLIPS} fit; name fewer")
            clips += [dataset.clip(*name) for name in names]
        elif spec:
            clips.append(load_clip(reference).clip)
        else:
            raise UsageError(
                f"{reference!r} names no clip; accepted: DATASET:CHARACTER/MOTION such as capsules:slim/wave, "
                f"or a run together with --task"
            )
    if len(clips) > MOST_CLIPS:
        raise UsageError(f"{len(clips)} clips are named, of which {MOST_CLIPS} fit; name fewer")
    return tuple(Subject(f"{clip.character.name}/{clip.name}", clip, BODY_COLOUR) for clip in clips)


def find_task(folder: RunFolder, task: str, methods: Sequence[str] | None = None) -> TaskSubjects:
    """Load what a run made of a task.

    Args:
        folder: of the run.
        task: ``SOURCE/MOTION/TARGET``.
        methods: labels of methods; None is all of the run.

    Raises:
        UnknownNameError: the run has no such task or method.
        RetargetBenchError: the plan cannot be read, the dataset has changed, or no method has a motion for the task.
    """
    plan = read_plan(folder)
    row = _find_row(plan, task)
    labels = [method.label for method in plan.methods]
    for label in methods or ():
        if label not in labels:
            raise UnknownNameError("method of the run", label, labels)
    loaded = opened_dataset(plan.dataset).task(row)
    target = loaded.target
    subjects, notes = [Subject(f"{SOURCE}: {row.source}", loaded.source, _SOURCE_COLOUR)], []
    if loaded.ground_truth is None:
        notes.append(f"{task} has no ground truth")
    else:
        subjects.append(Subject(GROUND_TRUTH, Clip(row.motion, target, loaded.ground_truth), _TRUTH_COLOUR))
    drawn = 0
    for label in methods or labels:
        path = folder.prediction(label, row)
        if not path.is_file():
            failure = read_json(folder.failure(label, row))
            reason = failure.get("reason") if isinstance(failure, dict) else None
            notes.append(f"{label} has no motion for {task}{f': {reason}' if reason else ''}")
            continue
        motion = read_motion(path)
        if motion.joint_count == len(CANONICAL_JOINTS) != target.skeleton.joint_count:
            motion = from_canonical_motion(target.skeleton, motion, loaded.source)
        subjects.append(Subject(label, Clip(row.motion, target, motion)))
        drawn += 1
    if not drawn:
        raise RetargetBenchError(f"{'; '.join(notes)}; run the benchmark again")
    return TaskSubjects(f"{row.source} / {row.motion} → {row.target}", tuple(subjects), tuple(notes))


def _find_row(plan: Plan, task: str) -> SplitRow:
    rows = {f"{row.source}/{row.motion}/{row.target}": row for row in plan.rows()}
    if task in rows:
        return rows[task]
    offered = difflib.get_close_matches(task, rows, n=_OFFERED, cutoff=0.0)
    raise UnknownNameError(
        "task of the run", task, offered, note=f"These are the closest of {len(rows)}, as SOURCE/MOTION/TARGET"
    )
