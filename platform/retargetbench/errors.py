"""All errors a user can cause, as one small tree.

RetargetBenchError
├── UsageError            the command or call itself is wrong (exit code 2)
│   └── UnknownNameError  a name that nothing provides; offers close matches
├── FileFormatError       a file cannot be read as what it claims to be
├── CharacterError        a skeleton, motion or character is not valid or not humanoid
├── DatasetError          a dataset folder, split or row is inconsistent
├── PluginError           a plugin cannot be imported or registers something invalid
├── MethodOutputError     a method returned something that is not a motion of the target
├── MissingExtraError     an optional package is needed; names the extra to install
└── TrackingError         the MLflow server or store cannot be reached
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike


class RetargetBenchError(Exception):
    """Base of every error that RetargetBench raises on purpose; its message is one line for a person."""


class UsageError(RetargetBenchError):
    """The call itself is wrong: an option, a name or a combination that cannot work."""


class UnknownNameError(UsageError):
    """A name that nothing provides.

    Args:
        kind: what was looked for, such as "method".
        name: the name that was asked for.
        available: every name that would have worked.
        note: a further sentence for the end of the message.

    Example:
        >>> str(UnknownNameError("method", "cppy", ["copy", "san"]))
        "unknown method 'cppy'. Did you mean 'copy'? Available: copy, san"
    """

    def __init__(self, kind: str, name: str, available: Iterable[str], *, note: str = "") -> None:
        known = sorted(available)
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        end = f". {note}" if note else ""
        super().__init__(f"unknown {kind} {name!r}.{hint} Available: {', '.join(known) or 'none'}{end}")


class FileFormatError(RetargetBenchError):
    """A file cannot be read as what it claims to be.

    Args:
        path: the file.
        reason: what is wrong, with the value and what is accepted.
        line: the 1-based line of a text file, if known.
    """

    def __init__(self, path: str | PathLike[str], reason: str, *, line: int | None = None) -> None:
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {reason}")


class CharacterError(RetargetBenchError):
    """A skeleton, motion or character is not valid, or is not a humanoid we can use."""


class DatasetError(RetargetBenchError):
    """A dataset folder, split file or row is missing or inconsistent."""


class PluginError(RetargetBenchError):
    """A plugin cannot be imported, or registers something invalid."""


class MethodOutputError(RetargetBenchError):
    """A method returned something that is not a motion of the target."""


class MissingExtraError(RetargetBenchError):
    """An optional package is needed.

    Args:
        package: the package that could not be imported.
        extra: the extra of retargetbench that brings it.
        purpose: what it is needed for.
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}: install it with pip install 'retargetbench[{extra}]'"
        )


class TrackingError(RetargetBenchError):
    """The MLflow server or store cannot be reached."""
