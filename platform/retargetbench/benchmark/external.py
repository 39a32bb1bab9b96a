"""Motions that another program made, taken into a run as if a method had made them.

Layout: ``DIR/<source character>/<motion>/<target character>.npz`` or ``….bvh``.

- npz: ``root_translation`` (T, 3) metres, ``local_rotations`` (T, 22, 4) of the canonical joints or (T, J, 4) of all
  joints of the target, unit quaternions xyzw against the target's rest, and ``fps``; Y up, facing +Z.
- BVH: any rig with the target's joint names and bone lengths; the file's own rest is taken into account.

Both have the source's frames and frame rate. The predictions folder of a run has this layout too.
"""

from __future__ import annotations

import hashlib
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from retargetbench.benchmark.opened import opened_dataset
from retargetbench.benchmark.predictions import encode_motion, read_motion
from retargetbench.benchmark.run_folder import task_path
from retargetbench.discovery import one_line
from retargetbench.errors import MethodOutputError
from retargetbench.formats.bvh import read_bvh
from retargetbench.rigs import clip_from_bvh
from retargetbench.transfer import from_canonical_motion

if TYPE_CHECKING:
    from retargetbench.benchmark.predict_jobs import PredictJob
    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.datasets.base import Dataset, SplitRow
    from retargetbench.motion import Motion

SUFFIXES = (".npz", ".bvh")
"""File types that are read, the first one that is there."""

_UNIT_FACTOR = 20.0
"""Hips that are this many times too high or low, relative to height, are in centimetres or kilometres."""

_FPS_TOLERANCE = 0.01  # BVH prints the frame time with few digits


def import_job(job: PredictJob) -> None:
    """Take over the motions of a job; a missing or unusable file is a failure of its task."""
    dataset = opened_dataset(job.dataset)
    for row in job.rows:
        try:
            path = find_external_file(Path(job.method.predictions), row)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            keyed = replace(job, method=replace(job.method, key=f"{job.method.key}:{digest}"))
            if not keyed.is_done(row):
                motion = load_external_motion(path, dataset, row, unit=job.method.unit)
                keyed.finish(row, encode_motion(motion, keyed.key(row)))
        except Exception as error:  # whatever is wrong with a file costs its own task
            job.fail(row, one_line(error), traceback.format_exc())


def find_external_file(folder: Path, row: SplitRow) -> Path:
    """Return the file with the motion for a task.

    Raises:
        MethodOutputError: there is none.
    """
    for suffix in SUFFIXES:
        path = folder / task_path(row, suffix)
        if path.is_file():
            return path
    raise MethodOutputError(f"there is no file {folder / task_path(row, '')} with suffix {' or '.join(SUFFIXES)}")


def load_external_motion(path: Path, dataset: Dataset, row: SplitRow, *, unit: float) -> Motion:
    """Read the motion for a task, with all joints of the target.

    Args:
        path: an npz or BVH file.
        dataset: has the source clip and the target.
        row: the task.
        unit: metres per unit of BVH files.

    Raises:
        MethodOutputError: frames, frame rate or joints do not fit.
        FileFormatError: the file cannot be read.
        CharacterError: the file is no motion of the target.
    """
    source, target = dataset.clip(row.source, row.motion), dataset.character(row.target)
    if path.suffix == ".bvh":
        motion = clip_from_bvh(read_bvh(path), target, name=row.motion, unit=unit).motion
        # The frame time of a BVH file is rounded; within that, the motion has the source's frame rate.
        if abs(motion.fps / source.motion.fps - 1) < _FPS_TOLERANCE:
            motion = replace(motion, fps=source.motion.fps)
    else:
        motion = _with_all_joints(read_motion(path), target, source, path)
    wanted, got = source.motion, motion
    if got.frame_count != wanted.frame_count or abs(got.fps - wanted.fps) > 1e-3:
        raise MethodOutputError(
            f"{path.name}: the motion has {got.frame_count} frames at {got.fps:g} fps, the source "
            f"{wanted.frame_count} at {wanted.fps:g}; they must agree"
        )
    _check_unit(motion, target, source, path)
    return motion


def _check_unit(motion: Motion, target: Character, source: Clip, path: Path) -> None:
    """Refuse a motion whose hips are so much higher or lower than the source's that it must be in another unit."""
    got, wanted = (
        float(each.root_translation[:, 1].abs().median()) / character.height
        for each, character in ((motion, target), (source.motion, source.character))
    )
    if wanted > 0.1 and not wanted / _UNIT_FACTOR < got < wanted * _UNIT_FACTOR:
        raise MethodOutputError(
            f"{path.name}: the hips are {got * target.height:.3g} m above the floor, the source's "
            f"{wanted * source.character.height:.3g} m; root_translation must be in metres"
        )


def _with_all_joints(motion: Motion, target: Character, source: Clip, path: Path) -> Motion:
    if motion.joint_count == target.skeleton.joint_count:
        return motion
    if motion.joint_count != 22:
        raise MethodOutputError(
            f"{path.name}: local_rotations must be (T, 22, 4) or (T, {target.skeleton.joint_count}, 4), got "
            f"{tuple(motion.local_rotations.shape)}"
        )
    if motion.frame_count != source.motion.frame_count:
        raise MethodOutputError(
            f"{path.name}: the motion has {motion.frame_count} frames, the source {source.motion.frame_count}"
        )
    return from_canonical_motion(target.skeleton, motion, source)
