"""``bench data import|check|show``: what they print and write, and one line for everything that cannot work."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from retargetbench.cli import data, main
from retargetbench.datasets.check import check_dataset
from retargetbench.datasets.folder import FolderDataset
from retargetbench.datasets.summary import summarise
from retargetbench.rest_pose import t_pose_angles

if TYPE_CHECKING:
    from pathlib import Path

ATOMS = {"UC+UM", "UC+SM", "SC+UM", "SC+SM"}


@pytest.fixture(scope="module")
def imported(r2et_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset made by the command; not to be changed."""
    path = tmp_path_factory.mktemp("imported") / "mix"
    assert main(["data", "import", "r2et", str(r2et_files), "-o", str(path)]) == 0
    return path


@pytest.fixture
def own(imported: Path, workplace: Path) -> Path:
    """A copy of that dataset, to be damaged."""
    shutil.copytree(imported, workplace / "own")
    return workplace / "own"


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


def test_import_makes_a_dataset_and_says_what_is_in_it(
    r2et_files: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "import", "r2et", str(r2et_files), "-o", "mix", "--name", "my files"]) == 0
    out, err = capsys.readouterr()
    dataset = FolderDataset(workplace / "mix")
    assert dataset.name == "my files"
    assert {row.atom for row in dataset.split().rows} == ATOMS
    rows = len(dataset.split().rows)
    assert only_line(out) == f"my files: 4 characters, 6 clips, {rows} rows, hash {dataset.hash}, in mix"
    assert "note: not there of the characters that R2ET was trained on: Big_Vegas" in err
    assert [path.name for path in workplace.iterdir()] == ["mix"]


def test_straightened_rests_are_exact_t_poses(r2et_files: Path, imported: Path, workplace: Path) -> None:
    assert main(["data", "import", "r2et", str(r2et_files), "-o", "straight", "--straighten"]) == 0
    assert max(t_pose_angles(FolderDataset(workplace / "straight").character("Mousey").skeleton).values()) < 1e-3
    assert max(t_pose_angles(FolderDataset(imported).character("Mousey").skeleton).values()) > 3


