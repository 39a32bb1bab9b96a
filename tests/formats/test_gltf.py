"""GLB files: read back with pygltflib, evaluated slowly in NumPy, and checked by Khronos' validator."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from rigs import human_skeleton, random_character, random_motion
from scipy.spatial.transform import Rotation

from retargetbench.character import Character
from retargetbench.errors import CharacterError, UsageError
from retargetbench.formats.export import save_glb
from retargetbench.formats.gltf import influence_sets, vertex_normals
from retargetbench.formats.shape_npz import read_shape_npz
from retargetbench.kinematics import Skinner
from retargetbench.skeleton import canonical_skeleton

if TYPE_CHECKING:
    from retargetbench.motion import Motion

pygltflib = pytest.importorskip("pygltflib")

DTYPES = {5121: np.uint8, 5123: np.uint16, 5125: np.uint32, 5126: np.float32}
WIDTHS = {"SCALAR": 1, "VEC3": 3, "VEC4": 4, "MAT4": 16}


class LoadedGlb:
    """A GLB file as another program sees it: nothing of ours is used to read or to pose it."""

    def __init__(self, path: Path) -> None:
        self.gltf = pygltflib.GLTF2().load(str(path))
        self.blob = self.gltf.binary_blob()
        primitive = self.gltf.meshes[0].primitives[0]
        self.vertices = self.array(primitive.attributes.POSITION)
        self.normals = self.array(primitive.attributes.NORMAL)
        self.faces = self.array(primitive.indices).reshape(-1, 3)
        # pygltflib knows two sets by name; further ones are plain attributes of the same object.
        names = sorted(n for n, value in vars(primitive.attributes).items() if n.startswith("JOINTS_") and value)
        self.joints = np.concatenate([self.array(getattr(primitive.attributes, n)) for n in names], 1)
        weight_names = [n.replace("JOINTS", "WEIGHTS") for n in names]
        self.weights = np.concatenate([self.array(getattr(primitive.attributes, n)) for n in weight_names], 1)
        skin = self.gltf.skins[0]
        self.inverse_bind = self.array(skin.inverseBindMatrices).reshape(-1, 4, 4).transpose(0, 2, 1).astype(float)
        self.skin_joints = skin.joints

    def array(self, accessor_index: int) -> np.ndarray:
        accessor = self.gltf.accessors[accessor_index]
        view = self.gltf.bufferViews[accessor.bufferView]
        width = WIDTHS[accessor.type]
        start = (view.byteOffset or 0) + (accessor.byteOffset or 0)
        flat = np.frombuffer(self.blob, DTYPES[accessor.componentType], accessor.count * width, start)
        return flat.reshape(accessor.count, width) if width > 1 else flat

    def pose(self, animation: int | None, frame: int = 0) -> np.ndarray:
        """Pose the mesh at a key frame, or at rest for None, node by node and vertex by vertex."""
        nodes = self.gltf.nodes
        translations = [np.array(node.translation or [0, 0, 0], float) for node in nodes]
        rotations = [np.array(node.rotation or [0, 0, 0, 1], float) for node in nodes]
        if animation is not None:
            chosen = self.gltf.animations[animation]
            for channel in chosen.channels:
                value = self.array(chosen.samplers[channel.sampler].output)[frame].astype(float)
                (translations if channel.target.path == "translation" else rotations)[channel.target.node] = value
        world: dict[int, np.ndarray] = {}

        def place(index: int, above: np.ndarray) -> None:
            local = np.eye(4)
            local[:3, :3] = Rotation.from_quat(rotations[index]).as_matrix()
            local[:3, 3] = translations[index]
            world[index] = above @ local
            for child in nodes[index].children or []:
                place(child, world[index])

        for root in self.gltf.scenes[0].nodes:
            place(root, np.eye(4))
        matrices = [world[node] @ inverse for node, inverse in zip(self.skin_joints, self.inverse_bind, strict=True)]
        posed = np.zeros((len(self.vertices), 3))
        for v, vertex in enumerate(self.vertices):
            for joint, weight in zip(self.joints[v], self.weights[v], strict=True):
                posed[v] += float(weight) * (matrices[joint] @ [*vertex, 1.0])[:3]
        return posed


def validator_folder() -> Path:
    """The folder whose node_modules holds gltf-validator."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("GLTF_VALIDATOR_DIR", root))
    if shutil.which("node") is None or not (folder / "node_modules" / "gltf-validator").is_dir():
        pytest.skip("glTF validator needs Node and gltf-validator: npm install gltf-validator, or GLTF_VALIDATOR_DIR")
    return folder


def validator_issues(path: Path) -> dict:
    driver = Path(__file__).with_name("validate_gltf.mjs")
    command = ["node", str(driver), str(validator_folder()), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


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
