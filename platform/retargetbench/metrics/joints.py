"""Joint error against the ground truth, as MeshRet defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from retargetbench.metrics.base import UNDEFINED, Metric, MetricValue

if TYPE_CHECKING:
    from retargetbench.metrics.base import Evaluation


def joint_error(positions: torch.Tensor, truth: torch.Tensor, height: float | torch.Tensor) -> torch.Tensor:
    """Compute the squared joint distance over height in each frame, start aligned.

    ``mean_j ‖p_j − p*_j‖² / h`` after one horizontal shift of the whole motion that brings both roots to the same x
    and z in frame 0. Heights are compared as they are, so a body that floats is charged for it.

    Args:
        positions: joints of the retargeted motion, (..., T, J, 3) metres; joint 0 is the root.
        truth: joints of the ground truth, (..., T, J, 3) metres.
        height: height of the target, metres; a number, or one per clip, (...).

    Returns:
        (..., T) metres.

    Example:
        >>> truth = torch.zeros(1, 2, 3)
        >>> moved = truth + torch.tensor([[5.0, 0.0, 0.0], [5.0, 0.2, 0.0]])  # the shift along x does not count
        >>> joint_error(moved, truth, height=1.0)
        tensor([0.0200])
    """
    horizontal = positions.new_tensor([1.0, 0.0, 1.0])
    shift = (truth[..., :1, :1, :] - positions[..., :1, :1, :]) * horizontal
    return _squared_distance(positions + shift, truth) / _per_clip(height, positions)


def joint_error_local(positions: torch.Tensor, truth: torch.Tensor, height: float | torch.Tensor) -> torch.Tensor:
    """Compute the squared joint distance over height in each frame, relative to the root.

    ``mean_j ‖(p_j − p_0) − (p*_j − p*_0)‖² / h``: pose and orientation count, the path of the root does not.

    Args:
        positions: joints of the retargeted motion, (..., T, J, 3) metres; joint 0 is the root.
        truth: joints of the ground truth, (..., T, J, 3) metres.
        height: height of the target, metres; a number, or one per clip, (...).

    Returns:
        (..., T) metres.

    Example:
        >>> truth = torch.zeros(1, 2, 3)
        >>> joint_error_local(truth + torch.tensor([[5.0, 0.0, 0.0], [5.0, 0.2, 0.0]]), truth, height=1.0)
        tensor([0.0200])
    """
    local = positions - positions[..., :1, :]
    return _squared_distance(local, truth - truth[..., :1, :]) / _per_clip(height, positions)


def _squared_distance(positions: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Squared distance, averaged over joints, (..., T)."""
    return (positions - truth).square().sum(-1).mean(-1)


def _per_clip(height: float | torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Height with an axis for time, so that it divides values of shape (..., T)."""
    return torch.as_tensor(height, device=like.device, dtype=like.dtype)[..., None]


class JointError(Metric):
    """``mse`` and ``mse_local``: squared joint distance to the ground truth over the target's height.

    Mean of `joint_error` and `joint_error_local` over the frames of a clip, on the 22 canonical joints.

    - Unit: metres (square metres over metres). Range: 0 (the ground truth) to infinity. Lower is better.
    - Both grow in proportion with the size of everything; ``rms_distance`` does not, because it is
      ``sqrt(mean ‖Δ‖²) / h``, aligned like ``mse``: 0.05 means five percent of the height. It is computed by name only.
    - Blind to contact, penetration and sliding, to the rotation of leaf joints (head, hands, toes) and to fingers.
      Where the ground truth is itself a retargeted motion (Mixamo), the metric says how close a method is to that
      program, not how good it is: copying rotations beats trained networks there.
    - Undefined without ground truth.

    Source: MeshRet / ScanRet (Ye et al., NeurIPS 2024), eq. 10. The paper leaves open the unit and whether joints are
    averaged; we use metres and average over joints and frames, so values must not be put in one column with the
    paper's. ``h`` is the target's height by R2ET's rule of eight bones, and ``mse`` aligns the start because where a
    clip begins on the floor is no property of a method.
    """

    def evaluate(self, evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
        """Compute ``mse``, ``mse_local`` and ``rms_distance``."""
        truth = evaluation.truth_positions
        if truth is None:
            return dict.fromkeys(columns, UNDEFINED)
        values: dict[str, MetricValue] = {}
        height = evaluation.target.height
        aligned = joint_error(evaluation.positions, truth, height)
        if "mse" in columns:
            values["mse"] = MetricValue(float(aligned.mean()), aligned)
        if "mse_local" in columns:
            local = joint_error_local(evaluation.positions, truth, height)
            values["mse_local"] = MetricValue(float(local.mean()), local)
        if "rms_distance" in columns:
            values["rms_distance"] = MetricValue(float((aligned.mean() / height).sqrt()), (aligned / height).sqrt())
        return values
