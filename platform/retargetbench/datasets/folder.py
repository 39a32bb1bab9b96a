"""Datasets on disk: the folder format and its lazy reader. The writer is `retargetbench.datasets.folder_writer`.

Layout, version 1::

    dataset.yaml                    name, description, licence, what counts as seen, hash of the whole
    index.csv                       every file below with its size and SHA-256, see `IndexEntry`
    README.md                       for people
    characters/NAME.npz             one character
    clips/CHARACTER/MOTION.npz      one motion of all joints of that character
    splits/NAME.csv                 one frozen split, see `retargetbench.datasets.splits`

Archives hold plain arrays, never pickles, in the house convention (metres, Y up, xyzw, world-aligned at rest). A
character has ``names`` (J), ``parents`` (J), ``canonical`` (22), ``offsets`` (J, 3), ``bind_vertices`` (V, 3),
``inverse_bind`` (J, 4, 4), ``faces`` (F, 3), ``influence_joints`` and ``influence_weights`` (V, K), and ``provenance``,
a JSON text. A motion has ``root_translation`` (T, 3), ``local_rotations`` (T, J, 4) and ``fps``. The clip of a motion
on the target is the ground truth of every task that puts this motion on it.

A split file that somebody adds to ``splits/`` can be used at once; it has a hash of its own.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from retargetbench.clip import Clip
from retargetbench.datasets.base import Dataset, Split
from retargetbench.datasets.folder_files import (
    IndexEntry,
    character_from_bytes,
    content_hash,
    index_from_csv,
    motion_from_bytes,
)
from retargetbench.datasets.splits import split_from_csv
from retargetbench.errors import CharacterError, DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retargetbench.character import Character

MANIFEST = "dataset.yaml"
"""The file that makes a folder a dataset."""

INDEX = "index.csv"
"""The list of all files."""

FORMAT = "retargetbench-dataset"
"""Value of ``format`` in the manifest."""

VERSION = 1
"""Version of the layout that is written and read."""

_SHOWN_NAMES = 12


class FolderDataset(Dataset):
    """A dataset in a folder; characters are kept once loaded, clips are read anew each time.

    Memory does not grow with the number of clips. Every file is compared with its hash when it is read.

    Args:
        path: the folder.

    Raises:
        DatasetError: manifest or index are missing, cannot be read, or contradict each other.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        manifest = _read_manifest(self.path / MANIFEST)
        self.entries = index_from_csv(_read_text(self.path / INDEX), self.path / INDEX)
        self.name: str = manifest["name"]
        self.description: str = manifest["description"]
        self.licence: str = manifest["licence"]
        self._seen = {kind: frozenset(manifest[f"seen_{kind}"]) for kind in ("characters", "motions")}
        self._hash = content_hash(self.entries, self._seen)
        if self._hash != manifest["hash"]:
            raise DatasetError(
                f"{self.path / MANIFEST}: the hash {manifest['hash']} does not fit {INDEX} and what is listed as "
                f"seen, whose hash is {self._hash}. Import again, or write the new hash there if you meant the change"
            )
        self._by_kind = {
            kind: {(entry.character, entry.motion): entry for entry in self.entries if entry.kind == kind}
            for kind in ("character", "clip", "split")
        }
        self._characters: dict[str, Character] = {}

    @property
    def hash(self) -> str:
        """Content hash (16 hexadecimal digits) of characters, clips, splits and what counts as seen."""
        return self._hash

    @property
    def character_names(self) -> tuple[str, ...]:
        """Names of all characters, sorted."""
        return tuple(sorted(name for name, _ in self._by_kind["character"]))

    @property
    def seen_characters(self) -> frozenset[str]:
        """Characters that may be trained on."""
        return self._seen["characters"]

    @property
    def seen_motions(self) -> frozenset[str]:
        """Motions that may be trained on."""
        return self._seen["motions"]

    @property
    def clip_names(self) -> tuple[tuple[str, str], ...]:
        """(character, motion) of every clip, sorted."""
        return tuple(sorted(self._by_kind["clip"]))

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the frozen splits, ``default`` first, those added later included."""
        names = {file.stem for file in (self.path / "splits").glob("*.csv")}
        names |= {name for _, name in self._by_kind["split"]}
        return tuple(sorted(names, key=lambda name: (name != "default", name)))

    def character(self, name: str) -> Character:
        """Load a character; loading it twice gives the same object.

        Raises:
            DatasetError: there is no such character, or its file is missing or changed.
        """
        if name not in self._characters:
            entry = self._by_kind["character"].get((name, ""))
            if entry is None:
                raise DatasetError(
                    f"dataset {self.name} has no character {name!r}; it has {_some(self.character_names)}"
                )
            self._characters[name] = character_from_bytes(self.read(entry), name, self.path / entry.path)
        return self._characters[name]

    def clip(self, character: str, motion: str) -> Clip:
        """Load a clip.

        Raises:
            DatasetError: there is no such clip, or its file is missing or changed.
        """
        entry = self._by_kind["clip"].get((character, motion))
        if entry is None:
            motions = [name for owner, name in self.clip_names if owner == character]
            raise DatasetError(
                f"dataset {self.name} has no motion {motion!r} of character {character!r}; it has {_some(motions)}"
            )
        loaded = motion_from_bytes(self.read(entry), self.path / entry.path)
        try:
            return Clip(motion, self.character(character), loaded)
        except CharacterError as error:
            raise DatasetError(f"{self.path / entry.path}: {error}; import the dataset again") from None

    def split(self, name: str = "default") -> Split:
        """Load a frozen split.

        Raises:
            DatasetError: there is no such split, it is damaged, or a row names what the dataset does not have.
        """
        if name not in self.splits:
            raise DatasetError(f"dataset {self.name} has no split {name!r}; it has {_some(self.splits)}")
        file = self.path / "splits" / f"{name}.csv"
        entry = self._by_kind["split"].get(("", name))
        text = _read_text(file) if entry is None else self.read(entry).decode("utf-8", "replace")
        split = split_from_csv(text, name=name, path=file)
        self.check_rows(split.rows)
        return split

    def read(self, entry: IndexEntry) -> bytes:
        """Read a file of the dataset and compare it with its hash.

        Raises:
            DatasetError: the file is missing, cannot be read, or was changed.
        """
        path = self.path / entry.path
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DatasetError(f"{path} cannot be read ({error.strerror}); import the dataset again") from None
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise DatasetError(
                f"{path} is damaged or was changed: {len(data)} bytes whose SHA-256 is not the one in {INDEX}; import "
                f"the dataset again"
            )
        return data


def is_dataset_folder(path: Path) -> bool:
    """Return whether a folder holds a dataset of this format, of any version."""
    try:
        manifest = yaml.safe_load((path / MANIFEST).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); import the dataset again") from None
    except UnicodeDecodeError:
        raise DatasetError(f"{path} is damaged: it is no UTF-8 text; import the dataset again") from None


def _read_manifest(path: Path) -> dict[str, Any]:
    """Read and check ``dataset.yaml``."""
    try:
        manifest = yaml.safe_load(_read_text(path))
    except yaml.YAMLError as error:
        raise DatasetError(f"{path} is no YAML: {str(error).splitlines()[0]}; import the dataset again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DatasetError(f"{path} is not the manifest of a dataset: it lacks 'format: {FORMAT}'")
    if manifest.get("version") != VERSION:
        raise DatasetError(
            f"{path}: layout version {manifest.get('version')!r} is not {VERSION}, the one this release reads; import "
            f"the dataset again"
        )
    wanted: dict[str, type] = {
        "name": str,
        "description": str,
        "licence": str,
        "hash": str,
        "seen_characters": list,
        "seen_motions": list,
    }
    for key, kind in wanted.items():
        if not isinstance(manifest.get(key), kind):
            raise DatasetError(f"{path}: {key} must be a {kind.__name__}, got {manifest.get(key)!r}")
    return manifest


def _some(names: Iterable[str]) -> str:
    """List names for a message, not too many."""
    known = list(names)
    more = f" and {len(known) - _SHOWN_NAMES} more" if len(known) > _SHOWN_NAMES else ""
    return (", ".join(known[:_SHOWN_NAMES]) or "none") + more
