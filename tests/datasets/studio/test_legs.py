"""Legs solved for the tracks of their feet: ankles, rolling, reach, mirror images and gradients."""

from __future__ import annotations

import pytest
import roma
import torch

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.legs import LEG_JOINTS, LONGEST_REACH, ankle_path, foot_pivots, pose_leg, pose_legs
from retargetbench.datasets.studio.performance import FootTrack
from retargetbench.kinematics import Skinner, forward_kinematics

ACROSS = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
FRAMES = 9


@pytest.fixture(scope="module", params=["stout", "child"])
def body(request):
    return open_dataset("capsules").character(request.param).to(dtype=torch.float64)


def track(frames=FRAMES, *, pitch=0.0, **changes):
    """A foot that stands at its place at rest, pitched forward by some radians with its toes level."""
    pitch = torch.as_tensor(pitch, dtype=torch.float64).expand(frames)
    zero = torch.zeros(frames, dtype=torch.float64)
    fields = {
        "place": torch.zeros(frames, 2, dtype=torch.float64),
        "lift": zero,
        "yaw": zero,
        "tilt": roma.rotvec_to_unitquat(pitch[:, None] * ACROSS),
        "toes": -pitch,
        "knee": torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(frames, 3),
        "planted": torch.ones(frames, dtype=torch.bool),
    }
    return FootTrack(**{**fields, **changes})


def stand(body, *, frames=FRAMES, sink=0.05):
    """Level hips that sink below their height at rest by a share of the height: (T, 3, 3) and (T, 3)."""
    position = body.skeleton.rest_positions[0] - sink * body.height * torch.tensor([0.0, 1, 0], dtype=torch.float64)
    return torch.eye(3, dtype=torch.float64).expand(frames, 3, 3), position.expand(frames, 3)


def solved(body, hips_rotation, hips_position, feet):
    """World rotations and positions of all joints with both legs solved."""
    rotations, _ = pose_legs(body, hips_rotation, hips_position, feet)
    local = torch.eye(3, dtype=torch.float64).repeat(len(rotations), 22, 1, 1)
    local[:, 0] = hips_rotation
    local[:, [joint for leg in LEG_JOINTS for joint in leg]] = rotations
    return forward_kinematics(body.skeleton, hips_position, roma.rotmat_to_unitquat(local))


