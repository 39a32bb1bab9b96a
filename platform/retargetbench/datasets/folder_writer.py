"""Writing of folder datasets: everything or nothing, and equal content gives equal bytes."""

from __future__ import annotations

import hashlib
import re
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from retargetbench.datasets.folder import FORMAT, INDEX, MANIFEST, VERSION, FolderDataset, is_dataset_folder
from retargetbench.datasets.folder_files import (
    IndexEntry,
    character_to_bytes,
    content_hash,
    index_to_csv,
    motion_to_bytes,
)
from retargetbench.datasets.splits import split_to_csv
from retargetbench.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from types import TracebackType

    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.datasets.base import Split

_UNUSABLE_NAME = re.compile(r"[/\\:\x00-\x1f\x7f\ud800-\udfff]|^[. ]|[. ]$|^$")


class FolderDatasetWriter:
    """Writes a dataset into a temporary folder beside its place; `commit` puts it there in one step.

    Leaving the ``with`` block without a commit, by an error or Ctrl-C for instance, removes everything. Clips are
    written as they come and not kept.

    Args:
        path: where the dataset is to be.
        force: replace a dataset that is there already.

    Raises:
        UsageError: there is something at ``path`` that is not a dataset, or a dataset and no ``force``.
    """

    def __init__(self, path: str | Path, *, force: bool = False) -> None:
        self.path = Path(path).absolute()
        self._entries: list[IndexEntry] = []
        self._taken: set[str] = set()
        self._joints: dict[str, int] = {}
        _check_place(self.path, force=force)
        self._folder = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}.partial")

    def __enter__(self) -> FolderDatasetWriter:
        try:
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise UsageError(f"cannot write beside {self.path} ({error.strerror}); choose another folder") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add_character(self, character: Character, *, origin: str = "") -> None:
        """Write a character; ``origin`` says in one line what it was made from.

        Raises:
            DatasetError: its name cannot be a file name or is taken.
        """
        joints = character.skeleton.joint_count
        entry = IndexEntry(
            path=f"characters/{_file_name(character.name)}.npz",
            kind="character",
            character=character.name,
            joints=joints,
            vertices=character.vertex_count,
            origin=origin,
        )
        self._write(entry, character_to_bytes(character))
        self._joints[character.name] = joints

    def add_clip(self, clip: Clip, *, origin: str = "") -> None:
        """Write a clip of a character that was added before.

        Raises:
            DatasetError: its character is unknown or another one, its name cannot be a file name or is taken.
        """
        owner, motion = clip.character.name, clip.motion
        if self._joints.get(owner) != motion.joint_count:
            raise DatasetError(
                f"clip {owner}/{clip.name} has {motion.joint_count} joints, its character in the dataset has "
                f"{self._joints.get(owner, 'not been added yet')}"
            )
        entry = IndexEntry(
            path=f"clips/{_file_name(owner)}/{_file_name(clip.name)}.npz",
            kind="clip",
            character=owner,
            motion=clip.name,
            joints=motion.joint_count,
            frames=motion.frame_count,
            fps=motion.fps,
            origin=origin,
        )
        self._write(entry, motion_to_bytes(motion))

    def add_split(self, split: Split, *, origin: str = "") -> None:
        """Write a frozen split.

        Raises:
            DatasetError: its name cannot be a file name or is taken.
        """
        entry = IndexEntry(
            path=f"splits/{_file_name(split.name)}.csv",
            kind="split",
            motion=split.name,
            frames=len(split.rows),
            origin=origin,
        )
        self._write(entry, split_to_csv(split).encode())

    def commit(
        self,
        *,
        name: str,
        seen_characters: Collection[str],
        seen_motions: Collection[str],
        description: str = "",
        licence: str = "",
        readme: str = "",
    ) -> FolderDataset:
        """Write manifest, index and README, check the whole, and put it in its place.

        Args:
            name: name of the dataset for tables.
            seen_characters: characters that may be trained on.
            seen_motions: motions that may be trained on.
            description: one line.
            licence: one line on the rights in the data.
            readme: text of ``README.md``.

        Raises:
            DatasetError: there is no character, no clip or no split ``default``, or a row or a name listed as seen is
                not in the dataset.
        """
        seen = {"characters": frozenset(seen_characters), "motions": frozenset(seen_motions)}
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "name": name,
            "description": description,
            "licence": licence,
            "hash": content_hash(self._entries, seen),
            "seen_characters": sorted(seen["characters"]),
            "seen_motions": sorted(seen["motions"]),
        }
        self._write_file(INDEX, index_to_csv(self._entries).encode())
        self._write_file(MANIFEST, yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True).encode())
        self._write_file("README.md", readme.encode())
        _check_whole(FolderDataset(self._folder))
        self._put_in_place()
        return FolderDataset(self.path)

    def _write(self, entry: IndexEntry, data: bytes) -> None:
        # Some file systems do not tell capitals from small letters.
        if entry.path.casefold() in self._taken:
            raise DatasetError(f"two files of the dataset would be {entry.path}; give one of them another name")
        self._taken.add(entry.path.casefold())
        self._write_file(entry.path, data)
        self._entries.append(replace(entry, size=len(data), sha256=hashlib.sha256(data).hexdigest()))

    def _write_file(self, path: str, data: bytes) -> None:
        target = self._folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        except OSError as error:
            # Not a DatasetError: an importer takes that for the fault of one file and goes on.
            raise UsageError(f"{self.path / path} cannot be written: {error.strerror}; choose another folder") from None

    def _put_in_place(self) -> None:
        old = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}.old")
        replaced = self.path.exists()
        if replaced:
            self.path.rename(old)
        try:
            self._folder.rename(self.path)
        except OSError:
            if replaced:
                old.rename(self.path)
            raise
        shutil.rmtree(old, ignore_errors=True)