def test_a_file_that_cannot_be_used_is_named_and_makes_the_exit_code_1(
    r2et_files: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(r2et_files, "files")
    broken = workplace / "files" / "demo" / "Ortiz" / "Thankful.bvh"
    broken.write_text("HIERARCHY")
    odd = broken.with_name("a:b.bvh")
    shutil.copy(broken.with_name("Salsa Dancing.bvh"), odd)
    no_utf8 = broken.with_name("\udcff.bvh")
    shutil.copy(broken.with_name("Salsa Dancing.bvh"), no_utf8)
    assert main(["data", "import", "r2et", "files", "-o", "mix"]) == 1
    out, err = capsys.readouterr()
    left_out = [line for line in err.splitlines() if line.startswith("left out: ")]
    assert len(left_out) == 3
    assert any("Thankful.bvh:1: " in line for line in left_out)
    assert any("'a:b' cannot be the name of a file" in line for line in left_out)
    assert any(r"'\udcff' cannot be the name of a file" in line for line in left_out)
    assert "5 clips" in only_line(out)
    assert len(FolderDataset(workplace / "mix").clip_names) == 5


def test_a_dataset_is_replaced_only_by_force(
    r2et_files: Path, own: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "mine.txt").write_text("")
    command = ["data", "import", "r2et", str(r2et_files), "-o", "own"]
    assert main(command) == 2
    assert "use --force to replace it" in only_line(capsys.readouterr().err)
    assert (own / "mine.txt").exists()
    assert main([*command, "--force"]) == 0
    assert not (own / "mine.txt").exists()
    assert [path.name for path in workplace.iterdir()] == ["own"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "-o", "mix"], "nowhere does not exist"),
        (["file", "-o", "mix"], "file is no folder"),
        (["empty", "-o", "mix"], "empty holds no shape file"),
        (["FILES", "-o", "empty/../file"], "is not a dataset, so it is not replaced"),
        (["FILES", "-o", "full", "--force"], "is not a dataset, so it is not replaced"),
        (["FILES", "-o", "file/mix"], "choose another folder"),
        (["FILES", "-o", "/proc/mix"], "choose another folder"),
        (["FILES", "-o", "mix", "--name", ""], "'' cannot be the name of a dataset"),
        (["FILES", "-o", "mix", "--name", "two\nlines"], "cannot be the name of a dataset"),
        (["FILES"], "Missing option '--output'"),
        (["-o", "mix"], "Missing argument 'SRC'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_import_that_cannot_be_writes_nothing(
    r2et_files: Path, workplace: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "file").write_text("mine")
    (workplace / "empty").mkdir()
    (workplace / "full").mkdir()
    (workplace / "full" / "mine").write_text("")
    before = sorted(workplace.rglob("*"))
    given = [str(r2et_files) if text == "FILES" else text for text in arguments]
    assert main(["data", "import", "r2et", *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert sorted(workplace.rglob("*")) == before


@pytest.mark.parametrize("stops_at", ["the first file", "the end"])
def test_an_interrupted_import_leaves_nothing(
    r2et_files: Path, workplace: Path, stops_at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    place = {"the first file": "importers.r2et.read_bvh", "the end": "folder_writer.index_to_csv"}[stops_at]
    monkeypatch.setattr(f"retargetbench.datasets.{place}", stop)
    assert main(["data", "import", "r2et", str(r2et_files), "-o", "mix"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert list(workplace.iterdir()) == []


def test_a_full_disk_ends_an_import_at_once(
    r2et_files: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    assert main(["data", "import", "r2et", str(r2et_files), "-o", "mix"]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("import ")]
    (line,) = errors
    assert "mix/characters/AJ.npz cannot be written: No space left on device" in line
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["imprt"], "unknown bench data command 'imprt'. Did you mean 'import'?"),
        (["import", "r2e"], "unknown bench data import command 'r2e'. Did you mean 'r2et'?"),
        (["import", "fbx"], "Available: r2et"),
        (["show"], "Missing argument 'DATASET'"),
        (["show", "capsules", "--jsn"], "--json"),
        *(
            ([command, spec], message)
            for command in ("show", "check")
            for spec, message in (
                ("capsuls", "unknown dataset 'capsuls'. Did you mean 'capsules'?"),
                ("nowhere/at/all", "folder nowhere/at/all does not exist"),
                (".", "holds no dataset: it has no dataset.yaml"),
                ("", "holds no dataset"),
            )
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_names_are_answered_with_what_there_is(
    workplace: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err


def test_what_the_system_refuses_is_one_line(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "x" * 5000]) in (1, 2)  # by Python's version, the file system is asked or not
    assert only_line(capsys.readouterr().err).startswith("error: ")


@pytest.mark.parametrize("command", [["import"], []], ids=["import", "data"])
def test_without_a_command_the_help_is_shown_as_wrong_use(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *command]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Commands:" in err


def test_show_lists_characters_clips_and_splits(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", str(imported)]) == 0
    out = capsys.readouterr().out
    dataset = FolderDataset(imported)
    assert out.startswith(f"r2et_mixamo, hash {dataset.hash}, ")
    lines = [line.split() for line in out.splitlines()]
    mousey = dataset.character("Mousey")
    joints, height = str(mousey.skeleton.joint_count), f"{mousey.height:.3f}"
    assert ["Mousey", joints, "176", height, "2", "yes"] in lines  # boxes of 8 vertices along 22 bones
    assert ["Ortiz", "Thankful", "10", "60", "yes"] in lines
    assert ["Mousey", "Gangnam", "Style", "15", "60", "no"] in lines
    rows = len(dataset.split().rows)
    assert any(line[:3] == ["default", dataset.split().hash, str(rows)] for line in lines)


def test_show_json_is_the_summary(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", str(imported), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(summarise(FolderDataset(imported))))


def test_a_registered_dataset_is_shown_by_its_name(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "capsules"]) == 0
    assert "stout" in capsys.readouterr().out


def test_check_of_a_sound_dataset_prints_measures_and_notes(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(imported), "--no-penetration"]) == 0
    out = capsys.readouterr().out
    report = check_dataset(FolderDataset(imported), penetration=False)
    assert len(report.findings) > 0
    for finding in report.findings:
        assert any(line.split()[:2] == [finding.level, *finding.subject.split()[:1]] for line in out.splitlines())
    assert any(line.startswith("Ortiz ") and line.split()[-1] == "–" for line in out.splitlines())
    assert "-0.000" not in out


def test_check_explains_every_column_with_a_unit(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(imported), "--no-penetration"]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line.startswith("character ")]
    assert len(headings) == 2
    for column in ("height m", "sole m", "off T °", "floor m", "root m/s", "turn °", "inside %"):
        assert any(column in heading for heading in headings)
        assert [line for line in lines if line.startswith(f"{column}  ")]


def test_a_long_check_shows_that_it_moves_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with data._progress("check") as progress:
        for done in range(200):
            progress(done, 200, f"clip {done}")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"check {done + 1}/200 clip {done}" for done in range(0, 200, 20)]


def test_check_json_holds_every_measure(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(imported), "--json", "--no-penetration"]) == 0
    found = json.loads(capsys.readouterr().out)
    dataset = FolderDataset(imported)
    assert found["hash"] == dataset.hash
    assert [row["name"] for row in found["characters"]] == list(dataset.character_names)
    assert [(row["character"], row["motion"]) for row in found["clips"]] == list(dataset.clip_names)
    assert {row["penetration"] for row in found["clips"]} == {None}


def test_check_measures_penetration_unless_told_not_to(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(imported), "--json"]) == 0
    shares = [row["penetration"] for row in json.loads(capsys.readouterr().out)["clips"]]
    assert all(0 <= share <= 100 for share in shares)


def test_check_names_a_damaged_file_and_ends_with_1(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "clips" / "Ortiz" / "Thankful.npz").write_bytes(b"")
    assert main(["data", "check", str(own), "--json", "--no-penetration"]) == 1
    found = json.loads(capsys.readouterr().out)
    errors = [finding for finding in found["findings"] if finding["level"] == "error"]
    assert [finding["subject"] for finding in errors] == ["Ortiz/Thankful"]
    assert "is damaged or was changed" in errors[0]["text"]


def test_a_damaged_manifest_is_one_line(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "index.csv").write_text("")
    for command in ("show", "check"):
        assert main(["data", command, str(own)]) == 1
        assert "index.csv" in only_line(capsys.readouterr().err)
