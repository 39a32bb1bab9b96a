"""Rows of the frozen split of ``studio``: which motions of whom are put on whom."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from retargetbench.clip import SPLIT_ATOMS
from retargetbench.datasets.base import Split, SplitRow
from retargetbench.datasets.splits import DEFAULT_LIMIT, split_atom

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

FULL_LIMIT = 240
"""Rows of one atom in the full set: ten times the default set. All pairs of a clip and a target would be 100 000."""


def frozen_split(
    clips: Collection[tuple[str, str]],
    *,
    seen_characters: Collection[str],
    seen_motions: Collection[str],
    families: Mapping[str, str],
    builds: Mapping[str, Sequence[float]],
    sources: Collection[str] | None = None,
    default: int = DEFAULT_LIMIT,
    full: int = FULL_LIMIT,
) -> Split:
    """Choose the rows of a dataset in which characters share motions; every row has a ground truth.

    Rows of an atom are taken one by one. Next comes the row whose target was taken least often; among those the one
    whose family was; then whose pair of motion and target, whose motion, and whose source was; then the one whose
    motion is in fewest default rows of other atoms, and whose source is built most unlike the target. What is left
    equal is ordered by a hash of the names: by their letters, all adults would come first. The full set is the first
    ``full`` rows and the default set the first ``default`` ones, so both are balanced.

    Args:
        clips: (character, motion) that there are; both a row's source and its target have the motion.
        seen_characters: characters that training may see.
        seen_motions: motions that training may see.
        families: family of each motion.
        builds: for each character a few figures that tell how it is built, such as height and girth; each is weighed
            by its spread over the characters.
        sources: characters whose motions are put on others; by default all.
        default: most rows of an atom in the default set.
        full: most rows of an atom in the full set.

    Returns:
        The split called ``default``.
    """
    owners: dict[str, list[str]] = {}
    for character, motion in sorted(clips):
        owners.setdefault(motion, []).append(character)
    unlike = _differences_of_build(sorted({character for character, _ in clips}), builds)
    rows: list[SplitRow] = []
    elsewhere: Counter[tuple[str, ...]] = Counter()
    for atom in SPLIT_ATOMS:
        left = {
            target: [
                (families[motion], motion, source)
                for motion, characters in sorted(owners.items())
                if target in characters
                and split_atom(character_seen=target in seen_characters, motion_seen=motion in seen_motions) == atom
                for source in characters
                if source != target and (sources is None or source in sources)
            ]
            for target in sorted({character for character, _ in clips})
        }
        taken: Counter[tuple[str, ...]] = Counter()
        for number in range(full):
            targets = [target for target, choices in left.items() if choices]
            if not targets:
                break
            target = min(targets, key=lambda name: (taken["target", name], elsewhere["target", name], _shuffled(name)))
            choice = min(
                left[target],
                key=lambda c: (
                    *(taken[place] for place in _places(target, *c)),
                    elsewhere["motion", c[1]],
                    -unlike[c[2], target],
                    _shuffled(c[1] + c[2]),
                ),
            )
            left[target].remove(choice)
            _, motion, source = choice
            taken.update(_places(target, *choice))
            rows.append(SplitRow(atom, source, motion, target, default=number < default))
        quick = [row for row in rows if row.atom == atom and row.default]
        elsewhere.update(("target", row.target) for row in quick)
        elsewhere.update(("motion", row.motion) for row in quick)
    return Split("default", tuple(sorted(rows)))


def _places(target: str, family: str, motion: str, source: str) -> tuple[tuple[str, ...], ...]:
    """What is counted of a row, in the order in which it matters."""
    return (("target", target), ("family", family), ("pair", motion, target), ("motion", motion), ("source", source))


@cache
def _shuffled(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _differences_of_build(
    characters: Sequence[str], builds: Mapping[str, Sequence[float]]
) -> dict[tuple[str, str], float]:
    """Return for each pair of characters how unlike they are built, rounded so that no machine orders them anew."""
    figures = np.array([builds[name] for name in characters], dtype=np.float64)
    spread = figures.std(0)
    scaled = figures / np.where(spread > 0, spread, 1.0)
    return {
        (first, second): round(float(np.linalg.norm(scaled[i] - scaled[j])), 6)
        for i, first in enumerate(characters)
        for j, second in enumerate(characters)
    }
