"""Reports what is odd about a dataset before anybody draws conclusions from it.

Nothing here changes data. A *note* tells what a reader of results should know, a *warning* what is probably wrong
with the files, an *error* what makes the dataset unusable.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from retargetbench.datasets.splits import split_atom
from retargetbench.errors import RetargetBenchError
from retargetbench.kinematics import joint_positions
from retargetbench.motion import Motion
from retargetbench.rest_pose import REPOSED, T_TOLERANCE_DEG, t_pose_angles
from retargetbench.rigs import RAW_WEIGHT_SUMS
from retargetbench.skeleton import CANONICAL_JOINTS, CANONICAL_PARENTS, canonical_index
from retargetbench.transfer import lowest_sole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.datasets.base import Dataset

    Progress = Callable[[int, int, str], None]
    """Called with things done, things in all, and what comes next."""

PLAUSIBLE_HEIGHT = (0.4, 3.0)
"""Heights by R2ET's rule outside this range, metres, hint at wrong units."""

FLOOR_TOLERANCE = 0.05
"""Soles farther than this from y = 0, metres, are reported."""

FASTEST_ROOT = 15.0
"""A root that moves faster from frame to frame, m/s, is taken for a jump; sprinters reach 12."""

LARGEST_TURN_DEG = 90.0
"""A joint that turns farther from one frame to the next, degrees, is taken for a jump."""

NOTABLE_PENETRATION = 5.0
"""Share of arm vertices inside the body, percent, from which a source is reported."""

SAMPLED_FRAMES = 24
"""Frames of a clip, evenly spread, on which mesh measures are taken."""

_PARTS = ("Head", "LeftHand", "RightHand", "LeftFoot", "RightFoot")


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: Literal["note", "warning", "error"]
    subject: str
    text: str


@dataclass(frozen=True)
class CharacterMeasures:
    """What was measured on a character."""

    name: str
    joints: int
    vertices: int
    faces: int
    height: float
    """By R2ET's rule of eight bones, metres."""
    lowest_sole: float
    """Lowest sole vertex at rest, metres."""
    largest_t_angle_deg: float
    """Farthest of upper arms and thighs from a T-pose, degrees."""
    rest: str
    """What was done to the rest at import."""
    raw_weight_sums: str
    """Smallest and largest sum of a vertex's weights in the file."""


@dataclass(frozen=True)
class ClipMeasures:
    """What was measured on a clip."""

    character: str
    motion: str
    frames: int
    fps: float
    floor: float
    """Lowest sole over the sampled frames, metres."""
    fastest_root: float
    """Largest speed of the hips between frames, m/s."""
    largest_turn_deg: float
    """Largest rotation of a joint between frames, degrees."""
    penetration: float | None
    """Arm vertices inside the body, percent, mean over the sampled frames; None where not measured."""


@dataclass(frozen=True)
class DatasetReport:
    """Everything that `check_dataset` found."""

    name: str
    hash: str
    characters: tuple[CharacterMeasures, ...]
    clips: tuple[ClipMeasures, ...]
    findings: tuple[Finding, ...]

    @property
    def has_errors(self) -> bool:
        """Whether the dataset is unusable in part."""
        return any(finding.level == "error" for finding in self.findings)


def check_dataset(dataset: Dataset, *, penetration: bool = True, progress: Progress | None = None) -> DatasetReport:
    """Read everything in a dataset and report what is odd.

    Args:
        dataset: what to check; clips are read one at a time.
        penetration: also measure how far sources penetrate themselves, the slowest part.
        progress: told about every character and clip.

    Returns:
        Measures and findings; a file that cannot be read is a finding of level ``error``.
    """
    characters: list[CharacterMeasures] = []
    clips: list[ClipMeasures] = []
    findings: list[Finding] = []
    total = len(dataset.character_names) + len(dataset.clip_names)
    for i, name in enumerate(dataset.character_names):
        _tell(progress, i, total, name)
        try:
            character = dataset.character(name)
        except RetargetBenchError as error:
            findings.append(Finding("error", name, str(error)))
            continue
        characters.append(measure_character(character))
        findings += character_findings(character)
    for i, (owner, motion) in enumerate(dataset.clip_names, start=len(dataset.character_names)):
        _tell(progress, i, total, f"{owner}/{motion}")
        try:
            measures = measure_clip(dataset.clip(owner, motion), penetration=penetration)
        except RetargetBenchError as error:
            findings.append(Finding("error", f"{owner}/{motion}", str(error)))
            continue
        clips.append(measures)
        findings += clip_findings(measures)
    findings += _split_findings(dataset)
    return DatasetReport(dataset.name, dataset.hash, tuple(characters), tuple(clips), tuple(findings))


