"""The plugin copy, by closed form and by slow arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion
from scipy.spatial.transform import Rotation

from retargetbench import (
    CANONICAL_JOINTS,
    Character,
    Clip,
    Motion,
    Skeleton,
    UsageError,
    canonical_skeleton,
    check_method,
    from_canonical_motion,
    to_canonical_motion,
)
from retargetbench_copy.method import CopyMethod

ROOT_RULES = ("height_ratio", "hip_height", "none")


def stick_figure(skeleton: Skeleton, name: str = "figure") -> Character:
    """A character with one vertex at every joint, which moves with that joint alone."""
    count = skeleton.joint_count
    inverse_bind = torch.eye(4, dtype=skeleton.offsets.dtype).repeat(count, 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    return Character(
        name,
        skeleton,
        skeleton.rest_positions,
        inverse_bind,
        torch.arange(count - 2)[:, None] + torch.arange(3),
        torch.arange(count)[:, None],
        torch.ones(count, 1, dtype=skeleton.offsets.dtype),
    )


def standing(skeleton: Skeleton, path: list[tuple[float, float, float]]) -> Motion:
    """The rest pose, carried along a path of the hips."""
    rotations = torch.zeros(len(path), skeleton.joint_count, 4, dtype=torch.float64)
    rotations[..., 3] = 1.0
    return Motion(torch.tensor(path, dtype=torch.float64), rotations, 30.0)


def slow_soles(skeleton: Skeleton, motion: Motion) -> np.ndarray:
    """Heights of feet and toe bases in every frame, joint by joint with SciPy's rotations."""
    heights = np.zeros((motion.frame_count, 4))
    for t in range(motion.frame_count):
        rotations, positions = [], []
        for j, parent in enumerate(skeleton.parents):
            local = Rotation.from_quat(motion.local_rotations[t, j].numpy())
            if parent < 0:
                rotations.append(local)
                positions.append(motion.root_translation[t].numpy())
            else:
                rotations.append(rotations[parent] * local)
                positions.append(positions[parent] + rotations[parent].apply(skeleton.offsets[j].numpy()))
        names = [f"{side}{part}" for side in ("Left", "Right") for part in ("Foot", "ToeBase")]
        heights[t] = [positions[skeleton.canonical[CANONICAL_JOINTS.index(name)]][1] for name in names]
    return heights


def test_conforms():
    report = check_method("copy")
    assert report.passed, report


@pytest.mark.parametrize("extra_joints", [False, True])
@pytest.mark.parametrize("root", ROOT_RULES)
def test_copy_onto_itself_is_identity(root: str, extra_joints: bool, device: torch.device):
    skeleton = human_skeleton(extra_joints=extra_joints)
    clip = Clip("walk", random_character(skeleton), random_motion(skeleton, 20)).to(device)
    (motion,) = CopyMethod(device=device, root=root).retarget([clip], clip.character)
    wanted = to_canonical_motion(clip.character.skeleton, clip.motion)
    torch.testing.assert_close(motion.root_translation, wanted.root_translation, atol=1e-9, rtol=0)
    torch.testing.assert_close(motion.local_rotations, wanted.local_rotations, atol=1e-9, rtol=0)


# Hips of the source rise from 0.1 m to 0.4 m above their rest at 1 m; toes rest at 0.02 m. The half figure has its
# hips at 0.5 m and toes at 0.01 m. The high figure is as tall as the source with hips and toes 1 m higher.
HALF = human_skeleton(scale=0.5)
HIGH = canonical_skeleton(human_skeleton().offsets + torch.eye(22, 3).roll(1, 1).double() * torch.eye(22, 1))


@pytest.mark.parametrize(
    ("target", "root", "wanted"),
    [
        (HALF, "height_ratio", [(0.3, 0.61, -0.2), (0.8, 0.76, 0.3)]),
        (HALF, "hip_height", [(0.3, 0.61, -0.2), (0.8, 0.76, 0.3)]),
        (HALF, "none", [(0.3, 0.61, -0.2), (1.3, 0.91, 0.8)]),
        (HIGH, "height_ratio", [(0.3, 1.1, -0.2), (1.3, 1.4, 0.8)]),
        (HIGH, "hip_height", [(0.3, 1.1, -0.2), (2.3, 1.7, 1.8)]),
        (HIGH, "none", [(0.3, 1.1, -0.2), (1.3, 1.4, 0.8)]),
    ],
)
def test_root_follows_the_rule_worked_out_by_hand(target: Skeleton, root: str, wanted: list[tuple[float, ...]]):
    source = human_skeleton()
    clip = Clip("rise", stick_figure(source), standing(source, [(0.3, 1.1, -0.2), (1.3, 1.4, 0.8)]))
    (motion,) = CopyMethod(root=root).retarget([clip], stick_figure(target))
    torch.testing.assert_close(motion.root_translation, torch.tensor(wanted, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("root", ROOT_RULES)
@pytest.mark.parametrize("seed", [0, 1])
def test_lowest_sole_is_as_high_as_the_sources(root: str, seed: int):
    source, target = human_skeleton(), human_skeleton(extra_joints=True, scale=1.3)
    clip = Clip("move", stick_figure(source), random_motion(source, 15, seed=seed))
    (motion,) = CopyMethod(root=root).retarget([clip], stick_figure(target))
    full = from_canonical_motion(target, motion, clip)
    assert slow_soles(target, full).min() == pytest.approx(slow_soles(source, clip.motion).min(), abs=1e-6)


def test_rotations_are_the_sources_untouched():
    source = human_skeleton()
    clip = Clip("move", stick_figure(source), random_motion(source, 10))
    (motion,) = CopyMethod().retarget([clip], stick_figure(HALF))
    assert torch.equal(motion.local_rotations, clip.motion.local_rotations)


def test_motion_does_not_depend_on_where_the_source_stands():
    source = human_skeleton()
    motion = random_motion(source, 10)
    shift = torch.tensor([5.0, 0.0, -3.0], dtype=torch.float64)
    moved = Motion(motion.root_translation + shift, motion.local_rotations, motion.fps)
    here, there = CopyMethod().retarget(
        [Clip("here", stick_figure(source), motion), Clip("there", stick_figure(source), moved)], stick_figure(HALF)
    )
    torch.testing.assert_close(there.root_translation, here.root_translation + shift)


def test_another_root_rule_is_refused():
    with pytest.raises(UsageError, match="root='half' is not one of: height_ratio, hip_height, none"):
        CopyMethod(root="half")
