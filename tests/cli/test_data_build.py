"""``bench data build studio``: what it prints and writes, and one line for everything that cannot work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from retargetbench.cli import main
from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio import build_work, takes
from retargetbench.datasets.studio.actions import read_actions
from retargetbench.datasets.studio.dataset import StudioDataset
from retargetbench.datasets.studio.gates import Quality
from retargetbench.datasets.studio.solver import copy_performance
from retargetbench.datasets.studio.verified import Verified

if TYPE_CHECKING:
    from pathlib import Path

    from retargetbench.datasets.studio.actions import Action

FROM_CAPSULES = ["data", "build", "studio", "--bodies", "capsules", "--reference", "average"]
TWO = [*FROM_CAPSULES, "--characters", "average,stout", "--actions", "wave_right,squat"]


@pytest.fixture(scope="module")
def few_actions() -> tuple[Action, ...]:
    """Reading all actions takes more than a second."""
    known = {action.name: action for action in read_actions()}
    return tuple(known[name] for name in ("clap", "squat", "wave_right"))


@pytest.fixture(autouse=True)
def _read_few_actions(few_actions: tuple[Action, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takes, "read_actions", lambda: few_actions)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Plain copying in the place of the solver, made-up figures in that of measuring; remembers whom it was asked for.

    ``squat`` fails a gate on ``stout`` and raises on ``slim``.
    """
    asked: list[str] = []

    def solve(body, performance, copied, settings=None):
        asked.append(body.name)
        if body.name == "slim" and performance.name == "squat":
            raise ValueError("no squat")
        return Verified(copy_performance(body, performance), measure(body, None, performance, None), (), 1)

    def measure(body, motion, performance, reference):
        inside = 3.0 if (body.name, performance.name) == ("stout", "squat") else 0.25
        return Quality(None, None, None, inside, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)

    monkeypatch.setattr(build_work, "solve_verified", solve)
    monkeypatch.setattr(build_work, "measure_quality", measure)
    return asked


def test_a_build_says_what_passes_and_the_same_command_makes_nothing_anew(
    quick: list[str], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TWO, "-o", "mine"]) == 0
    out, err = capsys.readouterr()
    dataset = open_dataset("mine")
    assert isinstance(dataset, StudioDataset)
    assert out.startswith(f"studio: 2 characters, 2 actions, 2 rows, hash {dataset.hash}, in mine\n")
    assert "3 of 4 clips pass all quality gates (75.0%)" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["stout", "1", "of", "2", "50.0%"] in lines
    assert ["penetration", "1"] in lines  # the gate
    assert ["penetration", "0.25", "0.25", "1.0"] in lines  # ground truth and Copy
    assert "clips: 4/4" in err
    assert sorted(path.name for path in workplace.iterdir()) == ["mine", "mine.work"]
    assert len(quick) == 2 + 2
    assert main([*TWO, "-o", "mine"]) == 0
    assert capsys.readouterr().out == out
    assert len(quick) == 2 + 2


def test_what_could_not_be_made_is_named_and_the_exit_code_says_so(
    quick: list[str], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FROM_CAPSULES, "--characters", "slim", "--actions", "squat", "-o", "mine"]) == 1
    assert "left out: 1 clip: ValueError: no squat" in capsys.readouterr().err
    assert open_dataset("mine").clip_names == ()


def test_motions_of_a_library_take_the_place_of_actions(
    quick: list[str], r2et_files: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    motions = workplace / "motions"
    motions.mkdir()
    first = sorted(r2et_files.rglob("*.bvh"))[0].read_text()
    head, count, frame_time, frames = re.split(r"Frames:\s*(\d+)\n(.*)\n", first)
    longer = 4 * frames.splitlines()  # those of the fixture are too short for a performance
    (motions / "found it.bvh").write_text("\n".join([f"{head}Frames: {4 * int(count)}", frame_time, *longer, ""]))
    (motions / "torn.bvh").write_text("HIERARCHY")
    command = [*FROM_CAPSULES, "--characters", "average,stout", "--motions", "motions", "-o", "mine"]
    assert main(command) == 1
    err = capsys.readouterr().err
    assert "left out: torn.bvh: " in err
    dataset = open_dataset("mine")
    assert dataset.clip_names == (("average", "found_it"), ("stout", "found_it"))
    quick.clear()
    assert main(command) == 1
    assert quick == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--actions", "clpa"], "unknown action or family 'clpa'. Did you mean 'clap'?"),
        (["--motions", "m"], "--motions takes the place of --actions"),
        (["--actions", ","], "--actions names no action"),
        (["--characters", "stuot"], "unknown character 'stuot'. Did you mean 'stout'?"),
        (["--characters", "99"], "--characters must be from 1 to 6, as many as --bodies capsules has, got 99"),
        (["--reference", "averag"], "unknown character 'averag'. Did you mean 'average'?"),
        (["--bodies", "nowhere/pack"], "folder nowhere/pack does not exist"),
        (["--cluster", "slurm_partition=gpu"], "need the executor submitit"),
        (["-o", "taken"], "taken exists and is no pack, so it is not replaced"),
    ],
)
def test_wrong_use_is_told_on_one_line_before_anything_is_built(
    arguments: list[str], message: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "taken").mkdir()
    (workplace / "taken" / "thesis.txt").write_text("important")
    assert main([*TWO, "-o", "mine", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in workplace.iterdir()] == ["taken"]


def test_an_interruption_says_that_the_build_goes_on(
    quick: list[str], workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build_work, "solve_verified", interrupt)
    assert main([*TWO, "-o", "mine"]) == 130
    assert "the same command continues" in capsys.readouterr().err
