"""Arms: two-bone inverse kinematics whose wrists and forearms turn no farther than real ones.

Rotations are float64 matrices; ``side`` is 0 for the left arm and 1 for the right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import roma
import torch

from retargetbench.caching import per_character
from retargetbench.datasets.capsule_ik import apply, bone_frame, two_bone
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character

LONGEST_REACH = 0.99
"""Share of the stretched arm that is used at most."""

SHORTEST_REACH = 0.27
"""Share of the stretched arm to which it can be folded: an elbow bends by about 148°."""

_BACK = (0.0, 0.0, -1.0)
_TWIST_DEG, _FLEXION_DEG, _DEVIATION_DEG = 80.0, 75.0, 35.0
_FREE_SHARE = 0.8  # of a limit; beyond, turning gets harder until the limit is reached
_ROUNDS = 3  # of bringing the wrist to where the hand, turned as far as it can, reaches its target


@dataclass(frozen=True, eq=False)
class Arm:
    """What is fixed of an arm.

    Attributes:
        side: 0 or 1.
        sign: of X outward.
        clavicle, shoulder, elbow, hand: canonical joints.
        lengths: of upper arm and forearm, metres.
        rest_hand: position of the wrist in the T-pose, (3,) metres.
    """

    side: int
    sign: float
    clavicle: int
    shoulder: int
    elbow: int
    hand: int
    lengths: tuple[float, float]
    rest_hand: torch.Tensor

    @property
    def length(self) -> float:
        """Length of the stretched arm, metres."""
        return sum(self.lengths)

    @property
    def along(self) -> torch.Tensor:
        """Direction of the arm in the T-pose, (3,)."""
        return torch.tensor([self.sign, 0.0, 0.0], dtype=torch.float64)

    def vector(self, outward_up_forward: tuple[float, float, float]) -> torch.Tensor:
        """Return a direction of an action as x, y, z, (3,)."""
        outward, up, forward = outward_up_forward
        return torch.tensor([self.sign * outward, up, forward], dtype=torch.float64)


@per_character
def arm_of(body: Character, side: int) -> Arm:
    """Return an arm of a body on 22 joints, remembered per body."""
    name = ("Left", "Right")[side]
    clavicle, shoulder, elbow, hand = (canonical_index(name + part) for part in ("Shoulder", "Arm", "ForeArm", "Hand"))
    offsets = body.skeleton.canonical_offsets.double()
    lengths = (float(offsets[elbow].norm()), float(offsets[hand].norm()))
    rest = body.skeleton.rest_positions.double()[body.skeleton.canonical[hand]]
    return Arm(side, (1.0, -1.0)[side], clavicle, shoulder, elbow, hand, lengths, rest)


def reachable(arm: Arm, shoulder: torch.Tensor, wrist: torch.Tensor) -> torch.Tensor:
    """Bring wrists (..., 3) along the straight line to where the arm can reach from the shoulder (..., 3)."""
    way = wrist - shoulder
    distance = way.norm(dim=-1, keepdim=True).clamp_min(1e-9)
    within = distance.clamp(SHORTEST_REACH * arm.length, LONGEST_REACH * arm.length)
    reached: torch.Tensor = shoulder + way * (within / distance)
    return reached


def arm_frames(
    arm: Arm, shoulder: torch.Tensor, wrist: torch.Tensor, pole: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Bend an arm to a wrist within reach, with the forearm turned neither in nor out.

    Returns:
        World rotations of upper arm and forearm, (..., 3, 3).
    """
    upper, lower, hinge = two_bone(shoulder, wrist, arm.lengths, pole)
    # In the T-pose elbows point back, so that forearms bend forward.
    rest = bone_frame(arm.along, torch.linalg.cross(arm.along, arm.along.new_tensor(_BACK)))
    return bone_frame(upper, hinge) @ rest.mT, bone_frame(lower, hinge) @ rest.mT


def elbow_bend(arm: Arm, distance: torch.Tensor) -> torch.Tensor:
    """Return by how much the elbow bends if the wrist is so far from the shoulder (...) metres, (...) radians."""
    first, second = arm.lengths
    cosine: torch.Tensor = (distance**2 - first**2 - second**2) / (2 * first * second)
    return torch.acos(cosine.clamp(-1, 1))


