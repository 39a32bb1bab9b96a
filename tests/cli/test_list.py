"""bench list: tables for people, JSON for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fake_plugins import PluginFolder, plugin_folder

from retargetbench.cli import main
from retargetbench.cli.listing import format_table
from retargetbench.metrics import BUILTIN_METRICS

METHOD_WITHOUT_CLASS = """
@hookimpl
def register_methods(register):
    register(MethodInfo("half", "a method", "no_such_module:Method"))
"""

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retargetbench.registry import MetricInfo


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginFolder]:
    with plugin_folder(tmp_path, monkeypatch) as folder:
        yield folder


def listed(what: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["list", what, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row for row in rows}


def test_methods_as_json_tell_all_that_is_registered(capsys: pytest.CaptureFixture[str]):
    copy = listed("methods", capsys)["copy"]
    assert copy["target"] == "retargetbench_copy.method:CopyMethod"
    assert copy["needs_training"] is False
    assert {"summary", "paper", "year", "fidelity", "uses_geometry", "checkpoint"} <= set(copy)
    assert (copy["plugin"], copy["distribution"], copy["error"]) == ("copy", "retargetbench", "")


def test_metrics_as_json_are_the_columns_of_the_table(capsys: pytest.CaptureFixture[str]):
    rows = listed("metrics", capsys)
    columns = {column.name: (info, column) for info in BUILTIN_METRICS for column in info.columns}
    assert set(rows) == set(columns)
    for name, (info, column) in columns.items():
        assert (rows[name]["unit"], rows[name]["direction"]) == (column.unit, column.direction)
        assert (rows[name]["metric"], rows[name]["metric_version"]) == (info.name, info.version)


def test_datasets_as_json_have_a_licence(capsys: pytest.CaptureFixture[str]):
    assert listed("datasets", capsys)["capsules"]["licence"]


def test_plugins_as_json_tell_hooks_and_what_they_provide(capsys: pytest.CaptureFixture[str]):
    copy = listed("plugins", capsys)["copy"]
    assert copy["hooks"] == ["register_methods"]
    assert copy["provides"] == {"method": ["copy"]}
    assert (copy["state"], copy["error"], copy["module"]) == ("ok", "", "retargetbench_copy")


def test_a_broken_plugin_is_listed_with_its_reason(folder: PluginFolder, capsys: pytest.CaptureFixture[str]):
    folder.add("bad", "raise OSError('no disk')", distribution="bad-package", version="0.9")
    bad = listed("plugins", capsys)["bad"]
    assert (bad["state"], bad["error"]) == ("broken", "OSError: no disk")
    assert (bad["distribution"], bad["version"]) == ("bad-package", "0.9")
    assert main(["list", "plugins"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("bad "))
    assert line.split() == ["bad", "broken", "bad-package", "0.9", "OSError:", "no", "disk"]


def test_other_listings_hint_at_broken_plugins_beside_the_table(
    folder: PluginFolder, capsys: pytest.CaptureFixture[str]
):
    folder.add("bad", "raise OSError('no disk')")
    assert main(["list", "methods"]) == 0
    out, err = capsys.readouterr()
    assert "bad" not in out
    assert err == "Broken plugins, see 'bench list plugins': bad\n"


def test_a_contested_name_is_listed_and_its_use_fails_with_both_plugins(
    folder: PluginFolder, capsys: pytest.CaptureFixture[str]
):
    folder.add_method("alpha", "shared", distribution="package-a")
    folder.add_method("beta", "shared", distribution="package-b")
    rows = listed("methods", capsys)
    assert rows["shared"]["plugin"] == "alpha, beta"
    assert "package-a" in rows["shared"]["error"]
    assert rows["copy"]["error"] == ""
    assert main(["plugin", "check", "shared"]) == 2
    message = capsys.readouterr().err
    assert "alpha (package-a 1.0) and beta (package-b 1.0)" in message


def test_suites_are_listed_with_what_they_run(capsys: pytest.CaptureFixture[str]):
    suite = listed("suites", capsys)["copy-capsules"]
    assert (suite["dataset"], suite["split"], suite["origin"]) == ("capsules", "all", "retargetbench_suites")
    assert "copy-unscaled=copy" in suite["methods"]
    assert main(["list", "suites", "copy-capsules"]) == 0
    assert "copy-unscaled={'root': 'none'}" in capsys.readouterr().out


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What is told about one thing, as JSON; the text for people must hold its documentation as it stands."""
    assert main(["list", *arguments]) == 0
    text = capsys.readouterr().out
    assert main(["list", *arguments, "--json"]) == 0
    details: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert text.endswith(f"\n\n{details['documentation']}\n")
    return details


