"""Solves a performance on a body, measures it, and solves again with other weights where a gate fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retargetbench.datasets.studio.gates import Gate, Quality, failed_gates, measure_quality
from retargetbench.datasets.studio.solver import Solution, SolverSettings, solve_performances

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import Performance

BODY_ROUNDS: tuple[SolverSettings, ...] = (
    SolverSettings(),
    SolverSettings(outside=1500.0, touch=1500.0, margin=0.004, limits=80.0, smooth=8.0, steps=16),
    SolverSettings(outside=4000.0, touch=4000.0, margin=0.006, limits=300.0, smooth=20.0, steps=16),
)
"""Settings of the first and of further tries on any body; each goes on from the result before."""

REFERENCE_ROUNDS: tuple[SolverSettings, ...] = tuple(replace(s, stay=s.stay / 2) for s in BODY_ROUNDS)
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
    performances: Sequence[Performance],
    references: Sequence[Quality | None],
    rounds: Sequence[SolverSettings] = BODY_ROUNDS,
) -> list[Verified]:
    """Solve performances on a body until each passes all gates or no settings are left.

    Args:
        body: with its 22 joints and the hands of all performances, at the T-pose.
        performances: what is to be seen.
        references: their quality on the reference body; None if this is the reference body.
        rounds: settings of the tries.
    """
    best: list[Verified | None] = [None] * len(performances)
    latest: list[Solution] = []
    open_clips = list(range(len(performances)))
    for number, settings in enumerate(rounds, start=1):
        starts = [latest[k] for k in open_clips] if latest else None
        solved = solve_performances(body, [performances[k] for k in open_clips], settings, starts=starts)
        latest = latest or list(solved)
        for k, solution in zip(open_clips, solved, strict=True):
            latest[k] = solution
            quality = measure_quality(body, solution.float_motion, performances[k], references[k])
            failed = failed_gates(quality, body.height)
            known = best[k]
            if known is None or len(failed) < len(known.failed):
                best[k] = Verified(solution, quality, failed, number)
        open_clips = [k for k in open_clips if (found := best[k]) is not None and found.failed]
        if not open_clips:
            break
    return [found for found in best if found is not None]
