"""How smooth a motion is: acceleration and jerk of its joints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from retargetbench.metrics.base import UNDEFINED, Metric, MetricValue

if TYPE_CHECKING:
    import torch

    from retargetbench.metrics.base import Evaluation


def acceleration(positions: torch.Tensor, fps: float) -> torch.Tensor:
    """Compute the mean joint acceleration in each frame: ``mean_j ‖p[t+1] − 2 p[t] + p[t−1]‖ · fps²``.

    Args:
        positions: joints, (..., T, J, 3) metres.
        fps: frames a second.

    Returns:
        (..., T) m/s², NaN in the first and the last frame; all NaN for clips of fewer than 3 frames.

    Example:
        >>> import torch
        >>> time = torch.arange(4.0)
        >>> fall = torch.stack([0 * time, -5 * time**2, 0 * time], -1)[:, None]
        >>> acceleration(fall, fps=1.0)
        tensor([nan, 10., 10., nan])
    """
    return _difference_by_frame(positions, fps, order=2, first=1)


def jerk(positions: torch.Tensor, fps: float) -> torch.Tensor:
    """Compute the mean joint jerk in each frame: ``mean_j ‖p[t+1] − 3 p[t] + 3 p[t−1] − p[t−2]‖ · fps³``.

    The difference belongs to the middle of frames t − 1 and t; it is noted under t.

    Args:
        positions: joints, (..., T, J, 3) metres.
        fps: frames a second.

    Returns:
        (..., T) m/s³, NaN in the first two frames and the last; all NaN for clips of fewer than 4 frames.

    Example:
        >>> import torch
        >>> time = torch.arange(5.0)
        >>> jerk(torch.stack([time**3, 0 * time, 0 * time], -1)[:, None], fps=1.0)
        tensor([nan, nan, 6., 6., nan])
    """
    return _difference_by_frame(positions, fps, order=3, first=2)


def _difference_by_frame(positions: torch.Tensor, fps: float, *, order: int, first: int) -> torch.Tensor:
    """Mean norm of the ``order``-th difference in SI units, noted from frame ``first`` on, (..., T)."""
    frames = positions.shape[-3]
    values = positions.new_full(positions.shape[:-2], math.nan)
    if frames > order:
        difference = positions.diff(n=order, dim=-3) * fps**order
        values[..., first : first + frames - order] = difference.norm(dim=-1).mean(-1)
    return values


class Smoothness(Metric):
    """``acceleration``, ``jerk`` and their ratios to the source: how much joints jitter.

    Means of `acceleration` and `jerk` over the frames of a clip, on the 22 canonical joints in the world. A ratio is
    the value over the target's height by the value of the source over the source's height, so it is 1 for a motion
    that is the source's up to size, whatever the sizes.

    - Unit: m/s² and m/s³; ratios have none. Range: 0 to infinity. **Neither direction is better**: far above 1 a
      motion jitters, far below it is smeared; a still motion has the lowest values of all.
    - The values grow in proportion with size, the ratios stay. Steady motion does not count: a foot that slides with
      constant speed has acceleration 0.
    - Undefined for clips of fewer than 3 (acceleration) or 4 frames (jerk); ratios also where the source is still. The
      ratios are of means, so they have no values by frame.

    Source: finite differences; the literature argues about jitter with plots. Values converge with the frame rate only
    for motions that are smooth at that rate; noise of one size per frame grows with fps² and fps³.
    """

    def evaluate(self, evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
        """Compute ``acceleration``, ``jerk``, ``acceleration_ratio`` and ``jerk_ratio``."""
        values: dict[str, MetricValue] = {}
        size = evaluation.target.height / evaluation.source.character.height
        for name, measure in (("acceleration", acceleration), ("jerk", jerk)):
            if not columns & {name, f"{name}_ratio"}:
                continue
            by_frame = measure(evaluation.positions, evaluation.fps)
            value = MetricValue(float(by_frame.nanmean()), by_frame)
            if name in columns:
                values[name] = value
            if f"{name}_ratio" in columns:
                of_source = float(measure(evaluation.source_positions, evaluation.fps).nanmean())
                ratio = value.value / (of_source * size) if of_source > 0 else math.nan
                values[f"{name}_ratio"] = UNDEFINED if math.isnan(ratio) else MetricValue(ratio)
        return values
