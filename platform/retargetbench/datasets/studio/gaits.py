"""Gaits: steps, hips, pelvis, spine and arm swing of walking, running, sidestepping, turning and marching.

Everything is in heights and free of any body, as `retargetbench.datasets.studio.performance.FootTrack` is. Steps are
laid out by `retargetbench.datasets.studio.gait_plan`; here feet, hips and everything else are led through them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from retargetbench.datasets.studio.curves import blurred, bump, channel_curve, min_jerk
from retargetbench.datasets.studio.gait_plan import (
    HIP_ASIDE,
    SIGNS,
    WHOLE_STEP,
    Footprint,
    GaitStyle,
    Step,
    StepPlan,
    path_position,
    plan_steps,
    style_of,
)
from retargetbench.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retargetbench.datasets.studio.actions import Channel, Gait

# A leg of average proportions, for how high hips can be; all in heights. Others are as near as hips need to be, and
# choreography lowers the hips of a body whose legs are shorter.
_LEG, _HIP_UP, _ANKLE_UP = 0.53, 0.5875, 0.0575
_HIP_BELOW = 0.028  # the root joint
_BALL, _HEEL = (-0.0405, 0.095), (-0.0575, -0.034)  # up and forward of the ankle
_REACH = 0.982  # share of the stretched leg that steps use

_GRAVITY = 6.1  # heights/s², of a body of 1.6 m by the house rule
_LOOK_AHEAD = 0.3  # seconds by which eyes lead into a turn
_MOST_LOOK_DEG = 30.0
_WHOLE_SWING_DEG = 24.0  # of arms in an average walk, to which the movement of elbows belongs


@dataclass(frozen=True, eq=False)
class FootCurves:
    """What one foot does in a gait; T frames, float64. Fields mean what they mean in `FootTrack`.

    Attributes:
        place: x (to the left) and z (forward) of the flat foot from its place at rest, (T, 2) heights.
        lift: of the heel or ball on which the foot would roll above the floor, (T,) heights, never below 0.
        yaw: about Y, to the left positive, (T,) radians.
        pitch: toes down positive, (T,) radians; the foot rolls over its ball where positive, over its heel where
            negative.
        planted: whether it rests on the floor, rolling or flat, (T,) bool; place and yaw are then constant, lift is 0.
    """

    place: torch.Tensor
    lift: torch.Tensor
    yaw: torch.Tensor
    pitch: torch.Tensor
    planted: torch.Tensor


@dataclass(frozen=True, eq=False)
class GaitCurves:
    """What a gait does to the body; T frames, float64.

    Attributes:
        feet: of the left and the right foot.
        hips: displacement of the hips from the T-pose (x to the left, y up, z forward, in the world), (T, 3) heights.
            It brings its own bent knees: nothing is to be subtracted for standing.
        trunk: channels to add to those of the action, by name, (T,) degrees: ``hips_yaw`` (with the direction of
            travel), ``hips_pitch``, ``hips_roll``, ``twist``, ``lean``, ``bend``, ``turn``, ``tilt``, ``nod``, and
            both ``*_protract``.
        swing: of the hanging arms forward, left and right, 2 of (T,) radians.
        elbow: by how much the elbows are bent beyond hanging, left and right, 2 of (T,) radians; 0 where arms do not
            swing.
    """

    feet: tuple[FootCurves, FootCurves]
    hips: torch.Tensor
    trunk: Mapping[Channel, torch.Tensor]
    swing: tuple[torch.Tensor, torch.Tensor]
    elbow: tuple[torch.Tensor, torch.Tensor]


def gait_curves(gait: Gait, frames: int, fps: float) -> GaitCurves:
    """Make the curves of a gait that begins and ends with standing.

    The body begins to move at ``gait.start``, its weight going to the foot that will carry it; ``gait.steps`` steps
    follow, and one more that closes the feet where they are apart. A walk or march with ``gait.turn`` goes along an
    arc. In ``sidestep`` a positive step goes to the right, the foot of that side leads whatever ``gait.first`` is, and
    every other step closes; ``turn`` stays on the spot whatever ``gait.step`` is.

    Args:
        gait: what is walked.
        frames: T.
        fps: frames a second.

    Raises:
        DatasetError: the gait does not end within the frames.
    """
    style = style_of(gait)
    plan = plan_steps(gait, style)
    last = (frames - 1) / fps
    if plan.end > last + 1.5 / fps:
        raise DatasetError(
            f"a {gait.kind} of {gait.steps} steps, {gait.cadence:g} a second from {gait.start:g} s on, ends at "
            f"{plan.end:.2f} s, after the clip of {last:.2f} s; take fewer or faster steps, or a longer clip"
        )
    time = torch.arange(frames, dtype=torch.float64) / fps
    blur = max(0.13 * plan.period * fps, 0.8)
    feet = (_foot(plan, style, gait.lift, 0, time), _foot(plan, style, gait.lift, 1, time))
    along, heading = (blurred(_carried(plan, style, name, time), blur) for name in ("along", "heading"))
    across = path_position(plan, along, blurred(_swayed(plan, style, time), blur), heading)
    swing, elbow = _arms(plan, style, gait.arm_swing, time, blur)
    trunk = _trunk(plan, style, heading, time, blur)
    trunk["left_protract"], trunk["right_protract"] = (0.2 * torch.rad2deg(angle) for angle in swing)
    up = _hips_height(plan, style, feet, across, trunk, time, blur)
    return GaitCurves(feet, torch.stack([across[:, 0], up, across[:, 1]], -1), trunk, swing, elbow)


def _through(keys: Sequence[tuple[float, float]], time: torch.Tensor) -> torch.Tensor:
    """Pass through keys (second, value); of those that come no later than one before them the first is kept."""
    kept: list[tuple[float, float]] = []
    for key in keys:
        if not kept or key[0] > kept[-1][0] + 1e-6:
            kept.append(key)
    return channel_curve(kept, time)


def _foot(plan: StepPlan, style: GaitStyle, lift: float, side: int, time: torch.Tensor) -> FootCurves:
    steps = [step for step in plan.steps if step.side == side]
    standing = Footprint(0.0, SIGNS[side] * HIP_ASIDE, 0.0)
    state = torch.tensor(standing, dtype=time.dtype).repeat(len(time), 1)
    height, swinging, driven = torch.zeros_like(time), torch.zeros_like(time), torch.zeros_like(time)
    planted = torch.ones_like(time, dtype=torch.bool)
    for step in steps:
        share = ((time - step.leaves) / (step.lands - step.leaves)).clamp(0, 1)
        start, end = time.new_tensor(step.start), time.new_tensor(step.end)
        after = time >= step.leaves
        state[after] = torch.lerp(start, end, min_jerk(share)[:, None])[after]
        rise = lift * (0.75 if step.closes else 1.0) * (1.0 if not style.scaled else 0.4 + 0.6 * step.size)
        height = height + rise * bump(share**style.early)
        driven = driven + style.drive * bump(share)
        swinging = swinging + min_jerk(share / 0.2) * min_jerk((1 - share) / 0.2)
        planted &= (time <= step.leaves) | (time >= step.lands)
    pitch = torch.deg2rad(_foot_pitch(plan, style, steps, time))
    place = path_position(plan, state[:, 0], state[:, 1], state[:, 2])
    place = place - place.new_tensor([standing.aside, 0.0])
    # In the air a foot turns about heel and ball by shares, so that the ankle has no corner where the pivot changes.
    by_one, by_both = _rolled(pitch, torch.where(pitch > 0, 1.0, 0.0)), _rolled(pitch, min_jerk(0.5 + pitch / 0.6))
    up, forward = (swinging * (both - one) for one, both in zip(by_one, by_both, strict=True))
    forward = forward + driven
    place = place + torch.stack([state[:, 2].sin() * forward, state[:, 2].cos() * forward], -1)
    return FootCurves(place, (height + up).clamp_min(0), state[:, 2], pitch, planted)


def _rolled(pitch: torch.Tensor, ball: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How far up and forward an average ankle goes as its foot rolls, by the ball for a share and else by the heel."""
    up, forward = (torch.lerp(torch.full_like(ball, heel), torch.full_like(ball, front), ball)
                   for heel, front in zip(_HEEL, _BALL, strict=True))  # fmt: skip
    cosine, sine = pitch.cos(), pitch.sin()
    return up - up * cosine + forward * sine, forward - up * sine - forward * cosine


