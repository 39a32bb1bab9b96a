"""Writes a new plugin: a package with a method, metric or dataset that works, its tests, and a README."""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Literal

from retargetbench.builtin import RESERVED
from retargetbench.errors import UsageError
from retargetbench.plugins import catalogue

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PluginKind = Literal["method", "metric", "dataset"]
"""What a new plugin brings."""

_DESCRIPTIONS: dict[PluginKind, str] = {"method": "retargeting method", "metric": "metric", "dataset": "dataset"}
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def write_plugin(name: str, folder: Path, kind: PluginKind = "method") -> Path:
    """Write the package ``retargetbench-NAME`` into a folder, whole or not at all.

    Args:
        name: name of the plugin, and of what is in it; the Python package is ``retargetbench_NAME``.
        folder: where to put it; made if it does not exist.
        kind: what is in it.

    Returns:
        The new folder.

    Raises:
        UsageError: the name is not usable or taken, the package exists, or the folder cannot be written.
    """
    check_name(name, kind)
    target = folder / f"retargetbench-{name.replace('_', '-')}"
    if target.exists():
        raise UsageError(f"{target} exists already; choose another name or --dir, or remove it")
    values = {
        "name": name,
        "package": f"retargetbench_{name}",
        "distribution": target.name,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "version": version("retargetbench"),
        "description": _DESCRIPTIONS[kind],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=folder))
        try:
            for template in ("common", kind):
                _fill(files("retargetbench") / "templates" / template, partial, values)
            partial.chmod(0o755)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}; choose another --dir") from error
    return target


def check_name(name: str, kind: PluginKind = "method") -> None:
    """Raise `UsageError` unless a new plugin and what it brings can have this name."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(
            f"plugin name {name!r} must be a Python identifier in lower case: letters, digits and single underscores "
            f"between them, a letter first, no keyword; for example my_method"
        )
    known = catalogue()
    if name in {info.name for info in known.plugins}:
        raise UsageError(f"there is a plugin {name!r} already; choose another name")
    for wanted in ("metric", "column") if kind == "metric" else (kind,):
        if (wanted, name) in {*known.registered.origin, *known.conflicts, *RESERVED}:
            raise UsageError(f"there is a {wanted} {name!r} already; choose another name")
    if find_spec(f"retargetbench_{name}") is not None:
        raise UsageError(f"a package retargetbench_{name} is installed already; choose another name")


def _fill(template: Traversable, target: Path, values: dict[str, str]) -> None:
    """Copy a folder of templates, with ``$name`` and the like filled in; in file names, ``__name__`` is."""
    for entry in template.iterdir():
        filename = entry.name.removesuffix(".tmpl")
        for key, value in values.items():
            filename = filename.replace(f"__{key}__", value)
        if entry.is_dir():
            (target / filename).mkdir()
            _fill(entry, target / filename, values)
        else:
            (target / filename).write_text(Template(entry.read_text("utf-8")).substitute(values), "utf-8")
