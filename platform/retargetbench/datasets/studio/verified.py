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

BODY_SETTINGS = SolverSettings()
"""Of the first try on any body."""

REFERENCE_SETTINGS = replace(BODY_SETTINGS, stay=BODY_SETTINGS.stay / 2)
"""Of the first try on the reference body, whose start is a draft by inverse kinematics and deserves less trust."""

MOST_TRIES = 4

_REPAIRS: dict[Gate, dict[str, float]] = {
    "contact_gap": {"touch": 3.0},
    "penetration": {"outside": 3.0, "margin": 1.5},
    "unfolded_depth": {"outside": 3.0, "margin": 1.5},
    "acceleration": {"smooth": 3.0},
    "joint_limits": {"limits": 4.0},
}
"""What settings are multiplied with for the next try where a gate fails. Nothing helps feet: their tracks are given."""


def repaired(settings: SolverSettings, failed: Sequence[Gate]) -> SolverSettings:
    """Give more weight to what has failed."""
    factors: dict[str, float] = {}
    for gate in failed:
        factors |= _REPAIRS.get(gate, {})
    return replace(settings, steps=16, **{name: getattr(settings, name) * factor for name, factor in factors.items()})


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
    copied: Quality | None,
    settings: SolverSettings = BODY_SETTINGS,
) -> Verified:
    """Solve a performance on a body until it passes all gates that solving can change, or `MOST_TRIES` were made.

    Each try goes on from the one before, with more weight on what has failed.

    Args:
        body: with its 22 joints and the hands of the performance, at the T-pose.
        performance: what is to be seen.
        copied: quality of plain copying to the body; None if this is the reference body.
        settings: of the first try.
    """
    best: Verified | None = None
    latest: Solution | None = None
    for number in range(1, MOST_TRIES + 1):
        (latest,) = solve_performances(body, [performance], settings, starts=[latest] if latest else None)
        quality = measure_quality(body, latest.float_motion, performance, copied)
        failed = failed_gates(quality, body.height)
        if best is None or len(failed) < len(best.failed):
            best = Verified(latest, quality, failed, number)
        if not set(failed) & set(_REPAIRS):
            break
        settings = repaired(settings, failed)
    assert best is not None
    return best