def _foot_pitch(plan: StepPlan, style: GaitStyle, steps: Sequence[Step], time: torch.Tensor) -> torch.Tensor:
    """Pitch of a foot through its steps, (T,) degrees; exactly 0 where it is flat."""
    keys: list[tuple[float, float]] = [(-1.0, 0.0)]
    for k, step in enumerate(steps):
        swing = step.lands - step.leaves
        # The first step of all starts from standing, with less push.
        push = step.size * (0.7 if k == 0 else 1.0)
        heel_off = max(step.leaves - style.heel_off * plan.period, keys[-1][0] + 1e-3)
        landing = style.landing * step.size * (0.4 if step.closes else 1.0)
        keys += [
            (heel_off, 0.0),
            (step.leaves, style.leaving * push),
            (step.leaves + 0.14 * swing, style.trailing * push),
            (step.lands - 0.1 * swing, landing),
            (step.lands, 0.95 * landing),
            (step.lands + style.flat * plan.period, 0.0),
        ]
    return _through(keys, time)


def _carried(plan: StepPlan, style: GaitStyle, name: Literal["along", "heading"], time: torch.Tensor) -> torch.Tensor:
    """How far hips are along the path, or how far they have turned, between the feet that carry them, (T,)."""
    keys = [(plan.begin + 0.2 * plan.period, 0.0)]
    for step in plan.steps[:-1]:
        start, end = getattr(step.carrying, name), getattr(step.end, name)
        keys.append((step.lands, start + (1 - style.over) * (end - start)))
    last = plan.steps[-1]
    keys.append((last.lands + 0.15 * plan.period, getattr(last.end, name)))
    return _through(keys, time)


