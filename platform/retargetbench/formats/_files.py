"""Reading whole files within a size limit, writing them atomically, and quoting their content in messages."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from retargetbench.errors import FileFormatError, UsageError

if TYPE_CHECKING:
    from os import PathLike


def read_limited(path: str | PathLike[str], max_bytes: int) -> bytes:
    """Return the content of a file of at most ``max_bytes``.

    Raises:
        FileFormatError: the file cannot be opened, or is larger.
    """
    try:
        # A pipe would keep us waiting for whoever writes into it.
        if not (stat.S_ISREG(os.stat(path).st_mode) or os.path.isdir(path)):
            raise FileFormatError(path, "is no regular file; copy its content into one")
        with open(path, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise FileFormatError(path, f"cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise FileFormatError(path, f"is larger than the {max_bytes >> 20} MiB that are accepted; cut it into clips")
    return data


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write a file so that it has either its old or its whole new content at any time.

    Raises:
        UsageError: the file cannot be written there.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}; choose a folder that exists") from None
    finally:
        temporary.unlink(missing_ok=True)


def shown(value: bytes, limit: int = 40) -> str:
    """Return file content quoted for a one-line message, shortened to ``limit`` bytes.

    Example:
        >>> shown(b"OFFSET"), shown(b"0123456789", limit=4)
        ("'OFFSET'", "'0123'...")
    """
    text = ascii(value[:limit].decode("latin-1"))
    return f"{text}..." if len(value) > limit else text
