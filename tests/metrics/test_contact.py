"""The contact error against numbers worked out by hand and a loop over pairs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import roma
import torch
from rigs import human_skeleton, random_motion
from sensor_rigs import arm_parts, deformed, figure, reordered, scaled, tube, tube_figure
from torch.nn.functional import pad

from retargetbench.clip import Clip
from retargetbench.metrics import BUILTIN_METRICS
from retargetbench.metrics.base import Evaluation
from retargetbench.metrics.contact import ContactError, contact_sums, hand_distances, usable_pairs
from retargetbench.motion import Motion
from retargetbench.sensors import BONES, SENSOR_NAMES, extract_sensors, sensor_forward_kinematics
from retargetbench.skeleton import Skeleton

COLUMNS = frozenset({"contact_error", "contact_error_two_sided", "contact_error_height"})
ARM_RADIUS = 0.05


def two_hands(forearm: float, dtype: torch.dtype = torch.float64, palms: tuple[str, ...] = ("Left", "Right")):
    """Two arms whose palms are one small patch each, 2 cm in front of the wrist: a single sensor per hand.

    The middle finger's root puts the hand's other sensors beyond the patch, and the forearm's tube stops before the
    wrist, so that no other ray of the hand meets anything.
    """
    base = human_skeleton()
    names = (*base.names, "LeftHandMiddle1", "RightHandMiddle1")
    parents = (*base.parents, base.names.index("LeftHand"), base.names.index("RightHand"))
    offsets = pad(base.offsets, (0, 0, 0, 2))
    for side, sign, finger in (("Left", 1.0, -2), ("Right", -1.0, -1)):
        offsets[names.index(side + "Hand"), 0] = sign * forearm
        offsets[finger, 0] = sign * 0.1
    skeleton = Skeleton(names, parents, offsets, base.canonical)
    parts = arm_parts(radius=ARM_RADIUS, end=0.45 + forearm - 0.005, forearm=forearm)
    for side in palms:
        wrist = (1 if side == "Left" else -1) * (0.45 + forearm)
        patch = np.array([[wrist + x, 1.44 + y, 0.02] for x, y in ((-0.01, -0.01), (0.01, -0.01), (0.0, 0.02))])
        parts.append((patch, np.array([[0, 1, 2]]), [side + "Hand"] * 3))
    return figure(parts, skeleton, name=f"forearm {forearm}", dtype=dtype)


def hands_together(skeleton: Skeleton, frames: int = 1, apart: tuple[int, ...] = ()) -> Motion:
    """Upper arms straight ahead and forearms toward each other; in the frames ``apart`` both are stretched out."""
    rotations = skeleton.offsets.new_zeros(frames, skeleton.joint_count, 4)
    rotations[..., 3] = 1
    quarter = math.sqrt(0.5)
    for side, sign in (("Left", -1.0), ("Right", 1.0)):
        for joint in ("Arm", "ForeArm"):
            for frame in sorted(set(range(frames)) - set(apart)):
                turn = skeleton.offsets.new_tensor([0, sign * quarter, 0, quarter])
                rotations[frame, skeleton.names.index(side + joint)] = turn
    return Motion(skeleton.offsets.new_tensor([0.0, 1.0, 0.0]).repeat(frames, 1), rotations, 30.0)


def evaluate(source, target, motion, target_motion=None) -> dict:
    evaluation = Evaluation(Clip("clip", source, motion), target, motion if target_motion is None else target_motion)
    return ContactError().evaluate(evaluation, COLUMNS)


def test_the_columns_are_those_that_are_registered():
    (info,) = (info for info in BUILTIN_METRICS if info.name == "contact")
    assert {column.name for column in info.columns} == COLUMNS


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_hands_that_end_4_cm_too_far_apart_give_the_number_worked_out_by_hand(device, dtype, tolerance):
    # The shoulders are 34 cm apart, so the palms come within 34 − 2 · 13 = 8 cm in the source and within
    # 34 − 2 · 11 = 12 cm in the result. In radii of the 5 cm arm that is 1.6 and 2.4: an error of 0.8² = 0.64.
    source, target = two_hands(0.13, dtype).to(device), two_hands(0.11, dtype).to(device)
    values = evaluate(source, target, hands_together(source.skeleton))
    assert values["contact_error"].value == pytest.approx(0.64, rel=tolerance)
    assert values["contact_error_two_sided"].value == pytest.approx(0.64, rel=tolerance)
    by_height = (100 * 0.04 / source.height) ** 2
    assert values["contact_error_height"].value == pytest.approx(by_height, rel=tolerance)


def test_hands_that_come_too_close_count_only_in_the_two_sided_form():
    source, target = two_hands(0.13), two_hands(0.15)  # 8 cm apart in the source, 4 cm in the result
    values = evaluate(source, target, hands_together(source.skeleton))
    assert values["contact_error"].value == 0
    assert values["contact_error_height"].value == 0
    assert values["contact_error_two_sided"].value == pytest.approx(0.64, rel=1e-9)


def test_the_error_grows_with_the_distance():
    source = two_hands(0.13)
    motion = hands_together(source.skeleton)
    errors = [evaluate(source, two_hands(f), motion)["contact_error"].value for f in (0.13, 0.125, 0.12, 0.1, 0.08)]
    assert errors[0] == 0
    assert all(low < high for low, high in itertools.pairwise(errors))


def test_frames_are_pooled_by_pair_and_frames_without_contact_are_left_out():
    source, target = two_hands(0.13), two_hands(0.11)
    motion = hands_together(source.skeleton, 300, apart=(1, 200))
    value = evaluate(source, target, motion)["contact_error"]
    assert value.value == pytest.approx(0.64, rel=1e-9)
    assert value.per_frame.shape == (300,)
    assert torch.isnan(value.per_frame).nonzero()[:, 0].tolist() == [1, 200]
    assert value.per_frame[[0, 299]].tolist() == pytest.approx([0.64, 0.64], rel=1e-9)


def test_a_source_without_contact_has_no_error():
    source = two_hands(0.13)
    values = evaluate(source, two_hands(0.11), hands_together(source.skeleton, 2, apart=(0, 1)))
    assert not any(value.is_defined for value in values.values())


def test_pairs_that_the_target_lacks_are_left_out():
    source, target = two_hands(0.13), two_hands(0.11, palms=("Left",))
    values = evaluate(source, target, hands_together(source.skeleton))
    assert not any(value.is_defined for value in values.values())


def test_a_character_without_arms_has_no_error():
    trunk, faces = tube(1, (0.85, 1.55), (0, 0, 0), 0.13)
    armless = figure([(trunk, faces, ["Spine"] * len(trunk))])
    values = evaluate(tube_figure(), armless, random_motion(armless.skeleton, 2))
    assert not any(value.is_defined for value in values.values())


def crossed_arms(skeleton: Skeleton, *, seed: int) -> Motion:
    """Forearms crossed in front of the chest, and everything shaken a little."""
    folded, shaken = hands_together(skeleton, 4), random_motion(skeleton, 4, seed=seed, spread=0.3)
    return Motion(
        shaken.root_translation, roma.quat_product(folded.local_rotations, shaken.local_rotations), folded.fps
    )


def bodies():
    """Two whole bodies and a motion in which the source's hands touch its arms."""
    source = deformed(tube_figure(arm_radius=0.06, name="source"))
    target = deformed(scaled(tube_figure(arm_radius=0.04, name="target"), 1.2))
    return source, target, crossed_arms(source.skeleton, seed=5)


