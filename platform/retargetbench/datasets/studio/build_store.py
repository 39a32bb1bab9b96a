"""Files of a build in progress: bodies, reference performances and clips, each with the key of what it was made from.

A file whose key is another is made anew, so that a build that was stopped, or whose recipes or code changed, goes on
with exactly what is missing.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from retargetbench.datasets.studio.pack_bodies import (
    body_from_arrays,
    body_to_arrays,
    topology_from_arrays,
    topology_to_arrays,
)
from retargetbench.datasets.studio.performance import Contact, FootTrack, Performance
from retargetbench.formats._files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from retargetbench.character import Character

    Array = np.ndarray[Any, Any]

_TRACK = tuple(FootTrack.__dataclass_fields__)
_KEY = "key"
_META = "meta"


@dataclass(frozen=True)
class BuildStore:
    """Where a build keeps what it has made."""

    folder: Path

    def body_file(self, character: str) -> Path:
        """Where a body is kept."""
        return self.folder / "bodies" / f"{character}.npz"

    def performance_file(self, action: str) -> Path:
        """Where the performance of an action on the reference body is kept."""
        return self.folder / "performances" / f"{action}.npz"

    def clip_file(self, character: str, action: str) -> Path:
        """Where a clip is kept."""
        return self.folder / "clips" / character / f"{action}.npz"

    def write_body(self, key: str, character: Character) -> None:
        """Keep a body as a reader of the pack will get it."""
        meta = {"name": character.name, "provenance": dict(character.provenance)}
        arrays = {**topology_to_arrays(character), **body_to_arrays(character)}
        _write(self.body_file(character.name), key, meta, arrays)

    def read_body(self, character: str) -> Character:
        """Read a body.

        Raises:
            FileNotFoundError: it was not made yet.
        """
        meta, arrays = _read(self.body_file(character))
        return body_from_arrays(arrays, topology_from_arrays(arrays), name=meta["name"], provenance=meta["provenance"])

    def write_performance(self, key: str, performance: Performance, quality: Mapping[str, Any]) -> None:
        """Keep the performance of an action on the reference body with what was measured of it."""
        arrays: dict[str, Array] = {
            "rotations": performance.rotations.numpy(),
            "hips": performance.hips.numpy(),
        }
        for side, track in zip(("left", "right"), performance.feet, strict=True):
            arrays |= {f"{side}_{name}": getattr(track, name).numpy() for name in _TRACK}
        for k, contact in enumerate(performance.contacts):
            arrays[f"share_{k}"] = contact.share.numpy()
            arrays[f"active_{k}"] = contact.active.numpy()
        meta = {
            "name": performance.name,
            "family": performance.family,
            "fps": performance.fps,
            "hands": dict(performance.hands),
            "seated": performance.seated,
            "contacts": [[c.moving, c.first, c.second, c.gap, c.slides] for c in performance.contacts],
            "quality": dict(quality),
        }
        _write(self.performance_file(performance.name), key, meta, arrays)

    def read_performance(self, action: str) -> tuple[Performance, dict[str, Any]]:
        """Read the performance of an action on the reference body and what was measured of it.

        Raises:
            FileNotFoundError: it was not made yet.
        """
        meta, arrays = _read(self.performance_file(action))
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        left, right = (FootTrack(**{name: tensors[f"{side}_{name}"] for name in _TRACK}) for side in ("left", "right"))
        contacts = tuple(
            Contact(moving, first, second, tensors[f"share_{k}"], tensors[f"active_{k}"], gap, slides)
            for k, (moving, first, second, gap, slides) in enumerate(meta["contacts"])
        )
        performance = Performance(
            meta["name"],
            meta["family"],
            meta["fps"],
            tensors["rotations"],
            tensors["hips"],
            (left, right),
            contacts,
            meta["hands"],
            meta["seated"],
        )
        return performance, meta["quality"]

    def write_clip(
        self, key: str, character: str, action: str, rotations: Array, root: Array, meta: Mapping[str, Any]
    ) -> None:
        """Keep a clip: rotations (K, 22, 4) and root (K, 3) at key frames, and what was measured of it."""
        _write(self.clip_file(character, action), key, meta, {"rotations": rotations, "root": root})

    def read_clip(self, character: str, action: str) -> tuple[Array, Array, dict[str, Any]]:
        """Read rotations, root and what was measured of a clip.

        Raises:
            FileNotFoundError: it was not made yet.
        """
        meta, arrays = _read(self.clip_file(character, action))
        return arrays["rotations"], arrays["root"], meta


def has_key(path: Path, key: str) -> bool:
    """Whether a file is there, whole, and was made from this key."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return str(file[_KEY]) == key
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return False


def _write(path: Path, key: str, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        **{_KEY: np.array(key), _META: np.array(json.dumps(meta, sort_keys=True))},
        **arrays,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name not in (_KEY, _META)}
        return json.loads(str(file[_META])), arrays
