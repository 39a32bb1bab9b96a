"""Arrays out of an ``.npz`` archive from an unknown sender: never a pickle, no memory before the sizes are checked."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from retargetbench.errors import FileFormatError
from retargetbench.formats._files import read_limited, shown

if TYPE_CHECKING:
    from os import PathLike

MAX_FILE_BYTES = 128 << 20
_MAX_MEMBERS = 1000
_MAX_MEMBER_BYTES = 128 << 20
_MAX_HEADER_BYTES = 4096

# The one spelling that NumPy and its C++ cousins write. Matching it instead of evaluating a Python literal leaves a
# damaged header nothing to do; structured and object dtypes (pickles) do not match.
_HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[<>|](?:f[248]|[iu][1248]|U[1-9]\d{0,3}))', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,12}, ?)*(?:\d{1,12})?)\), \}\s*"
)

# What the standard library raises on damaged archives.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    UnicodeError,
    ValueError,
    OSError,
)


class NpzArrays:
    """The members of an ``.npz`` file, read one by one on demand.

    Raises:
        FileFormatError: the file cannot be opened, is too large or is no zip archive.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = path
        data = read_limited(path, MAX_FILE_BYTES)
        # Counted in the raw bytes: zipfile needs about 10 µs for each entry that a directory claims to have.
        if data.count(b"PK\x01\x02") > _MAX_MEMBERS:
            self.fail(f"holds more than {_MAX_MEMBERS} arrays; this is no shape file")
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except _DAMAGE as error:
            self.fail(f"is no readable .npz archive: {error}")
        self._members = {info.filename.removesuffix(".npy"): info for info in self._archive.infolist()}

    def fail(self, reason: str) -> NoReturn:
        raise FileFormatError(self.path, " ".join(reason.split()))

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def read(self, key: str, kinds: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
        """Return an array after checking what its header claims.

        Args:
            key: name of the array.
            kinds: accepted kinds of dtype, letters as in ``numpy.dtype.kind``.
            shape: accepted shape; None stands for any length from 1 on.

        Raises:
            FileFormatError: the array is absent, damaged, of another dtype or shape, or its size does not fit.
        """
        if key not in self._members:
            self.fail(
                f"has no array {key!r}; present are {', '.join(map(ascii, sorted(self._members)[:20])) or 'none'}"
            )
        info = self._members[key]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            self.fail(f"array {key!r} is compressed by method {info.compress_type}; accepted are those of NumPy")
        try:
            with self._archive.open(info) as stream:
                magic = stream.read(8)
                if magic[:6] != b"\x93NUMPY" or magic[6:] not in (b"\x01\x00", b"\x02\x00"):
                    self.fail(f"array {key!r} does not begin as a .npy file of version 1 or 2, but with {shown(magic)}")
                length_bytes = stream.read(2 if magic[6] == 1 else 4)
                length = int.from_bytes(length_bytes, "little")
                header = stream.read(min(length, _MAX_HEADER_BYTES))
                dtype, order, found = self._check_header(key, header, kinds, shape)
                data_bytes = dtype.itemsize * int(np.prod(found, dtype=object))
                room = info.file_size - len(magic) - len(length_bytes) - length
                if data_bytes != room or data_bytes > _MAX_MEMBER_BYTES:
                    self.fail(
                        f"array {key!r} claims shape {found} of {dtype}, {data_bytes} bytes, and has {room}; "
                        f"accepted are whole arrays of up to {_MAX_MEMBER_BYTES >> 20} MiB"
                    )
                data = stream.read(data_bytes)
        except _DAMAGE as error:
            self.fail(f"array {key!r} is damaged: {error}")
        if len(data) != data_bytes:
            self.fail(f"array {key!r} ends after {len(data)} of {data_bytes} bytes")
        return np.frombuffer(data, dtype).reshape(found, order=order)

    def _check_header(
        self, key: str, header: bytes, kinds: str, wanted: tuple[int | None, ...]
    ) -> tuple[np.dtype[Any], Any, tuple[int, ...]]:
        match = _HEADER.fullmatch(header)
        if match is None:
            self.fail(f"array {key!r} has a header that no plain number or text array has: {shown(header, 80)}")
        dtype = np.dtype(match["dtype"].decode())
        shape = tuple(int(length) for length in re.findall(rb"\d+", match["shape"]))
        fits = len(shape) == len(wanted) and all(
            (length == limit) if limit is not None else length > 0 for length, limit in zip(shape, wanted, strict=True)
        )
        if dtype.kind not in kinds or not fits:
            lengths = ", ".join("any" if limit is None else str(limit) for limit in wanted)
            self.fail(f"array {key!r} must have shape ({lengths}) and a dtype of kind {kinds!r}, got {shape} {dtype}")
        return dtype, "F" if match["fortran"] == b"True" else "C", shape
