"""Arms of a clip as the solver changes them: by wrist, hand and elbow, so that an elbow can move alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.skeleton import Skeleton

ARM_JOINTS: tuple[tuple[int, int, int, int], ...] = tuple(
    (canonical_index(f"{side}Shoulder"), canonical_index(f"{side}Arm"), canonical_index(f"{side}ForeArm"),
     canonical_index(f"{side}Hand"))
    for side in ("Left", "Right")
)  # fmt: skip
"""Clavicle, shoulder, elbow and wrist joint of the left and the right arm."""

ARM_UNKNOWNS = 7
"""Way of the wrist in `ARM_LENGTH` (3), rotation vector of the hand (3) and swivel of the elbow (1)."""

ARM_LENGTH = 0.35
"""Length of an arm in heights, so that a unit of the wrist's way is about a radian of its arm."""

_CHEST = canonical_index("Spine2")
_LONGEST_REACH = 0.998
_HINGE_OF_BONE = 0.03  # how much of the hinge comes from the upper arm's own rotation, where the arm is nearly straight


class ArmPoser:
    """One arm of a clip in the frame of the chest, T frames.

    With unknowns of zero it gives back the arm it was made from.
    """

    def __init__(self, skeleton: Skeleton, side: int, rotations: torch.Tensor, positions: torch.Tensor) -> None:
        """Take an arm from a posed clip.

        Args:
            skeleton: of the 22 joints.
            side: 0 for the left arm, 1 for the right.
            rotations: world rotations of the clip, (T, 22, 3, 3).
            positions: world positions, (T, 22, 3) metres.
        """
        self._side = side
        clavicle, shoulder, elbow, wrist = ARM_JOINTS[side]
        chest = rotations[:, _CHEST].mT
        self._clavicle, self._bone = (skeleton.offsets.to(positions)[j] for j in (clavicle, shoulder))
        self._upper, self._lower, self._hand = (chest @ rotations[:, j] for j in (shoulder, elbow, wrist))
        self._wrist = _apply(chest, positions[:, wrist] - positions[:, _CHEST])
        self._lengths = tuple(float(skeleton.offsets[j].norm()) for j in (elbow, wrist))
        upper = _apply(chest, positions[:, elbow] - positions[:, shoulder]) / self._lengths[0]
        lower = _apply(chest, positions[:, wrist] - positions[:, elbow]) / self._lengths[1]
        at_rest = positions.new_tensor([0.0, -1.0 if side == 0 else 1.0, 0.0])
        self._hinge = torch.linalg.cross(upper, lower) + _HINGE_OF_BONE * (self._upper @ at_rest)
        self._upper_frame = _frame(upper, self._hinge)
        self._lower_frame = _frame(lower, self._hinge)

    def pose(
        self, clavicle: torch.Tensor, unknowns: torch.Tensor, height: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pose the arm.

        Args:
            clavicle: local rotation of the clavicle, (..., T, 3, 3).
            unknowns: (..., T, 7), see `ARM_UNKNOWNS`; the hand turns in its own frame, and its forearm with half of
                what the hand turns about itself.
            height: of the body, metres.

        Returns:
            Local rotations of shoulder, elbow and wrist joint, each (..., T, 3, 3). A wrist out of reach is approached.
        """
        shoulder = self._clavicle.to(unknowns) + (clavicle @ self._bone.to(unknowns)[:, None])[..., 0]
        axis = self._wrist.to(unknowns) + unknowns[..., :3] * (ARM_LENGTH * height) - shoulder
        distance = axis.norm(dim=-1, keepdim=True)
        axis = axis / distance
        first, second = self._lengths
        reach = distance.clamp(abs(first - second) + 0.02 * first, _LONGEST_REACH * (first + second))
        along = (first**2 - second**2 + reach**2) / (2 * reach)
        aside = (first**2 - along**2).clamp_min(1e-12).sqrt()
        hinge = self._hinge.to(unknowns)
        hinge = torch.nn.functional.normalize(hinge - (hinge * axis).sum(-1, keepdim=True) * axis, dim=-1)
        swivel = unknowns[..., 6:]
        hinge = swivel.cos() * hinge + swivel.sin() * torch.linalg.cross(axis, hinge)
        bend = torch.linalg.cross(axis, hinge)
        upper = _frame((along * axis + aside * bend) / first, hinge)
        lower = _frame((reach * axis - along * axis - aside * bend) / second, hinge)
        upper = upper @ self._upper_frame.to(unknowns).mT @ self._upper.to(unknowns)
        lower = lower @ self._lower_frame.to(unknowns).mT @ self._lower.to(unknowns)
        turn = unknowns[..., 3:6]
        half = turn * turn.new_tensor([0.5, 0.0, 0.0])
        lower = lower @ roma.rotvec_to_rotmat(half)
        hand = self._hand.to(unknowns) @ roma.rotvec_to_rotmat(turn)
        return clavicle.mT @ upper, upper.mT @ lower, lower.mT @ hand


def _apply(rotation: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return (rotation @ vector[..., None])[..., 0]


def _frame(along: torch.Tensor, hinge: torch.Tensor) -> torch.Tensor:
    """Frame of a bone as columns: along it, the hinge made perpendicular to it, and their cross product."""
    along = torch.nn.functional.normalize(along, dim=-1)
    hinge = torch.nn.functional.normalize(hinge - (hinge * along).sum(-1, keepdim=True) * along, dim=-1)
    return torch.stack([along, hinge, torch.linalg.cross(along, hinge)], -1)
