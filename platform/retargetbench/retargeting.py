"""One clip on one character: sources and targets from files or datasets, and what a method makes of them.

This is what ``bench retarget`` does, for programs. Characters are named by an R2ET shape file (``X.npz``) or as
``DATASET:CHARACTER``, clips by a BVH file with its character or as ``DATASET:CHARACTER/MOTION``; a dataset is a folder
or a registered name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from retargetbench.benchmark.predictions import check_outputs
from retargetbench.datasets.opening import open_dataset
from retargetbench.errors import CharacterError, UnknownNameError, UsageError
from retargetbench.formats.bvh import read_bvh
from retargetbench.formats.shape_npz import read_shape_npz
from retargetbench.rigs import (
    CENTIMETRE,
    SAME_LENGTH,
    character_bound_at_bvh_rest,
    character_from_shape,
    clip_from_bvh,
    skeleton_from_bvh,
)
from retargetbench.skeleton import CANONICAL_JOINTS, CANONICAL_PARENTS
from retargetbench.transfer import from_canonical_motion, to_canonical_motion

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.datasets.base import Dataset
    from retargetbench.formats.bvh import BvhFile
    from retargetbench.formats.shape_npz import ShapeFile
    from retargetbench.methods import RetargetMethod
    from retargetbench.motion import Motion

SIMILAR_LENGTH = 0.2
"""A mesh is bound to a rig whose bones differ from its own by at most this share; a rig farther off is another's."""

_CLIP_FORMS = "a file such as clip.bvh, or DATASET:CHARACTER/MOTION such as capsules:slim/wave"
_CHARACTER_FORMS = "a file such as X.npz, or DATASET:CHARACTER such as capsules:stout"


@dataclass(frozen=True, eq=False)
class LoadedClip:
    """A source clip and what its reader left out or had to change, one line each."""

    clip: Clip
    warnings: tuple[str, ...] = ()


def load_character(reference: str, *, straighten: bool = False, unit: float = CENTIMETRE) -> Character:
    """Load a character from a shape file, or by ``DATASET:CHARACTER``.

    Args:
        reference: which one.
        straighten: make its rest an exact T-pose; only for files.
        unit: metres per unit of the file.

    Raises:
        UsageError: the reference looks like neither, the file is missing, or a dataset's character is to be
            straightened.
        UnknownNameError: there is no such dataset, or no such character in it.
        FileFormatError: the file is no shape file.
        CharacterError: its mesh or joints cannot be used.
    """
    path = _find_file(reference, ".npz", "character", _CHARACTER_FORMS)
    if path is not None:
        return character_from_shape(read_shape_npz(path), straighten=straighten, unit=unit)
    if straighten:
        raise UsageError(
            f"{reference} keeps the rest that it has in its dataset; straighten only characters that come from a file"
        )
    dataset, name = _open_part(reference, "character", _CHARACTER_FORMS)
    return dataset.character(_known(f"character of {dataset.name}", name, dataset.character_names))


def load_clip(
    reference: str, character: str | None = None, *, straighten: bool = False, unit: float = CENTIMETRE
) -> LoadedClip:
    """Load a clip from a BVH file and its character, or by ``DATASET:CHARACTER/MOTION``.

    A shape file whose bones are a little shorter or longer than the BVH file's is bound to that rig, as the same mesh
    is exported with several rigs (Mixamo's Sporty Granny); the clip's warnings say so. From `SIMILAR_LENGTH` on, the
    files do not belong together.

    Args:
        reference: which one.
        character: reference of the character that a BVH file moves.
        straighten: make the character's rest an exact T-pose; only for files.
        unit: metres per unit of the files.

    Raises:
        UsageError: the reference looks like neither, a file is missing, or the character is missing or superfluous.
        UnknownNameError: there is no such dataset, or no such character or motion in it.
        FileFormatError: a file cannot be read as what it claims to be.
        CharacterError: joints are missing or bones do not match; the message names them.
    """
    path = _find_file(reference, ".bvh", "source", _CLIP_FORMS)
    if path is None:
        return LoadedClip(_clip_of_dataset(reference, character, straighten=straighten))
    if character is None:
        raise UsageError(f"{path} holds no mesh: give its character too, {_CHARACTER_FORMS}")
    bvh = read_bvh(path)
    shape_path = _find_file(character, ".npz", "character", _CHARACTER_FORMS)
    if shape_path is None:
        on = load_character(character, straighten=straighten, unit=unit)
        notes: tuple[str, ...] = ()
    else:
        on, notes = _character_of_rig(read_shape_npz(shape_path), bvh, straighten=straighten, unit=unit)
    return LoadedClip(clip_from_bvh(bvh, on, name=path.stem, unit=unit), (*bvh.warnings, *notes))


