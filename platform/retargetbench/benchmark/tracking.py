"""Results in MLflow: one parent run for a benchmark run, one child for each method and atom.

Everything that is sent is read from the run folder, so a run can be sent later, and again: runs are found by their
tags and updated, never doubled. MLflow is imported here and nowhere else in the runner.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import sqlite3
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from retargetbench.benchmark.plan import read_plan
from retargetbench.benchmark.predictions import content_key
from retargetbench.benchmark.report import REPORT_FILES, read_report
from retargetbench.benchmark.tables import MEAN
from retargetbench.discovery import one_line
from retargetbench.errors import RetargetBenchError, TrackingError
from retargetbench.metrics import SPEED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mlflow import MlflowClient

    from retargetbench.benchmark.plan import Plan, PlannedMethod
    from retargetbench.benchmark.report import Report
    from retargetbench.benchmark.run_folder import RunFolder
    from retargetbench.benchmark.tables import TableRow

DEFAULT_TRACKING_URI = "sqlite:///mlflow.db"
"""Where MLflow writes when nothing else is said: a database in the working folder."""

EXPERIMENT = "retargetbench"

_SQLITE = "sqlite:///"
_CONNECT_SECONDS = 5.0
_LOCK_SECONDS = 120.0  # one run takes two seconds, and up to ten where it creates the database
_TAG = "retargetbench."


@dataclass(frozen=True)
class TrackedRun:
    """Where the results of a run are in MLflow."""

    uri: str
    """Tracking URI."""
    experiment_id: str
    run_id: str
    """MLflow's id of the parent run."""

    @property
    def how_to_open(self) -> str:
        """A command or an address that shows the run."""
        if self.uri.startswith(("http://", "https://")):
            return f"{self.uri.rstrip('/')}/#/experiments/{self.experiment_id}/runs/{self.run_id}"
        return f"mlflow ui --backend-store-uri {self.uri}"


def resolve_tracking_uri(uri: str | None) -> str:
    """Return the tracking URI: the one given, that of ``MLFLOW_TRACKING_URI``, or the default."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_TRACKING_URI


def push_run(folder: RunFolder, uri: str | None = None) -> TrackedRun:
    """Send a run to MLflow; one that is there already is brought up to date.

    Args:
        folder: a finished run.
        uri: tracking URI; see `resolve_tracking_uri`.

    Raises:
        TrackingError: the server or store cannot be reached or refuses.
        RetargetBenchError: the run has no scores.
    """
    plan, report = read_plan(folder), read_report(folder)
    resolved = resolve_tracking_uri(uri)
    try:
        _check_reachable(resolved)
        with _alone(resolved):
            return _push(_client(resolved), resolved, folder, plan, report)
    except RetargetBenchError:
        raise
    except Exception as error:  # MLflow, SQLAlchemy and requests each raise their own
        raise TrackingError(f"MLflow at {resolved} cannot be written: {one_line(error)}") from error


def _check_reachable(uri: str) -> None:
    """Fail in seconds where MLflow's own client would retry for minutes."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise TrackingError(f"the MLflow server {uri} cannot be reached: {error}") from None


@contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Let one process at a time send to a database: two that create it, or the same run in it, would collide.

    The lock is SQLite's own on an empty file beside the database, so it ends with a process that is killed.
    """
    if not uri.startswith(_SQLITE):
        yield
        return
    database = Path(uri.removeprefix(_SQLITE))
    if database.exists():
        # MLflow would try for a minute to make a database of what is none.
        with closing(sqlite3.connect(database)) as file:
            file.execute("PRAGMA schema_version")
    with closing(sqlite3.connect(database.with_name(f".{database.name}.lock"), timeout=_LOCK_SECONDS)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield


def _client(uri: str) -> MlflowClient:
    """Import MLflow, quietly and without telemetry."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # read on import
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # of every child
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    from mlflow import MlflowClient

    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # MLflow keeps what it has opened by URI, so a relative one would lead to the working folder of that time.
    relative = uri.removeprefix(_SQLITE)
    return MlflowClient(f"{_SQLITE}{Path(relative).absolute()}" if uri.startswith(_SQLITE) else uri)


def _push(client: MlflowClient, uri: str, folder: RunFolder, plan: Plan, report: Report) -> TrackedRun:
    experiment = _experiment_id(client, uri)
    identity = {f"{_TAG}run": folder.path.name, f"{_TAG}plan": plan.run_id}
    content = content_key(*(path.read_bytes().hex() for path in _artifacts(folder) if path.suffix != ".png"))
    parent = _find_or_create(client, experiment, {**identity, f"{_TAG}kind": "run"}, folder.path.name)
    tracked = TrackedRun(uri, experiment, parent)
    known = client.get_run(parent)
    if known.info.status == "FINISHED" and known.data.tags.get(f"{_TAG}content") == content:
        return tracked
    client.update_run(parent, status="RUNNING")
    for row in report.table.rows:
        tags = {**identity, f"{_TAG}kind": "result", "method": row.method, "atom": row.atom}
        title, metrics = f"{row.method} {row.atom}", _row_metrics(row, report)
        child = _find_or_create(client, experiment, tags, title, parent=parent, metrics=metrics)
        _log(client, child, metrics, _row_params(plan, row), _common_tags(plan))
        client.set_terminated(child)
    tasks = sum(row.count for row in report.table.rows if row.method == "source" and row.atom != MEAN)
    _log(client, parent, {"n": tasks, "n_failed": report.table.failed}, _plan_params(plan), _common_tags(plan))
    for path in _artifacts(folder):
        client.log_artifact(parent, str(path), "plots" if path.suffix == ".png" else None)
    client.set_tag(parent, f"{_TAG}content", content)
    client.set_terminated(parent)
    return tracked


