"""The dataset that ships with the package: six mannequins of different build in eight motions, generated in code.

It is small and quick, and its ground truth is true: every motion is solved for every body so that hands touch what
they touch in the source, and feet stand still. It is made for tests and first runs, not for conclusions about methods.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

from retargetbench.clip import Clip
from retargetbench.datasets.base import Dataset, Split
from retargetbench.datasets.capsule_bodies import BUILDS, Body
from retargetbench.datasets.capsule_motions import SCORES
from retargetbench.datasets.capsule_posing import solve
from retargetbench.datasets.splits import balanced_default, every_pair
from retargetbench.errors import DatasetError

if TYPE_CHECKING:
    from retargetbench.character import Character

UNSEEN_CHARACTERS = frozenset({"child", "stout"})
"""The bodies farthest from the others: targets of the atoms UC+UM and UC+SM."""

UNSEEN_MOTIONS = frozenset({"arms_crossed", "hand_to_head", "wave"})
"""Motions of the atoms UC+UM and SC+UM."""


class CapsuleDataset(Dataset):
    """Six characters, eight motions at 30 fps, every motion on every character; built when asked for."""

    name = "capsules"

    def __init__(self) -> None:
        self._bodies = {build.name: Body(build) for build in BUILDS}
        self._scores = {score.name: score for score in SCORES}
        self._clips: dict[tuple[str, str], Clip] = {}

    @cached_property
    def hash(self) -> str:
        """Content hash (16 hexadecimal digits) of characters, clips and splits; builds all of them."""
        digest = hashlib.sha256()
        for name in self.character_names:
            character = self.character(name)
            skeleton = character.skeleton
            digest.update(name.encode())
            for tensor in (
                skeleton.offsets,
                character.bind_vertices,
                character.inverse_bind,
                character.faces,
                character.influence_joints,
                character.influence_weights,
            ):
                digest.update(tensor.numpy().tobytes())
        for character_name, motion_name in self.clip_names:
            motion = self.clip(character_name, motion_name).motion
            digest.update(f"{character_name}/{motion_name}/{motion.fps}".encode())
            digest.update(motion.root_translation.numpy().tobytes())
            digest.update(motion.local_rotations.numpy().tobytes())
        digest.update(self.split().hash.encode())
        return digest.hexdigest()[:16]

    @property
    def character_names(self) -> tuple[str, ...]:
        """Names of all characters, sorted."""
        return tuple(sorted(self._bodies))

    @property
    def seen_characters(self) -> frozenset[str]:
        """Characters that may be trained on."""
        return frozenset(self._bodies) - UNSEEN_CHARACTERS

    @property
    def seen_motions(self) -> frozenset[str]:
        """Motions that may be trained on."""
        return frozenset(self._scores) - UNSEEN_MOTIONS

    @property
    def clip_names(self) -> tuple[tuple[str, str], ...]:
        """(character, motion) of every clip, sorted."""
        return tuple((character, motion) for character in self.character_names for motion in sorted(self._scores))

    def character(self, name: str) -> Character:
        """Return a character; asking twice gives the same object.

        Raises:
            DatasetError: there is no such character.
        """
        return self._body(name).character

    def clip(self, character: str, motion: str) -> Clip:
        """Return a clip; asking twice gives the same object.

        Raises:
            DatasetError: there is no such clip.
        """
        if motion not in self._scores:
            raise DatasetError(
                f"dataset {self.name} has no motion {motion!r}; it has: {', '.join(sorted(self._scores))}"
            )
        body = self._body(character)
        key = (character, motion)
        if key not in self._clips:
            self._clips[key] = Clip(motion, body.character, solve(body, self._scores[motion]))
        return self._clips[key]

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the frozen splits."""
        return ("default",)

    def split(self, name: str = "default") -> Split:
        """Return a frozen split: every clip on every other character, and a balanced default set of each atom.

        Raises:
            DatasetError: there is no such split.
        """
        if name not in self.splits:
            raise DatasetError(f"dataset {self.name} has no split {name!r}; it has: {', '.join(self.splits)}")
        rows = every_pair(
            self.clip_names,
            self.character_names,
            seen_characters=self.seen_characters,
            seen_motions=self.seen_motions,
        )
        return Split(name, balanced_default(rows))

    def _body(self, name: str) -> Body:
        if name not in self._bodies:
            raise DatasetError(
                f"dataset {self.name} has no character {name!r}; it has: {', '.join(self.character_names)}"
            )
        return self._bodies[name]


def open_capsules() -> CapsuleDataset:
    """Open the shipped dataset; every call gives equal content.

    Example:
        >>> open_capsules().character_names
        ('average', 'child', 'giant', 'longarm', 'slim', 'stout')
    """
    return CapsuleDataset()
