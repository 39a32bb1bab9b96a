"""What ``bench list … NAME`` says about one thing: its registration, and the docstring of what it names.

Only here a listing imports what is registered, and with it torch.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import TYPE_CHECKING, Any

from retargetbench.errors import PluginError, UnknownNameError
from retargetbench.plugins import catalogue
from retargetbench.registry import load_target

if TYPE_CHECKING:
    from retargetbench.builtin import Kind

Details = dict[str, Any]


def describe_method(name: str) -> Details:
    """Return the registration of a method, its options and version, and what its class says about itself.

    Raises:
        UnknownNameError: there is none of this name.
        UsageError: two plugins provide it.
    """
    info = catalogue().method(name)
    details = dataclasses.asdict(info) | _origin("method", name)
    method_class, error = _load(info.target)
    options = getattr(method_class, "options", {})
    return details | {
        "version": getattr(method_class, "version", ""),
        "options": {option: _accepted(values) for option, values in options.items()},
        "error": error,
        "documentation": _docstring(method_class),
    }


def describe_metric(name: str) -> Details:
    """Return a column of the table, or a metric with all its columns, and what the metric's class says about itself.

    A name that is both means the column, as for ``--metrics``.

    Raises:
        UnknownNameError: there is neither.
        UsageError: two plugins provide it.
    """
    known = catalogue()
    metrics = known.registered.metrics
    columns = {column.name: (info, column) for info in metrics.values() for column in info.columns}
    details: Details
    if name in columns:
        info, column = columns[name]
        others = [other.name for other in info.columns if other != column]
        details = dataclasses.asdict(column) | {"metric": info.name, "columns_beside_it": others}
        details |= _origin("column", name)
    elif name in metrics:
        info = metrics[name]
        details = {"name": name, "columns": [column.name for column in info.columns]} | _origin("metric", name)
    else:
        if ("column", name) in known.conflicts:
            known.column(name)  # says which plugins provide it
        raise UnknownNameError("metric or column", name, {*metrics, *columns})
    metric_class, error = _load(info.target)
    return details | {
        "version": info.version,
        "target": info.target,
        "error": error,
        "documentation": _docstring(metric_class),
    }


def describe_dataset(name: str) -> Details:
    """Return the registration of a dataset, and what the module that opens it says.

    Raises:
        UnknownNameError: there is none of this name.
        UsageError: two plugins provide it.
    """
    info = catalogue().dataset(name)
    opener, error = _load(info.target)
    module = sys.modules.get(getattr(opener, "__module__", ""))
    return (
        dataclasses.asdict(info)
        | _origin("dataset", name)
        | {
            "contents": f"see bench data show {name}",
            "error": error,
            "documentation": _docstring(opener if module is None else module),
        }
    )


def render_details(details: Details) -> str:
    """Return details for people: a line for each that says something, then the documentation."""
    fields = {key.replace("_", " "): _text(value) for key, value in details.items() if key != "documentation"}
    shown = {key: text for key, text in fields.items() if text}
    size = max(map(len, shown))
    lines = [f"{key:<{size}}  {text}" for key, text in shown.items()]
    documentation = details.get("documentation")
    return "\n".join([*lines, "", documentation] if documentation else lines)


def _load(target: str) -> tuple[object, str]:
    """Import what a registration names; where that fails, return None and the reason."""
    try:
        return load_target(target), ""
    except PluginError as error:
        return None, str(error)


def _docstring(thing: object) -> str:
    return "" if thing is None else inspect.getdoc(thing) or ""


def _origin(kind: Kind, name: str) -> Details:
    plugin = catalogue().origin(kind, name)
    return {"plugin": plugin.name, "distribution": plugin.distribution, "plugin_version": plugin.version}


def _accepted(values: object) -> str:
    """Say which values an option takes."""
    if isinstance(values, tuple):
        return " | ".join(map(str, values))
    return getattr(values, "__name__", str(values))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
