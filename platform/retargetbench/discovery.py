"""Discovery of plugins, and the catalogue of everything they register.

The core registers through the same hooks as everybody else, as the plugin ``core``. A plugin counts as a whole or not
at all: if it raises on import, misspells a hook or registers something invalid, it is listed as broken with the
reason and nothing it registered is used. If two plugins provide one name, neither does: listings show it, and using
it is an error that names both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pluggy

from retargetbench import builtin, hookspecs
from retargetbench.builtin import RESERVED, Kind
from retargetbench.errors import PluginError, RetargetBenchError, UnknownNameError, UsageError
from retargetbench.hookspecs import GROUP
from retargetbench.registry import Column, DatasetInfo, FileFormatInfo, MethodInfo, MetricInfo, Registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from importlib.metadata import EntryPoint

CORE = "core"
"""Name of the plugin that the core itself is."""

DISABLE_VARIABLE = "RETARGETBENCH_DISABLE_PLUGINS"
"""Environment variable with names of plugins, separated by commas, that are not to be loaded."""

Info = MethodInfo | MetricInfo | DatasetInfo | FileFormatInfo
Key = tuple[Kind, str]
T = TypeVar("T")

_HOOKS: dict[str, type[Info]] = {
    "register_methods": MethodInfo,
    "register_metrics": MetricInfo,
    "register_datasets": DatasetInfo,
    "register_file_formats": FileFormatInfo,
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")  # becomes a folder name and the left side of --set name.option=value
_LONGEST_REASON = 400  # characters
_SUFFIX = re.compile(r"\.[a-z0-9]+")


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin, working or not."""

    name: str
    """Name of the entry point."""
    module: str
    """Value of the entry point: where the hooks are."""
    distribution: str
    """Distribution that installed it; two of them, separated by commas, where both claim one name."""
    version: str
    """Version of the distribution."""
    state: Literal["ok", "broken", "disabled"] = "ok"
    """Whether it is used."""
    hooks: tuple[str, ...] = ()
    """Hooks it implements, sorted."""
    error: str = ""
    """One line that says why it is not used, or empty."""

    @property
    def origin(self) -> str:
        """Name, distribution and version, for messages."""
        return f"{self.name} ({self.distribution} {self.version})"


@dataclass(frozen=True)
class Catalogue:
    """Everything that can be asked for by name."""

    plugins: tuple[PluginInfo, ...]
    """All installed plugins, the core first, the others by name."""
    registered: Registered
    """What the working plugins registered under names that are theirs alone."""
    commands: Mapping[str, Any]
    """Commands of plugins for the command line, by name."""
    conflicts: Mapping[Key, tuple[str, ...]]
    """(kind, name) that several plugins provide → those plugins."""

    def plugin(self, name: str) -> PluginInfo:
        """Return an installed plugin.

        Raises:
            UnknownNameError: there is none of this name.
        """
        for info in self.plugins:
            if info.name == name:
                return info
        raise UnknownNameError("plugin", name, [info.name for info in self.plugins])

    def method(self, name: str) -> MethodInfo:
        """Return the method of this name.

        Raises:
            UnknownNameError: there is none.
            UsageError: two plugins provide it.
        """
        return self._find("method", self.registered.methods, name)

    def dataset(self, name: str) -> DatasetInfo:
        """Return the dataset of this name.

        Raises:
            UnknownNameError: there is none.
            UsageError: two plugins provide it.
        """
        return self._find("dataset", self.registered.datasets, name)

    def file_format(self, suffix: str) -> FileFormatInfo:
        """Return the file format of this suffix, such as ``.bvh``.

        Raises:
            UnknownNameError: there is none.
            UsageError: two plugins provide it.
        """
        return self._find("format", self.registered.formats, suffix)

    def column(self, name: str) -> tuple[MetricInfo, Column]:
        """Return a column of the table and the metric that gives it.

        Raises:
            UnknownNameError: there is none.
            UsageError: two plugins provide it.
        """
        columns = {c.name: (info, c) for info in self.registered.metrics.values() for c in info.columns}
        return self._find("column", columns, name)

    def metric(self, name: str) -> MetricInfo:
        """Return the metric, a family of columns, of this name.

        Raises:
            UnknownNameError: there is none.
            UsageError: two plugins provide it.
        """
        return self._find("metric", self.registered.metrics, name)

    def select_metrics(self, wanted: Iterable[str] = ("default",)) -> dict[str, frozenset[str]]:
        """Choose columns.

        Args:
            wanted: names of columns or of metrics (then all their default columns), ``default``, or ``all``. A name
                that is both, such as ``penetration``, means the column.

        Returns:
            Name of each metric that is needed → its wanted columns.

        Raises:
            UnknownNameError: a name is neither.
            UsageError: two plugins provide it.
        """
        metrics = self.registered.metrics
        columns_known = {column.name for info in metrics.values() for column in info.columns}
        chosen: dict[str, set[str]] = {}
        for name in wanted:
            if name in ("default", "all"):
                for info in metrics.values():
                    columns = {c.name for c in info.columns if c.default or name == "all"}
                    chosen.setdefault(info.name, set()).update(columns)
            elif name not in columns_known and (name in metrics or ("metric", name) in self.conflicts):
                info = self._find("metric", metrics, name)
                columns = {c.name for c in info.columns if c.default} or {c.name for c in info.columns}
                chosen.setdefault(info.name, set()).update(columns)
            else:
                info, column = self.column(name)
                chosen.setdefault(info.name, set()).add(column.name)
        return {name: frozenset(chosen[name]) for name in metrics if chosen.get(name)}

    def origin(self, kind: Kind, name: str) -> PluginInfo:
        """Return the plugin that registered something."""
        return self.plugin(self.registered.origin[kind, name])

    def _find(self, kind: Kind, table: Mapping[str, T], name: str) -> T:
        if name in table:
            return table[name]
        if (kind, name) in self.conflicts:
            raise UsageError(self.conflict_message(kind, name))
        unused = [f"{info.name} ({info.error})" for info in self.plugins if info.state != "ok"]
        note = f"Plugins that are not used: {'; '.join(unused)}" if unused else ""
        raise UnknownNameError(kind, name, table, note=note)

    def conflict_message(self, kind: Kind, name: str) -> str:
        """Say which plugins provide one name, and what to do about it."""
        names = self.conflicts[kind, name]
        plugins = " and ".join(self.plugin(plugin).origin for plugin in names)
        return (
            f"{kind} {name!r} is provided by more than one plugin: {plugins}. Uninstall all but one of them, or set "
            f"{DISABLE_VARIABLE}={','.join(names[1:])}"
        )