def write_folder_dataset(
    path: str | Path,
    *,
    name: str,
    characters: Iterable[Character],
    clips: Iterable[Clip],
    splits: Iterable[Split],
    seen_characters: Collection[str],
    seen_motions: Collection[str],
    description: str = "",
    licence: str = "",
    readme: str = "",
    force: bool = False,
) -> FolderDataset:
    """Write a whole dataset; generators keep memory small.

    Args:
        path: where the dataset is to be.
        name: name for tables.
        characters: all characters.
        clips: all clips, of those characters.
        splits: frozen splits, ``default`` among them.
        seen_characters: characters that may be trained on.
        seen_motions: motions that may be trained on.
        description: one line.
        licence: one line on the rights in the data.
        readme: text of ``README.md``.
        force: replace a dataset that is there already.

    Raises:
        UsageError: there is something at ``path`` that may not be replaced.
        DatasetError: names clash, or a clip or row does not fit the rest.
    """
    with FolderDatasetWriter(path, force=force) as writer:
        for character in characters:
            writer.add_character(character)
        for clip in clips:
            writer.add_clip(clip)
        for split in splits:
            writer.add_split(split)
        return writer.commit(
            name=name,
            seen_characters=seen_characters,
            seen_motions=seen_motions,
            description=description,
            licence=licence,
            readme=readme,
        )


def _check_place(path: Path, *, force: bool) -> None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not is_dataset_folder(path):
        raise UsageError(f"{path} exists and is not a dataset, so it is not replaced; choose another folder")
    if not force:
        raise UsageError(f"{path} holds a dataset already; use --force to replace it, or choose another folder")


def _check_whole(dataset: FolderDataset) -> None:
    if not dataset.clip_names:
        raise DatasetError(f"dataset {dataset.name} would have no clip")
    if "default" not in dataset.splits:
        raise DatasetError(f"dataset {dataset.name} would have no split named default")
    for name in dataset.splits:
        dataset.split(name)
    unknown = dataset.seen_characters - set(dataset.character_names)
    unknown |= dataset.seen_motions - {motion for _, motion in dataset.clip_names}
    if unknown:
        raise DatasetError(f"dataset {dataset.name}: listed as seen but not there: {', '.join(sorted(unknown))}")


def _file_name(name: str) -> str:
    # Surrogates stand for bytes of a file name that are no UTF-8; the index could not hold them.
    if _UNUSABLE_NAME.search(name) or len(name.encode("utf-8", "replace")) > 150:
        raise DatasetError(
            f"{name!r} cannot be the name of a file; rename it to at most 150 bytes of UTF-8 without slashes, colons "
            f"or dots at the ends"
        )
    return name