def _over_foot(plan: StepPlan, style: GaitStyle) -> list[tuple[Step, float]]:
    """Steps, each with the time at which the body is over the foot that carries it meanwhile."""
    first = plan.steps[0]
    times = [first.leaves + 0.3 * (first.lands - first.leaves)]
    times += [step.lands + style.over * plan.period for step in plan.steps[:-1]]
    return list(zip(plan.steps, times, strict=True))


def _swayed(plan: StepPlan, style: GaitStyle, time: torch.Tensor) -> torch.Tensor:
    """How far hips are to the left of the path, (T,) heights."""
    over = [(at, style.shift * step.carrying.aside) for step, at in _over_foot(plan, style)]
    return _through([(plan.begin, 0.0), *over, (plan.end, 0.0)], time)


def _between_landings(plan: StepPlan, values: Sequence[float], time: torch.Tensor) -> torch.Tensor:
    """Pass through a value at each landing but the last, from 0 to 0, (T,)."""
    landings = [(step.lands, value) for step, value in zip(plan.steps, values, strict=True)]
    return _through([(plan.begin, 0.0), *landings[:-1], (plan.end, 0.0)], time)


def _reaches(plan: StepPlan) -> list[float]:
    """How far the right foot is before the left at each landing, in whole steps, at most 1.3."""
    if plan.sideways:
        return [0.0] * len(plan.steps)
    far = [-SIGNS[step.side] * (step.end.along - step.carrying.along) / WHOLE_STEP for step in plan.steps]
    return [max(-1.3, min(1.3, share)) for share in far]


def _trunk(
    plan: StepPlan, style: GaitStyle, heading: torch.Tensor, time: torch.Tensor, blur: float
) -> dict[Channel, torch.Tensor]:
    """Turn pelvis, spine and head, (T,) degrees."""
    yaw = blurred(_between_landings(plan, [style.yaw * reach for reach in _reaches(plan)], time), blur)
    over = _over_foot(plan, style)
    # The pelvis sinks a little on the side that is not carried, early in the swing.
    sinking = [(at - 0.15 * plan.period, style.roll * SIGNS[step.side]) for step, at in over]
    roll = blurred(_through([(plan.begin, 0.0), *sinking, (plan.end, 0.0)], time), blur)
    moving = blurred(_between_landings(plan, [1.0] * len(plan.steps), time), blur)
    # Each landing makes the trunk nod, a little after it.
    nods = [key for step in plan.steps for key in ((step.lands - 0.35 * plan.period, -1.0), (step.lands, 1.0))]
    nod = blurred(_through([(plan.begin, 0.0), *nods, (plan.end, 0.0)], time), blur)
    # The head stays level, though a little late.
    late_nod = torch.cat([nod[:1], nod[:-1]])
    degrees = torch.rad2deg(heading)
    early = max(1, round(_LOOK_AHEAD / float(time[1] - time[0]))) if len(time) > 1 else 0
    ahead = torch.cat([degrees[early:], degrees[-1:].expand(min(early, len(degrees)))])
    started = min_jerk((time - plan.begin) / _LOOK_AHEAD)
    look = blurred(started * (ahead - degrees).clamp(-_MOST_LOOK_DEG, _MOST_LOOK_DEG), blur)
    return {
        "hips_yaw": degrees + yaw,
        "hips_pitch": moving * (style.pitch + 1.2 * nod),
        "hips_roll": roll,
        "twist": -1.7 * yaw + 0.3 * look,
        "lean": -0.9 * roll,
        "bend": moving * (style.bend + 1.2 * nod),
        "turn": 0.7 * yaw + 0.6 * look,
        "tilt": 0.4 * roll,
        "nod": -1.8 * moving * late_nod,
    }


