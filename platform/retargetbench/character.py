"""A character: a skeleton with a skinned mesh bound to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from retargetbench.errors import CharacterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retargetbench.skeleton import Skeleton


@dataclass(frozen=True, eq=False)
class Character:
    """A skinned character in the house convention; the rest-pose mesh is derived from what is stored.

    Attributes:
        name: unique within its dataset.
        skeleton: J joints.
        bind_vertices: vertices in the pose the mesh was bound in, (V, 3) metres.
        inverse_bind: for each joint the transform from bind space to the joint's rest frame, (J, 4, 4).
        faces: triangles, (F, 3) int64, counter-clockwise seen from outside.
        influence_joints: joints that move each vertex, (V, K) int64; unused places are 0.
        influence_weights: their weights, (V, K); rows sum to 1, unused places are 0. K is as large as the file needs.
        provenance: where the character comes from: file, hash, licence, what was changed at import.

    Raises:
        CharacterError: shapes, indices or weights do not fit; the message names the first offender.
    """

    name: str
    skeleton: Skeleton
    bind_vertices: torch.Tensor
    inverse_bind: torch.Tensor
    faces: torch.Tensor
    influence_joints: torch.Tensor
    influence_weights: torch.Tensor
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))
        vertices, joints = int(self.bind_vertices.shape[0]), self.skeleton.joint_count
        shapes = {
            "bind_vertices": ((vertices, 3), self.bind_vertices),
            "inverse_bind": ((joints, 4, 4), self.inverse_bind),
            "faces": ((int(self.faces.shape[0]), 3), self.faces),
            "influence_joints": ((vertices, int(self.influence_joints.shape[-1])), self.influence_joints),
            "influence_weights": (tuple(self.influence_joints.shape), self.influence_weights),
        }
        for name, (wanted, tensor) in shapes.items():
            if tuple(tensor.shape) != wanted:
                raise CharacterError(f"{self.name}: {name} must be {wanted}, got {tuple(tensor.shape)}")
        if vertices == 0 or self.faces.shape[0] == 0:
            raise CharacterError(f"{self.name}: the mesh is empty ({vertices} vertices, {self.faces.shape[0]} faces)")
        for name, tensor, limit in (
            ("faces", self.faces, vertices),
            ("influence_joints", self.influence_joints, joints),
        ):
            if tensor.dtype != torch.int64:
                raise CharacterError(f"{self.name}: {name} must be int64, got {tensor.dtype}")
            low, high = int(tensor.min()), int(tensor.max())
            if low < 0 or high >= limit:
                raise CharacterError(f"{self.name}: {name} has indices {low}..{high}, allowed are 0..{limit - 1}")
        for name, tensor in (
            ("bind_vertices", self.bind_vertices),
            ("inverse_bind", self.inverse_bind),
            ("influence_weights", self.influence_weights),
        ):
            if not bool(torch.isfinite(tensor).all()):
                raise CharacterError(f"{self.name}: {name} holds values that are not finite")
        off = float((self.influence_weights.sum(-1) - 1).abs().max())
        if off > 1e-4:
            raise CharacterError(f"{self.name}: the skin weights of a vertex sum to 1 ± {off:.3g}; normalise them")

    @property
    def vertex_count(self) -> int:
        """Number of vertices, V."""
        return int(self.bind_vertices.shape[0])

    @property
    def height(self) -> float:
        """Height in metres by R2ET's rule of eight bones."""
        return self.skeleton.height

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.bind_vertices.device

    @cached_property
    def weights(self) -> torch.Tensor:
        """Skin weights as a dense matrix, (V, J)."""
        dense = self.influence_weights.new_zeros(self.vertex_count, self.skeleton.joint_count)
        return dense.scatter_add_(1, self.influence_joints, self.influence_weights)

    @cached_property
    def canonical_weights(self) -> torch.Tensor:
        """Skin weights with every joint folded into the canonical joint it is or hangs under, (V, 22)."""
        nearest = torch.tensor(self.skeleton.nearest_canonical, device=self.device)
        dense = self.influence_weights.new_zeros(self.vertex_count, 22)
        return dense.scatter_add_(1, nearest[self.influence_joints], self.influence_weights)

    @cached_property
    def dominant_joint(self) -> torch.Tensor:
        """Body part of each vertex: the canonical joint (0..21) with the largest folded weight, (V,) int64."""
        return self.canonical_weights.argmax(-1)

    @cached_property
    def rest_vertices(self) -> torch.Tensor:
        """Vertices in the house rest pose, (V, 3) metres."""
        joint_to_bind = self.inverse_bind.clone()
        joint_to_bind[:, :3, 3] += self.skeleton.rest_positions.to(self.inverse_bind)
        homogeneous = torch.cat([self.bind_vertices, torch.ones_like(self.bind_vertices[:, :1])], -1)
        posed = self.bind_vertices.new_zeros(self.vertex_count, 3)
        for k in range(self.influence_joints.shape[1]):
            transform = joint_to_bind[self.influence_joints[:, k], :3]
            posed += self.influence_weights[:, k, None] * (transform @ homogeneous[:, :, None])[..., 0]
        return posed

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Character:
        """Return the same character on another device or in another floating-point type.

        The skeleton's offsets move along; index tensors keep their type.
        """
        return replace(
            self,
            skeleton=self.skeleton.to(device, dtype),
            bind_vertices=self.bind_vertices.to(device=device, dtype=dtype),
            inverse_bind=self.inverse_bind.to(device=device, dtype=dtype),
            faces=self.faces.to(device=device),
            influence_joints=self.influence_joints.to(device=device),
            influence_weights=self.influence_weights.to(device=device, dtype=dtype),
        )
