"""How sensors move, against loops over joints and the posed mesh itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import roma
import torch
from rigs import human_skeleton, random_motion
from sensor_rigs import arm_parts, deformed, figure, tube_figure

from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.motion import Motion
from retargetbench.sensors import bone_slice, extend_to_all_joints, extract_sensors, sensor_forward_kinematics
from retargetbench.transfer import from_canonical_motion


def bent(character):
    """Bind the mesh in another pose than the rest, which blends of joints then show."""
    turns = roma.rotvec_to_rotmat(0.05 * torch.randn(22, 3, generator=torch.Generator().manual_seed(1)).double())
    inverse_bind = character.inverse_bind.clone()
    inverse_bind[:, :3] = turns @ inverse_bind[:, :3]
    return replace(character, inverse_bind=inverse_bind)


def posed_joints(character, frames=3, seed=0):
    motion = random_motion(character.skeleton, frames, seed=seed)
    return forward_kinematics(character.skeleton, motion.root_translation, motion.local_rotations)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_positions_and_frames_agree_with_a_loop_over_joints(device, dtype, tolerance):
    character = deformed(tube_figure()).to(dtype=dtype)
    sensors = extract_sensors(character)
    rotations, positions = posed_joints(character, frames=2)
    moved, frames = sensor_forward_kinematics(
        sensors.to(device), character.to(device), rotations.to(device, dtype), positions.to(device, dtype)
    )
    rest_joints = character.skeleton.rest_positions.double().numpy()
    for t in range(2):
        for s in range(288):
            point, tangent = np.zeros(3), np.zeros((3, 3))
            for j in range(22):
                weight, rotation = float(sensors.weights[s, j]), rotations[t, j].double().numpy()
                offset = sensors.positions[s].double().numpy() - rest_joints[j]
                point += weight * (rotation @ offset + positions[t, j].double().numpy())
                tangent += weight * rotation @ sensors.frames[s].double().numpy()
            normal = tangent[:, 2] / np.linalg.norm(tangent[:, 2])
            along = tangent[:, 0] - (tangent[:, 0] @ normal) * normal
            along /= np.linalg.norm(along)
            expected = np.stack([along, np.cross(normal, along), normal], -1)
            assert np.abs(moved[t, s].cpu().double().numpy() - point).max() < tolerance
            assert np.abs(frames[t, s].cpu().double().numpy() - expected).max() < 10 * tolerance


def test_the_rest_pose_leaves_sensors_where_they_are():
    character = bent(deformed(tube_figure()))
    sensors = extract_sensors(character)
    rest = character.skeleton.rest_positions
    for on_surface in (False, True):
        positions, frames = sensor_forward_kinematics(
            sensors, character, torch.eye(3).double().expand(22, 3, 3), rest, on_surface=on_surface
        )
        assert (positions - sensors.positions)[sensors.valid].abs().max() < 1e-9
        assert (frames - sensors.frames).abs().max() < 1e-12


def test_sensors_on_the_surface_lie_on_the_posed_mesh():
    character = bent(deformed(tube_figure()))
    sensors = extract_sensors(character)
    rotations, positions = posed_joints(character)
    moved, _ = sensor_forward_kinematics(sensors, character, rotations, positions, on_surface=True)
    vertices = Skinner.from_character(character).pose(rotations, positions)
    corners = vertices[:, character.faces[sensors.faces]]
    expected = (corners * sensors.barycentric[:, :, None]).sum(-2)
    assert (moved - expected)[:, sensors.valid].abs().max() < 1e-9


def test_both_ways_of_skinning_stay_close():
    character = deformed(tube_figure())
    sensors = extract_sensors(character)
    joints = posed_joints(character)
    off, _ = sensor_forward_kinematics(sensors, character, *joints)
    on, _ = sensor_forward_kinematics(sensors, character, *joints, on_surface=True)
    difference = (off - on)[:, sensors.valid].norm(dim=-1)
    assert 0 < difference.max() < 0.01


def test_a_sensor_held_by_one_joint_follows_it_exactly():
    character = figure(arm_parts())
    sensors = extract_sensors(character)
    rotations, positions = posed_joints(character)
    forearm = character.skeleton.names.index("LeftForeArm")
    of_bone = bone_slice("LeftForeArm")
    held = (sensors.weights[of_bone, forearm] == 1).nonzero()[:, 0] + of_bone.start
    assert len(held) >= 8
    moved, frames = sensor_forward_kinematics(sensors, character, rotations, positions)
    local = sensors.positions[held] - character.skeleton.rest_positions[forearm]
    expected = (rotations[:, forearm] @ local.mT).mT + positions[:, forearm, None]
    assert (moved[:, held] - expected).abs().max() < 1e-12
    assert (frames[:, held] - rotations[:, forearm, None] @ sensors.frames[held]).abs().max() < 1e-12


def test_pair_vectors_do_not_see_rigid_motion():
    character = deformed(tube_figure())
    sensors = extract_sensors(character)
    rotations, positions = posed_joints(character)
    turn = roma.rotvec_to_rotmat(torch.tensor([0.3, -1.1, 0.7], dtype=torch.float64))
    shift = torch.tensor([2.0, -0.5, 1.0], dtype=torch.float64)

    def pair_vectors(world_rotations, world_positions):
        points, frames = sensor_forward_kinematics(sensors, character, world_rotations, world_positions)
        difference = points[..., None, :, :] - points[..., :, None, :]
        return difference @ frames  # rows d = frame⁻¹ (p_j − p_i)

    here = pair_vectors(rotations, positions)
    there = pair_vectors(turn @ rotations, positions @ turn.T + shift)
    assert (here - there).abs().max() < 1e-9


def test_leading_axes_and_frames_do_not_influence_each_other():
    character = deformed(tube_figure())
    sensors = extract_sensors(character)
    rotations, positions = posed_joints(character, frames=6)
    whole = sensor_forward_kinematics(sensors, character, rotations, positions)
    shaped = sensor_forward_kinematics(
        sensors, character, rotations.view(2, 3, 22, 3, 3), positions.view(2, 3, 22, 3), on_surface=False
    )
    single = sensor_forward_kinematics(sensors, character, rotations[4], positions[4])
    assert shaped[0].shape == (2, 3, 288, 3)
    for k in range(2):
        assert torch.allclose(shaped[k].flatten(0, 1), whole[k], atol=1e-12)
        assert torch.allclose(single[k], whole[k][4], atol=1e-12)


@pytest.mark.parametrize("on_surface", [False, True])
def test_gradients_are_those_of_finite_differences(on_surface):
    character = deformed(tube_figure())
    sensors = extract_sensors(character)
    rotations, positions = posed_joints(character, frames=1, seed=3)

    def outputs(world_rotations, world_positions):
        return sensor_forward_kinematics(sensors, character, world_rotations, world_positions, on_surface=on_surface)

    inputs = (rotations.requires_grad_(), positions.requires_grad_())
    assert torch.autograd.gradcheck(outputs, inputs, fast_mode=True)


def test_invalid_sensors_move_and_pass_gradients_without_nan():
    character = figure(arm_parts(end=0.68))
    sensors = extract_sensors(character)
    assert (~sensors.valid).sum() > 100
    rotations, positions = (values.requires_grad_() for values in posed_joints(character))
    for on_surface in (False, True):
        points, frames = sensor_forward_kinematics(sensors, character, rotations, positions, on_surface=on_surface)
        (points.square().sum() + frames.sum()).backward()
        assert torch.isfinite(points).all()
        assert torch.isfinite(frames).all()
        assert torch.isfinite(rotations.grad).all()


def test_other_joints_move_with_the_canonical_joint_they_hang_under():
    skeleton = human_skeleton(extra_joints=True)
    canonical = random_motion(skeleton.to_canonical(), 4)
    expected_motion = from_canonical_motion(skeleton, canonical)
    expected = forward_kinematics(skeleton, expected_motion.root_translation, expected_motion.local_rotations)
    of_canonical = forward_kinematics(skeleton.to_canonical(), canonical.root_translation, canonical.local_rotations)
    rotations, positions = extend_to_all_joints(skeleton, *of_canonical)
    finger = [skeleton.names.index(f"mixamorig:{side}HandIndex1") for side in ("Left", "Right")]
    checked = [*skeleton.canonical, *finger]
    assert (rotations - expected[0])[:, checked].abs().max() < 1e-6
    assert (positions - expected[1])[:, checked].abs().max() < 1e-6
    assert isinstance(expected_motion, Motion)
