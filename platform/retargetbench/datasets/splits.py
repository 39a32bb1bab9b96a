"""Frozen splits: CSV files of rows, every pair of clip and target, and the quick default set of each atom."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from retargetbench.clip import SPLIT_ATOMS, SplitAtom
from retargetbench.datasets.base import Split, SplitRow
from retargetbench.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from os import PathLike

COLUMNS = ("atom", "source", "motion", "target", "default")
"""Columns of a split file; ``default`` is 1 for rows of the quick set and 0 for the others."""

DEFAULT_LIMIT = 24
"""Rows of one atom in the quick default set."""


def split_atom(*, character_seen: bool, motion_seen: bool) -> SplitAtom:
    """Return the atom of a task by what training has seen of its target and its motion.

    Example:
        >>> split_atom(character_seen=False, motion_seen=True)
        'UC+SM'
    """
    return cast("SplitAtom", f"{'SC' if character_seen else 'UC'}+{'SM' if motion_seen else 'UM'}")


def every_pair(
    clips: Iterable[tuple[str, str]],
    characters: Iterable[str],
    *,
    seen_characters: Collection[str],
    seen_motions: Collection[str],
) -> tuple[SplitRow, ...]:
    """Return a row for every clip and every character but its own, sorted, all of them in the full set only.

    Args:
        clips: (character, motion) of every clip.
        characters: names of the targets.
        seen_characters: those of the targets that training may see.
        seen_motions: those of the motions that training may see.
    """
    targets = tuple(characters)
    rows = (
        SplitRow(
            split_atom(character_seen=target in seen_characters, motion_seen=motion in seen_motions),
            source,
            motion,
            target,
            default=False,
        )
        for source, motion in clips
        for target in targets
        if target != source
    )
    return tuple(sorted(rows))


def balanced_default(
    rows: Iterable[SplitRow],
    limit: int = DEFAULT_LIMIT,
    *,
    family: Callable[[str], str] | None = None,
    preferred: Collection[SplitRow] = (),
) -> tuple[SplitRow, ...]:
    """Mark at most ``limit`` rows of each atom as its default set, balanced over targets and families of motions.

    Rows are taken one by one: next comes the row whose target was taken least often, among those the one whose family
    was, then a preferred one, then the one whose source was. Ties are broken by sorting, so equal rows give equal sets.

    Args:
        rows: in any order.
        limit: most default rows of an atom.
        family: family of a motion; by default every motion is a family of its own.
        preferred: rows to be taken first among equals, such as those with ground truth.

    Returns:
        All rows, sorted, with ``default`` set anew.
    """
    family_of = family or (lambda motion: motion)
    wanted = set(preferred)
    marked: list[SplitRow] = []
    ordered = sorted(rows)
    for atom in SPLIT_ATOMS:
        left = [row for row in ordered if row.atom == atom]
        targets: Counter[str] = Counter()
        families: Counter[str] = Counter()
        sources: Counter[str] = Counter()
        for _ in range(min(limit, len(left))):
            row = min(
                left,
                key=lambda r: (
                    targets[r.target],
                    families[family_of(r.motion)],
                    r not in wanted,
                    sources[r.source],
                    r,
                ),
            )
            left.remove(row)
            targets[row.target] += 1
            families[family_of(row.motion)] += 1
            sources[row.source] += 1
            marked.append(replace(row, default=True))
        marked += [replace(row, default=False) for row in left]
    return tuple(sorted(marked))


def split_to_csv(split: Split) -> str:
    """Write a split as CSV text with Unix line ends, rows sorted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sorted(split.rows):
        writer.writerow((row.atom, row.source, row.motion, row.target, int(row.default)))
    return text.getvalue()


def split_from_csv(text: str, *, name: str, path: str | PathLike[str]) -> Split:
    """Read a split from CSV text.

    Args:
        text: what `split_to_csv` writes.
        name: name of the split.
        path: file the text comes from, for messages.

    Raises:
        DatasetError: a column is missing, an atom or a flag is unknown, a row is double, or there is none.
    """
    lines = csv.reader(io.StringIO(text))
    try:
        header = next(lines, [])
        if tuple(header) != COLUMNS:
            raise DatasetError(
                f"{path}:1: a split file starts with the columns {','.join(COLUMNS)}, got {','.join(header)}"
            )
        rows = [_row(cells, f"{path}:{lines.line_num}") for cells in lines]
    except csv.Error as error:
        raise DatasetError(f"{path}:{lines.line_num}: not a line of a split file: {error}") from None
    if not rows:
        raise DatasetError(f"{path}: the split has no rows")
    _check_unique(rows, path)
    return Split(name, tuple(rows))


def _row(cells: Sequence[str], where: str) -> SplitRow:
    if len(cells) != len(COLUMNS):
        raise DatasetError(f"{where}: a row has {len(COLUMNS)} cells, got {len(cells)}: {','.join(cells)}")
    atom, source, motion, target, default = cells
    if atom not in SPLIT_ATOMS:
        raise DatasetError(f"{where}: atom {atom!r} is not one of {', '.join(SPLIT_ATOMS)}")
    if default not in ("0", "1"):
        raise DatasetError(f"{where}: default must be 1 (quick set) or 0 (full set only), got {default!r}")
    return SplitRow(atom, source, motion, target, default == "1")


def _check_unique(rows: Sequence[SplitRow], path: str | PathLike[str]) -> None:
    counts = Counter((row.source, row.motion, row.target) for row in rows)
    (worst, times) = counts.most_common(1)[0]
    if times > 1:
        raise DatasetError(f"{path}: the row {'/'.join(worst)} occurs {times} times; a split lists each task once")
