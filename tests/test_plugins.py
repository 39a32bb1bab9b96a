"""Discovery of plugins: good ones, broken ones, and two that want one name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_plugins import PluginFolder, plugin_folder

from retargetbench.benchmark.score import KEY_COLUMNS
from retargetbench.builtin import RESERVED
from retargetbench.errors import RetargetBenchError, UnknownNameError, UsageError
from retargetbench.plugins import DISABLE_VARIABLE, catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginFolder]:
    with plugin_folder(tmp_path, monkeypatch) as folder:
        yield folder


def states() -> dict[str, str]:
    return {info.name: info.state for info in catalogue().plugins}


def test_core_and_copy_are_found_without_any_other_plugin():
    assert states()["core"] == "ok"
    assert states()["copy"] == "ok"
    assert catalogue().method("copy").target == "retargetbench_copy.method:CopyMethod"
    assert catalogue().dataset("capsules").name == "capsules"
    assert catalogue().column("mse")[0].name == "joints"
    assert catalogue().file_format(".glb").carries_mesh


def test_an_installed_plugin_is_found_with_its_origin(folder: PluginFolder):
    folder.add_method("mine", "mine", distribution="my-package", version="2.3")
    assert catalogue().method("mine").summary == "a method"
    origin = catalogue().origin("method", "mine")
    assert (origin.name, origin.distribution, origin.version) == ("mine", "my-package", "2.3")
    assert origin.hooks == ("register_methods",)


METHOD = "@hookimpl\ndef register_methods(register):\n    register(MethodInfo({}))\n"
SHARED = METHOD.format("'shared', '', 'm:C'")
METRIC = '@hookimpl\ndef register_metrics(register):\n    register(MetricInfo("extra", "m:C", {}))\n'
COLUMN = '(Column("{}", "m", "lower", "one"),)'

BROKEN = {
    "raises on import": ("raise ValueError('no licence\\nsecond line')", "ValueError: no licence second line"),
    "leaves python on import": ("import sys; sys.exit('bye')", "SystemExit: bye"),
    "needs a package that is not there": ("import no_such_package", "No module named 'no_such_package'"),
    "does not compile": ("def f(:", "SyntaxError"),
    "misspells a hook": (
        "@hookimpl\ndef register_method(register): ...",
        "unknown hook 'register_method'. Did you mean 'register_methods'?",
    ),
    "takes another argument": ("@hookimpl\ndef register_methods(registry): ...", "registry"),
    "has no hook": ("def register_methods(register): ...", "has no hook"),
    "raises when it registers": (
        "@hookimpl\ndef register_methods(register):\n    raise OSError('disk')",
        "OSError: disk",
    ),
    "registers something else": (
        "@hookimpl\ndef register_methods(register):\n    register('mine')",
        "'mine'; it takes a MethodInfo",
    ),
    "registers the wrong kind": (
        "@hookimpl\ndef register_metrics(register):\n    register(MethodInfo('a', 'b', 'c:d'))",
        "it takes a MetricInfo",
    ),
    "uses a name that is no folder name": (METHOD.format("'a/b', '', 'm:C'"), "names must match"),
    "uses a name with a dot": (METHOD.format("'a.b', '', 'm:C'"), "names must match"),
    "uses a plus in a column": (METRIC.format(COLUMN.format("a+b")), "names must match"),
    "has a target without a class": (METHOD.format("'mine', '', 'module'"), "'module:attribute'"),
    "has a metric without columns": (METRIC.format("()"), "metric 'extra' has no column"),
    "takes a column of the core": (METRIC.format(COLUMN.format("mse")), "registers the column 'mse', which core has"),
    "takes the column that the runner fills": (METRIC.format(COLUMN.format("frames_per_second")), "which core has"),
    "takes a column of every table": (METRIC.format(COLUMN.format("atom")), "registers the column 'atom', which core"),
    "takes a word of --metrics": (METRIC.format(COLUMN.format("all")), "registers the column 'all', which core has"),
    "has a column named like a bound of another": (
        METRIC.format(COLUMN.format("mse_low")),
        "column 'mse_low' ends with _low, _high or _n",
    ),
    "has a direction that there is not": (
        METRIC.format("(Column('mine', 'm', 'one', 'summary'),)"),
        "unknown direction of column 'mine' 'one'. Did you mean 'none'? Available: higher, lower, none",
    ),
    "has a unit that is no text": (
        METRIC.format("(Column('mine', None, 'lower', 'summary'),)"),
        "Column.unit must be str, got None",
    ),
    "has a summary of two lines": (METHOD.format("'mine', 'one\\ntwo', 'm:C'"), "MethodInfo.summary must be one line"),
    "forgets the comma of its only column": (
        METRIC.format("Column('mine', 'm', 'lower', 'summary')"),
        "MetricInfo.columns must be tuple[Column, ...]",
    ),
    "has a text for a column": (METRIC.format("('mine',)"), "metric 'extra' has the column 'mine'"),
    "has a year that is a text": (
        METHOD.format("'mine', '', 'm:C', year='2024'"),
        "MethodInfo.year must be int | None, got '2024'",
    ),
    "has a name that is too long": (METHOD.format("'m' * 101, '', 'm:C'"), "names must match"),
    "takes the name of a reference row": (METHOD.format("'ground-truth', '', 'm:C'"), "which core has"),
    "registers one name twice": (
        METHOD.format("'mine', '', 'm:C'") + "    register(MethodInfo('mine', '', 'm:D'))",
        "registers the method 'mine' twice",
    ),
    "takes a command of bench": (
        "@hookimpl\ndef register_commands(app):\n    @app.command()\n    def run(): ...",
        "registers the command 'run', which core has",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_listed_with_one_line_and_hurts_nobody(folder: PluginFolder, case: str):
    source, reason = BROKEN[case]
    folder.add("bad", source)
    folder.add_method("good", "good")
    assert states() == {"core": "ok", "copy": "ok", "good": "ok", "bad": "broken"}
    error = catalogue().plugin("bad").error
    assert reason in error
    assert "\n" not in error
    assert catalogue().method("good").name == "good"
    assert "mse" in {column for columns in catalogue().select_metrics().values() for column in columns}


def test_nothing_of_a_broken_plugin_is_used(folder: PluginFolder):
    folder.add("bad", METHOD.format("'half', '', 'm:C'") + "    raise RuntimeError('late')")
    with pytest.raises(UnknownNameError, match=r"unknown method 'half'.*bad \(RuntimeError: late\)"):
        catalogue().method("half")


def test_one_plugin_name_of_two_distributions_names_both(folder: PluginFolder):
    folder.add_method("twin", "first", distribution="package-a")
    folder.add_method("twin", "second", distribution="package-b")
    assert states()["twin"] == "broken"
    for method in ("first", "second", "twin"):
        with pytest.raises(UsageError, match=r"package-a 1\.0 and package-b 1\.0|package-b 1\.0 and package-a 1\.0"):
            catalogue().method(method)
    assert catalogue().method("copy").name == "copy"


def test_a_plugin_cannot_call_itself_core(folder: PluginFolder):
    folder.add_method("core", "mine", distribution="impostor")
    core, impostor = (info for info in catalogue().plugins if info.name == "core")
    assert core.state == "ok"
    assert impostor.state == "broken"
    assert "impostor 1.0" in impostor.error


def test_one_method_of_two_plugins_names_both_and_leaves_the_rest(folder: PluginFolder):
    both = SHARED + '    register(MethodInfo("{}", "", "m:C"))\n'
    folder.add("alpha", both.format("alone"), distribution="package-a")
    folder.add_method("beta", "shared", distribution="package-b")
    with pytest.raises(
        UsageError, match=r"method 'shared'.*alpha \(package-a 1\.0\) and beta \(package-b 1\.0\)"
    ) as error:
        catalogue().method("shared")
    assert f"{DISABLE_VARIABLE}=beta" in str(error.value)
    assert catalogue().method("alone").name == "alone"
    assert states()["alpha"] == states()["beta"] == "ok"


def test_disabling_one_of_two_plugins_frees_the_name(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch):
    folder.add("alpha", SHARED)
    folder.add("beta", SHARED)
    monkeypatch.setenv(DISABLE_VARIABLE, "gamma, beta")
    catalogue.cache_clear()
    assert catalogue().origin("method", "shared").name == "alpha"
    assert states()["beta"] == "disabled"
    assert DISABLE_VARIABLE in catalogue().plugin("beta").error


def test_a_disabled_plugin_is_not_imported(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    folder.add("alpha", f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    monkeypatch.setenv(DISABLE_VARIABLE, "alpha")
    assert states()["alpha"] == "disabled"
    assert not (tmp_path / "imported").exists()


def test_columns_that_the_runner_fills_are_kept_from_plugins():
    reference_columns = {*KEY_COLUMNS, "n", "failed", "n_failed"}
    assert {("column", name) for name in reference_columns} <= RESERVED


def add_metric(folder: PluginFolder, plugin: str, metric: str, *columns: str) -> None:
    made = ", ".join(f'Column("{column}", "m", "lower", "one")' for column in columns)
    folder.add(
        plugin, f'@hookimpl\ndef register_metrics(register):\n    register(MetricInfo("{metric}", "m:C", ({made},)))\n'
    )


def test_a_contested_column_takes_nothing_else_along(folder: PluginFolder):
    add_metric(folder, "alpha", "one", "contested", "own")
    add_metric(folder, "beta", "two", "contested")
    with pytest.raises(UsageError, match=r"column 'contested'.*alpha.*beta"):
        catalogue().column("contested")
    assert catalogue().select_metrics(["own"]) == {"one": frozenset({"own"})}
    assert catalogue().select_metrics(["one"]) == {"one": frozenset({"own"})}
    assert "contested" not in {c for columns in catalogue().select_metrics(["all"]).values() for c in columns}


def test_a_contested_metric_takes_its_columns_along(folder: PluginFolder):
    add_metric(folder, "alpha", "family", "first")
    add_metric(folder, "beta", "family", "second")
    for name in ("family", "first", "second"):
        with pytest.raises(UsageError, match=r"alpha.*beta"):
            catalogue().select_metrics([name])


def test_metrics_are_chosen_by_column_by_family_by_default_and_all():
    default, everything = catalogue().select_metrics(), catalogue().select_metrics(["all"])
    assert default["joints"] >= {"mse", "mse_local"}
    assert "penetration_self" in everything["penetration"] - default["penetration"]
    assert catalogue().select_metrics(["mse", "contact_error_height"]) == {
        "joints": frozenset({"mse"}),
        "contact": frozenset({"contact_error_height"}),
    }
    assert catalogue().select_metrics(["penetration"]) == {"penetration": frozenset({"penetration"})}
    assert catalogue().select_metrics(["feet"]) == {"feet": frozenset({"foot_skate", "ground_penetration", "floating"})}


@pytest.mark.parametrize(
    ("look_up", "name", "close"),
    [
        ("method", "cpoy", "copy"),
        ("dataset", "capsule", "capsules"),
        ("column", "penetrations", "penetration"),
        ("file_format", ".bhv", ".bvh"),
        ("plugin", "cory", "core"),
    ],
)
def test_an_unknown_name_is_answered_with_the_closest(look_up: str, name: str, close: str):
    with pytest.raises(UnknownNameError, match=rf"{name}'\. Did you mean '{close}'\? Available: "):
        getattr(catalogue(), look_up)(name)


def test_commands_of_plugins_are_collected(folder: PluginFolder):
    folder.add("alpha", "@hookimpl\ndef register_commands(app):\n    @app.command()\n    def greet(): ...\n")
    assert set(catalogue().commands) == {"greet"}


def test_the_catalogue_is_loaded_once():
    assert catalogue() is catalogue()


def test_every_error_of_the_catalogue_is_one_of_ours(folder: PluginFolder):
    folder.add("bad", "raise ValueError")
    with pytest.raises(RetargetBenchError, match=r"bad \(ValueError"):
        catalogue().method("bad")
