"""Saving motions by file name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion

from retargetbench.errors import CharacterError, UsageError
from retargetbench.formats.bvh import read_bvh
from retargetbench.formats.export import save_bvh, save_motion
from retargetbench.kinematics import forward_kinematics
from retargetbench.motion import Motion
from retargetbench.skeleton import Skeleton, find_canonical_map

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("extra", [False, True], ids=["canonical joints", "more joints"])
@pytest.mark.parametrize("units_per_metre", [100.0, 1.0])
def test_saved_bvh_moves_every_joint_alike(tmp_path: Path, extra: bool, units_per_metre: float) -> None:
    skeleton = human_skeleton(extra_joints=extra)
    motion = random_motion(skeleton, 12, fps=60)
    save_bvh(tmp_path / "clip.bvh", skeleton, motion, units_per_metre=units_per_metre)
    bvh = read_bvh(tmp_path / "clip.bvh")
    assert bvh.fps == 60
    again = Skeleton(bvh.names, bvh.parents, torch.tensor(bvh.offsets / units_per_metre), find_canonical_map(bvh.names))
    _, positions = forward_kinematics(
        again, torch.tensor(bvh.root_positions / units_per_metre), torch.tensor(bvh.rotations)
    )
    _, expected = forward_kinematics(skeleton, motion.root_translation, motion.local_rotations)
    by_name = [bvh.names.index(name) for name in skeleton.names]
    # Six decimals: 5e-5 units in centimetres (r2et.md §1); in metres the rounded offsets of a chain add up.
    atol = 5e-7 if units_per_metre == 100 else 1e-5
    np.testing.assert_allclose(positions[:, by_name].numpy(), expected.numpy(), atol=atol)


def test_suffix_chooses_the_format(tmp_path: Path) -> None:
    skeleton = human_skeleton()
    character, motion = random_character(skeleton), random_motion(skeleton, 4)
    save_motion(tmp_path / "clip.bvh", character, motion)
    save_motion(tmp_path / "clip.GLB", character, motion)
    assert (tmp_path / "clip.bvh").read_bytes().startswith(b"HIERARCHY")
    assert (tmp_path / "clip.GLB").read_bytes().startswith(b"glTF\x02\x00\x00\x00")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip.GLB", "clip.bvh"]


def test_saved_bvh_of_a_float32_motion_is_in_centimetres(tmp_path: Path) -> None:
    skeleton = human_skeleton()
    motion = random_motion(skeleton, 2, dtype=torch.float32)
    save_motion(tmp_path / "clip.bvh", random_character(skeleton), motion)
    expected = 100 * motion.root_translation.double().numpy()
    np.testing.assert_allclose(read_bvh(tmp_path / "clip.bvh").root_positions, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["clip.fbx", "clip", "glb"])
def test_unknown_suffix_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    skeleton = human_skeleton()
    with pytest.raises(UsageError, match=r"unknown suffix .*; accepted: \.bvh, \.glb"):
        save_motion(tmp_path / name, random_character(skeleton), random_motion(skeleton, 4))
    assert list(tmp_path.iterdir()) == []


def test_motion_of_another_skeleton_is_refused(tmp_path: Path) -> None:
    motion = Motion(torch.zeros(1, 3), torch.tensor([[[0.0, 0.0, 0.0, 1.0]]]), 30)
    with pytest.raises(CharacterError, match="22 joints"):
        save_bvh(tmp_path / "clip.bvh", human_skeleton(), motion)
