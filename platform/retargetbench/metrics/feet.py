"""Feet and floor: sliding of planted feet, soles below the floor, soles above it. The floor is y = 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from retargetbench.caching import per_character
from retargetbench.kinematics import Skinner
from retargetbench.metrics.base import Metric, MetricValue
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.metrics.base import Evaluation

FOOT_JOINTS: tuple[int, ...] = tuple(
    canonical_index(name) for name in ("LeftFoot", "LeftToeBase", "RightFoot", "RightToeBase")
)
"""Canonical joints whose contact is told apart: heel (ankle) and ball (toe base) of each foot."""

PLANTED_HEIGHT = 0.02
"""A sole touches the floor below this share of the character's height: 3 cm for a body of 1.6 m.

Chosen on 11 clips of Mixamo's Ortiz, Mousey and Sporty_Granny: 99.9 % of the foot intervals slower than 0.02 heights a
second lie below it, and the planted share of all intervals (52 %) moves by half a point between 0.015 and 0.03. It is
measured from y = 0 and not from the clip's lowest sole, because a toe that dips once through the floor would lift all
other frames out of contact; soles of Mixamo's rests lie up to 1.9 cm below y = 0, which this allows for. Labels on
joints use 2.5 cm (Zhang et al. 2018, MANN) and 6 to 9 cm (R2ET's preprocessing).
"""

PLANTED_SPEED = 0.1
"""A sole rests below this speed in heights of the character a second: 0.16 m/s for a body of 1.6 m.

SAN's labels use 0.003 of its height per frame of 30 fps, which is 0.12 of ours a second; R2ET's preprocessing uses
0.23 m/s whatever the size.
"""


def planted(sole_heights: torch.Tensor, joints: torch.Tensor, height: float | torch.Tensor, fps: float) -> torch.Tensor:
    """Tell between which frames a foot rests on the floor.

    A part of a foot is planted from one frame to the next if its sole is lower than `PLANTED_HEIGHT` · h in both and
    its joint moves horizontally slower than `PLANTED_SPEED` · h a second.

    Args:
        sole_heights: height of the lowest sole vertex of each part above the floor, (..., T, K) metres.
        joints: joints of the parts, (..., T, K, 3) metres.
        height: height of the character, metres; a number, or one per clip, (...).
        fps: frames a second.

    Returns:
        Whether part k is planted from frame t to frame t + 1, (..., T − 1, K).
    """
    size = torch.as_tensor(height, device=joints.device, dtype=joints.dtype)[..., None, None]
    low = sole_heights < PLANTED_HEIGHT * size
    return low[..., 1:, :] & low[..., :-1, :] & (_horizontal_speed(joints, fps) < PLANTED_SPEED * size)


def foot_skate(joints: torch.Tensor, is_planted: torch.Tensor, fps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute how fast the feet slide while they should rest.

    Args:
        joints: joints of the parts of the feet of the target, (..., T, K, 3) metres.
        is_planted: whether a part rests from frame t to t + 1 in the source, (..., T − 1, K).
        fps: frames a second.

    Returns:
        The mean horizontal speed over all planted parts and frames, (...) m/s, NaN where none is planted; and the mean
        over the planted parts by frame, (..., T) m/s, NaN where none is planted. A speed is noted under the later of
        its two frames.

    Example:
        >>> slide = torch.tensor([0.0, 0.01, 0.02])[:, None, None] * torch.tensor([1.0, 0.0, 0.0])
        >>> foot_skate(slide, torch.tensor([[True], [True]]), fps=30.0)[0]
        tensor(0.3000)
    """
    speed = torch.where(is_planted, _horizontal_speed(joints, fps), math.nan)
    first = speed.new_full((*speed.shape[:-2], 1), math.nan)
    return speed.flatten(-2).nanmean(-1), torch.cat([first, speed.nanmean(-1)], -1)


def ground_penetration(lowest: torch.Tensor) -> torch.Tensor:
    """Compute how deep the lowest sole is below the floor in each frame.

    Args:
        lowest: height of the lowest sole vertex, (..., T) metres.

    Returns:
        Depth, (..., T) metres; 0 where the sole is on or above the floor.
    """
    return (-lowest).clamp_min(0)


def floating(lowest: torch.Tensor, source_lowest: torch.Tensor, source_height: float | torch.Tensor) -> torch.Tensor:
    """Compute how high the lowest sole is above the floor in the frames in which the source stands.

    Args:
        lowest: height of the lowest sole vertex of the target, (..., T) metres.
        source_lowest: the same of the source, (..., T) metres.
        source_height: height of the source, metres; a number, or one per clip, (...).

    Returns:
        Height, (..., T) metres; 0 where the sole is on or below the floor, NaN where the source does not stand, that
        is where its lowest sole is not lower than `PLANTED_HEIGHT` of its height.
    """
    size = torch.as_tensor(source_height, device=lowest.device, dtype=lowest.dtype)[..., None]
    return torch.where(source_lowest < PLANTED_HEIGHT * size, lowest.clamp_min(0), math.nan)


def _horizontal_speed(joints: torch.Tensor, fps: float) -> torch.Tensor:
    """Speed in the plane of the floor from each frame to the next, (..., T − 1, K) m/s."""
    return joints[..., [0, 2]].diff(dim=-3).square().sum(-1).sqrt() * fps


@per_character
def _soles(character: Character) -> tuple[Skinner, tuple[torch.Tensor, ...]]:
    """Skinning of the foot vertices, and for each of `FOOT_JOINTS` which of them are its own.

    A part without vertices uses the foot's other part, a foot without any the whole mesh, as the root rule does.
    """
    dominant = character.dominant_joint
    own = [dominant == joint for joint in FOOT_JOINTS]
    parts = []
    for k, part in enumerate(own):
        foot = own[k - k % 2] | own[k - k % 2 + 1]
        parts.append(part if bool(part.any()) else foot if bool(foot.any()) else torch.ones_like(part))
    vertices = torch.stack(parts).any(0).nonzero()[:, 0]
    return Skinner.from_character(character, vertices), tuple(part[vertices].nonzero()[:, 0] for part in parts)


def sole_heights(character: Character, rotations: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Compute how high the lowest vertex of each part of the feet is.

    Args:
        character: whose soles.
        rotations: world rotations of all joints, (..., T, J, 3, 3).
        positions: world positions of all joints, (..., T, J, 3) metres.

    Returns:
        Height above y = 0 of heel and ball of the left and the right foot (`FOOT_JOINTS`), (..., T, 4) metres.
    """
    skinner, parts = _soles(character)
    heights = skinner.pose(rotations, positions)[..., 1]
    return torch.stack([heights[..., part].amin(-1) for part in parts], -1)


class Feet(Metric):
    """``foot_skate``, ``ground_penetration`` and ``floating``: feet against the floor y = 0.

    Foot skate is the mean horizontal speed of the target's ankles and toe bases over the frames in which the source's
    heel or ball is `planted`; ground penetration is the mean over all frames of the depth of the lowest sole vertex;
    floating is the mean of its height over the frames in which the source stands.

    - Unit: m/s, m, m. Range: 0 to infinity. Lower is better. All three grow in proportion with the size of source and
      target together, since thresholds are shares of the source's height.
    - Heel and ball count apart, so a foot that rolls over its ball does not slide.
    - The row ``source`` is not 0: its planted feet move by up to `PLANTED_SPEED`, and soles of Mixamo's rests lie up to
      1.9 cm below y = 0. It is the row to compare with.
    - Blind to feet that slide where the source's feet slide faster than the threshold or are in the air, to the
      floor under hands, knees or seat, to any floor but y = 0, and (floating) to one foot in the air while the other
      stands. Foot skate sees no vertical motion.
    - ``foot_skate`` is undefined for a clip without planted feet or of one frame, ``floating`` where the source never
      stands.

    Source: common practice of the field; each paper has its own thresholds, ours are given with `PLANTED_HEIGHT` and
    `PLANTED_SPEED`. Contact is taken from the source and from soles of the mesh instead of joints, so that characters
    with thick shoes or high heels are treated alike.
    """

    def evaluate(self, evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
        """Compute ``foot_skate``, ``ground_penetration`` and ``floating``."""
        values: dict[str, MetricValue] = {}
        source = evaluation.source.character
        if columns & {"foot_skate", "floating"}:
            source_soles = sole_heights(source, *evaluation.source_joints)
        if columns & {"ground_penetration", "floating"}:
            lowest = sole_heights(evaluation.target, *evaluation.target_joints).amin(-1)
        if "foot_skate" in columns:
            feet = list(FOOT_JOINTS)
            rests = planted(source_soles, evaluation.source_positions[:, feet], source.height, evaluation.fps)
            skate, by_frame = foot_skate(evaluation.positions[:, feet], rests, evaluation.fps)
            values["foot_skate"] = MetricValue(float(skate), by_frame)
        if "ground_penetration" in columns:
            depth = ground_penetration(lowest)
            values["ground_penetration"] = MetricValue(float(depth.mean()), depth)
        if "floating" in columns:
            above = floating(lowest, source_soles.amin(-1), source.height)
            values["floating"] = MetricValue(float(above.nanmean()), above)
        return values
