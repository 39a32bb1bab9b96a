"""Joint error by the protocol that NKN, PMnet and R2ET share: short windows, start position and heading aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from retargetbench.metrics.base import UNDEFINED, Metric, MetricValue
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.metrics.base import Evaluation

WINDOW_SECONDS = 2.0
"""Length of a window: 120 frames of the 60 fps that the protocol was written for."""

SMOOTHING_SECONDS = 1.0 / 3.0
"""Standard deviation of the Gaussian over the heading: 20 frames of 60 fps."""

_GAUSSIAN_REACH = 4.0  # the Gaussian is cut at four standard deviations, scipy.ndimage's default
_CM_PER_M = 100.0
_LEFT = [canonical_index("LeftUpLeg"), canonical_index("LeftShoulder")]
_RIGHT = [canonical_index("RightUpLeg"), canonical_index("RightShoulder")]


def smoothed_heading(positions: torch.Tensor, fps: float) -> torch.Tensor:
    """Compute the direction a body faces over time, smoothed over a third of a second.

    The direction across the body (right to left hip plus right to left collar) is normalised, its cross product
    with the vertical is the forward direction, and a Gaussian over time that repeats the first and last frame smooths
    it. The whole clip must be given: cutting it first changes the values near the cut.

    Args:
        positions: canonical joints, (..., T, 22, 3) metres, Y up.
        fps: frames a second.

    Returns:
        Angle about +Y from +Z, positive towards +X, (..., T) radians. Zero where a body has no direction (the line
        across it is vertical).

    Source: preprocessing of NKN and R2ET, with σ = 20 frames of 60 fps and cut-off at 4σ. The angle replaces their
    shortest-arc quaternion, which is undefined for a body that faces exactly −Z.
    """
    across = positions[..., _LEFT, :].sum(-2) - positions[..., _RIGHT, :].sum(-2)
    across = torch.nn.functional.normalize(across, dim=-1)
    forward_x, forward_z = -across[..., 2], across[..., 0]  # (across × up), whose y is zero
    smooth = _gaussian_over_time(torch.stack([forward_x, forward_z], -2), SMOOTHING_SECONDS * fps)
    return torch.atan2(smooth[..., 0, :], smooth[..., 1, :])


def _gaussian_over_time(signal: torch.Tensor, sigma: float) -> torch.Tensor:
    """Convolve (..., T) with a Gaussian of ``sigma`` frames, repeating the first and the last value outside."""
    reach = int(_GAUSSIAN_REACH * sigma + 0.5)
    steps = torch.arange(-reach, reach + 1, device=signal.device, dtype=signal.dtype)
    kernel = torch.exp(-0.5 * (steps / sigma).square())
    kernel = kernel / kernel.sum()
    rows = signal.reshape(-1, 1, signal.shape[-1])
    padded = torch.nn.functional.pad(rows, (reach, reach), mode="replicate")
    return torch.nn.functional.conv1d(padded, kernel[None, None]).view(signal.shape)


def window_frames(frame_count: int, fps: float) -> torch.Tensor:
    """Return the frames of each window, (N, L): windows of two seconds end to end, plus the last two seconds.

    The last window overlaps its neighbour where the length is no multiple of a window. A clip shorter than a window
    is one window of its own length; the protocol leaves such clips out.

    Example:
        >>> window_frames(270, 60.0)[:, [0, -1]].tolist()
        [[0, 119], [120, 239], [150, 269]]
    """
    length = min(frame_count, max(1, round(WINDOW_SECONDS * fps)))
    starts = list(range(0, frame_count - length + 1, length))
    if frame_count % length:
        starts.append(frame_count - length)
    return torch.tensor(starts)[:, None] + torch.arange(length)


def window_errors(
    positions: torch.Tensor,
    heading: torch.Tensor,
    truth: torch.Tensor,
    truth_heading: torch.Tensor,
    height: float | torch.Tensor,
    frames: torch.Tensor,
) -> torch.Tensor:
    """Compute the squared joint distance over height in each window, start position and heading aligned.

    In each window both motions are moved so that their roots start at one point and turned about Y so that their
    headings start towards +Z; then ``mean_j ‖p_j − p*_j‖² / h`` by frame.

    Args:
        positions: canonical joints of the retargeted motion, (..., T, 22, 3) metres.
        heading: its heading, (..., T) radians.
        truth: canonical joints of the ground truth, (..., T, 22, 3) metres.
        truth_heading: its heading, (..., T) radians.
        height: height of the target, metres; a number, or one per clip, (...).
        frames: frames of the windows, (N, L), from `window_frames`.

    Returns:
        (..., N, L) centimetres.
    """
    starts = frames[:, :1]

    def from_start(joints: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        root = joints[..., starts, :1, :]
        return _turn_back(joints[..., frames, :, :] - root, angle[..., starts])

    return _error_cm(from_start(positions, heading), from_start(truth, truth_heading), height, axes=2)


def local_errors(
    positions: torch.Tensor,
    heading: torch.Tensor,
    truth: torch.Tensor,
    truth_heading: torch.Tensor,
    height: float | torch.Tensor,
) -> torch.Tensor:
    """Compute the squared joint distance over height in each frame without root motion and heading.

    Every frame's joints are taken relative to its root and turned by its own heading.

    Args:
        positions: canonical joints of the retargeted motion, (..., T, 22, 3) metres.
        heading: its heading, (..., T) radians.
        truth: canonical joints of the ground truth, (..., T, 22, 3) metres.
        truth_heading: its heading, (..., T) radians.
        height: height of the target, metres; a number, or one per clip, (...).

    Returns:
        (..., T) centimetres.
    """

    def from_root(joints: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        return _turn_back(joints - joints[..., :1, :], angle)

    return _error_cm(from_root(positions, heading), from_root(truth, truth_heading), height, axes=1)


def _turn_back(joints: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """Turn joints (..., J, 3) about Y by minus ``angle`` (...)."""
    cosine, sine = torch.cos(angle)[..., None], torch.sin(angle)[..., None]
    x, y, z = joints.unbind(-1)
    return torch.stack([cosine * x - sine * z, y, sine * x + cosine * z], -1)


def _error_cm(first: torch.Tensor, second: torch.Tensor, height: float | torch.Tensor, *, axes: int) -> torch.Tensor:
    """Squared distance over height, averaged over joints; ``axes`` time axes follow the height's."""
    per_clip = torch.as_tensor(height, device=first.device, dtype=first.dtype)[(..., *(None,) * axes)]
    return _CM_PER_M * (first - second).square().sum(-1).mean(-1) / per_clip


