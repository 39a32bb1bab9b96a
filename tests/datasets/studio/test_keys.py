"""Motions as keys: the spline through them, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import roma
import torch
from scipy.interpolate import CubicSpline

from retargetbench.datasets.studio.keys import interpolate_keys, keys_of_frames, spline_matrix


def smooth_keys(count, *, joints=3, batch=(), dtype=torch.float64):
    """Rotations and roots that wander smoothly."""
    generator = torch.Generator().manual_seed(count)
    time = torch.linspace(0, 1, count, dtype=torch.float64)[:, None, None]
    phases = torch.rand(*batch, 1, joints, 3, generator=generator, dtype=torch.float64) * 6
    vectors = torch.sin(4 * time + phases) * 0.8
    return roma.rotvec_to_unitquat(vectors).to(dtype), (vectors[..., 0, :] * 0.3).to(dtype)


@pytest.mark.parametrize("keys", [2, 3, 4, 11, 38])
def test_the_matrix_gives_the_natural_cubic_spline(keys):
    values = np.random.default_rng(keys).normal(size=keys)
    expected = CubicSpline(np.arange(keys), values, bc_type="natural")(np.arange(2 * keys - 1) / 2)
    np.testing.assert_allclose(spline_matrix(keys).numpy() @ values, expected, atol=1e-12)


def test_the_matrix_keeps_the_keys_and_straight_lines_exactly():
    matrix = spline_matrix(9)
    assert torch.equal(matrix[::2], torch.eye(9, dtype=torch.float64))
    torch.testing.assert_close(matrix @ torch.arange(9.0).double(), torch.arange(17.0).double() / 2)
    assert torch.equal(spline_matrix(1), torch.ones(1, 1, dtype=torch.float64))


def test_rotations_are_splines_of_components_with_continuous_signs():
    quaternions, root = smooth_keys(12)
    flipped = quaternions.clone()
    flipped[3:7, 1] *= -1
    rotations, positions = interpolate_keys(flipped, root)
    times = np.arange(23) / 2
    expected = CubicSpline(np.arange(12), quaternions.numpy(), bc_type="natural")(times)
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(rotations.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(positions, CubicSpline(np.arange(12), root, bc_type="natural")(times), atol=1e-12)


def test_a_smooth_motion_at_thirty_frames_a_second_comes_back_from_its_keys():
    quaternions, _ = smooth_keys(75)
    rotations, _ = interpolate_keys(keys_of_frames(quaternions), torch.zeros(38, 3, dtype=torch.float64))
    # Within 1e-3 rad: the ends are the worst, where a natural spline has no curvature.
    assert float(roma.rotvec_geodesic_distance(*map(roma.unitquat_to_rotvec, (rotations, quaternions))).max()) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_give_what_single_motions_give(dtype):
    quaternions, root = smooth_keys(7, batch=(2, 3), dtype=dtype)
    rotations, positions = interpolate_keys(quaternions, root)
    assert rotations.shape == (2, 3, 13, 3, 4)
    assert rotations.dtype == positions.dtype == dtype
    single = interpolate_keys(quaternions[1, 2], root[1, 2])
    torch.testing.assert_close(rotations[1, 2], single[0])
    torch.testing.assert_close(positions[1, 2], single[1])


def test_gradients_flow_to_the_keys():
    quaternions, root = smooth_keys(4, joints=1)
    assert torch.autograd.gradcheck(interpolate_keys, (quaternions.requires_grad_(), root.requires_grad_()))


def test_one_key_is_one_frame():
    quaternions, root = smooth_keys(1)
    rotations, positions = interpolate_keys(quaternions, root)
    torch.testing.assert_close(rotations, quaternions)
    torch.testing.assert_close(positions, root)


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="odd number of frames, not 4"):
        keys_of_frames(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="at least one key, not 0"):
        spline_matrix(0)
