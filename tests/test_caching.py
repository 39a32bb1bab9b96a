"""What is remembered once per character, and that it is forgotten with it."""

from __future__ import annotations

import gc
import weakref

import pytest

from retargetbench.caching import per_character
from retargetbench.datasets.capsules import open_capsules


class Counted:
    """A value that can be watched by a weak reference."""


@pytest.fixture
def calls():
    return []


@pytest.fixture
def counted(calls):
    @per_character
    def counted(character, part="all", *, size=1):
        """Say what was asked."""
        calls.append((character.name, part, size))
        return Counted()

    return counted


def test_a_value_is_computed_once_for_each_character_and_arguments(counted, calls):
    dataset = open_capsules()
    slim, giant = dataset.character("slim"), dataset.character("giant")
    first = counted(slim)
    assert counted(slim) is first
    assert counted(giant) is not first
    assert counted(slim, "arm") is not first
    assert counted(slim, "arm", size=2) is counted(slim, "arm", size=2)
    assert calls == [("slim", "all", 1), ("giant", "all", 1), ("slim", "arm", 1), ("slim", "arm", 2)]


def test_equal_characters_that_are_other_objects_are_not_taken_for_each_other(counted):
    assert counted(open_capsules().character("slim")) is not counted(open_capsules().character("slim"))


def test_functions_do_not_share_their_memory(counted):
    character = open_capsules().character("slim")

    @per_character
    def other(character):
        return "other"

    assert isinstance(counted(character), Counted)
    assert other(character) == "other"


def test_values_are_forgotten_with_their_character(counted):
    dataset = open_capsules()
    remembered = weakref.ref(counted(dataset.character("slim")))
    assert remembered() is not None
    del dataset
    gc.collect()
    assert remembered() is None


def test_a_failure_is_not_remembered():
    character = open_capsules().character("slim")
    attempts = []

    @per_character
    def second_time(character):
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("not yet")
        return "now"

    with pytest.raises(ValueError, match="not yet"):
        second_time(character)
    assert second_time(character) == "now"


def test_none_is_remembered_too():
    attempts = []

    @per_character
    def nothing(character):
        attempts.append(1)

    character = open_capsules().character("slim")
    assert nothing(character) is nothing(character) is None
    assert len(attempts) == 1


def test_name_and_docstring_are_kept(counted):
    assert counted.__name__ == "counted"
    assert counted.__doc__ == "Say what was asked."
