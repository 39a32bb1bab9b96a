"""Files of a folder dataset: NumPy archives whose bytes depend on nothing but their content, and their index.

An archive is an uncompressed ``.npz`` without pickled objects, with fixed dates and little-endian numbers, so that
equal content gives equal bytes, hence equal hashes, on every machine and in every year.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from retargetbench.character import Character
from retargetbench.errors import CharacterError, DatasetError
from retargetbench.motion import Motion
from retargetbench.skeleton import Skeleton

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    Arrays = dict[str, np.ndarray[Any, Any]]

_FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that zip can say


@dataclass(frozen=True)
class IndexEntry:
    """One file of a dataset, a line of ``index.csv``."""

    path: str
    """Path within the dataset folder, with forward slashes."""
    kind: Literal["character", "clip", "split"]
    """What the file holds."""
    character: str = ""
    """Name of the character, of whom the clip is; empty for a split."""
    motion: str = ""
    """Name of the motion, or of the split; empty for a character."""
    joints: int = 0
    """Number of joints; 0 for a split."""
    vertices: int = 0
    """Number of vertices; 0 for clips and splits."""
    frames: int = 0
    """Number of frames; number of rows for a split; 0 for a character."""
    fps: float = 0.0
    """Frames a second; 0 for characters and splits."""
    size: int = 0
    """Size of the file, bytes."""
    sha256: str = ""
    """Hash of the file."""
    origin: str = ""
    """What the file was made from, one line for people."""


_COLUMNS = tuple(field.name for field in fields(IndexEntry))


def index_to_csv(entries: list[IndexEntry]) -> str:
    """Write the index as CSV text, sorted by path."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(astuple(entry) for entry in sorted(entries, key=lambda entry: entry.path))
    return text.getvalue()


def index_from_csv(text: str, path: str | PathLike[str]) -> tuple[IndexEntry, ...]:
    """Read the index of a dataset.

    Args:
        text: what `index_to_csv` writes.
        path: the index file, for messages.

    Raises:
        DatasetError: a column or cell is missing, or a number is none.
    """
    rows = csv.DictReader(io.StringIO(text))
    try:
        if tuple(rows.fieldnames or ()) != _COLUMNS:
            raise DatasetError(f"{path}: an index has the columns {','.join(_COLUMNS)}, got {rows.fieldnames}")
        return tuple(_entry(row) for row in rows)
    except (TypeError, ValueError, csv.Error) as error:
        raise DatasetError(f"{path}:{rows.line_num}: not a line of an index: {error}; import again") from None


def _entry(row: dict[str, Any]) -> IndexEntry:
    """Read one line of the index; a line with too few or too many cells has ``None`` as a value or as a key."""
    if None in row or row["kind"] not in ("character", "clip", "split"):
        raise ValueError(f"kind {row['kind']!r}")
    numbers = {name: int(row[name]) for name in ("joints", "vertices", "frames", "size")}
    return IndexEntry(**{**row, **numbers, "fps": float(row["fps"])})


def content_hash(entries: tuple[IndexEntry, ...] | list[IndexEntry], seen: Mapping[str, frozenset[str]]) -> str:
    """Return the hash of a dataset: 16 hexadecimal digits over all files and what counts as seen.

    Args:
        entries: all files.
        seen: ``characters`` and ``motions`` that may be trained on.
    """
    lines = [f"{entry.path}\t{entry.sha256}" for entry in entries]
    lines += [f"seen {kind}\t{name}" for kind, names in seen.items() for name in names]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def arrays_to_bytes(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Pack arrays into an ``.npz`` whose bytes depend on nothing but names, values and types."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", _FIXED_DATE)
            member.create_system = 3  # what zipfile writes here differs between systems
            data = io.BytesIO()
            little = array.astype(array.dtype.newbyteorder("<"))
            np.lib.format.write_array(data, np.asarray(little, order="C"), version=(1, 0), allow_pickle=False)
            archive.writestr(member, data.getvalue())
    return buffer.getvalue()


def arrays_from_bytes(data: bytes, path: str | PathLike[str]) -> Arrays:
    """Unpack an ``.npz``.

    Raises:
        DatasetError: the bytes are no such archive, or hold pickled objects.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # NumPy and zipfile raise more than a dozen types on broken bytes
        raise DatasetError(f"{path}: not a NumPy archive of this dataset ({error}); import the dataset again") from None


def character_to_bytes(character: Character) -> bytes:
    """Pack a character, float32; its name is that of its file."""
    skeleton = character.skeleton
    arrays: dict[str, Any] = {
        "names": np.array(skeleton.names),
        "parents": np.array(skeleton.parents, np.int32),
        "canonical": np.array(skeleton.canonical, np.int32),
        "offsets": _float32(skeleton.offsets),
        "bind_vertices": _float32(character.bind_vertices),
        "inverse_bind": _float32(character.inverse_bind),
        "faces": character.faces.cpu().numpy().astype(np.int32),
        "influence_joints": character.influence_joints.cpu().numpy().astype(np.int32),
        "influence_weights": _float32(character.influence_weights),
        "provenance": np.array(json.dumps(dict(character.provenance), sort_keys=True)),
    }
    return arrays_to_bytes(arrays)


def character_from_bytes(data: bytes, name: str, path: str | PathLike[str]) -> Character:
    """Unpack a character.

    Raises:
        DatasetError: an array is missing or wrong; the message names the file.
    """
    arrays = arrays_from_bytes(data, path)
    try:
        skeleton = Skeleton(
            tuple(arrays["names"].tolist()),
            tuple(arrays["parents"].tolist()),
            torch.from_numpy(arrays["offsets"]),
            tuple(arrays["canonical"].tolist()),
        )
        return Character(
            name=name,
            skeleton=skeleton,
            bind_vertices=torch.from_numpy(arrays["bind_vertices"]),
            inverse_bind=torch.from_numpy(arrays["inverse_bind"]),
            faces=torch.from_numpy(arrays["faces"]).long(),
            influence_joints=torch.from_numpy(arrays["influence_joints"]).long(),
            influence_weights=torch.from_numpy(arrays["influence_weights"]),
            provenance=json.loads(str(arrays["provenance"])),
        )
    except (KeyError, TypeError, ValueError, IndexError, CharacterError) as error:
        raise DatasetError(f"{path}: not a character of this dataset: {error}; import the dataset again") from None


def motion_to_bytes(motion: Motion) -> bytes:
    """Pack a motion, float32."""
    return arrays_to_bytes(
        {
            "root_translation": _float32(motion.root_translation),
            "local_rotations": _float32(motion.local_rotations),
            "fps": np.array(motion.fps, np.float64),
        }
    )


def motion_from_bytes(data: bytes, path: str | PathLike[str]) -> Motion:
    """Unpack a motion.

    Raises:
        DatasetError: an array is missing or wrong; the message names the file.
    """
    arrays = arrays_from_bytes(data, path)
    try:
        return Motion(
            torch.from_numpy(arrays["root_translation"]),
            torch.from_numpy(arrays["local_rotations"]),
            float(arrays["fps"]),
        )
    except (KeyError, TypeError, ValueError, CharacterError) as error:
        raise DatasetError(f"{path}: not a motion of this dataset: {error}; import the dataset again") from None


def _float32(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().cpu().numpy().astype(np.float32)