def mean_by_frame(errors: torch.Tensor, frames: torch.Tensor, frame_count: int) -> torch.Tensor:
    """Average window values (..., N, L) over the windows that hold a frame, (..., T)."""
    index = frames.flatten().to(errors.device)
    total = errors.new_zeros(*errors.shape[:-2], frame_count).index_add_(-1, index, errors.flatten(-2))
    return total / torch.bincount(index, minlength=frame_count)


class R2etProtocol(Metric):
    """``mse_r2et`` and ``mse_r2et_local``: joint error by the evaluation protocol of NKN, PMnet and R2ET.

    Mean over the windows of a clip of `window_errors`, and of `local_errors` over the same windows (so frames that
    two windows share count twice, as in the protocol).

    - Unit: centimetres (square centimetres over centimetres). Range: 0 to infinity. Lower is better.
    - Drift is forgotten after two seconds; absolute height and place do not count; neither does anything that
      `retargetbench.metrics.joints.JointError` is blind to.
    - **A perfect motion does not score exactly 0.** The protocol's networks do not predict where a body faces: a
      prediction is turned by the *source's* heading, the ground truth by its own, and the two differ by about a degree
      because hips and collars of two bodies have different widths. Over the 18 rows below the ground truth itself
      scores 0.0023 (local 0.0010); differences of that size mean nothing. Where source and target have one skeleton, a
      perfect motion scores 0.
    - Undefined without ground truth.

    Source: published evaluation of NKN (Villegas et al. 2018), PMnet (Lim et al. 2019) and R2ET (Zhang et al. 2023),
    written as velocities that are integrated in each window. Integrating a heading-relative root velocity over a
    window gives the root's displacement back, so it is restated on world positions. Differences: windows and
    smoothing are two seconds and a third of a second, which at 60 fps are the protocol's 120 and 20 frames, so that
    values do not depend on the frame rate; a clip shorter than a window is one window instead of being left out.
    Parity: copied rotations with the height ratio as root scale, over 6 pairs of characters × 3 dances, agree with
    values computed by R2ET's own helpers within 0.03 % in each of the 18 rows (tests/metrics/test_r2et_protocol.py).
    """

    def evaluate(self, evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
        """Compute ``mse_r2et`` and ``mse_r2et_local``."""
        truth = evaluation.truth_positions
        if truth is None:
            return dict.fromkeys(columns, UNDEFINED)
        positions, count = evaluation.positions, evaluation.motion.frame_count
        frames = window_frames(count, evaluation.fps).to(positions.device)
        heading = smoothed_heading(evaluation.source_positions, evaluation.fps)
        arguments = (positions, heading, truth, smoothed_heading(truth, evaluation.fps), evaluation.target.height)
        values: dict[str, MetricValue] = {}
        if "mse_r2et" in columns:
            errors = window_errors(*arguments, frames)
            values["mse_r2et"] = MetricValue(float(errors.mean()), mean_by_frame(errors, frames, count))
        if "mse_r2et_local" in columns:
            local = local_errors(*arguments)
            values["mse_r2et_local"] = MetricValue(float(local[frames].mean()), local)
        return values
