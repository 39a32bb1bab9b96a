"""Suites: the shipped ones are runnable, and mistakes in one are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from retargetbench.benchmark.config import RunConfig
from retargetbench.benchmark.plan import make_plan
from retargetbench.benchmark.suites import load_suite, suite_names
from retargetbench.errors import FileFormatError, UnknownNameError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", suite_names())
def test_a_shipped_suite_can_be_planned(name: str) -> None:
    suite = load_suite(name)
    assert suite.summary
    config = RunConfig(**suite.settings)
    plan = make_plan(config)
    assert len(plan.methods) == len(config.methods)
    assert not any(method.error for method in plan.methods)


def test_a_suite_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("methods: [copy]\nsplit: all\nfull: true\noptions: {copy: {root: none}}\nseed: 3\n")
    suite = load_suite(str(path))
    assert suite.name == "mine"
    assert suite.settings == {
        "methods": ("copy",),
        "split": "all",
        "full": True,
        "options": {"copy": {"root": "none"}},
        "seed": 3,
    }


def test_an_unknown_suite_is_answered_with_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'copy-capsules'"):
        load_suite("copy-capsule")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metods: [copy]", "Did you mean 'methods'"),
        ("methods: copy", "methods must be a list of texts, got 'copy'"),
        ("methods: []", "methods must be a list of texts"),
        ("full: maybe", "full must be true or false, got 'maybe'"),
        ("seed: true", "seed must be a whole number from 0, got True"),
        ("seed: -1", "seed must be"),
        ("options: {copy: none}", "options must be a mapping"),
        ("workers: 4", "unknown key"),
        ("- methods", "must be a mapping"),
        ("methods: [", "is no YAML"),
        ("", "must be a mapping"),
    ],
)
def test_a_mistake_in_a_suite_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises((UnknownNameError, FileFormatError), match=message) as info:
        load_suite(str(path))
    assert "mine.yaml" in str(info.value)
