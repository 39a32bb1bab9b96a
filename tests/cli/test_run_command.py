"""``bench run``, ``report`` and ``push``: options and wrong use, and what arrives in MLflow.

What a run computes is tested in tests/benchmark; here it is about the commands around it. Most tests share one run.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from fake_plugins import plugin_folder

from retargetbench.benchmark import opened
from retargetbench.benchmark.environment import find_git_commit
from retargetbench.benchmark.run_folder import RunFolder
from retargetbench.cli import main
from retargetbench.metrics import BUILTIN_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlflow import MlflowClient
    from mlflow.entities import Run

    NewDatabase = Callable[[Path], str]

ATOMS = ("UC+UM", "UC+SM", "SC+UM", "SC+SM")
LABELS = ("source", "ground-truth", "copy", "halting")
AWAY = "http://127.0.0.1:9"  # the discard port, on which nothing listens
FILES = ("plan.json", "scores.parquet", "table.md", "table.csv", "table.tex", "comparisons.csv", "failures.csv")

LAB = """
from retargetbench import Metric, MetricValue, create_method, RetargetMethod

@hookimpl
def register_methods(register):
    register(MethodInfo("halting", "fails on one task", "{module}:Halting"))

@hookimpl
def register_metrics(register):
    register(MetricInfo("endless", "{module}:Endless", (Column("endless_value", "m", "lower", "infinite"),)))

class Halting(RetargetMethod):
    def retarget(self, sources, target):
        if target.name == "child" and any(source.name == "wave" for source in sources):
            raise RuntimeError("no wave for a child")
        return create_method("copy").retarget(sources, target)

class Endless(Metric):
    def evaluate(self, evaluation, columns):
        return {"endless_value": MetricValue(float("inf"))}
"""


@dataclass(frozen=True)
class Done:
    """A finished run and what its command said."""

    folder: Path
    uri: str
    code: int
    out: str
    err: str


def bench(*arguments: object) -> tuple[int, str, str]:
    """Call ``bench`` in this process; returns exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def client(uri: str) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(uri)


def tracked(uri: str) -> dict[str, Run]:
    """Every MLflow run of ours by its name; names are unique here."""
    from mlflow import MlflowClient

    there = MlflowClient(uri)
    experiment = there.get_experiment_by_name("retargetbench")
    runs = [] if experiment is None else there.search_runs([experiment.experiment_id])
    by_name = {run.info.run_name: run for run in runs}
    assert len(by_name) == len(runs)
    return by_name


@pytest.fixture(scope="module")
def done(tiny_dataset: Path, new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    """A run with a method that fails on some tasks and a metric that is infinite; not to be changed."""
    place = tmp_path_factory.mktemp("done")
    (place / "plugins").mkdir()
    uri = new_database(place / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch, plugin_folder(place / "plugins", patch) as plugins:
        plugins.add("lab", LAB)
        opened.created_method.cache_clear()
        opened.created_metric.cache_clear()
        options = ("--split", "all", "--metrics", "mse,endless_value", "--tracking-uri", uri, "--out", place / "runs")
        code, out, err = bench("run", "--dataset", tiny_dataset, "--methods", "copy,halting", *options)
        (folder,) = (place / "runs").iterdir()
        yield Done(folder, uri, code, out, err)
    opened.created_method.cache_clear()
    opened.created_metric.cache_clear()


@pytest.fixture
def small(tiny_dataset: Path, workplace: Path) -> tuple[object, ...]:
    """Arguments of a run of two quick tasks without MLflow."""
    return ("run", "--dataset", tiny_dataset, "--methods", "copy", "--metrics", "mse")


def only_run(out: str = "runs") -> Path:
    (folder,) = Path(out).iterdir()
    return folder


def table_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "table.csv").set_index(["method", "atom"])


def test_the_end_of_a_run_says_where_everything_is(done: Done) -> None:
    assert done.code == 1
    assert f"run folder  {done.folder} (tables, plots, scores.parquet)" in done.out
    assert f"MLflow      {done.uri}; open it by: mlflow ui --backend-store-uri {done.uri}" in done.out
    assert "failed: halting average/wave/child: RuntimeError: no wave for a child" in done.out
    assert "score: 48/48" not in done.out
    assert "time        plan " in done.err


def test_mlflow_has_a_parent_and_a_child_per_method_and_atom(done: Done) -> None:
    runs = tracked(done.uri)
    parent = runs.pop(done.folder.name)
    assert set(runs) == {f"{label} {atom}" for label in LABELS for atom in (*ATOMS, "mean")}
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}
    assert "mlflow.parentRunId" not in parent.data.tags
    assert {run.info.status for run in (parent, *runs.values())} == {"FINISHED"}
    assert parent.data.params["methods"] == "copy,halting"
    assert parent.data.params["split"] == ",".join(ATOMS)
    assert parent.data.params["copy.root"] == "height_ratio"
    assert runs["copy UC+UM"].data.params == {"method": "copy", "atom": "UC+UM", "root": "height_ratio"}
    is_checkout = find_git_commit() is not None
    for run in (parent, *runs.values()):
        assert {"dataset_hash", "split_hash", "seed", "device", "torch"} <= set(run.data.tags)
        assert ("git_commit" in run.data.tags) == is_checkout


