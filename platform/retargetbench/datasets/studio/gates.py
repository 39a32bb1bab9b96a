"""Quality gates: what is measured of a clip on a body, and what it must keep to be shipped as ground truth.

The figures are measured on the mesh and with the platform's own metrics, not with the terms that the solver minimises.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from scipy.spatial import cKDTree

from retargetbench.caching import per_character
from retargetbench.datasets.studio.joint_limits import limit_excess
from retargetbench.datasets.studio.places import PLACES, find_place
from retargetbench.errors import CharacterError, DatasetError
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.mesh.distance import point_triangle_distance
from retargetbench.metrics.obstacles import body_model
from retargetbench.metrics.penetration import percent_inside
from retargetbench.metrics.smoothness import acceleration
from retargetbench.sensor_names import BONES
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
"""Largest mean joint acceleration, as a multiple of that of the reference body."""

LIMIT_EXCESS_DEG = 5.0
"""Degrees by which a joint may be beyond its range; less is not seen, and the ranges are no sharper."""

LIMIT_SHARE = 0.01
"""Largest share of frames in which a joint is farther beyond its range: one frame of a clip of three seconds may be."""

MOVING_RADIUS = 0.02
TOUCHED_RADIUS = 0.035
"""Radii of the patches around the place that comes and the place that is touched, heights."""

_WAY_POINTS = 17
"""Points of the way along which a contact slides, with both ends."""

_NEAREST_POINTS = 8
_NEAREST_FACES = 24
"""How many of the nearest vertices of one patch are measured against how many of the nearest faces of the other."""

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
        acceleration_ratio: of the reference's.
        limit_excess_deg: largest excess of a joint over its range, degrees.
        limit_share: share of the frames in which a joint exceeds its range by more than `LIMIT_EXCESS_DEG`.
    """

    contact_gap: float | None
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
def measure_quality(body: Character, motion: Motion, performance: Performance, reference: Quality | None) -> Quality:
    """Measure a clip on a body.

    Args:
        body: on the 22 canonical joints, hands in their shapes, see `retargetbench.datasets.studio.fingers`.
        motion: of its 22 joints.
        performance: what the motion is meant to show; its rotations and hips are not used.
        reference: the same performance on the reference body; None if this is the reference body.

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
    gap, distance = _contacts(body, performance, rotations, positions)
    penetration, depth, unfolded = _penetration(body, rotations, positions)
    speed, drift, off_floor = _feet(body, performance, rotations, positions)
    jitter = _number(acceleration(positions, motion.fps).double().nanmean() / body.height)
    ratio = _ratio(jitter, jitter if reference is None else reference.acceleration)
    excess = torch.rad2deg(limit_excess(motion.local_rotations).amax(-1))
    return Quality(
        contact_gap=gap,
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
) -> tuple[float | None, float | None]:
    """Measure gaps of skins and distances of places over all contacts."""
    gaps, distances = [], []
    for contact in performance.contacts:
        active = contact.active.to(positions.device)
        if not bool(active.any()):
            continue
        shape = contact_shape(body, contact.moving, contact.first, contact.second)
        posed = shape.skinner.pose(rotations[active], positions[active])
        gaps.append((shape.gap(posed) - contact.gap * body.height).clamp_min(0))
        distances.append(shape.distance(posed, None if contact.slides else contact.share.to(posed)[active]))
    if not gaps:
        return None, None
    return float(torch.cat(gaps).double().quantile(_GAP_QUANTILE)), float(torch.cat(distances).double().mean())


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


@dataclass(frozen=True, eq=False)
class ContactShape:
    """The skin around two places that touch, on one body.

    Attributes:
        skinner: poses the points of the moving patch, then of the touched patch. In each the named places come first:
            one of the moving patch, W of the touched one; vertices of the mesh follow.
        moving_count: points of the moving patch.
        way_count: W.
        moving_faces: triangles of the moving patch, (F, 3) int64.
        touched_faces: triangles of the touched patch, numbered from its own first point, (G, 3) int64.
    """

    skinner: Skinner
    moving_count: int
    way_count: int
    moving_faces: torch.Tensor
    touched_faces: torch.Tensor

    def gap(self, posed: torch.Tensor) -> torch.Tensor:
        """Measure how far both patches are from each other.

        It is the smallest distance of a point of one patch to a face of the other: never too small, and too large only
        where two edges cross in the air or where sizes of faces differ much.

        Args:
            posed: points of the skinner, (T, P, 3) metres.

        Returns:
            (T,) metres; where one skin is in the other, the distance to it from inside.
        """
        moving, touched = posed[:, : self.moving_count], posed[:, self.moving_count :]
        one, other = _nearest_points(moving, touched)
        return torch.minimum(
            _distance_to_faces(one, touched, self.touched_faces), _distance_to_faces(other, moving, self.moving_faces)
        )

    def distance(self, posed: torch.Tensor, share: torch.Tensor | None) -> torch.Tensor:
        """Measure how far the named places are from each other.

        Args:
            posed: points of the skinner, (T, P, 3) metres.
            share: how far along the way the touched place is, (T,) from 0 to 1; None: wherever it is nearest.

        Returns:
            (T,) metres.
        """
        moving, way = posed[:, 0], posed[:, self.moving_count : self.moving_count + self.way_count]
        distances: torch.Tensor = (way - moving[:, None]).norm(dim=-1)
        if share is not None:
            at = (share * (self.way_count - 1)).round().long()
            distances = distances.gather(1, at[:, None])
        return distances.amin(-1)


@per_character
def contact_shape(body: Character, moving: str, first: str, second: str) -> ContactShape:
    """Prepare patches around two places; remembered per body.

    A patch has the vertices within a radius of its place that move with the same limb, and all faces around them. The
    touched place may wander from ``first`` to ``second``, straight through the T-pose and from there onto the skin.

    Args:
        body: on the 22 canonical joints.
        moving: place of the arm or leg that comes.
        first: place that is touched at the beginning.
        second: place that is touched at the end.

    Raises:
        CharacterError: a place has no skin.
    """
    rest, weights = body.rest_vertices.double(), body.canonical_weights.double()
    faces = body.faces
    starts = find_place(body, moving)
    near, corners = _patch(rest, faces, _limb(body, moving), starts.position[None], MOVING_RADIUS * body.height)
    ends = [find_place(body, first), find_place(body, second)]
    limb = _limb(body, first) | _limb(body, second)
    way, way_weights = ends[0].position[None], ends[0].weights[None]
    if first != second:
        share = torch.linspace(0, 1, _WAY_POINTS, dtype=rest.dtype, device=rest.device)[1:-1, None]
        straight = torch.lerp(ends[0].position, ends[1].position, share)
        own = limb.nonzero()[:, 0]
        on_skin = own[torch.cdist(straight, rest[own]).argmin(-1)]
        way = torch.cat([way, rest[on_skin], ends[1].position[None]])
        way_weights = torch.cat([way_weights, weights[on_skin], ends[1].weights[None]])
    around, touched_corners = _patch(rest, faces, limb, way, TOUCHED_RADIUS * body.height)
    bound = _bound_at_rest(body)
    points = torch.cat([starts.position[None], rest[near], way, rest[around]])
    point_weights = torch.cat([starts.weights[None], weights[near], way_weights, weights[around]])
    return ContactShape(
        skinner=Skinner.from_points(bound, points.to(body.bind_vertices), point_weights.to(body.bind_vertices)),
        moving_count=1 + len(near),
        way_count=len(way),
        moving_faces=corners + 1,
        touched_faces=touched_corners + len(way),
    )


def _bound_at_rest(body: Character) -> Character:
    """Return the body with its mesh bound in the T-pose, where places are found."""
    inverse_bind = torch.eye(4, dtype=body.inverse_bind.dtype, device=body.device).repeat(
        body.skeleton.joint_count, 1, 1
    )
    inverse_bind[:, :3, 3] = -body.skeleton.rest_positions.to(inverse_bind)
    return replace(body, bind_vertices=body.rest_vertices, inverse_bind=inverse_bind)


def _limb(body: Character, place: str) -> torch.Tensor:
    """Which vertices move mostly with the bone of a place or the bones beside it, (V,) bool."""
    (block,) = (bone.block for bone in BONES if bone.name == PLACES[place].bone)
    joints = torch.tensor([canonical_index(joint) for joint in block], device=body.device)
    return torch.isin(body.dominant_joint, joints)


def _patch(
    rest: torch.Tensor, faces: torch.Tensor, limb: torch.Tensor, places: torch.Tensor, radius: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the skin around places (W, 3).

    Returns:
        Vertices of all faces that have a vertex of the limb within the radius, (N,), and these faces by their place
        among them, (F, 3). The vertex nearest to each place always counts, as there may be none nearer.
    """
    own = limb.nonzero()[:, 0]
    distances = torch.cdist(places, rest[own])
    within = torch.zeros_like(limb)
    within[own[(distances <= radius).any(0)]] = True
    within[own[distances.argmin(-1)]] = True
    chosen = faces[within[faces].any(-1) & limb[faces].all(-1)]
    if len(chosen) == 0:
        chosen = faces[within[faces].any(-1)]
    vertices, corners = torch.unique(chosen, return_inverse=True)
    return vertices, corners.view(-1, 3)


