"""Recipes of the bodies: what each is like, frozen in ``bodies.yaml``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml

from retargetbench.errors import DatasetError
from retargetbench.skeleton import CANONICAL_JOINTS

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["adult", "child", "stylised"]
MeshKind = Literal["original", "decimated", "remeshed"]

SCALED_JOINTS = tuple(joint for joint in CANONICAL_JOINTS if joint != "Hips")
"""Joints whose part of the body a recipe may scale, on the left or on both sides (``Arm`` for ``LeftArm`` and
``RightArm``)."""


@dataclass(frozen=True)
class MeshRecipe:
    """How the surface is triangulated."""

    kind: MeshKind = "original"
    """``original`` keeps the model's, ``decimated`` takes edges out of it, ``remeshed`` makes it finer before."""
    vertices: int = 0
    """Wanted number of vertices; the decimation may stop a few off."""


@dataclass(frozen=True)
class BodyRecipe:
    """One body of the dataset."""

    name: str
    kind: Kind
    seen: bool
    """Whether methods may train on it."""
    phenotype: Mapping[str, float]
    """Parameters of the body model; 0.5 where not given. Beyond 0..1 it extrapolates."""
    changes: Mapping[str, float] = field(default_factory=dict)
    """Local changes of the body model, -1..1; ``upperarm-fat-incr`` means both sides."""
    scales: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Part of the body → scale along its bone and across; a joint without a side means both."""
    mesh: MeshRecipe = MeshRecipe()


def read_recipes(text: str | None = None) -> tuple[BodyRecipe, ...]:
    """Read the recipes of the bodies.

    Args:
        text: YAML; by default the file that is shipped.

    Raises:
        DatasetError: a row is not a recipe; the message names it and what is wrong.
    """
    if text is None:
        text = (files(__package__) / "bodies.yaml").read_text(encoding="utf-8")
    try:
        rows = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DatasetError(f"the recipes of the bodies are no YAML: {error}") from None
    if not isinstance(rows, dict):
        raise DatasetError("the recipes of the bodies must map names to recipes")
    return tuple(_recipe(str(name), row) for name, row in rows.items())


def _recipe(name: str, row: Any) -> BodyRecipe:
    allowed = {"kind", "seen", "phenotype", "changes", "scales", "mesh"}
    if not isinstance(row, dict) or not {"kind", "seen", "phenotype"} <= row.keys() <= allowed:
        raise DatasetError(
            f"body {name}: a recipe has kind, seen, phenotype and maybe changes, scales, mesh, not {row}"
        )
    if row["kind"] not in get_args(Kind) or not isinstance(row["seen"], bool):
        raise DatasetError(f"body {name}: kind must be one of {', '.join(get_args(Kind))}, and seen true or false")
    return BodyRecipe(
        name,
        row["kind"],
        row["seen"],
        _numbers(name, "phenotype", row["phenotype"]),
        _numbers(name, "changes", row.get("changes", {})),
        _scales(name, row.get("scales", {})),
        _mesh(name, row.get("mesh", {})),
    )


def _numbers(name: str, what: str, values: Any) -> dict[str, float]:
    if not isinstance(values, dict) or not all(_is_number(value) for value in values.values()):
        raise DatasetError(f"body {name}: {what} must map names to numbers, got {values}")
    return {str(key): float(value) for key, value in values.items()}


def _scales(name: str, values: Any) -> dict[str, tuple[float, float]]:
    known = {*SCALED_JOINTS, *(joint.removeprefix("Left") for joint in SCALED_JOINTS if joint.startswith("Left"))}
    scales: dict[str, tuple[float, float]] = {}
    if not isinstance(values, dict):
        raise DatasetError(f"body {name}: scales must map parts to [along, across], got {values}")
    for part, pair in values.items():
        if part not in known:
            raise DatasetError(f"body {name}: {part!r} cannot be scaled; accepted: {', '.join(sorted(known))}")
        if not isinstance(pair, list) or len(pair) != 2 or not all(_is_number(v) and v > 0 for v in pair):
            raise DatasetError(
                f"body {name}: scale of {part} must be two numbers above 0, along and across, got {pair}"
            )
        scales[part] = (float(pair[0]), float(pair[1]))
    return scales


def _mesh(name: str, values: Any) -> MeshRecipe:
    if not isinstance(values, dict) or not values.keys() <= {"kind", "vertices"}:
        raise DatasetError(f"body {name}: mesh has kind and vertices, not {values}")
    mesh = MeshRecipe(**values)
    if mesh.kind not in get_args(MeshKind) or (mesh.kind != "original" and not 500 <= mesh.vertices <= 50_000):
        raise DatasetError(
            f"body {name}: mesh {values} must be one of {', '.join(get_args(MeshKind))} with 500 to 50000 vertices"
        )
    return mesh


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
