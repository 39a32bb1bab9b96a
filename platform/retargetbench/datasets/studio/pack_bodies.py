"""Bodies of a pack: vertices, faces and skin weights as whole numbers; what bodies have in common is stored once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from retargetbench.character import Character
from retargetbench.datasets.studio.pack_files import differences, from_differences
from retargetbench.errors import DatasetError
from retargetbench.skeleton import Skeleton

if TYPE_CHECKING:
    from collections.abc import Mapping

    Array = np.ndarray[Any, Any]

_GRID = 65535  # steps from side to side of the box around a body
_WHOLE_WEIGHT = 65535


@dataclass(frozen=True, eq=False)
class Topology:
    """What bodies may share: joints, faces and skin weights.

    Attributes:
        names: of the joints, J.
        parents: of the joints, J.
        canonical: the 22 canonical joints among them.
        faces: (F, 3) int64.
        influence_joints: (V, K) int64.
        influence_weights: (V, K) float32.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    canonical: tuple[int, ...]
    faces: torch.Tensor
    influence_joints: torch.Tensor
    influence_weights: torch.Tensor


def topology_to_arrays(character: Character) -> dict[str, Array]:
    """Pack what a body may share with others; equal topologies give equal arrays."""
    skeleton = character.skeleton
    faces = character.faces.cpu().numpy()
    weights = _whole_weights(character.influence_weights)
    joints = character.influence_joints.cpu().numpy().astype(np.uint8)
    return {
        "names": np.array(skeleton.names),
        "parents": np.array(skeleton.parents, np.int16),
        "canonical": np.array(skeleton.canonical, np.int16),
        "faces": faces.astype(np.uint16 if character.vertex_count <= 1 << 16 else np.int32),
        "influence_joints": np.where(weights > 0, joints, 0).astype(np.uint8),
        "influence_weights": weights,
    }


def topology_from_arrays(arrays: Mapping[str, Array]) -> Topology:
    """Unpack a topology.

    Raises:
        KeyError: an array is missing.
    """
    weights = arrays["influence_weights"].astype(np.float64) / _WHOLE_WEIGHT
    return Topology(
        tuple(arrays["names"].tolist()),
        tuple(arrays["parents"].tolist()),
        tuple(arrays["canonical"].tolist()),
        torch.from_numpy(arrays["faces"].astype(np.int64)),
        torch.from_numpy(arrays["influence_joints"].astype(np.int64)),
        torch.from_numpy(weights.astype(np.float32)),
    )


def body_to_arrays(character: Character) -> dict[str, Array]:
    """Pack what is a body's own: its vertices on a grid of 65 536 steps in each direction, and its bones.

    Raises:
        DatasetError: the body is not bound at its rest, or has more than 256 joints.
    """
    skeleton = character.skeleton
    expected = _inverse_bind(skeleton)
    if skeleton.joint_count > 256 or not torch.allclose(character.inverse_bind.float(), expected, atol=1e-5):
        raise DatasetError(f"character {character.name}: a pack takes bodies of up to 256 joints bound at their rest")
    vertices = character.bind_vertices.detach().float().double().cpu().numpy()
    low, high = vertices.min(0), vertices.max(0)
    # A flat body has no extent in one direction; any step will do there.
    step = np.where(high > low, high - low, 1.0) / _GRID
    return {
        "vertices": differences(np.round((vertices - low) / step).astype(np.uint16)),
        "low": low,
        "step": step,
        "offsets": skeleton.offsets.detach().float().cpu().numpy(),
    }


def body_from_arrays(
    arrays: Mapping[str, Array], topology: Topology, *, name: str, provenance: Mapping[str, str]
) -> Character:
    """Unpack a body, float32; its faces and weights are those of the topology, not copies.

    Raises:
        KeyError, ValueError, CharacterError: an array is missing or wrong.
    """
    skeleton = Skeleton(
        topology.names, topology.parents, torch.from_numpy(arrays["offsets"].copy()), topology.canonical
    )
    count = len(topology.influence_joints)
    whole = from_differences(arrays["vertices"], (count, 3), "uint16").astype(np.float64)
    vertices = (arrays["low"] + arrays["step"] * whole).astype(np.float32)
    return Character(
        name=name,
        skeleton=skeleton,
        bind_vertices=torch.from_numpy(vertices),
        inverse_bind=_inverse_bind(skeleton),
        faces=topology.faces,
        influence_joints=topology.influence_joints,
        influence_weights=topology.influence_weights,
        provenance=provenance,
    )


def rounded_character(character: Character) -> Character:
    """Return a body as a reader of the pack gets it: solve and measure on this one."""
    topology = topology_from_arrays(topology_to_arrays(character))
    return body_from_arrays(body_to_arrays(character), topology, name=character.name, provenance=character.provenance)


def _inverse_bind(skeleton: Skeleton) -> torch.Tensor:
    """Transforms from a mesh bound at rest to the joints, (J, 4, 4) float32."""
    inverse = torch.eye(4).repeat(skeleton.joint_count, 1, 1)
    inverse[:, :3, 3] = -skeleton.rest_positions.float()
    return inverse


def _whole_weights(weights: torch.Tensor) -> Array:
    """Weights in 1/65 535, rows summing to 1 exactly; what rounding leaves over goes to the largest."""
    whole = np.round(weights.detach().double().cpu().numpy() * _WHOLE_WEIGHT).astype(np.int64)
    rows, largest = np.arange(len(whole)), whole.argmax(-1)
    whole[rows, largest] += _WHOLE_WEIGHT - whole.sum(-1)
    return whole.astype(np.uint16)
