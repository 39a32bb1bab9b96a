"""What a dataset gives: characters, clips, ground truth and frozen splits, read lazily."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retargetbench.clip import SPLIT_ATOMS, SplitAtom, Task
from retargetbench.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.motion import Motion


@dataclass(frozen=True, order=True)
class SplitRow:
    """One frozen row: put ``motion`` of character ``source`` on character ``target``."""

    atom: SplitAtom
    source: str
    motion: str
    target: str
    default: bool = True
    """Whether the row belongs to the quick default set (at most 24 per atom) or only to the full set."""


@dataclass(frozen=True)
class Split:
    """A frozen list of rows with a content hash that is stored with every result."""

    name: str
    rows: tuple[SplitRow, ...]

    @property
    def hash(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 over the sorted rows."""
        text = "\n".join(
            "\t".join(map(str, (r.atom, r.source, r.motion, r.target, r.default))) for r in sorted(self.rows)
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def select(self, atoms: Iterable[SplitAtom], *, full: bool = False) -> tuple[SplitRow, ...]:
        """Return the rows of these atoms: the default set, or the full one."""
        wanted = set(atoms)
        return tuple(row for row in self.rows if row.atom in wanted and (full or row.default))


def parse_atoms(text: str) -> tuple[SplitAtom, ...]:
    """Read ``--split``: ``all``, or atoms such as ``UC+UM`` separated by commas.

    Raises:
        UsageError: an atom is unknown.
    """
    if text == "all":
        return SPLIT_ATOMS
    wanted = {part.strip() for part in text.split(",") if part.strip()}
    unknown = wanted - set(SPLIT_ATOMS)
    if unknown or not wanted:
        raise UsageError(
            f"split {text!r} is not known; accepted are all, {', '.join(SPLIT_ATOMS)}, or several separated by commas"
        )
    return tuple(atom for atom in SPLIT_ATOMS if atom in wanted)


class Dataset(ABC):
    """Characters and clips of them; implementations read only what is asked for."""

    name: str
    """Name for tables and run folders."""

    known_scores: Path | None = None
    """Archive of scores of source and ground truth that come with the dataset, see
    `retargetbench.benchmark.known_scores`; a run takes them instead of computing them."""

    @property
    @abstractmethod
    def hash(self) -> str:
        """Content hash (16 hexadecimal digits) of characters, clips and splits."""

    @property
    @abstractmethod
    def character_names(self) -> tuple[str, ...]:
        """Names of all characters, sorted."""

    @property
    @abstractmethod
    def seen_characters(self) -> frozenset[str]:
        """Characters that may be trained on."""

    @property
    @abstractmethod
    def seen_motions(self) -> frozenset[str]:
        """Motions that may be trained on."""

    @property
    @abstractmethod
    def clip_names(self) -> tuple[tuple[str, str], ...]:
        """(character, motion) of every clip, sorted."""

    @abstractmethod
    def character(self, name: str) -> Character:
        """Load a character; loading it twice gives the same object.

        Raises:
            DatasetError: there is no such character.
        """

    @abstractmethod
    def clip(self, character: str, motion: str) -> Clip:
        """Load a clip.

        Raises:
            DatasetError: there is no such clip.
        """

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """Names of the frozen splits; ``default`` is among them."""

    @abstractmethod
    def split(self, name: str = "default") -> Split:
        """Load a frozen split.

        Raises:
            DatasetError: there is no such split.
        """

    def ground_truth(self, character: str, motion: str) -> Motion | None:
        """Return the true version of a motion on a character, or None where there is none.

        By default that is the dataset's own clip of this motion on this character.
        """
        if (character, motion) not in set(self.clip_names):
            return None
        return self.clip(character, motion).motion

    def task(self, row: SplitRow) -> Task:
        """Load a row of a split as a task; a ground truth of another length or frame rate is left out.

        Raises:
            DatasetError: the row names a character or clip that the dataset lacks.
        """
        source = self.clip(row.source, row.motion)
        truth = self.ground_truth(row.target, row.motion)
        if truth is not None and (
            truth.frame_count != source.motion.frame_count or abs(truth.fps - source.motion.fps) > 1e-3
        ):
            truth = None
        return Task(source, self.character(row.target), truth, row.atom)

    def check_rows(self, rows: Sequence[SplitRow]) -> None:
        """Raise `DatasetError` naming the first row whose character or clip is missing."""
        clips, characters = set(self.clip_names), set(self.character_names)
        for row in rows:
            if (row.source, row.motion) not in clips or row.target not in characters:
                raise DatasetError(
                    f"dataset {self.name}: the split row {row.source}/{row.motion}/{row.target} names a clip or "
                    f"character that the dataset does not have"
                )
