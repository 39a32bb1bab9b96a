"""Arms that should stay out of the body and out of each other: how deep points are below the nearest sample of skin.

Whether a point of an arm is in the body at all is decided by the exact winding number, since the nearest sample is
wrong about it in folds such as the armpit. Nearest samples are found now and then; in between the pairs that are close
stay as they are, and only these are posed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree

from retargetbench.caching import per_character
from retargetbench.datasets.studio.residuals import Rows, join_rows, row_gradient
from retargetbench.datasets.studio.surface_samples import SurfaceSamples, pose_rows, sample_surface
from retargetbench.mesh.winding import winding_number
from retargetbench.metrics.obstacles import LIMBS, body_model
from retargetbench.sensors import extract_sensors
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.kinematics import Skinner
    from retargetbench.metrics.obstacles import Obstacle

_BODY_SAMPLES = 2200
_ARM_SAMPLES = 90
"""Of upper arm and forearm, for each side."""
_HAND_SAMPLES = 130
"""Of each hand."""
_LEG_SAMPLES = 160
"""Of shank and foot, for each side."""
_SLACK = 0.012
"""Pairs that are up to this far apart, in heights beyond the margin, are watched between two searches."""
_DEEPEST = 0.16
"""Heights; a sample that seems farther inside is in front of another part of the body."""
_ASIDE = 0.02
"""Heights by which the nearest sample may be off the line of its normal; beyond it says nothing of in or out."""

_FOLDED, _FREE, _LEAST = 2.0, 3.5, 0.01
"""Arm radii from the body at rest up to which a point of an arm counts least and from which it counts in full, and how
much the least is."""
_ARM_MARGIN = -1.0
"""Of the margin, between both arms: flesh gives way, and samples of a hand are as far apart as fingers are thick."""
_ARM_ASIDE = 0.01
"""Heights, between both arms."""


class _Limb(NamedTuple):
    """Points of arms or of a leg and what they must not enter.

    Rows of the points, and rows of points and normals around them; how far they should stay off, in shares of the
    margin; up to how far aside the nearest sample tells in from out, in heights; and how much each point counts.
    """

    points: torch.Tensor
    around: torch.Tensor
    normals: torch.Tensor
    counts: torch.Tensor
    margin: float = 1.0
    aside: float = _ASIDE


class _Pairs(NamedTuple):
    """Close pairs of one limb, N of them: frame, point, and position among the ``used`` samples around."""

    frame: torch.Tensor
    point: torch.Tensor
    sample: torch.Tensor
    used: torch.Tensor


@dataclass(frozen=True, eq=False)
class CollisionModel:
    """Samples of one body, prepared once.

    Attributes:
        limbs: rows of each limb that must stay outside; the first are both arms against the body without arms.
        mesh: poses the vertices of the body, and what closes it.
        obstacle: the body without arms, closed.
        rest: joints in the T-pose, (22, 3) metres.
        height: of the body, metres.
    """

    limbs: tuple[_Limb, ...]
    mesh: Skinner
    obstacle: Obstacle
    rest: torch.Tensor
    height: float


@per_character
def collision_model(body: Character, *, legs: bool = False) -> CollisionModel:
    """Prepare a body for collisions of its arms; remembered per body.

    What may be entered is as in the metric ``penetration`` (`retargetbench.metrics.obstacles`): the body without its
    arms; skin of the arms that is close to the body at rest does not count. Beyond the metric, each arm must stay out
    of the other, by a penalty that allows hands to be pressed together.

    Args:
        body: with its 22 joints.
        legs: also keep each shank and foot out of the other leg.
    """
    arms_model = body_model(body, "arms")
    obstacle = arms_model.obstacles[0]
    counts = torch.zeros(body.vertex_count, dtype=torch.bool)
    counts[obstacle.limb_vertices[obstacle.can_count]] = True
    part = body.dominant_joint[body.faces]
    is_arm = torch.zeros(22, dtype=torch.bool)
    is_arm[[canonical_index(name) for side in ("left_arm", "right_arm") for name in LIMBS[side]]] = True
    trunk = sample_surface(body, (~is_arm[part]).all(-1).nonzero()[:, 0], _BODY_SAMPLES)

    def of(names: tuple[str, ...], count: int, *, counting: bool = False) -> SurfaceSamples:
        chosen = torch.isin(part, torch.tensor([canonical_index(name) for name in names])).all(-1)
        if counting:
            chosen &= counts[body.faces].any(-1)
        return sample_surface(body, chosen.nonzero()[:, 0], count)

    arms, moving = [], []
    for side in ("Left", "Right"):
        hand = of((f"{side}Hand",), _HAND_SAMPLES)
        arms.append(of((f"{side}Arm", f"{side}ForeArm"), _ARM_SAMPLES).joined(hand))
        counted = of((f"{side}Arm", f"{side}ForeArm"), _ARM_SAMPLES, counting=True)
        moving.append(counted.joined(of((f"{side}Hand",), _HAND_SAMPLES, counting=True)))
    points = moving[0].joined(moving[1])
    limbs = [_limb(points, trunk)._replace(counts=_away_at_rest(body, points, trunk))]
    limbs += [_limb(points, other, margin=_ARM_MARGIN, aside=_ARM_ASIDE) for points, other in (arms, arms[::-1])]
    if legs:
        limbs += [
            _limb(
                of((f"{side}Leg", f"{side}Foot", f"{side}ToeBase"), _LEG_SAMPLES),
                of((f"{other}UpLeg", f"{other}Leg", f"{other}Foot"), 4 * _LEG_SAMPLES),
            )
            for side, other in (("Left", "Right"), ("Right", "Left"))
        ]
    rest = body.skeleton.to_canonical().rest_positions.float()
    return CollisionModel(tuple(limbs), arms_model.skinner, obstacle, rest, body.height)


def _limb(points: SurfaceSamples, around: SurfaceSamples, margin: float = 1.0, aside: float = _ASIDE) -> _Limb:
    rows, normals = around.skinning_rows()
    counts = torch.ones(len(points))
    return _Limb(points.skinning_rows()[0].float(), rows.float(), normals.float(), counts, margin, aside)


def _away_at_rest(body: Character, points: SurfaceSamples, around: SurfaceSamples) -> torch.Tensor:
    """How much points of arms count, (N,): less the closer they are to the body at rest.

    The skin of an armpit folds whenever an arm hangs, and arms should not be spread far for that.
    """
    apart = torch.cdist(points.positions, around.positions).amin(-1) / extract_sensors(body).arm_radius
    return ((apart - _FOLDED) / (_FREE - _FOLDED)).clamp(_LEAST, 1.0).float()


class Collisions:
    """How deep points are in clips; call `search` now and then, `depths` in every step."""

    def __init__(self, model: CollisionModel, margin: float) -> None:
        """Args:
        model: of the body.
        margin: distance that should stay, heights.
        """
        self._model = model
        self._margin = margin
        self._pairs: list[_Pairs] = []

    @torch.no_grad()
    def search(self, transforms: torch.Tensor) -> None:
        """Find the close pairs in a pose, transforms (T, 22, 3, 4)."""
        height = self._model.height
        self._pairs = []
        for number, limb in enumerate(self._model.limbs):
            points, around = pose_rows(limb.points, transforms), pose_rows(limb.around, transforms)
            nearest = _nearest(points, around, (_DEEPEST + _ASIDE) * height)
            frame = torch.arange(len(points))[:, None].expand_as(nearest)
            normals = torch.nn.functional.normalize(pose_rows(limb.normals, transforms)[frame, nearest], dim=-1)
            apart = points - around[frame, nearest]
            depth = (apart * normals).sum(-1)
            aside = (apart - depth[..., None] * normals).norm(dim=-1)
            close = (depth < (limb.margin * self._margin + _SLACK) * height) & (depth > -_DEEPEST * height)
            close &= aside < limb.aside * height  # also drops points that have nothing near
            if number == 0:
                close &= (depth > 0) | self._find_inside(transforms, points)
            frames, point = close.nonzero(as_tuple=True)
            used, sample = torch.unique(nearest[frames, point], return_inverse=True)
            self._pairs.append(_Pairs(frames, point, sample, used))

    def _find_inside(self, transforms: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Whether points (T, N, 3) are inside the body without arms, by the exact winding number, (T, N) bool."""
        model = self._model
        rotations = transforms[..., :3]
        positions = transforms[..., 3] + (rotations @ model.rest[:, :, None])[..., 0]
        mesh = model.mesh.pose(rotations, positions).index_select(1, model.obstacle.points)
        return winding_number(mesh, model.obstacle.surface.faces, points.contiguous()) > 0

    def depths(self, transforms: torch.Tensor) -> Rows:
        """Depth below the margin of all points that are deeper, as rows of residuals; see `Rows`."""
        found = []
        for limb, pairs in zip(self._model.limbs, self._pairs, strict=True):
            if len(pairs.frame) == 0:
                continue
            points = pose_rows(limb.points, transforms)[pairs.frame, pairs.point]
            around = pose_rows(limb.around[pairs.used], transforms)[pairs.frame, pairs.sample]
            normals = pose_rows(limb.normals[pairs.used], transforms)[pairs.frame, pairs.sample]
            normals = torch.nn.functional.normalize(normals, dim=-1)
            depth = limb.margin * self._margin - ((points - around) * normals).sum(-1) / self._model.height
            deep = (depth > 0).nonzero()[:, 0]
            roots = limb.counts[pairs.point[deep]].sqrt()
            between = limb.points[pairs.point[deep]] - limb.around[pairs.used][pairs.sample[deep]]
            gradient = row_gradient(between, -normals[deep] / self._model.height)
            found.append(Rows(pairs.frame[deep], roots * depth[deep], roots[:, None] * gradient))
        return join_rows(found, transforms)


def _nearest(points: torch.Tensor, around: torch.Tensor, farthest: float) -> torch.Tensor:
    """Index of the nearest sample of each point in each frame, (T, N); any where none is nearer than ``farthest``."""
    if points.device.type != "cpu":
        return torch.cdist(points, around).argmin(-1)
    # Four times faster than all pairs.
    found = [
        cKDTree(tree, balanced_tree=False, compact_nodes=False).query(query, distance_upper_bound=farthest)[1]
        for query, tree in zip(points.numpy(), around.numpy(), strict=True)
    ]
    return torch.from_numpy(np.stack(found)).clamp_max(around.shape[1] - 1)
