"""Recipes of the bodies: what each is like, frozen in ``bodies.yaml``, and further ones that are made up by a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import yaml

from retargetbench.errors import DatasetError
from retargetbench.skeleton import CANONICAL_JOINTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """Local changes of the body model; ``upperarm-fat-incr`` means both sides. Beyond -1..1 it extrapolates; the
    bulkiest bodies have 1.5."""
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


_ADULT: dict[str, tuple[float, float]] = {
    "gender": (0.0, 1.0), "age": (0.58, 1.05), "muscle": (0.0, 1.0), "weight": (-0.1, 1.15), "height": (0.3, 0.68),
    "proportions": (0.0, 1.0),
}  # fmt: skip
"""Ranges of the adults, about those of the frozen ones."""

_CHILD: dict[str, tuple[float, float]] = {
    "gender": (0.0, 1.0), "age": (0.1, 0.48), "muscle": (0.35, 0.65), "weight": (0.1, 1.0), "height": (0.3, 0.65),
    "proportions": (0.3, 0.7),
}  # fmt: skip

_STYLE: dict[str, tuple[float, float]] = {
    "leg": (0.65, 1.15), "arm": (0.85, 1.25), "thick": (0.0, 1.0), "head": (1.0, 1.5), "hand": (1.0, 1.5),
    "belly": (0.0, 1.0),
}  # fmt: skip
"""What stylised bodies are made of besides an adult's parameters: lengths, and how bulky arms and belly are."""

_BULK = {
    "upperarm-fat-incr": 1.2, "upperarm-scale-horiz-incr": 1.3, "upperarm-scale-depth-incr": 1.3,
    "lowerarm-fat-incr": 1.2, "lowerarm-scale-horiz-incr": 1.2, "lowerarm-scale-depth-incr": 1.2,
}  # fmt: skip
"""Changes of the bulkiest arms."""

_BLOCK: tuple[Kind, ...] = tuple(
    "child" if k in (2, 7, 13) else "stylised" if k in (5, 11, 16) else "adult" for k in range(20)
)
"""Kinds of bodies that are made up together; every fourth is unseen, among them one child and one stylised."""

_UNSEEN_EVERY = 4
_SEEN_MESHES: tuple[tuple[MeshKind, int], ...] = (
    ("original", 0), ("decimated", 2000), ("original", 0), ("remeshed", 5000), ("original", 0), ("decimated", 3500),
    ("original", 0), ("remeshed", 9000), ("original", 0), ("decimated", 6000),
)  # fmt: skip
_UNSEEN_MESHES: tuple[tuple[MeshKind, int], ...] = (
    ("decimated", 2600), ("remeshed", 7000), ("original", 0), ("decimated", 4500), ("remeshed", 19000),
)  # fmt: skip
"""Triangulations, in turn; those of unseen bodies are on no seen one, but for the model's own."""


def more_recipes(count: int, seed: int = 0) -> tuple[BodyRecipe, ...]:
    """Make up recipes beyond the frozen ones: mostly adults, some children and stylised ones, three of four seen.

    They come in blocks of 20, each a Latin hypercube over the ranges of its kind, so the first of many are the same as
    those of few.

    Args:
        count: how many.
        seed: of the parameters.

    Source: McKay, Beckman and Conover, "A comparison of three methods for selecting values of input variables", 1979.
    """
    recipes: list[BodyRecipe] = []
    for block in range(-(-count // len(_BLOCK))):
        rng = np.random.default_rng((seed, block))
        drawn = {
            "adult": _latin_hypercube([_ADULT], _BLOCK.count("adult"), rng),
            "child": _latin_hypercube([_CHILD], _BLOCK.count("child"), rng),
            "stylised": _latin_hypercube([_ADULT, _STYLE], _BLOCK.count("stylised"), rng),
        }
        for kind in _BLOCK:
            recipes.append(_made_up(len(recipes), kind, drawn[kind].pop()))
    return tuple(recipes[:count])


def _latin_hypercube(
    ranges: Sequence[Mapping[str, tuple[float, float]]], count: int, rng: np.random.Generator
) -> list[dict[str, float]]:
    """Draw points of which each is alone in its share of every range."""
    spans = {name: span for group in ranges for name, span in group.items()}
    columns = {
        name: low + (high - low) * (rng.permutation(count) + rng.random(count)) / count
        for name, (low, high) in spans.items()
    }
    return [{name: round(float(column[k]), 2) for name, column in columns.items()} for k in range(count)]


def _made_up(number: int, kind: Kind, values: dict[str, float]) -> BodyRecipe:
    """Make a recipe of drawn values."""
    seen = number % _UNSEEN_EVERY != _UNSEEN_EVERY - 1
    turn = number - number // _UNSEEN_EVERY if seen else number // _UNSEEN_EVERY
    meshes = _SEEN_MESHES if seen else _UNSEEN_MESHES
    changes: dict[str, float] = {}
    scales: dict[str, tuple[float, float]] = {}
    if kind == "stylised":
        thick, leg = values["thick"], values["leg"]
        arm = round(values["arm"] * (1 - 0.3 * thick), 2)  # the changes lengthen arms too
        changes = {name: round(most * thick, 2) for name, most in _BULK.items()}
        changes["stomach-pregnant-incr"] = round(0.8 * values["belly"], 2)
        scales = {
            "Shoulder": (1.0, round(1 + 0.1 * thick, 2)),
            "Arm": (arm, round(0.95 + 0.45 * thick, 2)),
            "ForeArm": (arm, round(0.95 + 0.8 * thick, 2)),
            "Hand": (values["hand"], 1.0),
            "Head": (values["head"], 1.0),
            "UpLeg": (leg, 1.0),
            "Leg": (leg, 1.0),
        }
    phenotype = {name: value for name, value in values.items() if name in _ADULT}
    name = f"more_{kind}_{number + 1:03d}"
    return BodyRecipe(name, kind, seen, phenotype, changes, scales, MeshRecipe(*meshes[turn % len(meshes)]))


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
