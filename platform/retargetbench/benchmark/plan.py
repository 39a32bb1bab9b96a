"""The plan of a run: every name resolved, every version and hash fixed, before anything is computed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retargetbench import plugins
from retargetbench.benchmark.config import RunConfig
from retargetbench.benchmark.containment import contained
from retargetbench.benchmark.environment import describe_environment
from retargetbench.benchmark.opened import OptionItems, opened_dataset
from retargetbench.benchmark.predictions import content_key
from retargetbench.benchmark.run_folder import check_run_name, read_json
from retargetbench.datasets.base import parse_atoms
from retargetbench.datasets.folder import is_dataset_folder
from retargetbench.device import resolve_device
from retargetbench.discovery import CORE, one_line
from retargetbench.errors import DatasetError, RetargetBenchError, UnknownNameError, UsageError
from retargetbench.metrics import SPEED
from retargetbench.registry import Column, MetricInfo
from retargetbench.rigs import CENTIMETRE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from retargetbench.benchmark.run_folder import RunFolder
    from retargetbench.clip import SplitAtom
    from retargetbench.datasets.base import Dataset, SplitRow

SOURCE = "source"
"""Label of the rows that judge the source clips themselves."""
GROUND_TRUTH = "ground-truth"
"""Label of the rows that judge the dataset's own version of a motion on the target."""
REFERENCES = (SOURCE, GROUND_TRUTH)

_PLAN_FORMAT = 1

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")
"""Characters of a dataset's name that the name of a run shall not have."""


