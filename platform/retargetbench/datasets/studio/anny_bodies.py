"""Bodies of the model ``anny`` (code Apache-2.0, assets CC0, from MakeHuman) as characters; extra ``studio``."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from retargetbench.datasets.studio.sculpting import bound_at_rest, retriangulate, scale_parts
from retargetbench.errors import DatasetError, MissingExtraError, UnknownNameError
from retargetbench.rest_pose import to_t_pose
from retargetbench.skeleton import Skeleton, find_canonical_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retargetbench.character import Character
    from retargetbench.datasets.studio.recipes import BodyRecipe

_TO_HOUSE = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]], dtype=torch.float64)
"""The model's Z is up and it faces −Y; X is the body's left in both."""


class AnnyBodies:
    """Builds characters from recipes.

    The first use of the model on a machine takes a minute or two and fills a cache of about 800 MB under
    ``ANNY_CACHE_DIR``.

    Raises:
        MissingExtraError: anny is not installed.
    """

    def __init__(self) -> None:
        try:
            import anny
        except ImportError:
            raise MissingExtraError("anny", "studio", "building bodies") from None
        logging.getLogger("anny").setLevel(logging.WARNING)
        # All local changes, always: the cache of the model depends on the selection.
        self._model: Any = anny.Anny(rig="mixamo", local_changes="all", extrapolate_phenotypes=True)
        self._names = tuple(str(name).rsplit(":", 1)[-1] for name in self._model.bone_labels)
        self._parents = tuple(int(parent) for parent in self._model.bone_parents)
        self._used, self._faces = _outer_surface(np.asarray(self._model.faces))

    def build(self, recipe: BodyRecipe) -> Character:
        """Build the character of a recipe: one closed surface, exact T-pose, soles on the floor, float32.

        Raises:
            UnknownNameError: the model has no such parameter or change.
        """
        phenotype = self._phenotype(recipe.phenotype)
        changes = self._changes(recipe.changes)
        with torch.no_grad():
            output = self._model(phenotype_kwargs=phenotype, local_changes_kwargs=changes)
        vertices = output["rest_vertices"][0].double()[self._used] @ _TO_HOUSE.T
        joints = output["rest_bone_heads"][0].double() @ _TO_HOUSE.T
        offsets = torch.stack([p if j == 0 else p - joints[self._parents[j]] for j, p in enumerate(joints)])
        skeleton = Skeleton(self._names, self._parents, offsets, find_canonical_map(self._names))
        posed = to_t_pose(bound_at_rest(recipe.name, skeleton, vertices, self._faces, self._weights()))
        body = bound_at_rest(recipe.name, posed.skeleton, posed.rest_vertices, posed.faces, posed.weights)
        body = retriangulate(scale_parts(body, recipe.scales) if recipe.scales else body, recipe.mesh)
        provenance = {"made with": "anny", "licence": "CC0-1.0", "rest": "exact T-pose", "kind": recipe.kind}
        return replace(body, provenance=provenance).to(dtype=torch.float32)

    def _weights(self) -> torch.Tensor:
        """Skin weights of the outer surface, (V, J)."""
        dense = torch.zeros(len(self._model.vertex_bone_indices), len(self._names), dtype=torch.float64)
        dense.scatter_add_(1, self._model.vertex_bone_indices.long(), self._model.vertex_bone_weights.double())
        return dense[self._used]

    def _phenotype(self, values: Mapping[str, float]) -> dict[str, torch.Tensor]:
        known = list(self._model.phenotype_labels)
        for name in values:
            if name not in known:
                raise UnknownNameError("phenotype", name, known)
        return {name: torch.tensor([values.get(name, 0.5)], dtype=torch.float64) for name in known}

    def _changes(self, values: Mapping[str, float]) -> dict[str, torch.Tensor]:
        known = list(self._model.local_change_labels)
        changes: dict[str, torch.Tensor] = {}
        for name, value in values.items():
            sides = [name] if name in known else [f"l-{name}", f"r-{name}"]
            for side in sides:
                if side not in known:
                    raise UnknownNameError("local change", name, known)
                changes[side] = torch.tensor([value], dtype=torch.float64)
        return changes


def _outer_surface(faces: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vertices of the largest connected surface and its faces in their numbers; eyes and teeth are left out.

    Raises:
        DatasetError: that surface is not closed, so the model is another than this code was written for.
    """
    import trimesh

    mesh = trimesh.Trimesh(np.zeros((int(faces.max()) + 1, 3)), faces, process=False)
    parts = trimesh.graph.connected_components(mesh.face_adjacency, nodes=np.arange(len(faces)), min_len=1)
    largest = faces[np.sort(max(parts, key=len))]
    used, local = np.unique(largest, return_inverse=True)
    outer = local.reshape(-1, 3).astype(np.int64)
    if not trimesh.Trimesh(np.zeros((len(used), 3)), outer, process=False).is_watertight:
        raise DatasetError(
            "the body surface of this version of anny is not closed; install the version in constraints.txt"
        )
    return torch.from_numpy(used.astype(np.int64)), torch.from_numpy(outer)
