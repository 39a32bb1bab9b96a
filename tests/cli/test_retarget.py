"""``bench retarget``: one clip on one character into a file, and one line for everything that cannot work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from glb_files import LoadedGlb, validator_issues
from mixamo_like import evaluate_bvh, humanoid, random_motion, write_bvh

from retargetbench import create_method
from retargetbench.cli import main
from retargetbench.clip import Clip
from retargetbench.kinematics import Skinner, joint_positions
from retargetbench.motion import Motion
from retargetbench.retargeting import load_character, load_clip, retarget_clip, root_path_scale
from retargetbench.skeleton import CANONICAL_JOINTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Retarget = Callable[..., int]


@pytest.fixture
def retarget(r2et_files: Path, workplace: Path) -> Retarget:
    """Call ``bench retarget`` for Ortiz' salsa on Mousey; options replace those, None leaves one out, True is bare."""

    def run(**options: object) -> int:
        given: dict[str, object] = {
            "method": "copy",
            "source": r2et_files / "demo" / "Ortiz" / "Salsa Dancing.bvh",
            "source-character": r2et_files / "shape" / "Ortiz.npz",
            "target": r2et_files / "shape" / "Mousey.npz",
            "output": "out.glb",
        }
        given |= {name.replace("_", "-"): value for name, value in options.items()}
        texts = (f"--{k}" if v is True else f"--{k}={v}" for k, v in given.items() if v is not None)
        return main(["retarget", *texts])

    return run


def by_the_api(files: Path) -> tuple[Clip, Clip]:
    """The source and the result of the same retargeting."""
    loaded = load_clip(str(files / "demo" / "Ortiz" / "Salsa Dancing.bvh"), str(files / "shape" / "Ortiz.npz"))
    target = load_character(str(files / "shape" / "Mousey.npz"))
    return loaded.clip, Clip("result", target, retarget_clip(create_method("copy"), loaded.clip, target))


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


