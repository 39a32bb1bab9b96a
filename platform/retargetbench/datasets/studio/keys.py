"""Motions as keys at half their frame rate: what is stored and solved for, and the spline that is the motion between.

The keys are frames 0, 2, 4 …; the motion of T = 2K − 1 frames is *defined* by them. A natural cubic spline is the curve
through its keys with the least integral of squared acceleration, and it is linear in them: one constant matrix.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from scipy.interpolate import CubicSpline

from retargetbench.kinematics import hemisphere_continuous

KEY_STEP = 2
"""Frames from key to key."""


@lru_cache(maxsize=64)
def spline_matrix(keys: int) -> torch.Tensor:
    """Return the matrix that takes the values of a natural cubic spline at its keys to the values at all frames.

    Args:
        keys: number of keys, K.

    Returns:
        (2K - 1, K), float64; even rows are those of the identity. It is remembered, so do not write into it.

    Example:
        >>> spline_matrix(2)
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000],
                [0.0000, 1.0000]], dtype=torch.float64)
    """
    if keys < 1:
        raise ValueError(f"a motion has at least one key, not {keys}")
    matrix = np.zeros((KEY_STEP * keys - 1, keys))
    if keys > 1:
        spline = CubicSpline(np.arange(keys), np.eye(keys), bc_type="natural")
        matrix[1::KEY_STEP] = spline(np.arange(keys - 1) + 0.5)
    matrix[::KEY_STEP] = np.eye(keys)
    return torch.from_numpy(matrix)


def interpolate_keys(quaternions: torch.Tensor, root: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all frames of motions that are given by their keys; differentiable.

    Quaternions are brought into one hemisphere in time, interpolated by components and normalised; at the keys they
    stay as they are up to their sign.

    Args:
        quaternions: local rotations at the keys, unit xyzw, (..., K, J, 4).
        root: root translations at the keys, (..., K, 3) metres.

    Returns:
        Local rotations (..., 2K - 1, J, 4), hemisphere-continuous, and root translations (..., 2K - 1, 3).
    """
    matrix = spline_matrix(quaternions.shape[-3]).to(quaternions)
    continuous = hemisphere_continuous(quaternions, dim=-3).flatten(-2)
    rotations = (matrix @ continuous).reshape(*continuous.shape[:-2], len(matrix), *quaternions.shape[-2:])
    return torch.nn.functional.normalize(rotations, dim=-1), matrix.to(root) @ root


def keys_of_frames(frames: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Return the keys of values at all frames, an odd number of them along ``dim``."""
    count = frames.shape[dim]
    if count % KEY_STEP != 1:
        raise ValueError(f"a motion that ends with a key has an odd number of frames, not {count}")
    return frames.movedim(dim, 0)[::KEY_STEP].movedim(0, dim)
