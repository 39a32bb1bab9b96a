"""``bench render``: films and sheets of clips and of runs, and one line for everything that cannot work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from PIL import Image

from retargetbench.cli import main

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("--size", "64")


@pytest.fixture(scope="module")
def run_folder(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of copy, and of copy without root scale, on the tiny dataset."""
    out = tmp_path_factory.mktemp("runs")
    methods = ("--methods", "copy,flat=copy", "--set", "flat.root=none", "--metrics", "mse")
    options = ("--split", "all", "--no-track", "--run", "look", "--out", str(out))
    assert main(["run", "--dataset", str(tiny_dataset), *methods, *options]) == 0
    return out / "look"


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


def size_of_film(path: Path) -> tuple[int, int, int, float]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return stream.width, stream.height, sum(1 for _ in container.decode(stream)), float(stream.average_rate)


def test_a_film_shows_clips_side_by_side(workplace: Path, tiny_dataset: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["render", f"{tiny_dataset}:*/wave", "capsules:slim/clap", "-o", "film.mp4", *SMALL]) == 0
    out, err = capsys.readouterr()
    width, height, frames, fps = size_of_film(workplace / "film.mp4")
    assert (frames, fps) == (62, 30.0)
    assert width == 2 * 64 + 2
    assert height > 2 * 64  # two rows with captions
    assert only_line(out) == "wrote film.mp4: 4 pictures side by side, 62 frames, 2.07 s at 30 fps"
    assert "draw frames: 62/62" in err
    assert [path.name for path in workplace.iterdir()] == ["film.mp4"]


