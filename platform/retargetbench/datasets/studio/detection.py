"""Performances from any motion library: clips put on the reference body, with the steps and contacts found in them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import roma
import torch

from retargetbench.datasets.studio.curves import FPS, blurred
from retargetbench.datasets.studio.detection_contacts import SHORTEST_CONTACT, find_contacts
from retargetbench.datasets.studio.detection_feet import foot_of_skeleton, foot_track, runs_of, sole_points
from retargetbench.datasets.studio.legs import LEG_JOINTS, pose_legs
from retargetbench.datasets.studio.performance import FootTrack, Performance
from retargetbench.errors import DatasetError, RetargetBenchError
from retargetbench.formats.bvh import read_bvh
from retargetbench.kinematics import forward_kinematics, hemisphere_continuous, resample
from retargetbench.motion import Motion
from retargetbench.rest_pose import change_motion_rest, t_pose_change
from retargetbench.rigs import CENTIMETRE, skeleton_from_bvh
from retargetbench.skeleton import CANONICAL_PARENTS, canonical_skeleton
from retargetbench.transfer import to_canonical_motion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.datasets.studio.actions import Family
    from retargetbench.datasets.studio.performance import Contact
    from retargetbench.skeleton import Skeleton

LONGEST_SECONDS = 6.0
"""Longer clips are cut into windows."""

WINDOW_SECONDS = 3.0
"""Length of a window, about: windows are equally long, and a clip is cut without rest."""

SHORTEST_SECONDS = 0.5
"""Shorter clips are refused."""

_FLOOR_QUANTILE = 0.1  # of the frames' lowest soles; a foot that sinks in now and then does not lift the body
_SEAT_HEIGHT = 0.04  # heights of the seat's lowest skin over the floor, below which a body sits
_DROP_BLUR = 3.0  # frames over which hips come down where a leg is too short


@dataclass(frozen=True)
class DetectionNotes:
    """What was found in a clip.

    Attributes:
        frames: of the performance.
        stands: intervals in which the left and the right foot are planted.
        planted_share: share of the frames in which at least one foot is.
        contacts: number of contacts.
        unnamed: number of contacts that were left out because no named place is near.
    """

    frames: int
    stands: tuple[int, int]
    planted_share: float
    contacts: int
    unnamed: int


@dataclass(frozen=True, eq=False)
class Detected:
    """A performance with what was found."""

    performance: Performance
    notes: DetectionNotes


@dataclass(frozen=True, eq=False)
class MotionLibrary:
    """All performances of a folder.

    Attributes:
        detected: in the order of their files and windows.
        failures: why a file was left out, by its path in the folder.
    """

    detected: tuple[Detected, ...]
    failures: Mapping[str, str]

    @property
    def performances(self) -> tuple[Performance, ...]:
        """The performances alone."""
        return tuple(found.performance for found in self.detected)


def performance_from_clip(clip: Clip, body: Character, *, name: str, family: Family = "free") -> Performance:
    """Put a clip on the reference body as one performance, however long it is; see `detect`.

    Args:
        clip: of any character with Mixamo's joints. Its mesh is not looked at.
        body: reference body on 22 joints, see `retargetbench.datasets.studio.fingers.shaped_body`.
        name: of the performance.
        family: of it.
    """
    return detect(clip.motion, clip.character.skeleton, body, name=name, family=family, longest=float("inf"))[
        0
    ].performance


def performances_from_folder(
    folder: Path, body: Character, *, family: Family = "free", unit: float = CENTIMETRE
) -> MotionLibrary:
    """Put all BVH files of a folder and its subfolders on the reference body; broken files are left out and named.

    Performances are named like their files, with ``/`` and spaces as ``_``.

    Args:
        folder: with Mixamo-named BVH files.
        body: reference body on 22 joints.
        family: of all performances.
        unit: metres per unit of the files.

    Raises:
        DatasetError: there is no BVH file.
    """
    paths = sorted(folder.rglob("*.bvh"))
    if not paths:
        raise DatasetError(f"no BVH file lies below {folder}")
    detected: list[Detected] = []
    failures: dict[str, str] = {}
    for path in paths:
        inside = path.relative_to(folder)
        name = "_".join((*inside.parent.parts, inside.stem)).replace(" ", "_")
        try:
            bvh = read_bvh(path)
            root = torch.from_numpy(bvh.root_positions).double() * unit
            motion = Motion(root, torch.from_numpy(bvh.rotations).double(), bvh.fps)
            detected += detect(motion, skeleton_from_bvh(bvh, unit=unit), body, name=name, family=family)
        except (RetargetBenchError, OSError) as error:
            failures[inside.as_posix()] = str(error)
    return MotionLibrary(tuple(detected), failures)


@torch.no_grad()
def detect(
    motion: Motion,
    skeleton: Skeleton,
    body: Character,
    *,
    name: str,
    family: Family = "free",
    longest: float = LONGEST_SECONDS,
) -> list[Detected]:
    """Put a motion on the reference body, with its steps, and find the contacts there.

    Rotations are copied, at 30 frames a second and an odd number of frames, but for those of the legs: steps are found
    on the skeleton that was recorded, whose feet really stand, and root and feet are scaled by the ratio of the lengths
    of the legs. Where thigh, shin and foot of both are alike, that is the copied motion. It begins over the origin.
    Contacts are found on the reference body, since a skeleton has no skin. Hands are relaxed.

    Args:
        motion: of all joints of ``skeleton``.
        skeleton: with Mixamo's joints; its rest need not be an exact T-pose.
        body: reference body on 22 joints.
        name: of the performance; windows get ``_1``, ``_2`` ….
        family: of all.
        longest: seconds; a longer motion is cut into windows of about `WINDOW_SECONDS`.

    Returns:
        One performance with its notes, or one for each window.

    Raises:
        CharacterError: the motion does not fit the skeleton.
        DatasetError: it is too short.
    """
    who = on_floor(motion, skeleton, body)
    frames = who.motion.frame_count - (who.motion.frame_count + 1) % 2
    if (frames - 1) / FPS < SHORTEST_SECONDS:
        raise DatasetError(
            f"{name}: {motion.duration:.2f} s are too short for a performance, {SHORTEST_SECONDS} s are needed"
        )
    given = who.motion.frames(0, frames)
    local = roma.unitquat_to_rotmat(given.local_rotations)
    world, positions = forward_kinematics(who.skeleton, given.root_translation, given.local_rotations)
    scale = leg_ratio(body, who.skeleton)
    tracks = [foot_track(foot_of_skeleton(who.skeleton, body, side), world, positions) for side in range(2)]
    share = scale * who.skeleton.height / body.height
    left, right = (replace(track, place=track.place * share, lift=track.lift * share) for track in tracks)
    feet = (left, right)
    rest = precise_skeleton(body).rest_positions[0]
    root = rest + scale * (given.root_translation - who.skeleton.rest_positions[0])
    root = _within_reach(body, local[:, 0], root, feet)
    legs, _ = pose_legs(body, local[:, 0], root, feet)
    local[:, [joint for leg in LEG_JOINTS for joint in leg]] = legs
    rotations = hemisphere_continuous(roma.rotmat_to_unitquat(local))
    world, positions = forward_kinematics(precise_skeleton(body), root, rotations)
    found = find_contacts(body, world, positions)
    whole = Performance(
        name=name,
        family=family,
        fps=FPS,
        rotations=rotations,
        hips=(root - precise_skeleton(body).rest_positions[0]) / body.height,
        feet=feet,
        contacts=found.contacts,
        hands={"left": "relaxed", "right": "relaxed"},
    )
    sits = _sitting(body, world, positions)
    windows = _windows(frames) if (frames - 1) / FPS > longest else [(0, frames)]
    detected = []
    for number, (start, stop) in enumerate(windows, start=1):
        part = _window(whole, start, stop) if len(windows) > 1 else whole
        part = replace(
            part,
            name=f"{name}_{number}" if len(windows) > 1 else name,
            seated=float(sits[start:stop].double().mean()) > 0.5,
        )
        unnamed = sum(start <= frame < stop for frame in found.unnamed)
        detected.append(Detected(part, _notes(part, unnamed)))
    return detected


class Standing(NamedTuple):
    """A motion of the 22 joints at 30 frames a second, and the skeleton that moves, float64.

    The skeleton has the rest pose of the reference body; hips begin over its rest, and the floor is where its T-pose
    has it.
    """

    motion: Motion
    skeleton: Skeleton


def on_floor(motion: Motion, skeleton: Skeleton, body: Character) -> Standing:
    """Express a motion on the rest pose of a body, and put it over the origin and on the floor.

    The floor is where the soles are lowest, but for the lowest tenth of the frames, in which they may sink in.

    Args:
        motion: of all joints of ``skeleton``.
        skeleton: with Mixamo's joints.
        body: with its 22 joints.
    """
    canonical = skeleton.to(dtype=torch.float64).to_canonical()
    given = to_canonical_motion(skeleton.to(dtype=torch.float64), motion.to(dtype=torch.float64))
    # From the body's rest over an exact T-pose to the skeleton's.
    turned = t_pose_change(canonical) @ t_pose_change(precise_skeleton(body)).mT
    sampled = resample(change_motion_rest(canonical, given, turned), FPS)
    of_parent = turned.mT[torch.tensor(CANONICAL_PARENTS).clamp_min(0)]
    offsets = (of_parent @ canonical.offsets[:, :, None])[..., 0]
    rested = canonical_skeleton(torch.cat([canonical.offsets[:1], offsets[1:]]))
    begin = sampled.root_translation[0] - rested.rest_positions[0]
    root = sampled.root_translation - begin * begin.new_tensor([1.0, 0.0, 1.0])
    world, positions = forward_kinematics(rested, root, sampled.local_rotations)
    feet = [foot_of_skeleton(rested, body, side) for side in range(2)]
    soles = torch.cat([sole_points(foot, world, positions)[..., 1] for foot in feet], -1).amin(-1)
    floor = soles.quantile(_FLOOR_QUANTILE)
    return Standing(Motion(root - floor * root.new_tensor([0.0, 1.0, 0.0]), sampled.local_rotations, FPS), rested)


def leg_ratio(body: Character, skeleton: Skeleton) -> float:
    """Return how much longer the legs of a body are than those of a skeleton of 22 joints."""
    joints = [joint for leg in LEG_JOINTS for joint in leg[1:3]]
    lengths = [rig.offsets[joints].norm(dim=-1).sum() for rig in (precise_skeleton(body), skeleton)]
    return float(lengths[0] / lengths[1])


def precise_skeleton(body: Character) -> Skeleton:
    """Return the 22 joints of a body in float64."""
    return body.skeleton.to_canonical().to(dtype=torch.float64)


def _within_reach(
    body: Character, hips: torch.Tensor, root: torch.Tensor, feet: tuple[FootTrack, FootTrack]
) -> torch.Tensor:
    """Bring the hips down, smoothly, where a leg is too short for its planted foot, (T, 3) metres."""
    _, short = pose_legs(body, hips, root, feet)
    missing = (short * torch.stack([track.planted for track in feet], -1)).amax(-1)
    if float(missing.max()) <= 0:
        return root
    radius = int(2 * _DROP_BLUR)
    widest = torch.nn.functional.max_pool1d(missing[None], 2 * radius + 1, 1, radius)[0]
    return root - 1.1 * blurred(widest, _DROP_BLUR)[:, None] * root.new_tensor([0.0, 1.0, 0.0])


def _sitting(body: Character, world: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Whether the seat is on the floor, (T,) bool."""
    seat = body.rest_vertices[body.dominant_joint == 0].double() - precise_skeleton(body).rest_positions[0]
    lowest = (world[:, 0, 1] @ seat.T).amin(-1) + positions[:, 0, 1]
    return lowest < _SEAT_HEIGHT * body.height