def test_the_same_character_and_motion_give_exactly_zero():
    source, _, motion = bodies()
    assert {value.value for value in evaluate(source, source, motion).values()} == {0.0}


def slow_contact_error(source, target, motion, target_motion) -> dict[str, float]:
    """All pairs one by one, by the names of their bones."""
    points, lengths, valid, heights = [], [], [], []
    for character, moving in ((source, motion), (target, target_motion)):
        sensors = extract_sensors(character)
        evaluation = Evaluation(Clip("clip", character, moving), character, moving)
        points.append(sensor_forward_kinematics(sensors, character, *evaluation.source_joints)[0].numpy())
        valid.append(sensors.valid.numpy())
        on_arm = [BONES[name.bone].name.removeprefix("Left").removeprefix("Right") for name in SENSOR_NAMES]
        on_arm = np.isin(on_arm, ["Arm", "ForeArm"]) & sensors.valid.numpy()
        lengths.append(np.median(sensors.radius.numpy()[on_arm]))
        heights.append(character.height)
    terms = {column: [] for column in COLUMNS}
    for t in range(len(points[0])):
        for i, hand in enumerate(SENSOR_NAMES):
            if not BONES[hand.bone].name.endswith("Hand"):
                continue
            for j, body in enumerate(SENSOR_NAMES):
                if BONES[body.bone].part == BONES[hand.bone].part or not (valid[0] & valid[1])[[i, j]].all():
                    continue
                a, b = (np.linalg.norm(p[t, i] - p[t, j]) for p in points)
                if a < 2 * lengths[0]:
                    more = b / lengths[1] - a / lengths[0]
                    taller = 100 * (b / heights[1] - a / heights[0])
                    terms["contact_error"].append(max(more, 0) ** 2)
                    terms["contact_error_two_sided"].append(more**2)
                    terms["contact_error_height"].append(max(taller, 0) ** 2)
    assert len(terms["contact_error"]) > 20
    return {column: float(np.mean(values)) for column, values in terms.items()}