def wandering(seed):
    generator = torch.Generator().manual_seed(seed)

    def some(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5

    tilt = roma.rotvec_to_unitquat(torch.stack([some(FRAMES), 0 * some(FRAMES), 0.3 * some(FRAMES)], -1))
    return track(place=0.1 * some(FRAMES, 2), lift=0.05 * some(FRAMES).abs(), yaw=some(FRAMES), tilt=tilt)


def test_ankles_and_feet_are_where_the_tracks_say(body):
    feet = (wandering(0), wandering(1))
    turned = roma.rotvec_to_rotmat(torch.tensor([0.1, 0.3, -0.1], dtype=torch.float64)).expand(FRAMES, 3, 3)
    rotations, positions = solved(body, turned, stand(body, sink=0.12)[1], feet)
    for side, foot in enumerate(feet):
        ankle, world = ankle_path(body, side, foot, body.height)
        torch.testing.assert_close(positions[:, LEG_JOINTS[side][2]], ankle, atol=1e-6, rtol=0)
        torch.testing.assert_close(rotations[:, LEG_JOINTS[side][2]], world, atol=1e-9, rtol=0)


def test_a_flat_foot_at_its_place_is_that_of_the_t_pose(body):
    ankle, foot = ankle_path(body, 0, track(), body.height)
    torch.testing.assert_close(ankle, body.skeleton.rest_positions[LEG_JOINTS[0][2]].expand(FRAMES, 3))
    torch.testing.assert_close(foot, torch.eye(3, dtype=torch.float64).expand(FRAMES, 3, 3))


def test_the_path_of_the_ankle_is_the_formula_of_foot_track(body):
    foot = wandering(2)
    ankle, _ = ankle_path(body, 1, foot, body.height)
    pivots = foot_pivots(body, 1)
    for t in range(FRAMES):
        tilt = roma.unitquat_to_rotmat(foot.tilt[t])
        pivot = pivots.ball if (tilt @ torch.tensor([0.0, 0, 1], dtype=torch.float64))[1] < 0 else pivots.heel
        cosine, sine = foot.yaw[t].cos(), foot.yaw[t].sin()
        rolled = pivot - tilt @ pivot
        turned = torch.stack([cosine * rolled[0] + sine * rolled[2], rolled[1], cosine * rolled[2] - sine * rolled[0]])
        move = body.height * torch.stack([foot.place[t, 0], foot.lift[t], foot.place[t, 1]])
        torch.testing.assert_close(ankle[t], body.skeleton.rest_positions[LEG_JOINTS[1][2]] + move + turned)


@pytest.mark.parametrize("side", [0, 1])
def test_toes_do_not_move_while_the_foot_rolls_over_its_ball(body, side):
    foot = track(pitch=torch.linspace(0, 0.9, FRAMES), yaw=torch.full((FRAMES,), 0.4, dtype=torch.float64))
    feet = (foot, track()) if side == 0 else (track(), foot)
    skin = (body.canonical_weights[:, LEG_JOINTS[side][3]] > 0.999).nonzero()[:, 0]
    assert len(skin) > 5
    posed = Skinner.from_character(body, skin).pose(*solved(body, *stand(body, sink=0.1), feet))
    assert (posed - posed[0]).norm(dim=-1).max() < 1e-3 * body.height  # skin of other joints has up to 0.1 % of weight


@pytest.mark.parametrize("side", [0, 1])
def test_the_heel_stands_still_while_the_foot_rolls_over_it(body, side):
    foot = track(pitch=torch.linspace(0, -0.5, FRAMES))
    feet = (foot, track()) if side == 0 else (track(), foot)
    rotations, positions = solved(body, *stand(body, sink=0.1), feet)
    joint = LEG_JOINTS[side][2]
    heel = positions[:, joint] + (rotations[:, joint] @ foot_pivots(body, side).heel[:, None])[..., 0]
    assert (heel - heel[0]).norm(dim=-1).max() < 1e-6
    assert heel[0, 1].abs() < 1e-6  # on the floor
    skin = (body.canonical_weights[:, joint] > 0.999).nonzero()[:, 0]
    posed = Skinner.from_character(body, skin).pose(rotations, positions)
    behind = posed[0, :, 2].argsort()[:3]
    lowest = posed[..., 1].min(-1).values
    assert lowest.min() > -0.02 * body.height  # round heels dip a little below the sharp edge they are taken for
    assert (posed[:, behind] - posed[0, behind]).norm(dim=-1).max() < 0.04 * body.height


def test_a_foot_stays_in_place_where_forward_and_backward_pitch_meet(body):
    tiny = torch.tensor([-1e-6, 0.0, 1e-6], dtype=torch.float64)
    ankle, _ = ankle_path(body, 0, track(3, pitch=tiny), body.height)
    assert (ankle - ankle[1]).norm(dim=-1).max() < 1e-6


@pytest.mark.parametrize("side", [0, 1])
def test_a_leg_out_of_reach_is_stretched_towards_its_ankle_and_says_how_short_it_is(body, side):
    hip, shin, end, _ = LEG_JOINTS[side]
    offsets = body.skeleton.offsets
    length = float(offsets[shin].norm() + offsets[end].norm())
    excess = 0.07
    direction = torch.nn.functional.normalize(torch.tensor([0.2, -1.0, 0.3], dtype=torch.float64), dim=0)
    start = body.skeleton.rest_positions[0] + offsets[hip]
    wanted = start + (length + excess) * direction
    forward = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    thigh, knee, ankle, short = pose_leg(body, side, eye, body.skeleton.rest_positions[0], wanted, eye, forward)
    assert float(short) == pytest.approx(excess + (1 - LONGEST_REACH) * length, abs=1e-9)
    reached = start + thigh @ (offsets[shin] + knee @ offsets[end])
    torch.testing.assert_close(reached, start + LONGEST_REACH * length * direction, atol=1e-6, rtol=0)
    torch.testing.assert_close(thigh @ knee @ ankle, eye, atol=1e-9, rtol=0)


def test_a_leg_within_reach_is_not_short(body):
    _, short = pose_legs(body, *stand(body), (track(), track()))
    assert torch.equal(short, torch.zeros_like(short))


def test_the_angle_of_the_knee_is_that_of_the_law_of_cosines(body):
    _, positions = solved(body, *stand(body, sink=0.1), (track(), track()))
    hip, knee, ankle, _ = LEG_JOINTS[0]
    first, second = positions[0, knee] - positions[0, hip], positions[0, ankle] - positions[0, knee]
    distance = (positions[0, ankle] - positions[0, hip]).norm()
    cosine = (distance**2 - first.norm() ** 2 - second.norm() ** 2) / (2 * first.norm() * second.norm())
    torch.testing.assert_close((first @ second) / (first.norm() * second.norm()), cosine)
    assert positions[0, knee, 2] > positions[0, [hip, ankle], 2].max()  # knees bend forward


def test_mirrored_tracks_give_mirrored_legs():
    body = open_dataset("capsules").character("average").to(dtype=torch.float64)
    flip = torch.diag(torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64))
    feet = (wandering(3), wandering(4))

    def mirrored(foot):
        return FootTrack(
            place=foot.place * torch.tensor([-1.0, 1.0]),
            lift=foot.lift,
            yaw=-foot.yaw,
            tilt=roma.rotmat_to_unitquat(flip @ roma.unitquat_to_rotmat(foot.tilt) @ flip),
            toes=foot.toes,
            knee=foot.knee @ flip,
            planted=foot.planted,
        )

    turn = roma.rotvec_to_rotmat(torch.tensor([0.1, 0.2, 0.1], dtype=torch.float64)).expand(FRAMES, 3, 3)
    _, position = stand(body, sink=0.1)
    own, short = pose_legs(body, turn, position, feet)
    other, other_short = pose_legs(body, flip @ turn @ flip, position @ flip, (mirrored(feet[1]), mirrored(feet[0])))
    torch.testing.assert_close(other[:, 4:], flip @ own[:, :4] @ flip, atol=1e-6, rtol=0)  # float32 rest positions
    torch.testing.assert_close(other[:, :4], flip @ own[:, 4:] @ flip, atol=1e-6, rtol=0)
    torch.testing.assert_close(other_short, short.flip(-1), atol=1e-6, rtol=0)


