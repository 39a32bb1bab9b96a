"""Euler angles of BVH channels to unit quaternions and back, in NumPy.

An order such as ``"ZYX"`` lists the channels as they stand in the file: the rotation is the product of the axis
rotations from left to right, ``R = Rz(a) · Ry(b) · Rx(c)``. Angles in degrees, quaternions xyzw.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

ORDERS = ("XYZ", "XZY", "YXZ", "YZX", "ZXY", "ZYX")
"""Every order of three different axes."""


def euler_to_quaternion(angles_deg: Array, order: str) -> Array:
    """Convert angles (..., N) about the N axes named by ``order`` to quaternions (..., 4).

    Any number of axes is accepted; none gives the identity.

    Example:
        >>> euler_to_quaternion(np.array([90.0]), "X").round(3).tolist()
        [0.707, 0.0, 0.0, 0.707]
    """
    quaternion = np.zeros((*angles_deg.shape[:-1], 4))
    quaternion[..., 3] = 1.0
    half = np.radians(angles_deg) / 2
    sines, cosines = np.sin(half), np.cos(half)
    for n, axis in enumerate(order):
        i = "XYZ".index(axis)
        j, k = (i + 1) % 3, (i + 2) % 3
        sine, cosine = sines[..., n], cosines[..., n]
        qi, qj, qk, qw = (quaternion[..., c].copy() for c in (i, j, k, 3))
        # Hamilton product with (cosine, sine · unit vector of axis i) on the right.
        quaternion[..., i] = cosine * qi + sine * qw
        quaternion[..., j] = cosine * qj + sine * qk
        quaternion[..., k] = cosine * qk - sine * qj
        quaternion[..., 3] = cosine * qw - sine * qi
    return quaternion


def quaternion_to_euler(quaternions: Array, order: str) -> Array:
    """Convert unit quaternions (..., 4) to angles (..., 3) about three different axes, degrees.

    With half angles A, B, C about the axes i, j, k and e = ±1 for an even or odd order,

        w + q_j = (cos B + sin B) cos(A + eC),   q_i + e·q_k = (cos B + sin B) sin(A + eC)
        w - q_j = (cos B - sin B) cos(A - eC),   q_i - e·q_k = (cos B - sin B) sin(A - eC)

    so that no branch is needed at B = ±45° (gimbal lock): an angle that loses its meaning there has no weight in
    the rotation. The middle angle lies in -90..90, the others in -180..180.

    Example:
        >>> quaternion_to_euler(np.array([0.0, 0.0, 0.5**0.5, 0.5**0.5]), "ZYX").round(3).tolist()
        [90.0, 0.0, 0.0]
    """
    i, j, k = ("XYZ".index(axis) for axis in order)
    sign = 1.0 if (j - i) % 3 == 1 else -1.0
    qi, qj, qk, qw = (quaternions[..., c] for c in (i, j, k, 3))
    plus, minus = qi + sign * qk, qi - sign * qk
    total = np.arctan2(plus, qw + qj)
    difference = np.arctan2(minus, qw - qj)
    middle = 2 * np.arctan2(np.hypot(qw + qj, plus), np.hypot(qw - qj, minus)) - np.pi / 2
    angles = np.degrees(np.stack([total + difference, middle, sign * (total - difference)], -1))
    return np.asarray((angles + 180.0) % 360.0 - 180.0)


def hemisphere_continuous(quaternions: Array) -> Array:
    """Flip signs of (T, ..., 4) so that neighbours in time lie in one hemisphere, starting with w >= 0."""
    flips = np.where((quaternions[1:] * quaternions[:-1]).sum(-1, keepdims=True) < 0, -1.0, 1.0)
    first = np.where(quaternions[:1, ..., 3:] < 0, -1.0, 1.0)
    return np.asarray(quaternions * np.cumprod(np.concatenate([first, flips]), axis=0))
