"""What `Skinner` does to be fast must not show in its results."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from rigs import human_skeleton, random_character, random_motion

from retargetbench.kinematics import SPARSE_FROM_JOINTS, Skinner, forward_kinematics
from retargetbench.skeleton import Skeleton


def skeleton_with_a_tail() -> Skeleton:
    """The human skeleton with joints enough for the sparse path."""
    base = human_skeleton()
    names = tuple(f"Tail{i}" for i in range(SPARSE_FROM_JOINTS))
    parents = (*base.parents, 0, *range(22, 21 + SPARSE_FROM_JOINTS))
    offsets = torch.cat([base.offsets, torch.full((SPARSE_FROM_JOINTS, 3), 0.01, dtype=torch.float64)])
    return Skeleton(base.names + names, parents, offsets, base.canonical)


@pytest.mark.parametrize("skeleton", [human_skeleton(), skeleton_with_a_tail()])
@pytest.mark.parametrize("frames", [1, 16, 17, 70])
def test_clips_of_any_length_are_posed_frame_by_frame(skeleton, frames, device):
    character = random_character(skeleton, vertices=200, seed=1).to(device)
    motion = random_motion(skeleton, frames, seed=1).to(device)
    skinner = Skinner.from_character(character)
    posed = skinner.pose_motion(motion)
    assert posed.is_contiguous()
    single = torch.cat([skinner.pose_motion(motion.frames(t, t + 1)) for t in range(frames)])
    torch.testing.assert_close(posed, single, atol=1e-12, rtol=0)


@pytest.mark.parametrize("skeleton", [human_skeleton(), skeleton_with_a_tail()])
def test_wanting_a_gradient_does_not_change_positions(skeleton, device):
    character = random_character(skeleton, vertices=200, seed=2).to(device)
    motion = random_motion(skeleton, 40, seed=2).to(device)
    rotations, positions = forward_kinematics(
        character.skeleton, motion.root_translation.view(2, 20, 3), motion.local_rotations.view(2, 20, -1, 4)
    )
    skinner = Skinner.from_character(character)
    plain = skinner.pose(rotations, positions)
    followed = skinner.pose(rotations, positions.clone().requires_grad_())
    assert followed.requires_grad
    assert followed.is_contiguous()
    assert plain.shape == followed.shape == (2, 20, 200, 3)
    torch.testing.assert_close(plain, followed.detach(), atol=1e-12, rtol=0)


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this build of torch has no MKL")
@pytest.mark.parametrize(("influences", "layout"), [(3, torch.sparse_csr), (12, torch.strided)])
def test_matrix_on_a_cpu_is_sparse_where_vertices_have_few_influences(influences, layout):
    character = random_character(human_skeleton(), vertices=300, influences=influences, seed=4)
    assert Skinner.from_character(character).rows.layout == layout


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this build of torch has no MKL")
@pytest.mark.parametrize("skeleton", [human_skeleton(), skeleton_with_a_tail()])
def test_sparse_and_dense_matrices_give_the_same_positions_and_gradients(skeleton):
    character = random_character(skeleton, vertices=300, influences=3, seed=4)
    motion = random_motion(skeleton, 20, seed=4)
    rotations, positions = forward_kinematics(character.skeleton, motion.root_translation, motion.local_rotations)
    sparse = Skinner.from_character(character)
    assert sparse.rows.layout == torch.sparse_csr
    dense = replace(sparse, rows=sparse.rows.to_dense())
    torch.testing.assert_close(sparse.pose(rotations, positions), dense.pose(rotations, positions), atol=1e-12, rtol=0)
    followed = positions.requires_grad_()
    gradients = [torch.autograd.grad(s.pose(rotations, followed).sin().sum(), followed)[0] for s in (sparse, dense)]
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)  # sums over 300 vertices


@pytest.mark.parametrize("skeleton", [human_skeleton(), skeleton_with_a_tail()])
def test_gradients_reach_the_points_of_a_skinner(skeleton):
    character = random_character(skeleton, vertices=12, influences=3, seed=5)
    motion = random_motion(skeleton, 3, seed=5)

    def pose(points: torch.Tensor) -> torch.Tensor:
        return Skinner.from_points(character, points, character.weights).pose_motion(motion)

    assert torch.autograd.gradcheck(pose, character.bind_vertices.clone().requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_of_points_are_posed_as_the_means_of_posed_points(dtype, device):
    character = random_character(human_skeleton(), vertices=40, seed=3).to(device, dtype)
    motion = random_motion(human_skeleton(), 5, seed=3).to(device, dtype)
    means = [torch.tensor([4, 7, 30], device=device), torch.tensor([0], device=device)]
    skinner = Skinner.from_points(character, character.bind_vertices, character.weights, means=means)
    posed = skinner.pose_motion(motion)
    assert posed.shape == (5, 42, 3)
    torch.testing.assert_close(posed[:, 40], posed[:, [4, 7, 30]].mean(1))
    torch.testing.assert_close(posed[:, 41], posed[:, 0])
