"""A dataset that takes seconds to run a benchmark on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retargetbench.datasets.base import Split
from retargetbench.datasets.capsules import open_capsules
from retargetbench.datasets.folder_writer import write_folder_dataset
from retargetbench.datasets.splits import every_pair

if TYPE_CHECKING:
    from pathlib import Path

CHARACTERS = ("average", "child", "slim")
MOTIONS = ("hand_to_head", "wave")


def write_tiny_dataset(path: Path) -> None:
    """Write a folder dataset of three capsule bodies and two motions of 24 frames: 12 rows in four atoms."""
    capsules = open_capsules()
    clips = [capsules.clip(character, motion) for character in CHARACTERS for motion in MOTIONS]
    seen = {"seen_characters": {"average", "slim"}, "seen_motions": {"hand_to_head"}}
    rows = every_pair([(clip.character.name, clip.name) for clip in clips], CHARACTERS, **seen)
    write_folder_dataset(
        path,
        name="tiny",
        characters=[capsules.character(name) for name in CHARACTERS],
        clips=[replace(clip, motion=clip.motion.frames(20, 44)) for clip in clips],
        splits=[Split("default", tuple(replace(row, default=True) for row in rows))],
        **seen,
    )