def measure_character(character: Character) -> CharacterMeasures:
    """Measure a character at rest."""
    return CharacterMeasures(
        name=character.name,
        joints=character.skeleton.joint_count,
        vertices=character.vertex_count,
        faces=len(character.faces),
        height=character.height,
        lowest_sole=float(lowest_sole(character, _rest_motion(character))[0]),
        largest_t_angle_deg=max(_t_angles(character).values()),
        rest=character.provenance.get("rest", ""),
        raw_weight_sums=character.provenance.get(RAW_WEIGHT_SUMS, ""),
    )


def character_findings(character: Character) -> Iterator[Finding]:
    """Say what is odd about a character at rest."""

    def finding(level: Literal["note", "warning"], text: str) -> Finding:
        return Finding(level, character.name, text)

    low, high = PLAUSIBLE_HEIGHT
    if not low <= character.height <= high:
        yield finding(
            "warning", f"height {character.height:.3g} m is outside {low}..{high} m; were the file's units centimetres?"
        )
    counts = torch.bincount(character.dominant_joint, minlength=22)
    for part in _PARTS:
        if int(counts[canonical_index(part)]) == 0:
            yield finding("warning", f"no vertex belongs to the {part}; contact and penetration are blind there")
    angles = _t_angles(character)
    worst = max(angles, key=angles.__getitem__)
    if angles[worst] > T_TOLERANCE_DEG:
        yield finding("warning", f"the rest is not T-like: {worst} is {angles[worst]:.1f} degrees from a T-pose")
    if character.provenance.get("rest", "").startswith(REPOSED):
        yield finding("note", f"the rest was {character.provenance['rest']}")
    yield from _orientation_findings(character)
    sole = float(lowest_sole(character, _rest_motion(character))[0])
    if abs(sole) > FLOOR_TOLERANCE:
        side = "above" if sole > 0 else "below"
        yield finding("note", f"at rest the lowest sole is {abs(sole):.3f} m {side} the floor y = 0")
    lengths = character.skeleton.canonical_offsets.norm(dim=-1)
    for k in range(1, 22):
        if float(lengths[k]) < 1e-4:
            bone = f"{CANONICAL_JOINTS[CANONICAL_PARENTS[k]]}-{CANONICAL_JOINTS[k]}"
            yield finding("warning", f"bone {bone} has no length, so its direction is unknown")
    sums = [float(text) for text in character.provenance.get(RAW_WEIGHT_SUMS, "").split("..") if text]
    if sums and max(abs(value - 1) for value in sums) > 1e-3:
        yield finding("note", f"skin weights of a vertex summed to {sums[0]:.4f}..{sums[-1]:.4f}; they were normalised")


def measure_clip(clip: Clip, *, penetration: bool = True) -> ClipMeasures:
    """Measure a clip, its mesh on up to `SAMPLED_FRAMES` frames."""
    motion = clip.motion
    count = min(SAMPLED_FRAMES, motion.frame_count)
    chosen = torch.linspace(0, motion.frame_count - 1, count).round().long()
    sampled = Motion(motion.root_translation[chosen], motion.local_rotations[chosen], motion.fps)
    hips = joint_positions(clip.character.skeleton, motion)[:, 0]
    dots = (motion.local_rotations[1:] * motion.local_rotations[:-1]).sum(-1).abs().clamp_max(1.0)
    is_still = motion.frame_count < 2
    return ClipMeasures(
        character=clip.character.name,
        motion=clip.name,
        frames=motion.frame_count,
        fps=motion.fps,
        floor=float(lowest_sole(clip.character, sampled).min()),
        fastest_root=0.0 if is_still else float(hips.diff(dim=0).norm(dim=-1).max()) * motion.fps,
        largest_turn_deg=0.0 if is_still else math.degrees(2 * math.acos(float(dots.min()))),
        penetration=_source_penetration(clip, sampled) if penetration else None,
    )


