"""The dataset ``studio``: people of many builds in actions with contacts, with verified ground truth on every body."""

from __future__ import annotations

import csv
import io
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from retargetbench.clip import Clip
from retargetbench.datasets.base import Dataset, Split
from retargetbench.datasets.splits import split_from_csv
from retargetbench.datasets.studio.fingers import finger_rotations
from retargetbench.datasets.studio.pack_bodies import Topology, body_from_arrays, topology_from_arrays
from retargetbench.datasets.studio.pack_files import NEXT_STEP, read_block, read_file
from retargetbench.datasets.studio.pack_manifest import MANIFEST, QUALITY, read_manifest
from retargetbench.datasets.studio.pack_motions import MotionKeys, WholeKeys, full_motion, motions_from_arrays
from retargetbench.errors import CharacterError, DatasetError

if TYPE_CHECKING:
    import torch

    from retargetbench.character import Character
    from retargetbench.datasets.studio.pack_files import Arrays
    from retargetbench.motion import Motion

PACKAGED = Path(__file__).parent / "pack"
"""The pack that ships with the package."""

KNOWN_SCORES = "known_scores.zip"
"""File of a pack with scores of source and ground truth on its default rows; it may be missing."""


class StudioDataset(Dataset):
    """A pack. Bodies and motions are read when a character is first asked for; bodies of one topology share arrays.

    Args:
        path: folder of the pack.

    Raises:
        DatasetError: the manifest is missing or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        self.name: str = self.manifest.name
        self.known_scores = self.path / KNOWN_SCORES
        self._topologies: dict[str, Topology] = {}
        self._characters: dict[str, Character] = {}
        self._keys: dict[str, dict[str, WholeKeys]] = {}
        self._fingers: dict[tuple[str, str, str], torch.Tensor] = {}

    @property
    def hash(self) -> str:
        """Content hash (16 hexadecimal digits) of characters, clips and splits."""
        return self.manifest.hash

    @cached_property
    def character_names(self) -> tuple[str, ...]:
        """Names of all characters, sorted."""
        return tuple(sorted(self.manifest.characters))

    @cached_property
    def seen_characters(self) -> frozenset[str]:
        """Characters that may be trained on."""
        return frozenset(name for name, character in self.manifest.characters.items() if character.seen)

    @cached_property
    def seen_motions(self) -> frozenset[str]:
        """Actions that may be trained on."""
        return frozenset(name for name, action in self.manifest.actions.items() if action.seen)

    @cached_property
    def families(self) -> dict[str, str]:
        """Family of each action."""
        return {name: action.family for name, action in sorted(self.manifest.actions.items())}

    @cached_property
    def clip_names(self) -> tuple[tuple[str, str], ...]:
        """(character, action) of every clip that passed the gates, sorted."""
        return tuple((character, action) for character in self.character_names for action in self._motions(character))

    def character(self, name: str) -> Character:
        """Load a character; loading it twice gives the same object.

        Raises:
            DatasetError: there is no such character, or its file is missing or damaged.
        """
        self._check_character(name)
        if name not in self._characters:
            packed = self.manifest.characters[name]
            topology = self._topology(packed.topology)
            try:
                self._characters[name] = body_from_arrays(
                    self._read(f"body/{name}"), topology, name=name, provenance=packed.provenance
                )
            except (KeyError, TypeError, ValueError, IndexError, CharacterError) as error:
                raise self._unusable(f"body/{name}", error) from None
        return self._characters[name]

    def clip(self, character: str, motion: str) -> Clip:
        """Load a clip at 30 frames a second, all joints of the character; fingers keep the shape of the action.

        Raises:
            DatasetError: there is no such clip, or its file is missing or damaged.
        """
        keys = self.keys(character, motion)
        action = self.manifest.actions[motion]
        body = self.character(character)
        hands = (character, action.left, action.right)
        if hands not in self._fingers:
            self._fingers[hands] = finger_rotations(body.skeleton, action.left, action.right)
        return Clip(motion, body, full_motion(keys, body.skeleton, self._fingers[hands]))

    def keys(self, character: str, motion: str) -> MotionKeys:
        """Load what is stored of a clip: the 22 canonical joints at every second frame.

        Raises:
            DatasetError: there is no such clip, or its file is missing or damaged.
        """
        self._check_character(character)
        names = self._motions(character)
        if motion not in names:
            why = "was left out: it failed its checks" if motion in self.manifest.actions else "is not an action"
            raise DatasetError(
                f"dataset {self.name} has no motion {motion!r} of character {character!r}: it {why}; it has "
                f"{', '.join(names) or 'none'}"
            )
        if character not in self._keys:
            block = f"motions/{character}"
            counts = [self.manifest.actions[name].keys for name in names]
            try:
                whole = motions_from_arrays(self._read(block), counts)
            except (KeyError, TypeError, ValueError) as error:
                raise self._unusable(block, error) from None
            self._keys[character] = dict(zip(names, whole, strict=True))
        return self._keys[character][motion].keys()

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """Names of the frozen splits, ``default`` first."""
        files = [Path(file) for file in self.manifest.files if file.startswith("splits/")]
        return tuple(sorted((file.stem for file in files), key=lambda name: (name != "default", name)))

    def split(self, name: str = "default") -> Split:
        """Load a frozen split.

        Raises:
            DatasetError: there is no such split, or its file is missing or damaged.
        """
        if name not in self.splits:
            raise DatasetError(f"dataset {self.name} has no split {name!r}; it has: {', '.join(self.splits)}")
        file = f"splits/{name}.csv"
        text = read_file(self.path / file, self.manifest.files[file]).decode()
        split = split_from_csv(text, name=name, path=self.path / file)
        self.check_rows(split.rows)
        return split

    def ground_truth(self, character: str, motion: str) -> Motion | None:
        """Return the solved version of an action on a character, or None where it was left out."""
        if character not in self.manifest.characters or motion not in self._motions(character):
            return None
        return self.clip(character, motion).motion

    def quality(self) -> list[dict[str, str]]:
        """Return the figures of every clip that was tried, and why those that are missing were left out.

        Raises:
            DatasetError: the file is missing or damaged.
        """
        text = read_file(self.path / QUALITY, self.manifest.files.get(QUALITY, "")).decode()
        return list(csv.DictReader(io.StringIO(text)))

    def _motions(self, character: str) -> tuple[str, ...]:
        """Actions of which a character has a clip, sorted."""
        left_out = set(self.manifest.characters[character].left_out)
        return tuple(name for name in sorted(self.manifest.actions) if name not in left_out)

    def _topology(self, name: str) -> Topology:
        if name not in self._topologies:
            block = f"topology/{name}"
            try:
                self._topologies[name] = topology_from_arrays(self._read(block))
            except (KeyError, TypeError, ValueError) as error:
                raise self._unusable(block, error) from None
        return self._topologies[name]

    def _read(self, block: str) -> Arrays:
        place = self.manifest.blocks.get(block)
        if place is None:
            raise DatasetError(f"{self.path / MANIFEST} lists no block {block}; {NEXT_STEP}")
        return read_block(self.path / place.shard, block, place.sha256)

    def _unusable(self, block: str, error: Exception) -> DatasetError:
        shard = self.path / self.manifest.blocks[block].shard
        return DatasetError(f"{shard}: block {block} is not what this release reads ({error}); {NEXT_STEP}")

    def _check_character(self, name: str) -> None:
        if name not in self.manifest.characters:
            raise DatasetError(
                f"dataset {self.name} has no character {name!r}; it has: {', '.join(self.character_names)}"
            )


def open_studio(path: str | Path | None = None) -> StudioDataset:
    """Open the dataset that ships with the package, or a pack in another folder.

    Raises:
        DatasetError: there is no pack, or it is damaged.
    """
    return StudioDataset(PACKAGED if path is None else path)
