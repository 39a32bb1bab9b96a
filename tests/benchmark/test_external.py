"""``bench score``: motions of another program, and the motions of a run by other metrics."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion
from test_pipeline import only_run, scores, times

from retargetbench import Clip, Motion, open_dataset, to_canonical_motion
from retargetbench.benchmark.external import find_external_file, load_external_motion
from retargetbench.cli import main
from retargetbench.datasets.base import Split, SplitRow
from retargetbench.datasets.folder_writer import write_folder_dataset
from retargetbench.errors import MethodOutputError
from retargetbench.formats.export import save_bvh
from retargetbench.kinematics import joint_positions

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_plugins import PluginFolder

    from retargetbench import Dataset

VALUES = ["mse", "acceleration"]


def score_folder(dataset: Path, folder: Path | str, *arguments: str) -> int:
    fixed = ["--predictions", str(folder), "--name", "other", "--dataset", str(dataset), "--split", "all", "--no-track"]
    return main(["score", *fixed, "--metrics", ",".join(VALUES), *arguments])


def of_method(folder: Path, label: str) -> pd.DataFrame:
    return scores(folder).query("method == @label").reset_index(drop=True)


def test_the_motions_of_a_run_score_the_same_as_motions_of_another_program(
    bench: Callable[..., int], tiny_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--methods", "copy") == 0
    run = only_run()
    assert score_folder(tiny_dataset, run / "predictions" / "copy", "--out", "others") == 0
    (other,) = Path("others").iterdir()
    pd.testing.assert_frame_equal(of_method(other, "other")[VALUES], of_method(run, "copy")[VALUES])
    assert "other" in capsys.readouterr().out
    assert not (other / "speed").exists()


def test_bvh_files_score_like_the_motions_they_hold(bench: Callable[..., int], tiny_dataset: Path) -> None:
    assert bench("--methods", "copy") == 0
    run, dataset = only_run(), open_dataset(tiny_dataset)
    for row in dataset.split().rows:
        with np.load(run / "predictions" / "copy" / row.source / row.motion / f"{row.target}.npz") as stored:
            motion = Motion(
                torch.from_numpy(stored["root_translation"]),
                torch.from_numpy(stored["local_rotations"]),
                float(stored["fps"]),
            )
        path = Path("files", row.source, row.motion, f"{row.target}.bvh")
        path.parent.mkdir(parents=True, exist_ok=True)
        save_bvh(path, dataset.character(row.target).skeleton, motion)
    assert score_folder(tiny_dataset, "files", "--out", "others") == 0
    (other,) = Path("others").iterdir()
    ours, theirs = of_method(run, "copy"), of_method(other, "other")
    # A BVH file holds degrees and centimetres with six decimals.
    np.testing.assert_allclose(theirs["mse"], ours["mse"], atol=1e-6)
    np.testing.assert_allclose(theirs["acceleration"], ours["acceleration"], rtol=1e-2)


def test_missing_and_wrong_files_are_failures_of_their_tasks(
    bench: Callable[..., int], tiny_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--methods", "copy") == 0
    run = only_run()
    shutil.copytree(run / "predictions" / "copy", "files")
    Path("files/average/wave/child.npz").unlink()
    Path("files/average/wave/slim.npz").write_text("no archive")
    with np.load("files/average/hand_to_head/slim.npz") as stored:
        short = {**stored, "local_rotations": stored["local_rotations"][:9], "root_translation": np.zeros((9, 3))}
    np.savez("files/average/hand_to_head/slim.npz", **short)
    assert score_folder(tiny_dataset, "files", "--out", "others") == 1
    (other,) = Path("others").iterdir()
    frame = of_method(other, "other").set_index(["source", "motion", "target"])
    reasons = frame["failure"][frame["failure"] != ""]
    assert len(reasons) == 3
    assert "there is no file" in reasons["average", "wave", "child"]
    assert "is not an .npz" in reasons["average", "wave", "slim"]
    assert "pickle" not in reasons["average", "wave", "slim"]
    assert "9 frames" in reasons["average", "hand_to_head", "slim"]
    good = frame[frame["failure"] == ""]
    same = of_method(run, "copy").set_index(["source", "motion", "target"]).loc[good.index]
    pd.testing.assert_frame_equal(good[VALUES], same[VALUES])

    before = times(other, "scores")
    shutil.copy(run / "predictions/copy/average/wave/child.npz", "files/average/wave/child.npz")
    assert score_folder(tiny_dataset, "files", "--out", "others") == 1
    assert len(of_method(other, "other").query("failure != ''")) == 2
    after = times(other, "scores")
    assert all(after[path] == written for path, written in before.items())


def test_a_changed_file_is_judged_again(bench: Callable[..., int], tiny_dataset: Path) -> None:
    assert bench("--methods", "copy") == 0
    shutil.copytree(only_run() / "predictions" / "copy", "files")
    assert score_folder(tiny_dataset, "files", "--out", "others") == 0
    (other,) = Path("others").iterdir()
    before = of_method(other, "other")
    shutil.copy("files/slim/wave/child.npz", "files/average/wave/child.npz")
    assert score_folder(tiny_dataset, "files", "--out", "others") == 0
    changed = of_method(other, "other")["mse"] != before["mse"]
    assert before[changed][["source", "motion", "target"]].to_numpy().tolist() == [["average", "wave", "child"]]


@pytest.fixture
def rigged(tmp_path: Path) -> Dataset:
    """Two characters with more than the canonical joints."""
    skeleton = human_skeleton(extra_joints=True, dtype=torch.float32)
    characters = [random_character(skeleton, name=name) for name in ("a", "b")]
    motion = random_motion(skeleton, 6, dtype=torch.float32)
    row = SplitRow("UC+UM", "a", "walk", "b")
    return write_folder_dataset(
        tmp_path / "rigged",
        name="rigged",
        characters=characters,
        clips=[Clip("walk", characters[0], motion)],
        splits=[Split("default", (row,))],
        seen_characters={"a"},
        seen_motions=set(),
    )


@pytest.mark.parametrize("canonical", [True, False])
def test_an_npz_may_hold_the_canonical_joints_or_all_of_them(tmp_path: Path, rigged: Dataset, canonical: bool) -> None:
    (row,) = rigged.split().rows
    source, target = rigged.clip("a", "walk"), rigged.character("b")
    motion = to_canonical_motion(source.character.skeleton, source.motion) if canonical else source.motion
    path = tmp_path / "m.npz"
    np.savez(path, root_translation=motion.root_translation, local_rotations=motion.local_rotations, fps=motion.fps)
    loaded = load_external_motion(path, rigged, row, unit=0.01)
    assert loaded.joint_count == target.skeleton.joint_count > 22
    torch.testing.assert_close(
        joint_positions(target.skeleton, loaded),
        joint_positions(target.skeleton, source.motion),
        rtol=0,
        atol=1e-5,  # float32, a few hundred operations
    )


def test_an_npz_with_another_number_of_joints_is_refused(tmp_path: Path, rigged: Dataset) -> None:
    (row,) = rigged.split().rows
    path = tmp_path / "m.npz"
    np.savez(path, root_translation=np.zeros((6, 3)), local_rotations=np.tile([0, 0, 0, 1.0], (6, 23, 1)), fps=30.0)
    with pytest.raises(MethodOutputError, match=r"\(T, 22, 4\) or \(T, \d+, 4\), got \(6, 23, 4\)"):
        load_external_motion(path, rigged, row, unit=0.01)


def test_a_file_in_centimetres_is_refused(tmp_path: Path, rigged: Dataset) -> None:
    (row,) = rigged.split().rows
    motion = rigged.clip("a", "walk").motion
    root = 100 * motion.root_translation
    path = tmp_path / "m.npz"
    np.savez(path, root_translation=root, local_rotations=motion.local_rotations, fps=motion.fps)
    with pytest.raises(MethodOutputError, match=r"hips are \d+ m above the floor.*root_translation must be in metres"):
        load_external_motion(path, rigged, row, unit=0.01)


def test_npz_comes_before_bvh_and_nothing_names_both(tmp_path: Path) -> None:
    row = SplitRow("UC+UM", "a", "walk", "b")
    with pytest.raises(MethodOutputError, match=r"\.npz or \.bvh"):
        find_external_file(tmp_path, row)
    (tmp_path / "a" / "walk").mkdir(parents=True)
    for suffix in (".bvh", ".npz"):
        (tmp_path / "a" / "walk" / f"b{suffix}").touch()
        assert find_external_file(tmp_path, row).suffix == suffix


def test_a_run_is_judged_by_other_metrics_without_its_methods(
    bench: Callable[..., int], lab: PluginFolder, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("--methods", "plain", metrics="mse") == 0
    run = only_run()
    predicted = times(run, "predictions")
    monkeypatch.setenv("LAB_LOG", str(workplace / "log"))
    assert main(["score", run.name, "--metrics", "acceleration,tall_value", "--no-track"]) == 0
    assert set(scores().columns) >= {"acceleration", "tall_value"}
    assert "mse" not in scores().columns
    assert times(run, "predictions") == predicted
    assert not any(line.startswith("Plain") for line in Path("log").read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([], "either a run, or --predictions"),
        (["--predictions", "."], "--name NAME"),
        (["--name", "x"], "--predictions DIR"),
        (["some-run", "--predictions", ".", "--name", "x"], "either a run"),
        (["some-run"], "unknown run in runs 'some-run'"),
        (["some-run", "--split", "all"], "--split cannot change"),
        (["--predictions", "nowhere", "--name", "x"], "no folder nowhere"),
        (["--predictions", ".", "--name", "x", "--unit", "0"], "--unit"),
        (["--predictions", ".", "--name", "x", "--unit", "nan"], "--unit"),
        (["--predictions", ".", "--name", "ground-truth"], "reference row"),
    ],
)
def test_wrong_use_is_explained(
    workplace: Path, arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *arguments]) == 2
    assert hint in capsys.readouterr().err
    assert list(workplace.iterdir()) == []
