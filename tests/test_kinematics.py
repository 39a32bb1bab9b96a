"""Kinematics and skinning against slow, obvious statements in NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion
from scipy.spatial.transform import Rotation, Slerp

from retargetbench.kinematics import (
    SPARSE_FROM_JOINTS,
    Skinner,
    forward_kinematics,
    hemisphere_continuous,
    padded_batch,
    resample,
    resample_to_frames,
)
from retargetbench.motion import Motion
from retargetbench.skeleton import Skeleton


def slow_forward_kinematics(skeleton, motion):
    """Joint by joint and frame by frame with 4x4 matrices."""
    frames = motion.frame_count
    world = np.zeros((frames, skeleton.joint_count, 4, 4))
    for t in range(frames):
        for j, parent in enumerate(skeleton.parents):
            local = np.eye(4)
            local[:3, :3] = Rotation.from_quat(motion.local_rotations[t, j].double().numpy()).as_matrix()
            local[:3, 3] = (motion.root_translation[t] if parent < 0 else skeleton.offsets[j]).double().numpy()
            world[t, j] = local if parent < 0 else world[t, parent] @ local
    return world


def slow_skinning(character, world):
    """Vertex by vertex over its influences."""
    out = np.zeros((len(world), character.vertex_count, 3))
    bind = character.inverse_bind.double().numpy()
    for t in range(len(world)):
        for v in range(character.vertex_count):
            point = np.append(character.bind_vertices[v].double().numpy(), 1.0)
            for k in range(character.influence_joints.shape[1]):
                j = int(character.influence_joints[v, k])
                weight = float(character.influence_weights[v, k])
                out[t, v] += weight * (world[t, j] @ bind[j] @ point)[:3]
    return out


def many_joints() -> Skeleton:
    """The human skeleton with a tail long enough for the sparse path."""
    base = human_skeleton()
    tail = SPARSE_FROM_JOINTS + 4
    names = base.names + tuple(f"Tail{i}" for i in range(tail))
    parents = (*base.parents, 0, *range(22, 22 + tail - 1))
    offsets = torch.cat([base.offsets, torch.full((tail, 3), 0.01, dtype=torch.float64)])
    return Skeleton(names, parents, offsets, base.canonical)


@pytest.mark.parametrize("extra_joints", [False, True])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 5e-6)])  # float32: 8 joints deep
def test_forward_kinematics_agrees_with_matrices_multiplied_joint_by_joint(extra_joints, dtype, atol, device):
    skeleton = human_skeleton(extra_joints=extra_joints)
    motion = random_motion(skeleton, 7, seed=1)
    world = slow_forward_kinematics(skeleton, motion)
    moved = motion.to(device, dtype)
    rotations, positions = forward_kinematics(skeleton.to(device, dtype), moved.root_translation, moved.local_rotations)
    assert rotations.dtype == dtype
    assert rotations.device.type == device.type
    np.testing.assert_allclose(positions.cpu().numpy(), world[..., :3, 3], atol=atol)
    np.testing.assert_allclose(rotations.cpu().numpy(), world[..., :3, :3], atol=atol)


def test_forward_kinematics_supports_any_leading_axes():
    skeleton = human_skeleton()
    motion = random_motion(skeleton, 6, seed=2)
    flat_rotations, flat_positions = forward_kinematics(skeleton, motion.root_translation, motion.local_rotations)
    rotations, positions = forward_kinematics(
        skeleton, motion.root_translation.view(2, 3, 3), motion.local_rotations.view(2, 3, 22, 4)
    )
    assert torch.equal(rotations.reshape(6, 22, 3, 3), flat_rotations)
    assert torch.equal(positions.reshape(6, 22, 3), flat_positions)


def test_forward_kinematics_gradient_agrees_with_finite_differences():
    skeleton = human_skeleton()
    motion = random_motion(skeleton, 1, seed=3)

    def positions(root, rotations):
        return forward_kinematics(skeleton, root, torch.nn.functional.normalize(rotations, dim=-1))[1]

    inputs = (motion.root_translation.clone().requires_grad_(), motion.local_rotations.clone().requires_grad_())
    assert torch.autograd.gradcheck(positions, inputs)


@pytest.mark.parametrize("skeleton", [human_skeleton(), human_skeleton(extra_joints=True), many_joints()])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 5e-6)])
def test_skinning_agrees_with_a_loop_over_vertices_and_influences(skeleton, dtype, atol, device):
    character = random_character(skeleton, vertices=60, seed=4)
    motion = random_motion(skeleton, 3, seed=4)
    expected = slow_skinning(character, slow_forward_kinematics(skeleton, motion))
    skinner = Skinner.from_character(character.to(device, dtype))
    posed = skinner.pose_motion(motion.to(device, dtype))
    assert posed.shape == (3, 60, 3)
    assert posed.is_contiguous()
    np.testing.assert_allclose(posed.cpu().numpy(), expected, atol=atol)


def test_many_weighted_joints_take_the_sparse_path_and_few_do_not():
    few = Skinner.from_character(random_character(human_skeleton(), vertices=40))
    many = Skinner.from_character(random_character(many_joints(), vertices=400))
    assert few.rows.layout == torch.strided
    assert many.rows.layout == torch.sparse_csr


@pytest.mark.parametrize("skeleton", [human_skeleton(), many_joints()])
def test_skinning_gradient_agrees_with_finite_differences(skeleton):
    character = random_character(skeleton, vertices=120, seed=5)
    skinner = Skinner.from_character(character)
    motion = random_motion(skeleton, 1, seed=5)
    direction = torch.randn_like(motion.local_rotations)

    def value(step):
        moved = torch.nn.functional.normalize(motion.local_rotations + step * direction, dim=-1)
        return (skinner.pose(*forward_kinematics(skeleton, motion.root_translation, moved)) ** 2).sum()

    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(value(step), step)
    numeric = (value(1e-6) - value(-1e-6)) / 2e-6
    assert float(gradient) == pytest.approx(float(numeric), rel=1e-6)


def test_rest_vertices_are_the_mesh_posed_by_the_identity():
    skeleton = human_skeleton(extra_joints=True)
    character = random_character(skeleton, vertices=50, seed=6)
    identity = torch.zeros(1, skeleton.joint_count, 4, dtype=torch.float64)
    identity[..., 3] = 1
    rest = Skinner.from_character(character).pose_motion(Motion(skeleton.offsets[:1], identity, 30.0))
    torch.testing.assert_close(character.rest_vertices, rest[0], atol=1e-12, rtol=0)


def test_a_subset_of_vertices_is_posed_like_the_whole():
    character = random_character(human_skeleton(), vertices=80, seed=7)
    motion = random_motion(character.skeleton, 4, seed=7)
    chosen = torch.tensor([3, 70, 11])
    whole = Skinner.from_character(character).pose_motion(motion)
    torch.testing.assert_close(Skinner.from_character(character, chosen).pose_motion(motion), whole[:, chosen])


def test_hemisphere_continuity_keeps_rotations_and_removes_jumps():
    motion = random_motion(human_skeleton(), 50, seed=8)
    signs = torch.where(torch.rand(50, 22, 1, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1.0)
    flipped = motion.local_rotations * signs
    fixed = hemisphere_continuous(flipped)
    assert bool(((fixed[1:] * fixed[:-1]).sum(-1) > 0).all())
    before = Rotation.from_quat(flipped.reshape(-1, 4).numpy())
    after = Rotation.from_quat(fixed.reshape(-1, 4).numpy())
    assert (before.inv() * after).magnitude().max() < 1e-7


@pytest.mark.parametrize("fps", [12.0, 25.0, 60.0, 120.0])
def test_resampling_agrees_with_scipy_slerp(fps):
    motion = random_motion(human_skeleton(), 31, seed=9, fps=30.0)
    got = resample(motion, fps)
    times = np.arange(got.frame_count) / fps
    assert times[-1] <= motion.duration + 1e-9 < times[-1] + 1 / fps + 1e-6
    keys = np.arange(31) / 30.0
    for j in (0, 5, 16):
        expected = Slerp(keys, Rotation.from_quat(motion.local_rotations[:, j].numpy()))(np.clip(times, 0, keys[-1]))
        error = (expected.inv() * Rotation.from_quat(got.local_rotations[:, j].numpy())).magnitude()
        assert error.max() < 1e-6
    for axis in range(3):
        expected = np.interp(times, keys, motion.root_translation[:, axis].numpy())
        np.testing.assert_allclose(got.root_translation[:, axis].numpy(), expected, atol=1e-12)


def test_resampling_to_the_same_rate_changes_nothing():
    motion = random_motion(human_skeleton(), 5, seed=10)
    assert resample(motion, motion.fps) is motion


def test_going_to_another_rate_and_back_gives_the_source_frames():
    motion = random_motion(human_skeleton(), 41, seed=11, fps=30.0)
    back = resample_to_frames(resample(motion, 60.0), motion.frame_count, motion.fps)
    assert back.frame_count == motion.frame_count
    torch.testing.assert_close(back.root_translation, motion.root_translation, atol=1e-9, rtol=0)
    torch.testing.assert_close(back.local_rotations, hemisphere_continuous(motion.local_rotations), atol=1e-7, rtol=0)


@pytest.mark.parametrize("fps", [15.0, 60.0])
def test_one_frame_can_be_resampled(fps):
    motion = random_motion(human_skeleton(), 1, seed=12)
    got = resample(motion, fps)
    assert got.frame_count == 1
    torch.testing.assert_close(got.local_rotations, motion.local_rotations)


def test_padding_repeats_the_last_frame_and_masks_it():
    motions = [random_motion(human_skeleton(), n, seed=n) for n in (3, 1, 5)]
    root, rotations, mask = padded_batch(motions)
    assert rotations.shape == (3, 5, 22, 4)
    assert mask.sum(1).tolist() == [3, 1, 5]
    for i, motion in enumerate(motions):
        assert torch.equal(rotations[i][mask[i]], motion.local_rotations)
        assert torch.equal(root[i][~mask[i]], motion.root_translation[-1:].expand(int((~mask[i]).sum()), 3))