def test_mlflow_has_the_numbers_of_the_table(done: Done) -> None:
    runs, table = tracked(done.uri), table_of(done.folder)
    for (label, atom), row in table.iterrows():
        sent = runs[f"{label} {atom}"].data.metrics
        assert sent["n"] == row["n"]
        assert sent["n_failed"] == row["failed"]
        for name in ("mse", "mse_low", "mse_high"):
            assert sent.get(name) == (None if math.isnan(row[name]) else pytest.approx(row[name], rel=1e-9))
    failed = {name: run.data.metrics["n_failed"] for name, run in runs.items() if run.data.metrics["n_failed"]}
    # The child is the unseen character and the wave the unseen motion: two sources, in groups by target.
    assert set(failed) >= {"halting UC+UM", "halting mean", done.folder.name}
    assert failed[done.folder.name] == failed["halting mean"] == table["failed"].drop("mean", level="atom").sum()
    assert runs["copy UC+UM"].data.metrics["frames_per_second"] > 0


def test_mlflow_gets_no_infinite_number(done: Done) -> None:
    assert math.isinf(table_of(done.folder)["endless_value"]["copy", "mean"])
    values = [value for run in tracked(done.uri).values() for value in run.data.metrics.values()]
    assert values
    assert max(map(abs, values)) < 1e9
    assert not any("endless_value" in run.data.metrics for run in tracked(done.uri).values())


def test_mlflow_has_the_files_of_the_run(done: Done, tmp_path: Path) -> None:
    parent = tracked(done.uri)[done.folder.name]
    names = {entry.path for entry in client(done.uri).list_artifacts(parent.info.run_id)}
    assert names >= {*FILES, "speed.csv", "plots"}
    got = client(done.uri).download_artifacts(parent.info.run_id, "scores.parquet", str(tmp_path))
    assert Path(got).read_bytes() == (done.folder / "scores.parquet").read_bytes()
    plots = {entry.path for entry in client(done.uri).list_artifacts(parent.info.run_id, "plots")}
    assert plots == {f"plots/{path.name}" for path in (done.folder / "plots").iterdir()}


