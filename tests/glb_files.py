"""GLB files as other programs see them: read with pygltflib, posed slowly in NumPy, checked by Khronos' validator."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

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
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("GLTF_VALIDATOR_DIR", root))
    if shutil.which("node") is None or not (folder / "node_modules" / "gltf-validator").is_dir():
        pytest.skip("glTF validator needs Node and gltf-validator: npm install gltf-validator, or GLTF_VALIDATOR_DIR")
    return folder


def validator_issues(path: Path) -> dict:
    """What the validator reports on a file; skips where there is no validator."""
    driver = Path(__file__).parent / "formats" / "validate_gltf.mjs"
    command = ["node", str(driver), str(validator_folder()), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)
