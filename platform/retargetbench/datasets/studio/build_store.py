"""Files of a build in progress: bodies, reference performances and clips, each with the key of what it was made from.

A file whose key is another is made anew, so that a build that was stopped, or whose recipes or code changed, goes on
with exactly what is missing. Beside its key a file has a digest of its content, of which keys of later files are made:
a body that is built again with the same result does not make clips anew. What could not be made is kept too, with the
reason, so that it is not tried again.
"""

from __future__ import annotations

import hashlib
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
from retargetbench.datasets.studio.pack_motions import MotionKeys
from retargetbench.datasets.studio.performance import Contact, FootTrack, Performance
from retargetbench.errors import UsageError
from retargetbench.formats._files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from retargetbench.character import Character

    Array = np.ndarray[Any, Any]

_TRACK = tuple(FootTrack.__dataclass_fields__)
_KEY, _DIGEST, _META = "key", "digest", "meta"
_FAILURE = "failure"
"""Entry of the meta data that says why there is nothing else."""


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
        arrays = body_arrays(character)
        _write(self.body_file(character.name), key, content_digest(arrays), meta, arrays)

    def read_body(self, character: str) -> Character:
        """Read a body.

        Raises:
            FileNotFoundError: it was not made yet.
        """
        meta, arrays = _read(self.body_file(character))
        if _FAILURE in meta:
            raise FileNotFoundError(f"body {character} was not made: {meta[_FAILURE]}")
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
        _write(self.performance_file(performance.name), key, content_digest(arrays, meta), meta, arrays)

    def read_performance(self, action: str) -> tuple[Performance, dict[str, Any]]:
        """Read the performance of an action on the reference body and what was measured of it.

        Raises:
            FileNotFoundError: it was not made yet, or could not be made.
        """
        meta, arrays = _read(self.performance_file(action))
        if _FAILURE in meta:
            raise FileNotFoundError(f"action {action} was not made: {meta[_FAILURE]}")
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

    def write_clip(self, key: str, character: str, action: str, keys: MotionKeys, meta: Mapping[str, Any]) -> None:
        """Keep a clip and what was measured of it."""
        arrays = {"rotations": keys.rotations.numpy(), "root": keys.root.numpy()}
        _write(self.clip_file(character, action), key, content_digest(arrays), meta, arrays)

    def read_clip(self, character: str, action: str) -> tuple[MotionKeys, dict[str, Any]]:
        """Read a clip and what was measured of it.

        Raises:
            FileNotFoundError: it was not made yet, or could not be made.
        """
        meta, arrays = _read(self.clip_file(character, action))
        if _FAILURE in meta:
            raise FileNotFoundError(f"clip {character}/{action} was not made: {meta[_FAILURE]}")
        return MotionKeys(torch.from_numpy(arrays["rotations"]), torch.from_numpy(arrays["root"])), meta

    def remove_unfinished(self) -> None:
        """Remove what a process left behind that was killed while it wrote."""
        for path in self.folder.glob("**/.*.tmp"):
            path.unlink(missing_ok=True)


def write_failure(path: Path, key: str, reason: str, trace: str = "") -> None:
    """Keep the reason why a file could not be made, so that it is tried again only when its key changes."""
    _write(path, key, "", {_FAILURE: reason, "traceback": trace}, {})


def read_failure(path: Path) -> str | None:
    """Return why a file could not be made; None if it was made, or not tried yet."""
    header = _read_header(path)
    return None if header is None else header[2].get(_FAILURE)


def has_key(path: Path, key: str) -> bool:
    """Whether a file is there, whole, and was made from this key."""
    header = _read_header(path)
    return header is not None and header[0] == key


def read_digest(path: Path) -> str:
    """Return the digest of a file's content; empty where it could not be made."""
    header = _read_header(path)
    return "" if header is None else header[1]


def body_arrays(character: Character) -> dict[str, Array]:
    """Return a body as a pack holds it."""
    return {**topology_to_arrays(character), **body_to_arrays(character)}


def content_digest(arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> str:
    """Return 16 hexadecimal digits over arrays with their names, and over what else matters."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _write(path: Path, key: str, digest: str, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        **{_KEY: np.array(key), _DIGEST: np.array(digest), _META: np.array(json.dumps(meta, sort_keys=True))},
        **arrays,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path.parent} cannot be made: {error.strerror}; choose another folder") from None
    write_atomically(path, buffer.getvalue())


def _read_header(path: Path) -> tuple[str, str, dict[str, Any]] | None:
    """Read key, digest and meta data; None where there is no whole file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return str(file[_KEY]), str(file[_DIGEST]), json.loads(str(file[_META]))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name not in (_KEY, _DIGEST, _META)}
        return json.loads(str(file[_META])), arrays
