"""The protocol of NKN, PMnet and R2ET: against its published form (velocities, integrated) and published values."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from retargetbench.character import Character
from retargetbench.clip import Clip
from retargetbench.formats.bvh import read_bvh
from retargetbench.metrics.base import Evaluation
from retargetbench.metrics.r2et import (
    R2etProtocol,
    local_errors,
    mean_by_frame,
    smoothed_heading,
    window_errors,
    window_frames,
)
from retargetbench.motion import Motion
from retargetbench.skeleton import Skeleton, canonical_index, find_canonical_map
from retargetbench.transfer import from_canonical_motion, to_canonical_motion

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = frozenset({"mse_r2et", "mse_r2et_local"})


def _walk(frames: int, *, seed: int, fps: float = 60.0, scale: float = 1.0, speed: float = 0.5) -> torch.Tensor:
    """Canonical joints of a lively body that also turns and moves along, (T, 22, 3)."""
    from retargetbench.kinematics import joint_positions

    skeleton = human_skeleton(scale=scale)
    motion = random_motion(skeleton, frames, seed=seed, fps=fps, spread=0.6)
    time = torch.arange(frames, dtype=torch.float64) / fps
    root = torch.stack([speed * time, 1 + 0.05 * torch.sin(5 * time), 0.3 * torch.sin(2 * time)], -1)
    return joint_positions(skeleton, Motion(scale * root, motion.local_rotations, fps))


# --- The published form, in NumPy and centimetres ---------------------------------------------------------------


def _published_heading(positions: np.ndarray) -> np.ndarray:
    across = (positions[:, 6] - positions[:, 10]) + (positions[:, 14] - positions[:, 18])
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    forward = gaussian_filter1d(np.cross(across, [0.0, 1.0, 0.0]), 20, axis=0, mode="nearest")
    return np.arctan2(forward[:, 0], forward[:, 2])


def _about_y(angle: float) -> np.ndarray:
    return Rotation.from_euler("Y", angle).as_matrix()


def _published_form(positions: np.ndarray, heading: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Local positions, root velocities and yaw velocities of a whole clip, as the networks take and give them."""
    root = positions[:, 0]
    local = np.stack([(p - r) @ _about_y(-a).T for p, r, a in zip(positions, root, heading, strict=True)])
    velocity = np.stack([_about_y(-heading[t + 1]) @ (root[t + 1] - root[t]) for t in range(len(root) - 1)])
    return local, np.concatenate([velocity, np.zeros((1, 3))]), np.append(-np.diff(heading), 0.0)


def _integrated(local: np.ndarray, velocity: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """World positions of one window from identity heading and zero translation."""
    heading, translation, world = np.eye(3), np.zeros(3), []
    for t in range(len(local)):
        world.append(local[t] @ heading.T + translation)
        heading = _about_y(-turn[t]) @ heading
        if t + 1 < len(local):
            translation = translation + heading @ velocity[t]
    return np.stack(world)


def _published_errors(
    positions: np.ndarray, source: np.ndarray, truth: np.ndarray, height_cm: float
) -> tuple[float, float]:
    heading, truth_heading = _published_heading(source), _published_heading(truth)
    ours, theirs = _published_form(positions, heading), _published_form(truth, truth_heading)
    starts = list(range(0, len(positions) - 119, 120)) + ([len(positions) - 120] if len(positions) % 120 else [])
    whole, local = [], []
    for start in starts:
        window = slice(start, start + 120)
        difference = _integrated(*(a[window] for a in ours)) - _integrated(*(a[window] for a in theirs))
        whole.append((difference**2).sum(-1).mean() / height_cm)
        local.append(((ours[0][window] - theirs[0][window]) ** 2).sum(-1).mean() / height_cm)
    return float(np.mean(whole)), float(np.mean(local))


@pytest.mark.parametrize("frames", [120, 240, 300])
def test_errors_equal_the_published_form_with_integrated_velocities(frames):
    source, predicted, truth = (_walk(frames, seed=s) for s in (1, 2, 3))
    windows = window_frames(frames, 60.0)
    arguments = (predicted, smoothed_heading(source, 60.0), truth, smoothed_heading(truth, 60.0), 1.5)
    whole, local = window_errors(*arguments, windows).mean(), local_errors(*arguments)[windows].mean()
    expected = _published_errors(*(100 * p.numpy() for p in (predicted, source, truth)), 150.0)
    assert (float(whole), float(local)) == pytest.approx(expected, rel=1e-9)


# --- Windows and headings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "fps", "starts", "length"),
    [
        (240, 60.0, [0, 120], 120),
        (270, 60.0, [0, 120, 150], 120),
        (120, 60.0, [0], 120),
        (121, 60.0, [0, 1], 120),
        (119, 60.0, [0], 119),
        (1, 60.0, [0], 1),
        (150, 30.0, [0, 60, 90], 60),
        (5, 1.0, [0, 2, 3], 2),
        (270, 1 / 0.016667, [0, 120, 150], 120),
    ],
)
def test_windows_lie_end_to_end_and_the_last_one_ends_with_the_clip(frames, fps, starts, length):
    windows = window_frames(frames, fps)
    assert windows[:, 0].tolist() == starts
    assert windows.shape[1] == length
    assert int(windows.max()) == frames - 1


