"""``bench run`` from the command line to the files: what is written, what is done again, what failures cost."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch

from retargetbench import Evaluation, create_method, open_dataset, plugins
from retargetbench.benchmark import predict_jobs
from retargetbench.cli import main
from retargetbench.metrics.joints import JointError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_plugins import PluginFolder

    Bench = Callable[..., int]

TABLES = ("table.md", "table.csv", "table.tex", "comparisons.csv", "failures.csv", "scores.parquet")
ATOMS = ["UC+UM", "UC+SM", "SC+UM", "SC+SM"]


def only_run() -> Path:
    (folder,) = Path("runs").iterdir()
    return folder


def scores(folder: Path | None = None) -> pd.DataFrame:
    return pd.read_parquet((folder or only_run()) / "scores.parquet")


def results(folder: Path) -> dict[str, bytes]:
    """Everything that must not depend on how the work was done."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    kept = [p for p in files if p.parts[-1] not in ("plan.json", "speed.csv") and "speed" not in p.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def times(folder: Path, *kinds: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for kind in kinds for path in (folder / kind).rglob("*") if path.is_file()}


def test_a_run_gives_scores_tables_plots_and_motions(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--methods", "copy", metrics="mse,contact_error,acceleration") == 0
    folder = only_run()
    frame = scores()
    assert list(frame["method"].unique()) == ["source", "ground-truth", "copy"]
    assert len(frame) == 3 * 12
    assert (frame["failure"] == "").all()
    by_method = frame.groupby("method")
    assert by_method["mse"].max()["ground-truth"] == 0
    assert by_method["mse"].count()["source"] == 0
    assert by_method["mse"].min()["copy"] > 0
    for name in (*TABLES, "speed.csv", "plan.json", "plots/metrics.png"):
        assert (folder / name).stat().st_size > 0
    assert len(list((folder / "predictions" / "copy").rglob("*.npz"))) == 12
    printed = capsys.readouterr().out
    assert "copy" in printed
    assert "mse ↓ [m]" in printed
    assert "frames_per_second" in printed
    assert str(folder) in printed
    assert max(map(len, printed.splitlines()[2:])) <= 120


def test_a_score_is_the_metric_of_the_methods_motion(bench: Bench, tiny_dataset: Path) -> None:
    assert bench("--methods", "copy") == 0
    row = scores().query("method == 'copy'").iloc[3]
    dataset = open_dataset(tiny_dataset)
    split_row = next(
        r
        for r in dataset.split().rows
        if (r.source, r.motion, r.target) == (row["source"], row["motion"], row["target"])
    )
    task = dataset.task(split_row)
    (motion,) = create_method("copy").retarget([task.source], task.target)
    value = JointError().evaluate(Evaluation(task.source, task.target, motion, task.ground_truth), frozenset({"mse"}))
    assert row["mse"] == pytest.approx(value["mse"].value, rel=1e-6)
    per_frame = np.load(only_run() / "frames" / "copy" / row["source"] / row["motion"] / f"{row['target']}.npz")["mse"]
    assert per_frame.shape == (24,)
    assert per_frame.mean() == pytest.approx(row["mse"], rel=1e-5)


def test_the_table_averages_the_scores_and_then_the_atoms(bench: Bench) -> None:
    assert bench("--methods", "copy") == 0
    table = pd.read_csv(only_run() / "table.csv")
    means = scores().query("method == 'copy'").groupby("atom")["mse"].mean()
    rows = table.query("method == 'copy'").set_index("atom")
    assert list(rows.index) == [*ATOMS, "mean"]
    for atom in ATOMS:
        assert rows["mse"][atom] == pytest.approx(means[atom], rel=1e-6)
    assert rows["mse"]["mean"] == pytest.approx(means.mean(), rel=1e-6)
    assert list(rows["n"]) == [2, 2, 4, 4, 12]


def test_the_same_command_again_does_nothing_again(
    bench: Bench, lab: PluginFolder, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_LOG", str(workplace / "log"))
    assert bench("--methods", "plain", metrics="mse,tall_value") == 0
    folder = only_run()
    before, files = results(folder), times(folder, "predictions", "scores", "frames", "speed")
    Path("log").unlink()
    assert bench("--methods", "plain", metrics="mse,tall_value") == 0
    assert results(folder) == before
    assert times(folder, "predictions", "scores", "frames", "speed") == files
    assert not Path("log").exists()


def test_another_metric_is_added_without_computing_the_others_again(
    bench: Bench, lab: PluginFolder, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("--methods", "plain", metrics="tall_value") == 0
    first = scores()
    monkeypatch.setenv("LAB_LOG", str(workplace / "log"))
    assert bench("--methods", "plain", metrics="tall_value,mse") == 0
    assert not Path("log").exists()
    pd.testing.assert_series_equal(scores()["tall_value"], first["tall_value"])
    assert scores()["mse"].notna().sum() == 24


def test_a_new_version_of_a_method_is_run_and_judged_again(bench: Bench, lab: PluginFolder) -> None:
    assert bench("--methods", "plain,strict", metrics="tall_value") == 1
    folder = only_run()
    before = times(folder, "predictions", "scores")
    sys.modules[lab.modules[0]].Plain.version = "2"
    sys.modules[lab.modules[0]].Strict.version = "1"
    assert bench("--methods", "plain,strict", metrics="tall_value") == 1
    changed = {
        path.relative_to(folder).parts[:2]
        for path, time_ns in times(folder, "predictions", "scores").items()
        if before[path] != time_ns
    }
    assert ("predictions", "plain") in changed
    assert ("scores", "plain") in changed
    assert ("predictions", "strict") not in changed
    assert ("scores", "source") not in changed
    assert ("scores", "ground-truth") not in changed


def test_edited_code_is_run_again_without_a_new_version(
    bench: Bench, lab: PluginFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--methods", "plain", metrics="mse") == 0
    before = times(only_run(), "predictions")
    capsys.readouterr()
    assert bench("--methods", "plain", metrics="mse") == 0
    assert "predict plain: 12 of 12 motions are there already" in capsys.readouterr().err
    assert times(only_run(), "predictions") == before
    path = lab.path / f"{lab.modules[0]}.py"
    path.write_text(f"{path.read_text()}\n# one more thought\n")
    plugins._digest_of_package.cache_clear()  # in another process this is so
    assert bench("--methods", "plain", metrics="mse") == 0
    assert times(only_run(), "predictions").keys() == before.keys()
    assert not times(only_run(), "predictions").items() & before.items()


@pytest.mark.parametrize("executor", ["local", pytest.param("submitit", marks=pytest.mark.slow)])
def test_results_do_not_depend_on_who_works_nor_on_groups(
    bench: Bench, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("--methods", "copy", "--run", "one") == 0
    assert bench("--methods", "copy", "--run", "two", "--workers", "2", "--executor", executor) == 0
    monkeypatch.setattr(predict_jobs, "MAX_ROWS_PER_JOB", 1)
    assert bench("--methods", "copy", "--run", "alone") == 0
    one, two, alone = (results(Path("runs") / name) for name in ("one", "two", "alone"))
    two = {name: content for name, content in two.items() if not name.startswith("submitit")}
    assert one == two
    assert one == alone


def test_broken_methods_cost_only_their_own_tasks(
    bench: Bench, lab: PluginFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--methods", "copy", "--run", "good") == 0
    names = ["absent", "strict", "wrongshape", "notfinite", "wrongcount", "wrongrate"]
    assert bench("--methods", f"copy,{','.join(names)}", "--run", "bad") == 1
    good, bad = scores(Path("runs/good")), scores(Path("runs/bad"))
    keys = ["source", "ground-truth", "copy"]
    same = bad[bad["method"].isin(keys)].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, good)
    failed = bad[bad["failure"] != ""].groupby("method")["failure"]
    assert failed.count().to_dict() == {name: 1 if name == "strict" else 12 for name in names}
    reasons = failed.first()
    assert "absent" in reasons["absent"]
    assert "No module named" in reasons["absent"]
    assert reasons["strict"] == "RuntimeError: no wave for a child"
    assert "(24, 22, 4)" in reasons["wrongshape"]
    assert "(5, 22, 4)" in reasons["wrongshape"]
    assert "not finite" in reasons["notfinite"]
    assert "one motion per source" in reasons["wrongcount"]
    assert "60 fps" in reasons["wrongrate"]
    table = pd.read_csv("runs/bad/table.csv").query("atom == 'mean'").set_index("method")
    assert table["failed"].to_dict() == {**dict.fromkeys(keys, 0), **dict.fromkeys(names, 12), "strict": 1}
    assert (table["n"]["strict"], table["mse_n"]["strict"]) == (12, 11)
    assert len(pd.read_csv("runs/bad/failures.csv")) == 61
    printed = capsys.readouterr().out
    assert "failed: absent " in printed
    assert "51 more in failures.csv" in printed


def test_a_failed_task_is_tried_again_by_the_same_command(bench: Bench, lab: PluginFolder) -> None:
    assert bench("--methods", "strict") == 1
    sys.modules[lab.modules[0]].Strict.one = sys.modules[lab.modules[0]].Plain.one
    assert bench("--methods", "strict") == 0
    assert (scores()["failure"] == "").all()
    assert not list((only_run() / "failures").rglob("*.json"))


def test_a_method_that_writes_into_its_inputs_and_changes_global_state_harms_no_other(
    bench: Bench, lab: PluginFolder
) -> None:
    assert bench("--methods", "copy", "--run", "alone", metrics="mse,foot_skate") == 0
    # Whatever becomes of the vandal, which spoils its own next tasks.
    assert bench("--methods", "vandal,copy", "--run", "both", metrics="mse,foot_skate") in (0, 1)
    alone, both = scores(Path("runs/alone")), scores(Path("runs/both")).query("method != 'vandal'")
    pd.testing.assert_frame_equal(both.reset_index(drop=True), alone)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_a_method_that_ends_the_program_is_a_failure(bench: Bench, lab: PluginFolder) -> None:
    assert bench("--methods", "quitter,copy", metrics="mse", split="UC+UM") == 1
    frame = scores()
    assert set(frame.query("method == 'quitter'")["failure"]) == {"tried to end the process: SystemExit: 0"}
    assert set(frame.query("method == 'copy'")["failure"]) == {""}


def test_a_value_that_is_no_number_is_refused_and_what_the_metric_writes_into_stays(
    bench: Bench, lab: PluginFolder
) -> None:
    assert bench("--methods", "copy", "--run", "without", metrics="mse", split="UC+UM") == 0
    assert bench("--methods", "copy", "--run", "with", metrics="odd_value,mse", split="UC+UM") == 1
    frame = scores(Path("runs/with"))
    assert set(frame["failure"]) == {"odd: odd_value: the value must be a number, got 'seven'"}
    pd.testing.assert_series_equal(frame["mse"], scores(Path("runs/without"))["mse"])


def test_values_by_frame_that_are_not_one_per_frame_are_refused(bench: Bench, lab: PluginFolder) -> None:
    assert bench("--methods", "copy", metrics="brief_value", split="UC+UM") == 1
    reasons = set(scores()["failure"])
    assert reasons == {"brief: brief_value: per_frame must be (24,) like the motion's frames, got (23,)"}


def test_a_metric_that_raises_is_undefined_with_its_reason_and_tried_again(
    bench: Bench, lab: PluginFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("--methods", "copy", metrics="mse,faulty_value,endless_value") == 1
    frame = scores()
    failed = frame[frame["failure"] != ""]
    assert set(failed["failure"]) == {"faulty: ValueError: children are not judged"}
    assert set(failed.query("method == 'copy'")["target"]) == {"child"}
    assert failed.query("method == 'copy'")["mse"].notna().all()
    assert np.isinf(frame["endless_value"]).all()
    monkeypatch.setenv("LAB_REPAIRED", "1")
    assert bench("--methods", "copy", metrics="mse,faulty_value,endless_value") == 0
    assert (scores()["failure"] == "").all()


def test_a_method_that_kills_its_process_costs_only_its_own_task(bench: Bench, lab: PluginFolder) -> None:
    assert bench("--methods", "crash,copy", "--workers", "2") == 1
    frame = scores()
    (failed,) = frame[frame["failure"] != ""].to_dict("records")
    assert (failed["method"], failed["source"], failed["motion"], failed["target"]) == (
        "crash",
        "average",
        "wave",
        "child",
    )
    assert "SIGKILL" in failed["failure"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--methods", "coppy"], "Did you mean 'copy'?"),
        (["--methods", "copy", "--set", "copy.rot=none"], "Did you mean 'root'?"),
        (["--methods", "copy", "--set", "copy.root=nil"], "none"),
        (["--methods", "copy", "--set", "kopy.root=none"], "Did you mean 'copy'?"),
        (["--methods", "copy", "--set", "copy"], "copy.root=none"),
        (["--methods", "copy", "--metrics", "msee"], "Did you mean 'mse'?"),
        (["--methods", "copy", "--split", "UC+XX"], "UC+UM"),
        (["--methods", "copy", "--dataset", "capsuls"], "Did you mean 'capsules'?"),
        (["--methods", "copy", "--split-name", "other"], "default"),
        (["--methods", "copy,copy"], "twice"),
        (["--methods", "source=copy"], "reference row"),
        (["--methods", "a/b=copy"], "folder name"),
        (["--methods", "copy", "--device", "gpu"], "auto, cpu, cuda"),
        (["--methods", "copy", "--suite", "copy-capsuls"], "Did you mean 'copy-capsules'?"),
        (["--methods", "copy", "--executor", "cloud"], "submitit"),
        (["--methods", ","], "no method"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_wrong_names_end_the_command_before_anything_is_done(
    workplace: Path, tiny_dataset: Path, arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments if "--dataset" in arguments else ["--dataset", str(tiny_dataset), *arguments]
    assert main(["run", *given]) == 2
    assert hint in capsys.readouterr().err
    assert list(workplace.iterdir()) == []


def test_one_method_can_be_run_with_several_options(bench: Bench) -> None:
    assert bench("--methods", "copy,still=copy", "--set", "still.root=none", metrics="mse") == 0
    means = scores().groupby("method")["mse"].mean()
    assert means["copy"] != means["still"]
    plan = json.loads((only_run() / "plan.json").read_text())
    assert [method["options"] for method in plan["plan"]["methods"]] == [[["root", "height_ratio"]], [["root", "none"]]]


def test_the_default_of_an_option_is_the_same_run_and_another_value_or_seed_another(bench: Bench) -> None:
    assert bench("--methods", "copy", metrics="mse", split="UC+UM") == 0
    assert bench("--methods", "copy", "--set", "copy.root=height_ratio", metrics="mse", split="UC+UM") == 0
    assert len(list(Path("runs").iterdir())) == 1
    assert bench("--methods", "copy", "--set", "copy.root=none", metrics="mse", split="UC+UM") == 0
    assert bench("--methods", "copy", "--seed", "1", metrics="mse", split="UC+UM") == 0
    assert len(list(Path("runs").iterdir())) == 3


def test_a_folder_is_not_shared_by_two_runs(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--methods", "copy", "--run", "mine", metrics="mse", split="UC+UM") == 0
    assert bench("--methods", "copy", "--run", "mine", metrics="mse", split="UC+SM") == 2
    assert "another run" in capsys.readouterr().err
    assert bench("--methods", "copy", "--run", "mine", "--force", metrics="mse", split="UC+SM") == 0
    assert set(scores(Path("runs/mine"))["atom"]) == {"UC+SM"}


def test_force_computes_everything_again(bench: Bench) -> None:
    assert bench("--methods", "copy", metrics="mse", split="UC+UM") == 0
    before = times(only_run(), "predictions", "scores")
    assert bench("--methods", "copy", "--force", metrics="mse", split="UC+UM") == 0
    after = times(only_run(), "predictions", "scores")
    assert before.keys() == after.keys()
    assert all(after[path] > before[path] for path in before)


def test_a_damaged_prediction_is_made_again(bench: Bench) -> None:
    assert bench("--methods", "copy", metrics="mse", split="UC+UM") == 0
    before = results(only_run())
    damaged = next((only_run() / "predictions").rglob("*.npz"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert bench("--methods", "copy", metrics="mse", split="UC+UM") == 0
    assert results(only_run()) == before


def test_speed_is_measured_by_the_predict_step(bench: Bench) -> None:
    started = time.perf_counter()
    assert bench("--methods", "copy", metrics="frames_per_second,mse", split="UC+UM") == 0
    speed = pd.read_csv(only_run() / "speed.csv").set_index("method")["frames_per_second"]["copy"]
    # Two clips of 24 frames were retargeted at least once in the time that the whole command took.
    assert speed > 48 / (time.perf_counter() - started)
    assert "frames_per_second" not in scores().columns
