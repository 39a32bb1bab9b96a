"""What plugins register: light data only, so that listings need no torch. Classes are imported on first use."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal

from retargetbench.errors import PluginError

Direction = Literal["lower", "higher", "none"]
"""Which direction of a metric is better; ``none`` where neither is."""


@dataclass(frozen=True)
class MethodInfo:
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


@dataclass(frozen=True)
class Column:
    """One number per task that a metric gives: a column of the table."""

    name: str
    """Name of the column; no ``+``, which MLflow does not allow."""
    unit: str
    """SI unit, ``%`` or empty."""
    direction: Direction
    """Which direction is better."""
    summary: str
    """What it measures, one line."""
    default: bool = True
    """Whether it is computed when no metrics are named; else only by name or with ``--metrics all``."""


@dataclass(frozen=True)
class MetricInfo:
    """A metric: a family of columns that are computed together."""

    name: str
    """Name of the family."""
    target: str
    """Where the class is, ``"module:Class"``."""
    columns: tuple[Column, ...]
    """The columns it gives."""
    version: str = "1"
    """Raise it whenever values change: scores are cached by it."""


@dataclass(frozen=True)
class DatasetInfo:
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
class FileFormatInfo:
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
    except Exception as error:  # whatever a plugin's module raises on import is that plugin's failure
        raise PluginError(f"cannot import {target!r}: {type(error).__name__}: {error}") from error
