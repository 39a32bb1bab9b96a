"""The hooks of a plugin.

A plugin is a module that an installed distribution names in the entry-point group ``retargetbench``. It imports
`hookimpl` and marks one function for each hook it wants. Hooks only *register* light data; what the data points to is
imported when it is first used, so a plugin's top module must not import torch.

Example:
    A plugin with one method::

        from retargetbench import MethodInfo, hookimpl

        @hookimpl
        def register_methods(register):
            register(MethodInfo("mine", "one line for listings", "my_package.method:MyMethod"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

    from retargetbench.registry import DatasetInfo, FileFormatInfo, MethodInfo, MetricInfo

GROUP = "retargetbench"
"""Entry-point group of plugins, and project name of their hooks."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)
"""Marks a plugin's function as the implementation of the hook of the same name."""


@hookspec
def register_methods(register: Callable[[MethodInfo], None]) -> None:
    """Register retargeting methods. Called once, when names are first looked up.

    Args:
        register: takes one `MethodInfo`; its target is a subclass of `RetargetMethod`.
    """


@hookspec
def register_metrics(register: Callable[[MetricInfo], None]) -> None:
    """Register metrics. Called once, when names are first looked up.

    Args:
        register: takes one `MetricInfo`; its target is a subclass of `Metric`. Column names are unique over all
            plugins, because each is a column of the table.
    """


@hookspec
def register_datasets(register: Callable[[DatasetInfo], None]) -> None:
    """Register datasets that are known by name. Called once, when names are first looked up.

    Args:
        register: takes one `DatasetInfo`; its target is a function without arguments that returns a `Dataset`.
    """


@hookspec
def register_file_formats(register: Callable[[FileFormatInfo], None]) -> None:
    """Register file formats by their suffix. Called once, when names are first looked up.

    Args:
        register: takes one `FileFormatInfo`.
    """


@hookspec
def register_commands(app: typer.Typer) -> None:
    """Add commands to ``bench``. Called once, whenever ``bench`` starts, so it must stay light.

    Args:
        app: an empty application of this plugin alone; what is added to it appears beside ``bench``'s own commands.
            A command or group may not have the name of one that ``bench`` has.
    """
