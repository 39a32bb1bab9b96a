"""Writes a new plugin: a package with a method that works, its tests, and a README."""

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
from typing import TYPE_CHECKING

from retargetbench.builtin import RESERVED
from retargetbench.errors import UsageError
from retargetbench.plugins import catalogue

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def write_plugin(name: str, folder: Path) -> Path:
    """Write the package ``retargetbench-NAME`` into a folder, whole or not at all.

    Args:
        name: name of the plugin, and of the method in it; the Python package is ``retargetbench_NAME``.
        folder: where to put it; made if it does not exist.

    Returns:
        The new folder.

    Raises:
        UsageError: the name is not usable or taken, the package exists, or the folder cannot be written.
    """
    check_name(name)
    target = folder / f"retargetbench-{name.replace('_', '-')}"
    if target.exists():
        raise UsageError(f"{target} exists already; choose another name or --dir, or remove it")
    values = {
        "name": name,
        "package": f"retargetbench_{name}",
        "distribution": target.name,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "version": version("retargetbench"),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=folder))
        try:
            _fill(files("retargetbench") / "templates" / "plugin", partial, values)
            partial.chmod(0o755)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}; choose another --dir") from error
    return target


def check_name(name: str) -> None:
    """Raise `UsageError` unless a new plugin and its method can have this name."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(
            f"plugin name {name!r} must be a Python identifier in lower case: letters, digits and single underscores "
            f"between them, a letter first, no keyword; for example my_method"
        )
    known = catalogue()
    taken = {
        "plugin": {info.name for info in known.plugins},
        "method": {
            method for kind, method in (*known.registered.origin, *known.conflicts, *RESERVED) if kind == "method"
        },
    }
    for kind, names in taken.items():
        if name in names:
            raise UsageError(f"there is a {kind} {name!r} already; choose another name")
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
