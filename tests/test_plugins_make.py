"""Making methods and metrics by name, and the key that predictions are kept by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fake_plugins import GOOD_METHOD, PluginFolder, plugin_folder

from retargetbench.errors import PluginError, UnknownNameError, UsageError
from retargetbench.methods import RetargetMethod
from retargetbench.metrics import BUILTIN_METRICS
from retargetbench.metrics.base import Metric
from retargetbench.plugins import catalogue, create_method, create_metric, method_key
from retargetbench.registry import MethodInfo, load_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

OPTIONS = """
from retargetbench import RetargetMethod

class Method(RetargetMethod):
    options = {"count": int, "angle": float, "label": str, "strict": bool, "word": ("one", "two")}

    def retarget(self, sources, target):
        return []

@hookimpl
def register_methods(register):
    register(MethodInfo("mine", "", "{module}:Method"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginFolder]:
    with plugin_folder(tmp_path, monkeypatch) as folder:
        yield folder


def test_texts_of_options_become_what_the_method_declares(folder: PluginFolder):
    folder.add("mine", OPTIONS)
    texts = {"count": "3", "angle": "2", "label": "7", "strict": "False", "word": "two"}
    config = create_method("mine", options=texts).config
    assert config == {"count": 3, "angle": 2.0, "label": "7", "strict": False, "word": "two"}
    assert {name: type(value) for name, value in config.items()}["angle"] is float


def test_values_that_are_typed_already_stay(folder: PluginFolder):
    folder.add("mine", OPTIONS)
    assert create_method("mine", options={"count": 3, "strict": True}).config == {"count": 3, "strict": True}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": "3.5"}, r"count='3\.5' of Method must be a value of type int"),
        ({"angle": "wide"}, r"angle='wide' of Method must be a value of type float"),
        ({"strict": "yes"}, r"strict='yes' of Method must be true or false"),
        ({"word": "three"}, r"word='three' is not one of: one, two"),
        ({"count": 3.5}, r"count=3\.5 must be of type int"),
    ],
)
def test_a_value_that_is_not_accepted_is_wrong_use(folder: PluginFolder, options: dict[str, object], message: str):
    folder.add("mine", OPTIONS)
    with pytest.raises(UsageError, match=message):
        create_method("mine", options=options)


def test_an_unknown_option_is_answered_with_the_closest():
    with pytest.raises(UnknownNameError, match=r"unknown option of method 'copy' 'rot'\. Did you mean 'root'\?"):
        create_method("copy", options={"rot": "none"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "cannot import"),
        ("class Method: ...", "is no subclass of RetargetMethod"),
        ("Method = 3", "is no subclass of RetargetMethod"),
        (
            "from retargetbench import RetargetMethod\nclass Method(RetargetMethod):\n"
            "    def __init__(self, *, device): raise KeyError('weights')\n    def retarget(self, a, b): ...",
            "cannot be made: KeyError: 'weights'",
        ),
        ("from retargetbench import RetargetMethod\nclass Method(RetargetMethod): ...", "cannot be made: TypeError"),
    ],
)
def test_a_method_that_cannot_be_made_names_its_plugin(folder: PluginFolder, body: str, message: str):
    folder.add("mine", body + GOOD_METHOD.replace("{name!r}", "'mine'"))
    with pytest.raises(PluginError, match=r"method 'mine' of plugin mine \(mine-dist 1\.0\)") as error:
        create_method("mine")
    assert message in str(error.value)


def test_a_method_works_where_it_is_told(device: torch.device):
    assert create_method("copy", device=device).device == device


@pytest.mark.parametrize("info", BUILTIN_METRICS, ids=lambda info: info.name)
def test_every_metric_of_the_core_can_be_made(info):
    assert isinstance(create_metric(info), Metric)


def test_everything_that_is_registered_can_be_imported():
    known = catalogue().registered
    for info in known.methods.values():
        assert issubclass(load_target(info.target), RetargetMethod)
    targets = [info.target for info in known.datasets.values()]
    targets += [target for info in known.formats.values() for target in (info.reader, info.writer) if target]
    assert all(callable(load_target(target)) for target in targets)


INFO = MethodInfo("copy", "", "m:C")


def test_key_is_the_same_for_a_default_that_is_spelled_out():
    assert method_key(INFO, create_method("copy")) == method_key(
        INFO, create_method("copy", options={"root": "height_ratio"})
    )


def test_key_changes_with_all_that_changes_results():
    method = create_method("copy")

    class NextVersion(type(method)):  # type: ignore[misc]
        version = "next"

    keys = {
        method_key(INFO, method),
        method_key(replace(INFO, name="other"), method),
        method_key(replace(INFO, checkpoint_sha256="abc"), method),
        method_key(INFO, create_method("copy", options={"root": "none"})),
        method_key(INFO, NextVersion()),
    }
    assert len(keys) == 5


def test_key_does_not_change_with_what_results_do_not_depend_on():
    method = create_method("copy")
    assert method_key(INFO, method) == method_key(replace(INFO, summary="reworded", target="moved:C"), method)