def load_catalogue(entries: Iterable[EntryPoint], disabled: frozenset[str] = frozenset()) -> Catalogue:
    """Load the core and the plugins of these entry points.

    Args:
        entries: entry points in any order.
        disabled: names of plugins to leave alone.
    """
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    hooks, core = _collect(manager, CORE, builtin)
    plugins = [PluginInfo(CORE, builtin.__name__, GROUP, version(GROUP), hooks=hooks)]
    offers = {CORE: core}
    by_name: dict[str, list[EntryPoint]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    for name, group in sorted(by_name.items()):
        info = _describe(name, group)
        if name in disabled:
            plugins.append(replace(info, state="disabled", error=f"disabled by {DISABLE_VARIABLE}"))
            continue
        try:
            if len(group) > 1 or name == CORE:
                raise PluginError(f"several distributions provide the plugin {name!r}: {_providers(name, group)}")
            hooks, offer = _collect(manager, name, group[0].load())
            for kind, clash in sorted(offer.keys() & (core.keys() | RESERVED)):
                raise PluginError(f"registers the {kind} {clash!r}, which {CORE} has; choose another name")
        except (Exception, SystemExit) as error:  # whatever a plugin raises, the others must work
            plugins.append(replace(info, state="broken", error=one_line(error)))
        else:
            plugins.append(replace(info, hooks=hooks))
            offers[name] = offer
    return _merge(tuple(plugins), offers)


def _describe(name: str, group: list[EntryPoint]) -> PluginInfo:
    """Say where a plugin comes from."""
    return PluginInfo(
        name,
        ", ".join(sorted({entry.value for entry in group})),
        ", ".join(entry.dist.name if entry.dist else "unknown" for entry in group),
        ", ".join(entry.dist.version if entry.dist else "unknown" for entry in group),
    )


def _providers(name: str, group: list[EntryPoint]) -> str:
    found = [f"{GROUP} itself"] if name == CORE else []
    found += [f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value for entry in group]
    return f"{' and '.join(found)}; uninstall all but one of them"


def one_line(error: BaseException) -> str:
    """Say an error on one line of bounded length; our own errors need no type name.

    Example:
        >>> one_line(ValueError("two\\nlines"))
        'ValueError: two lines'
    """
    try:
        said = str(error)
    except Exception:  # a plugin's error may be unable to say what it is
        said = "its message cannot be read"
    printable = said.encode("utf-8", "backslashreplace").decode()
    text = " ".join(printable[: 4 * _LONGEST_REASON].split()) or "no message"
    if len(text) > _LONGEST_REASON:
        text = f"{text[:_LONGEST_REASON]} …"
    return text if isinstance(error, RetargetBenchError) else f"{type(error).__name__}: {text}"


def _collect(manager: pluggy.PluginManager, name: str, module: object) -> tuple[tuple[str, ...], dict[Key, Any]]:
    """Call the hooks of one plugin.

    Returns:
        The names of its hooks, and what it registers by (kind, name); a metric stands there under its own name and
        under each of its columns.

    Raises:
        PluginError: it has no hook, misspells one, or registers something invalid.
    """
    if manager.is_registered(module):
        raise PluginError(f"points to {module!r}, as the plugin {manager.get_name(module)!r} does")
    try:
        manager.register(module, name)
        hooks = _known_hooks(manager, module)
        others = [plugin for plugin in manager.get_plugins() if plugin is not module]
        offer: dict[Key, Any] = {}
        for hook in hooks:
            call = manager.subset_hook_caller(hook, others)
            if hook == "register_commands":
                offer.update(_collect_commands(call))
            else:
                call(register=_registrar(offer, hook))
    except BaseException:
        if manager.is_registered(module):
            manager.unregister(module)
        raise
    return hooks, offer


def _known_hooks(manager: pluggy.PluginManager, module: object) -> tuple[str, ...]:
    """Return the names of a plugin's hooks, all of which must be specified."""
    callers = manager.get_hookcallers(module) or []
    try:
        manager.check_pending()
    except pluggy.PluginValidationError:
        unknown = min(caller.name for caller in callers if not caller.has_spec())
        raise UnknownNameError("hook", unknown, (*_HOOKS, "register_commands")) from None
    if not callers:
        raise PluginError(f"{module!r} has no hook; mark functions such as register_methods with @hookimpl")
    return tuple(sorted(caller.name for caller in callers if caller.has_spec()))


def _registrar(offer: dict[Key, Any], hook: str) -> Callable[[object], None]:
    """Return the ``register`` argument of a hook."""
    wanted = _HOOKS[hook]

    def register(info: object) -> None:
        if not isinstance(info, wanted):
            raise PluginError(f"{hook} registers {info!r}; it takes a {wanted.__name__}")
        for key in _checked_keys(info):
            if key in offer:
                raise PluginError(f"registers the {key[0]} {key[1]!r} twice")
            offer[key] = info

    return register


def _checked_keys(info: Info) -> list[Key]:
    """Return the names that something registers.

    Raises:
        PluginError: a name or target is not valid.
    """
    keys: list[Key]
    targets: tuple[str, ...]
    match info:
        case MethodInfo():
            keys, targets = [("method", info.name)], (info.target,)
        case DatasetInfo():
            keys, targets = [("dataset", info.name)], (info.target,)
        case MetricInfo():
            keys, targets = [("metric", info.name)], (info.target,)
            keys += [("column", column.name) for column in info.columns]
            if not info.columns:
                raise PluginError(f"metric {info.name!r} has no column")
        case FileFormatInfo():
            keys, targets = [("format", info.suffix)], tuple(filter(None, (info.reader, info.writer)))
    for kind, name in keys:
        pattern = _SUFFIX if kind == "format" else _NAME
        if not pattern.fullmatch(name):
            raise PluginError(f"registers the {kind} {name!r}; names must match {pattern.pattern}")
    for target in targets:
        module, _, attribute = target.partition(":")
        if not (module and attribute):
            raise PluginError(f"{keys[0][0]} {keys[0][1]!r} has the target {target!r}; it must be 'module:attribute'")
    return keys


def _collect_commands(call: Callable[..., object]) -> dict[Key, Any]:
    """Let a plugin fill an application of its own, so that it cannot touch bench's commands."""
    import typer

    app = typer.Typer()
    call(app=app)
    return {("command", name): command for name, command in typer.main.get_group(app).commands.items()}


def _merge(plugins: tuple[PluginInfo, ...], offers: Mapping[str, Mapping[Key, Any]]) -> Catalogue:
    """Put together what the working plugins offer, without the names that several of them claim."""
    providers: dict[Key, list[str]] = {}
    for plugin, offer in offers.items():
        for key in offer:
            providers.setdefault(key, []).append(plugin)
    conflicts = {key: tuple(names) for key, names in providers.items() if len(names) > 1}
    for offer in offers.values():
        for (kind, name), info in offer.items():
            if kind == "metric" and (kind, name) in conflicts:  # without its metric nobody computes a column
                for column in info.columns:
                    conflicts.setdefault(("column", column.name), conflicts[kind, name])
    registered, commands = Registered(), dict[str, Any]()
    tables: dict[str, dict[str, Any]] = {
        "method": registered.methods,
        "metric": registered.metrics,
        "dataset": registered.datasets,
        "format": registered.formats,
        "command": commands,
    }
    for plugin, offer in offers.items():
        for (kind, name), info in offer.items():
            if (kind, name) in conflicts:
                continue
            registered.origin[kind, name] = plugin
            if kind == "metric":
                info = replace(info, columns=tuple(c for c in info.columns if ("column", c.name) not in conflicts))
            if kind in tables:
                tables[kind][name] = info
    return Catalogue(plugins, registered, commands, conflicts)