def test_a_sheet_has_moments_or_motions_in_its_columns(workplace: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["render", "capsules:slim/wave", "-o", "a.png", *SMALL, "--times", "0.1, 1,2"]) == 0
    assert only_line(capsys.readouterr().out) == "wrote a.png: 1 row of 3 pictures"
    assert main(["render", "capsules:[sc]*/w*", "-o", "b.png", *SMALL]) == 2  # brackets are letters
    capsys.readouterr()
    assert main(["render", "capsules:s*/wa*", "-o", "b.png", *SMALL, "--columns", "motions", "--camera", "-20"]) == 0
    assert only_line(capsys.readouterr().out) == "wrote b.png: 2 rows of 2 pictures"
    with Image.open(workplace / "b.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.width > 2 * 64


def test_a_task_of_a_run_shows_source_truth_and_methods(
    workplace: Path, run_folder: Path, capsys: pytest.CaptureFixture[str]
):
    task = ("--task", "slim/wave/child")
    assert main(["render", str(run_folder), *task, "-o", "all.mp4", *SMALL]) == 0
    assert "4 pictures side by side, 24 frames" in capsys.readouterr().out
    by_id = ("look", "--out", str(run_folder.parent))
    assert main(["render", *by_id, *task, "-o", "some.png", "--methods", "flat", *SMALL]) == 0
    assert only_line(capsys.readouterr().out) == "wrote some.png: 3 rows of 6 pictures"


def test_a_method_without_motion_is_noted_and_left_out(
    workplace: Path, run_folder: Path, capsys: pytest.CaptureFixture[str]
):
    lost = run_folder / "predictions" / "flat" / "average" / "wave" / "child.npz"
    kept = lost.read_bytes()
    lost.unlink()
    try:
        command = ["render", str(run_folder), "--task", "average/wave/child", "-o", "x.png", *SMALL]
        assert main(command) == 0
        out, err = capsys.readouterr()
        assert "3 rows" in out
        assert "note: flat has no motion for average/wave/child\n" in err
        assert main([*command, "--methods", "flat"]) == 1
        assert "flat has no motion for average/wave/child" in only_line(capsys.readouterr().err)
    finally:
        lost.write_bytes(kept)


def test_the_same_command_gives_the_same_bytes_and_options_change_them(workplace: Path):
    def picture(name: str, *options: str, clip: str = "capsules:stout/walk") -> bytes:
        assert main(["render", clip, "-o", name, *SMALL, "--times", "0.5,1.5", *options]) == 0
        return (workplace / name).read_bytes()

    plain = picture("a.png")
    assert picture("b.png") == plain
    others = [
        picture("c.png", "--camera", "back"),
        picture("d.png", "--follow"),
        picture("e.png", "--size", "64x80"),
        picture("f.png", "--camera", "180.5"),
    ]
    assert len({plain, *others}) == 5
    assert picture("g.png", "--camera", "180") == others[0]


def test_penetration_is_marked_unless_it_is_not_wanted(workplace: Path):
    # An arm that hangs beside a slim body is in the flank of a stout one.
    options = ["--split", "UC+UM", "--metrics", "mse", "--no-track", "--run", "r"]
    assert main(["run", "--dataset", "capsules", "--methods", "copy", *options]) == 0
    command = ["render", "r", "--task", "slim/hand_to_head/stout", "--methods", "copy", "--size", "128", "--times", "1"]
    assert main([*command, "-o", "marked.png"]) == 0
    assert main([*command, "-o", "plain.png", "--no-mark-penetration"]) == 0
    marked, plain = (np.asarray(Image.open(workplace / name)).astype(int) for name in ("marked.png", "plain.png"))
    changed = (marked != plain).any(-1)
    redder = (marked[..., 0] - marked[..., 1]) - (plain[..., 0] - plain[..., 1])
    assert (redder[changed] > 0).all()
    assert (redder > 40).sum() > 20
    above_the_last = slice(0, -128)  # source and ground truth, in which nothing is inside
    assert not changed[above_the_last].any()


WRONG_USE = {
    "no source": ([], "Missing argument"),
    "no dataset": (["slim/wave"], "'slim/wave' names no clip"),
    "unknown dataset": (["capsuls:slim/wave"], "Did you mean 'capsules'?"),
    "unknown dataset of a pattern": (["capsuls:slim/*"], "Did you mean 'capsules'?"),
    "unknown character": (["capsules:slm/wave"], "Did you mean 'slim'?"),
    "unknown motion": (["capsules:slim/wav"], "Did you mean 'wave'?"),
    "no match": (["capsules:slim/z*"], "no clip of dataset capsules matches 'slim/z*'"),
    "too many": (["capsules:*/*", "capsules:*/*"], "matches 48 clips, of which 64 fit"),
    "size": (["capsules:slim/wave", "--size", "9"], "--size '9' is not N or WxH"),
    "size of words": (["capsules:slim/wave", "--size", "12 x 12"], "--size '12 x 12' is not"),
    "camera": (["capsules:slim/wave", "--camera", "top"], "--camera 'top' is not one of front, three-quarter, side"),
    "camera of no number": (["capsules:slim/wave", "--camera", "nan"], "--camera 'nan'"),
    "columns": (["capsules:slim/wave", "--columns", "0"], "--columns '0' is not a number from 1 to 100"),
    "times": (["capsules:slim/wave", "--times", "1,two"], "'two' is no time in seconds"),
    "negative time": (["capsules:slim/wave", "--times=-1"], "'-1' is no time in seconds"),
    "no times": (["capsules:slim/wave", "--times", ","], "names no moment"),
    "late": (["capsules:slim/wave", "--times", "99"], "slim/wave ends at 2.30 s"),
    "times and columns": (["capsules:slim/wave", "--times", "1", "--columns", "2"], "leave out --columns"),
    "times of motions": (["capsules:slim/wave", "--times", "1,2", "--columns", "motions"], "only one"),
    "film of moments": (["capsules:slim/wave", "--times", "1", "-o", "x.mp4"], "--times is for sheets"),
    "film of motions": (["capsules:slim/wave", "--columns", "motions", "-o", "x.mp4"], "is for sheets"),
    "film too large": (["capsules:*/wave", "--size", "2048", "-o", "x.mp4"], "too large"),
    "sheet too large": (["capsules:*/*", "--size", "2048", "-o", "x.png"], "too large"),
    "methods without a task": (["capsules:slim/wave", "--methods", "copy"], "--methods belongs to a run"),
    "two runs": (["a", "b", "--task", "slim/wave/child"], "of one run, but 2 sources"),
    "unknown run": (["nowhere", "--task", "slim/wave/child"], "unknown run in runs 'nowhere'"),
    "device": (["capsules:slim/wave", "--device", "gpu"], "auto, cpu, cuda"),
    "suffix": (["capsules:slim/wave", "-o", "x.gif"], "suffix '.gif' is not one of .mp4, .png"),
    "folder": (["capsules:slim/wave", "-o", "nowhere/x.png"], "its folder does not exist"),
}


@pytest.mark.parametrize("case", WRONG_USE)
def test_wrong_use_is_one_line_and_leaves_nothing(workplace: Path, case: str, capsys: pytest.CaptureFixture[str]):
    arguments, message = WRONG_USE[case]
    output = () if "-o" in arguments else ("-o", "x.png")
    assert main(["render", *arguments, *output]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == (2 if "See 'bench render --help'" in err else 1)
    assert list(workplace.iterdir()) == []


def test_names_that_a_run_does_not_have_are_answered_with_the_closest(
    workplace: Path, run_folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["render", str(run_folder), "--task", "slim/wave/chld", "-o", "x.png"]) == 2
    line = only_line(capsys.readouterr().err)
    assert "Did you mean 'slim/wave/child'?" in line
    assert "closest of 12" in line
    assert main(["render", str(run_folder), "--task", "slim/wave/child", "--methods", "cpy", "-o", "x.png"]) == 2
    assert "Did you mean 'copy'?" in only_line(capsys.readouterr().err)


@pytest.mark.parametrize("name", ["x.mp4", "x.png"])
def test_an_interrupted_command_leaves_what_was_there(
    workplace: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    (workplace / name).write_text("old")
    monkeypatch.setattr("os.replace", stop)
    assert main(["render", "capsules:slim/clap", "-o", name, *SMALL]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"
    assert [path.name for path in workplace.iterdir()] == [name]
    assert (workplace / name).read_text() == "old"


def test_a_missing_package_ends_the_command_before_any_work(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    assert main(["render", "capsules:slim/clap", "-o", "x.mp4"]) == 1
    assert "needs the package 'av': install it with pip install 'retargetbench[render]'" in only_line(
        capsys.readouterr().err
    )
