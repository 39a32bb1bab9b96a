"""Feet and floor: hand-worked defects on a small body whose soles are known points."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion
from scipy.spatial.transform import Rotation

from retargetbench.character import Character
from retargetbench.clip import Clip
from retargetbench.kinematics import joint_positions
from retargetbench.metrics.base import Evaluation, MetricValue
from retargetbench.metrics.feet import (
    FOOT_JOINTS,
    PLANTED_HEIGHT,
    PLANTED_SPEED,
    Feet,
    floating,
    foot_skate,
    ground_penetration,
    planted,
    sole_heights,
)
from retargetbench.motion import Motion
from retargetbench.skeleton import canonical_index
from retargetbench.transfer import lowest_sole

COLUMNS = frozenset({"foot_skate", "ground_penetration", "floating"})
FEET = list(FOOT_JOINTS)


def _standing_body(scale: float = 1.0, *, parts: tuple[str, ...] = ("Foot", "ToeBase")) -> Character:
    """A body whose mesh is its head and, under each ankle and toe base, one point of the sole at y = 0."""
    skeleton = human_skeleton(scale=scale)
    rest = skeleton.rest_positions
    joints = [canonical_index("Head")] + [canonical_index(side + part) for side in ("Left", "Right") for part in parts]
    points = torch.stack([rest[joints[0]]] + [rest[j] * torch.tensor([1.0, 0.0, 1.0]) for j in joints[1:]])
    inverse_bind = torch.eye(4, dtype=torch.float64).repeat(22, 1, 1)
    inverse_bind[:, :3, 3] = -rest
    return Character(
        f"standing {scale}",
        skeleton,
        points,
        inverse_bind,
        faces=torch.tensor([[0, 1, 2]]),
        influence_joints=torch.tensor(joints)[:, None],
        influence_weights=torch.ones(len(joints), 1, dtype=torch.float64),
    )


def _moved(character: Character, path: torch.Tensor, fps: float = 30.0) -> Motion:
    """The body in its rest pose, its root moved by ``path`` (T, 3)."""
    rotations = torch.zeros(len(path), 22, 4, dtype=torch.float64)
    rotations[..., 3] = 1.0
    return Motion(character.skeleton.rest_positions[0] + path, rotations, fps)


def _line(frames: int, step: tuple[float, float, float]) -> torch.Tensor:
    return torch.arange(frames, dtype=torch.float64)[:, None] * torch.tensor(step, dtype=torch.float64)


def _values(source_path: torch.Tensor, path: torch.Tensor, *, scale: float = 1.0, fps: float = 30.0):
    body = _standing_body(scale)
    source = Clip("c", body, _moved(body, scale * source_path, fps))
    return Feet().evaluate(Evaluation(source, body, _moved(body, scale * path, fps)), COLUMNS)


def _numbers(values: dict[str, MetricValue]) -> dict[str, float]:
    return {name: value.value for name, value in values.items()}


def test_a_body_that_stands_still_on_the_floor_scores_zero():
    still = torch.zeros(5, 3, dtype=torch.float64)
    assert _numbers(_values(still, still)) == pytest.approx(dict.fromkeys(COLUMNS, 0.0), abs=1e-12)


def test_a_body_that_slides_while_the_source_stands_skates_with_its_speed():
    values = _values(torch.zeros(5, 3), _line(5, (0.003, 0.0, 0.004)))  # 5 mm a frame at 30 fps
    assert values["foot_skate"].value == pytest.approx(0.15)
    assert values["ground_penetration"].value == pytest.approx(0.0, abs=1e-12)
    per_frame = values["foot_skate"].per_frame
    assert per_frame is not None
    assert math.isnan(per_frame[0])
    torch.testing.assert_close(per_frame[1:], torch.full((4,), 0.15, dtype=torch.float64))


def test_one_of_two_feet_that_slides_counts_half():
    joints = torch.zeros(4, 4, 3)
    joints[:, :2, 0] = torch.arange(4.0)[:, None] * 0.02  # heel and ball of the left foot, 0.6 m/s
    value, by_frame = foot_skate(joints, torch.ones(3, 4, dtype=torch.bool), 30.0)
    assert float(value) == pytest.approx(0.3)
    torch.testing.assert_close(by_frame[1:], torch.full((3,), 0.3))


def test_a_foot_that_moves_while_the_sources_foot_is_in_the_air_does_not_skate():
    joints = torch.zeros(3, 4, 3)
    joints[:, 0, 0] = torch.arange(3.0)
    rests = torch.ones(2, 4, dtype=torch.bool)
    rests[:, 0] = False
    value, _ = foot_skate(joints, rests, 30.0)
    assert float(value) == 0.0


def test_a_body_sunk_by_two_centimetres_penetrates_the_floor_by_two_centimetres():
    values = _values(torch.zeros(4, 3), torch.tensor([0.0, -0.02, 0.0]).expand(4, 3))
    assert values["ground_penetration"].value == pytest.approx(0.02)
    assert values["floating"].value == pytest.approx(0.0, abs=1e-12)


def test_a_body_raised_by_three_centimetres_while_the_source_stands_floats_three_centimetres():
    values = _values(torch.zeros(4, 3), torch.tensor([0.0, 0.03, 0.0]).expand(4, 3))
    assert values["floating"].value == pytest.approx(0.03)
    assert values["ground_penetration"].value == 0.0


def test_frames_in_which_the_source_jumps_do_not_float():
    jump = torch.zeros(4, 3, dtype=torch.float64)
    jump[2:, 1] = 0.5
    values = _values(jump, jump + torch.tensor([0.0, 0.01, 0.0]))
    assert values["floating"].value == pytest.approx(0.01)
    assert values["floating"].per_frame is not None
    assert values["floating"].per_frame.isnan().tolist() == [False, False, True, True]


def test_depth_and_height_are_means_over_their_frames():
    lowest = torch.tensor([-0.01, 0.02, -0.03, 0.0])
    torch.testing.assert_close(ground_penetration(lowest), torch.tensor([0.01, 0.0, 0.03, 0.0]))
    found = floating(lowest, torch.tensor([0.0, 0.0, 0.0, 0.5]), 1.6)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.02, 0.0, math.nan]), equal_nan=True)


@pytest.mark.parametrize("height", [0.8, 1.6])
def test_thresholds_of_contact_are_shares_of_the_height(height):
    def is_planted(sole: float, speed: float) -> bool:
        soles = torch.full((2, 1), sole, dtype=torch.float64)
        joints = _line(2, (speed / 60, 0.0, 0.0))[:, None]
        return bool(planted(soles, joints, height, 60.0))

    low, slow = PLANTED_HEIGHT * height, PLANTED_SPEED * height
    assert is_planted(0.99 * low, 0.99 * slow)
    assert is_planted(-0.05, 0.0)
    assert not is_planted(1.01 * low, 0.0)
    assert not is_planted(0.0, 1.01 * slow)


def test_a_foot_is_planted_only_if_low_in_both_frames():
    soles = torch.tensor([[0.0], [0.0], [0.2], [0.0]])
    assert planted(soles, torch.zeros(4, 1, 3), 1.6, 30.0)[:, 0].tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("column", "step"), [("foot_skate", "slide"), ("ground_penetration", "sink"), ("floating", "raise")]
)
def test_values_grow_with_the_defect(column, step):
    found = []
    for size in (0.0, 0.001, 0.002, 0.02):
        path = {
            "slide": _line(5, (size, 0.0, 0.0)),
            "sink": torch.tensor([0.0, -size, 0.0], dtype=torch.float64).expand(5, 3),
            "raise": torch.tensor([0.0, size, 0.0], dtype=torch.float64).expand(5, 3),
        }[step]
        found.append(_values(torch.zeros(5, 3), path)[column].value)
    assert found[0] == pytest.approx(0.0, abs=1e-12)
    assert found[0] < found[1] < found[2] < found[3]


def test_values_grow_in_proportion_with_the_size_of_everything():
    path = _line(5, (0.004, -0.001, 0.0)) + torch.tensor([0.0, 0.002, 0.0])
    one, two = (_numbers(_values(torch.zeros(5, 3), path, scale=scale)) for scale in (1.0, 2.0))
    assert all(value > 0 for value in one.values())
    assert two == pytest.approx({name: 2 * value for name, value in one.items()})


def test_place_and_direction_of_a_clip_do_not_matter():
    skeleton = human_skeleton(extra_joints=True)
    body = random_character(skeleton)
    source, motion = random_motion(skeleton, 12, seed=1, spread=0.1), random_motion(skeleton, 12, seed=2)
    lift = torch.tensor([0.0, float(lowest_sole(body, source).min()), 0.0], dtype=torch.float64)
    source = Motion(source.root_translation - lift, source.local_rotations, source.fps)

    def turned(m: Motion) -> Motion:
        turn = Rotation.from_euler("Y", 1.3)
        rotations = m.local_rotations.clone()
        rotations[:, 0] = torch.tensor((turn * Rotation.from_quat(rotations[:, 0].numpy())).as_quat())
        root = torch.tensor(turn.apply(m.root_translation.numpy())) + torch.tensor([2.0, 0.0, -5.0])
        return Motion(root, rotations, m.fps)

    plain = Feet().evaluate(Evaluation(Clip("c", body, source), body, motion), COLUMNS)
    moved = Feet().evaluate(Evaluation(Clip("c", body, turned(source)), body, turned(motion)), COLUMNS)
    assert _numbers(moved) == pytest.approx(_numbers(plain), nan_ok=True)
    assert plain["floating"].is_defined


def test_speeds_are_in_seconds_so_the_frame_rate_does_not_matter():
    found = []
    for fps in (30.0, 60.0):
        frames = int(fps) + 1
        path = _line(frames, (0.12 / fps, 0.0, 0.0))
        found.append(_values(torch.zeros(frames, 3), path, fps=fps)["foot_skate"].value)
    assert found == pytest.approx([0.12, 0.12])


def test_heel_and_ball_are_told_apart_when_the_foot_rolls():
    body = _standing_body()
    motion = _moved(body, torch.zeros(2, 3, dtype=torch.float64))
    toes = Rotation.from_euler("X", 30, degrees=True).as_quat()
    motion.local_rotations[1, canonical_index("LeftToeBase")] = torch.tensor(toes)
    evaluation = Evaluation(Clip("c", body, motion), body, motion)
    heights = sole_heights(body, *evaluation.target_joints)
    # The ball's point hangs 2 cm below its joint: turned by 30° about X it is at 2 cm · (1 − cos 30°).
    expected = torch.tensor([[0.0] * 4, [0.0, 0.02 * (1 - math.cos(math.pi / 6)), 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(heights, expected, atol=1e-12, rtol=0)


def test_sole_heights_hold_the_lowest_sole_of_the_root_rule():
    skeleton = human_skeleton(extra_joints=True)
    body, motion = random_character(skeleton), random_motion(skeleton, 6)
    evaluation = Evaluation(Clip("c", body, motion), body, motion)
    torch.testing.assert_close(sole_heights(body, *evaluation.target_joints).amin(-1), lowest_sole(body, motion))


@pytest.mark.parametrize(("parts", "missing"), [(("Foot",), [1, 3]), (("ToeBase",), [0, 2])])
def test_a_part_without_vertices_takes_the_rest_of_its_foot(parts, missing):
    body = _standing_body(parts=parts)
    evaluation = Evaluation(*_clip_and_motion(body))
    heights = sole_heights(body, *evaluation.target_joints)
    present = [k for k in range(4) if k not in missing]
    torch.testing.assert_close(heights[:, missing], heights[:, present])


def test_a_mesh_without_feet_counts_as_a_whole():
    body = _standing_body(parts=("Leg",))
    evaluation = Evaluation(*_clip_and_motion(body))
    heights = sole_heights(body, *evaluation.target_joints)
    torch.testing.assert_close(heights, torch.zeros(3, 4, dtype=torch.float64), atol=1e-12, rtol=0)


def _clip_and_motion(body: Character) -> tuple[Clip, Character, Motion]:
    motion = _moved(body, torch.zeros(3, 3, dtype=torch.float64))
    return Clip("c", body, motion), body, motion


def test_without_planted_feet_skate_is_undefined_and_without_standing_floating_is():
    in_the_air = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64).expand(4, 3)
    values = _values(in_the_air, torch.zeros(4, 3))
    assert not values["foot_skate"].is_defined
    assert not values["floating"].is_defined
    assert values["ground_penetration"].is_defined


def test_a_clip_of_one_frame_has_no_skate_but_the_rest():
    values = _values(torch.zeros(1, 3), torch.tensor([[0.0, -0.01, 0.0]]))
    assert not values["foot_skate"].is_defined
    assert values["ground_penetration"].value == pytest.approx(0.01)
    assert values["floating"].value == pytest.approx(0.0, abs=1e-12)
    assert all(value.per_frame is not None and value.per_frame.shape == (1,) for value in values.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_equal_the_slow_statement_on_every_device(device, dtype):
    skeleton = human_skeleton()
    body = random_character(skeleton)
    source, motion = random_motion(skeleton, 10, seed=1, spread=0.05), random_motion(skeleton, 10, seed=2)
    lift = torch.tensor([0.0, float(lowest_sole(body, source).min()), 0.0], dtype=torch.float64)
    source = Motion(0.3 * (source.root_translation - lift), source.local_rotations, source.fps)
    source = Motion(
        source.root_translation - torch.tensor([0.0, float(lowest_sole(body, source).min()), 0.0]),
        source.local_rotations,
        source.fps,
    )
    expected = _slow_values(body, source, motion)
    assert all(math.isfinite(value) for value in expected.values())
    evaluation = Evaluation(Clip("c", body, source).to(device, dtype), body.to(device, dtype), motion.to(device, dtype))
    values = Feet().evaluate(evaluation, COLUMNS)
    assert _numbers(values) == pytest.approx(expected, rel=1e-3 if dtype == torch.float32 else 1e-9, abs=1e-6)
    for value in values.values():
        assert value.per_frame is not None
        assert value.per_frame.dtype == dtype
        assert value.per_frame.device.type == device.type


def _slow_values(body: Character, source: Motion, motion: Motion) -> dict[str, float]:
    """The definitions read aloud: vertices skinned one by one, frames and parts in loops."""
    part_of_vertex = body.dominant_joint.tolist()

    def lowest_by_part(m: Motion) -> np.ndarray:
        skeleton, low = body.skeleton, np.full((m.frame_count, 4), np.inf)
        for t in range(m.frame_count):
            rotations: list[Rotation] = []
            places: list[np.ndarray] = []
            for j, parent in enumerate(skeleton.parents):
                local = Rotation.from_quat(m.local_rotations[t, j].numpy())
                rotations.append(local if parent < 0 else rotations[parent] * local)
                places.append(
                    m.root_translation[t].numpy()
                    if parent < 0
                    else places[parent] + rotations[parent].apply(skeleton.offsets[j].numpy())
                )
            for v, part in enumerate(part_of_vertex):
                if part not in FOOT_JOINTS:
                    continue
                y = 0.0
                for j, weight in zip(
                    body.influence_joints[v].tolist(), body.influence_weights[v].tolist(), strict=True
                ):
                    bound = body.inverse_bind[j].numpy() @ np.append(body.bind_vertices[v].numpy(), 1.0)
                    y += weight * (rotations[j].apply(bound[:3]) + places[j])[1]
                k = FOOT_JOINTS.index(part)
                low[t, k] = min(low[t, k], y)
        return low

    source_soles, soles, height = lowest_by_part(source), lowest_by_part(motion), body.height
    ours, theirs = (joint_positions(body.skeleton, m)[:, FEET].numpy() for m in (motion, source))
    speeds = []
    for t in range(1, motion.frame_count):
        for k in range(4):
            travelled = np.hypot(*(theirs[t, k] - theirs[t - 1, k])[[0, 2]]) * source.fps
            if max(source_soles[t - 1 : t + 1, k]) < 0.02 * height and travelled < 0.1 * height:
                speeds.append(np.hypot(*(ours[t, k] - ours[t - 1, k])[[0, 2]]) * motion.fps)
    stands = source_soles.min(1) < 0.02 * height
    return {
        "foot_skate": float(np.mean(speeds)),
        "ground_penetration": float(np.maximum(-soles.min(1), 0).mean()),
        "floating": float(np.maximum(soles.min(1), 0)[stands].mean()),
    }


def test_a_batch_of_clips_with_their_own_heights_equals_single_clips():
    generator = torch.Generator().manual_seed(0)
    soles = 0.1 * torch.rand(3, 8, 4, generator=generator)
    source, target = 0.01 * torch.randn(2, 3, 8, 4, 3, generator=generator)
    heights = torch.tensor([0.8, 1.6, 4.0])
    rests = planted(soles, source, heights, 5.0)
    value, by_frame = foot_skate(target, rests, 5.0)
    above = floating(soles.amin(-1), soles.amax(-1), heights)
    assert bool(rests.any())
    for b in range(3):
        single = planted(soles[b], source[b], float(heights[b]), 5.0)
        assert torch.equal(rests[b], single)
        expected = foot_skate(target[b], single, 5.0)
        torch.testing.assert_close((value[b], by_frame[b]), expected, equal_nan=True)
        torch.testing.assert_close(
            above[b], floating(soles[b].amin(-1), soles[b].amax(-1), float(heights[b])), equal_nan=True
        )


def test_only_the_wanted_columns_are_computed():
    body = _standing_body()
    assert set(Feet().evaluate(Evaluation(*_clip_and_motion(body)), frozenset({"floating"}))) == {"floating"}
