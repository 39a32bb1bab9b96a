"""Puts performances on a body: all frames of a clip together, changing as little as its contacts and its skin ask for.

What is minimised, as a mean over key frames, with lengths in heights of the body:

    E =  s Σ_j w_j ‖δ_j‖²                     stay with the rotations of the reference
       + a Σ_j ‖δ̈_j‖²                         change them smoothly in time
       + c Σ_contacts (d − gap)²              touching skin is at its distance along the normal
       + p Σ_contacts max(0, s − tolerance)²  and at its place along the surface
       + f Σ_contacts ‖n + n'‖²               with the surfaces facing each other as they should
       + o Σ_points max(0, margin − depth)²   arms stay out of the body and of each other
       + l Σ_j max(0, limit excess_j)²        joints stay within anatomical limits

δ are, at key frames of 15 fps, rotation vectors of spine, neck, head and clavicles, and for each arm the way of the
wrist, the rotation vector of the hand and the swivel of the elbow (`retargetbench.datasets.studio.arm_solving`); legs
follow from the tracks of the feet by two-bone inverse kinematics, and the hips from the one root rule. Where a leg
touches something, its ankle, foot and knee may leave their track while the foot is not planted, and their offsets count
as δ do. There is no term on distances between sensors or on their directions (MeshRet's descriptors), so no method is
favoured by construction.

It is a problem of least squares whose frames are tied only by the second differences, so that each step of Levenberg
and Marquardt's method solves one banded system for whole clips. Plain gradient methods (Adam, 250 steps) took three
times as long and left a tenth of the frames unsettled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retargetbench.datasets.studio.copying import Solution, copy_performance
from retargetbench.datasets.studio.levenberg import minimise
from retargetbench.datasets.studio.problem import Problem, SolverSettings
from retargetbench.kinematics import hemisphere_continuous

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import Performance

__all__ = ["Solution", "SolverSettings", "copy_performance", "solve_performances"]


def solve_performances(
    body: Character,
    performances: Sequence[Performance],
    settings: SolverSettings | None = None,
    *,
    starts: Sequence[Solution] | None = None,
) -> list[Solution]:
    """Put performances on a body so that contacts hold and arms stay outside.

    Clips are solved together because most of the time goes into starting small operations; they do not influence one
    another beyond the last bits of a float.

    Args:
        body: with its 22 joints and the hands of all performances, at the T-pose.
        performances: each of T = 2 K − 1 frames.
        settings: weights and steps.
        starts: where to begin; by default `copy_performance`.

    Returns:
        The solutions of the last step; on a CPU with one thread the same bytes every time.
    """
    settings = settings or SolverSettings()
    problem = Problem(body, performances, settings)
    unknowns = problem.start([s.unknowns for s in starts if s.unknowns is not None] if starts else None)
    unknowns = minimise(problem, unknowns, settings)
    rotations = problem.rotations(unknowns)
    return [
        Solution(hemisphere_continuous(rotations[part]), problem.root[part], performance.fps, unknowns[part].clone())
        for part, performance in zip(problem.parts, performances, strict=True)
    ]
