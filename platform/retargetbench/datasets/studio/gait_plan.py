"""Plans of gaits: what tells kinds of gait from each other, and all steps of one in time and along its path.

Source: for times and angles of walking and running Perry and Burnfield, "Gait analysis: normal and pathological
function", 2010, and Winter, "Biomechanics and motor control of human movement", 2009; within their ranges values were
chosen by eye, and so were those of the other kinds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from retargetbench.datasets.studio.actions import Gait

SIGNS = (1.0, -1.0)
"""Of the left and the right side along x."""

HIP_ASIDE = 0.0685
"""Heights from the median plane to the foot of a body that stands."""

WHOLE_STEP = 0.38
"""Heights; the step of an average walk, to which angles belong."""

_SETTLE = 0.35  # periods of a step from the last landing to standing still
_SHIFT = 0.6  # periods of a step from the begin to the first foot's leaving the floor


@dataclass(frozen=True)
class GaitStyle:
    """What tells one kind of gait from another. Times are in periods of a step, angles in degrees."""

    swing: float = 0.78
    """How long a foot is in the air: 39 % of the stride in walking, so 22 % of it is double support."""
    over: float = 0.5
    """Time after landing at which the hips are above the foot."""
    first: float = 0.72
    last: float = 0.85
    """Lengths of the first and the last step, as shares of the others."""
    slow_end: float = 1.1
    """Period of the step that closes."""
    inward: float = 0.026
    """Heights by which feet are nearer to the median plane than in standing."""
    shift: float = 0.55
    """Share of the way to the carrying foot that the hips go sideways."""
    heel_off: float = 0.6
    """Time before leaving the floor at which the heel rises."""
    leaving: float = 42.0
    trailing: float = 50.0
    landing: float = -18.0
    """Pitch of the foot as it leaves, soon after, and as it lands."""
    flat: float = 0.24
    """Time from landing to the flat foot."""
    early: float = 0.8
    """Exponent of time in the lift; below 1 the foot is highest in the first half."""
    drive: float = 0.0
    """Heights by which the foot is brought forward in the middle of its swing."""
    scaled: bool = True
    """Whether pitch becomes less where steps are shorter."""
    yaw: float = 5.5
    roll: float = 3.5
    pitch: float = 2.0
    bend: float = 1.5
    """Of the pelvis in either direction, and what is added to pelvis and spine forward."""
    elbow: float = 6.0
    elbow_swing: float = 11.0
    """By how much elbows are bent in going, and by how much more, or less, as the arm is before or behind the body."""
    bounce: float = 0.0
    """Most that the hips are above and below their mean in flight and stance, heights; 0 without flight."""
    crouch: float = 0.0
    """Heights by which the mean is lower than in standing, where there is flight."""


_STYLES: dict[str, GaitStyle] = {
    "walk": GaitStyle(),
    "run": GaitStyle(
        swing=4 / 3, over=0.31, first=0.6, last=0.7, slow_end=4 / 3, inward=0.045, shift=0.3, heel_off=0.36,
        leaving=38, trailing=66, landing=3, flat=0.12, early=0.72, yaw=7, roll=4, pitch=7, bend=6, elbow=85,
        elbow_swing=15, bounce=0.026, crouch=0.03,
    ),
    "sidestep": GaitStyle(
        swing=0.72, first=1, last=1, slow_end=1, inward=0, shift=0.25, heel_off=0.3, leaving=16, trailing=18,
        landing=9, early=1, yaw=0, roll=2.5, bend=1,
    ),
    "turn": GaitStyle(
        swing=0.74, first=1, last=1, slow_end=1, inward=-0.01, shift=0.6, heel_off=0.35, leaving=22, trailing=24,
        landing=8, early=1, scaled=False, yaw=0, roll=2, bend=1,
    ),
    "march": GaitStyle(
        swing=0.8, first=0.8, last=0.9, slow_end=1, inward=0, shift=0.5, heel_off=0.3, leaving=26, trailing=34,
        landing=14, early=1, drive=0.13, scaled=False, yaw=3, roll=3, pitch=-1, bend=-1, elbow=40, elbow_swing=14,
    ),
}  # fmt: skip


class Footprint(NamedTuple):
    """Where a foot stands: along the path and to the left of it, heights, and its heading, radians."""

    along: float
    aside: float
    heading: float


@dataclass(frozen=True)
class Step:
    """A foot goes from one place to another while the other carries the body."""

    side: int
    leaves: float
    lands: float
    start: Footprint
    end: Footprint
    carrying: Footprint
    size: float
    """Share of the whole angles of the foot."""
    closes: bool


class StepPlan(NamedTuple):
    """All steps, the time of standing still before and after them, and the direction of the path.

    Attributes:
        curvature: of the path, radians to the left per height.
        sideways: whether the path leads to the right instead of forward.
    """

    steps: tuple[Step, ...]
    begin: float
    end: float
    period: float
    curvature: float
    sideways: bool


def style_of(gait: Gait) -> GaitStyle:
    """Return the style of a gait; in walking backwards the ball lands first and the heel leaves last."""
    style = _STYLES[gait.kind]
    if gait.kind == "walk" and gait.step < 0:
        return replace(style, heel_off=0.3, leaving=-12.0, trailing=-8.0, landing=24.0, flat=0.4, early=1.0)
    return style


def plan_steps(gait: Gait, style: GaitStyle) -> StepPlan:
    """Lay out all steps in time and along the path."""
    period, sideways = 1 / gait.cadence, gait.kind == "sidestep"
    first = int(gait.step > 0) if sideways else ("left", "right").index(gait.first)
    ways = [0.0 if gait.kind == "turn" or (sideways and k % 2) else gait.step for k in range(gait.steps)]
    if not sideways:
        ways[-1] *= style.last if gait.steps > 1 else 1.0
        ways[0] *= style.first
    far = sum(ways)
    turn = math.radians(gait.turn)
    prints = [Footprint(0.0, sign * HIP_ASIDE, 0.0) for sign in SIGNS]
    begin, landed, along = gait.start, gait.start + _SHIFT * period, 0.0
    steps: list[Step] = []
    for k in range(gait.steps + 1):
        side = (first + k) % 2
        closes = k == gait.steps
        if not closes:
            along += ways[k]
        # The last two places are those of standing.
        inward = style.inward if k < gait.steps - 1 else 0.0
        heading = turn * (along / far if far else min((k + 1) / gait.steps, 1.0))
        place = Footprint(along, SIGNS[side] * (HIP_ASIDE - inward), heading)
        if closes and place == prints[side]:
            break
        span = period * (style.slow_end if closes else 1.0)
        swing = span * (min(style.swing, 0.85) if k == 0 or closes else style.swing)
        lands = landed + (swing if k == 0 else span)
        size = min(1.0, abs(along - prints[side].along) / (1.6 * WHOLE_STEP)) if style.scaled else 1.0
        steps.append(Step(side, lands - swing, lands, prints[side], place, prints[1 - side], size, closes))
        prints[side] = place
        landed = lands
    return StepPlan(tuple(steps), begin, landed + _SETTLE * period, period, turn / far if far else 0.0, sideways)


def path_position(plan: StepPlan, along: torch.Tensor, aside: torch.Tensor, heading: torch.Tensor) -> torch.Tensor:
    """Find x and z of what is somewhere along the path and to the left of it, (T, 2) heights.

    The path is an arc, whose chord has half of its turn.
    """
    half = plan.curvature * along / 2
    chord = along * torch.sinc(half / math.pi)
    way = [-half.cos(), half.sin()] if plan.sideways else [half.sin(), half.cos()]
    x = chord * way[0] + aside * heading.cos()
    return torch.stack([x, chord * way[1] - aside * heading.sin()], -1)
