"""bench plugin new writes a package that works at once; bench plugin check judges a method."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from fake_plugins import plugin_folder

from retargetbench import scaffold
from retargetbench.cli import main


def test_new_writes_a_package_and_says_what_is_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plugin", "new", "lift_off", "--dir", str(tmp_path / "made" / "here")]) == 0
    package = tmp_path / "made" / "here" / "retargetbench-lift-off"
    assert f"pip install -e {package}" in capsys.readouterr().out
    files = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert files == {
        "README.md",
        "pyproject.toml",
        "retargetbench_lift_off/__init__.py",
        "retargetbench_lift_off/method.py",
        "tests/test_lift_off.py",
    }
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["name"] == "retargetbench-lift-off"
    assert project["entry-points"] == {"retargetbench": {"lift_off": "retargetbench_lift_off"}}
    assert "class LiftOff(RetargetMethod)" in (package / "retargetbench_lift_off" / "method.py").read_text()
    assert not any("$" in path.read_text() for path in package.rglob("*") if path.is_file())


def test_new_writes_into_the_working_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plugin", "new", "mine"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["retargetbench-mine"]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("metric", "mse", "there is a column 'mse' already"),
        ("metric", "joints", "there is a metric 'joints' already"),
        ("metric", "default", "there is a metric 'default' already"),
        ("dataset", "capsules", "there is a dataset 'capsules' already"),
    ],
)
def test_new_refuses_a_name_that_is_taken_by_what_the_plugin_brings(
    kind: str, name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["plugin", "new", name, "--kind", kind, "--dir", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mine", "must be a Python identifier in lower case"),
        ("my-method", "must be a Python identifier"),
        ("2nd", "must be a Python identifier"),
        ("a__b", "must be a Python identifier"),
        ("", "must be a Python identifier"),
        ("../up", "must be a Python identifier"),
        ("lambda", "must be a Python identifier"),
        ("copy", "there is a plugin 'copy' already"),
        ("core", "there is a plugin 'core' already"),
        ("source", "there is a method 'source' already"),
        ("suites", "a package retargetbench_suites is installed already"),
    ],
)
def test_new_refuses_a_name_that_cannot_work(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["plugin", "new", name, "--dir", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_new_does_not_touch_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    there = tmp_path / "retargetbench-mine"
    there.mkdir()
    assert main(["plugin", "new", "mine", "--dir", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert list(there.iterdir()) == []


def test_new_refuses_a_folder_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").touch()
    assert main(["plugin", "new", "mine", "--dir", str(tmp_path / "file")]) == 2
    assert "choose another --dir" in capsys.readouterr().err


def test_new_leaves_nothing_when_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_text = Path.write_text

    def write_until_the_test(self: Path, *arguments: object) -> int:
        if self.parent.name == "tests":
            raise KeyboardInterrupt
        return write_text(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", write_until_the_test)
    assert main(["plugin", "new", "mine", "--dir", str(tmp_path)]) == 130
    assert list(tmp_path.iterdir()) == []


def run(arguments: list[str], **variables: str) -> str:
    """Run Python with these arguments and return what it prints."""
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


BENCH = "import sys; from retargetbench.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("kind", ["method", "metric", "dataset"])
def test_what_new_writes_passes_its_own_tests_and_the_check(kind: scaffold.PluginKind, tmp_path: Path):
    package = scaffold.write_plugin("lift_off", tmp_path, kind)
    assert not any("$" in path.read_text() for path in package.rglob("*") if path.is_file())
    info = tmp_path / "retargetbench_lift_off-0.1.0.dist-info"  # what an installation would write
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: retargetbench-lift-off\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[retargetbench]\nlift_off = retargetbench_lift_off\n")
    path = os.pathsep.join([str(tmp_path), str(package)])
    assert " passed" in run([sys.executable, "-m", "pytest", "-q", str(package)], PYTHONPATH=path)
    if kind == "dataset":
        assert "wrote" in run([sys.executable, "-m", "retargetbench_lift_off.make"], PYTHONPATH=path)
    assert "lift_off conforms" in run([sys.executable, "-c", BENCH, "plugin", "check", "lift_off"], PYTHONPATH=path)


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("hatchling") is None or find_spec("editables") is None, reason="needs hatchling and editables to build"
)
def test_what_new_writes_installs_with_pip(tmp_path: Path):
    package = scaffold.write_plugin("lift_off", tmp_path)
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")])
    python = str(tmp_path / "venv" / "bin" / "python")
    ours = sysconfig.get_path("purelib")
    libraries = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    (Path(libraries) / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps"]
    run([*pip, "--no-build-isolation", "-e", str(package)])
    assert " passed" in run([python, "-m", "pytest", "-q", str(package)])
    assert "lift_off conforms" in run([python, "-c", BENCH, "plugin", "check", "lift_off"])


def test_check_of_a_good_method_prints_the_report(capsys: pytest.CaptureFixture[str]):
    assert main(["plugin", "check", "copy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "copy conforms"
    assert all(line.startswith("  ok    ") for line in lines[1:])


def test_check_of_a_bad_method_ends_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with plugin_folder(tmp_path, monkeypatch) as folder:
        folder.add_method("bad", "bad")  # its target does not exist
        assert main(["plugin", "check", "bad"]) == 1
    assert "FAIL  can be made: making it raised method 'bad' of plugin bad" in capsys.readouterr().out


BAD_METRIC = """
@hookimpl
def register_metrics(register):
    register(MetricInfo("odd", "{module}_metric:Odd", (Column("odd_column", "m", "lower", "a metric"),)))

@hookimpl
def register_datasets(register):
    register(DatasetInfo("odd_data", "a dataset", "{module}_metric:open_odd"))
"""
ODD = """
from retargetbench import Metric, MetricValue

class Odd(Metric):
    def evaluate(self, evaluation, columns):
        return {"odd_column": MetricValue(float("inf"))}

def open_odd():
    return "no dataset"
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("odd", ["odd fails", "odd_column has the value inf"]),
        ("odd_column", ["odd fails", "odd_column has the value inf"]),
        ("odd_data", ["odd_data fails", "it is a str; return a Dataset"]),
        ("odd_plugin", ["odd fails", "odd_data fails"]),
    ],
)
def test_check_takes_metrics_columns_datasets_and_whole_plugins(
    name: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with plugin_folder(tmp_path, monkeypatch) as folder:
        module = folder.add("odd_plugin", BAD_METRIC)
        (tmp_path / f"{module}_metric.py").write_text(ODD)
        assert main(["plugin", "check", name]) == 1
    out = capsys.readouterr().out
    assert [text for text in expected if text not in out] == []


def test_check_of_a_broken_plugin_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with plugin_folder(tmp_path, monkeypatch) as folder:
        folder.add("bad", "raise OSError('no disk')")
        assert main(["plugin", "check", "bad"]) == 1
    assert capsys.readouterr().err == "error: plugin bad (bad-dist 1.0) is broken: OSError: no disk\n"
