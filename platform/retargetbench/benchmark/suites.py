"""Suites: runs that are written down in YAML and shipped, such as the tables of a paper."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from retargetbench.errors import FileFormatError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.resources.abc import Traversable

PACKAGE = "retargetbench_suites"


@dataclass(frozen=True)
class Suite:
    """A run that is known by name."""

    name: str
    summary: str
    """One line for listings."""
    settings: dict[str, Any]
    """Fields of `RunConfig` that it sets."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _is_options(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(label, str) and isinstance(options, dict) and all(isinstance(name, str) for name in options)
        for label, options in value.items()
    )


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_KEYS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "summary": ("a text", _is_text),
    "dataset": ("a text", _is_text),
    "methods": ("a list of texts", _is_texts),
    "options": ("a mapping from methods to their options", _is_options),
    "split": ("a text", _is_text),
    "split_name": ("a text", _is_text),
    "full": ("true or false", _is_flag),
    "metrics": ("a list of texts", _is_texts),
    "seed": ("a whole number from 0", _is_seed),
}
"""Key of a suite → what its value must be; all but ``summary`` are fields of `RunConfig`."""


def suite_names() -> tuple[str, ...]:
    """Return the names of all shipped suites, sorted."""
    return tuple(sorted(_shipped()))


def _shipped() -> dict[str, Traversable]:
    return {
        entry.name.removesuffix(".yaml"): entry for entry in files(PACKAGE).iterdir() if entry.name.endswith(".yaml")
    }


def load_suite(name: str) -> Suite:
    """Read a suite by its name, or by the path of a YAML file.

    Raises:
        UnknownNameError: there is no such suite, or it has a key that means nothing.
        FileFormatError: the file is no YAML mapping, or a value is of the wrong type.
    """
    shipped = _shipped()
    if name in shipped:
        return _parse(name, shipped[name].read_text(encoding="utf-8"), name)
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return _parse(path.stem, path.read_text(encoding="utf-8"), name)
    raise UnknownNameError("suite", name, shipped, note="The path of a YAML file works too")


def _parse(name: str, text: str, where: str) -> Suite:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FileFormatError(where, f"is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise FileFormatError(where, f"must be a mapping of {', '.join(_KEYS)}")
    for key, value in content.items():
        if key not in _KEYS:
            raise UnknownNameError(f"key of suite {where}", str(key), _KEYS)
        meaning, is_valid = _KEYS[key]
        if not is_valid(value):
            raise FileFormatError(where, f"{key} must be {meaning}, got {value!r}")
    settings = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items() if k != "summary"}
    return Suite(name, content.get("summary", ""), settings)
