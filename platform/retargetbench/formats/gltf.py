"""Binary glTF 2.0 (GLB) files of a skinned, animated character, for Blender and for browsers.

glTF speaks the house convention already: metres, Y up, facing +Z, quaternions xyzw.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from retargetbench.formats._rotations import hemisphere_continuous

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.formats._rotations import Array

_COMPONENT_TYPES = {"float32": 5126, "uint8": 5121, "uint16": 5123, "uint32": 5125}
_ARRAY_BUFFER, _ELEMENT_ARRAY_BUFFER = 34962, 34963

_MATERIAL = {
    "name": "clay",
    "doubleSided": True,  # hair and clothes are often open sheets
    "pbrMetallicRoughness": {"baseColorFactor": [0.62, 0.70, 0.80, 1.0], "metallicFactor": 0.0, "roughnessFactor": 0.8},
}


@dataclass(frozen=True, eq=False)
class GltfSkinnedMesh:
    """A mesh bound to a skeleton whose joint frames are world-aligned at rest.

    Attributes:
        name: of the mesh and its node.
        joint_names: J names.
        parents: index of each joint's parent, -1 for the root, which comes first.
        offsets: rest offsets to the parent, (J, 3) metres; row 0 is the rest position of the root.
        inverse_bind: bind space to joint rest frame, (J, 4, 4).
        bind_vertices: (V, 3).
        faces: triangles, (F, 3), counter-clockwise seen from outside.
        influence_joints: (V, K); a joint may stand more than once in a row.
        influence_weights: (V, K); rows sum to 1, unused places are 0.
    """

    name: str
    joint_names: tuple[str, ...]
    parents: tuple[int, ...]
    offsets: Array
    inverse_bind: Array
    bind_vertices: Array
    faces: npt.NDArray[np.int64]
    influence_joints: npt.NDArray[np.int64]
    influence_weights: Array


@dataclass(frozen=True, eq=False)
class GltfAnimation:
    """A motion of all joints: root positions (T, 3) metres, unit quaternions xyzw (T, J, 4), frames a second."""

    name: str
    root_translation: Array
    local_rotations: Array
    fps: float


def encode_glb(mesh: GltfSkinnedMesh, animations: Sequence[GltfAnimation] = ()) -> bytes:
    """Encode a skinned mesh and its animations as a GLB file.

    Nothing is cut: a vertex with ten influences gets the attribute sets JOINTS_0..2 and WEIGHTS_0..2. (Many viewers
    use the first set alone; the largest weights are there.) Nodes stand in the rest pose; every animation has a
    linear rotation channel for each joint and a translation channel for the root. Normals are the area-weighted
    means of the adjacent faces in the bind pose.

    Source: Khronos, glTF 2.0 specification, §3.7.3 (skins), §3.11 (animations), §4.4 (GLB).
    """
    binary = _BinaryChunk()
    joint_count = len(mesh.joint_names)
    nodes: list[dict[str, Any]] = [
        {"name": name, "translation": offset.tolist()}
        for name, offset in zip(mesh.joint_names, mesh.offsets, strict=True)
    ]
    for joint, parent in enumerate(mesh.parents[1:], start=1):
        nodes[parent].setdefault("children", []).append(joint)
    nodes.append({"name": mesh.name, "mesh": 0, "skin": 0})
    column_major = mesh.inverse_bind.transpose(0, 2, 1).reshape(joint_count, 16)
    document: dict[str, Any] = {
        "asset": {"version": "2.0", "generator": "RetargetBench"},
        "scene": 0,
        "scenes": [{"nodes": [0, joint_count]}],
        "nodes": nodes,
        "materials": [_MATERIAL],
        "meshes": [{"name": mesh.name, "primitives": [_primitive(mesh, binary)]}],
        "skins": [
            {
                "joints": list(range(joint_count)),
                "skeleton": 0,
                "inverseBindMatrices": binary.add(column_major.astype(np.float32), "MAT4"),
            }
        ],
    }
    if animations:
        document["animations"] = [_animation(animation, binary) for animation in animations]
    document |= binary.description()
    return _pack(document, binary.content())


class _BinaryChunk:
    """The binary part of a GLB file, growing array by array."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0
        self._views: list[dict[str, Any]] = []
        self._accessors: list[dict[str, Any]] = []

    def add(self, array: npt.NDArray[Any], kind: str, *, target: int | None = None, bounds: bool = False) -> int:
        """Append an array, one row per element, and return the index of its accessor."""
        view: dict[str, Any] = {"buffer": 0, "byteOffset": self._length, "byteLength": array.nbytes}
        if target is not None:
            view["target"] = target
        accessor: dict[str, Any] = {
            "bufferView": len(self._views),
            "componentType": _COMPONENT_TYPES[array.dtype.name],
            "count": len(array),
            "type": kind,
        }
        if bounds:
            accessor["min"] = np.atleast_1d(array.min(0)).tolist()
            accessor["max"] = np.atleast_1d(array.max(0)).tolist()
        # Every array starts at a multiple of its component size, 4 bytes at most.
        part = array.tobytes() + bytes(-array.nbytes % 4)
        self._parts.append(part)
        self._length += len(part)
        self._views.append(view)
        self._accessors.append(accessor)
        return len(self._accessors) - 1

    def description(self) -> dict[str, Any]:
        return {
            "accessors": self._accessors,
            "bufferViews": self._views,
            "buffers": [{"byteLength": self._length}],
        }

    def content(self) -> bytes:
        return b"".join(self._parts)