def test_gradients_of_a_solved_leg_are_those_of_finite_differences(body):
    eye = torch.eye(3, dtype=torch.float64)
    ankle = body.skeleton.rest_positions[LEG_JOINTS[0][2]].clone() + torch.tensor([0.02, 0.1, 0.05])
    knee = torch.tensor([0.1, 0.1, 1.0], dtype=torch.float64)
    inputs = [x.clone().requires_grad_() for x in (body.skeleton.rest_positions[0], ankle, knee)]
    assert torch.autograd.gradcheck(
        lambda hips, ankle, knee: pose_leg(body, 0, eye, hips, ankle, eye, knee), inputs, eps=1e-7, atol=1e-5
    )


@pytest.mark.parametrize("drop", [0.0, 0.5, 5.0])
def test_gradients_are_finite_where_a_leg_is_stretched_or_out_of_reach(body, drop):
    eye = torch.eye(3, dtype=torch.float64)
    ankle = (body.skeleton.rest_positions[LEG_JOINTS[0][2]] - drop * torch.tensor([0.0, 1, 0])).requires_grad_()
    *rotations, short = pose_leg(body, 0, eye, body.skeleton.rest_positions[0], ankle, eye, eye[2])
    (gradient,) = torch.autograd.grad(sum(rotation.sum() for rotation in rotations) + short, ankle)
    assert torch.isfinite(gradient).all()
