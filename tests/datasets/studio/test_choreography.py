"""Performances of actions on a body: contacts, feet, mirror images, timing, reach and variants."""

from __future__ import annotations

import numpy as np
import pytest
import roma
import scipy.interpolate
import torch

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.actions import read_actions
from retargetbench.datasets.studio.arms import feasible_hand
from retargetbench.datasets.studio.choreography import choreograph
from retargetbench.datasets.studio.curves import channel_curve, min_jerk, through_keys
from retargetbench.datasets.studio.fingers import shaped_body
from retargetbench.datasets.studio.places import PLACES, find_place
from retargetbench.datasets.studio.variants import mirrored
from retargetbench.errors import DatasetError
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.skeleton import CANONICAL_JOINTS, canonical_index

ROW = "{family: free, summary: x, seen: true, seconds: 2.0, sway: 0, vary: {tempo: [1, 1], amplitude: [1, 1]}"

LEFT = {name for name in PLACES if name.startswith("left_")}
OTHER_SIDE = {name: name.replace("left", "right", 1) for name in LEFT}
OTHER_SIDE |= {right: left for left, right in OTHER_SIDE.items()}


@pytest.fixture(scope="module")
def body():
    return shaped_body(open_dataset("capsules").character("stout"), "relaxed", "relaxed")


@pytest.fixture(scope="module")
def shipped():
    return {action.name: action for action in read_actions()}


def action(rest):
    (only,) = read_actions({"file.yaml": f"it: {ROW}, {rest}}}"})
    return only


def posed(body, performance):
    skeleton = body.skeleton.to(dtype=torch.float64)
    root = skeleton.rest_positions[0] + performance.hips * body.height
    return forward_kinematics(skeleton, root, performance.rotations)


def skinned(body, performance, name):
    """A place of the skin over time by the platform's own skinning, (T, 3)."""
    point = find_place(body, name)
    bind = body.to(dtype=torch.float64)
    return Skinner.from_points(bind, point.position[None], point.weights[None]).pose(*posed(body, performance))[:, 0]


def joints(body, performance, *names):
    return posed(body, performance)[1][:, [canonical_index(name) for name in names]]


@pytest.mark.parametrize("name", ["hands_on_hips", "clap"])
def test_hands_are_on_what_they_touch_where_contacts_do_not_slide(body, shipped, name):
    performance = choreograph(shipped[name], body)
    assert performance.contacts
    for contact in performance.contacts:
        reached = skinned(body, performance, contact.moving)
        for place, moment in ((contact.first, contact.share == 0), (contact.second, contact.share == 1)):
            apart = (reached - skinned(body, performance, place))[contact.active & moment]
            # the clearance of 0.003 heights, and wrists that arrive a little after the hand
            assert (apart.norm(dim=-1) < 0.003 * body.height + 0.003).all()


