"""Levenberg and Marquardt's method for clips whose frames are tied by second differences alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from scipy.linalg import solveh_banded

if TYPE_CHECKING:
    from retargetbench.datasets.studio.problem import Linearised, Problem, SolverSettings

_LESS = 0.35
_MORE = 6.0
"""What damping is multiplied with after a step that was taken and after one that was refused."""

_DAMPING = (1e-5, 1e4)
_FLOOR = 1e-5
"""Added to the diagonal before damping, so that unknowns that nothing depends on stay."""


def minimise(problem: Problem, unknowns: torch.Tensor, settings: SolverSettings) -> torch.Tensor:
    """Minimise the sum of squares of every clip of a problem.

    Every clip has its own damping, takes or refuses a step by itself, and rests once it gains little; the linear
    systems of all are solved together.

    Args:
        problem: of K key frames with n unknowns each.
        unknowns: where to begin, (K, n).
        settings: how long to look.

    Returns:
        The best unknowns that were found, (K, n).

    Source: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", 1963.
    """
    clips = len(problem.parts)
    clip_of_frame = torch.repeat_interleave(
        torch.arange(clips), torch.tensor([part.stop - part.start for part in problem.parts])
    )
    damping = torch.full((clips,), settings.damping, dtype=torch.float64)
    resting = torch.zeros(clips, dtype=torch.bool)
    transforms, excess = problem.pose(unknowns)
    for step in range(settings.steps):
        if step % settings.search_every == 0:
            problem.search(transforms)
            costs = problem.costs(unknowns, transforms, excess)
        model = problem.linearise(unknowns, transforms, excess)
        change = _solve(model, damping[clip_of_frame])
        change = torch.cat([_shortened(change[part], settings.longest) for part in problem.parts])
        tried = unknowns + torch.where(resting[clip_of_frame, None], 0.0, change)
        tried_transforms, tried_excess = problem.pose(tried)
        tried_costs = problem.costs(tried, tried_transforms, tried_excess)
        better = tried_costs < costs
        gain = (costs - tried_costs) / costs
        resting |= better & (gain < settings.enough)
        damping = (damping * torch.where(better, _LESS, _MORE)).clamp(*_DAMPING)
        taken = better[clip_of_frame]
        unknowns = torch.where(taken[:, None], tried, unknowns)
        transforms = torch.where(taken[:, None, None, None], tried_transforms, transforms)
        excess = torch.where(taken[:, None], tried_excess, excess)
        costs = torch.where(better, tried_costs, costs)
        if bool(resting.all()):
            break
    return unknowns


def _shortened(change: torch.Tensor, longest: float) -> torch.Tensor:
    """Shorten a step of one clip so that no unknown changes by more than ``longest``."""
    return change * (longest / change.abs().max().clamp_min(longest))


def _solve(model: Linearised, damping: torch.Tensor) -> torch.Tensor:
    """Solve the damped normal equations of all frames, (K, n)."""
    keys, size = model.gradient.shape
    diagonal = model.hessian.diagonal(dim1=-2, dim2=-1)
    blocks = model.hessian + torch.diag_embed(damping[:, None] * (diagonal + _FLOOR) + _FLOOR * damping[:, None])
    # Squares of second differences couple equal unknowns of frames up to two apart.
    own, first, second = (model.gradient.new_zeros(keys) for _ in range(3))
    own[:-2] += model.bends
    own[1:-1] += 4 * model.bends
    own[2:] += model.bends
    first[:-2] -= 2 * model.bends
    first[1:-1] -= 2 * model.bends
    second[:-2] += model.bends
    blocks = blocks + torch.diag_embed(own[:, None].expand(-1, size))
    band = model.gradient.new_zeros(2 * size + 1, keys * size)
    # Lower form: band[i − j, j] is the entry in row i and column j.
    for below in range(size):
        entries = blocks.diagonal(-below, -2, -1)
        band[below].view(keys, size)[:, : size - below] = entries
    band[size].view(keys, size)[:] = first[:, None]
    band[2 * size].view(keys, size)[:] = second[:, None]
    solved = solveh_banded(band.numpy(), -model.gradient.flatten().numpy(), lower=True, check_finite=False)
    return torch.from_numpy(solved).view(keys, size)
