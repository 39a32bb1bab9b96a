"""Motions of methods: what is accepted, and what their files and keys hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion

from retargetbench import Clip, Motion
from retargetbench.benchmark.predictions import (
    check_outputs,
    content_key,
    encode_motion,
    prediction_key,
    read_key,
    read_motion,
)
from retargetbench.benchmark.run_folder import file_name, task_path
from retargetbench.datasets.base import SplitRow
from retargetbench.errors import FileFormatError, MethodOutputError

if TYPE_CHECKING:
    from pathlib import Path

ROW = SplitRow("UC+UM", "a", "walk", "b")


@pytest.fixture(scope="module")
def sources() -> list[Clip]:
    character = random_character(human_skeleton(dtype=torch.float32))
    return [Clip(f"m{k}", character, random_motion(character.skeleton, frames)) for k, frames in enumerate((4, 7))]


def motions(sources: list[Clip]) -> list[Motion]:
    return [
        Motion(torch.zeros(s.motion.frame_count, 3), torch.eye(4)[3].expand(s.motion.frame_count, 22, 4), s.motion.fps)
        for s in sources
    ]


def test_one_canonical_motion_per_source_is_accepted(sources: list[Clip]) -> None:
    good = motions(sources)
    assert check_outputs(good, sources) == good
    assert check_outputs(tuple(good), sources) == good


def test_what_is_not_one_motion_per_source_is_refused(sources: list[Clip]) -> None:
    good = motions(sources)
    spoiled = replace(good[1], root_translation=good[1].root_translation.clone())
    spoiled.root_translation[0, 0] = float("nan")
    stretched = replace(good[1], local_rotations=good[1].local_rotations.clone())
    stretched.local_rotations[2, 3] *= 1.01
    for outputs, message in (
        (good[0], "list of motions, got Motion"),
        (None, "got NoneType"),
        (good[:1], r"one motion per source, 2, got 1"),
        ([good[0], "x"], "m1: .* got str"),
        ([good[0], good[1].frames(0, 6)], r"m1: .*\(7, 22, 4\).*\(6, 22, 4\)"),
        ([good[0], replace(good[1], local_rotations=good[1].local_rotations[:, :21])], r"\(7, 21, 4\)"),
        ([good[0], spoiled], "m1: .*not finite"),
        ([good[0], stretched], "m1: .*unit quaternions; that of Spine2 in frame 2 has length 1.01"),
        ([good[0], replace(good[1], fps=25.0)], "25 fps"),
    ):
        with pytest.raises(MethodOutputError, match=message):
            check_outputs(outputs, sources)


def test_a_motion_survives_its_file_in_single_precision(tmp_path: Path, sources: list[Clip]) -> None:
    motion = sources[0].motion.to(dtype=torch.float64)
    path = tmp_path / "m.npz"
    path.write_bytes(encode_motion(motion, "key of it"))
    read = read_motion(path)
    assert read_key(path) == "key of it"
    assert read.fps == motion.fps
    assert read.local_rotations.dtype == torch.float32
    torch.testing.assert_close(read.root_translation, motion.root_translation.float(), rtol=0, atol=0)
    torch.testing.assert_close(read.local_rotations, motion.local_rotations.float(), rtol=0, atol=0)


def test_equal_motions_give_equal_bytes(sources: list[Clip]) -> None:
    assert encode_motion(sources[0].motion, "k") == encode_motion(sources[0].motion, "k")


def test_a_damaged_file_has_no_key_and_cannot_be_read(tmp_path: Path, sources: list[Clip]) -> None:
    content = encode_motion(sources[0].motion, "k")
    path = tmp_path / "m.npz"
    for damaged in (b"", b"text", content[: len(content) // 2], content[:-30]):
        path.write_bytes(damaged)
        assert read_key(path) is None
        with pytest.raises(FileFormatError, match=r"m\.npz"):
            read_motion(path)
    np.savez(path, root_translation=np.zeros((2, 3)), fps=30.0)
    with pytest.raises(FileFormatError, match="local_rotations"):
        read_motion(path)
    np.savez(path, root_translation=np.array([{}]), local_rotations=np.zeros((2, 22, 4)), fps=30.0)
    with pytest.raises(FileFormatError):
        read_motion(path)
    assert read_key(tmp_path / "absent.npz") is None


def test_a_key_changes_with_everything_a_prediction_depends_on() -> None:
    keys = {
        prediction_key("method", "data", ROW, 0),
        prediction_key("method2", "data", ROW, 0),
        prediction_key("method", "data2", ROW, 0),
        prediction_key("method", "data", replace(ROW, target="c"), 0),
        prediction_key("method", "data", replace(ROW, motion="run"), 0),
        prediction_key("method", "data", replace(ROW, source="c"), 0),
        prediction_key("method", "data", ROW, 1),
    }
    assert len(keys) == 7
    assert prediction_key("method", "data", replace(ROW, default=False), 0) in keys  # how a task is listed is no part


def test_content_keys_do_not_run_into_each_other() -> None:
    assert len({content_key(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("a", "b", "c"))}) == 4


def test_names_become_different_safe_file_names() -> None:
    names = ["a", "a/b", "a%2Fb", "..", ".a", "Hip Hop", "Größe", "a:b", "a\\b", "a\nb", "a?", "*"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    assert not any(set(name) & set('/\\:*?"<>|\n') or name.startswith(".") for name in files)
    assert task_path(SplitRow("UC+UM", "../x", "m", "t"), ".npz").parts == ("%2E.%2Fx", "m", "t.npz")
