"""Where the bodies of a build come from: recipes that are built with anny, or a dataset that has them already."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.build_store import body_arrays, content_digest
from retargetbench.datasets.studio.dataset import PACKAGED, StudioDataset
from retargetbench.datasets.studio.pack_bodies import rounded_character
from retargetbench.datasets.studio.pack_manifest import is_pack
from retargetbench.datasets.studio.recipes import more_recipes, read_recipes
from retargetbench.errors import DatasetError, MissingExtraError, UnknownNameError, UsageError
from retargetbench.rest_pose import T_TOLERANCE_DEG, t_pose_angles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.base import Dataset
    from retargetbench.datasets.studio.anny_bodies import AnnyBodies
    from retargetbench.datasets.studio.recipes import BodyRecipe

REFERENCE = "adult_09"
"""The body on which the actions of the package are made: an adult of average build."""

RECIPE = "recipe"
"""Entry of a body's provenance: digest of its recipe."""

BODY_VERSION = 1
"""Raised when the code that builds bodies changes what it makes."""


@dataclass(frozen=True)
class Role:
    """What the dataset says of a character besides its body."""

    kind: str
    seen: bool
    """Whether methods may train on it."""


class BodySource(Protocol):
    """Builds bodies, or has them."""

    @property
    def roles(self) -> Mapping[str, Role]:
        """All characters that it can make, by name."""

    def key(self, name: str) -> str:
        """Return what a body was made from, as far as it can be told without building it."""

    def make(self, name: str) -> Character:
        """Return a body as a reader of the pack gets it, see `rounded_character`."""


class RecipeBodies:
    """Builds bodies from recipes with anny, which is loaded when the first one is built.

    Args:
        recipes: of all bodies.
    """

    def __init__(self, recipes: Sequence[BodyRecipe]) -> None:
        self._recipes = {recipe.name: recipe for recipe in recipes}
        self._anny: AnnyBodies | None = None

    @property
    def roles(self) -> Mapping[str, Role]:
        """All characters by name."""
        return {name: Role(recipe.kind, recipe.seen) for name, recipe in self._recipes.items()}

    def key(self, name: str) -> str:
        """Return a digest of the recipe and of what builds it."""
        return f"anny {version('anny')} {BODY_VERSION} {recipe_digest(self._recipes[name])}"

    def make(self, name: str) -> Character:
        """Build a body."""
        from retargetbench.datasets.studio.anny_bodies import AnnyBodies

        if self._anny is None:
            self._anny = AnnyBodies()
        recipe = self._recipes[name]
        body = self._anny.build(recipe)
        provenance = {**body.provenance, "made with": f"anny {version('anny')}", RECIPE: recipe_digest(recipe)}
        return rounded_character(replace(body, provenance=provenance))


class DatasetBodies:
    """Takes the bodies of a dataset, which must be bound at their rest in a T-pose."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    @property
    def roles(self) -> Mapping[str, Role]:
        """All characters by name; only a pack knows kinds."""
        seen = self.dataset.seen_characters
        kinds = {}
        if isinstance(self.dataset, StudioDataset):
            kinds = {name: character.kind for name, character in self.dataset.manifest.characters.items()}
        return {name: Role(kinds.get(name, "other"), name in seen) for name in self.dataset.character_names}

    def key(self, name: str) -> str:
        """Return a digest of the body."""
        return f"dataset {content_digest(body_arrays(self.dataset.character(name)))}"

    def make(self, name: str) -> Character:
        """Return a body.

        Raises:
            DatasetError: it is not at a T-pose, or not bound at its rest.
        """
        body = self.dataset.character(name)
        angles = t_pose_angles(body.skeleton)
        bone = max(angles, key=lambda key: angles[key])
        if angles[bone] > T_TOLERANCE_DEG:
            raise DatasetError(
                f"{name} is not at a T-pose: {bone} is {angles[bone]:.1f} degrees off and {T_TOLERANCE_DEG:g} are "
                f"accepted; retargetbench.rest_pose.to_t_pose straightens a body"
            )
        return rounded_character(body)


def recipe_digest(recipe: BodyRecipe) -> str:
    """Return 16 hexadecimal digits over all of a recipe."""
    return hashlib.sha256(json.dumps(asdict(recipe), sort_keys=True).encode()).hexdigest()[:16]


def choose_bodies(
    bodies: str | None = None, *, characters: str | None = None, reference: str = REFERENCE, seed: int = 0
) -> tuple[BodySource, tuple[str, ...]]:
    """Choose characters and where their bodies come from.

    Args:
        bodies: a dataset that has them, by folder or name; by default they are built from recipes, or taken from the
            pack of the package if anny is not installed and the pack was made from the same recipes.
        characters: a number or names separated by commas; by default all. Of more than there are recipes, the others
            are made up, see `retargetbench.datasets.studio.recipes.more_recipes`; fewer are spread over all kinds.
        reference: name of the body on which performances are made.
        seed: of recipes that are made up.

    Returns:
        The source, and the names of the characters that are to get clips.

    Raises:
        UnknownNameError: there is no such character.
        UsageError: the dataset has fewer characters than wanted.
        MissingExtraError: bodies have to be built and anny is not installed.
    """
    if bodies is not None:
        source = DatasetBodies(open_dataset(bodies))
        names = _choose(characters, tuple(source.roles), f"--bodies {bodies}")
        _check_names([reference], source.roles)
        return source, names
    recipes = read_recipes()
    count = _number(characters)
    if count is not None and count > len(recipes):
        recipes = (*recipes, *more_recipes(count - len(recipes), seed))
    names = _choose(characters, tuple(recipe.name for recipe in recipes), "the package")
    by_name = {recipe.name: recipe for recipe in recipes}
    _check_names([reference], by_name)
    if importlib.util.find_spec("anny") is not None:
        return RecipeBodies(recipes), names
    if is_pack(PACKAGED):
        pack = StudioDataset(PACKAGED)
        made = {name: character.provenance.get(RECIPE) for name, character in pack.manifest.characters.items()}
        if all(made.get(name) == recipe_digest(by_name[name]) for name in {*names, reference}):
            return DatasetBodies(pack), names
    raise MissingExtraError(
        "anny", "studio", "without --bodies DATASET, which takes bodies that are there, building bodies"
    )


def _choose(wanted: str | None, known: tuple[str, ...], owner: str) -> tuple[str, ...]:
    """Return the characters that are wanted, in the order in which they are known."""
    if wanted is None:
        return known
    count = _number(wanted)
    if count is not None:
        if not 1 <= count <= len(known):
            raise UsageError(f"--characters must be from 1 to {len(known)}, as many as {owner} has, got {count}")
        return tuple(known[(2 * k + 1) * len(known) // (2 * count)] for k in range(count))  # middles of equal parts
    names = {part.strip() for part in wanted.split(",") if part.strip()}
    _check_names(sorted(names), known)
    if not names:
        raise UsageError("--characters names no character; give a number or names separated by commas")
    return tuple(name for name in known if name in names)


def _check_names(names: Sequence[str], known: Mapping[str, object] | Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError("character", name, known)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None