@pytest.mark.parametrize("turn", [0.0, 0.5, math.pi / 2, -2.0, 3.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heading_is_the_angle_a_still_body_is_turned_by(device, dtype, turn):
    rest = human_skeleton().rest_positions
    rotation = torch.tensor(_about_y(turn))
    positions = (rest @ rotation.mT).expand(50, 22, 3).to(device=device, dtype=dtype)
    heading = smoothed_heading(positions, 60.0)
    torch.testing.assert_close(heading, torch.full_like(heading, turn), atol=1e-5, rtol=0)


def test_heading_of_a_body_that_faces_backwards_is_finite():
    rest = human_skeleton().rest_positions * torch.tensor([-1.0, 1.0, -1.0])
    heading = smoothed_heading(rest.expand(10, 22, 3), 60.0)
    torch.testing.assert_close(heading.abs(), torch.full_like(heading, math.pi))


def test_heading_of_a_body_on_its_side_is_finite():
    rest = human_skeleton().rest_positions
    heading = smoothed_heading(rest[:, [1, 0, 2]].expand(10, 22, 3), 60.0)
    assert bool(torch.isfinite(heading).all())


def test_heading_is_smoothed_like_scipy_does():
    positions = _walk(200, seed=4)
    np.testing.assert_allclose(smoothed_heading(positions, 60.0), _published_heading(positions.numpy()), atol=1e-12)


def test_frames_that_two_windows_share_are_averaged():
    frames = torch.tensor([[0, 1], [1, 2]])
    assert mean_by_frame(torch.tensor([[1.0, 2.0], [4.0, 8.0]]), frames, 3).tolist() == [1.0, 3.0, 8.0]


# --- Properties -------------------------------------------------------------------------------------------------


def _evaluation(frames: int, *, truth: bool = True, fps: float = 60.0) -> Evaluation:
    skeleton = human_skeleton(extra_joints=True)
    character = random_character(skeleton)
    source, motion, real = (random_motion(skeleton, frames, seed=s, fps=fps) for s in (1, 2, 3))
    return Evaluation(Clip("walk", character, source), character, motion, real if truth else None)


def test_a_perfect_motion_on_the_sources_skeleton_scores_zero():
    skeleton = human_skeleton(extra_joints=True)
    character, motion = random_character(skeleton), random_motion(skeleton, 150, fps=60.0)
    values = R2etProtocol().evaluate(Evaluation(Clip("c", character, motion), character, motion, motion), COLUMNS)
    assert {name: value.value for name, value in values.items()} == dict.fromkeys(COLUMNS, 0.0)


def test_a_hand_three_centimetres_off_gives_the_number_worked_out_by_hand():
    truth = _walk(120, seed=1)
    moved = truth.clone()
    moved[:, canonical_index("RightHand"), 1] += 0.03
    heading = smoothed_heading(truth, 60.0)
    expected = torch.tensor(3.0**2 / 22 / 160.0, dtype=torch.float64)  # cm² / joints / cm
    windows = window_frames(120, 60.0)
    torch.testing.assert_close(window_errors(moved, heading, truth, heading, 1.6, windows).mean(), expected)
    torch.testing.assert_close(local_errors(moved, heading, truth, heading, 1.6).mean(), expected)


def test_drift_is_forgotten_at_the_start_of_each_window():
    truth = torch.zeros(240, 22, 3, dtype=torch.float64)
    seconds = torch.arange(240, dtype=torch.float64) / 60
    drift = seconds[:, None, None] * torch.tensor([0.0, 0.0, 0.1], dtype=torch.float64)
    heading = torch.zeros(240, dtype=torch.float64)
    windows = window_frames(240, 60.0)
    found = window_errors(truth + drift, heading, truth, heading, 1.0, windows)
    expected = (10 * seconds[:120]).square() / 100  # (10 cm/s · t)² over 100 cm
    torch.testing.assert_close(found, expected.expand(2, 120))
    assert float(local_errors(truth + drift, heading, truth, heading, 1.0).max()) == 0.0


def test_place_height_and_start_heading_do_not_count():
    source, predicted, truth = (_walk(200, seed=s) for s in (1, 2, 3))
    turn = torch.tensor(_about_y(1.1))
    shift = torch.tensor([4.0, 0.7, -3.0], dtype=torch.float64)
    windows = window_frames(200, 60.0)
    plain = window_errors(predicted, smoothed_heading(source, 60.0), truth, smoothed_heading(truth, 60.0), 1.0, windows)
    moved_source, moved = source @ turn.mT + shift, predicted @ turn.mT + shift
    found = window_errors(
        moved, smoothed_heading(moved_source, 60.0), truth, smoothed_heading(truth, 60.0), 1.0, windows
    )
    torch.testing.assert_close(found, plain)


def test_errors_grow_with_the_defect():
    truth = _walk(120, seed=1)
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    heading, windows = smoothed_heading(truth, 60.0), window_frames(120, 60.0)
    found = [
        float(window_errors(truth + s * noise, heading, truth, heading, 1.0, windows).mean())
        for s in (0.01, 0.02, 0.05)
    ]
    assert 0 < found[0] < found[1] < found[2]


def test_values_do_not_depend_on_the_frame_rate():
    fine = [_walk(241, seed=s, fps=120.0) for s in (1, 2, 3)]
    found = []
    for step in (1, 2, 4):
        fps = 120.0 / step
        source, predicted, truth = (p[::step] for p in fine)
        arguments = (predicted, smoothed_heading(source, fps), truth, smoothed_heading(truth, fps), 1.5)
        found.append(float(window_errors(*arguments, window_frames(len(source), fps)).mean()))
    assert found == pytest.approx([found[0]] * 3, rel=0.02)  # 60, 120 or 240 samples of the same two seconds


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_of_clips_with_their_own_heights_equals_single_clips(device, dtype):
    source, predicted, truth = (
        torch.stack([_walk(150, seed=10 * s + b) for b in range(3)]).to(device=device, dtype=dtype) for s in (1, 2, 3)
    )
    heights = torch.tensor([0.8, 1.6, 2.0], device=device, dtype=dtype)
    windows = window_frames(150, 60.0).to(device)
    ours, theirs = smoothed_heading(source, 60.0), smoothed_heading(truth, 60.0)
    whole = window_errors(predicted, ours, truth, theirs, heights, windows)
    local = local_errors(predicted, ours, truth, theirs, heights)
    assert whole.shape == (3, 2, 120)
    assert whole.dtype == dtype
    for b in range(3):
        own = (smoothed_heading(source[b], 60.0), truth[b], smoothed_heading(truth[b], 60.0), float(heights[b]))
        torch.testing.assert_close(whole[b], window_errors(predicted[b], *own, windows))
        torch.testing.assert_close(local[b], local_errors(predicted[b], *own))


@pytest.mark.parametrize("frames", [1, 2, 50, 119])
def test_clips_shorter_than_a_window_are_one_window(frames):
    values = R2etProtocol().evaluate(_evaluation(frames), COLUMNS)
    for value in values.values():
        assert value.is_defined
        assert value.per_frame is not None
        assert value.value == pytest.approx(float(value.per_frame.mean()))


def test_frame_values_cover_the_clip_and_exist_for_both_columns():
    values = R2etProtocol().evaluate(_evaluation(270), COLUMNS)
    assert {name: tuple(value.per_frame.shape) for name, value in values.items()} == dict.fromkeys(COLUMNS, (270,))


def test_without_ground_truth_nothing_is_defined():
    values = R2etProtocol().evaluate(_evaluation(10, truth=False), COLUMNS)
    assert set(values) == COLUMNS
    assert not any(value.is_defined for value in values.values())


# --- Published values -------------------------------------------------------------------------------------------

NAMES = ("Ortiz", "Mousey", "Sporty_Granny")
DANCES = ("Salsa Dancing", "Macarena Dance", "Gangnam Style")


@lru_cache(maxsize=9)
def _dance(path: Path) -> Clip:
    """A BVH as it stands, its rest taken as identity, on a body of one triangle: no metric here looks at a mesh."""
    bvh = read_bvh(path)
    skeleton = Skeleton(
        tuple(bvh.names), tuple(bvh.parents), torch.tensor(bvh.offsets) / 100, find_canonical_map(list(bvh.names))
    )
    body = Character(
        path.parent.name,
        skeleton,
        bind_vertices=torch.eye(3, dtype=torch.float64),
        inverse_bind=torch.eye(4, dtype=torch.float64).expand(skeleton.joint_count, 4, 4),
        faces=torch.tensor([[0, 1, 2]]),
        influence_joints=torch.zeros(3, 1, dtype=torch.int64),
        influence_weights=torch.ones(3, 1, dtype=torch.float64),
    )
    motion = Motion(torch.tensor(bvh.root_positions) / 100, torch.tensor(bvh.rotations), bvh.fps)
    return Clip(path.stem, body, motion)


def _copied(source: Clip, target: Character) -> Motion:
    """Copied rotations, root scaled by the height ratio."""
    canonical = to_canonical_motion(source.character.skeleton, source.motion)
    scaled = canonical.root_translation * (target.height / source.character.height)
    return from_canonical_motion(target.skeleton, Motion(scaled, canonical.local_rotations, canonical.fps), source)


@pytest.mark.shared
def test_copy_gives_the_published_protocols_values_in_all_18_rows(shared_dir):
    demo = shared_dir / "data" / "r2et_mixamo" / "demo"
    rows = json.loads((shared_dir / "reference" / "r2et" / "baseline_metrics.json").read_text())["rows"]
    reference = {(row["source"], row["target"], row["motion"]): row for row in rows}
    windows, whole, local = [], [], []
    for dance in DANCES:
        clips = {name: _dance(demo / name / f"{dance}.bvh") for name in NAMES}
        for source, target in ((a, b) for a in NAMES for b in NAMES if a != b):
            body = clips[target].character
            evaluation = Evaluation(clips[source], body, _copied(clips[source], body), clips[target].motion)
            values = R2etProtocol().evaluate(evaluation, COLUMNS)
            row = reference[source, target, dance]
            # The reference has five decimals: half a unit of the last is 0.04 % of the smallest value.
            assert values["mse_r2et"].value == pytest.approx(row["copy_scaled_mse"], abs=6e-6)
            assert values["mse_r2et_local"].value == pytest.approx(row["copy_mse_local"], abs=6e-6)
            windows.append(len(window_frames(evaluation.motion.frame_count, evaluation.fps)))
            assert windows[-1] == row["clips"]
            whole.append(values["mse_r2et"].value)
            local.append(values["mse_r2et_local"].value)
    assert sum(windows) == 90
    assert np.average(whole, weights=windows) == pytest.approx(0.1464, abs=5e-5)
    assert np.average(local, weights=windows) == pytest.approx(0.0869, abs=5e-5)


@pytest.mark.shared
def test_the_ground_truths_own_score_is_small_and_not_zero(shared_dir):
    demo = shared_dir / "data" / "r2et_mixamo" / "demo"
    clips = {name: _dance(demo / name / "Gangnam Style.bvh") for name in ("Ortiz", "Mousey")}
    truth = clips["Mousey"]
    values = R2etProtocol().evaluate(Evaluation(clips["Ortiz"], truth.character, truth.motion, truth.motion), COLUMNS)
    assert 0 < values["mse_r2et"].value < 0.01
    assert 0 < values["mse_r2et_local"].value < 0.005