def _windows(frames: int) -> list[tuple[int, int]]:
    """Cut frames into windows of odd length that have their first and last frames in common."""
    count = max(1, round((frames - 1) / FPS / WINDOW_SECONDS))
    edges = [2 * round(k * (frames - 1) / (2 * count)) for k in range(count + 1)]
    return [(start, stop + 1) for start, stop in itertools.pairwise(edges)]


def _window(whole: Performance, start: int, stop: int) -> Performance:
    """Cut a window out of a performance and begin it over the origin."""
    begin = whole.hips[start, [0, 2]]
    feet = []
    for track in whole.feet:
        cut = replace(track, **{name: getattr(track, name)[start:stop] for name in FootTrack.__dataclass_fields__})
        feet.append(replace(cut, place=cut.place - begin))
    hips = whole.hips[start:stop].clone()
    hips[:, [0, 2]] -= begin
    contacts = [_cut_contact(contact, start, stop) for contact in whole.contacts]
    return replace(
        whole,
        rotations=whole.rotations[start:stop],
        hips=hips,
        feet=(feet[0], feet[1]),
        contacts=tuple(c for c in contacts if int(c.active.sum()) >= SHORTEST_CONTACT),
    )


def _cut_contact(contact: Contact, start: int, stop: int) -> Contact:
    return replace(contact, active=contact.active[start:stop], share=contact.share[start:stop])


def _notes(performance: Performance, unnamed: int) -> DetectionNotes:
    planted = torch.stack([track.planted for track in performance.feet])
    left, right = (len(runs_of(row)) for row in planted)
    return DetectionNotes(
        frames=len(performance.rotations),
        stands=(left, right),
        planted_share=float(planted.any(0).double().mean()),
        contacts=len(performance.contacts),
        unnamed=unnamed,
    )
