"""Ranges of joints: closed forms by hand, both sides alike, gradients that a solver can use."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.spatial.transform import Rotation

from retargetbench.datasets.studio.joint_limits import JOINT_RANGES, limit_excess
from retargetbench.formats.bvh import read_bvh
from retargetbench.motion import Motion
from retargetbench.skeleton import CANONICAL_JOINTS, Skeleton, canonical_index, find_canonical_map
from retargetbench.transfer import to_canonical_motion


def rest(dtype=torch.float64):
    return torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=dtype).repeat(22, 1)


def about(axis, degrees):
    return torch.tensor(Rotation.from_rotvec(degrees * torch.tensor(axis).double().numpy(), degrees=True).as_quat())


def posed(**joints):
    pose = rest()
    for joint, rotation in joints.items():
        pose[canonical_index(joint)] = rotation
    return pose


def excess_deg(pose):
    return dict(zip(CANONICAL_JOINTS, torch.rad2deg(limit_excess(pose)).tolist(), strict=True))


X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def test_the_t_pose_is_within_all_ranges():
    assert limit_excess(rest()).tolist() == [0.0] * 22


@pytest.mark.parametrize(
    ("joint", "axis", "degrees", "beyond"),
    [
        ("LeftForeArm", Y, -145, 0),  # bent: the forearm turns to +Z
        ("LeftForeArm", Y, 20, 10),  # hyperextended, by 10° more than the range and its slack
        ("RightForeArm", Y, -20, 10),
        ("RightForeArm", Y, 145, 0),
        ("LeftForeArm", Y, -160, 10),
        ("LeftForeArm", Z, 30, 10),  # an elbow is a hinge
        ("LeftForeArm", X, 120, 25),
        ("LeftLeg", X, 150, 0),
        ("LeftLeg", X, -30, 20),  # a knee that bends forward
        ("LeftHand", Z, -90, 0),
        ("LeftHand", Z, -100, 10),
        ("LeftHand", Y, -60, 20),
        ("LeftUpLeg", X, -120, 0),  # the thigh comes up in front
        ("LeftUpLeg", X, 60, None),  # and not so far to the back
        ("LeftUpLeg", Z, -70, 20),  # across the other leg
        ("LeftArm", Z, -90, 0),  # hanging
        ("LeftArm", Z, 90, 0),  # straight up
        ("LeftArm", Y, -130, 0),  # across the front
        ("LeftArm", Y, 90, 15),  # straight back
        ("LeftFoot", X, -60, 10),
        ("LeftToeBase", X, 70, 15),
        ("LeftShoulder", Z, 60, 10),
        ("Spine", X, 60, 8),
        ("Spine1", Z, -30, 6),
        ("Spine2", Y, 30, 3),
    ],
)
def test_single_rotations_are_beyond_by_what_one_works_out(joint, axis, degrees, beyond):
    excess = excess_deg(posed(**{joint: about(axis, degrees)}))
    if beyond is None:  # beyond two ranges at once
        beyond = math.hypot(60 - 40, 60 - 50)
    # The forearm's twist is limited together with the hand's, so a lone one counts twice.
    if (joint, axis) == ("LeftForeArm", X):
        assert excess.pop("LeftHand") == pytest.approx(120 - 105)
    assert excess.pop(joint) == pytest.approx(beyond, abs=1e-4)  # an angle near 90° from its sine
    assert set(excess.values()) == {0.0}


def test_both_sides_are_mirror_images():
    generator = torch.Generator().manual_seed(0)
    pose = torch.nn.functional.normalize(torch.randn(50, 22, 4, generator=generator, dtype=torch.float64), dim=-1)
    swap = [
        canonical_index(n.replace("Left", "~").replace("Right", "Left").replace("~", "Right")) for n in CANONICAL_JOINTS
    ]
    mirrored = pose[:, swap] * torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(limit_excess(mirrored), limit_excess(pose)[:, swap])


def test_forearm_and_hand_share_their_twist():
    assert max(excess_deg(posed(LeftForeArm=about(X, 50), LeftHand=about(X, 50))).values()) == 0
    excess = excess_deg(posed(LeftForeArm=about(X, 80), LeftHand=about(X, 65)))
    assert excess["LeftHand"] == pytest.approx(145 - 105)
    assert excess["LeftForeArm"] == 0


def test_neck_and_head_share_their_turn():
    assert max(excess_deg(posed(Neck=about(Y, 40), Head=about(Y, 45))).values()) == 0
    assert excess_deg(posed(Neck=about(Y, 50), Head=about(Y, 60)))["Head"] == pytest.approx(110 - 90)


def test_the_wrist_bends_about_its_own_axes_after_the_twist():
    # Palm turned by 90°, then bent by 85° towards the palm: allowed. About the axes of the forearm it would be a
    # deviation by 85°.
    twist, bend = Rotation.from_rotvec([90, 0, 0], degrees=True), Rotation.from_rotvec([0, 0, -85], degrees=True)
    assert excess_deg(posed(LeftHand=torch.tensor((twist * bend).as_quat())))["LeftHand"] == 0
    assert excess_deg(posed(LeftHand=torch.tensor((bend * twist).as_quat())))["LeftHand"] > 30


def test_an_elbow_is_measured_as_twist_then_swing():
    for twist, flexion in ((60, 100), (-90, 140), (30, 10)):
        rotation = Rotation.from_rotvec([0, -flexion, 0], degrees=True) * Rotation.from_rotvec(
            [twist, 0, 0], degrees=True
        )
        assert excess_deg(posed(LeftForeArm=torch.tensor(rotation.as_quat())))["LeftForeArm"] == 0
    rotation = Rotation.from_rotvec([0, -157, 0], degrees=True) * Rotation.from_rotvec([119, 0, 0], degrees=True)
    expected = math.hypot(157 - 150, 119 - 95)
    assert excess_deg(posed(LeftForeArm=torch.tensor(rotation.as_quat())))["LeftForeArm"] == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_leading_axes_and_signs_of_quaternions_do_not_matter(dtype):
    generator = torch.Generator().manual_seed(1)
    poses = torch.nn.functional.normalize(torch.randn(2, 3, 22, 4, generator=generator, dtype=dtype), dim=-1)
    excess = limit_excess(poses)
    assert excess.shape == (2, 3, 22)
    assert excess.dtype == dtype
    torch.testing.assert_close(limit_excess(-poses), excess)
    # Sums over joints are rounded in another order where a batch is longer.
    torch.testing.assert_close(limit_excess(poses[1, 2]), excess[1, 2])
    assert limit_excess(poses[:0]).shape == (0, 3, 22)


@pytest.mark.parametrize("half_turn_axis", [None, X, Y, Z, (0.6, 0.0, 0.8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_at_the_t_pose_and_at_half_turns(half_turn_axis, dtype):
    pose = rest(dtype) if half_turn_axis is None else about(half_turn_axis, 180).to(dtype).repeat(22, 1)
    pose.requires_grad_()
    limit_excess(pose).square().sum().backward()
    assert bool(torch.isfinite(pose.grad).all())
    assert bool(torch.isfinite(limit_excess(pose)).all())


def test_the_penalty_has_the_gradient_of_finite_differences():
    generator = torch.Generator().manual_seed(2)
    turns = torch.randn(3, 22, 3, generator=generator, dtype=torch.float64)

    def penalty(rotvec):
        half = rotvec / 2
        angle = half.norm(dim=-1, keepdim=True)
        return limit_excess(torch.cat([half * torch.sinc(angle / math.pi), angle.cos()], -1)).square().sum(-1)

    assert torch.autograd.gradcheck(penalty, turns.requires_grad_())


def test_ranges_are_well_formed():
    for row in JOINT_RANGES:
        assert row.low < 0 < row.high, row
        assert row.slack >= 0, row
        assert any(name.endswith(row.joint) for name in CANONICAL_JOINTS), row


@pytest.mark.shared
def test_real_dances_leave_the_ranges_where_the_docstring_says(shared_dir):
    clips = []
    for path in sorted((shared_dir / "data" / "r2et_mixamo" / "demo").glob("*/*.bvh")):
        bvh = read_bvh(path)
        skeleton = Skeleton(bvh.names, bvh.parents, torch.tensor(bvh.offsets) / 100, find_canonical_map(bvh.names))
        whole = Motion(torch.tensor(bvh.root_positions) / 100, torch.tensor(bvh.rotations), 60.0)
        clips.append(to_canonical_motion(skeleton, whole).local_rotations[::2])
    excess = torch.rad2deg(limit_excess(torch.cat(clips)))
    assert len(excess) == 3208
    distal = [
        k for k, name in enumerate(CANONICAL_JOINTS) if name.endswith(("Hand", "Foot", "Leg")) and "Up" not in name
    ]
    rest_of_body = [k for k in range(22) if k not in distal]
    assert float((excess.amax(-1) <= 5).double().mean()) == pytest.approx(0.888, abs=2e-3)
    assert float((excess[:, rest_of_body].amax(-1) <= 5).double().mean()) > 0.99