def test_pushing_again_doubles_nothing_and_brings_up_to_date(
    done: Done, new_database: NewDatabase, workplace: Path
) -> None:
    uri = new_database(workplace / "other.db")
    folder = workplace / "runs" / done.folder.name
    shutil.copytree(done.folder, folder)
    assert bench("push", folder.name, "--tracking-uri", uri)[0] == 0
    before = tracked(uri)
    assert bench("push", folder, "--tracking-uri", uri)[0] == 0
    again = tracked(uri)
    assert {n: r.info.run_id for n, r in again.items()} == {n: r.info.run_id for n, r in before.items()}
    assert {n: r.info.end_time for n, r in again.items()} == {n: r.info.end_time for n, r in before.items()}
    code, _, _ = bench("score", folder, "--metrics", "mse_local", "--tracking-uri", uri)
    assert code == 1  # the failures of the run are still failures
    after = tracked(uri)
    # MLflow cannot take a metric away from a run, so results with fewer metrics are new ones; the whole is the same.
    assert after.keys() == before.keys()
    assert after[folder.name].info.run_id == before[folder.name].info.run_id
    assert "mse" in before["copy mean"].data.metrics
    assert "mse" not in after["copy mean"].data.metrics
    assert after["copy mean"].data.metrics["mse_local"] == pytest.approx(table_of(folder)["mse_local"]["copy", "mean"])


def test_a_run_whose_folder_was_renamed_can_be_pushed(done: Done, new_database: NewDatabase, workplace: Path) -> None:
    uri = new_database(workplace / "other.db")
    folder = workplace / "it's mine ü"
    shutil.copytree(done.folder, folder)
    for _ in range(2):
        assert bench("push", folder, "--tracking-uri", uri)[0] == 0
        assert len(tracked(uri)) == 1 + len(LABELS) * 5


def test_results_stay_when_the_server_is_away_and_are_pushed_later(
    small: tuple[object, ...], new_database: NewDatabase, workplace: Path
) -> None:
    code, out, err = bench(*small, "--tracking-uri", AWAY)
    assert code == 0
    folder = only_run()
    assert "mse ↓ [m]" in out
    assert f"warning: the MLflow server {AWAY} cannot be reached" in err
    assert f"send the results later by: bench push {folder}" in err
    assert (folder / "scores.parquet").stat().st_size > 0

    code, out, err = bench("push", folder, "--tracking-uri", AWAY)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: the MLflow server {AWAY} cannot be reached")
    assert len(err.splitlines()) == 1

    uri = new_database(workplace / "later.db")
    assert bench("push", folder.name, "--tracking-uri", uri)[0] == 0
    assert set(tracked(uri)) == {folder.name, *(f"{label} UC+UM" for label in LABELS[:3])}


def test_a_store_that_is_no_store_is_one_line(done: Done, workplace: Path) -> None:
    (workplace / "text.db").write_text("this is no database, and long enough to be read as the header of one " * 20)
    for uri in ("sqlite:///text.db", "sqlite:///no/folder/mlflow.db", "nonsense://x", f"sqlite:///{workplace}"):
        code, out, err = bench("push", done.folder, "--tracking-uri", uri)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: MLflow at {uri} cannot be written: ")
        assert len(err.splitlines()) == 1


