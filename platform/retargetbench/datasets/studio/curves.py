"""Curves through keys over time: eased stops, passing keys, channels without overshoot, and blurring."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

FPS = 30.0
"""Frames a second of all performances."""


def min_jerk(share: torch.Tensor) -> torch.Tensor:
    """Ease a share 0..1 as a reaching hand does: no speed and no acceleration at either end; clamped outside.

    Source: Flash and Hogan, "The coordination of arm movements", 1985.
    """
    s = share.clamp(0, 1)
    return s**3 * (10 - 15 * s + 6 * s**2)


def bump(share: torch.Tensor) -> torch.Tensor:
    """Rise from 0 to 1 in the middle of a share 0..1 and fall again, without speed at either end; 0 outside."""
    s = share.clamp(0, 1)
    return 16 * s**2 * (1 - s) ** 2


def key_segments(times: Sequence[float], time: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the key before each time (T,), int64, and the share 0..1 of the way to the next, (T,)."""
    knots = torch.tensor(times, dtype=time.dtype)
    before = (torch.searchsorted(knots, time, right=True) - 1).clamp(0, max(len(knots) - 2, 0))
    if len(knots) == 1:
        return before, torch.zeros_like(time)
    return before, ((time - knots[before]) / (knots[before + 1] - knots[before])).clamp(0, 1)


def through_keys(
    values: torch.Tensor, times: Sequence[float], passing: Sequence[bool], time: torch.Tensor
) -> torch.Tensor:
    """Move through values at key times: min-jerk between keys that stop, with Catmull-Rom speed at keys that pass.

    Args:
        values: at each of K keys, possibly moving with the body meanwhile, (T, K, D).
        times: of the keys, rising, seconds.
        passing: which of the keys are passed without a stop; the first and the last always stop.
        time: of the frames, (T,) seconds.

    Returns:
        (T, D), constant outside the keys; speed is continuous and acceleration zero at all keys.
    """
    if len(times) == 1:
        return values[:, 0]
    before, s = key_segments(times, time)
    speed = torch.zeros_like(values)
    for k in range(1, len(times) - 1):
        if passing[k]:
            speed[:, k] = (values[:, k + 1] - values[:, k - 1]) / (times[k + 1] - times[k - 1])
    row = torch.arange(len(time))
    span = torch.tensor([b - a for a, b in itertools.pairwise(times)], dtype=time.dtype)[before, None]
    s = s[:, None]
    u = min_jerk(s)
    leaving = s - s**3 * (6 - 8 * s + 3 * s**2)
    arriving = s**3 * (-4 + 7 * s - 3 * s**2)
    moved = (1 - u) * values[row, before] + u * values[row, before + 1]
    return moved + span * (leaving * speed[row, before] + arriving * speed[row, before + 1])


def key_progress(
    times: Sequence[float], passing: Sequence[bool], time: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the key before each time, (T,) int64, and the eased share 0..1 of the way to the next, (T,).

    The timing is that of `through_keys`.
    """
    count = len(times)
    numbers = torch.arange(count, dtype=time.dtype).expand(len(time), count)[..., None]
    before, _ = key_segments(times, time)
    return before, (through_keys(numbers, times, passing, time)[:, 0] - before).clamp(0, 1)


def channel_curve(keys: Sequence[tuple[float, float]], time: torch.Tensor) -> torch.Tensor:
    """Evaluate keys (second, value) by a monotone cubic curve that starts and ends without speed, (T,).

    Source: Fritsch and Butland, "A method for constructing local monotone piecewise cubic interpolants", 1984.
    """
    times, values = zip(*keys, strict=True)
    heights = torch.tensor(values, dtype=time.dtype)
    if len(times) == 1:
        return heights.expand(len(time)).clone()
    spans = torch.tensor([b - a for a, b in itertools.pairwise(times)], dtype=time.dtype)
    slopes = heights.diff() / spans
    speed = torch.zeros_like(heights)
    left, right = slopes[:-1], slopes[1:]
    first, second = 2 * spans[1:] + spans[:-1], spans[1:] + 2 * spans[:-1]
    same = left * right > 0
    harmonic = (first + second) / (first / torch.where(same, left, 1.0) + second / torch.where(same, right, 1.0))
    speed[1:-1] = torch.where(same, harmonic, 0.0)
    before, s = key_segments(times, time)
    span = spans[before]
    eased = s**2 * (3 - 2 * s)
    start, end = speed[before] * span, speed[before + 1] * span
    return torch.lerp(heights[before], heights[before + 1], eased) + s * (1 - s) * ((1 - s) * start - s * end)


def blurred(values: torch.Tensor, sigma: float) -> torch.Tensor:
    """Blur over time (T, ...) by a Gaussian of ``sigma`` frames; the ends hold their values."""
    radius = max(1, int(3.5 * sigma))
    steps = torch.arange(-radius, radius + 1, dtype=values.dtype)
    kernel = torch.exp(-0.5 * (steps / sigma) ** 2)
    padded = torch.cat(
        [values[:1].expand(radius, *values.shape[1:]), values, values[-1:].expand(radius, *values.shape[1:])]
    )
    return (padded.unfold(0, len(kernel), 1) * (kernel / kernel.sum())).sum(-1)
