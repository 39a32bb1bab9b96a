"""Import of R2ET's Mixamo data: BVH files in one folder per character, and shape files with mesh and weights.

Accepted is any folder that holds, at any depth, shape files in folders named ``shape``, ``train_shape`` or
``test_shape``, and BVH files in folders named after characters: both the public demo and R2ET's own data folder.

A BVH file whose bones are as long as the shape file's moves that character, with all of the rig's joints and on the
mesh's rest. One with other lengths makes a further character, named with its number of joints
(``Sporty_Granny_99``). Mixamo's own version of a motion on a character is the ground truth for it.
"""

from __future__ import annotations

import hashlib
import itertools
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from retargetbench.datasets.base import Split
from retargetbench.datasets.folder_writer import FolderDatasetWriter
from retargetbench.datasets.splits import balanced_default, every_pair
from retargetbench.errors import RetargetBenchError, UsageError
from retargetbench.formats.bvh import read_bvh
from retargetbench.formats.shape_npz import read_shape_npz
from retargetbench.rigs import (
    SAME_LENGTH,
    bone_length_difference,
    character_bound_at_bvh_rest,
    character_from_shape,
    clip_from_bvh,
    skeleton_from_bvh,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from retargetbench.character import Character
    from retargetbench.datasets.folder import FolderDataset
    from retargetbench.formats.bvh import BvhFile
    from retargetbench.formats.shape_npz import ShapeFile

    Progress = Callable[[int, int, str], None]
    """Called with files done, files in all, and the file that comes next."""

TRAINING_CHARACTERS = (
    "AJ",
    "Big_Vegas",
    "Goblin_D_Shareyko",
    "Kaya",
    "Mousey",
    "Peasant_Man",
    "Warrok_W_Kurniawan",
)
"""Characters that R2ET's official weights were trained on (Zhang et al., CVPR 2023, public data folder)."""

UNSEEN_MOTIONS = ("Gangnam Style", "Hip Hop Dancing", "Situp To Idle")
"""Motions kept out of training. R2ET publishes no list for its demo motions, so this choice is ours: one dance with
ground truth on three characters, one that only Sporty_Granny has, and one that starts lying down."""

SHAPE_FOLDERS = ("shape", "train_shape", "test_shape")
"""Names of folders with shape files; of two files of one character that in the earlier folder is taken."""

LICENCE = "Mixamo characters and animations are Adobe content: for your own use, not to be passed on"


@dataclass(frozen=True)
class ImportReport:
    """What an import made and what it left out."""

    dataset: FolderDataset
    """The dataset as it lies on disk."""
    notes: tuple[str, ...] = ()
    """What is missing or odd, one line each."""
    problems: tuple[str, ...] = ()
    """Files that could not be used, with the reason, one line each."""


def import_r2et(
    source: Path,
    target: Path,
    *,
    name: str = "r2et_mixamo",
    straighten: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Make a folder dataset of R2ET's files.

    Files that cannot be used are left out and reported; the rest is imported.

    Args:
        source: folder with shape and BVH files.
        target: where the dataset is to be.
        name: name of the dataset for tables.
        straighten: make the rest of every character an exact T-pose.
        force: replace a dataset that is at ``target`` already.
        progress: told about every file.

    Raises:
        UsageError: there is no shape or no BVH file, the name is empty, or ``target`` may not or cannot be written.
        DatasetError: no file could be used.
    """
    if not source.is_dir():
        what = "is no folder" if source.exists() else "does not exist"
        raise UsageError(f"{source} {what}; give R2ET's data folder, which has shapes and motions")
    if not name.strip() or not name.isprintable():
        raise UsageError(f"{name!r} cannot be the name of a dataset; give one that can be printed on one line")
    shapes, motions = _find_shapes(source), _find_motions(source)
    if not shapes or not motions:
        missing = "shape file (*.npz in a folder shape, train_shape or test_shape)" if not shapes else "BVH file"
        raise UsageError(f"{source} holds no {missing}; give R2ET's data folder, which has both shapes and motions")
    total = len(shapes) + 2 * sum(len(motions.get(owner, ())) for owner in shapes)
    with FolderDatasetWriter(target, force=force) as writer:
        run = _Import(source, writer, straighten, progress or (lambda *_: None), total)
        run.notes += _missing(shapes, motions)
        for owner in sorted(shapes):
            run.add(owner, shapes[owner], motions.get(owner, ()))
        dataset = run.commit(name)
    return ImportReport(dataset, tuple(run.notes), tuple(run.problems))


@dataclass
class _Rig:
    """A character to be made: BVH files of one set of bone lengths."""

    name: str
    clips: list[Path] = field(default_factory=list)
    rests: list[BvhFile] = field(default_factory=list)
    """The clips' rests with one frame each: whole clips are read one at a time, so memory does not grow with them."""


@dataclass
class _Import:
    """One import under way."""

    source: Path
    writer: FolderDatasetWriter
    straighten: bool
    progress: Progress
    total: int
    done: int = 0
    names: list[str] = field(default_factory=list)
    lengths: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    """(character, motion) of every clip → its frames and frame rate."""
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, owner: str, shape_file: Path, files: Iterable[Path]) -> None:
        """Import everything of one shape file."""
        with self._reporting(shape_file):
            shape = read_shape_npz(shape_file)
            own, *others = self._sort_by_rig(owner, shape, files)
            self._write(own, _on_the_mesh_rest(own, shape, straighten=self.straighten), shape_file)
            for rig in others:
                character = character_bound_at_bvh_rest(shape, rig.rests[0], name=rig.name, straighten=self.straighten)
                self._write(rig, character, shape_file)

    def commit(self, name: str) -> FolderDataset:
        """Freeze the split and put the dataset in its place."""
        seen_characters = [each for each in self.names if each in TRAINING_CHARACTERS]
        seen_motions = {motion for _, motion in self.lengths} - set(UNSEEN_MOTIONS)
        rows = every_pair(self.lengths, self.names, seen_characters=seen_characters, seen_motions=seen_motions)
        true_rows = {
            row for row in rows if self.lengths.get((row.target, row.motion)) == self.lengths[row.source, row.motion]
        }
        split = Split("default", balanced_default(rows, preferred=true_rows))
        self.writer.add_split(split, origin="every clip on every other character")
        return self.writer.commit(
            name=name,
            seen_characters=seen_characters,
            seen_motions=seen_motions,
            description=f"R2ET's Mixamo files: {len(self.names)} characters, {len(self.lengths)} clips",
            licence=LICENCE,
            readme=_readme(name, self, split, len(true_rows)),
        )

    @contextmanager
    def _reporting(self, file: Path) -> Iterator[None]:
        """Show progress, and turn what is wrong with a file into a line of the report."""
        self.progress(self.done, self.total, file.name)
        self.done += 1
        try:
            yield
        except UsageError:  # nothing can be written, whatever the file
            raise
        except RetargetBenchError as error:
            self.problems.append(str(error) if str(file) in str(error) else f"{file}: {error}")

    def _sort_by_rig(self, owner: str, shape: ShapeFile, files: Iterable[Path]) -> list[_Rig]:
        """Sort the BVH files of a character by bone lengths: first those of the mesh, then one group per other rig."""
        rigs = [_Rig(owner)]
        lengths = [character_from_shape(shape).skeleton]
        for file in files:
            with self._reporting(file):
                bvh = read_bvh(file)
                skeleton = skeleton_from_bvh(bvh)
                self.notes += [f"{file}: {warning}" for warning in bvh.warnings]
                differences = [bone_length_difference(known, skeleton)[0] for known in lengths]
                place = next((i for i, difference in enumerate(differences) if difference <= SAME_LENGTH), len(rigs))
                if place == len(rigs):
                    name = _free_name(f"{owner}_{skeleton.joint_count}", [rig.name for rig in rigs])
                    rigs.append(_Rig(name))
                    lengths.append(skeleton)
                    _, bone = bone_length_difference(lengths[0], skeleton)
                    self.notes.append(f"{file}: {bone} in mesh and rig, so the rig is a character of its own, {name}")
                rigs[place].clips.append(file)
                rigs[place].rests.append(
                    replace(bvh, root_positions=bvh.root_positions[:1], rotations=bvh.rotations[:1])
                )
        return rigs

    def _write(self, rig: _Rig, character: Character, shape_file: Path) -> None:
        """Write a character and its clips."""
        provenance = {**character.provenance, "source": self._origin(shape_file), "licence": LICENCE}
        self.writer.add_character(replace(character, provenance=provenance), origin=self._origin(shape_file))
        self.names.append(character.name)
        for file in rig.clips:
            with self._reporting(file):
                clip = clip_from_bvh(read_bvh(file), character, name=file.stem)
                self.writer.add_clip(clip, origin=self._origin(file))
                self.lengths[character.name, clip.name] = (clip.motion.frame_count, clip.motion.fps)

    def _origin(self, file: Path) -> str:
        """Name a source file and its content."""
        return f"{file.relative_to(self.source).as_posix()} sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _find_shapes(source: Path) -> dict[str, Path]:
    """Find one shape file per character."""
    found: dict[str, Path] = {}
    for folder in SHAPE_FOLDERS:
        for file in sorted(source.rglob(f"{folder}/*.npz")):
            found.setdefault(file.stem.replace(" ", "_"), file)
    return found


def _find_motions(source: Path) -> dict[str, list[Path]]:
    """Find the BVH files of each character."""
    found: dict[str, list[Path]] = {}
    for file in sorted(source.rglob("*.bvh")):
        found.setdefault(file.parent.name.replace(" ", "_"), []).append(file)
    return found


def _missing(shapes: Iterable[str], motions: dict[str, list[Path]]) -> list[str]:
    """Say what a complete set of files would also have."""
    notes = [
        f"{owner}: no shape file, so its {len(files)} BVH files are left out"
        for owner, files in motions.items()
        if owner not in set(shapes)
    ]
    absent = [each for each in TRAINING_CHARACTERS if each not in set(shapes)]
    if absent:
        notes.append(f"not there of the characters that R2ET was trained on: {', '.join(absent)}")
    present = {file.stem for files in motions.values() for file in files}
    absent = [motion for motion in UNSEEN_MOTIONS if motion not in present]
    if absent:
        notes.append(f"not there of the motions kept out of training: {', '.join(absent)}")
    return notes


def _free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with a number behind it if it is taken."""
    names = set(taken)
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in names)


def _on_the_mesh_rest(rig: _Rig, shape: ShapeFile, *, straighten: bool) -> Character:
    """Build a character; of several rigs that fit, the one nearest to the mesh's rest gives the further joints."""
    if not rig.rests:
        return character_from_shape(shape, name=rig.name, straighten=straighten)
    mesh = character_from_shape(shape).skeleton.canonical_offsets[1:].double()

    def distance(rest: BvhFile) -> tuple[float, int]:
        offsets = skeleton_from_bvh(rest).canonical_offsets[1:]
        # Files print six decimals; rests that differ by less are the same, and the rig with more joints wins.
        return round(float((offsets - mesh).norm(dim=-1).max()), 5), -len(rest.names)

    return character_from_shape(shape, rig=min(rig.rests, key=distance), name=rig.name, straighten=straighten)


def _readme(name: str, run: _Import, split: Split, true_rows: int) -> str:
    """Describe the dataset for people."""
    characters = [f"| {each} | {'seen' if each in TRAINING_CHARACTERS else 'unseen'} |" for each in sorted(run.names)]
    owners: dict[str, list[str]] = {}
    for owner, motion in sorted(run.lengths):
        owners.setdefault(motion, []).append(owner)
    motions = [
        f"| {motion} | {'unseen' if motion in UNSEEN_MOTIONS else 'seen'} | {', '.join(owners[motion])} |"
        for motion in sorted(owners)
    ]
    quick = sum(row.default for row in split.rows)
    lines = [
        f"# {name}",
        "",
        f"Made by `bench data import r2et` from R2ET's Mixamo files (Zhang et al., CVPR 2023). {LICENCE}.",
        "",
        "**Seen and unseen hold for R2ET's official weights only**: seen are the characters they were trained on.",
        "A method that was trained on other data has seen other characters; read its results by target, not by atom.",
        "R2ET publishes no list of motions for its demo files: which of them count as unseen is our choice.",
        "",
        "| character | in training |",
        "|---|---|",
        *characters,
        "",
        "| motion | in training | on |",
        "|---|---|---|",
        *motions,
        "",
        f"Split `default`: {len(split.rows)} rows, {quick} of them in the quick set. {true_rows} rows have ground",
        "truth, Mixamo's own version of the motion on the target with as many frames.",
    ]
    return "\n".join(lines) + "\n"
