"""Solves a performance on a body, measures it, and solves again with other weights where a gate fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retargetbench.datasets.studio.gates import Gate, Quality, failed_gates, measure_quality
from retargetbench.datasets.studio.solver import Solution, SolverSettings, solve_performance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import Performance

BODY_ROUNDS: tuple[SolverSettings, ...] = (
    SolverSettings(),
    SolverSettings(outside=1500.0, touch=2000.0, margin=0.004, steps=100, rate=0.02),
    SolverSettings(outside=6000.0, touch=6000.0, margin=0.006, steps=100, rate=0.015),
)
"""Settings of the first and of further tries on any body; each goes on from the result before."""

REFERENCE_ROUNDS: tuple[SolverSettings, ...] = tuple(replace(s, stay=s.stay / 5) for s in BODY_ROUNDS)
"""The same for the reference body, whose start is a draft by inverse kinematics and deserves less trust."""


@dataclass(frozen=True, eq=False)
class Verified:
    """A solution with what was measured of it.

    Attributes:
        solution: of the best try: the first that passes all gates, else the one that fails fewest.
        quality: of it.
        failed: gates that it fails.
        tries: how many were made.
    """

    solution: Solution
    quality: Quality
    failed: tuple[Gate, ...]
    tries: int


def solve_verified(
    body: Character,
    performance: Performance,
    reference: Quality | None,
    rounds: Sequence[SolverSettings] = BODY_ROUNDS,
) -> Verified:
    """Solve a performance on a body until it passes all gates or no settings are left.

    Args:
        body: with its 22 joints and the hands of the performance, at the T-pose.
        performance: what is to be seen.
        reference: quality on the reference body; None if this is the reference body.
        rounds: settings of the tries.
    """
    best: Verified | None = None
    solution: Solution | None = None
    for number, settings in enumerate(rounds, start=1):
        solution = solve_performance(body, performance, settings, start=solution)
        quality = measure_quality(body, solution.float_motion, performance, reference)
        failed = failed_gates(quality, body.height)
        if best is None or len(failed) < len(best.failed):
            best = Verified(solution, quality, failed, number)
        if not failed:
            break
    assert best is not None
    return best
