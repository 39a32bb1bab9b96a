"""The shipped dataset: sound bodies, ground truth that is true, frozen splits, and no work before it is asked for."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter

import igl
import numpy as np
import pytest
import torch
import trimesh

from retargetbench.clip import SPLIT_ATOMS
from retargetbench.datasets import capsules as module
from retargetbench.datasets.capsule_bodies import BUILDS, Body
from retargetbench.datasets.capsule_hands import TOUCH_CLEARANCE
from retargetbench.datasets.capsule_motions import FPS, SCORES
from retargetbench.datasets.capsules import CapsuleDataset, open_capsules
from retargetbench.datasets.check import check_dataset
from retargetbench.errors import DatasetError
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.metrics.base import Evaluation
from retargetbench.metrics.penetration import Penetration
from retargetbench.skeleton import CANONICAL_JOINTS, canonical_index

NAMES = [build.name for build in BUILDS]
SCORE = {score.name: score for score in SCORES}
BUILD = {build.name: build for build in BUILDS}
SIDES = ("Left", "Right")


@pytest.fixture(scope="module")
def dataset():
    return open_capsules()


@pytest.fixture(params=NAMES)
def character(request, dataset):
    return dataset.character(request.param)


def joints(dataset, name, motion_name):
    """World rotations (T, 22, 3, 3) and positions (T, 22, 3) of a clip."""
    clip = dataset.clip(name, motion_name)
    return forward_kinematics(clip.character.skeleton, clip.motion.root_translation, clip.motion.local_rotations)


def palm(dataset, name, motion_name, side):
    """Where the middle of the palm is, (T, 3) metres."""
    rotations, positions = joints(dataset, name, motion_name)
    hand = canonical_index(side + "Hand")
    return positions[:, hand] + rotations[:, hand] @ torch.from_numpy(Body(BUILD[name]).palm(side)).float()


def tubes(character) -> list[trimesh.Trimesh]:
    mesh = trimesh.Trimesh(character.rest_vertices.double().numpy(), character.faces.numpy(), process=False)
    return list(mesh.split(only_watertight=False))


def without_arm(character, side) -> np.ndarray:
    """Faces of the closed tubes that are not this arm."""
    arm = torch.tensor([canonical_index(side + name) for name in ("Shoulder", "Arm", "ForeArm", "Hand")])
    return character.faces[~torch.isin(character.dominant_joint[character.faces], arm).any(1)].numpy()


# Bodies


def test_a_body_is_seven_closed_tubes_that_face_outwards(character):
    parts = tubes(character)
    assert len(parts) == 7
    for part in parts:
        assert part.is_watertight
        assert part.is_winding_consistent
        assert part.volume > 0


def test_no_face_is_degenerate_and_every_vertex_is_used(character):
    corners = character.rest_vertices.double()[character.faces]
    areas = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]).norm(dim=-1) / 2
    assert areas.min() > 1e-7
    assert len(character.faces.unique()) == len(character.bind_vertices)


def test_weights_of_at_most_four_canonical_joints_sum_to_one(character):
    weights = character.influence_weights
    assert weights.shape == (len(character.bind_vertices), 4)
    assert weights.min() >= 0
    torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)), rtol=0, atol=2e-7)
    used = character.influence_joints[weights > 0]
    # The hips move with the trunk; every joint moves some skin.
    assert set(used.tolist()) == set(range(22))


def test_weights_are_smooth_along_the_skin(character):
    dense = torch.zeros(len(character.bind_vertices), 22)
    dense.scatter_add_(1, character.influence_joints, character.influence_weights)
    a, b, c = character.faces.T
    steps = torch.cat([(dense[u] - dense[v]).abs().amax(1) for u, v in ((a, b), (b, c), (c, a))])
    assert steps.max() < 0.6


def test_the_skeleton_is_the_22_canonical_joints_at_rest_in_a_t_pose(character):
    skeleton = character.skeleton
    assert skeleton.names == CANONICAL_JOINTS
    assert skeleton.canonical == tuple(range(22))
    rest = dict(zip(skeleton.names, skeleton.rest_positions, strict=True))
    for side, sign in zip(SIDES, (1.0, -1.0), strict=True):
        arm = rest[side + "Hand"] - rest[side + "Arm"]
        assert arm[0] * sign / arm.norm() > np.cos(np.radians(15))
        thigh = rest[side + "Leg"] - rest[side + "UpLeg"]
        assert -thigh[1] / thigh.norm() > np.cos(np.radians(15))
        assert rest[side + "ToeBase"][2] > rest[side + "Foot"][2]  # faces +Z
    assert rest["Head"][1] > rest["Neck"][1] > rest["Hips"][1] > rest["LeftLeg"][1] > 0


def test_it_stands_on_the_floor_as_tall_as_its_measures_say(character):
    heights = character.rest_vertices[:, 1]
    assert heights.min().item() == pytest.approx(0, abs=1e-6)
    assert heights.max().item() == pytest.approx(BUILD[character.name].stature, abs=1e-5)


def test_left_and_right_are_mirror_images(character):
    there = character.rest_vertices.double().numpy()
    mirrored = there * [-1.0, 1.0, 1.0]
    nearest = np.linalg.norm(there[:, None] - mirrored[None], axis=-1).min(1)
    assert nearest.max() < 2e-6
    rest = character.skeleton.rest_positions
    swapped = [
        canonical_index({"L": "Right" + name[4:], "R": "Left" + name[5:]}[name[0]] if name.startswith(SIDES) else name)
        for name in CANONICAL_JOINTS
    ]
    torch.testing.assert_close(rest[swapped] * torch.tensor([-1.0, 1.0, 1.0]), rest, rtol=0, atol=1e-6)


def test_joints_are_inside_the_body(character):
    inside = igl.winding_number(
        character.rest_vertices.double().numpy(),
        character.faces.numpy(),
        character.skeleton.rest_positions.double().numpy(),
    )
    assert inside.min() > 0.5


def test_the_mesh_at_rest_is_the_mesh_that_is_bound(character):
    skeleton = character.skeleton
    still = torch.eye(3).expand(1, 22, 3, 3)
    posed = Skinner.from_character(character).pose(still, skeleton.rest_positions[None])
    torch.testing.assert_close(posed[0], character.bind_vertices, rtol=0, atol=1e-6)


def test_characters_are_float32_on_the_cpu_and_say_where_they_are_from(character):
    assert {character.bind_vertices.dtype, character.inverse_bind.dtype, character.influence_weights.dtype} == {
        torch.float32
    }
    assert character.faces.dtype == character.influence_joints.dtype == torch.int64
    assert character.bind_vertices.device.type == "cpu"
    assert "retargetbench" in character.provenance["made by"]


# Motions


@pytest.mark.parametrize("name", NAMES)
def test_every_motion_is_there_for_every_body_with_the_same_frames(dataset, name):
    for motion_name, score in SCORE.items():
        motion = dataset.clip(name, motion_name).motion
        assert motion.root_translation.shape == (score.frames, 3)
        assert motion.local_rotations.shape == (score.frames, 22, 4)
        assert motion.fps == FPS
        assert motion.root_translation.dtype == motion.local_rotations.dtype == torch.float32
        assert 2 <= score.frames / FPS <= 5  # seconds


@pytest.mark.parametrize("name", NAMES)
def test_motions_are_unit_quaternions_without_jumps(dataset, name):
    for motion_name in SCORE:
        rotations = dataset.clip(name, motion_name).motion.local_rotations.double()
        assert (rotations.norm(dim=-1) - 1).abs().max() < 2e-6  # rounded to 6 decimals
        dot = (rotations[1:] * rotations[:-1]).sum(-1)
        turns_deg = torch.rad2deg(2 * dot.clamp(-1, 1).arccos())  # above 180 where the sign flips
        assert turns_deg.max() < 35, motion_name
        _, positions = joints(dataset, name, motion_name)
        height = dataset.character(name).height
        assert positions.diff(dim=0).norm(dim=-1).max() * FPS < 3 * height, motion_name
        assert positions.diff(n=2, dim=0).norm(dim=-1).max() * FPS**2 < 60 * height, motion_name


def test_hips_move_the_same_number_of_heights_on_every_body(dataset):
    for motion_name in SCORE:
        paths = []
        for name in NAMES:
            character = dataset.character(name)
            root = dataset.clip(name, motion_name).motion.root_translation
            paths.append((root - character.skeleton.offsets[0]) / character.height)
        for path in paths[1:]:
            torch.testing.assert_close(path, paths[0], rtol=0, atol=3e-6)


@pytest.mark.parametrize("name", NAMES)
def test_feet_stand_still_on_the_floor_except_in_steps(dataset, name):
    character = dataset.character(name)
    skinner = Skinner.from_character(character)
    for motion_name, score in SCORE.items():
        rotations, positions = joints(dataset, name, motion_name)
        posed = skinner.pose(rotations, positions)
        for side in SIDES:
            foot = [canonical_index(side + "Foot"), canonical_index(side + "ToeBase")]
            of_foot = torch.isin(character.influence_joints, torch.tensor(foot))
            sole = posed[:, (character.influence_weights * of_foot).sum(1) > 0.9999]
            planted = torch.ones(score.frames, dtype=torch.bool)
            for step in score.steps:
                if step.foot == side:
                    planted[step.start + 1 : step.end] = False
                    stride = positions[step.end, foot[0]] - positions[step.start, foot[0]]
                    assert stride[2].item() == pytest.approx(step.length * character.height, abs=2e-5)
                    assert sole[step.start + 1 : step.end, :, 1].amin(1).max() > 0.02
            assert sole[planted][..., 1].amin(1).abs().max() < 1e-4
            both = planted[1:] & planted[:-1]
            # 10 µm: rotations are rounded to 6 decimals, three of them above a sole.
            assert sole.diff(dim=0)[both].norm(dim=-1).max() < 2e-5
            assert sole[..., 1].min() > -1e-4


def holds(motion_name):
    """(side, touch, first frame, last frame) of the hands that stay on the body."""
    score = SCORE[motion_name]
    for side, keys in zip(SIDES, (score.left, score.right), strict=True):
        for first, last in itertools.pairwise(keys):
            if first.pose == last.pose and first.touch in ("belly", "chest", "head", "thigh"):
                yield side, first.touch, first.frame, last.frame


def test_the_dataset_has_holds_of_every_kind():
    found = {touch for motion_name in SCORE for _, touch, _, _ in holds(motion_name)}
    assert found == {"belly", "chest", "head", "thigh"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("motion_name", [name for name in SCORE if list(holds(name))])
def test_held_palms_are_the_same_few_millimetres_off_the_skin_on_every_body(dataset, name, motion_name):
    character = dataset.character(name)
    posed = Skinner.from_character(character).pose(*joints(dataset, name, motion_name)).double().numpy()
    for side, _, first, last in holds(motion_name):
        at = palm(dataset, name, motion_name, side).double().numpy()
        faces = without_arm(character, side)
        gaps = []
        for frame in range(first, last + 1, 4):
            point = at[frame : frame + 1]
            gaps.append(np.sqrt(igl.point_mesh_squared_distance(point, posed[frame], faces)[0][0]))
            assert igl.winding_number(posed[frame], faces, point)[0] < 0.5
        # Facets lie up to 5 mm inside the round surface that the palm keeps its clearance from.
        assert TOUCH_CLEARANCE - 5e-4 < min(gaps) <= max(gaps) < TOUCH_CLEARANCE + 5e-3
        assert max(gaps) - min(gaps) < 5e-4  # on the skin however the trunk bends


@pytest.mark.parametrize("name", NAMES)
def test_palms_meet_in_a_clap_and_part_in_between(dataset, name):
    apart = (palm(dataset, name, "clap", "Left") - palm(dataset, name, "clap", "Right")).norm(dim=-1)
    together = apart[[22, 23, 24, 38, 39, 40]]
    torch.testing.assert_close(together, torch.full((6,), 2 * TOUCH_CLEARANCE), rtol=0, atol=5e-5)
    wide = 2 * (TOUCH_CLEARANCE + 0.09 * dataset.character(name).height)
    assert apart[[16, 31, 46]].tolist() == pytest.approx([wide] * 3, abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_hands_that_touch_nothing_stay_away_from_the_body(dataset, name):
    character = dataset.character(name)
    radius = Body(BUILD[name]).measures.arm_radius
    for motion_name in ("idle_sway", "walk", "wave"):
        posed = Skinner.from_character(character).pose(*joints(dataset, name, motion_name)).double().numpy()
        for side in SIDES:
            at = palm(dataset, name, motion_name, side).double().numpy()
            faces = without_arm(character, side)
            gaps = [
                np.sqrt(igl.point_mesh_squared_distance(at[frame : frame + 1], posed[frame], faces)[0][0])
                for frame in range(0, len(at), 6)
            ]
            assert min(gaps) > radius, (motion_name, side)


@pytest.mark.parametrize("name", NAMES)
def test_arms_stay_out_of_the_body_in_every_motion(dataset, name):
    # The upper arms of the stout body press a vertex each into its flanks, a few millimetres deep.
    allowed = (0.6, 5e-3) if name == "stout" else (0.0, 0.0)
    for motion_name in SCORE:
        clip = dataset.clip(name, motion_name)
        columns = frozenset({"penetration", "penetration_depth"})
        values = Penetration().evaluate(Evaluation(clip, clip.character, clip.motion), columns)
        assert values["penetration"].per_frame.max() <= allowed[0], motion_name
        assert values["penetration_depth"].value <= allowed[1], motion_name


# The dataset


def test_names_are_sorted_and_every_motion_is_on_every_body(dataset):
    assert dataset.name == "capsules"
    assert dataset.character_names == tuple(sorted(NAMES))
    assert dataset.clip_names == tuple(sorted(itertools.product(NAMES, SCORE)))
    assert len(dataset.clip_names) == 48


def test_seen_and_unseen_are_both_there(dataset):
    assert set(NAMES) - dataset.seen_characters == {"child", "stout"}
    assert set(SCORE) - dataset.seen_motions == {"arms_crossed", "hand_to_head", "wave"}
    assert {SCORE[name].family for name in dataset.seen_motions} == {"locomotion", "gesture", "contact"}


def test_the_split_has_every_pair_once_in_its_atom(dataset):
    split = dataset.split()
    assert {(row.source, row.motion, row.target) for row in split.rows} == {
        (source, motion, target)
        for source, motion, target in itertools.product(NAMES, SCORE, NAMES)
        if source != target
    }
    assert len(split.rows) == 6 * 8 * 5
    for row in split.rows:
        target = "UC" if row.target in ("child", "stout") else "SC"
        motion = "UM" if row.motion in ("arms_crossed", "hand_to_head", "wave") else "SM"
        assert row.atom == f"{target}+{motion}"
    dataset.check_rows(split.rows)


@pytest.mark.parametrize("atom", SPLIT_ATOMS)
def test_the_default_set_of_each_atom_is_24_rows_balanced_over_targets_and_motions(dataset, atom):
    rows = dataset.split().select([atom])
    assert len(rows) == 24
    for values, size in (
        ([row.target for row in rows], 2 if atom.startswith("UC") else 4),
        ([row.motion for row in rows], 3 if atom.endswith("UM") else 5),
    ):
        counts = Counter(values)
        assert len(counts) == size
        assert max(counts.values()) - min(counts.values()) <= 1
    assert len({row.source for row in rows}) >= 5


def test_tasks_carry_the_targets_own_version_as_ground_truth(dataset):
    row = dataset.split().select(["UC+UM"])[0]
    task = dataset.task(row)
    assert task.source is dataset.clip(row.source, row.motion)
    assert task.target is dataset.character(row.target)
    assert task.ground_truth is dataset.clip(row.target, row.motion).motion
    assert task.atom == "UC+UM"


def test_nothing_is_built_before_it_is_asked_for(monkeypatch):
    solved = []
    solve = module.solve
    monkeypatch.setattr(module, "solve", lambda body, score: solved.append(score.name) or solve(body, score))
    monkeypatch.setattr(Body, "_arm", lambda self: pytest.fail("a body was built"))
    dataset = CapsuleDataset()
    assert len(dataset.clip_names) == 48
    assert len(dataset.split().rows) == 240
    assert dataset.seen_characters
    assert solved == []
    monkeypatch.undo()
    monkeypatch.setattr(module, "solve", lambda body, score: solved.append(score.name) or solve(body, score))
    for _ in range(2):
        dataset.clip("slim", "walk")
    assert solved == ["walk"]


def test_asking_twice_gives_the_same_objects(dataset):
    assert dataset.character("slim") is dataset.character("slim")
    assert dataset.clip("slim", "walk") is dataset.clip("slim", "walk")
    assert dataset.clip("slim", "walk").character is dataset.character("slim")


def test_clips_do_not_depend_on_what_was_built_before(dataset):
    alone = open_capsules().clip("longarm", "crouch").motion
    among_others = dataset.clip("longarm", "crouch").motion
    assert torch.equal(alone.local_rotations, among_others.local_rotations)
    assert torch.equal(alone.root_translation, among_others.root_translation)


def test_another_process_with_more_threads_builds_the_same_content(dataset):
    program = (
        "import torch; torch.set_num_threads(2);"
        "from retargetbench.datasets.capsules import open_capsules; print(open_capsules().hash)"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == dataset.hash


def test_the_content_is_frozen(dataset):
    # Values are rounded, and still two machines that were met differ; why is open. Who changes the dataset
    # changes this line and, since figures are no longer comparable, the changelog.
    assert dataset.hash in {"bd7f7e41b7e91968", "b30fb3070b0a567f"}


def test_the_hash_sees_characters_clips_and_splits(dataset, monkeypatch):
    assert len(dataset.hash) == 16
    assert int(dataset.hash, 16) >= 0
    hashes = {dataset.hash}
    moved = open_capsules()
    moved.clip("slim", "walk").motion.root_translation[3, 0] += 1e-6
    hashes.add(moved.hash)
    grown = open_capsules()
    grown.character("giant").bind_vertices[5, 1] += 1e-6
    hashes.add(grown.hash)
    monkeypatch.setattr(module, "UNSEEN_MOTIONS", frozenset({"wave"}))
    hashes.add(open_capsules().hash)
    assert len(hashes) == 4


def test_unknown_names_are_answered_with_the_known_ones(dataset):
    with pytest.raises(DatasetError, match="no character 'gaint'; it has: average, child, giant"):
        dataset.character("gaint")
    with pytest.raises(DatasetError, match="no character 'gaint'"):
        dataset.clip("gaint", "walk")
    with pytest.raises(DatasetError, match="no motion 'run'; it has: arms_crossed, clap"):
        dataset.clip("giant", "run")
    with pytest.raises(DatasetError, match="no split 'test'; it has: default"):
        dataset.split("test")


def test_the_dataset_passes_its_own_check(dataset):
    report = check_dataset(dataset)
    assert [finding.text for finding in report.findings] == []