def test_whole_bodies_agree_with_a_loop_over_pairs():
    source, target, motion = bodies()
    other = crossed_arms(source.skeleton, seed=6)
    values = evaluate(source, target, motion, other)
    for column, expected in slow_contact_error(source, target, motion, other).items():
        assert values[column].value == pytest.approx(expected, rel=1e-9), column


def test_the_order_of_vertices_does_not_matter():
    source, target, motion = bodies()
    plain = evaluate(source, target, motion)
    shuffled = evaluate(reordered(source), reordered(target, seed=1), motion)
    for column in COLUMNS:
        assert shuffled[column].value == pytest.approx(plain[column].value, rel=1e-9)


def test_the_size_of_the_target_does_not_matter():
    source, target, motion = bodies()
    large = Motion(1.6 * motion.root_translation, motion.local_rotations, motion.fps)
    plain, grown = evaluate(source, target, motion), evaluate(source, scaled(target, 1.6), motion, large)
    for column in COLUMNS:
        assert grown[column].value == pytest.approx(plain[column].value, rel=1e-9)


def test_only_the_wanted_columns_are_given():
    source, target, motion = bodies()
    evaluation = Evaluation(Clip("clip", source, motion), target, motion)
    values = ContactError().evaluate(evaluation, frozenset({"contact_error"}))
    assert set(values) == {"contact_error"}


def test_small_distances_are_exact_far_from_the_origin():
    generator = torch.Generator().manual_seed(0)
    positions = 7.3 + 0.01 * torch.rand(3, 288, 3, generator=generator)
    left_hand, torso = positions[:, 128:144], positions[:, 0:64]
    direct = (left_hand[:, :, None].double() - torso[:, None].double()).norm(dim=-1)
    # Differences of squares, cdist's default for this many points, would be off by millimetres in float32.
    assert (hand_distances(positions)[:, 0, :, :64] - direct).abs().max() < 1e-6


def test_pairs_need_both_sensors():
    valid = torch.ones(288, dtype=torch.bool)
    assert usable_pairs(valid).sum() == 2 * 16 * 240
    valid[128] = False  # a left hand sensor: 240 pairs as a hand, 16 as part of the right hand's other arm
    assert usable_pairs(valid).sum() == 2 * 16 * 240 - 240 - 16


def test_sums_take_any_leading_axes():
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.rand(2, 5, 2, 16, 240, generator=generator) for _ in range(2))
    usable = torch.rand(2, 16, 240, generator=generator) < 0.5
    scales = {"source_radius": 0.1, "target_radius": 0.2, "source_height": 1.6, "target_height": 1.8}
    whole = contact_sums(source, target, usable, **scales)
    single = contact_sums(source[1, 3], target[1, 3], usable, **scales)
    for many, one in zip(whole, single, strict=True):
        assert many.shape == (2, 5)
        assert torch.allclose(many[1, 3].double(), one.double(), rtol=1e-6)
