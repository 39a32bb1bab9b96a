"""Tiny distributions with plugins, made in a temporary folder and put on the import path."""

from __future__ import annotations

import itertools
import sys
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING

from retargetbench.plugins import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

_numbers = itertools.count()

HEADER = """
from retargetbench import Column, DatasetInfo, FileFormatInfo, MethodInfo, MetricInfo, hookimpl
"""

GOOD_METHOD = """
@hookimpl
def register_methods(register):
    register(MethodInfo({name!r}, "a method", "{module}:Method"))
"""


class PluginFolder:
    """A folder on the import path that distributions are installed into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.modules: list[str] = []

    def add(self, plugin: str, source: str, *, distribution: str | None = None, version: str = "1.0") -> str:
        """Install a distribution with one plugin and return the name of its module.

        ``{module}`` in the source becomes the name of the module; the imports of a plugin stand above it.
        """
        module = f"fake_plugin_{next(_numbers)}"
        self.modules.append(module)
        text = HEADER + textwrap.dedent(source).replace("{module}", module)
        (self.path / f"{module}.py").write_text(text)
        distribution = distribution or f"{plugin}-dist"
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[retargetbench]\n{plugin} = {module}\n")
        catalogue.cache_clear()
        return module

    def add_method(self, plugin: str, method: str, **distribution: str) -> str:
        """Install a distribution whose plugin registers one method."""
        return self.add(plugin, GOOD_METHOD.replace("{name!r}", repr(method)), **distribution)


@contextmanager
def plugin_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginFolder]:
    """Put a folder for distributions on the import path; afterwards everything is forgotten."""
    monkeypatch.syspath_prepend(path)
    folder = PluginFolder(path)
    catalogue.cache_clear()
    yield folder
    for module in folder.modules:
        sys.modules.pop(module, None)
    catalogue.cache_clear()
