"""Two-bone inverse kinematics, easing and small rotation helpers for the motions of the capsule dataset.

Rotations are float64 matrices (..., 3, 3); angles are in degrees, as scores give them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import roma
import torch

from retargetbench.kinematics import hemisphere_continuous

if TYPE_CHECKING:
    from collections.abc import Sequence


def two_bone(
    start: torch.Tensor, end: torch.Tensor, lengths: tuple[float, float], pole: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Bend a limb of two bones so that it reaches from ``start`` to ``end``.

    An end out of reach is approached along the straight line as far as the limb goes.

    Args:
        start: position of the first joint, (..., 3) metres.
        end: where the third joint should be, (..., 3) metres.
        lengths: of the two bones, metres.
        pole: direction to which the middle joint bends, (..., 3), not along the limb.

    Returns:
        Unit directions of the two bones and of the hinge between them, each (..., 3).

    Source: the law of cosines.

    Example:
        >>> start, end = torch.zeros(3), torch.tensor([0.0, -1.0, 1.0])
        >>> first, second, hinge = two_bone(start, end, (1.0, 1.0), torch.tensor([0.0, -1.0, 0.0]))
        >>> (first.round(decimals=3) + 0).tolist(), (second.round(decimals=3) + 0).tolist()
        ([0.0, -1.0, 0.0], [0.0, 0.0, 1.0])
    """
    first, second = lengths
    axis = end - start
    distance = axis.norm(dim=-1, keepdim=True)
    axis = axis / distance
    reach = distance.clamp(abs(first - second) + 1e-6, (first + second) * (1 - 1e-7))
    along = (first**2 - second**2 + reach**2) / (2 * reach)
    aside = (first**2 - along**2).clamp_min(0).sqrt()
    hinge = torch.nn.functional.normalize(torch.linalg.cross(axis, pole.expand_as(axis)), dim=-1)
    bend = torch.linalg.cross(hinge, axis)
    upper = (along * axis + aside * bend) / first
    lower = (reach * axis - first * upper) / second
    return upper, lower, hinge


def bone_frame(along: torch.Tensor, hinge: torch.Tensor) -> torch.Tensor:
    """Return the frame of a bone as columns, (..., 3, 3): along it, its hinge, and the cross product of both."""
    return torch.stack([along, hinge, torch.linalg.cross(along, hinge)], -1)


def about(axis: Literal["x", "y", "z"], angle_deg: torch.Tensor | float) -> torch.Tensor:
    """Return right-handed rotations about a coordinate axis by angles (...) in degrees, (..., 3, 3)."""
    direction = torch.zeros(3, dtype=torch.float64)
    direction["xyz".index(axis)] = 1.0
    angle = torch.deg2rad(torch.as_tensor(angle_deg, dtype=torch.float64))
    rotation: torch.Tensor = roma.rotvec_to_rotmat(angle[..., None] * direction)
    return rotation


def apply(rotation: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Rotate vectors (..., 3) by matrices (..., 3, 3)."""
    return (rotation @ vector[..., None])[..., 0]


def twist_about_x(rotation: torch.Tensor) -> torch.Tensor:
    """Return how far rotations over time (T, 3, 3) turn about X, degrees, without jumps in time."""
    quaternion = hemisphere_continuous(roma.rotmat_to_unitquat(rotation))
    quaternion = quaternion * torch.where(quaternion[:1, 3:] < 0, -1.0, 1.0)
    twist = 2 * torch.atan2(quaternion[:, 0], quaternion[:, 3])
    return torch.rad2deg(torch.from_numpy(np.unwrap(twist.numpy(), period=4 * np.pi)))


def slerp(first: torch.Tensor, second: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Interpolate unit quaternions (T, 4) the short way, with a share (T, 1) of the second in each row."""
    second = torch.where((first * second).sum(-1, keepdim=True) < 0, -second, second)
    turn = roma.unitquat_to_rotvec(roma.quat_product(roma.quat_conjugation(first), second))
    between: torch.Tensor = roma.quat_product(first, roma.rotvec_to_unitquat(share * turn))
    return between


def segments(times: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find where frames (T,) lie between key times (K,): the key before each, (T,), and the share 0..1 to the next."""
    before = (torch.searchsorted(times, frames, right=True) - 1).clamp(0, len(times) - 2)
    share = (frames - times[before]) / (times[before + 1] - times[before])
    return before, share.clamp(0, 1)


def smoothstep(share: torch.Tensor) -> torch.Tensor:
    """Ease a share 0..1 in and out: speed zero at both ends."""
    return share**2 * (3 - 2 * share)


def eased(keys: Sequence[tuple[int, float]], frames: torch.Tensor) -> torch.Tensor:
    """Evaluate key frames (frame, value) with smoothstep between them and constant ends, (T,).

    Example:
        >>> eased([(0, 0.0), (4, 8.0)], torch.tensor([0.0, 2.0, 4.0, 9.0])).tolist()
        [0.0, 4.0, 8.0, 8.0]
    """
    times = torch.tensor([frame for frame, _ in keys], dtype=torch.float64)
    values = torch.tensor([value for _, value in keys], dtype=torch.float64)
    before, share = segments(times, frames)
    return torch.lerp(values[before], values[before + 1], smoothstep(share.double()))


def smoothed(values: torch.Tensor, sigma: float) -> torch.Tensor:
    """Blur a curve (T,) over time by a Gaussian of ``sigma`` frames; the ends are held."""
    radius = int(4 * sigma)
    steps = torch.arange(-radius, radius + 1, dtype=values.dtype)
    kernel = torch.exp(-0.5 * (steps / sigma) ** 2)
    padded = torch.nn.functional.pad(values[None, None], (radius, radius), mode="replicate")
    return torch.nn.functional.conv1d(padded, (kernel / kernel.sum())[None, None])[0, 0]
