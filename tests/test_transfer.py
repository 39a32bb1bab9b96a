"""Canonical joints in and out, and the root rule, against values worked out directly."""

from __future__ import annotations

import pytest
import torch
from rigs import human_skeleton, random_character, random_motion

from retargetbench.clip import Clip
from retargetbench.kinematics import Skinner, forward_kinematics, joint_positions
from retargetbench.motion import Motion
from retargetbench.transfer import apply_root_rule, from_canonical_motion, lowest_sole, to_canonical_motion


@pytest.fixture
def rigged_clip() -> Clip:
    skeleton = human_skeleton(extra_joints=True)
    return Clip("dance", random_character(skeleton, seed=1, name="rigged"), random_motion(skeleton, 9, seed=1))


def test_world_rotations_of_canonical_joints_survive_the_reduction(rigged_clip):
    skeleton, motion = rigged_clip.character.skeleton, rigged_clip.motion
    full, positions = forward_kinematics(skeleton, motion.root_translation, motion.local_rotations)
    reduced = to_canonical_motion(skeleton, motion)
    world, hips = forward_kinematics(skeleton.to_canonical(), reduced.root_translation, reduced.local_rotations)
    torch.testing.assert_close(world, full[:, list(skeleton.canonical)], atol=1e-12, rtol=0)
    torch.testing.assert_close(hips[:, 0], positions[:, skeleton.canonical[0]], atol=1e-12, rtol=0)


def test_reducing_and_extending_again_gives_the_same_world(rigged_clip):
    skeleton, motion = rigged_clip.character.skeleton, rigged_clip.motion
    back = from_canonical_motion(skeleton, to_canonical_motion(skeleton, motion), rigged_clip)
    for before, after in zip(
        forward_kinematics(skeleton, motion.root_translation, motion.local_rotations),
        forward_kinematics(skeleton, back.root_translation, back.local_rotations),
        strict=True,
    ):
        torch.testing.assert_close(after, before, atol=1e-12, rtol=0)


def test_fingers_take_the_source_rotation_by_name_and_rest_without_a_source(rigged_clip):
    skeleton = rigged_clip.character.skeleton
    finger = skeleton.names.index("mixamorig:LeftHandIndex1")
    canonical = to_canonical_motion(skeleton, rigged_clip.motion)
    with_source = from_canonical_motion(skeleton, canonical, rigged_clip)
    alone = from_canonical_motion(skeleton, canonical)
    dots = (with_source.local_rotations[:, finger] * rigged_clip.motion.local_rotations[:, finger]).sum(-1).abs()
    torch.testing.assert_close(dots, torch.ones_like(dots))
    assert alone.local_rotations[:, finger].tolist() == [[0, 0, 0, 1]] * 9


def test_a_canonical_motion_is_left_as_it_is():
    skeleton = human_skeleton()
    motion = random_motion(skeleton, 3)
    assert to_canonical_motion(skeleton, motion) is motion
    assert from_canonical_motion(skeleton, motion) is motion


@pytest.mark.parametrize(("rule", "scale"), [("height_ratio", 1.5), ("hip_height", 1.5), ("none", 1.0)])
def test_the_root_moves_by_the_scale_and_the_lowest_sole_stays_level(rule, scale):
    small, large = human_skeleton(), human_skeleton(scale=1.5)
    source = Clip("walk", random_character(small, seed=2), random_motion(small, 12, seed=2, spread=0.3))
    target = random_character(large, seed=3)
    motion = apply_root_rule(source, target, source.motion.local_rotations, rule=rule)
    moved = motion.root_translation - motion.root_translation[:1]
    torch.testing.assert_close(moved, scale * (source.motion.root_translation - source.motion.root_translation[:1]))
    torch.testing.assert_close(motion.root_translation[0, [0, 2]], source.motion.root_translation[0, [0, 2]])
    sole = lowest_sole(target, motion).min()
    torch.testing.assert_close(sole, lowest_sole(source.character, source.motion).min())


def test_hip_height_rule_scales_by_hips_and_height_rule_by_height():
    source_skeleton = human_skeleton()
    offsets = source_skeleton.offsets.clone()
    offsets[0, 1] = 2.0
    longer = type(source_skeleton)(source_skeleton.names, source_skeleton.parents, offsets, source_skeleton.canonical)
    source = Clip("walk", random_character(source_skeleton), random_motion(source_skeleton, 5, spread=0.0))
    target = random_character(longer)
    by_height = apply_root_rule(source, target, source.motion.local_rotations, rule="height_ratio")
    by_hips = apply_root_rule(source, target, source.motion.local_rotations, rule="hip_height")
    step = source.motion.root_translation[4, 0] - source.motion.root_translation[0, 0]
    assert float(by_height.root_translation[4, 0] - by_height.root_translation[0, 0]) == pytest.approx(float(step))
    assert float(by_hips.root_translation[4, 0] - by_hips.root_translation[0, 0]) == pytest.approx(2 * float(step))


def test_lowest_sole_sees_only_vertices_of_feet_and_toes():
    character = random_character(human_skeleton(), seed=5)
    motion = random_motion(character.skeleton, 6, seed=5)
    posed = Skinner.from_character(character).pose_motion(motion)
    feet = [v for v in range(300) if int(character.dominant_joint[v]) in (8, 9, 12, 13)]
    expected = torch.stack([posed[t, feet, 1].min() for t in range(6)])
    torch.testing.assert_close(lowest_sole(character, motion), expected)


def test_the_hips_stay_where_they_are_when_joints_hang_above_them(rigged_clip):
    skeleton = rigged_clip.character.skeleton
    canonical = random_motion(skeleton.to_canonical(), 9, seed=6)
    extended = from_canonical_motion(skeleton, canonical, rigged_clip)
    torch.testing.assert_close(
        joint_positions(skeleton, extended)[:, 0], canonical.root_translation, atol=1e-12, rtol=0
    )
    assert isinstance(extended, Motion)