def retarget_clip(method: RetargetMethod, source: Clip, target: Character, *, seed: int = 0) -> Motion:
    """Put one clip on one character.

    Args:
        method: made for the device that it is to work on.
        source: T frames.
        target: J joints.
        seed: of torch's random numbers, for methods that draw any.

    Returns:
        A motion of all the target's joints, (T, J, 4), on the cpu.

    Raises:
        MethodOutputError: the method returns something else than a motion of the target with the source's frames.
    """
    on_device, character = source.to(method.device), target.to(method.device)
    torch.manual_seed(seed)
    motion = check_outputs(method.retarget([on_device], character), [on_device])[0]
    return from_canonical_motion(character.skeleton, motion, on_device).to("cpu")


def root_path_scale(source: Clip, target: Character, motion: Motion) -> float | None:
    """Measure how much farther a result moves over the floor than its source.

    It is the least-squares factor between the horizontal displacements of the hips from their first frame, so it is
    the ``s`` of the root rule for methods that follow it.

    Returns:
        The factor, or None where the source's hips move less than a millimetre.
    """
    before, after = (
        to_canonical_motion(skeleton, each).root_translation.double()[:, [0, 2]]
        for skeleton, each in ((source.character.skeleton, source.motion), (target.skeleton, motion))
    )
    before, after = before - before[:1], after - after[:1]
    if float(before.norm(dim=-1).max()) < 1e-3:
        return None
    return float((before * after).sum() / (before * before).sum())


def _find_file(reference: str, suffix: str, role: str, accepted: str) -> Path | None:
    """Return the file that a reference names, or None where it names a part of a dataset.

    Raises:
        UsageError: the file is missing or has another suffix, or the reference names nothing.
    """
    path = Path(reference)
    if path.suffix.lower() == suffix:
        if not path.is_file():
            raise UsageError(f"{role} file {reference} does not exist; accepted: {accepted}")
        return path
    if path.is_file() or ":" not in reference:
        what = f"suffix {path.suffix!r} is not accepted" if path.suffix else "is neither a file nor a part of a dataset"
        raise UsageError(f"{role} {reference!r}: {what}; accepted: {accepted}")
    return None


def _open_part(reference: str, role: str, accepted: str) -> tuple[Dataset, str]:
    """Open the dataset of ``DATASET:PART``; return it and the part."""
    spec, _, part = reference.rpartition(":")
    if not spec or not part:
        raise UsageError(f"{role} {reference!r} names no part of a dataset; accepted: {accepted}")
    return open_dataset(spec), part


def _clip_of_dataset(reference: str, character: str | None, *, straighten: bool) -> Clip:
    if character is not None:
        raise UsageError(f"source {reference} has a character of its own; leave out {character!r}")
    if straighten:
        raise UsageError(
            f"{reference} keeps the rest that it has in its dataset; straighten only what comes from files"
        )
    dataset, part = _open_part(reference, "source", _CLIP_FORMS)
    name, slash, motion = part.partition("/")
    known = sorted(m for c, m in dataset.clip_names if c == name)
    if not slash or not motion:
        shown = f"; motions of {name}: {', '.join(known)}" if known else ""
        raise UsageError(f"source {reference!r} names no motion; accepted: {_CLIP_FORMS}{shown}")
    _known(f"character of {dataset.name}", name, dataset.character_names)
    return dataset.clip(name, _known(f"motion of {dataset.name}:{name}", motion, known))


def _known(kind: str, name: str, names: tuple[str, ...] | list[str]) -> str:
    """Return a name that is among the known ones; raise `UnknownNameError` otherwise."""
    if name not in names:
        raise UnknownNameError(kind, name, names)
    return name


def _character_of_rig(
    shape: ShapeFile, bvh: BvhFile, *, straighten: bool, unit: float
) -> tuple[Character, tuple[str, ...]]:
    """Build the character that a BVH file moves from its shape file; say so where it is bound to other lengths."""
    rig = skeleton_from_bvh(bvh, unit=unit)
    mesh = character_from_shape(shape, unit=unit)
    lengths, of_rig = (s.canonical_offsets.double()[1:].norm(dim=-1) for s in (mesh.skeleton, rig))
    difference = (of_rig - lengths).abs()
    if float(difference.max()) <= SAME_LENGTH:
        return character_from_shape(shape, rig=bvh, straighten=straighten, unit=unit), ()
    share = difference / torch.maximum(lengths, of_rig)
    worst = int(share.argmax())
    joint, parent = CANONICAL_JOINTS[worst + 1], CANONICAL_JOINTS[CANONICAL_PARENTS[worst + 1]]
    text = (
        f"bone {parent}-{joint} is {float(lengths[worst]):.4f} m long in {shape.name}'s mesh and "
        f"{float(of_rig[worst]):.4f} m in the BVH file"
    )
    if float(share[worst]) > SIMILAR_LENGTH:
        raise CharacterError(
            f"{text}, {float(share[worst]):.0%} apart: the two files are not of one character, or not in one unit; "
            f"give the shape file that the motion was exported with"
        )
    character = character_bound_at_bvh_rest(shape, bvh, straighten=straighten, unit=unit)
    return character, (f"{text}; the mesh is bound to the file's rig as {character.name}",)