def _primitive(mesh: GltfSkinnedMesh, binary: _BinaryChunk) -> dict[str, Any]:
    positions = mesh.bind_vertices.astype(np.float32)
    normals = vertex_normals(mesh.bind_vertices, mesh.faces).astype(np.float32)
    # 65535 is the primitive restart index, which no vertex may have.
    index_type = np.uint16 if len(positions) <= 65535 else np.uint32
    attributes = {
        "POSITION": binary.add(positions, "VEC3", target=_ARRAY_BUFFER, bounds=True),
        "NORMAL": binary.add(normals, "VEC3", target=_ARRAY_BUFFER),
    }
    joints, weights = influence_sets(mesh.influence_joints, mesh.influence_weights)
    joint_type = np.uint8 if len(mesh.joint_names) <= 256 else np.uint16
    for number in range(joints.shape[1] // 4):
        places = slice(4 * number, 4 * number + 4)
        attributes[f"JOINTS_{number}"] = binary.add(joints[:, places].astype(joint_type), "VEC4", target=_ARRAY_BUFFER)
        attributes[f"WEIGHTS_{number}"] = binary.add(weights[:, places], "VEC4", target=_ARRAY_BUFFER)
    indices = binary.add(mesh.faces.reshape(-1).astype(index_type), "SCALAR", target=_ELEMENT_ARRAY_BUFFER)
    return {"attributes": attributes, "indices": indices, "material": 0}


def vertex_normals(vertices: Array, faces: npt.NDArray[np.int64]) -> Array:
    """Return unit normals (V, 3): area-weighted means over adjacent faces, +Y where there is none.

    Example:
        >>> vertex_normals(np.eye(3), np.array([[0, 1, 2]])).round(3)[0].tolist()
        [0.577, 0.577, 0.577]
    """
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    doubled_areas = np.cross(b - a, c - a)
    corners = faces.reshape(-1)
    normals = np.stack(
        [np.bincount(corners, np.repeat(doubled_areas[:, axis], 3), len(vertices)) for axis in range(3)], -1
    )
    lengths = np.linalg.norm(normals, axis=-1, keepdims=True)
    return np.where(lengths > 0, normals / np.where(lengths > 0, lengths, 1.0), [0.0, 1.0, 0.0])


def influence_sets(
    joints: npt.NDArray[np.int64], weights: Array
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Bring influences into the form glTF asks for.

    Returns:
        Joints and weights (V, K') with K' a multiple of 4: largest weight first, a joint at most once per vertex,
        joint 0 where the weight is 0, and float32 weights that sum to 1 as exactly as float32 can.
    """
    order = np.argsort(joints, axis=-1)
    joints = np.take_along_axis(joints, order, -1)
    weights = np.take_along_axis(np.maximum(weights, 0.0), order, -1)
    for place in range(1, joints.shape[1]):
        repeated = joints[:, place] == joints[:, place - 1]
        weights[:, place] += np.where(repeated, weights[:, place - 1], 0.0)
        weights[repeated, place - 1] = 0.0
    order = np.argsort(-weights, axis=-1, kind="stable")
    joints = np.take_along_axis(joints, order, -1)
    weights = np.take_along_axis(weights, order, -1)
    used = max(int((weights > 0).any(0).sum()), 1)
    places = [(0, 0), (0, -used % 4)]
    joints, weights = np.pad(joints[:, :used], places), np.pad(weights[:, :used], places)
    single = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    # The largest weight takes up what the rounding of the others left over.
    single[:, 0] = 1.0 - single[:, 1:].sum(-1, dtype=np.float64)
    return np.where(single > 0, joints, 0), single


def _animation(animation: GltfAnimation, binary: _BinaryChunk) -> dict[str, Any]:
    times = (np.arange(len(animation.root_translation)) / animation.fps).astype(np.float32)
    rotations = hemisphere_continuous(animation.local_rotations)
    rotations = (rotations / np.linalg.norm(rotations, axis=-1, keepdims=True)).astype(np.float32)
    time_accessor = binary.add(times, "SCALAR", bounds=True)
    outputs = [("translation", 0, binary.add(animation.root_translation.astype(np.float32), "VEC3"))]
    outputs += [
        ("rotation", joint, binary.add(np.ascontiguousarray(rotations[:, joint]), "VEC4"))
        for joint in range(rotations.shape[1])
    ]
    return {
        "name": animation.name,
        "samplers": [{"input": time_accessor, "output": output, "interpolation": "LINEAR"} for _, _, output in outputs],
        "channels": [
            {"sampler": number, "target": {"node": node, "path": path}}
            for number, (path, node, _) in enumerate(outputs)
        ],
    }


def _pack(document: dict[str, Any], binary: bytes) -> bytes:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    total = 12 + 8 + len(text) + 8 + len(binary)
    return b"".join(
        (
            struct.pack("<4sII", b"glTF", 2, total),
            struct.pack("<I4s", len(text), b"JSON"),
            text,
            struct.pack("<I4s", len(binary), b"BIN\0"),
            binary,
        )
    )
