"""Shapes of hands: flat, relaxed, fist and point on a hand of 20 joints, and bodies that keep them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import roma
import torch

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.fingers import finger_rotations, shaped_body
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.skeleton import CANONICAL_JOINTS, Skeleton

SHAPES = ("flat", "relaxed", "fist", "point")
FINGERS = ("Index", "Middle", "Ring", "Pinky")

# Roots of the fingers from the wrist of a left hand, azimuths away from the arm's direction, degrees, and lengths.
ROOTS = {
    "Index": ((0.103, -0.008, 0.042), -15.0, (0.036, 0.024, 0.022)),
    "Middle": ((0.106, -0.006, 0.015), -2.0, (0.040, 0.029, 0.024)),
    "Ring": ((0.103, -0.007, -0.006), 8.0, (0.036, 0.027, 0.023)),
    "Pinky": ((0.095, -0.013, -0.026), 16.0, (0.028, 0.018, 0.020)),
}
BENDS = (20.0, 10.0, 8.0)  # at rest, towards the palm
THUMB = ((0.035, -0.005, 0.031), (0.008, -0.020, 0.023), (0.023, -0.018, 0.024), (0.020, -0.016, 0.014))


def finger_offsets(root, azimuth, lengths):
    """Offsets of four joints of a finger that bends in a vertical plane at rest."""
    offsets, bend, turn = [root], 0.0, math.radians(azimuth)
    for length, more in zip(lengths, BENDS, strict=True):
        bend += math.radians(more)
        level = length * math.cos(bend)
        offsets.append((level * math.cos(turn), -length * math.sin(bend), -level * math.sin(turn)))
    return offsets


HAND = {name: finger_offsets(*root) for name, root in ROOTS.items()} | {"Thumb": list(THUMB)}


@pytest.fixture(scope="module")
def character():
    """A capsule body whose hands have fingers; skin that is the hand's alone goes to their nearest joints."""
    bare = open_dataset("capsules").character("average")
    names, parents, offsets = list(bare.skeleton.names), list(bare.skeleton.parents), bare.skeleton.offsets.tolist()
    for side, sign in (("Left", 1), ("Right", -1)):
        for finger, chain in HAND.items():
            above = names.index(f"{side}Hand")
            for k, (x, y, z) in enumerate(chain, 1):
                names.append(f"{side}Hand{finger}{k}")
                parents.append(above)
                offsets.append([sign * x, y, z])
                above = len(names) - 1
    skeleton = Skeleton(tuple(names), tuple(parents), torch.tensor(offsets), bare.skeleton.canonical)
    inverse_bind = torch.eye(4).repeat(len(names), 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    joints = bare.influence_joints.clone()
    for side in ("Left", "Right"):
        alone = bare.weights[:, names.index(f"{side}Hand")] > 0.9999
        nearest = torch.cdist(bare.rest_vertices, skeleton.rest_positions[22:]).argmin(-1) + 22
        joints[alone, :] = nearest[alone, None]
    return replace(bare, skeleton=skeleton, inverse_bind=inverse_bind, influence_joints=joints)


def pose(character, left, right="flat"):
    """World positions by name with the hands in their shapes, seen from the left wrist."""
    skeleton = character.skeleton.to(dtype=torch.float64)
    rotations = finger_rotations(skeleton, left, right)
    _, positions = forward_kinematics(skeleton, skeleton.rest_positions[0], rotations)
    at = dict(zip(skeleton.names, positions, strict=True))
    return {name: position - at["LeftHand"] for name, position in at.items()}


def phalanges(at, finger, side="Left"):
    """Unit directions of the three bones of a finger, (3, 3)."""
    joints = torch.stack([at[f"{side}Hand{finger}{k}"] for k in (1, 2, 3, 4)])
    return torch.nn.functional.normalize(joints.diff(dim=0), dim=-1)


@pytest.mark.parametrize("shape", SHAPES)
def test_only_joints_of_fingers_turn(character, shape):
    rotations = finger_rotations(character.skeleton, shape, shape)
    assert rotations.shape == (character.skeleton.joint_count, 4)
    torch.testing.assert_close(rotations.norm(dim=-1), torch.ones(len(rotations), dtype=torch.float64))
    still = [k for k, name in enumerate(character.skeleton.names) if name in CANONICAL_JOINTS or name.endswith("4")]
    assert torch.equal(rotations[still], torch.tensor([0.0, 0, 0, 1], dtype=torch.float64).expand(len(still), 4))


def test_a_skeleton_without_fingers_stays_at_rest():
    rotations = finger_rotations(open_dataset("capsules").character("child").skeleton, "fist", "point")
    assert torch.equal(rotations, torch.tensor([0.0, 0, 0, 1], dtype=torch.float64).expand(22, 4))


def test_flat_fingers_are_straight_and_level(character):
    at = pose(character, "flat")
    for finger in FINGERS:
        directions = phalanges(at, finger)
        assert directions[:, 1].abs().max() < math.sin(math.radians(10))
        assert (directions[:-1] * directions[1:]).sum(-1).min() > math.cos(math.radians(8))


def test_relaxed_fingers_bend_towards_the_palm_and_farther_at_each_joint(character):
    at = pose(character, "relaxed")
    for finger in FINGERS:
        drops = phalanges(at, finger)[:, 1]
        assert drops[0] < -0.2
        assert (drops.diff() < 0).all()
        assert drops[2] > -0.95  # and still point away from the wrist
        assert at[f"LeftHand{finger}4"][0] > at[f"LeftHand{finger}1"][0]


def test_a_fist_brings_fingertips_back_to_the_palm_and_not_through_it(character):
    at = pose(character, "fist")
    for finger in FINGERS:
        root, tip = at[f"LeftHand{finger}1"], at[f"LeftHand{finger}4"]
        straight = sum(ROOTS[finger][2])
        assert (tip - root).norm() < 0.45 * straight
        assert tip[1] < root[1]  # on the palm's side of the knuckle
        assert at[f"LeftHand{finger}2"][1] < root[1] - 0.02
        # 20° + 10° of the rest and the two bends of the shape
        turned = torch.rad2deg(torch.acos((phalanges(at, finger)[0] * phalanges(at, finger)[1]).sum()))
        assert 90 < float(turned) < 105


@pytest.mark.parametrize("shape", ["fist", "point"])
def test_the_thumb_lies_across_the_middle_bones_of_bent_fingers(character, shape):
    at = pose(character, shape)
    middle = (at["LeftHandMiddle2"] + at["LeftHandMiddle3"]) / 2
    tip, joint = at["LeftHandThumb4"], at["LeftHandThumb3"]
    assert 0.008 < middle[1] - tip[1] < 0.035  # below, by about the thickness of both fingers
    assert at["LeftHandRing2"][2] < tip[2] < at["LeftHandIndex2"][2]
    assert at["LeftHandMiddle3"][0] - 0.01 < tip[0] < at["LeftHandMiddle2"][0] + 0.01
    assert tip[2] < joint[2]  # across the palm


def test_a_pointing_index_is_straight_and_the_others_are_those_of_a_fist(character):
    pointing, closed = pose(character, "point"), pose(character, "fist")
    directions = phalanges(pointing, "Index")
    assert (directions[:-1] * directions[1:]).sum(-1).min() > math.cos(math.radians(8))
    assert directions[0, 0] > 0.98
    for finger in ("Middle", "Ring", "Pinky", "Thumb"):
        torch.testing.assert_close(pointing[f"LeftHand{finger}4"], closed[f"LeftHand{finger}4"])


def test_flat_fingers_are_half_as_far_apart_as_at_rest(character):
    at = pose(character, "flat")

    def azimuth(finger):
        x, _, z = phalanges(at, finger).sum(0).tolist()
        return math.degrees(math.atan2(-z, x))

    for finger, (_, rest, _) in ROOTS.items():
        assert azimuth(finger) - azimuth("Middle") == pytest.approx(0.5 * (rest - ROOTS["Middle"][1]), abs=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_right_hands_mirror_left_ones(character, shape):
    at = pose(character, shape, shape)
    across = at["LeftHand"] - at["RightHand"]
    for finger in HAND:
        left, right = at[f"LeftHand{finger}4"], at[f"RightHand{finger}4"] + across
        torch.testing.assert_close(left, right * torch.tensor([-1.0, 1.0, 1.0]), atol=1e-6, rtol=0)


def test_a_shaped_body_moves_as_the_character_whose_fingers_keep_their_shapes(character):
    body = shaped_body(character, "fist", "relaxed")
    assert body.skeleton.is_canonical()
    generator = torch.Generator().manual_seed(0)
    canonical = roma.rotvec_to_unitquat(0.5 * torch.randn(4, 22, 3, generator=generator))
    full = finger_rotations(character.skeleton, "fist", "relaxed").float().repeat(4, 1, 1)
    full[:, list(character.skeleton.canonical)] = canonical
    root = torch.randn(4, 3, generator=generator)
    # a body stands on its soles: its root at rest may be higher than the character's
    moved = Skinner.from_character(body).pose(*forward_kinematics(body.skeleton, root, canonical))
    expected = Skinner.from_character(character).pose(*forward_kinematics(character.skeleton, root, full))
    torch.testing.assert_close(moved, expected, atol=2e-5, rtol=0)  # float32, chains of seven joints


def test_shaped_bodies_are_remembered(character):
    assert shaped_body(character, "flat", "flat") is shaped_body(character, "flat", "flat")
