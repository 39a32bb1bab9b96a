"""Closed tubes: the surfaces of which the bodies of the capsule dataset are made, with smooth skin weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.interpolate import PchipInterpolator

from retargetbench.skeleton import CANONICAL_JOINTS, canonical_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


class Profile:
    """Cross-sections along an axis: values interpolated smoothly, without overshoot, constant beyond both ends.

    Args:
        rows: position along the axis, ascending, and the values there, (N, 1 + C).

    Example:
        >>> Profile(np.array([(0.0, 1.0), (1.0, 3.0)]))(np.array([-1.0, 0.5, 2.0])).tolist()
        [[1.0], [2.0], [3.0]]
    """

    def __init__(self, rows: Array) -> None:
        self.start, self.end = float(rows[0, 0]), float(rows[-1, 0])
        self._curve = PchipInterpolator(rows[:, 0], rows[:, 1:])

    def __call__(self, at: Array) -> Array:
        """Return the values at positions (...), (..., C)."""
        return np.asarray(self._curve(np.clip(at, self.start, self.end)))


@dataclass(frozen=True, eq=False)
class Tube:
    """A closed surface with skin weights: vertices (V, 3) metres, faces (F, 3), weights (V, 22)."""

    vertices: Array
    faces: NDArray[np.int64]
    weights: Array

    def mirrored(self) -> Tube:
        """Return the other side: x negated, faces turned over, left joints swapped for right ones."""
        swap = [canonical_index(_other_side(name)) for name in CANONICAL_JOINTS]
        return Tube(self.vertices * [-1.0, 1.0, 1.0], self.faces[:, ::-1], self.weights[:, swap])


def _other_side(name: str) -> str:
    if name.startswith("Left"):
        return "Right" + name[4:]
    return "Left" + name[5:] if name.startswith("Right") else name


def spread(stops: Sequence[float], counts: Sequence[int]) -> Array:
    """Divide the gaps between stops into equal steps.

    Example:
        >>> spread([0.0, 1.0, 3.0], [2, 1]).tolist()
        [0.0, 0.5, 1.0, 3.0]
    """
    pieces = [np.linspace(a, b, n, endpoint=False) for (a, b), n in zip(pairwise(stops), counts, strict=True)]
    return np.append(np.concatenate(pieces), stops[-1])


def around(count: int) -> Array:
    """Return ``count`` angles around a circle, radians."""
    return np.linspace(0, 2 * np.pi, count, endpoint=False)


def close_rings(rings: Array, start: Array, end: Array) -> tuple[Array, NDArray[np.int64]]:
    """Join rings of vertices to a closed surface that faces outward.

    Args:
        rings: (R, S, 3), each running counter-clockwise as seen from the end.
        start: the vertex that closes the first ring, (3,).
        end: the vertex that closes the last ring, (3,).

    Returns:
        Vertices (R·S + 2, 3) and faces (2·R·S, 3).
    """
    count, segments = rings.shape[:2]
    vertices = np.concatenate([rings.reshape(-1, 3), start[None], end[None]])
    ring = np.arange(count * segments).reshape(count, segments)
    turned = np.roll(ring, -1, axis=1)
    a, b, c, d = ring[:-1], turned[:-1], turned[1:], ring[1:]
    first, last = count * segments, count * segments + 1
    faces = [
        np.stack([a, b, c], -1).reshape(-1, 3),
        np.stack([a, c, d], -1).reshape(-1, 3),
        np.stack(np.broadcast_arrays(first, turned[0], ring[0]), -1),
        np.stack(np.broadcast_arrays(last, ring[-1], turned[-1]), -1),
    ]
    return vertices, np.concatenate(faces)


def straight_tube(
    center: Array,
    axes: tuple[int, int, int],
    stations: Array,
    half_axes: Array,
    tips: tuple[float, float],
    segments: int,
    *,
    flat: bool = False,
) -> tuple[Array, NDArray[np.int64]]:
    """Make a closed tube of elliptical cross-sections along a coordinate axis.

    Args:
        center: a point of the axis, (3,) metres.
        axes: index of the coordinate along the tube and of the two across; the second across the first, crossed,
            points the way that ``stations`` go.
        stations: coordinates of the rings along the tube, (R,) metres.
        half_axes: half axes of the ellipses, (R, 2) metres.
        tips: coordinates along the tube of the two vertices that close it, metres.
        segments: vertices of a ring.
        flat: leave out the half of the ellipses below the first axis across (a sole).

    Returns:
        Vertices (V, 3) metres and faces (F, 3).
    """
    along, first, second = axes
    angle = around(segments)
    rings = np.broadcast_to(center, (len(stations), segments, 3)).copy()
    rings[..., along] = stations[:, None]
    rings[..., first] += half_axes[:, :1] * np.cos(angle)
    rings[..., second] += half_axes[:, 1:] * (np.maximum(np.sin(angle), 0) if flat else np.sin(angle))
    start, end = rings[0].mean(0), rings[-1].mean(0)
    start[along], end[along] = tips
    return close_rings(rings, start, end)


def chain_weights(at: Array, chain: Sequence[str], joints: Array, blends: Array) -> Array:
    """Compute skin weights that pass from joint to joint along a limb.

    Args:
        at: places of the vertices along the limb, (V,).
        chain: N joint names in ascending order along the limb.
        joints: places of all canonical joints along the limb, (22,); ``chain[i]`` takes over at its joint.
        blends: half the length over which it does, for all but the first of the chain, (N - 1,).

    Returns:
        (V, 22); rows sum to 1, as each joint leaves to the next ones what it does not take.
    """
    borders = joints[[canonical_index(name) for name in chain[1:]]]
    share = np.clip((at[:, None] - borders) / (2 * blends) + 0.5, 0.0, 1.0)
    beyond = share**2 * (3 - 2 * share)
    reach = np.concatenate([np.ones((len(at), 1)), np.cumprod(beyond, axis=1)], axis=1)
    leave = np.concatenate([1 - beyond, np.ones((len(at), 1))], axis=1)
    weights = np.zeros((len(at), 22))
    weights[:, [canonical_index(name) for name in chain]] = reach * leave
    return weights
