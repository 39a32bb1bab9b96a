"""GLB files: read back with pygltflib, evaluated slowly in NumPy, and checked by Khronos' validator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from glb_files import LoadedGlb, validator_issues
from rigs import human_skeleton, random_character, random_motion

from retargetbench.character import Character
from retargetbench.errors import CharacterError, UsageError
from retargetbench.formats.export import save_glb
from retargetbench.formats.gltf import influence_sets, vertex_normals
from retargetbench.formats.shape_npz import read_shape_npz
from retargetbench.kinematics import Skinner
from retargetbench.skeleton import canonical_skeleton

if TYPE_CHECKING:
    from pathlib import Path

    from retargetbench.motion import Motion


def example(*, influences: int = 6, frames: int = 5, extra: bool = True) -> tuple[Character, Motion]:
    skeleton = human_skeleton(extra_joints=extra)
    return random_character(skeleton, vertices=60, influences=influences), random_motion(skeleton, frames, fps=60)


@pytest.mark.parametrize("influences", [1, 3, 4, 5, 10])
def test_other_programs_pose_the_file_as_we_do(tmp_path: Path, influences: int) -> None:
    character, motion = example(influences=influences)
    save_glb(tmp_path / "clip.glb", character, motion)
    loaded = LoadedGlb(tmp_path / "clip.glb")
    assert loaded.joints.shape[1] == 4 * -(-influences // 4)
    expected = Skinner.from_character(character).pose_motion(motion).numpy()
    for frame in (0, 2, 4):
        np.testing.assert_allclose(loaded.pose(0, frame), expected[frame], atol=1e-5)
    np.testing.assert_allclose(loaded.pose(None), character.rest_vertices.numpy(), atol=1e-5)


def test_float32_characters_pose_alike(tmp_path: Path, device: torch.device) -> None:
    character, motion = example()
    save_glb(tmp_path / "clip.glb", character.to(device, torch.float32), motion.to(device, torch.float32))
    expected = Skinner.from_character(character).pose_motion(motion).numpy()
    np.testing.assert_allclose(LoadedGlb(tmp_path / "clip.glb").pose(0, 3), expected[3], atol=1e-5)


def test_file_holds_names_hierarchy_faces_and_times(tmp_path: Path) -> None:
    character, motion = example()
    save_glb(tmp_path / "clip.glb", character, motion, name="wave")
    loaded = LoadedGlb(tmp_path / "clip.glb")
    skeleton, nodes = character.skeleton, loaded.gltf.nodes
    assert [nodes[j].name for j in loaded.skin_joints] == list(skeleton.names)
    parents = {child: parent for parent, node in enumerate(nodes) for child in node.children or []}
    assert [parents.get(j, -1) for j in range(skeleton.joint_count)] == list(skeleton.parents)
    np.testing.assert_array_equal(loaded.faces, character.faces.numpy())
    (animation,) = loaded.gltf.animations
    assert animation.name == "wave"
    np.testing.assert_allclose(loaded.array(animation.samplers[0].input), np.arange(5) / 60, atol=1e-7)
    assert len(animation.channels) == skeleton.joint_count + 1
    assert {sampler.interpolation for sampler in animation.samplers} == {"LINEAR"}


def test_several_motions_become_named_animations(tmp_path: Path) -> None:
    character, first = example()
    second = random_motion(character.skeleton, 3, seed=9)
    save_glb(tmp_path / "clip.glb", character, {"source": first, "copy": second})
    loaded = LoadedGlb(tmp_path / "clip.glb")
    assert [animation.name for animation in loaded.gltf.animations] == ["source", "copy"]
    skinner = Skinner.from_character(character)
    np.testing.assert_allclose(loaded.pose(0, 4), skinner.pose_motion(first)[4].numpy(), atol=1e-5)
    np.testing.assert_allclose(loaded.pose(1, 2), skinner.pose_motion(second)[2].numpy(), atol=1e-5)


def test_motion_of_another_skeleton_is_refused(tmp_path: Path) -> None:
    character, _ = example()
    with pytest.raises(CharacterError, match="26 joints"):
        save_glb(tmp_path / "clip.glb", character, random_motion(human_skeleton(), 3))
    with pytest.raises(UsageError, match="cannot be written"):
        save_glb(tmp_path / "none" / "clip.glb", character, random_motion(character.skeleton, 3))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("influences", "frames", "extra"), [(1, 1, False), (4, 2, True), (10, 7, True)], ids=["1", "4", "10 influences"]
)
def test_khronos_validator_finds_nothing(tmp_path: Path, influences: int, frames: int, extra: bool) -> None:
    character, motion = example(influences=influences, frames=frames, extra=extra)
    path = tmp_path / "clip.glb"
    save_glb(path, character, {"a": motion, "b": random_motion(character.skeleton, 3, seed=2)})
    issues = validator_issues(path)
    assert (issues["numErrors"], issues["numWarnings"], issues["numInfos"]) == (0, 0, 0), issues["messages"]


def test_khronos_validator_would_find_a_broken_file(tmp_path: Path) -> None:
    character, motion = example()
    path = tmp_path / "clip.glb"
    save_glb(path, character, motion)
    path.write_bytes(path.read_bytes().replace(b'"LINEAR"', b'"LINEAL"'))
    assert validator_issues(path)["numErrors"] + validator_issues(path)["numWarnings"] > 0


def test_influences_are_merged_sorted_and_padded() -> None:
    joints = np.array([[5, 3, 5, 9, 7], [0, 1, 2, 3, 4]])
    weights = np.array([[0.2, 0.3, 0.4, 0.1, 0.0], [0.0, 0.25, 0.0, 0.75, 0.0]])
    merged_joints, merged_weights = influence_sets(joints, weights)
    np.testing.assert_array_equal(merged_joints, [[5, 3, 9, 0], [3, 1, 0, 0]])
    np.testing.assert_allclose(merged_weights, [[0.6, 0.3, 0.1, 0], [0.75, 0.25, 0, 0]], atol=1e-7)


def test_written_weights_sum_to_one_in_float32() -> None:
    rng = np.random.default_rng(0)
    joints = np.argsort(rng.random((5000, 20)), axis=1)[:, :9]
    weights = rng.dirichlet(np.full(9, 0.3), 5000)
    merged_joints, merged_weights = influence_sets(joints, weights)
    assert merged_weights.dtype == np.float32
    np.testing.assert_allclose(merged_weights.sum(-1, dtype=np.float64), 1.0, atol=6e-8)
    dense, expected = np.zeros((5000, 20)), np.zeros((5000, 20))
    np.add.at(dense, (np.arange(5000)[:, None], merged_joints), merged_weights)
    np.add.at(expected, (np.arange(5000)[:, None], joints), weights)
    np.testing.assert_allclose(dense, expected, atol=2e-7)


def test_normals_of_a_sphere_point_outward_and_loose_vertices_get_one() -> None:
    trimesh = pytest.importorskip("trimesh")
    sphere = trimesh.creation.icosphere(subdivisions=3)
    vertices = np.concatenate([sphere.vertices, [[5.0, 0.0, 0.0]]])
    normals = vertex_normals(vertices, sphere.faces)
    assert float((normals[:-1] * sphere.vertices).sum(-1).min()) > 0.999
    np.testing.assert_array_equal(normals[-1], [0, 1, 0])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["Mousey", "Ortiz"])
def test_real_character_passes_the_validator(shared_dir: Path, tmp_path: Path, name: str) -> None:
    shape = read_shape_npz(shared_dir / "data/r2et_mixamo/shape" / f"{name}.npz")
    skeleton = canonical_skeleton(torch.tensor(shape.offsets / 100))
    inverse_bind = torch.eye(4, dtype=torch.float64).repeat(22, 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    weights = torch.tensor(shape.weights / shape.weights.sum(-1, keepdims=True))
    character = Character(
        name,
        skeleton,
        torch.tensor((shape.rest_vertices + shape.offsets[0]) / 100),
        inverse_bind,
        torch.tensor(shape.faces),
        torch.arange(22).repeat(len(shape.weights), 1),
        weights,
    )
    save_glb(tmp_path / "clip.glb", character, random_motion(skeleton, 30))
    issues = validator_issues(tmp_path / "clip.glb")
    assert (issues["numErrors"], issues["numWarnings"]) == (0, 0), issues["messages"]
