"""Penetration: how much of the limbs is inside the body, by exact winding number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from retargetbench.metrics.base import UNDEFINED, Metric, MetricValue
from retargetbench.metrics.obstacles import LIMBS, body_model

if TYPE_CHECKING:
    from retargetbench.metrics.base import Evaluation
    from retargetbench.metrics.obstacles import BodyModel, Definition

_LEFT_ARM, _RIGHT_ARM = (tuple(LIMBS).index(name) for name in ("left_arm", "right_arm"))
_OF_ARMS = {
    "penetration",
    "penetration_area",
    "penetration_depth",
    "penetration_left_arm",
    "penetration_right_arm",
    "penetration_nearest_normal",
    "penetration_guard",
}


class Intrusion(NamedTuple):
    """What is inside in each frame.

    Attributes:
        inside: limb vertices that are inside and can count, (T, N) bool.
        depth: distance of the deepest of them from the body's surface, (T,) metres; None where not asked for.
        behind: limb vertices behind the normal of the nearest vertex, (T, N) bool; None where not asked for.
    """

    inside: torch.Tensor
    depth: torch.Tensor | None
    behind: torch.Tensor | None


def percent_inside(inside: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Compute the share of vertices that are inside.

    Args:
        inside: (..., N) bool.
        weights: how much each vertex counts, (N,), their area for example; None counts all alike.

    Returns:
        Percent, (...); NaN where there are no vertices.

    Example:
        >>> percent_inside(torch.tensor([True, False, False, False]))
        tensor(25.)
        >>> percent_inside(torch.tensor([True, False]), torch.tensor([3.0, 1.0]))
        tensor(75.)
    """
    if weights is None:
        return 100 * inside.sum(-1) / inside.shape[-1] if inside.shape[-1] else inside.sum(-1) * math.nan
    return 100 * (inside * weights).sum(-1) / weights.sum()


def measure_intrusion(
    model: BodyModel,
    rotations: torch.Tensor,
    positions: torch.Tensor,
    *,
    depth: bool = False,
    nearest_normal: bool = False,
) -> tuple[Intrusion, ...]:
    """Find what is inside in every frame of a motion.

    Args:
        model: what may enter what.
        rotations: world rotations of all joints, (T, J, 3, 3).
        positions: world positions of all joints, (T, J, 3) metres.
        depth: also measure depths.
        nearest_normal: also apply the unreliable test that papers use.

    Returns:
        One entry for each obstacle of the model that is not empty.
    """
    obstacles = [obstacle for obstacle in model.obstacles if not obstacle.is_empty]
    chunks: list[list[Intrusion]] = [[] for _ in obstacles]
    for posed in model.pose_in_chunks(rotations, positions):
        for obstacle, found in zip(obstacles, chunks, strict=True):
            inside = obstacle.find_inside(posed)
            found.append(
                Intrusion(
                    inside,
                    obstacle.measure_depth(posed, inside) if depth else None,
                    obstacle.find_behind_nearest_normal(posed) if nearest_normal else None,
                )
            )
    return tuple(
        Intrusion(
            torch.cat([part.inside for part in found]),
            torch.cat([part.depth for part in found if part.depth is not None]) if depth else None,
            torch.cat([part.behind for part in found if part.behind is not None]) if nearest_normal else None,
        )
        for found in chunks
    )


class Penetration(Metric):
    """Penetration: percent of arm vertices that are inside the rest of the body, mean over frames.

    A vertex is inside where the winding number of the body without the arms, closed at the shoulders, is 1 or more.
    Vertices that at rest are inside, or closer to the body than the radius of the arm, never count, but stay in the
    denominator. Unit: percent, 0 … 100; depth in metres. Lower is better.

    - ``penetration``: arms, forearms and hands against torso, head, clavicles and legs. Compare it on one mesh only:
      where hands have many vertices, hands decide.
    - ``penetration_area``: the same with vertices weighted by their area at rest; comparable between meshes.
    - ``penetration_depth``: distance of the deepest counted vertex of the clip from the body's surface.
    - ``penetration_left_arm``, ``penetration_right_arm``: of the vertices of one arm.
    - ``penetration_limbs``: arms and legs against torso, head and clavicles.
    - ``penetration_self``: each limb against everything but itself; sees hand in hand and thigh in thigh.
    - ``penetration_nearest_normal``: arms by nearest body vertex and its normal, as other papers do; only to stand
      beside their figures. At rest it reports up to 46 % of the limbs of Mixamo characters.
    - ``penetration_guard``: percent of arm vertices that never count; the same in every motion of a character.

    Copying rotations to a heavy body never reaches 0, since upper arms press into flanks; compare with the row
    ``source`` and between methods. All are blind to how far a *hand* is off the skin (see ``contact_error``), to
    fingers inside fingers of the same hand, and to anything between frames. Undefined for meshes without arms or
    without body.

    Source: MeshRet (NeurIPS 2024) counts penetrating arm vertices over all arm vertices, and says neither what is
    inside nor where the arm begins. Rays against winding number differ by up to 7 % of the limb in a frame.
    """

    def evaluate(self, evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
        """Compute the wanted columns; `UNDEFINED` where the mesh has no arms or no body."""
        values: dict[str, MetricValue] = {}
        if columns & _OF_ARMS:
            values |= _values_of_arms(evaluation, columns & _OF_ARMS)
        if "penetration_limbs" in columns:
            values["penetration_limbs"] = _value_of(evaluation, "limbs")
        if "penetration_self" in columns:
            values["penetration_self"] = _value_of(evaluation, "self")
        return values


def _values_of_arms(evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
    model = body_model(evaluation.target, "arms")
    if model.is_empty:
        return dict.fromkeys(columns, UNDEFINED)
    (obstacle,) = model.obstacles
    guard = float(percent_inside(~obstacle.can_count))
    if columns == {"penetration_guard"}:
        return {"penetration_guard": MetricValue(guard)}
    (found,) = measure_intrusion(
        model,
        *evaluation.target_joints,
        depth="penetration_depth" in columns,
        nearest_normal="penetration_nearest_normal" in columns,
    )
    shares = {
        "penetration": percent_inside(found.inside),
        "penetration_area": percent_inside(found.inside, obstacle.area),
        "penetration_left_arm": percent_inside(found.inside[:, obstacle.limb == _LEFT_ARM]),
        "penetration_right_arm": percent_inside(found.inside[:, obstacle.limb == _RIGHT_ARM]),
    }
    if found.behind is not None:
        shares["penetration_nearest_normal"] = percent_inside(found.behind)
    values = {column: _mean(shares[column]) for column in columns & shares.keys()}
    if found.depth is not None:
        values["penetration_depth"] = MetricValue(float(found.depth.max()), found.depth)
    if "penetration_guard" in columns:
        values["penetration_guard"] = MetricValue(guard)
    return values


def _value_of(evaluation: Evaluation, definition: Definition) -> MetricValue:
    """Percent of the vertices of all limbs of a definition."""
    model = body_model(evaluation.target, definition)
    if model.is_empty:
        return UNDEFINED
    found = measure_intrusion(model, *evaluation.target_joints)
    return _mean(percent_inside(torch.cat([part.inside for part in found], -1)))


def _mean(by_frame: torch.Tensor) -> MetricValue:
    return MetricValue(float(by_frame.double().mean()), by_frame)