def swung_wrist(arm: Arm, shoulder: torch.Tensor, upper: torch.Tensor, bend: torch.Tensor) -> torch.Tensor:
    """Return where the wrist is when shoulder and elbow are turned so, (T, 3) metres.

    Args:
        arm: which.
        shoulder: position of its shoulder joint, (T, 3) metres.
        upper: world rotation of the upper arm, (T, 3, 3).
        bend: of the elbow, (T,) radians.
    """
    first, second = arm.lengths
    hinge = torch.linalg.cross(arm.along, arm.along.new_tensor(_BACK))
    forearm: torch.Tensor = upper @ roma.rotvec_to_rotmat(-bend[:, None] * hinge)
    return shoulder + first * (upper @ arm.along) + second * (forearm @ arm.along)


def feasible_hand(forearm: torch.Tensor, hand: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn hands only as far as forearm and wrist can.

    Args:
        forearm: world rotation of the forearm turned neither in nor out, (..., 3, 3); the first axis is time, along
            which the twist does not jump.
        hand: wanted world rotation of the hand, (..., 3, 3).

    Returns:
        Twist of the hand about the forearm, (...) radians, and the nearest feasible rotation of the hand, (..., 3, 3).
        Near a limit turning gets harder, so that speeds do not jump there.
    """
    quaternion = roma.rotmat_to_unitquat(forearm.mT @ hand)
    twist = 2 * torch.atan2(quaternion[..., 0], quaternion[..., 3])
    twist = torch.remainder(twist + math.pi, 2 * math.pi) - math.pi
    twist = torch.from_numpy(np.unwrap(twist.numpy(), axis=0))
    # Half a turn is as far inward as outward: what begins near it goes on from the side on which it spends more time.
    mean = twist.mean(0, keepdim=True)
    twist = twist - 2 * math.pi * torch.round(mean / (2 * math.pi))
    wrist = _about_x(-twist) @ forearm.mT @ hand
    bend = roma.rotmat_to_rotvec(wrist)
    limits = bend.new_tensor([180.0, _DEVIATION_DEG, _FLEXION_DEG]).deg2rad()
    possible = _soft_limit(twist, math.radians(_TWIST_DEG))
    return possible, forearm @ _about_x(possible) @ roma.rotvec_to_rotmat(_soft_limit(bend, limits))


@dataclass(frozen=True, eq=False)
class ArmPose:
    """An arm over time.

    Attributes:
        upper: world rotation of the upper arm, (T, 3, 3).
        forearm: of the forearm, which takes half of the hand's twist, (T, 3, 3).
        hand: of the hand, (T, 3, 3).
    """

    upper: torch.Tensor
    forearm: torch.Tensor
    hand: torch.Tensor


def pose_arm(
    arm: Arm,
    shoulder: torch.Tensor,
    control: torch.Tensor,
    offset: torch.Tensor,
    hand: torch.Tensor,
    plane: torch.Tensor,
) -> ArmPose:
    """Bring a point of the hand to where it should be, with the hand turned as wanted as far as it can.

    Args:
        arm: which.
        shoulder: position of its shoulder joint, (T, 3) metres.
        control: where the point should be, (T, 3) metres; it is approached if it is out of reach.
        offset: the point from the wrist in the T-pose, (T, 3) metres.
        hand: wanted world rotation of the hand, (T, 3, 3).
        plane: rotation of an upper arm that bends in the wanted plane, (T, 3, 3). Unlike a direction of the elbow it
            is good for any way of a hand, also past the shoulder.
    """
    hinge = plane @ torch.linalg.cross(arm.along, arm.along.new_tensor(_BACK))
    turned, twist = hand, hand.new_zeros(len(hand))
    for _ in range(_ROUNDS):
        wrist = reachable(arm, shoulder, control - apply(turned, offset))
        _, forearm = arm_frames(arm, shoulder, wrist, torch.linalg.cross(hinge, wrist - shoulder))
        twist, turned = feasible_hand(forearm, hand)
    wrist = reachable(arm, shoulder, control - apply(turned, offset))
    upper, forearm = arm_frames(arm, shoulder, wrist, torch.linalg.cross(hinge, wrist - shoulder))
    return ArmPose(upper, forearm @ _about_x(twist / 2), turned)


def _about_x(angle: torch.Tensor) -> torch.Tensor:
    """Rotations about X by angles (...) in radians, (..., 3, 3)."""
    rotation: torch.Tensor = roma.rotvec_to_rotmat(angle[..., None] * angle.new_tensor([1.0, 0.0, 0.0]))
    return rotation


def _soft_limit(angle: torch.Tensor, limit: torch.Tensor | float) -> torch.Tensor:
    """Leave angles well within a limit as they are and let the others approach it."""
    share = angle.abs() / limit
    rest = 1 - _FREE_SHARE
    beyond = _FREE_SHARE + rest * torch.tanh((share - _FREE_SHARE) / rest)
    return angle.sign() * limit * torch.where(share > _FREE_SHARE, beyond, share)
