"""The pack: the dataset ``studio`` in a few small files, written once by the builder and read lazily.

Layout, version 1::

    studio.json         the manifest: what is in it, how it was made, hashes; see `pack_manifest.Manifest`
    shard_00.zip …      blocks of arrays, see `retargetbench.datasets.studio.pack_files`
    quality.csv         figures of every clip that was tried, and what is wrong with those that were left out
    splits/default.csv  the frozen rows

Blocks are ``topology/NAME`` (joints, faces and skin weights, stored once for all bodies that share them), ``body/NAME``
(vertices and bones) and ``motions/NAME`` (keys of all clips of a character, in the order of the actions). What is read
from a pack *is* the dataset: rounding is part of it, and `rounded_character` and `rounded_keys` give it to the builder.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from retargetbench.datasets.splits import split_to_csv
from retargetbench.datasets.studio.keys import KEY_STEP
from retargetbench.datasets.studio.pack_bodies import body_to_arrays, topology_to_arrays
from retargetbench.datasets.studio.pack_files import block_to_bytes, sha256, write_shards
from retargetbench.datasets.studio.pack_manifest import (
    MANIFEST,
    QUALITY,
    VERSION,
    Block,
    Manifest,
    PackedAction,
    PackedCharacter,
    is_pack,
)
from retargetbench.datasets.studio.pack_motions import FPS, MotionKeys, motions_to_arrays
from retargetbench.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.base import Split
    from retargetbench.datasets.studio.pack_manifest import HandShape

    Pair = tuple[str, str]
    """Names of a character and an action."""

SHARD_BYTES = 5_500_000
"""Size that a shard does not exceed; files of the repository stay under 6 MB."""

LICENCE = "data CC0-1.0: bodies made with anny from MakeHuman's CC0 assets, actions and their solutions by this project"


@dataclass(frozen=True, eq=False)
class CharacterRecord:
    """A character for the pack."""

    character: Character
    kind: str
    seen: bool
    """Whether methods may train on it."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """Figures for people, such as the radius of its arms."""


@dataclass(frozen=True)
class ActionRecord:
    """An action for the pack."""

    name: str
    family: str
    summary: str
    seen: bool
    """Whether methods may train on it."""
    left: HandShape = "relaxed"
    right: HandShape = "relaxed"


def write_pack(
    folder: str | Path,
    *,
    characters: Sequence[CharacterRecord],
    actions: Sequence[ActionRecord],
    clips: Mapping[Pair, MotionKeys],
    left_out: Mapping[Pair, str],
    qualities: Mapping[Pair, Mapping[str, float | None]],
    splits: Sequence[Split],
    seed: int,
    made_with: Mapping[str, str],
    name: str = "studio",
    description: str = "people of many builds in actions with contacts, solved and checked on each body",
    licence: str = LICENCE,
    shard_bytes: int = SHARD_BYTES,
) -> Manifest:
    """Write a pack, replacing one that is there; equal arguments give equal bytes with one version of zlib.

    Args:
        folder: of the pack; it is complete or it is not there at all.
        characters: in any order, bound at their rest.
        actions: in any order.
        clips: keys by names of character and action; all clips of an action have as many.
        left_out: why there is no clip, for all other pairs.
        qualities: figures of clips, of those left out too.
        splits: frozen rows, ``default`` among them.
        seed: of the builder.
        made_with: versions of packages.
        name: for tables.
        description: one line.
        licence: one line.
        shard_bytes: size that a shard should not exceed.

    Raises:
        DatasetError: the arguments do not fit each other.
        UsageError: there is something else at ``folder``, or it cannot be written.
    """
    people = sorted(characters, key=lambda record: record.character.name)
    deeds = sorted(actions, key=lambda record: record.name)
    counts = _key_counts(people, deeds, clips, left_out)
    place = Path(folder)
    check_place(place)
    temporary = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.new")
    try:
        (temporary / "splits").mkdir(parents=True)
        topologies = _topologies(people)
        places = write_shards(temporary, _blocks(people, deeds, clips, topologies), shard_bytes)
        texts = {f"splits/{split.name}.csv": split_to_csv(split) for split in splits}
        texts[QUALITY] = _quality_csv(clips, left_out, qualities)
        for file, text in texts.items():
            (temporary / file).write_bytes(text.encode())
        manifest = Manifest(
            format="retargetbench-studio",
            version=VERSION,
            name=name,
            description=description,
            licence=licence,
            seed=seed,
            made_with=dict(sorted(made_with.items())),
            fps=FPS,
            hash="",
            characters={
                record.character.name: PackedCharacter(
                    kind=record.kind,
                    seen=record.seen,
                    joints=record.character.skeleton.joint_count,
                    vertices=record.character.vertex_count,
                    height=round(record.character.height, 4),
                    facts={key: round(value, 6) for key, value in sorted(record.facts.items())},
                    topology=topologies[record.character.name],
                    left_out=tuple(a.name for a in deeds if (record.character.name, a.name) in left_out),
                    provenance=dict(sorted(record.character.provenance.items())),
                )
                for record in people
            },
            actions={
                a.name: PackedAction(
                    family=a.family,
                    summary=a.summary,
                    seen=a.seen,
                    left=a.left,
                    right=a.right,
                    keys=counts[a.name],
                    seconds=round(max(counts[a.name] - 1, 0) * KEY_STEP / FPS, 4),
                )
                for a in deeds
            },
            blocks={block: Block(shard=shard, sha256=digest) for block, (shard, digest) in sorted(places.items())},
            files={file: sha256(text.encode()) for file, text in sorted(texts.items())},
        )
        manifest = manifest.model_copy(update={"hash": manifest.content_hash()})
        text = json.dumps(manifest.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        (temporary / MANIFEST).write_bytes(text.encode())
        _put_in_place(temporary, place)
    except OSError as error:
        raise UsageError(f"{place} cannot be written: {error.strerror}; choose another folder") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def check_place(place: Path) -> None:
    """Look whether a pack may be written at a folder; who builds for hours asks before.

    Raises:
        UsageError: there is something else.
    """
    if place.exists() and any(place.iterdir() if place.is_dir() else [place]) and not is_pack(place):
        raise UsageError(f"{place} exists and is no pack, so it is not replaced; choose another folder")


def _key_counts(
    people: Sequence[CharacterRecord],
    deeds: Sequence[ActionRecord],
    clips: Mapping[Pair, MotionKeys],
    left_out: Mapping[Pair, str],
) -> dict[str, int]:
    """Return how many keys each action has, after a look at whether everything is there once."""
    names = [record.character.name for record in people]
    pairs = {(character, action.name) for character in names for action in deeds}
    if len(pairs) != len(people) * len(deeds) or not pairs:
        raise DatasetError("a pack has characters and actions, each with a name of its own")
    either = set(clips) ^ set(left_out)
    if either != pairs or set(clips) & set(left_out):
        wrong = min((pairs ^ either) | (set(clips) & set(left_out)))
        raise DatasetError(f"{wrong[0]}/{wrong[1]} must be either a clip or left out with a reason")
    counts = {action.name: 0 for action in deeds}
    for (character, action), keys in sorted(clips.items()):
        if counts[action] not in (0, keys.count):
            raise DatasetError(f"{character}/{action} has {keys.count} keys, other characters' have {counts[action]}")
        counts[action] = keys.count
    return counts


def _topologies(people: Sequence[CharacterRecord]) -> dict[str, str]:
    """Return for each character the first one that has the same topology."""
    first: dict[str, str] = {}
    return {
        record.character.name: first.setdefault(
            sha256(block_to_bytes(topology_to_arrays(record.character))), record.character.name
        )
        for record in people
    }


def _blocks(
    people: Sequence[CharacterRecord],
    deeds: Sequence[ActionRecord],
    clips: Mapping[Pair, MotionKeys],
    topologies: Mapping[str, str],
) -> Iterator[tuple[str, bytes]]:
    """Name and content of all blocks, bodies first."""
    for record in people:
        name = record.character.name
        if topologies[name] == name:
            yield f"topology/{name}", block_to_bytes(topology_to_arrays(record.character))
        yield f"body/{name}", block_to_bytes(body_to_arrays(record.character))
    for record in people:
        name = record.character.name
        motions = [clips[name, action.name] for action in deeds if (name, action.name) in clips]
        if motions:
            yield f"motions/{name}", block_to_bytes(motions_to_arrays(motions))


def _quality_csv(
    clips: Mapping[Pair, MotionKeys],
    left_out: Mapping[Pair, str],
    qualities: Mapping[Pair, Mapping[str, float | None]],
) -> str:
    """Return the table of figures: a row for each clip that was tried, empty cells where there is no figure."""
    columns = list(dict.fromkeys(column for row in qualities.values() for column in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("character", "action", "left_out", *columns))
    for pair in sorted({*clips, *left_out}):
        figures = (qualities.get(pair, {}).get(column) for column in columns)
        writer.writerow((*pair, left_out.get(pair, ""), *("" if f is None else f"{f:.5g}" for f in figures)))
    return text.getvalue()


def _put_in_place(temporary: Path, place: Path) -> None:
    """Rename a finished folder; one that was there before is kept until then."""
    old = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.old")
    replaced = place.exists()
    if replaced:
        place.rename(old)
    try:
        temporary.rename(place)
    except OSError:
        if replaced:
            old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)
