"""Skeleton, Motion, Character, Clip and Task refuse what is inconsistent, and derive what they promise."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from rigs import human_skeleton, random_character, random_motion

from retargetbench.clip import Clip, Task
from retargetbench.errors import CharacterError
from retargetbench.motion import Motion
from retargetbench.skeleton import (
    CANONICAL_JOINTS,
    CANONICAL_PARENTS,
    Skeleton,
    canonical_skeleton,
    find_canonical_map,
)


def test_height_is_the_sum_of_the_eight_bones_of_r2et():
    skeleton = human_skeleton()
    by_hand = 0.1 + 0.12 + 0.12 + 0.15 + (0.1**2 + 0.02**2) ** 0.5 + 0.45 + (0.42**2 + 0.02**2) ** 0.5
    by_hand += (0.06**2 + 0.12**2) ** 0.5
    assert skeleton.height == pytest.approx(by_hand, abs=1e-12)


def test_height_does_not_depend_on_joints_in_between():
    with_pelvis = human_skeleton(extra_joints=True)
    assert with_pelvis.to_canonical().height == pytest.approx(with_pelvis.height)
    assert with_pelvis.canonical_offsets[6].tolist() == pytest.approx([0.1, -0.07, 0.01])  # Pelvis folded in


def test_extra_joints_count_to_their_nearest_canonical_ancestor():
    skeleton = human_skeleton(extra_joints=True)
    nearest = dict(zip(skeleton.names, skeleton.nearest_canonical, strict=True))
    assert CANONICAL_JOINTS[nearest["Pelvis"]] == "Hips"
    assert CANONICAL_JOINTS[nearest["Armature"]] == "Hips"
    assert CANONICAL_JOINTS[nearest["mixamorig:RightHandIndex1"]] == "RightHand"


@pytest.mark.parametrize("prefix", ["", "mixamorig:", "mixamorig1:", "rig:sub:"])
def test_canonical_joints_are_found_under_any_namespace(prefix):
    names = [prefix + name for name in reversed(CANONICAL_JOINTS)]
    assert find_canonical_map(names) == tuple(range(21, -1, -1))


def test_missing_joints_are_named():
    names = [n for n in CANONICAL_JOINTS if n not in ("Spine2", "LeftToeBase")]
    with pytest.raises(CharacterError, match=r"2 of the 22 joints: Spine2, LeftToeBase"):
        find_canonical_map(names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": (*CANONICAL_JOINTS[:21], "Hips")}, "'Hips' occurs more than once"),
        ({"parents": (0, *CANONICAL_PARENTS[1:])}, "root comes first"),
        ({"parents": (*CANONICAL_PARENTS[:3], 7, *CANONICAL_PARENTS[4:])}, "parent index 7"),
        ({"offsets": torch.zeros(21, 3)}, r"offsets \(21, 3\)"),
        ({"offsets": torch.full((22, 3), float("nan"))}, "not finite"),
        ({"canonical": tuple(range(21))}, "22 different joints"),
        ({"canonical": (0, 6, *range(2, 6), 1, *range(7, 22))}, "does not descend from"),
    ],
)
def test_an_inconsistent_skeleton_is_refused(change, message):
    with pytest.raises(CharacterError, match=message):
        dataclasses.replace(canonical_skeleton(torch.rand(22, 3)), **change)


@pytest.mark.parametrize(
    ("translation", "rotations", "fps", "message"),
    [
        (torch.zeros(3, 3), torch.zeros(4, 22, 4), 30.0, r"\(3, 3\) and \(4, 22, 4\)"),
        (torch.zeros(0, 3), torch.zeros(0, 22, 4), 30.0, "at least one frame"),
        (torch.zeros(3, 3), torch.zeros(3, 22, 4), 30.0, "must be unit quaternions; one is off by 1"),
        (torch.full((3, 3), torch.nan), torch.ones(3, 22, 4) / 2, 30.0, "not finite"),
        (torch.zeros(3, 3), torch.ones(3, 22, 4) / 2, 0.0, "fps must be between"),
    ],
)
def test_an_inconsistent_motion_is_refused(translation, rotations, fps, message):
    with pytest.raises(CharacterError, match=message):
        Motion(translation, rotations, fps)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("faces", torch.tensor([[0, 1, 300]]), r"indices 0..300, allowed are 0..299"),
        ("faces", torch.tensor([[0, 1, 2]], dtype=torch.int32), "must be int64"),
        ("faces", torch.zeros(0, 3, dtype=torch.int64), "mesh is empty"),
        ("influence_joints", torch.full((300, 6), 22), r"indices 22..22, allowed are 0..21"),
        ("influence_weights", torch.full((300, 6), 0.2), r"sum to 1 ± 0.2"),
        ("inverse_bind", torch.zeros(21, 4, 4), r"must be \(22, 4, 4\)"),
        ("bind_vertices", torch.full((300, 3), torch.inf), "not finite"),
    ],
)
def test_an_inconsistent_character_is_refused(field, value, message):
    with pytest.raises(CharacterError, match=message):
        dataclasses.replace(random_character(human_skeleton()), **{field: value})


def test_weights_of_fingers_are_folded_into_the_hand():
    skeleton = human_skeleton(extra_joints=True)
    character = random_character(skeleton, seed=3)
    hand, finger = skeleton.canonical[17], skeleton.names.index("mixamorig:LeftHandIndex1")
    expected = character.weights[:, hand] + character.weights[:, finger]
    torch.testing.assert_close(character.canonical_weights[:, 17], expected)
    torch.testing.assert_close(character.canonical_weights.sum(1), torch.ones(300, dtype=torch.float64))


def test_a_clip_refuses_a_motion_of_another_skeleton():
    character = random_character(human_skeleton(extra_joints=True))
    with pytest.raises(CharacterError, match="26 joints"):
        Clip("walk", character, random_motion(human_skeleton(), 4))


def test_a_task_refuses_a_ground_truth_of_another_length():
    character = random_character(human_skeleton())
    clip = Clip("walk", character, random_motion(character.skeleton, 8))
    with pytest.raises(CharacterError, match=r"ground truth has 5 frames at 30 fps, the source 8 at 30"):
        Task(clip, character, random_motion(character.skeleton, 5), "SC+SM")


def test_tensors_move_between_types_together(device):
    moved = random_character(human_skeleton()).to(device, torch.float32)
    assert moved.skeleton.offsets.dtype == moved.bind_vertices.dtype == moved.inverse_bind.dtype == torch.float32
    assert moved.faces.dtype == torch.int64
    assert moved.device.type == moved.skeleton.offsets.device.type == device.type


def test_nouns_cannot_be_changed():
    character = random_character(human_skeleton())
    with pytest.raises(dataclasses.FrozenInstanceError):
        character.name = "other"
    with pytest.raises(TypeError):
        character.provenance["file"] = "other"
    assert isinstance(character.skeleton, Skeleton)
