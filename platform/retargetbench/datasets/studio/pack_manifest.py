"""The manifest of a pack: what is in it, how it was made, and the hashes of everything."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from retargetbench.datasets.studio.pack_files import NEXT_STEP
from retargetbench.errors import DatasetError

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "studio.json"
"""The file that makes a folder a pack."""

QUALITY = "quality.csv"
"""Figures of all clips."""

FORMAT = "retargetbench-studio"
VERSION = 1
"""Version of the layout that is written and read."""


HandShape = Literal["relaxed", "flat", "fist", "point"]
"""That of `retargetbench.datasets.studio.actions`; whoever reads a pack need not load the actions."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PackedCharacter(_Strict):
    """What the manifest says of a character."""

    kind: str
    seen: bool
    joints: int
    vertices: int
    height: float
    """By the house rule, metres."""
    facts: dict[str, float]
    topology: str
    """Whose topology block it uses."""
    left_out: tuple[str, ...]
    """Actions of which it has no clip; ``quality.csv`` says why."""
    provenance: dict[str, str]


class PackedAction(_Strict):
    """What the manifest says of an action."""

    family: str
    summary: str
    seen: bool
    left: HandShape
    right: HandShape
    keys: int
    """0 where no character has a clip of it."""
    seconds: float


class Block(_Strict):
    """Where a block is, and the SHA-256 of its content."""

    shard: str
    sha256: str


class Manifest(_Strict):
    """All of ``studio.json``; characters and actions by name."""

    format: Literal["retargetbench-studio"]
    version: int
    name: str
    description: str
    licence: str
    seed: int
    made_with: dict[str, str]
    """Package → version."""
    fps: float
    hash: str
    """Of blocks, splits and what the manifest says of characters and actions; not of the figures in ``quality.csv``."""
    characters: dict[str, PackedCharacter]
    actions: dict[str, PackedAction]
    blocks: dict[str, Block]
    files: dict[str, str]
    """SHA-256 of the other files."""

    def content_hash(self) -> str:
        """Return 16 hexadecimal digits over everything that makes a difference to results."""
        parts = {
            "blocks": {name: block.sha256 for name, block in self.blocks.items()},
            "splits": {name: digest for name, digest in self.files.items() if name.startswith("splits/")},
            "characters": {name: [c.seen, c.topology, sorted(c.left_out)] for name, c in self.characters.items()},
            "actions": {name: [a.seen, a.left, a.right, a.keys] for name, a in self.actions.items()},
            "fps": self.fps,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def is_pack(folder: Path) -> bool:
    """Return whether a folder holds a pack of any version."""
    try:
        return bool(json.loads((folder / MANIFEST).read_bytes())["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_manifest(folder: Path) -> Manifest:
    """Read and check ``studio.json``.

    Raises:
        DatasetError: it is missing, damaged, or of another version, or its hash is not that of what it lists.
    """
    path = folder / MANIFEST
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); {NEXT_STEP}") from None
    except ValueError as error:
        raise DatasetError(f"{path} is damaged: it is no JSON ({error}); {NEXT_STEP}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise DatasetError(f"{path} is not the manifest of a pack: it lacks the format {FORMAT}")
    if values.get("version") != VERSION:
        raise DatasetError(
            f"{path}: layout version {values.get('version')!r} is not {VERSION}, the one this release reads; "
            f"{NEXT_STEP}"
        )
    try:
        manifest = Manifest.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DatasetError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; {NEXT_STEP}") from None
    if manifest.content_hash() != manifest.hash:
        raise DatasetError(
            f"{path} was changed: its hash {manifest.hash} is not {manifest.content_hash()}, that of what it lists; "
            f"{NEXT_STEP}"
        )
    return manifest
