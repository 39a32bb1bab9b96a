"""Residuals that depend on the pose of one frame each, and their gradients by the transforms of the joints."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

TRANSFORM_SIZE = 22 * 3 * 4
"""Numbers in the transforms of a frame."""


class Rows(NamedTuple):
    """Residuals, R of them.

    Attributes:
        frame: which frame each depends on, (R,) int64.
        value: (R,).
        gradient: by the transforms (22, 3, 4) of its frame, (R, 264).
    """

    frame: torch.Tensor
    value: torch.Tensor
    gradient: torch.Tensor

    def weighted(self, weights: torch.Tensor) -> Rows:
        """The residuals times the roots of weights (R,)."""
        roots = weights.sqrt()
        return Rows(self.frame, roots * self.value, roots[:, None] * self.gradient)


def row_gradient(rows: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """Gradient of the component along ``directions`` (R, 3) of points with skinning rows (R, 88), (R, 264)."""
    return (rows.view(-1, 22, 1, 4) * directions.view(-1, 1, 3, 1)).flatten(1)


def join_rows(parts: Sequence[Rows], like: torch.Tensor) -> Rows:
    """Put residuals together; none gives empty ones on the device and of the type of ``like``."""
    if not parts:
        return Rows(
            torch.zeros(0, dtype=torch.int64, device=like.device), like.new_zeros(0), like.new_zeros(0, TRANSFORM_SIZE)
        )
    return Rows(*(torch.cat(values) for values in zip(*parts, strict=True)))


def normal_equations(rows: Rows, jacobian: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum residuals into the normal equations of their frames.

    Args:
        rows: weighted residuals.
        jacobian: of the transforms of each of K frames by its n unknowns, (K, n, 264).

    Returns:
        J'J (K, n, n) and J'r (K, n).
    """
    keys, unknowns, _ = jacobian.shape
    order = rows.frame.argsort(stable=True)
    counts = torch.bincount(rows.frame, minlength=keys)
    widest = int(counts.max()) if len(order) else 0
    if widest == 0:
        return jacobian.new_zeros(keys, unknowns, unknowns), jacobian.new_zeros(keys, unknowns)
    frame = rows.frame[order]
    place = torch.arange(len(order), device=frame.device) - (counts.cumsum(0) - counts)[frame]
    gradient = jacobian.new_zeros(keys, widest, TRANSFORM_SIZE)
    value = jacobian.new_zeros(keys, widest)
    gradient[frame, place] = rows.gradient[order]
    value[frame, place] = rows.value[order]
    by_unknowns = gradient @ jacobian.mT
    return by_unknowns.mT @ by_unknowns, (by_unknowns.mT @ value[..., None])[..., 0]