def test_mlflow_writes_where_the_environment_says_and_else_into_the_working_folder(
    small: tuple[object, ...], new_database: NewDatabase, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = new_database(workplace / "mlflow.db"), new_database(workplace / "named.db")
    code, out, _ = bench(*small)
    assert code == 0
    assert "open it by: mlflow ui --backend-store-uri sqlite:///mlflow.db" in out
    assert len(tracked(here)) == 4
    location = client(here).get_experiment_by_name("retargetbench").artifact_location
    assert location == (workplace / "mlartifacts" / "retargetbench").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", elsewhere)
    assert bench(*small)[0] == 0
    assert len(tracked(elsewhere)) == 4
    assert len(tracked(here)) == 4


def test_nothing_is_sent_when_it_is_not_wanted(small: tuple[object, ...], workplace: Path) -> None:
    code, out, _ = bench(*small, "--no-track")
    assert code == 0
    assert "MLflow" not in out
    assert [path.name for path in workplace.iterdir()] == ["runs"]


@pytest.mark.slow
def test_the_same_run_is_pushed_by_two_processes_at_once(done: Done, workplace: Path) -> None:
    code = "import sys; from retargetbench.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "push", str(done.folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    pushes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    messages = [push.communicate(timeout=300)[1] for push in pushes]
    assert [push.returncode for push in pushes] == [0, 0], messages
    assert len(tracked(f"sqlite:///{workplace}/mlflow.db")) == 1 + len(LABELS) * 5


def test_a_file_is_written_though_another_process_tidies_up(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, tries = os.replace, []

    def replace_late(source: Path, target: Path) -> None:
        tries.append(source)
        if len(tries) == 1:
            folder.remove_unfinished()
        replace(source, target)

    folder = RunFolder(workplace / "run")
    monkeypatch.setattr("os.replace", replace_late)
    folder.write(folder.path / "a" / "file", b"content")
    assert (folder.path / "a" / "file").read_bytes() == b"content"
    assert len(tries) == 2


def with_split(dataset: Path, place: Path) -> Path:
    """A copy of the dataset with a further split of two rows, one of them in the default set."""
    shutil.copytree(dataset, place)
    rows = (
        "atom,source,motion,target,default",
        "UC+SM,average,hand_to_head,child,1",
        "UC+SM,slim,hand_to_head,child,0",
    )
    (place / "splits" / "mine.csv").write_text("\n".join(rows) + "\n")
    return place


def test_full_takes_the_rows_beyond_the_default_set(tiny_dataset: Path, workplace: Path) -> None:
    dataset = with_split(tiny_dataset, workplace / "own")
    fixed = ("run", "--dataset", "own", "--split-name", "mine", "--split", "UC+SM", "--metrics", "mse", "--no-track")
    counts = {}
    for option in ("--default-set", "--full"):
        code, out, _ = bench(*fixed, option, "--run", option.strip("-"))
        assert code == 0
        assert "split mine (" in out
        counts[option] = len(pd.read_parquet(Path("runs", option.strip("-"), "scores.parquet")).query("method=='copy'"))
    assert counts == {"--default-set": 1, "--full": 2}
    assert dataset.is_dir()


def test_metrics_all_fills_every_column_that_exists(tiny_dataset: Path, workplace: Path) -> None:
    with_split(tiny_dataset, workplace / "own")
    code, out, _ = bench(
        "run", "--dataset", "own", "--split-name", "mine", "--split", "UC+SM", "--metrics", "all", "--no-track"
    )
    assert code == 0
    names = [column.name for metric in BUILTIN_METRICS for column in metric.columns]
    (row,) = pd.read_parquet(only_run() / "scores.parquet").query("method == 'copy'")[names].to_dict("records")
    assert [name for name, value in row.items() if not math.isfinite(value)] == []
    assert all(name in out for name in names)


def test_a_suite_gives_what_is_not_said_on_the_command_line(
    small: tuple[object, ...], tiny_dataset: Path, workplace: Path
) -> None:
    (workplace / "mine.yaml").write_text(
        f"dataset: {tiny_dataset}\nmethods: [copy, free=copy]\nmetrics: [mse]\noptions: {{free: {{root: none}}}}\n"
    )
    assert bench("run", "--suite", "mine.yaml", "--no-track")[0] == 0
    table = table_of(only_run())
    assert table["mse"]["copy", "UC+UM"] != table["mse"]["free", "UC+UM"]
    assert bench("run", "--suite", "mine.yaml", "--set", "free.root=height_ratio", "--no-track", "--out", "b")[0] == 0
    table = table_of(only_run("b"))
    assert table["mse"]["copy", "UC+UM"] == table["mse"]["free", "UC+UM"]
    # Other methods leave the options of the suite's methods behind.
    assert bench("run", "--suite", "mine.yaml", "--methods", "copy", "--no-track", "--out", "c")[0] == 0
    assert "free" not in table_of(only_run("c")).index.get_level_values("method")


def test_a_shipped_suite_runs_on_another_dataset(tiny_dataset: Path, workplace: Path) -> None:
    options = ("--dataset", tiny_dataset, "--split", "UC+UM", "--metrics", "mse", "--no-track")
    code, out, _ = bench("run", "--suite", "copy-capsules", *options)
    assert code == 0
    assert "copy-unscaled" in out


WRONG_USE = {
    "no metric": (["--metrics", ""], "no metric is named"),
    "commas for metrics": (["--metrics", " , "], "no metric is named"),
    "no method": (["--methods", ""], "no method is named"),
    "unknown split": (["--split-name", "defaut"], "unknown split of dataset tiny 'defaut'. Did you mean 'default'?"),
    "unknown atom": (["--split", "uc+um"], "accepted are all, UC+UM"),
    "no worker": (["--workers", "0"], "--workers"),
    "workers in words": (["--workers", "two"], "--workers"),
    "negative seed": (["--seed", "-1"], "--seed"),
    "cluster here": (["--cluster", "slurm_partition=gpu"], "need the executor submitit"),
    "no parameter": (["--executor", "submitit", "--cluster", "gpu"], "must look like key=value"),
    "empty run": (["--run", ""], "cannot be a folder name"),
    "run above": (["--run", "../x"], "cannot be a folder name"),
    "run with blanks": (["--run", "a b"], "cannot be a folder name"),
    "endless run": (["--run", "x" * 300], "cannot be a folder name"),
    "endless label": (["--methods", f"{'x' * 300}=copy"], "cannot be a folder name"),
    "unknown option": (["--metric", "mse"], "--metrics"),
    "further argument": (["copy"], "unexpected extra argument"),
    "suite that is a folder": (["--suite", "."], "unknown suite '.'"),
}


@pytest.mark.parametrize("case", WRONG_USE)
def test_wrong_use_of_run_does_nothing(small: tuple[object, ...], workplace: Path, case: str) -> None:
    arguments, message = WRONG_USE[case]
    code, out, err = bench(*small, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert list(workplace.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_line(small: tuple[object, ...], workplace: Path) -> None:
    (workplace / "file").write_text("mine")
    for out in ("file", "/proc/runs"):
        code, printed, err = bench(*small, "--out", out, "--no-track")
        assert (code, printed) == (1, "")
        assert "plan.json cannot be written" in err
        assert len(err.splitlines()) == 1
    assert (workplace / "file").read_text() == "mine"


@pytest.mark.parametrize("form", ["md", "csv", "tex"])
def test_report_prints_the_tables_of_the_run(done: Done, form: str, workplace: Path) -> None:
    expected = (done.folder / f"table.{form}").read_text()
    assert bench("report", done.folder, "--format", form) == (0, expected, "")
    assert bench("report", done.folder.name, "--out", done.folder.parent, "-o", f"t.{form}") == (
        0,
        f"wrote t.{form}\n",
        "",
    )
    assert Path(f"t.{form}").read_text() == expected


def test_report_does_not_write_one_format_under_the_suffix_of_another(done: Done, workplace: Path) -> None:
    code, out, err = bench("report", done.folder, "--format", "tex", "-o", "t.md")
    assert (code, out) == (2, "")
    assert err == "error: t.md would hold a table of format tex; give it another suffix or format\n"
    assert not Path("t.md").exists()


def test_another_program_cannot_take_the_name_of_a_method(workplace: Path) -> None:
    Path("mine").mkdir()
    code, _, err = bench("score", "--predictions", "mine", "--name", "copy", "--no-track")
    assert (code, err) == (
        2,
        "error: 'copy' is the name of an installed method; give the other program a name of its own\n",
    )


def test_report_says_again_what_run_said(done: Done) -> None:
    code, out, _ = bench("report", done.folder)
    assert code == 0
    assert done.out.startswith(out)


def test_report_makes_lost_tables_anew(done: Done, workplace: Path) -> None:
    folder = workplace / "again"
    shutil.copytree(done.folder, folder)
    for path in (folder / "table.md", folder / "failures.csv", folder / "plots" / "metrics.png"):
        path.unlink()
    assert bench("report", folder)[0] == 0
    for name in (*FILES, "plots/metrics.png"):
        assert (folder / name).read_bytes() == (done.folder / name).read_bytes()


@pytest.mark.parametrize("command", ["report", "push"])
def test_an_unknown_run_is_answered_with_the_closest(command: str, done: Done, workplace: Path) -> None:
    shutil.copytree(done.folder, workplace / "runs" / "first-run")
    code, out, err = bench(command, "first-rum")
    assert (code, out) == (2, "")
    assert err == "error: unknown run in runs 'first-rum'. Did you mean 'first-run'? Available: first-run\n"
    for name in ("", "runs", "x" * 300):
        assert bench(command, name)[0] in (1, 2)
    assert bench(command)[0] == 2


def test_a_run_without_scores_says_how_to_get_them(done: Done, workplace: Path) -> None:
    folder = workplace / "runs" / "cut"
    folder.mkdir(parents=True)
    shutil.copy(done.folder / "plan.json", folder)
    for command in ("report", "push"):
        code, out, err = bench(command, "cut")
        assert (code, out) == (1, "")
        assert err.splitlines() == ["error: runs/cut has no scores.parquet yet; finish it by its bench run command"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "plan": {"methods": 3}}'])
def test_a_damaged_plan_is_one_line_and_force_starts_anew(
    small: tuple[object, ...], workplace: Path, text: str
) -> None:
    (workplace / "runs" / "mine").mkdir(parents=True)
    plan = workplace / "runs" / "mine" / "plan.json"
    plan.write_text(text)
    for command in (("report", "mine"), ("push", "mine"), ("score", "mine"), (*small, "--run", "mine", "--no-track")):
        code, out, err = bench(*command)
        assert (code, out) == (1, "")
        expected = "error: runs/mine/plan.json is not a plan of this version; repeat the bench run command with --force"
        assert err.splitlines() == [expected]
    assert bench(*small, "--run", "mine", "--no-track", "--force")[0] == 0


def test_damaged_results_are_one_line_to_report_and_made_anew_by_run(
    small: tuple[object, ...], workplace: Path
) -> None:
    assert bench(*small, "--no-track")[0] == 0
    folder = only_run()
    whole = {name: (folder / name).read_bytes() for name in FILES if name != "plan.json"}
    (folder / "scores.parquet").write_text("none")
    for command in ("report", "push"):
        code, out, err = bench(command, folder)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {folder}/scores.parquet cannot be read: ")
        assert len(err.splitlines()) == 1
    for path in (folder / "scores" / "copy").rglob("*.json"):
        path.write_text('{"values": "none"}')
    for path in (folder / "frames" / "copy").rglob("*.npz"):
        path.write_text("none")
    (folder / "speed" / "copy.json").write_text("[]")
    assert bench(*small, "--no-track")[0] == 0
    assert {name: (folder / name).read_bytes() for name in whole} == whole


def test_judging_here_forgets_what_the_run_told_its_cluster(small: tuple[object, ...], workplace: Path) -> None:
    assert bench(*small, "--no-track")[0] == 0
    plan = only_run() / "plan.json"
    text = plan.read_text()
    on_cluster = text.replace('"executor": "local"', '"executor": "submitit"').replace(
        '"cluster": {}', '"cluster": {"slurm_partition": "gpu"}'
    )
    assert on_cluster != text
    plan.write_text(on_cluster)
    assert bench("score", only_run(), "--executor", "local", "--metrics", "mse_local", "--no-track")[0] == 0


def test_a_report_that_cannot_be_written_is_wrong_use(done: Done, workplace: Path) -> None:
    for place in ("nowhere/table.md", "."):
        code, out, err = bench("report", done.folder, "--format", "md", "-o", place)
        assert (code, out) == (2, "")
        assert f"{place} cannot be written" in err
    assert bench("report", done.folder, "--format", "xls")[0] == 2