def _nearest_points(first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick in each frame the points of each set that are nearest to the other one, (T, K, 3) and (T, L, 3)."""
    picked: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for pair in zip(first, second, strict=True):
        arrays = [points.cpu().numpy() for points in pair]
        for points, array, other, kept in zip(pair, arrays, reversed(arrays), picked, strict=True):
            distances, _ = cKDTree(other).query(array)
            order = np.argsort(distances, kind="stable")[:_NEAREST_POINTS]
            kept.append(points[torch.from_numpy(order).to(points.device)])
    return torch.stack(picked[0]), torch.stack(picked[1])


def _distance_to_faces(points: torch.Tensor, mesh: torch.Tensor, faces: torch.Tensor) -> torch.Tensor:
    """Measure the smallest distance of points (T, K, 3) to the nearest faces of a mesh (T, N, 3), (T,) metres."""
    corners = mesh[:, faces]
    middles = corners.mean(-2)
    count = min(_NEAREST_FACES, len(faces))
    offsets = (middles[:, None] - points[:, :, None]).square().sum(-1)
    nearest = offsets.topk(count, dim=-1, largest=False).indices
    frame = torch.arange(len(mesh), device=mesh.device)[:, None, None]
    triangles = corners[frame, nearest]
    by_coordinate = points.permute(2, 0, 1)[..., None].expand(-1, -1, -1, count)
    return point_triangle_distance(by_coordinate, triangles.permute(3, 4, 0, 1, 2)).amin((-2, -1))
