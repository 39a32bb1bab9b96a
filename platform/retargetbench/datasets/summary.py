"""What is in a dataset, as plain values for listings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from retargetbench.datasets.folder import FolderDataset

if TYPE_CHECKING:
    from retargetbench.datasets.base import Dataset


def summarise(dataset: Dataset) -> dict[str, Any]:
    """List characters, clips and splits of a dataset.

    The index of a folder dataset tells the lengths of its clips; those of other datasets are loaded one by one.

    Returns:
        ``name``, ``hash``, ``bytes`` (0 where the dataset is not a folder), and lists of dictionaries
        ``characters``, ``clips`` and ``splits``, ready for JSON.
    """
    entries = dataset.entries if isinstance(dataset, FolderDataset) else ()
    lengths = {(entry.character, entry.motion): (entry.frames, entry.fps) for entry in entries if entry.kind == "clip"}
    owners: Counter[str] = Counter(owner for owner, _ in dataset.clip_names)
    clips = []
    for owner, motion in dataset.clip_names:
        if (owner, motion) not in lengths:
            loaded = dataset.clip(owner, motion).motion
            lengths[owner, motion] = (loaded.frame_count, loaded.fps)
        frames, fps = lengths[owner, motion]
        seen = motion in dataset.seen_motions
        clips.append({"character": owner, "motion": motion, "frames": frames, "fps": fps, "seen": seen})
    characters = []
    for name in dataset.character_names:
        character = dataset.character(name)
        characters.append(
            {
                "name": name,
                "joints": character.skeleton.joint_count,
                "vertices": character.vertex_count,
                "height m": round(character.height, 4),
                "clips": owners[name],
                "seen": name in dataset.seen_characters,
            }
        )
    return {
        "name": dataset.name,
        "hash": dataset.hash,
        "bytes": sum(entry.size for entry in entries),
        "characters": characters,
        "clips": clips,
        "splits": [_split_summary(dataset, name) for name in dataset.splits],
    }


def _split_summary(dataset: Dataset, name: str) -> dict[str, Any]:
    """Count the rows of a split by atom, quick ones and all."""
    split = dataset.split(name)
    atoms = sorted({row.atom for row in split.rows})
    quick = Counter(row.atom for row in split.rows if row.default)
    every = Counter(row.atom for row in split.rows)
    return {
        "name": name,
        "hash": split.hash,
        "rows": len(split.rows),
        "quick of all": ", ".join(f"{atom} {quick[atom]} of {every[atom]}" for atom in atoms),
    }
