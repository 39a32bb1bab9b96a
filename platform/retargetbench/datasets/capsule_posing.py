"""Solves a score of the capsule dataset for one body: trunk from curves, legs and arms by two-bone inverse kinematics.

What a hand touches is a skinned point of the body's own surface with its normal, so the hand follows the surface when
the trunk bends, and the palm stays the same small clearance away on every body.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.datasets.capsule_hands import LeftArm
from retargetbench.datasets.capsule_ik import (
    about,
    apply,
    bone_frame,
    eased,
    segments,
    slerp,
    smoothed,
    smoothstep,
    twist_about_x,
    two_bone,
)
from retargetbench.datasets.capsule_motions import FPS
from retargetbench.kinematics import forward_kinematics, hemisphere_continuous
from retargetbench.motion import Motion
from retargetbench.skeleton import CANONICAL_PARENTS, canonical_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.datasets.capsule_bodies import Body
    from retargetbench.datasets.capsule_hands import HandPose
    from retargetbench.datasets.capsule_motions import Channel, Hand, Score
    from retargetbench.skeleton import Skeleton

_KNEE_DROP = 0.006  # heights by which standing hips are below the T-pose, so that legs are never quite straight
_DECIMALS = 6  # rounding hides the last bits in which machines differ, so that the content hash is the same


def solve(body: Body, score: Score) -> Motion:
    """Solve a score for a body.

    Returns:
        The motion of the 22 canonical joints, float32, at `FPS`. The root follows the one root rule: displacement and
        drop of the hips are the same number of heights on every body.
    """
    skeleton = body.character.skeleton.to(dtype=torch.float64)
    frames = torch.arange(score.frames, dtype=torch.float64)
    feet = {side: _foot_path(score, side, frames) for side in ("Left", "Right")}
    local = _trunk_rotations(score, frames)
    forward = smoothed((feet["Left"][0][:, 2] + feet["Right"][0][:, 2]) / 2, sigma=5.0)
    drop = _curve(score, "hips_y", frames) - _KNEE_DROP
    offset = torch.stack([_curve(score, "hips_x", frames), drop, forward + _curve(score, "hips_z", frames)], -1)
    root = skeleton.offsets[0] + offset * skeleton.height
    for side in ("Left", "Right"):
        _solve_leg(skeleton, root, local, side, *feet[side])
    world, positions = forward_kinematics(skeleton, root, roma.rotmat_to_unitquat(local))
    arm = LeftArm(body)
    for side, keys in (("Left", score.left), ("Right", score.right)):
        _solve_arm(arm, world, positions, local, side, keys, frames)
    rotations = hemisphere_continuous(roma.rotmat_to_unitquat(local))
    return Motion(root.round(decimals=_DECIMALS).float(), rotations.round(decimals=_DECIMALS).float(), FPS)


def _curve(score: Score, channel: Channel, frames: torch.Tensor) -> torch.Tensor:
    """Return a channel of the trunk over time, (T,); zero where the score is silent."""
    return eased(score.trunk[channel], frames) if channel in score.trunk else torch.zeros_like(frames)


def _trunk_rotations(score: Score, frames: torch.Tensor) -> torch.Tensor:
    """Return local rotations with hips, spine, neck and head posed and the limbs at rest, (T, 22, 3, 3)."""
    local = torch.eye(3, dtype=torch.float64).repeat(len(frames), 22, 1, 1)
    local[:, 0] = about("y", _curve(score, "hips_yaw", frames))
    twist, lean, bend = (_curve(score, name, frames) / 3 for name in ("twist", "lean", "bend"))
    turn, nod = (_curve(score, name, frames) / 2 for name in ("turn", "nod"))
    for name in ("Spine", "Spine1", "Spine2"):
        local[:, canonical_index(name)] = about("y", twist) @ about("z", -lean) @ about("x", bend)
    for name in ("Neck", "Head"):
        local[:, canonical_index(name)] = about("y", turn) @ about("x", nod)
    return local


def _foot_path(score: Score, side: str, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a foot's offset from rest (T, 3) in heights and its pitch (T,), toes down, in degrees."""
    height, forward, pitch_deg = (torch.zeros_like(frames) for _ in range(3))
    for step in score.steps:
        if step.foot == side:
            share = ((frames - step.start) / (step.end - step.start)).clamp(0, 1)
            lift = 16 * (share * (1 - share)) ** 2
            height = height + 0.055 * lift
            forward = forward + step.length * smoothstep(share)
            pitch_deg = pitch_deg + 14.0 * lift * (1 - share)
    return torch.stack([torch.zeros_like(frames), height, forward], -1), pitch_deg