def _experiment_id(client: MlflowClient, uri: str) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    known = client.get_experiment_by_name(name)
    if known is not None:
        return str(known.experiment_id)
    artifacts = None
    if uri.startswith(_SQLITE):
        # MLflow would keep artifacts relative to wherever its page is started from.
        database = Path(uri.removeprefix(_SQLITE)).resolve()
        artifacts = (database.parent / "mlartifacts" / name).as_uri()
    return str(client.create_experiment(name, artifact_location=artifacts))


def _find_or_create(
    client: MlflowClient,
    experiment: str,
    tags: Mapping[str, str],
    name: str,
    *,
    parent: str | None = None,
    metrics: Mapping[str, float] | None = None,
) -> str:
    """Return the MLflow run with these tags, a new one where there is none.

    MLflow never forgets a metric of a run, so one with metrics that are no longer among ``metrics`` makes room for a
    new one.
    """
    # A filter cannot hold quotes, which the folder of a run may have in its name; what it lets through is compared.
    wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items() if "'" not in value)
    for found in client.search_runs([experiment], wanted):
        if not tags.items() <= found.data.tags.items():
            continue
        if metrics is None or found.data.metrics.keys() <= metrics.keys():
            return str(found.info.run_id)
        client.delete_run(found.info.run_id)
    child_of = {} if parent is None else {"mlflow.parentRunId": parent}
    return str(client.create_run(experiment, tags={**tags, **child_of}, run_name=name).info.run_id)


def _log(
    client: MlflowClient,
    run_id: str,
    metrics: Mapping[str, float],
    params: Mapping[str, object],
    tags: Mapping[str, str],
) -> None:
    """Send numbers, parameters and tags; MLflow would store infinity as 1.8e308, so only finite numbers go."""
    from mlflow.entities import Metric, Param, RunTag

    now = int(time.time() * 1000)
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in metrics.items() if math.isfinite(value)],
        params=[Param(name, str(value)) for name, value in params.items()],
        tags=[RunTag(name, value) for name, value in tags.items()],
    )


def _row_metrics(row: TableRow, report: Report) -> dict[str, float]:
    metrics: dict[str, float] = {"n": row.count, "n_failed": row.failed}
    for name, estimate in row.estimates.items():
        metrics |= {name: estimate.mean, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    speed = report.speeds.get(row.method)
    return metrics if speed is None else metrics | {SPEED.name: speed.frames_per_second}


def _row_params(plan: Plan, row: TableRow) -> dict[str, object]:
    """Parameters of a child; MLflow refuses to change them later, so they hold only what makes the run what it is."""
    options = next((_options(method) for method in plan.methods if method.label == row.method), {})
    return {"method": row.method, "atom": row.atom, **options}


def _plan_params(plan: Plan) -> dict[str, object]:
    options: dict[str, object] = {}
    for method in plan.methods:
        options |= {f"{method.label}.{name}": value for name, value in _options(method).items()}
    return {
        "dataset": plan.dataset_name,
        "split_name": plan.split_name,
        "split": ",".join(plan.atoms),
        "full": plan.full,
        "methods": ",".join(method.label for method in plan.methods),
        "seed": plan.seed,
        **options,
    }


def _options(method: PlannedMethod) -> dict[str, object]:
    return dict(method.options)


def _common_tags(plan: Plan) -> dict[str, str]:
    tags = {
        "dataset": plan.dataset_name,
        "dataset_hash": plan.dataset_hash,
        "split_name": plan.split_name,
        "split_hash": plan.split_hash,
        "split": ",".join(plan.atoms),
        "seed": str(plan.seed),
        "metrics": ",".join(f"{metric.name}:{metric.version}" for metric in plan.metrics),
    }
    tags |= {f"{method.label}.key": method.key for method in plan.methods if method.key}
    return tags | {name.replace("plugin:", "plugin."): value for name, value in plan.environment.items()}


def _artifacts(folder: RunFolder) -> list[Path]:
    """Files of a run that go to MLflow."""
    named = [folder.plan_file, folder.scores_file, *(folder.path / name for name in REPORT_FILES)]
    return [path for path in named if path.is_file()] + sorted((folder.path / "plots").glob("*.png"))
