"""Which of a folder and a registered name wins, and what is said where neither can be opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_plugins import plugin_folder

from retargetbench.datasets.capsules import CapsuleDataset
from retargetbench.datasets.folder import MANIFEST
from retargetbench.datasets.opening import open_dataset
from retargetbench.errors import DatasetError, PluginError, UnknownNameError, UsageError

REGISTER = """
@hookimpl
def register_datasets(register):
    register(DatasetInfo("{name}", "a dataset", "{target}"))
"""


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with plugin_folder(tmp_path / "site", monkeypatch) as folder:
        yield folder


def register(name, target="{module}:open_it"):
    return REGISTER.replace("{name}", name).replace("{target}", target)


def test_the_shipped_dataset_is_opened_by_name_anew_each_time():
    first, second = open_dataset("capsules"), open_dataset("capsules")
    assert isinstance(first, CapsuleDataset)
    assert first is not second


def test_a_plugins_dataset_is_opened_by_its_function(plugins):
    body = "from retargetbench.datasets.capsules import open_capsules\ndef open_it():\n    return open_capsules()\n"
    plugins.add("mine", register("mine") + body)
    assert isinstance(open_dataset("mine"), CapsuleDataset)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 'opened'", "must return a Dataset, got str"),
        ("raise OSError('no disk')", "cannot be opened: OSError: no disk"),
        ("raise SystemExit(0)", "cannot be opened: SystemExit: 0"),
    ],
)
def test_a_plugins_dataset_that_is_none_names_the_plugin(plugins, body, message):
    plugins.add("mine", register("mine") + f"\ndef open_it():\n    {body}\n")
    with pytest.raises(PluginError, match=f"dataset 'mine' of plugin mine .*{message}"):
        open_dataset("mine")


def test_a_folder_of_a_registered_name_that_holds_no_dataset_does_not_hide_it(plugins):
    Path("capsules").mkdir()
    assert isinstance(open_dataset("capsules"), CapsuleDataset)
    with pytest.raises(UsageError, match=f"folder capsules holds no dataset: it has no {MANIFEST}"):
        open_dataset(Path("capsules"))


def test_a_folder_with_a_manifest_wins_over_the_name_even_if_it_cannot_be_read(plugins):
    Path("capsules").mkdir()
    (Path("capsules") / MANIFEST).write_text("nonsense: [")
    with pytest.raises(DatasetError, match=MANIFEST):
        open_dataset("capsules")


@pytest.mark.parametrize("spec", ["data/capsules", "/nowhere/capsules"])
def test_what_looks_like_a_path_is_never_taken_for_a_name(plugins, spec):
    with pytest.raises(UsageError, match=r"does not exist.*or give a name: .*capsules"):
        open_dataset(spec)


def test_a_near_miss_is_answered_with_the_name_and_the_folder_that_was_looked_for(plugins):
    with pytest.raises(UnknownNameError, match="Did you mean 'capsules'") as caught:
        open_dataset("capsule")
    assert str(Path.cwd() / "capsule") in str(caught.value)


def test_two_plugins_with_one_name_are_an_error_that_names_both(plugins):
    plugins.add("one", register("twice"))
    plugins.add("two", register("twice"))
    with pytest.raises(UsageError, match=r"one.*two|two.*one"):
        open_dataset("twice")


def test_a_dataset_that_cannot_be_imported_is_its_plugins_failure(plugins):
    plugins.add("broken", register("broken", "{module}:not_there"))
    with pytest.raises(PluginError, match="not_there"):
        open_dataset("broken")
