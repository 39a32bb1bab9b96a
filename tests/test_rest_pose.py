"""Rest poses: what is T-like, re-posing, and re-expressing without moving anything."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from mixamo_like import boxes, humanoid, turned_rest
from scipy.spatial.transform import Rotation

from retargetbench.character import Character
from retargetbench.errors import CharacterError
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.motion import Motion
from retargetbench.rest_pose import (
    change_motion_rest,
    is_t_like,
    rest_change,
    rotation_between,
    t_pose_angles,
    t_pose_change,
    to_house_rest,
    to_t_pose,
)
from retargetbench.skeleton import Skeleton, find_canonical_map


def skeleton_of(rig) -> Skeleton:
    offsets = torch.from_numpy(rig.offsets) / 100
    return Skeleton(tuple(rig.names), tuple(rig.parents), offsets, find_canonical_map(rig.names))


def character_of(rig) -> Character:
    skeleton = skeleton_of(rig)
    vertices, faces, weights = boxes(rig)
    dense = torch.zeros(len(vertices), skeleton.joint_count, dtype=torch.float64)
    dense[:, list(skeleton.canonical)] = torch.from_numpy(weights / weights.sum(-1, keepdims=True))
    influences, joints = dense.topk(2)
    inverse_bind = torch.eye(4, dtype=torch.float64).repeat(skeleton.joint_count, 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    return Character(
        "box", skeleton, torch.from_numpy(vertices) / 100, inverse_bind, torch.from_numpy(faces), joints, influences
    )


def random_pose(joints: int, frames: int = 5, seed: int = 0) -> Motion:
    generator = torch.Generator().manual_seed(seed)
    rotations = torch.randn(frames, joints, 4, dtype=torch.float64, generator=generator)
    translation = torch.randn(frames, 3, dtype=torch.float64, generator=generator)
    return Motion(translation, torch.nn.functional.normalize(rotations, dim=-1), 30.0)


@pytest.mark.parametrize(
    ("arm_deg", "thigh_deg", "expected"),
    [(0, 0, True), (14.9, 0, True), (15.1, 0, False), (0, 14.9, True), (0, 15.1, False), (-15.1, 0, False)],
)
def test_t_likeness_ends_at_fifteen_degrees_of_upper_arms_and_thighs(arm_deg, thigh_deg, expected):
    assert is_t_like(skeleton_of(humanoid(arm_deg=arm_deg, thigh_deg=thigh_deg))) is expected


def test_bent_knees_alone_leave_a_rest_t_like():
    skeleton = skeleton_of(humanoid(knee_deg=40))
    assert is_t_like(skeleton)
    assert t_pose_angles(skeleton)["LeftLeg"] == pytest.approx(37, abs=1e-6)


def test_t_pose_angles_are_those_the_rig_was_built_with():
    angles = t_pose_angles(skeleton_of(humanoid(arm_deg=7, thigh_deg=11, knee_deg=11)))
    assert [angles[name] for name in ("LeftArm", "RightArm", "LeftForeArm")] == pytest.approx([7, 7, 7], abs=1e-6)
    assert [angles["LeftUpLeg"], angles["RightLeg"]] == pytest.approx([11, 0], abs=1e-6)


def test_rotation_between_several_vectors_is_the_known_one():
    turn = Rotation.from_rotvec([0.3, -0.8, 1.1])
    before = np.array([[1.0, 0, 0], [0, 2, 0.1], [0.2, 0, 3]])
    found = rotation_between(torch.from_numpy(before), torch.from_numpy(turn.apply(before)), torch.eye(3))
    assert np.allclose(found.numpy(), turn.as_matrix(), atol=1e-7)  # the prior turns it by about 1e-9


@pytest.mark.parametrize("degrees", [0.0, 1e-4, 5.0, 90.0, 179.0])
def test_rotation_between_single_vectors_adds_no_twist_to_the_prior(degrees):
    prior = Rotation.from_rotvec([0.2, 0.5, -0.4])
    bone = np.array([0.0, 0.3, 0.4])
    axis = np.cross(prior.apply(bone), [1.0, 2.0, 3.0])
    swing = Rotation.from_rotvec(axis / np.linalg.norm(axis) * np.radians(degrees))
    goal = (swing * prior).apply(bone)
    found = rotation_between(
        torch.from_numpy(bone)[None], torch.from_numpy(goal)[None], torch.from_numpy(prior.as_matrix())
    )
    assert np.allclose(found.numpy(), (swing * prior).as_matrix(), atol=1e-9)


def test_rotation_between_no_vectors_or_vectors_of_no_length_is_the_prior():
    prior = torch.from_numpy(Rotation.from_rotvec([0.2, 0.5, -0.4]).as_matrix())
    for count in (0, 1, 2):
        found = rotation_between(torch.zeros(count, 3), torch.zeros(count, 3), prior)
        assert torch.allclose(found, prior, atol=1e-12)


def test_parallel_vectors_leave_the_twist_to_the_prior():
    prior = Rotation.from_rotvec([0.0, 0.7, 0.0])
    before = np.array([[0.0, 1, 0], [0, 3, 0]])
    found = rotation_between(torch.from_numpy(before), torch.from_numpy(before), torch.from_numpy(prior.as_matrix()))
    assert np.allclose(found.numpy(), prior.as_matrix(), atol=1e-6)


def test_rotation_between_opposite_vectors_is_a_half_turn():
    up = torch.tensor([[0.0, 1.0, 0.0]])
    found = rotation_between(up, -up, torch.eye(3))
    assert torch.allclose(found @ up[0].double(), -up[0].double(), atol=1e-6)
    assert torch.linalg.det(found).item() == pytest.approx(1)


@pytest.mark.parametrize("degrees", [0.5, 6.0, 40.0])
def test_rest_change_recovers_the_turns_that_made_a_rest(degrees):
    rig = humanoid()
    turned, turns = turned_rest(rig, degrees=degrees, seed=3)
    changes = rest_change(rig.parents, torch.from_numpy(rig.offsets) / 100, torch.from_numpy(turned.offsets) / 100)
    expected = np.stack([turn.as_matrix() for turn in turns])
    assert np.allclose(changes.numpy(), expected, atol=1e-6)


def test_rest_change_between_equal_rests_is_exactly_nothing():
    rig = humanoid()
    offsets = torch.from_numpy(rig.offsets) / 100
    changes = rest_change(rig.parents, offsets, offsets + 4e-7)
    assert torch.equal(changes, torch.eye(3, dtype=torch.float64).expand(len(rig.names), 3, 3))


@pytest.mark.parametrize("rig", [humanoid(), humanoid(thigh_deg=20, knee_deg=45), humanoid(arm_deg=50, pelvis=True)])
def test_re_posing_moves_no_joint_and_no_vertex_of_any_frame(rig):
    character = character_of(rig)
    motion = random_pose(character.skeleton.joint_count)
    posed = to_t_pose(character)
    moved = change_motion_rest(character.skeleton, motion, t_pose_change(character.skeleton))
    before = forward_kinematics(character.skeleton, motion.root_translation, motion.local_rotations)[1]
    after = forward_kinematics(posed.skeleton, moved.root_translation, moved.local_rotations)[1]
    assert (before - after).abs().max() < 1e-9
    vertices = Skinner.from_character(character).pose_motion(motion)
    assert (vertices - Skinner.from_character(posed).pose_motion(moved)).abs().max() < 1e-9


@pytest.mark.parametrize("rig", [humanoid(), humanoid(thigh_deg=20, knee_deg=45), humanoid(arm_deg=50)])
def test_a_re_posed_rest_is_an_exact_t_pose_that_stands_as_high_as_before(rig):
    before = character_of(rig)
    after = to_t_pose(before)
    assert max(t_pose_angles(after.skeleton).values()) < math.degrees(1e-9)
    feet = [before.skeleton.canonical[k] for k in (8, 9, 12, 13)]
    lowest = [character.skeleton.rest_positions[feet, 1].min() for character in (before, after)]
    assert lowest[0] == pytest.approx(lowest[1])
    for foot in (8, 12):
        toe = [c.skeleton.canonical_offsets[foot + 1] for c in (before, after)]
        assert torch.allclose(toe[0], toe[1], atol=1e-9), "feet keep their direction"
    assert torch.allclose(before.skeleton.offsets.norm(dim=-1)[1:], after.skeleton.offsets.norm(dim=-1)[1:], atol=1e-12)


def test_the_rest_mesh_of_a_re_posed_character_follows_its_joints():
    character = to_t_pose(character_of(humanoid(thigh_deg=20, knee_deg=45)))
    rest = Motion(character.skeleton.offsets[:1], random_pose(character.skeleton.joint_count).local_rotations[:1], 1.0)
    identity = torch.zeros_like(rest.local_rotations)
    identity[..., 3] = 1
    posed = Skinner.from_character(character).pose_motion(Motion(rest.root_translation, identity, 1.0))[0]
    assert torch.allclose(posed, character.rest_vertices, atol=1e-12)
    hand = character.dominant_joint == 17
    spread = character.rest_vertices[hand] - character.skeleton.rest_positions[character.skeleton.canonical[17]]
    assert spread.norm(dim=-1).max() < 0.16  # a hand box is 12 cm long and 6 cm wide


def test_the_house_rest_keeps_what_is_t_like_and_re_poses_what_is_not():
    kept, bent = character_of(humanoid()), character_of(humanoid(thigh_deg=20))
    assert torch.equal(to_house_rest(kept).skeleton.offsets, kept.skeleton.offsets)
    assert to_house_rest(kept).provenance["rest"] == "as in the file"
    assert is_t_like(to_house_rest(bent).skeleton)
    assert "UpLeg was 20.0 degrees off" in to_house_rest(bent).provenance["rest"]
    assert max(t_pose_angles(to_house_rest(kept, straighten=True).skeleton).values()) < 1e-3


def test_a_motion_of_another_skeleton_is_refused():
    skeleton = skeleton_of(humanoid())
    with pytest.raises(CharacterError, match="33 joints"):
        change_motion_rest(skeleton, random_pose(22), t_pose_change(skeleton))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_re_expressing_works_on_every_device_and_keeps_the_number_type(device, dtype):
    skeleton = skeleton_of(humanoid(thigh_deg=20)).to(device, dtype)
    motion = random_pose(skeleton.joint_count).to(device, dtype)
    moved = change_motion_rest(skeleton, motion, t_pose_change(skeleton))
    assert moved.local_rotations.dtype == dtype
    assert moved.device.type == device.type
