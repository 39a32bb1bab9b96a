"""Plugins by name: the catalogue of what is installed, and what is made from it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from retargetbench.discovery import DISABLE_VARIABLE, Catalogue, PluginInfo, load_catalogue, one_line
from retargetbench.errors import PluginError, RetargetBenchError, UnknownNameError, UsageError
from retargetbench.hookspecs import GROUP
from retargetbench.registry import load_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from retargetbench.builtin import Kind
    from retargetbench.methods import RetargetMethod
    from retargetbench.metrics.base import Metric
    from retargetbench.registry import MethodInfo, MetricInfo

__all__ = [
    "DISABLE_VARIABLE",
    "Catalogue",
    "PluginInfo",
    "catalogue",
    "code_digest",
    "create_method",
    "create_metric",
    "method_key",
]

T = TypeVar("T")


@cache
def catalogue() -> Catalogue:
    """Load all plugins, once per process; ``catalogue.cache_clear()`` forgets them, for tests."""
    disabled = {name.strip() for name in os.environ.get(DISABLE_VARIABLE, "").split(",")}
    return load_catalogue(entry_points(group=GROUP), frozenset(disabled))


def create_method(
    name: str, *, device: torch.device | str = "cpu", options: Mapping[str, object] | None = None
) -> RetargetMethod:
    """Import a method and make it.

    Args:
        name: name of the method.
        device: where it is to work.
        options: its options; texts are turned into the types that the method declares.

    Raises:
        UnknownNameError: there is no such method or option.
        UsageError: the value of an option is not accepted.
        PluginError: the method cannot be imported or made; the message names the plugin.
    """
    from retargetbench.methods import RetargetMethod

    method_class: type[RetargetMethod] = _load(catalogue(), "method", catalogue().method(name), RetargetMethod)
    for option in options or {}:
        if option not in method_class.options:
            raise UnknownNameError(f"option of method {name!r}", option, method_class.options)
    typed = {option: _typed(method_class, option, value) for option, value in (options or {}).items()}
    return _make(catalogue(), "method", name, lambda: method_class(device=device, **typed))


def create_metric(info: MetricInfo) -> Metric:
    """Import a metric and make it.

    Raises:
        PluginError: the metric cannot be imported or made; the message names the plugin.
    """
    from retargetbench.metrics.base import Metric

    metric_class: type[Metric] = _load(catalogue(), "metric", info, Metric)
    return _make(catalogue(), "metric", info.name, metric_class)


def method_key(info: MethodInfo, method: RetargetMethod) -> str:
    """Return what predictions are cached by: 16 hexadecimal digits of name, version, options, checkpoint and code.

    Args:
        info: how the method is registered.
        method: the method, whose ``config`` holds the options in force.
    """
    content = {
        "name": info.name,
        "version": method.version,
        "options": dict(sorted(method.config.items())),
        "checkpoint": info.checkpoint_sha256,
        "code": code_digest(type(method)),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def code_digest(plugin_class: type) -> str:
    """Return a hash of the Python files of the package that a class is from, 16 hexadecimal digits.

    Results are cached by it beside the declared version, so that whoever works on a method does not look at results
    of yesterday's code. What the package imports from others is not in it.
    """
    return _digest_of_package(plugin_class.__module__.partition(".")[0])


@cache
def _digest_of_package(package: str) -> str:
    module = sys.modules[package]
    folders = [Path(folder) for folder in getattr(module, "__path__", [])]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    if not folders and module.__file__ is not None:
        files = [Path(module.__file__)]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _load(known: Catalogue, kind: Kind, info: MethodInfo | MetricInfo, base: type) -> type:
    """Import a registered class and check what it is."""
    origin = known.origin(kind, info.name).origin
    try:
        loaded = load_target(info.target)
    except PluginError as error:
        raise PluginError(f"{kind} {info.name!r} of plugin {origin}: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PluginError(f"{kind} {info.name!r} of plugin {origin}: {info.target} is no subclass of {base.__name__}")
    return loaded


def _make(known: Catalogue, kind: Kind, name: str, factory: Callable[[], T]) -> T:
    """Call what a plugin gave us and name the plugin if that fails."""
    try:
        return factory()
    except RetargetBenchError:
        raise
    except (Exception, SystemExit) as error:  # whatever a plugin raises is that plugin's failure
        raise PluginError(
            f"{kind} {name!r} of plugin {known.origin(kind, name).origin} cannot be made: {one_line(error)}"
        ) from error


def _typed(method_class: type[RetargetMethod], option: str, value: object) -> object:
    """Turn the text of an option into the type that the method declares; `RetargetMethod` checks the rest."""
    wanted = method_class.options[option]
    if not isinstance(value, str) or isinstance(wanted, tuple) or wanted is str:
        return value
    try:
        if wanted is bool:
            return {"true": True, "false": False}[value.lower()]
        return wanted(value)
    except (KeyError, ValueError):
        accepted = "true or false" if wanted is bool else f"a value of type {wanted.__name__}"
        raise UsageError(f"option {option}={value!r} of {method_class.__name__} must be {accepted}") from None
