"""What plugins register: light data only, so that listings need no torch. Classes are imported on first use."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from retargetbench.errors import PluginError, UnknownNameError

Direction = Literal["lower", "higher", "none"]
"""Which direction of a metric is better; ``none`` where neither is."""

_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "tuple[Column, ...]": (tuple,),
}
"""Annotation of a field → what its value must be; annotations are texts here."""


class _Checked:
    """Checks the fields of what a plugin registers, so that a wrong one is told at once and not at a run's end.

    Raises:
        PluginError: a value is of the wrong type, or a text has several lines.
    """

    def __post_init__(self) -> None:
        name = type(self).__name__
        for entry in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, entry.name)
            if not isinstance(value, _FIELD_TYPES.get(str(entry.type), object)):
                raise PluginError(f"{name}.{entry.name} must be {entry.type}, got {value!r}")
            if isinstance(value, str) and len(value.splitlines()) > 1:
                raise PluginError(f"{name}.{entry.name} must be one line, got {value!r}")


@dataclass(frozen=True)
class MethodInfo(_Checked):
    """A retargeting method."""

    name: str
    """Name on the command line."""
    summary: str
    """One line for listings."""
    target: str
    """Where the class is, ``"module:Class"``."""
    paper: str = ""
    """Title and venue, or empty."""
    year: int | None = None
    """Year of publication."""
    fidelity: str = ""
    """What is faithful to the paper and what is not, one line."""
    needs_training: bool = False
    """Whether the method needs a checkpoint."""
    uses_geometry: bool = False
    """Whether the method looks at the mesh."""
    checkpoint: str = ""
    """Default checkpoint, a path inside the plugin's package, or empty."""
    checkpoint_sha256: str = ""
    """Hash of the default checkpoint, or empty."""


COLUMN_PARTS = ("_low", "_high", "_n")
"""What is added to a column's name for the bounds of its interval and the number of its values."""


@dataclass(frozen=True)
class Column(_Checked):
    """One number per task that a metric gives: a column of the table.

    Raises:
        UnknownNameError: there is no such direction.
        PluginError: a field is of the wrong type, or the name ends as `COLUMN_PARTS`.
    """

    name: str
    """Name of the column: lower-case letters, digits, ``_`` and ``-``."""
    unit: str
    """SI unit, ``%`` or empty."""
    direction: Direction
    """Which direction is better: ``lower``, ``higher``, or ``none`` where neither is."""
    summary: str
    """What it measures, one line."""
    default: bool = True
    """Whether it is computed when no metrics are named; else only by name or with ``--metrics all``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction not in get_args(Direction):
            raise UnknownNameError(f"direction of column {self.name!r}", str(self.direction), get_args(Direction))
        if self.name.endswith(COLUMN_PARTS):
            raise PluginError(
                f"column {self.name!r} ends with {', '.join(COLUMN_PARTS[:-1])} or {COLUMN_PARTS[-1]}, which table.csv "
                f"and MLflow add to names for bounds and counts; choose another name"
            )


@dataclass(frozen=True)
class MetricInfo(_Checked):
    """A metric: a family of columns that are computed together."""

    name: str
    """Name of the family."""
    target: str
    """Where the class is, ``"module:Class"``."""
    columns: tuple[Column, ...]
    """The columns it gives."""
    version: str = "1"
    """Raise it whenever values change: scores are cached by it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for column in self.columns:
            if not isinstance(column, Column):
                raise PluginError(f"metric {self.name!r} has the column {column!r}; it takes objects of type Column")


@dataclass(frozen=True)
class DatasetInfo(_Checked):
    """A dataset that is known by name."""

    name: str
    """Name on the command line."""
    summary: str
    """One line for listings."""
    target: str
    """A function that opens it, ``"module:function"``."""
    licence: str = ""
    """Licence of the data, one line."""


@dataclass(frozen=True)
class FileFormatInfo(_Checked):
    """A file format that motions can be read from or written to."""

    suffix: str
    """File name suffix with the dot, lower case."""
    summary: str
    """One line for listings."""
    writer: str = ""
    """A function ``(path, character, motion) -> None``, ``"module:function"``, or empty."""
    reader: str = ""
    """A function ``(path) -> Clip or Motion source``, ``"module:function"``, or empty."""
    carries_mesh: bool = False
    """Whether the file holds the skinned mesh too."""


@dataclass(frozen=True)
class Registered:
    """Everything that plugins registered, by kind and name, with the plugin each came from."""

    methods: dict[str, MethodInfo] = field(default_factory=dict)
    metrics: dict[str, MetricInfo] = field(default_factory=dict)
    datasets: dict[str, DatasetInfo] = field(default_factory=dict)
    formats: dict[str, FileFormatInfo] = field(default_factory=dict)
    origin: dict[tuple[str, str], str] = field(default_factory=dict)
    """(kind, name) → name of the plugin."""


def load_target(target: str) -> Any:
    """Import what ``"module:attribute"`` names.

    Raises:
        PluginError: the text has no colon, or the module or attribute cannot be imported.
    """
    module_name, _, attribute = target.partition(":")
    if not attribute:
        raise PluginError(f"target {target!r} must look like 'module:Class'")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # whatever a plugin's module raises on import is that plugin's failure
        raise PluginError(f"cannot import {target!r}: {type(error).__name__}: {error}") from error
