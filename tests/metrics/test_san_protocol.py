"""SAN's error: hand-worked values, an independent statement, and SAN's own numbers on its own joints."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from rigs import HUMAN_OFFSETS, human_skeleton, random_character, random_motion
from scipy.spatial.transform import Rotation

from retargetbench.clip import Clip
from retargetbench.formats.bvh import read_bvh
from retargetbench.metrics.base import Evaluation
from retargetbench.metrics.san import SanProtocol, san_distance, san_error, san_height
from retargetbench.motion import Motion
from retargetbench.skeleton import Skeleton, find_canonical_map

COLUMNS = frozenset({"mse_san", "mse_san_distance"})


def _evaluation(motion: Motion, truth: Motion | None) -> Evaluation:
    character = random_character(human_skeleton(extra_joints=True))
    return Evaluation(Clip("walk", character, motion), character, motion, truth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_errors_equal_the_slow_statement(device, dtype):
    rng = np.random.default_rng(0)
    positions, truth = rng.normal(size=(2, 4, 22, 3))
    squares = [sum(((positions[t, j, c] - truth[t, j, c]) / 1.8) ** 2 for j in range(22) for c in range(3)) / 66
               for t in range(4)]  # fmt: skip
    distances = [sum(np.sqrt(((positions[t, j] - truth[t, j]) ** 2).sum()) for j in range(22)) / 22 / 1.8
                 for t in range(4)]  # fmt: skip
    p, q = (torch.tensor(a, dtype=dtype, device=device) for a in (positions, truth))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for found, expected in ((san_error(p, q, 1.8), squares), (san_distance(p, q, 1.8), distances)):
        assert found.dtype == dtype
        assert found.device.type == device.type
        np.testing.assert_allclose(found.cpu(), expected, rtol=tolerance)


def test_height_runs_from_the_left_toe_over_the_hips_to_the_head():
    chain = ("LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase", "Spine", "Spine1", "Spine2", "Neck", "Head")
    expected = sum(float(np.linalg.norm(HUMAN_OFFSETS[name])) for name in chain)
    assert san_height(human_skeleton()) == pytest.approx(expected)
    assert san_height(human_skeleton(scale=2.0)) == pytest.approx(2 * expected)


def test_a_constant_shift_of_thirty_centimetres_gives_the_numbers_worked_out_by_hand():
    motion = random_motion(human_skeleton(extra_joints=True), 5)
    moved = Motion(motion.root_translation + torch.tensor([0.3, 0.0, 0.0]), motion.local_rotations, motion.fps)
    evaluation = _evaluation(moved, motion)
    height = san_height(evaluation.target.skeleton)
    values = SanProtocol().evaluate(evaluation, COLUMNS)
    assert values["mse_san"].value == pytest.approx(0.3**2 / 3 / height**2)
    assert values["mse_san_distance"].value == pytest.approx(0.3 / height)


def test_the_ground_truth_itself_scores_zero():
    motion = random_motion(human_skeleton(extra_joints=True), 5)
    values = SanProtocol().evaluate(_evaluation(motion, motion), COLUMNS)
    assert {name: value.value for name, value in values.items()} == dict.fromkeys(COLUMNS, 0.0)


def test_errors_grow_with_the_defect():
    truth, noise = torch.zeros(5, 22, 3), torch.randn(5, 22, 3)
    for function in (san_error, san_distance):
        errors = [float(function(truth + size * noise, truth, 1.0).mean()) for size in (0.0, 0.01, 0.02, 0.1)]
        assert errors[0] == 0.0
        assert errors[1] < errors[2] < errors[3]


def test_scaling_everything_or_moving_both_motions_changes_nothing():
    positions, truth = torch.randn(2, 5, 22, 3, dtype=torch.float64)
    shift = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64)
    for function in (san_error, san_distance):
        plain = function(positions, truth, 1.5)
        torch.testing.assert_close(function(3 * positions, 3 * truth, 4.5), plain)
        torch.testing.assert_close(function(positions + shift, truth + shift, 1.5), plain)


def test_a_batch_of_clips_with_their_own_heights_equals_single_clips():
    positions, truth = torch.randn(2, 3, 5, 22, 3)
    heights = torch.tensor([0.8, 1.6, 2.0])
    for function in (san_error, san_distance):
        single = [function(positions[b], truth[b], float(heights[b])) for b in range(3)]
        torch.testing.assert_close(function(positions, truth, heights), torch.stack(single))


@pytest.mark.parametrize("frames", [1, 2])
def test_the_shortest_clips_have_values(frames):
    skeleton = human_skeleton(extra_joints=True)
    evaluation = _evaluation(random_motion(skeleton, frames, seed=1), random_motion(skeleton, frames, seed=2))
    values = SanProtocol().evaluate(evaluation, COLUMNS)
    assert all(value.is_defined and value.per_frame.shape == (frames,) for value in values.values())


def test_without_ground_truth_nothing_is_defined():
    motion = random_motion(human_skeleton(extra_joints=True), 4)
    values = SanProtocol().evaluate(_evaluation(motion, None), COLUMNS)
    assert set(values) == COLUMNS
    assert not any(value.is_defined for value in values.values())


# --- SAN's own numbers ------------------------------------------------------------------------------------------


def _world_positions(features: np.ndarray, edges: list[list[int]], offsets: np.ndarray) -> np.ndarray:
    """Joints of SAN's representation: a wxyz quaternion of each edge's parent joint, then the root's position."""
    quaternions = features[:-3].reshape(len(edges), 4, -1)
    local = {parent: Rotation.from_quat(quaternions[e][[1, 2, 3, 0]].T) for e, (parent, _) in enumerate(edges)}
    world, positions = {0: local[0]}, {0: features[-3:].T.astype(np.float64)}
    for parent, child in edges:
        positions[child] = positions[parent] + world[parent].apply(offsets[child])
        if child in local:
            world[child] = world[parent] * local[child]
    return np.stack([positions[j] for j in range(len(offsets))], 1)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("source", "target", "topology"),
    [
        ("SportyGranny", "GrannyLong", 0),
        ("Ortiz_m", "SportyGranny", 0),
        ("Ortiz_m", "GrannyLong", 0),
        ("SportyGranny", "Ortiz_m", 1),
        ("SportyGranny", "Mousey_m", 1),
        ("Ortiz_m", "Mousey_m", 1),
    ],
)
def test_formulas_give_sans_own_numbers_on_its_own_joints(shared_dir, source, target, topology):
    folder = shared_dir / "reference" / "san"
    with np.load(folder / "forward_clip.npz") as arrays:
        predicted, features = arrays[f"{source}_to_{target}/world_pos"], arrays[f"gt/{target}"]
    rig = json.loads((folder / "topology.json").read_text())[f"topology{topology}"]
    body = rig["characters"][target]
    truth = _world_positions(features, rig["edges"], np.array(body["offsets"]))
    expected = json.loads((folder / "metrics.json").read_text())["per_clip"][
        f"{source}_to_{target}/Hip Hop Dancing.bvh"
    ]
    positions, joints = torch.tensor(predicted, dtype=torch.float64), torch.tensor(truth)
    # SAN measured the BVH it wrote, whose angles have six decimals.
    assert float(san_error(positions, joints, body["height"]).mean()) == pytest.approx(
        expected["official_mse_over_h2"], rel=1e-6
    )
    assert float(san_distance(positions, joints, body["height"]).mean()) == pytest.approx(
        expected["mean_euclid_over_h"], rel=1e-6
    )


@pytest.mark.shared
def test_height_is_sans_own_on_its_first_topology(shared_dir):
    bvh = read_bvh(shared_dir / "data" / "r2et_mixamo" / "demo" / "Sporty_Granny" / "Hip Hop Dancing.bvh")
    skeleton = Skeleton(
        tuple(bvh.names), tuple(bvh.parents), torch.tensor(bvh.offsets), find_canonical_map(list(bvh.names))
    )
    topology = json.loads((shared_dir / "reference" / "san" / "topology.json").read_text())["topology0"]
    assert san_height(skeleton) == pytest.approx(topology["characters"]["SportyGranny"]["height"], rel=1e-9)
