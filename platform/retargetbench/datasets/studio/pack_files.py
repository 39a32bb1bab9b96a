"""Files of a pack: named blocks of arrays in deflated zip archives, whose content does not depend on when or where.

A *block* is what is read at once, a set of arrays such as the surface of one body; a *shard* is a file of many blocks.
The hash of a block is that of its content before compression, so that another version of zlib gives equal hashes.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from retargetbench.datasets.folder_files import arrays_from_bytes, arrays_to_bytes
from retargetbench.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    Arrays = dict[str, np.ndarray[Any, Any]]

NEXT_STEP = "install retargetbench again, or make the dataset anew with bench data build studio"
"""What to do about a pack that is damaged, for messages."""

_FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that zip can say
_LEVEL = 9  # half a second more for the whole dataset than the default, and it is written once


def differences(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rearrange whole numbers so that smooth ones deflate well: differences, signs last, bytes by significance.

    Args:
        values: signed or unsigned, (N, ...); differences are taken along N, and wrap around.

    Returns:
        (bytes of a number, values in all), uint8.
    """
    width = values.dtype.itemsize
    signed = np.dtype(f"<i{width}")
    rows = np.ascontiguousarray(values.reshape(len(values), -1).T).astype(values.dtype.newbyteorder("<")).view(signed)
    steps = np.diff(rows, axis=1, prepend=signed.type(0))
    zigzag = (steps << 1) ^ (steps >> (8 * width - 1))  # 0, -1, 1, -2, 2 … become 0, 1, 2, 3, 4 …
    return np.ascontiguousarray(zigzag.reshape(-1).view(np.uint8).reshape(-1, width).T)


def from_differences(packed: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Undo `differences`.

    Args:
        packed: what it returned.
        shape: of the values, (N, ...).
        dtype: of the values, such as ``int16``.

    Raises:
        ValueError: there are more or fewer bytes than such values have.
    """
    kind = np.dtype(dtype)
    unsigned = np.dtype(f"<u{kind.itemsize}")
    if packed.shape != (kind.itemsize, int(np.prod(shape))):
        raise ValueError(f"{packed.shape} bytes are not {dtype} {shape}")
    zigzag = np.ascontiguousarray(packed.T).view(unsigned).reshape(int(np.prod(shape[1:])), shape[0])
    steps = (zigzag >> 1) ^ (~(zigzag & 1) + unsigned.type(1))
    rows = np.cumsum(steps, axis=1, dtype=unsigned)
    return np.ascontiguousarray(rows.T).view(kind.newbyteorder("<")).reshape(shape).astype(kind)


def block_to_bytes(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Pack the arrays of a block, ordered by name."""
    return arrays_to_bytes({name: arrays[name] for name in sorted(arrays)})


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def write_shards(folder: Path, blocks: Iterable[tuple[str, bytes]], shard_bytes: int) -> dict[str, tuple[str, str]]:
    """Write blocks into shards in the given order.

    Args:
        folder: that there is; shards are called ``shard_00.zip`` and so on.
        blocks: name and content of each.
        shard_bytes: size that a shard does not exceed unless a single block does.

    Returns:
        For each block its shard and the SHA-256 of its content.
    """
    places: dict[str, tuple[str, str]] = {}
    members: list[tuple[str, bytes]] = []
    size = count = 0
    for name, data in blocks:
        weight = len(zlib.compress(data, _LEVEL)) + 2 * len(name) + 128  # entries of the archive around it
        if members and size + weight > shard_bytes:
            _write_shard(folder / f"shard_{count:02d}.zip", members)
            members, size, count = [], 0, count + 1
        members.append((name, data))
        size += weight
        places[name] = (f"shard_{count:02d}.zip", sha256(data))
    _write_shard(folder / f"shard_{count:02d}.zip", members)
    return places


def _write_shard(path: Path, members: list[tuple[str, bytes]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name, data in members:
            member = zipfile.ZipInfo(f"{name}.npz", _FIXED_DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3  # what zipfile writes here differs between systems
            archive.writestr(member, data)


def read_block(shard: Path, name: str, digest: str) -> Arrays:
    """Read one block.

    Args:
        shard: the file.
        name: of the block.
        digest: SHA-256 that its content must have.

    Raises:
        DatasetError: the shard is missing, or it or the block is damaged.
    """
    try:
        with zipfile.ZipFile(shard) as archive:
            data = archive.read(f"{name}.npz")
    except OSError as error:
        raise DatasetError(f"{shard} cannot be read ({error.strerror or error}); {NEXT_STEP}") from None
    except Exception as error:  # zipfile and zlib raise half a dozen types on broken bytes
        reason = str(error).strip("'\"")
        raise DatasetError(f"{shard} is damaged ({reason}); {NEXT_STEP}") from None
    if sha256(data) != digest:
        raise DatasetError(f"{shard} is damaged: its block {name} is another than the manifest says; {NEXT_STEP}")
    return arrays_from_bytes(data, f"{shard}, block {name}")


def read_file(path: Path, digest: str) -> bytes:
    """Read a whole file of a pack and compare it with its SHA-256.

    Raises:
        DatasetError: the file is missing, cannot be read, or was changed.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); {NEXT_STEP}") from None
    if sha256(data) != digest:
        raise DatasetError(f"{path} is damaged or was changed: its SHA-256 is not that of the manifest; {NEXT_STEP}")
    return data