def test_a_palm_that_touches_looks_against_the_skin(body, shipped):
    performance = choreograph(shipped["hands_on_hips"], body)
    rotations, _ = posed(body, performance)
    contact = performance.contacts[0]
    frame = int(contact.active.nonzero()[len(contact.active.nonzero()) // 2])
    palm = rotations[frame, canonical_index("LeftHand")] @ find_place(body, contact.moving).normal
    skin = rotations[frame, 0] @ find_place(body, contact.first).normal
    assert float(palm @ skin) < -0.9


def test_planted_feet_stay_where_they_are(body, shipped):
    performance = choreograph(shipped["squat"], body)
    assert all(bool(track.planted.all()) for track in performance.feet)
    feet = joints(body, performance, "LeftFoot", "LeftToeBase", "RightFoot", "RightToeBase")
    assert (feet - feet[:1]).norm(dim=-1).max() < 1e-6
    hips = joints(body, performance, "Hips")[:, 0, 1]
    assert hips.max() - hips.min() > 0.2 * body.height


def test_a_step_rolls_over_the_ball_lifts_the_foot_and_ends_in_its_place(body):
    walk = action("right_foot: [{at: 0.4}, {at: 1.2, forward: 0.25}]")
    performance = choreograph(walk, body)
    track = performance.feet[1]
    toes = joints(body, performance, "RightToeBase")[:, 0]
    heel_off = (torch.arange(61) > 12) & (torch.arange(61) < 15) & track.planted
    assert (toes - toes[0]).norm(dim=-1)[heel_off].max() < 1e-6
    assert roma.unitquat_to_rotvec(track.tilt)[heel_off, 0].max() > 0.01
    assert track.lift.max() > 0.03
    assert not track.planted[24]
    way = toes[-1] - toes[0]
    torch.testing.assert_close(way, toes.new_tensor([0.0, 0.0, 0.25 * body.height]), atol=1e-6, rtol=0)


def test_hips_go_over_the_foot_that_carries(body):
    lifted = action("right_foot: [{at: 0.2}, {at: 0.8, lift: 0.2, forward: 0.1}, {at: 1.4, lift: 0.2, forward: 0.1}]")
    performance = choreograph(lifted, body)
    hips, left = joints(body, performance, "Hips", "LeftFoot")[33].unbind()
    assert abs(float(hips[0] - left[0])) < 0.4 * float(left[0])


@pytest.mark.parametrize("name", ["kick", "belly_rub"])
def test_the_mirrored_action_gives_the_mirror_image(body, shipped, name):
    calm = shipped[name].model_copy(update={"sway": 0.0})
    first, second = choreograph(calm, body), choreograph(mirrored(calm), body)
    other = [
        canonical_index(joint.replace("Left", "Right") if "Left" in joint else joint.replace("Right", "Left"))
        for joint in CANONICAL_JOINTS
    ]
    reflected = posed(body, second)[1][:, other] * torch.tensor([-1.0, 1.0, 1.0])
    # elbows keep clear of sampled skin, which is not quite the same on the left and on the right
    torch.testing.assert_close(posed(body, first)[1], reflected, atol=2e-3, rtol=0)  # the body is not quite symmetric
    swapped = {tuple(OTHER_SIDE.get(name, name) for name in (each.moving, each.first)) for each in second.contacts}
    assert {(each.moving, each.first) for each in first.contacts} == swapped


def test_mirroring_twice_changes_nothing(shipped):
    for each in shipped.values():
        assert mirrored(mirrored(each)) == each


def test_odd_variants_are_mirrored_and_draw_tempo_and_amplitude(body, shipped):
    performances = [choreograph(shipped["wave_right"], body, variant=variant) for variant in range(3)]
    raised = [joints(body, each, "LeftHand", "RightHand")[:, :, 1].amax(0).argmax().item() for each in performances]
    assert raised == [1, 0, 1]
    assert len({len(each.rotations) for each in performances}) > 1


def test_the_same_arguments_give_the_same_numbers_and_other_seeds_others(body, shipped):
    first, again, other = (choreograph(shipped["salute"], body, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.rotations, again.rotations)
    assert torch.equal(first.hips, again.hips)
    assert not torch.equal(first.rotations, other.rotations)


def test_performances_have_an_odd_number_of_frames_and_unit_rotations(body, shipped):
    for variant in (0, 1):
        performance = choreograph(shipped["salute"], body, variant=variant)
        assert len(performance.rotations) % 2 == 1
        assert performance.rotations.dtype == performance.hips.dtype == torch.float64
        torch.testing.assert_close(
            performance.rotations.norm(dim=-1), torch.ones(len(performance.rotations), 22).double()
        )


def test_a_key_that_is_passed_does_not_stop_the_hand(body):
    keys = "right: [{{at: 0.2, pose: hang}}, {{at: 1.0, reach: [0.5, -0.2, 0.6]{}}}, {{at: 1.8, pose: up}}]"
    speeds = []
    for passed in ("", ", through: true"):
        hand = joints(body, choreograph(action(keys.format(passed)), body), "RightHand")[:, 0]
        speeds.append(float((hand[31] - hand[29]).norm() * 15))
    assert speeds[0] < 0.1
    assert speeds[1] > 0.5


def test_what_is_out_of_reach_is_reached_for_with_an_arm_that_is_nearly_straight(body):
    far = choreograph(action("left: [{at: 0.5, reach: [2.0, 1.0, 0.5]}]"), body)
    shoulder, elbow, hand = joints(body, far, "LeftArm", "LeftForeArm", "LeftHand").unbind(1)
    whole = (elbow - shoulder).norm(dim=-1) + (hand - elbow).norm(dim=-1)
    torch.testing.assert_close((hand - shoulder).norm(dim=-1), 0.99 * whole, atol=1e-6, rtol=0)


def test_a_touch_between_other_keys_is_an_instant_and_the_last_one_lasts(body):
    keys = "{at: 0.2, pose: hang}, {at: 1.0, touch: belly}"
    (last,) = choreograph(action(f"left: [{keys}]"), body).contacts
    assert last.active.tolist() == [frame >= 30 for frame in range(61)]
    (instant,) = choreograph(action(f"left: [{keys}, {{at: 1.8, pose: hang}}]"), body).contacts
    assert instant.active.nonzero()[:, 0].tolist() == [29, 30, 31]
    assert not instant.slides


def test_contacts_slide_between_places_one_after_the_other(body, shipped):
    contacts = choreograph(shipped["belly_rub"], body).contacts
    assert [contact.first for contact in contacts[1:]] == [contact.second for contact in contacts[:-1]]
    assert (sum(contact.active.int() for contact in contacts) <= 1).all()
    for contact in contacts:
        share = contact.share[contact.active]
        assert (share.diff() >= 0).all()
        assert share[0] < 0.2  # a place that is passed is not rested on
        assert contact.slides


def test_hands_may_hold_each_other_s_upper_arms_but_not_wait_for_each_other(body):
    hold = "left: [{at: 0.5, touch: right_upper_arm_outer}], right: [{at: 0.5, touch: left_upper_arm_outer}]"
    assert len(choreograph(action(hold), body).contacts) == 2
    both = action("left: [{at: 0.5, touch: right_palm}], right: [{at: 0.5, touch: left_palm}]")
    with pytest.raises(DatasetError, match="one needs a place of its own") as error:
        choreograph(both, body)
    assert "\n" not in str(error.value)


def test_forearms_touch_as_well(body):
    performance = choreograph(action("left: [{at: 0.5, touch: forehead, with: forearm_inner}]"), body)
    apart = skinned(body, performance, "left_forearm_inner") - skinned(body, performance, "forehead")
    assert apart.norm(dim=-1).max() < 0.01 * body.height


def test_a_leg_reaches_the_other_leg(body):
    tap = action("right_foot: [{at: 0.2}, {at: 0.9, lift: 0.1, pitch: 30, touch: left_calf, with: ankle_front}]")
    performance = choreograph(tap, body)
    apart = skinned(body, performance, "right_ankle_front") - skinned(body, performance, "left_calf")
    assert apart[performance.contacts[0].active].norm(dim=-1).max() < 0.006 * body.height


def test_hands_turn_no_farther_than_forearms_and_wrists_do():
    forearm = torch.eye(3, dtype=torch.float64).expand(5, 3, 3)
    axes = torch.eye(3, dtype=torch.float64)
    for axis, limit_deg in ((0, 80), (1, 35), (2, 75)):
        angle = torch.deg2rad(torch.linspace(-170, 170, 5, dtype=torch.float64)[:, None])
        _, hand = feasible_hand(forearm, roma.rotvec_to_rotmat(angle * axes[axis]))
        reached = roma.rotmat_to_rotvec(hand)[:, axis].rad2deg()
        assert reached.abs().max() <= limit_deg
        small = roma.rotvec_to_rotmat(0.1 * angle * axes[axis])
        torch.testing.assert_close(feasible_hand(forearm, small)[1], small)


def test_channels_are_monotone_cubic_between_their_inner_keys():
    keys = [(0.0, 0.0), (0.4, 1.0), (1.0, 5.0), (1.3, 6.0), (2.0, 6.5)]
    time = torch.linspace(0.4, 1.3, 40, dtype=torch.float64)
    reference = scipy.interpolate.PchipInterpolator(*np.array(keys).T)(time.numpy())
    torch.testing.assert_close(channel_curve(keys, time), torch.from_numpy(reference))
    outside = channel_curve(keys, torch.tensor([-1.0, 3.0], dtype=torch.float64))
    assert outside.tolist() == [0.0, 6.5]


def test_a_way_between_two_stops_is_of_minimal_jerk():
    share = torch.linspace(0, 1, 21, dtype=torch.float64)
    moved = through_keys(torch.tensor([[[0.0], [2.0]]]).double().expand(21, 2, 1), [0.0, 1.0], [False, True], share)
    torch.testing.assert_close(moved[:, 0], 2 * (10 * share**3 - 15 * share**4 + 6 * share**5))
    torch.testing.assert_close(moved[:, 0], 2 * min_jerk(share))


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("left: [{at: 0.5, touch: nowhere}]", "place 'nowhere' is not known"),
        ("left: [{at: 0.5, pose: lost}]", "pose 'lost' is not known"),
        ("left: [{at: 0.5}]", "exactly one of pose, reach and touch"),
        ("trunk: {wiggle: [[0, 1]]}", "trunk"),
        ("left: [{at: 5.0, pose: hang}]", "must rise in time and end by 2.0 s"),
    ],
)
def test_what_is_no_action_is_told_in_one_line(rest, message):
    with pytest.raises(DatasetError, match=r"file\.yaml: action it") as error:
        action(rest)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
