"""Joint error as SAN's code and SAN's paper define it: no alignment, everything over SAN's own height."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from retargetbench.metrics.base import UNDEFINED, Metric, MetricValue
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.metrics.base import Evaluation
    from retargetbench.skeleton import Skeleton

_TOE_TO_HEAD = (
    "LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase", "Spine", "Spine1", "Spine2", "Neck", "Head",
)  # fmt: skip


def san_height(skeleton: Skeleton) -> float:
    """Compute SAN's height: the lengths of the bones from the left toe base to the root and from the root to the head.

    Returns:
        Metres, on the 22 canonical joints, the root's own offset left out. It exceeds ``Skeleton.height``, which has
        no thigh root, by the distance from the hips to the left thigh.

    Source: SAN's code for its 23-joint topology, whose chains end in the toe base and the head; the 28-joint topology
    goes on to the ends of toes and head, which are no canonical joints.
    """
    chosen = [canonical_index(name) for name in _TOE_TO_HEAD]
    return float(skeleton.canonical_offsets[chosen].double().norm(dim=-1).sum())


def san_error(positions: torch.Tensor, truth: torch.Tensor, height: float | torch.Tensor) -> torch.Tensor:
    """Compute the error of SAN's code in each frame: ``mean over joints and x, y, z of (Δ / h)²``.

    Args:
        positions: joints of the retargeted motion, (..., T, J, 3), metres.
        truth: joints of the ground truth, (..., T, J, 3), metres.
        height: SAN's height of the target, metres; a number, or one per clip, (...).

    Returns:
        (..., T), without unit.

    Example:
        >>> san_error(torch.full((1, 22, 3), 0.2), torch.zeros(1, 22, 3), height=2.0)
        tensor([0.0100])
    """
    return ((positions - truth) / _per_clip(height, positions)).square().mean((-1, -2))


def san_distance(positions: torch.Tensor, truth: torch.Tensor, height: float | torch.Tensor) -> torch.Tensor:
    """Compute the error of SAN's paper in each frame: ``mean over joints of ‖Δ‖ / h``.

    Args:
        positions: joints of the retargeted motion, (..., T, J, 3), metres.
        truth: joints of the ground truth, (..., T, J, 3), metres.
        height: SAN's height of the target, metres; a number, or one per clip, (...).

    Returns:
        (..., T), without unit.

    Example:
        >>> shift = torch.tensor([0.0, 0.3, 0.4])
        >>> san_distance(torch.zeros(1, 22, 3) + shift, torch.zeros(1, 22, 3), height=2.0)
        tensor([0.2500])
    """
    return ((positions - truth) / _per_clip(height, positions)).square().sum(-1).sqrt().mean(-1)


def _per_clip(height: float | torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Height with axes for time, joints and coordinates."""
    return torch.as_tensor(height, device=like.device, dtype=like.dtype)[..., None, None, None]


class SanProtocol(Metric):
    """``mse_san`` and ``mse_san_distance``: absolute joint error over SAN's height.

    Mean of `san_error` and `san_distance` over the frames of a clip, on the 22 canonical joints.

    - No unit. Range: 0 (the ground truth) to infinity. Lower is better. Both stay the same when everything is scaled.
    - Nothing is aligned: a method that starts a clip elsewhere pays for it in every frame, and drift counts in full.
      Blind to what `retargetbench.metrics.joints.JointError` is blind to.
    - Undefined without ground truth.

    Source: SAN (Aberman et al., SIGGRAPH 2020). Code and paper differ: the code averages *squares* over x, y and z
    separately, over squared height; the paper describes a mean distance over height. Both are given. Differences to
    the published tables: SAN measures 23 or 28 joints (toe and head ends, two halves of chest and collars) and, for
    the second group, against ground truth that its joint splitting deformed; we measure the 22 canonical joints of
    motions as they are, and the published tables multiply by a constant. The formulas agree with SAN's own numbers on
    its own joints (tests/metrics/test_san_protocol.py); table values cannot be compared.
    """

    def evaluate(self, evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
        """Compute ``mse_san`` and ``mse_san_distance``."""
        truth = evaluation.truth_positions
        if truth is None:
            return dict.fromkeys(columns, UNDEFINED)
        height = san_height(evaluation.target.skeleton)
        values: dict[str, MetricValue] = {}
        for name, error in (("mse_san", san_error), ("mse_san_distance", san_distance)):
            if name in columns:
                by_frame = error(evaluation.positions, truth, height)
                values[name] = MetricValue(float(by_frame.mean()), by_frame)
        return values
