"""Contact error: whether hands that are at the body in the source are at the body in the result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from retargetbench.metrics.base import UNDEFINED, Metric, MetricValue
from retargetbench.sensors import (
    PART_SLICES,
    SENSOR_COUNT,
    Part,
    bone_slice,
    extract_sensors,
    sensor_forward_kinematics,
)

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.metrics.base import Evaluation
    from retargetbench.sensors import Sensors

_HANDS = (bone_slice("LeftHand"), bone_slice("RightHand"))
_TOUCHED: tuple[tuple[Part, ...], ...] = (
    ("torso", "head", "left_leg", "right_leg", "right_arm"),
    ("torso", "head", "left_leg", "right_leg", "left_arm"),
)
_FRAMES_PER_CHUNK = 128


class ContactSums(NamedTuple):
    """Sums over the contact pairs of each frame, all of shape (..., T).

    Attributes:
        pairs: number of contact pairs.
        farther: squared excess of the result over the source, in arm radii.
        either: squared difference in arm radii, whichever is larger.
        farther_by_height: squared excess in percent of the height.
    """

    pairs: torch.Tensor
    farther: torch.Tensor
    either: torch.Tensor
    farther_by_height: torch.Tensor


def _touched_sensors(hand: int) -> torch.Tensor:
    """Sensors that the left (0) or right (1) hand may touch, (240,) int64."""
    everything = torch.arange(SENSOR_COUNT)
    return torch.cat([everything[PART_SLICES[part]] for part in _TOUCHED[hand]])


def hand_distances(positions: torch.Tensor) -> torch.Tensor:
    """Compute distances from the sensors of each hand to all sensors that it may touch.

    Those are the sensors of torso, head, both legs and the other arm with its hand. A pair of both hands' sensors
    stands there twice, once for each hand.

    Args:
        positions: sensor positions, (..., 288, 3) metres.

    Returns:
        (..., 2, 16, 240) metres, left hand first.
    """
    # The default of cdist takes a difference of squares for this many points: touching sensors come out 1 mm apart.
    mode = "donot_use_mm_for_euclid_dist"
    per_hand = [
        torch.cdist(positions[..., hand, :], positions[..., _touched_sensors(k), :], compute_mode=mode)
        for k, hand in enumerate(_HANDS)
    ]
    return torch.stack(per_hand, -3)


def usable_pairs(valid: torch.Tensor) -> torch.Tensor:
    """Find the pairs of `hand_distances` that have both sensors, (2, 16, 240) bool, from validity (288,) bool."""
    return torch.stack([valid[hand][:, None] & valid[_touched_sensors(k)] for k, hand in enumerate(_HANDS)])


def contact_sums(
    source_distances: torch.Tensor,
    target_distances: torch.Tensor,
    usable: torch.Tensor,
    *,
    source_radius: float,
    target_radius: float,
    source_height: float,
    target_height: float,
) -> ContactSums:
    """Compare distances over the contact pairs of each frame.

    A pair is in contact where its source distance is below the source's arm diameter, ``2 · source_radius``.

    Args:
        source_distances: (..., T, 2, 16, 240) metres, see `hand_distances`.
        target_distances: of the retargeted motion, same shape.
        usable: pairs to look at, (2, 16, 240) bool.
        source_radius: radius of the source's arms, metres.
        target_radius: radius of the target's arms, metres.
        source_height: metres.
        target_height: metres.

    Example:
        >>> source, target = torch.full((1, 2, 16, 240), 0.1), torch.full((1, 2, 16, 240), 0.3)
        >>> one = torch.zeros(2, 16, 240, dtype=torch.bool)
        >>> one[0, 0, 0] = True
        >>> sums = contact_sums(source, target, one, source_radius=0.1, target_radius=0.1,
        ...                     source_height=2.0, target_height=2.0)
        >>> [round(float(value), 4) for value in sums]
        [1.0, 4.0, 4.0, 100.0]
    """
    contact = usable & (source_distances < 2 * source_radius)
    excess = target_distances / target_radius - source_distances / source_radius
    by_height = 100 * (target_distances / target_height - source_distances / source_height)

    def total(values: torch.Tensor) -> torch.Tensor:
        return torch.where(contact, values, 0.0).sum((-3, -2, -1))

    return ContactSums(
        pairs=contact.sum((-3, -2, -1)),
        farther=total(excess.clamp_min(0).square()),
        either=total(excess.square()),
        farther_by_height=total(by_height.clamp_min(0).square()),
    )


class ContactError(Metric):
    """Contact error of MeshRet: how much farther from the body a hand is than in the source, in arm radii, squared.

    For a pair (hand sensor i, body sensor j) that is in contact in the source,

        e = (‖d_B‖ / R_B − ‖d_A‖ / R_A)²  where the result is farther, else 0,

    averaged over all contact pairs of all frames. R is the median distance of skin from bone over upper arms and
    forearms; pairs need both sensors on both characters. Unit: squared arm radii, 0 … ∞, lower is better.

    - ``contact_error``: as above. Blind to hands that come too close: pushing a hand *into* the body improves it,
      so read it next to ``contact_error_two_sided`` and ``penetration``.
    - ``contact_error_two_sided``: without the condition, so that too close counts as well.
    - ``contact_error_height``: as the first, with distances over heights and in percent, so that targets with thin
      arms (R is 3 % to 7 % of the height) do not dominate.

    All are blind to hands that touch only in the result, to whether contact is at the palm or the back of the hand
    beyond what the sensors' names say, and undefined where no hand is near the body in the source.

    Source: MeshRet (NeurIPS 2024), eq. 11. The printed condition is the opposite of the paper's text; with it no
    term could exceed 4, while the paper reports means of 4.2, so the text's form is the one that was computed. The
    paper fixes neither R nor the pairs; own arms are left out because they always touch.
    """

    def evaluate(self, evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
        """Compute the wanted columns; `UNDEFINED` where the source has no contact pair."""
        source, target = extract_sensors(evaluation.source.character), extract_sensors(evaluation.target)
        if math.isnan(source.arm_radius) or math.isnan(target.arm_radius):
            return dict.fromkeys(columns, UNDEFINED)
        sums = _sums_of_clip(evaluation, source, target)
        chosen = {
            "contact_error": sums.farther,
            "contact_error_two_sided": sums.either,
            "contact_error_height": sums.farther_by_height,
        }
        if not bool(sums.pairs.any()):
            return dict.fromkeys(columns, UNDEFINED)
        return {
            column: MetricValue(float(chosen[column].sum() / sums.pairs.sum()), chosen[column] / sums.pairs)
            for column in columns
        }


def _sums_of_clip(evaluation: Evaluation, source: Sensors, target: Sensors) -> ContactSums:
    """Sums by frame, (T,) float64; frames are taken in chunks so that memory does not grow with the clip."""
    usable = usable_pairs(source.valid & target.valid)
    chunks = []
    for start in range(0, evaluation.motion.frame_count, _FRAMES_PER_CHUNK):
        frames = slice(start, start + _FRAMES_PER_CHUNK)
        of_source = _distances(source, evaluation.source.character, evaluation.source_joints, frames)
        of_target = _distances(target, evaluation.target, evaluation.target_joints, frames)
        chunks.append(
            contact_sums(
                of_source,
                of_target,
                usable,
                source_radius=source.arm_radius,
                target_radius=target.arm_radius,
                source_height=evaluation.source.character.height,
                target_height=evaluation.target.height,
            )
        )
    return ContactSums(*(torch.cat(parts).double() for parts in zip(*chunks, strict=True)))


def _distances(
    sensors: Sensors, character: Character, joints: tuple[torch.Tensor, torch.Tensor], frames: slice
) -> torch.Tensor:
    """`hand_distances` in some frames of a motion."""
    rotations, positions = joints
    return hand_distances(sensor_forward_kinematics(sensors, character, rotations[frames], positions[frames])[0])