@dataclass(frozen=True)
class PlannedMethod:
    """A method, or the motions of another program, under the name that tables show."""

    label: str
    """Name in tables and folders."""
    method: str
    """Registered name; empty for motions of another program."""
    options: OptionItems = ()
    """Options in force by name, sorted."""
    key: str = ""
    """Hash of version, checkpoint and options; empty where the method cannot be made."""
    predictions: str = ""
    """Folder with motions of another program, or empty."""
    unit: float = 1.0
    """Metres per unit of BVH files in that folder."""
    error: str = ""
    """Why the method cannot be made, or empty."""


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    dataset: str
    """Name or absolute folder by which every process opens the dataset."""
    dataset_name: str
    dataset_hash: str
    split_name: str
    split_hash: str
    atoms: tuple[SplitAtom, ...]
    full: bool
    methods: tuple[PlannedMethod, ...]
    metrics: tuple[MetricInfo, ...]
    """Metrics with the wanted columns alone."""
    device: str
    """What was asked for: ``auto``, ``cpu`` or ``cuda``; each process resolves it where it runs."""
    seed: int
    environment: Mapping[str, str]
    """Versions, commit, device."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Rows of every table: the references first, the methods in the order they were asked for."""
        return (*REFERENCES, *(method.label for method in self.methods))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of every table."""
        return tuple(column for metric in self.metrics for column in metric.columns)

    @property
    def run_id(self) -> str:
        """Name of the run's folder: what is compared on what. The same command gives the same run.

        Versions of methods and metrics are no part of it: a new version makes its results again in the same folder.
        """
        compared = [(m.label, m.method, m.options, bool(m.predictions)) for m in self.methods]
        digest = content_key(
            self.dataset_hash, self.split_name, self.split_hash, self.atoms, self.full, compared, self.seed
        )
        return f"{_UNUSUAL.sub('_', self.dataset_name).strip('._-')[:60] or 'dataset'}-{digest[:10]}"

    def torch_device(self) -> torch.device:
        """Return the device of this process."""
        return resolve_device(self.device)

    def rows(self) -> tuple[SplitRow, ...]:
        """Return the rows of the split in the order of the tables.

        Raises:
            DatasetError: the dataset is not the one that was planned with, or lacks what a row names.
            UsageError: the split has no rows for these atoms.
        """
        return _select_rows(self, opened_dataset(self.dataset))


def _select_rows(plan: Plan, dataset: Dataset) -> tuple[SplitRow, ...]:
    split = dataset.split(plan.split_name)
    if (dataset.hash, split.hash) != (plan.dataset_hash, plan.split_hash):
        raise DatasetError(
            f"dataset {plan.dataset} has changed since the run was planned (hash {plan.dataset_hash}, now "
            f"{dataset.hash}); start a new run"
        )
    rows = split.select(plan.atoms, full=plan.full)
    if not rows:
        raise UsageError(
            f"split {plan.split_name!r} of dataset {dataset.name} has no rows for {', '.join(plan.atoms)}; "
            f"try --split all"
        )
    dataset.check_rows(rows)
    return tuple(sorted(rows, key=lambda row: (plan.atoms.index(row.atom), row.source, row.motion, row.target)))


def make_plan(config: RunConfig, *, predictions: Path | None = None, unit: float = CENTIMETRE) -> Plan:
    """Resolve a configuration; nothing is written and no method is run.

    Args:
        config: what is asked for.
        predictions: folder with motions of another program; then ``config.methods`` is the one name to give them.
        unit: metres per unit of BVH files in that folder.

    Raises:
        UnknownNameError: a method, metric, option, dataset or split is unknown.
        UsageError: a value cannot be used, or there are no rows.
    """
    catalogue = plugins.catalogue()
    atoms = parse_atoms(config.split)
    device = resolve_device(config.device)
    metrics = select_metrics(config.metrics)
    pairs = [_label_and_name(text) for text in config.methods]
    _check_labels([label for label, _ in pairs], config)
    if predictions is None:
        for _, name in pairs:
            catalogue.method(name)
    spec = str(Path(config.dataset).resolve()) if is_dataset_folder(Path(config.dataset)) else config.dataset
    dataset = opened_dataset(spec)
    if config.split_name not in dataset.splits:
        raise UnknownNameError(f"split of dataset {dataset.name}", config.split_name, dataset.splits)
    split = dataset.split(config.split_name)
    if predictions is None:
        methods = [_plan_method(label, name, config.options.get(label, {}), device) for label, name in pairs]
    else:
        if not predictions.is_dir():
            raise UsageError(f"there is no folder {predictions} with predictions")
        folder = str(predictions.resolve())
        methods = [PlannedMethod(pairs[0][0], "", key=f"external:{unit:g}", predictions=folder, unit=unit)]
    plan = Plan(
        dataset=spec,
        dataset_name=dataset.name,
        dataset_hash=dataset.hash,
        split_name=split.name,
        split_hash=split.hash,
        atoms=atoms,
        full=config.full,
        methods=tuple(methods),
        metrics=metrics,
        device=config.device,
        seed=config.seed,
        environment=describe_environment(device),
    )
    present = {row.atom for row in plan.rows()}
    return dataclasses.replace(plan, atoms=tuple(atom for atom in atoms if atom in present))


def select_metrics(wanted: tuple[str, ...]) -> tuple[MetricInfo, ...]:
    """Return the metrics of ``--metrics``, each with its wanted columns alone.

    The column ``frames_per_second`` may be named; it is measured in any case.

    Raises:
        UnknownNameError: a name is no metric and no column.
    """
    catalogue = plugins.catalogue()
    chosen = catalogue.select_metrics([name for name in wanted if name != SPEED.name])
    return tuple(
        dataclasses.replace(
            info, columns=tuple(c for c in info.columns if c.name in chosen[name]), version=_metric_version(info)
        )
        for name, info in catalogue.registered.metrics.items()
        if name in chosen
    )


def _metric_version(info: MetricInfo) -> str:
    """Return what values are cached by: the declared version, and for plugins the code too (`plugins.code_digest`)."""
    if plugins.catalogue().origin("metric", info.name).name == CORE:
        return info.version
    try:
        return f"{info.version}-{plugins.code_digest(type(plugins.create_metric(info)))}"
    except RetargetBenchError:  # said for every task by the score step
        return info.version


def _label_and_name(text: str) -> tuple[str, str]:
    """Read ``method`` or ``label=method``."""
    label, equals, name = text.partition("=")
    return (label.strip(), name.strip()) if equals else (text.strip(), text.strip())


def _check_labels(labels: list[str], config: RunConfig) -> None:
    for label in labels:
        check_run_name(label)
        if label in REFERENCES:
            raise UsageError(f"{label!r} is the name of a reference row of every table; choose another label")
        if labels.count(label) > 1:
            raise UsageError(f"method {label!r} is named twice; give one a label of its own, such as second={label}")
    for label in config.options:
        if label not in labels:
            raise UnknownNameError("method in --set", label, labels)


def _plan_method(label: str, name: str, options: Mapping[str, object], device: torch.device) -> PlannedMethod:
    """Make a method once, so that wrong options end the command and a broken method becomes rows of failures."""
    try:
        with contained():
            method = plugins.create_method(name, device=device, options=options)
        key = plugins.method_key(plugins.catalogue().method(name), method)
    except UsageError:
        raise
    except Exception as error:  # whatever a plugin raises is that plugin's failure
        return PlannedMethod(label, name, tuple(sorted(options.items())), error=one_line(error))
    return PlannedMethod(label, name, tuple(sorted(method.config.items())), key)


def _plain(value: Any) -> Any:
    """Turn dataclasses and mappings into what JSON can hold; `dataclasses.asdict` cannot copy read-only mappings."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def write_plan(folder: RunFolder, plan: Plan, config: RunConfig) -> None:
    """Write the plan beside the results, with the configuration it was made from."""
    stored = {
        "format": _PLAN_FORMAT,
        "run": folder.path.name,
        "config": _plain(config),
        "plan": _plain(plan),
    }
    folder.write_json(folder.plan_file, stored)


def read_plan(folder: RunFolder) -> Plan:
    """Read the plan of a run.

    Raises:
        RetargetBenchError: there is none that this version can read.
    """
    with _reading(folder) as stored:
        plan = stored["plan"]
        methods = [{**m, "options": tuple((name, value) for name, value in m["options"])} for m in plan["methods"]]
        metrics = [{**m, "columns": tuple(Column(**c) for c in m["columns"])} for m in plan["metrics"]]
        plan |= {
            "atoms": tuple(plan["atoms"]),
            "methods": tuple(PlannedMethod(**m) for m in methods),
            "metrics": tuple(MetricInfo(**m) for m in metrics),
        }
        return Plan(**plan)


def read_config(folder: RunFolder) -> RunConfig:
    """Read the configuration that a run was planned from.

    Raises:
        RetargetBenchError: there is no plan that this version can read.
    """
    with _reading(folder) as stored:
        config: dict[str, Any] = stored["config"]
        return RunConfig(**config | {name: tuple(value) for name, value in config.items() if isinstance(value, list)})


@contextmanager
def _reading(folder: RunFolder) -> Iterator[dict[str, Any]]:
    """Give the content of a plan's file; say so where it, or what is made of it, is none."""
    try:
        stored = read_json(folder.plan_file)
        if stored["format"] != _PLAN_FORMAT:
            raise ValueError
        yield stored
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RetargetBenchError(
            f"{folder.plan_file} is not a plan of this version; repeat the bench run command with --force"
        ) from None