def _arms(
    plan: StepPlan, style: GaitStyle, arm_swing: float, time: torch.Tensor, blur: float
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Swing both arms against the legs, a little after them, and bend elbows; (T,) radians each."""
    late = 0.08 * plan.period
    keys = [
        (step.lands + late, -SIGNS[step.side] * (0.75 if k == 0 else 1.0)) for k, step in enumerate(plan.steps[:-1])
    ]
    # Arms fall a little past the trunk before they hang.
    residue = -0.2 * keys[-1][1] if keys else 0.0
    keys = [(plan.begin + 0.3 * plan.period, 0.0), *keys, (plan.steps[-1].lands + late, residue)]
    wave = blurred(_through([*keys, (plan.end + 0.5 * plan.period, 0.0)], time), blur)
    moving = blurred(_between_landings(plan, [1.0] * len(plan.steps), time), blur)
    share = min(1.0, abs(arm_swing) / _WHOLE_SWING_DEG)
    swings, elbows = [], []
    for sign in SIGNS:
        # Elbows bend as arms come forward.
        swings.append(math.radians(arm_swing) * sign * wave)
        elbows.append(
            math.radians(share * style.elbow) * moving + math.radians(share * style.elbow_swing) * sign * wave
        )
    return (swings[0], swings[1]), (elbows[0].clamp_min(0), elbows[1].clamp_min(0))


def _hips_height(
    plan: StepPlan,
    style: GaitStyle,
    feet: tuple[FootCurves, FootCurves],
    across: torch.Tensor,
    trunk: Mapping[Channel, torch.Tensor],
    time: torch.Tensor,
    blur: float,
) -> torch.Tensor:
    """Find how high hips are above the T-pose, (T,) heights: as high as both legs allow, or bouncing where they fly."""
    highest = torch.full_like(time, (_REACH - 1) * _LEG)
    if style.bounce:
        highest = torch.minimum(highest, _bounce(plan, style, time))
    yaw, pitch, roll = (torch.deg2rad(trunk[name]) for name in ("hips_yaw", "hips_pitch", "hips_roll"))
    back = _HIP_BELOW * pitch.sin()[:, None] * torch.stack([yaw.sin(), yaw.cos()], -1)
    for sign, foot in zip(SIGNS, feet, strict=True):
        up, forward = _rolled(foot.pitch, torch.where(foot.pitch > 0, 1.0, 0.0))
        hip = across + sign * HIP_ASIDE * torch.stack([yaw.cos(), -yaw.sin()], -1) - back
        ankle = foot.place + forward[:, None] * torch.stack([foot.yaw.sin(), foot.yaw.cos()], -1)
        ankle = ankle + ankle.new_tensor([sign * HIP_ASIDE, 0.0])
        aside = (ankle - hip).norm(dim=-1)
        # A hip of the side that the pelvis drops is lower than the pelvis.
        level = _ANKLE_UP + foot.lift + up - _HIP_UP + sign * HIP_ASIDE * roll.sin()
        stretched = ((_REACH * _LEG) ** 2 - aside**2).clamp_min(0).sqrt()
        highest = torch.minimum(highest, level + stretched)
    radius = max(1, round(1.5 * blur))
    padded = torch.nn.functional.pad(highest[None], (radius, radius), mode="replicate")
    lowest = -torch.nn.functional.max_pool1d(-padded, 2 * radius + 1, 1)[0]
    return blurred(lowest, blur)


def _bounce(plan: StepPlan, style: GaitStyle, time: torch.Tensor) -> torch.Tensor:
    """Bounce from step to step, lowest over the foot and highest in flight, (T,) heights.

    As the hips cannot fall faster than freely, quick steps bounce less: ``A (2π / period)² <= g``.
    """
    size = min(style.bounce, 0.95 * _GRAVITY * (plan.period / (2 * math.pi)) ** 2)
    keys = [(plan.begin, 0.0)]
    for step, following in itertools.pairwise(plan.steps):
        flight = max(0.0, step.lands - following.leaves)
        if flight:
            keys.append((step.lands - flight / 2, size - style.crouch))
        keys.append((step.lands + style.over * plan.period, -size - style.crouch))
    return _through([*keys, (plan.end, 0.0)], time)
