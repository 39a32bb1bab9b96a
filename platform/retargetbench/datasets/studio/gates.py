"""Quality gates: what is measured of a clip on a body, and what it must keep to be shipped as ground truth.

The figures are measured on the mesh and with the platform's own metrics, not with the terms that the solver minimises.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import torch
from scipy.spatial import cKDTree

from retargetbench.caching import per_character
from retargetbench.datasets.studio.contact_shape import contact_shape
from retargetbench.datasets.studio.joint_limits import limit_excess
from retargetbench.errors import CharacterError, DatasetError
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.metrics.obstacles import body_model
from retargetbench.metrics.penetration import percent_inside
from retargetbench.metrics.smoothness import acceleration
from retargetbench.sensors import extract_sensors
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import FootTrack, Performance
    from retargetbench.motion import Motion

Gate = Literal[
    "contact_gap", "penetration", "unfolded_depth", "foot_speed", "foot_drift", "acceleration", "joint_limits"
]
"""Names of the gates."""

CONTACT_GAP = 0.015 / 1.75
"""Largest gap at contacts, heights: 1.5 cm for a body whose height by the house rule is 1.75 m."""

PENETRATION = 0.8
"""Largest `penetration`, percent. The sources of ScanRet, which animators checked, have 1.37 %."""

UNFOLDED_DEPTH = 0.015
"""Largest depth of a vertex outside the folds of armpits, metres."""

FOLD_RADII = 3.0
"""Arm radii from the body at rest within which skin of an arm is in the fold of its armpit.

Linear blend skinning folds it up to 6 cm into the trunk of a heavy body whose arms hang as anyone's do; to have it out,
the arm would have to be held level. It counts in `penetration` all the same.
"""
FOOT_SPEED = 0.03
"""Largest mean speed of a planted foot over the floor, m/s."""

FOOT_DRIFT = 0.01
"""Largest way of a planted foot over the floor, metres."""

ACCELERATION_RATIO = 1.5
"""Largest mean joint acceleration, as a multiple of that of the reference's motion when it is copied to the same body.