def test_a_bvh_file_holds_the_motion_of_the_api(
    retarget: Retarget, r2et_files: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retarget(output="out.bvh") == 0
    source, result = by_the_api(r2et_files)
    names, _, positions = evaluate_bvh(workplace / "out.bvh")
    expected = joint_positions(result.character.skeleton, result.motion).numpy()
    columns = [names.index(name) for name in result.character.skeleton.names]
    np.testing.assert_allclose(positions[:, columns] / 100, expected, atol=2e-6)  # six decimals of centimetres, float32
    line = only_line(capsys.readouterr().out)
    scale = root_path_scale(source, result.character, result.motion)
    assert line == (
        f"wrote out.bvh: Ortiz/Salsa Dancing on Mousey, 12 frames, 0.20 s at 60 fps, root scale {scale:.3f}"
    )
    assert scale == pytest.approx(result.character.height / source.character.height, rel=1e-4)


def test_a_glb_file_is_posed_by_another_program_as_by_the_api(
    retarget: Retarget, r2et_files: Path, workplace: Path
) -> None:
    assert retarget() == 0
    _, result = by_the_api(r2et_files)
    loaded = LoadedGlb(workplace / "out.glb")
    posed = Skinner.from_character(result.character).pose_motion(result.motion).numpy()
    for frame in (0, 5, 11):
        np.testing.assert_allclose(loaded.pose(0, frame), posed[frame], atol=1e-5)  # float32
    assert [path.name for path in workplace.iterdir()] == ["out.glb"]


def test_the_khronos_validator_finds_nothing(retarget: Retarget, workplace: Path) -> None:
    assert retarget() == 0
    issues = validator_issues(workplace / "out.glb")
    assert (issues["numErrors"], issues["numWarnings"]) == (0, 0)


def test_options_of_the_method_change_the_result(retarget: Retarget, r2et_files: Path, workplace: Path) -> None:
    assert retarget(output="unscaled.bvh", set="copy.root=none") == 0
    source, result = by_the_api(r2et_files)
    motion = retarget_clip(create_method("copy", options={"root": "none"}), source, result.character)
    _, _, positions = evaluate_bvh(workplace / "unscaled.bvh")
    np.testing.assert_allclose(positions[:, 0] / 100, motion.root_translation.numpy(), atol=2e-6)
    assert (motion.root_translation - result.motion.root_translation).abs().max() > 0.05


def test_parts_of_datasets_need_no_files(retarget: Retarget, workplace: Path, tiny_dataset: Path) -> None:
    parts = {"source": f"{tiny_dataset}:slim/wave", "source_character": None, "target": "capsules:child"}
    assert retarget(**parts, output="out.bvh") == 0
    names, _, positions = evaluate_bvh(workplace / "out.bvh")
    assert sorted(names) == sorted(CANONICAL_JOINTS)
    assert len(positions) == 24


def test_an_output_that_is_there_is_replaced_as_a_whole(retarget: Retarget, workplace: Path) -> None:
    assert retarget() == 0
    once = (workplace / "out.glb").read_bytes()
    (workplace / "out.glb").write_text("something else")
    assert retarget() == 0
    assert (workplace / "out.glb").read_bytes() == once


def test_names_may_have_blanks_and_any_letters(retarget: Retarget, workplace: Path) -> None:
    (workplace / "a folder").mkdir()
    assert retarget(output="a folder/Größe 日本.GLB") == 0
    assert (workplace / "a folder" / "Größe 日本.GLB").read_bytes().startswith(b"glTF")


def test_a_rig_with_a_little_longer_bones_is_bound_and_said(
    retarget: Retarget, r2et_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retarget(source=r2et_files / "demo" / "Ortiz" / "Situp To Idle.bvh") == 0
    out, err = capsys.readouterr()
    assert re.search(r"warning: \S+.*Situp To Idle.bvh: bone \S+ is 0\.\d+ m long in Ortiz's mesh and 0\.\d+ m", err)
    assert "on Mousey" in out
    assert out.endswith(", 1 warning\n")


def test_a_wrong_unit_is_warned_of(retarget: Retarget, capsys: pytest.CaptureFixture[str]) -> None:
    assert retarget(unit=1) == 0
    err = capsys.readouterr().err
    assert "Mousey is" in err
    assert "m tall; is --unit 1 right for its file?" in err


def damaged(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("no such thing")
    return path


def lacking_a_neck(folder: Path) -> Path:
    """Ortiz' rig without a joint that every humanoid has."""
    rig = humanoid(scale=1.05)
    rig.names[rig.names.index("mixamorig:Neck")] = "mixamorig:Nacken"
    write_bvh(folder / "Neckless.bvh", rig, *random_motion(rig, 3))
    return folder / "Neckless.bvh"


def shape_without_neck(folder: Path, files: Path) -> Path:
    with np.load(files / "shape" / "Mousey.npz") as stored:
        arrays = dict(stored)
    arrays["joint_names"] = np.where(arrays["joint_names"] == "Neck", "Nacken", arrays["joint_names"])
    np.savez(folder / "Neckless.npz", **arrays)
    return folder / "Neckless.npz"


WRONG_USE = {
    "unknown method": ({"method": "coppy"}, "unknown method 'coppy'. Did you mean 'copy'?"),
    "unknown option": ({"set": "copy.rot=none"}, "Did you mean 'root'?"),
    "value of an option": ({"set": "copy.root=nil"}, "height_ratio, hip_height, none"),
    "option of another": ({"set": "san.root=none"}, "does not fit --method copy"),
    "no option": ({"set": "root"}, "method.option=value"),
    "unknown device": ({"device": "gpu"}, "auto, cpu, cuda"),
    "unit of zero": ({"unit": 0}, "--unit"),
    "missing source": ({"source": "nowhere.bvh"}, "source file nowhere.bvh does not exist"),
    "source of another kind": ({"source": "clip.fbx"}, "suffix '.fbx' is not accepted"),
    "source is a folder": ({"source": "."}, "is neither a file nor a part of a dataset"),
    "empty source": ({"source": ""}, "is neither a file nor a part of a dataset"),
    "no source character": ({"source_character": None}, "give its character too"),
    "missing character": ({"source_character": "X.npz"}, "character file X.npz does not exist"),
    "missing target": ({"target": "X.npz"}, "character file X.npz does not exist"),
    "target of another kind": ({"target": "X.obj"}, "suffix '.obj' is not accepted"),
    "unknown dataset": ({"target": "capsuls:child"}, "Did you mean 'capsules'?"),
    "unknown character": ({"target": "capsules:chld"}, "Did you mean 'child'?"),
    "no character": ({"target": "capsules:"}, "names no part of a dataset"),
    "superfluous character": ({"source": "capsules:slim/wave"}, "has a character of its own"),
    "unknown motion": ({"source": "capsules:slim/wav", "source_character": None}, "Did you mean 'wave'?"),
    "no motion": ({"source": "capsules:slim", "source_character": None}, "motions of slim: arms_crossed"),
    "straightened dataset": ({"target": "capsules:child", "straighten": True}, "capsules:child keeps the rest"),
    "output of another kind": ({"output": "out.fbx"}, "suffix '.fbx' is not one of .bvh, .glb"),
    "output without suffix": ({"output": "out"}, "suffix '' is not one of"),
    "no folder for the output": ({"output": "nowhere/out.glb"}, "its folder does not exist"),
    "endless name": ({"output": f"{300 * 'x'}.glb"}, "File name too long"),
    "forbidden place": ({"output": "/proc/out.glb"}, "/proc/out.glb cannot be written"),
    "no output": ({"output": None}, "Missing option '--output'"),
    "no target": ({"target": None}, "Missing option '--target'"),
}


@pytest.mark.parametrize("case", WRONG_USE)
def test_wrong_use_is_one_line_and_leaves_nothing(
    retarget: Retarget, workplace: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options, message = WRONG_USE[case]
    assert retarget(**options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.startswith("error: ")
    # What the command line itself refuses says in a second line where the help is.
    assert len(err.splitlines()) == (2 if "See 'bench retarget --help'" in err else 1)
    assert list(workplace.iterdir()) == []


def test_an_output_that_is_a_folder_or_an_input_is_refused(
    retarget: Retarget, r2et_files: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "out.glb").mkdir()
    assert retarget() == 2
    assert "it is a folder" in only_line(capsys.readouterr().err)
    source = r2et_files / "demo" / "Ortiz" / "Salsa Dancing.bvh"
    before = source.read_bytes()
    assert retarget(output=source) == 2
    assert "also an input" in only_line(capsys.readouterr().err)
    assert source.read_bytes() == before


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("damaged clip", "a BVH file begins with HIERARCHY"),
        ("clip without a neck", "lacks 1 of the 22 joints: Neck"),
        ("clip of another character", "the two files are not of one character, or not in one unit"),
        ("damaged character", "is no readable .npz archive"),
        ("target without a neck", "Neck"),
    ],
)
def test_files_that_do_not_fit_are_one_line_and_leave_nothing(
    retarget: Retarget, r2et_files: Path, tmp_path: Path, workplace: Path, case: str, message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    options = {
        "damaged clip": lambda: {"source": damaged(tmp_path, "clip.bvh")},
        "clip without a neck": lambda: {"source": lacking_a_neck(tmp_path)},
        "clip of another character": lambda: {"source_character": r2et_files / "shape" / "Mousey.npz"},
        "damaged character": lambda: {"source_character": damaged(tmp_path, "X.npz")},
        "target without a neck": lambda: {"target": shape_without_neck(tmp_path, r2et_files)},
    }[case]()
    assert retarget(**options) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in only_line(err)
    assert list(workplace.iterdir()) == []


def test_an_interrupted_command_leaves_nothing(
    retarget: Retarget, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", stop)
    assert retarget() == 130
    assert only_line(capsys.readouterr().err) == "interrupted"
    assert list(workplace.iterdir()) == []


def test_a_root_that_stays_in_place_has_no_scale(r2et_files: Path) -> None:
    source, result = by_the_api(r2et_files)
    still = source.motion.root_translation[:1].expand(12, 3)
    motion = Motion(still, source.motion.local_rotations, source.motion.fps)
    clip = Clip("still", source.character, motion)
    stays = retarget_clip(create_method("copy"), clip, result.character)
    assert root_path_scale(clip, result.character, stays) is None
    assert torch.equal(stays.root_translation, stays.root_translation[:1].expand(12, 3))