def clip_findings(measures: ClipMeasures) -> Iterator[Finding]:
    """Say what is odd about a clip."""
    subject = f"{measures.character}/{measures.motion}"
    if measures.frames < 2:
        yield Finding("warning", subject, "one frame only; there is no motion in it")
    if not 10 <= measures.fps <= 240:
        yield Finding("warning", subject, f"{measures.fps:g} frames a second is unusual; check the file's frame time")
    if abs(measures.floor) > FLOOR_TOLERANCE:
        side = "above" if measures.floor > 0 else "below"
        yield Finding("note", subject, f"the lowest sole of the clip is {abs(measures.floor):.3f} m {side} y = 0")
    if measures.fastest_root > FASTEST_ROOT:
        yield Finding("warning", subject, f"the hips jump: {measures.fastest_root:.1f} m/s between two frames")
    if measures.largest_turn_deg > LARGEST_TURN_DEG:
        yield Finding(
            "warning", subject, f"a joint jumps: it turns by {measures.largest_turn_deg:.0f} degrees between two frames"
        )
    if measures.penetration is not None and measures.penetration > NOTABLE_PENETRATION:
        yield Finding(
            "note",
            subject,
            f"the source penetrates itself: {measures.penetration:.1f} % of its arm vertices are inside",
        )


def _orientation_findings(character: Character) -> Iterator[Finding]:
    """Say whether the rest stands upright, faces +Z and has its left at +X."""
    rest = character.skeleton.to_canonical().rest_positions.double()

    def at(name: str) -> torch.Tensor:
        return rest[canonical_index(name)]

    up = at("Head") - at("LeftFoot")
    if float(up[1]) < 0.7 * float(up.norm()):
        yield Finding("warning", character.name, "the head is not above the feet; was the file's up axis another?")
        return
    toes = at("LeftToeBase") - at("LeftFoot") + at("RightToeBase") - at("RightFoot")
    if float(toes[2]) < 0.7 * math.hypot(float(toes[0]), float(toes[2])):
        yield Finding("warning", character.name, "the feet do not point to +Z; does the character face elsewhere?")
    if float(at("LeftArm")[0]) < float(at("RightArm")[0]):
        yield Finding("warning", character.name, "the left arm is not at +X; are left and right swapped?")


def _split_findings(dataset: Dataset) -> Iterator[Finding]:
    """Say what is wrong with splits."""
    for name in dataset.splits:
        try:
            rows = dataset.split(name).rows
        except RetargetBenchError as error:
            yield Finding("error", f"split {name}", str(error))
            continue
        wrong = [
            row
            for row in rows
            if row.atom
            != split_atom(
                character_seen=row.target in dataset.seen_characters, motion_seen=row.motion in dataset.seen_motions
            )
        ]
        if wrong:
            first = wrong[0]
            yield Finding(
                "warning",
                f"split {name}",
                f"{len(wrong)} rows are in another atom than the lists of what is seen say, first "
                f"{first.source}/{first.motion}/{first.target} in {first.atom}",
            )
        empty = [atom for atom in ("UC+UM", "UC+SM", "SC+UM", "SC+SM") if not Counter(r.atom for r in rows)[atom]]
        if empty:
            yield Finding("note", f"split {name}", f"no row in {', '.join(empty)}")


def _t_angles(character: Character) -> dict[str, float]:
    """Angles of upper arms and thighs, which decide what is T-like."""
    angles = t_pose_angles(character.skeleton)
    return {joint: angles[joint] for joint in ("LeftArm", "RightArm", "LeftUpLeg", "RightUpLeg")}


def _rest_motion(character: Character) -> Motion:
    """One frame at rest."""
    rotations = character.bind_vertices.new_zeros(1, character.skeleton.joint_count, 4)
    rotations[..., 3] = 1.0
    return Motion(character.skeleton.offsets[:1], rotations, 1.0)


def _source_penetration(clip: Clip, sampled: Motion) -> float | None:
    """Mean share of arm vertices inside the body, percent; None where the metric is not defined."""
    from retargetbench.clip import Clip as SampledClip
    from retargetbench.metrics.base import Evaluation
    from retargetbench.metrics.penetration import Penetration

    source = SampledClip(clip.name, clip.character, sampled)
    evaluation = Evaluation(source, clip.character, sampled)
    value = Penetration().evaluate(evaluation, frozenset({"penetration"}))["penetration"]
    return value.value if value.is_defined else None


def _tell(progress: Progress | None, done: int, total: int, what: str) -> None:
    if progress is not None:
        progress(done, total, what)