@pytest.mark.parametrize("info", BUILTIN_METRICS, ids=lambda info: info.name)
def test_a_metric_and_each_of_its_columns_tell_unit_blindness_and_source(
    info: MetricInfo, capsys: pytest.CaptureFixture[str]
):
    for name in (info.name, *(column.name for column in info.columns)):
        details = told(["metrics", name], capsys)
        assert details["version"] == info.version
        for word in ("unit", "lind to" if info.name != "smoothness" else "does not count", "Source: "):
            assert word.lower() in details["documentation"].lower(), word


def test_a_column_tells_its_registration_and_the_columns_beside_it(capsys: pytest.CaptureFixture[str]):
    details = told(["metrics", "mse"], capsys)
    assert (details["unit"], details["direction"], details["metric"]) == ("m", "lower", "joints")
    assert details["columns_beside_it"] == ["mse_local", "rms_distance"]


def test_a_method_tells_its_options_and_what_it_does(capsys: pytest.CaptureFixture[str]):
    details = told(["methods", "copy"], capsys)
    assert details["options"] == {"root": "height_ratio | hip_height | none"}
    assert details["documentation"].startswith("Gives the target the source's local rotations")
    assert main(["list", "methods", "copy"]) == 0
    assert "options         root=height_ratio | hip_height | none\n" in capsys.readouterr().out


def test_a_dataset_tells_its_licence_and_what_it_is_for(capsys: pytest.CaptureFixture[str]):
    details = told(["datasets", "capsules"], capsys)
    assert details["licence"].startswith("Apache-2.0")
    assert "not for conclusions about methods" in details["documentation"]


def test_a_method_that_cannot_be_imported_is_told_with_the_reason(
    folder: PluginFolder, capsys: pytest.CaptureFixture[str]
):
    folder.add("half", METHOD_WITHOUT_CLASS)
    assert main(["list", "methods", "half"]) == 0
    assert "No module named 'no_such_module'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["metrics", "penetratoin"], "unknown metric or column 'penetratoin'. Did you mean 'penetration'?"),
        (["methods", "cpoy"], "unknown method 'cpoy'. Did you mean 'copy'?"),
        (["datasets", "capsule"], "unknown dataset 'capsule'. Did you mean 'capsules'?"),
        (["suites", "copy-capsule"], "unknown suite 'copy-capsule'. Did you mean 'copy-capsules'?"),
    ],
)
def test_an_unknown_name_is_answered_with_the_closest(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["list", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_no_summary_of_a_metric_needs_the_row_above_it():
    summaries = {column.name: column.summary for info in BUILTIN_METRICS for column in info.columns}
    assert len(set(summaries.values())) == len(summaries)
    leaning = ("the same", "of the ", "as above", "start")
    assert {name for name, text in summaries.items() if text.startswith(leaning)} == set()


@pytest.mark.parametrize("what", ["methods", "metrics", "datasets", "plugins", "suites"])
@pytest.mark.parametrize("width", [100, 160])
def test_a_table_fits_the_terminal(
    what: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("name ")
    assert max(map(len, lines)) <= width


def test_a_table_aligns_its_columns_and_breaks_the_last():
    rows = [["a", "1", "word " * 8], ["long name", "", ""]]
    assert format_table(["name", "n", "text"], rows, 40).splitlines() == [
        "name       n  text",
        "a          1  word word word word word",
        "              word word word",
        "long name",
    ]