Compared in heights with the reference body itself, a body with long arms and short legs would fail by its proportions.
"""

LIMIT_EXCESS_DEG = 5.0
"""Degrees by which a joint may be beyond its range; less is not seen, and the ranges are no sharper."""

LIMIT_SHARE = 0.01
"""Largest share of frames in which a joint is farther beyond its range: one frame of a clip of three seconds may be."""

_GAP_QUANTILE = 0.95
_SOLE_THICKNESS = 0.004
"""Skin of toes or heel within this of its lowest point rests on the floor, heights."""

_RESTING_LIFT = 0.01
"""Toes or heel that are this much higher than the other no longer rest, heights."""

_TOE_WEIGHT = 0.9
"""Skin weight from which skin is of the toes and does not fold at the ball."""


@dataclass(frozen=True)
class Quality:
    """What is measured of a clip on a body. None: there is nothing that could be measured.

    Attributes:
        contact_gap: 95th percentile, over all contacts and the frames in which they hold, of how much farther the skins
            of both places are from each other than wanted, metres; None without contacts.
        contact_error: mean over the same of how far off the wanted distance the skins are, metres; where one is inside
            the other their distance is negative, by the deepest point. No gate.
        contact_distance: mean over the same of the distance between the two named places, metres. Where a contact
            slides it is that to the nearest point of the way. Even a perfect contact of a large hand is not 0.
        penetration: the metric ``penetration``, percent.
        penetration_depth: the metric ``penetration_depth``, metres; no gate.
        unfolded_depth: the same over skin that is more than `FOLD_RADII` from the body at rest, metres.
        foot_speed: of the planted interval where it is largest, mean speed of the resting part of the foot over the
            floor, m/s; None where no foot is planted for two frames.
        foot_drift: largest way that the resting part of a foot has gone over the floor since it was planted, metres.
        foot_height: largest distance of a planted foot from the height at which it rests, metres; no gate.
        acceleration: mean joint acceleration, heights/s²; None for fewer than 3 frames.
        acceleration_ratio: of that of plain copying to the same body.
        limit_excess_deg: largest excess of a joint over its range, degrees.
        limit_share: share of the frames in which a joint exceeds its range by more than `LIMIT_EXCESS_DEG`.
    """

    contact_gap: float | None
    contact_error: float | None
    contact_distance: float | None
    penetration: float | None
    penetration_depth: float | None
    unfolded_depth: float | None
    foot_speed: float | None
    foot_drift: float | None
    foot_height: float | None
    acceleration: float | None
    acceleration_ratio: float | None
    limit_excess_deg: float
    limit_share: float

    def to_row(self) -> dict[str, float | None]:
        """Return all figures by name, as files want them."""
        return asdict(self)


def failed_gates(quality: Quality, height: float) -> tuple[Gate, ...]:
    """Name the gates that a clip fails; a figure that is exactly at its threshold passes.

    Args:
        quality: of the clip.
        height: of the body by the house rule, metres.
    """
    figures: dict[Gate, tuple[float | None, float]] = {
        "contact_gap": (quality.contact_gap, CONTACT_GAP * height),
        "penetration": (quality.penetration, PENETRATION),
        "unfolded_depth": (quality.unfolded_depth, UNFOLDED_DEPTH),
        "foot_speed": (quality.foot_speed, FOOT_SPEED),
        "foot_drift": (quality.foot_drift, FOOT_DRIFT),
        "acceleration": (quality.acceleration_ratio, ACCELERATION_RATIO),
        "joint_limits": (quality.limit_share, LIMIT_SHARE),
    }
    return tuple(gate for gate, (figure, limit) in figures.items() if figure is not None and not figure <= limit)


@torch.no_grad()
def measure_quality(body: Character, motion: Motion, performance: Performance, copied: Quality | None) -> Quality:
    """Measure a clip on a body.

    Args:
        body: on the 22 canonical joints, hands in their shapes, see `retargetbench.datasets.studio.fingers`.
        motion: of its 22 joints.
        performance: what the motion is meant to show; its rotations and hips are not used.
        copied: the performance as it is copied to the same body; None if the motion is that.

    Raises:
        DatasetError: the motion has other frames than the performance.
        CharacterError: the body or the motion is not on the 22 joints, or a place or a foot has no skin.
    """
    frames = len(performance.rotations)
    if motion.frame_count != frames or motion.fps != performance.fps:
        raise DatasetError(
            f"{performance.name} on {body.name}: the motion must have the performance's {frames} frames at "
            f"{performance.fps} fps, got {motion.frame_count} at {motion.fps}"
        )
    if not body.skeleton.is_canonical() or motion.joint_count != body.skeleton.joint_count:
        raise CharacterError(
            f"{body.name}: gates are measured on the 22 canonical joints, got a body of {body.skeleton.joint_count} "
            f"and a motion of {motion.joint_count}"
        )
    rotations, positions = forward_kinematics(body.skeleton, motion.root_translation, motion.local_rotations)
    gap, error, distance = _contacts(body, performance, rotations, positions)
    penetration, depth, unfolded = _penetration(body, rotations, positions)
    speed, drift, off_floor = _feet(body, performance, rotations, positions)
    jitter = _number(acceleration(positions, motion.fps).double().nanmean() / body.height)
    ratio = _ratio(jitter, jitter if copied is None else copied.acceleration)
    excess = torch.rad2deg(limit_excess(motion.local_rotations).amax(-1))
    return Quality(
        contact_gap=gap,
        contact_error=error,
        contact_distance=distance,
        penetration=penetration,
        penetration_depth=depth,
        unfolded_depth=unfolded,
        foot_speed=speed,
        foot_drift=drift,
        foot_height=off_floor,
        acceleration=jitter,
        acceleration_ratio=ratio,
        limit_excess_deg=float(excess.max()),
        limit_share=float((excess > LIMIT_EXCESS_DEG).double().mean()),
    )


def _contacts(
    body: Character, performance: Performance, rotations: torch.Tensor, positions: torch.Tensor
) -> tuple[float | None, float | None, float | None]:
    """Measure gaps and errors of skins, and distances of places, over all contacts."""
    gaps, errors, distances = [], [], []
    for contact in performance.contacts:
        active = contact.active.to(positions.device)
        if not bool(active.any()):
            continue
        shape = contact_shape(body, contact.moving, contact.first, contact.second)
        posed = shape.skinner.pose(rotations[active], positions[active])
        gap, depth, wanted = shape.gap(posed), shape.depth(posed), contact.gap * body.height
        gaps.append((gap - wanted).clamp_min(0))
        errors.append((torch.where(depth > 0, -depth, gap) - wanted).abs())
        distances.append(shape.distance(posed, None if contact.slides else contact.share.to(posed)[active]))
    if not gaps:
        return None, None, None
    farthest = torch.cat(gaps).double().quantile(_GAP_QUANTILE)
    return float(farthest), float(torch.cat(errors).double().mean()), float(torch.cat(distances).double().mean())


def _penetration(
    body: Character, rotations: torch.Tensor, positions: torch.Tensor
) -> tuple[float | None, float | None, float | None]:
    """Measure `penetration` and `penetration_depth` as the metrics do, and the depth outside the folds of armpits."""
    model = body_model(body, "arms")
    if model.is_empty:
        return None, None, None
    (obstacle,) = model.obstacles
    unfolded = _outside_folds(body)
    shares, depth, unfolded_depth = [], 0.0, 0.0
    for posed in model.pose_in_chunks(rotations, positions):
        inside = obstacle.find_inside(posed)
        shares.append(percent_inside(inside).double())
        depth = max(depth, float(obstacle.measure_depth(posed, inside).max()))
        unfolded_depth = max(unfolded_depth, float(obstacle.measure_depth(posed, inside & unfolded).max()))
    return float(torch.cat(shares).mean()), depth, unfolded_depth


@per_character
def _outside_folds(body: Character) -> torch.Tensor:
    """Whether each limb vertex is so far from the body at rest that no armpit folds it, (N,) bool."""
    (obstacle,) = body_model(body, "arms").obstacles
    apart, _ = cKDTree(obstacle.rest.numpy()).query(body.rest_vertices[obstacle.limb_vertices].numpy())
    return torch.from_numpy(apart) > FOLD_RADII * extract_sensors(body).arm_radius


@dataclass(frozen=True, eq=False)
class _Sole:
    """Skin of a foot on which it may rest: toes, then heel. The ball's own skin folds where the toes bend, and slips.

    Attributes:
        skinner: poses the vertices of both.
        toe_count: how many are of the toes.
        rest_heights: lowest vertex of each in the T-pose, (2,) metres.
    """

    skinner: Skinner
    toe_count: int
    rest_heights: torch.Tensor


@per_character
def _sole(body: Character, side: Literal["Left", "Right"]) -> _Sole:
    """Find toes and heel of a foot; either is the whole foot where it has no skin of its own."""
    ankle, ball = canonical_index(f"{side}Foot"), canonical_index(f"{side}ToeBase")
    rest, part = body.rest_vertices, body.dominant_joint
    foot = (part == ankle) | (part == ball)
    if not bool(foot.any()):
        raise CharacterError(f"{body.name}: no skin moves with {side}Foot or {side}ToeBase")
    rearmost = float(rest[foot, 2].min())
    is_rear = rest[:, 2] < (rearmost + float(body.skeleton.rest_positions[ball, 2])) / 2
    toes, heel = body.canonical_weights[:, ball] >= _TOE_WEIGHT, (part == ankle) & is_rear
    toes, heel = (own if bool(own.any()) else foot for own in (toes, heel))
    vertices = torch.cat([toes.nonzero()[:, 0], heel.nonzero()[:, 0]])
    heights = torch.stack([rest[toes, 1].min(), rest[heel, 1].min()])
    return _Sole(Skinner.from_character(body, vertices), int(toes.sum()), heights)


def _feet(
    body: Character, performance: Performance, rotations: torch.Tensor, positions: torch.Tensor
) -> tuple[float | None, float | None, float | None]:
    """Measure the worst speed, the worst drift and the worst height of planted feet."""
    speeds, drifts, heights = [], [], []
    sides: tuple[Literal["Left", "Right"], ...] = ("Left", "Right")
    for side, track in zip(sides, performance.feet, strict=True):
        sole = _sole(body, side)
        for interval in _planted_intervals(track):
            posed = sole.skinner.pose(rotations[interval], positions[interval])
            parts = (posed[:, : sole.toe_count], posed[:, sole.toe_count :])
            lifts = torch.stack([part[..., 1].amin(-1) for part in parts], -1) - sole.rest_heights.to(posed)
            heights.append(float(lifts.amin(-1).abs().max()))
            if len(posed) > 1:
                slip = resting_slip(parts, lifts, body.height).double()
                speeds.append(float(slip.norm(dim=-1).mean() * performance.fps))
                drifts.append(float(slip.cumsum(0).norm(dim=-1).max()))
    return max(speeds, default=None), max(drifts, default=None), max(heights, default=None)


def _planted_intervals(track: FootTrack) -> list[slice]:
    """List the runs of frames in which a foot is planted."""
    planted = torch.nn.functional.pad(track.planted.int(), (1, 1)).diff()
    starts, stops = (planted == 1).nonzero()[:, 0].tolist(), (planted == -1).nonzero()[:, 0].tolist()
    return [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]


def resting_slip(parts: tuple[torch.Tensor, torch.Tensor], lifts: torch.Tensor, height: float) -> torch.Tensor:
    """Compute how far the resting part of a foot goes over the floor from each frame to the next.

    Toes and heel rest while they are about as low as the other in both frames; of two that rest, the one that moves
    less holds the foot. Of a part only the skin counts that is lowest in both frames. So a foot that rolls over heel
    and ball does not slip though its ankle moves; one that turns on its ball does, as its toes sweep the floor.

    Args:
        parts: vertices of the toes (T, N, 3) and of the heel (T, M, 3), metres.
        lifts: how much higher the lowest of them is than in the T-pose, (T, 2) metres.
        height: of the body, metres.

    Returns:
        Mean displacement along x and z of the skin that rests, (T − 1, 2) metres.
    """
    slips = torch.stack([_lowest_skin_moves(part, _SOLE_THICKNESS * height) for part in parts], -2)
    rests = lifts <= lifts.amin(-1, keepdim=True) + _RESTING_LIFT * height
    both = rests[1:] & rests[:-1]
    # At the change from heel to toes neither may rest in both frames; then both are asked.
    both = both | ~both.any(-1, keepdim=True)
    way = torch.where(both, slips.norm(dim=-1), torch.inf)
    return slips[torch.arange(len(slips), device=slips.device), way.argmin(-1)]


def _lowest_skin_moves(skin: torch.Tensor, thickness: float) -> torch.Tensor:
    """Mean horizontal move of the vertices (T, N, 3) that are lowest in both of two frames, (T − 1, 2) metres."""
    above = skin[..., 1] - skin[..., 1].amin(-1, keepdim=True)
    highest = torch.maximum(above[1:], above[:-1])
    lowest = (highest <= thickness) | (highest == highest.amin(-1, keepdim=True))
    moved = skin[..., [0, 2]].diff(dim=0)
    return (moved * lowest[..., None]).sum(1) / lowest.sum(1, keepdim=True)


def _number(value: torch.Tensor) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


def _ratio(value: float | None, of: float | None) -> float | None:
    """Divide; two motions that are both still are alike."""
    if value is None or of is None:
        return None
    if of == 0:
        return 1.0 if value == 0 else math.inf
    return value / of
