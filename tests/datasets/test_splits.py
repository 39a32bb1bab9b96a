"""Frozen splits: files, every pair, the balanced quick set."""

from __future__ import annotations

from collections import Counter

import pytest

from retargetbench.datasets.base import Split, SplitRow
from retargetbench.datasets.splits import balanced_default, every_pair, split_from_csv, split_to_csv
from retargetbench.errors import DatasetError

CLIPS = [(source, f"{family} {number}") for source in "AB" for family in ("wave", "clap", "bow") for number in range(6)]


def rows(targets="ABCDEF"):
    return every_pair(
        CLIPS, targets, seen_characters={"A", "B", "C"}, seen_motions={m for _, m in CLIPS if m[-1] < "4"}
    )


def test_every_pair_is_every_clip_on_every_other_character_in_the_right_atom():
    found = rows()
    assert len(found) == len(CLIPS) * 5
    assert not any(row.source == row.target for row in found)
    atoms = {(row.target, row.motion): row.atom for row in found}
    assert atoms["C", "wave 0"] == "SC+SM"
    assert atoms["C", "wave 5"] == "SC+UM"
    assert atoms["D", "bow 1"] == "UC+SM"
    assert atoms["F", "clap 4"] == "UC+UM"


def test_the_quick_set_has_at_most_the_limit_of_each_atom_and_keeps_all_rows():
    marked = balanced_default(rows(), limit=12)
    assert Counter(row.atom for row in marked if row.default) == dict.fromkeys(["UC+UM", "UC+SM", "SC+UM", "SC+SM"], 12)
    assert {(r.source, r.motion, r.target) for r in marked} == {(r.source, r.motion, r.target) for r in rows()}


def test_the_quick_set_is_balanced_over_targets_and_families():
    marked = balanced_default(rows(), limit=12, family=lambda motion: motion.split()[0])
    chosen = [row for row in marked if row.default and row.atom == "UC+SM"]
    assert Counter(row.target for row in chosen) == {"D": 4, "E": 4, "F": 4}
    assert Counter(row.motion.split()[0] for row in chosen) == {"wave": 4, "clap": 4, "bow": 4}


def test_the_quick_set_does_not_depend_on_the_order_of_rows_or_earlier_marks():
    first = balanced_default(rows())
    assert balanced_default(reversed(first)) == first


def test_preferred_rows_come_first_among_equals():
    wanted = {row for row in rows() if row.motion == "wave 3"}
    marked = balanced_default(rows(), limit=3, preferred=wanted, family=lambda _: "all")
    assert {row.motion for row in marked if row.default and row.atom == "SC+SM"} == {"wave 3"}


def test_a_split_survives_its_file():
    split = Split("default", balanced_default([*rows(), SplitRow("UC+UM", 'Ortiz "x"', "Salsa, fast", "Émile")]))
    again = split_from_csv(split_to_csv(split), name="default", path="default.csv")
    assert again == split
    assert again.hash == split.hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.csv:1: a split file starts with the columns atom,source"),
        ("atom,source\n", "got atom,source"),
        ("atom,source,motion,target,default\n", "f.csv: the split has no rows"),
        ("atom,source,motion,target,default\nUC,A,m,B,1\n", "f.csv:2: atom 'UC' is not one of UC"),
        ("atom,source,motion,target,default\nUC+UM,A,m,B,yes\n", "f.csv:2: default must be 1"),
        ("atom,source,motion,target,default\nUC+UM,A,m,B\n", "f.csv:2: a row has 5 cells, got 4"),
        ("atom,source,motion,target,default\n" + 200_000 * "x", "f.csv:2: not a line of a split file: field larger"),
        ("atom,source,motion,target,default\nUC+UM,A,m,B,1\nUC+SM,A,m,B,0\n", "f.csv: the row A/m/B occurs 2 times"),
    ],
)
def test_a_bad_split_file_is_refused_with_line_and_reason(text, message):
    with pytest.raises(DatasetError) as error:
        split_from_csv(text, name="default", path="f.csv")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
