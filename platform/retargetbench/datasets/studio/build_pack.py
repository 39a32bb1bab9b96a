"""From the files of a build to a pack, and what came of it in figures."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean, median
from typing import TYPE_CHECKING, get_args

from retargetbench.datasets.studio.body_facts import body_facts, build_of
from retargetbench.datasets.studio.gates import Gate, Quality
from retargetbench.datasets.studio.pack import ActionRecord, CharacterRecord, write_pack
from retargetbench.datasets.studio.pack_rows import frozen_split
from retargetbench.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from retargetbench.datasets.base import Split
    from retargetbench.datasets.studio.build import BuildPlan
    from retargetbench.datasets.studio.build_bodies import Role
    from retargetbench.datasets.studio.pack_manifest import Manifest
    from retargetbench.datasets.studio.pack_motions import MotionKeys

COMPARED = ("contact_distance", "penetration", "unfolded_depth")
"""Figures in which the ground truth is compared with plain copying; gaps are blind to hands that go through others."""

STOUTEST_SOURCE = 1.25
"""Largest radius of a source's arms over its height, as a multiple of the median over all characters.

The hands of a stouter body cannot hang free of its own thighs and flanks, so that most of its "contacts" are none: with
such sources the contact error of the ground truth is that of Copy, made of hands that hang beside slimmer bodies.
"""

_OF_COPY = "copy_"
_NOT_MADE = "not made: "


@dataclass(frozen=True)
class Outcome:
    """What came of a build.

    Attributes:
        tried: clips that were to be made.
        passed: clips that pass all gates.
        characters: name → clips that pass, and clips that were to be made; the worst first.
        gates: gate → clips that fail it.
        not_made: reason → clips that could not be made for it.
        compared: figure → its means in clips that pass, on bodies other than the reference: ground truth, plain Copy.
    """

    tried: int
    passed: int
    characters: Mapping[str, tuple[int, int]]
    gates: Mapping[str, int]
    not_made: Mapping[str, int]
    compared: Mapping[str, tuple[float, float]]


def pack_build(
    plan: BuildPlan,
    folder: Path,
    *,
    roles: Mapping[str, Role],
    seed: int,
    lost_bodies: Mapping[str, str],
    lost_takes: Mapping[str, str],
    lost_clips: Mapping[tuple[str, str], str],
) -> Manifest:
    """Write the pack of a build.

    Args:
        plan: what was built.
        folder: of the pack.
        roles: what the dataset says of the characters.
        seed: of the build.
        lost_bodies: why bodies could not be made, by name; these characters are left out altogether.
        lost_takes: why performances could not be made, by take.
        lost_clips: why clips of other bodies and takes could not be made.

    Raises:
        DatasetError: there is no character or no take left.
        UsageError: there is something else at ``folder``, or it cannot be written.
    """
    cast = [name for name in plan.cast if name not in lost_bodies]
    if not cast or not plan.takes:
        raise DatasetError("nothing was built: a pack needs a character and an action")
    clips: dict[tuple[str, str], MotionKeys] = {}
    left_out: dict[tuple[str, str], str] = {}
    qualities: dict[tuple[str, str], dict[str, float | None]] = {}
    for pair in ((name, take.name) for name in cast for take in plan.takes):
        reason = lost_takes.get(pair[1]) or lost_clips.get(pair)
        if reason is not None:
            left_out[pair] = _NOT_MADE + reason
            continue
        keys, record = plan.store.read_clip(*pair)
        qualities[pair] = {
            **Quality(**record["quality"]).to_row(),
            "tries": record["tries"],
            "contact_share": record["contact_share"],
            **{f"{_OF_COPY}{name}": value for name, value in Quality(**record["copy"]).to_row().items()},
        }
        if record["failed"]:
            left_out[pair] = ", ".join(record["failed"])
        else:
            clips[pair] = keys
    bodies = {name: plan.store.read_body(name) for name in cast}
    facts = {name: body_facts(body) for name, body in bodies.items()}
    splits: list[Split] = []
    if clips:
        split = frozen_split(
            clips,
            seen_characters={name for name in cast if roles[name].seen},
            seen_motions={take.name for take in plan.takes if take.seen},
            families={take.name: take.family for take in plan.takes},
            builds={name: build_of(facts[name]) for name in cast},
            sources=slim_sources(facts),
        )
        splits = [split] if split.rows else []  # there are none where no two characters share a clip
    return write_pack(
        folder,
        characters=[
            CharacterRecord(body, roles[name].kind, roles[name].seen, facts[name]) for name, body in bodies.items()
        ],
        actions=[ActionRecord(t.name, t.family, t.summary, t.seen, t.left, t.right) for t in plan.takes],
        clips=clips,
        left_out=left_out,
        qualities=qualities,
        splits=splits,
        seed=seed,
        made_with={name: version(name) for name in ("numpy", "retargetbench", "scipy", "torch")},
    )


def slim_sources(facts: Mapping[str, Mapping[str, float]]) -> frozenset[str]:
    """Return the names of the bodies whose clips may be sources in splits, see `STOUTEST_SOURCE`.

    Args:
        facts: of each body, as `retargetbench.datasets.studio.body_facts.body_facts` gives them.
    """
    radii = {name: of["arm_radius_ratio"] for name, of in facts.items() if "arm_radius_ratio" in of}
    if not radii:
        return frozenset(facts)
    limit = STOUTEST_SOURCE * median(radii.values())
    return frozenset(name for name in facts if radii.get(name, 0.0) <= limit)


def outcome(rows: Sequence[Mapping[str, str]]) -> Outcome:
    """Sum up the figures of a pack.

    Args:
        rows: as `retargetbench.datasets.studio.dataset.StudioDataset.quality` gives them.
    """
    passed = [row for row in rows if not row["left_out"]]
    tried_of = Counter(row["character"] for row in rows)
    passed_of = Counter(row["character"] for row in passed)
    worst = sorted(tried_of, key=lambda name: (passed_of[name] / tried_of[name], name))
    gates: Counter[str] = Counter()
    not_made: Counter[str] = Counter()
    for row in rows:
        if row["left_out"].startswith(_NOT_MADE):
            not_made[row["left_out"].removeprefix(_NOT_MADE)] += 1
        else:
            gates.update(gate for gate in get_args(Gate) if gate in row["left_out"].split(", "))
    solved = [row for row in passed if float(row["tries"]) > 0]
    return Outcome(
        tried=len(rows),
        passed=len(passed),
        characters={name: (passed_of[name], tried_of[name]) for name in worst},
        gates=dict(gates.most_common()),
        not_made=dict(not_made.most_common()),
        compared={name: (_mean(solved, name), _mean(solved, f"{_OF_COPY}{name}")) for name in COMPARED},
    )


def _mean(rows: Sequence[Mapping[str, str]], column: str) -> float:
    """Mean of the cells that are not empty; NaN without any."""
    figures = [float(row[column]) for row in rows if row.get(column)]
    return fmean(figures) if figures else math.nan