def _solve_leg(
    skeleton: Skeleton,
    root: torch.Tensor,
    local: torch.Tensor,
    side: str,
    offset: torch.Tensor,
    pitch_deg: torch.Tensor,
) -> None:
    """Write the leg's local rotations so that the foot is at its offset from rest (T, 3), in heights, and pitched."""
    hip, knee, ankle = (canonical_index(side + name) for name in ("UpLeg", "Leg", "Foot"))
    hips = local[:, 0]
    target = skeleton.rest_positions[ankle] + offset * skeleton.height
    lengths = (float(skeleton.offsets[knee].norm()), float(skeleton.offsets[ankle].norm()))
    down, forward = root.new_tensor([0.0, -1.0, 0.0]), root.new_tensor([0.0, 0.0, 1.0])
    upper, lower, hinge = two_bone(root + hips @ skeleton.offsets[hip], target, lengths, forward)
    rest = bone_frame(down, torch.linalg.cross(down, forward))
    thigh, shin = bone_frame(upper, hinge) @ rest.mT, bone_frame(lower, hinge) @ rest.mT
    local[:, hip] = hips.mT @ thigh
    local[:, knee] = thigh.mT @ shin
    local[:, ankle] = shin.mT @ about("x", pitch_deg)


def _solve_arm(
    arm: LeftArm,
    world: torch.Tensor,
    positions: torch.Tensor,
    local: torch.Tensor,
    side: str,
    keys: Sequence[Hand],
    frames: torch.Tensor,
) -> None:
    """Write the arm's local rotations so that the hand follows its keys."""
    poses = [arm.pose(key) if side == "Left" else arm.pose(key).mirrored() for key in keys]
    wrist, hand, pole = _follow(arm.body, poses, keys, world, positions, frames)
    shoulder, elbow, end = (canonical_index(side + name) for name in ("Arm", "ForeArm", "Hand"))
    upper, lower, hinge = two_bone(positions[:, shoulder], wrist, arm.lengths, pole)
    # In the T-pose elbows point back, so that forearms bend forward.
    along, back = wrist.new_tensor([1.0 if side == "Left" else -1.0, 0.0, 0.0]), wrist.new_tensor([0.0, 0.0, -1.0])
    rest = bone_frame(along, torch.linalg.cross(along, back))
    upper_rotation, lower_rotation = bone_frame(upper, hinge) @ rest.mT, bone_frame(lower, hinge) @ rest.mT
    # Half of the hand's twist is given to the forearm, as in a real arm.
    lower_rotation = lower_rotation @ about("x", twist_about_x(lower_rotation.mT @ hand) / 2)
    local[:, shoulder] = world[:, CANONICAL_PARENTS[shoulder]].mT @ upper_rotation
    local[:, elbow] = upper_rotation.mT @ lower_rotation
    local[:, end] = lower_rotation.mT @ hand


def _follow(
    body: Body,
    poses: Sequence[HandPose],
    keys: Sequence[Hand],
    world: torch.Tensor,
    positions: torch.Tensor,
    frames: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Carry key poses along with the posed body and blend them over time.

    Returns:
        Wrist (T, 3), rotation of the hand (T, 3, 3) and direction of the elbow (T, 3).
    """
    weights = torch.stack([pose.weights for pose in poses])
    blend = torch.einsum("kj,tjab->tkab", weights, world)
    shift = torch.einsum("kj,tja->tka", weights, positions - apply(world, torch.from_numpy(body.joints)))
    turn = roma.special_procrustes(blend)
    # The anchor is skinned like the surface; the wrist is held to it rigidly.
    anchor = torch.stack([pose.anchor for pose in poses])
    lever = torch.stack([pose.wrist for pose in poses]) - anchor
    wrist = apply(blend, anchor) + shift + apply(turn, lever)
    approach = apply(turn, torch.stack([pose.approach for pose in poses]))
    hand = roma.rotmat_to_unitquat(turn @ torch.stack([pose.rotation for pose in poses]))
    pole = apply(world[:, [canonical_index("Spine2")]], torch.stack([pose.pole for pose in poses]))

    before, share = segments(torch.tensor([key.frame for key in keys], dtype=torch.float64), frames)
    row = torch.arange(len(frames))
    here, there = (row, before), (row, before + 1)
    u = smoothstep(share)[:, None]
    # A cubic Bézier curve, straight between keys that touch the same, so that a hold stays on the surface.
    moving = torch.tensor([a.touch != b.touch for a, b in itertools.pairwise(keys)])[before, None]
    bulge = 3 * u * (1 - u) * ((1 - u) * approach[here] + u * approach[there]) * moving
    path = (1 - u) ** 2 * (1 + 2 * u) * wrist[here] + u**2 * (3 - 2 * u) * wrist[there] + bulge
    rotation = roma.unitquat_to_rotmat(slerp(hand[here], hand[there], u))
    return path, rotation, torch.lerp(pole[here], pole[there], u)
