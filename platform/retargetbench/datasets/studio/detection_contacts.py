"""Contacts found in a motion: when hands and forearms are on the skin of other parts, and which places are together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from retargetbench.caching import per_character
from retargetbench.datasets.studio.curves import FPS, blurred
from retargetbench.datasets.studio.detection_feet import runs_of
from retargetbench.datasets.studio.performance import Contact
from retargetbench.datasets.studio.places import PLACES, SkinPoint, find_place
from retargetbench.datasets.studio.surface_samples import SurfaceSamples, joint_transforms, pose_rows, sample_surface
from retargetbench.errors import CharacterError
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character

TOUCH_DISTANCE = 0.002 / 1.38
"""Skins that are nearer touch, heights; 0.2 cm of 138 cm. Skins that are in each other are nearer still."""

NEAR_DISTANCE = 0.02 / 1.38
"""Skins that are nearer and move alike touch, heights."""

ALIKE_COSINE = 0.9
"""Mean cosine of the velocities of skins that move alike."""

LONGEST_GAP = 3
"""Frames; a shorter interruption is none."""

SHORTEST_CONTACT = 4
"""Frames; a shorter contact is none."""

FARTHEST_PLACE = 0.06
"""Heights; where no named place is nearer, a contact has no name and is left out."""

SLIDE = 0.03
"""Heights by which the touched point wanders if a contact slides."""

_PAIRS = 3  # nearest pairs of points whose velocities are compared
_STILL = 0.02  # heights/s; skins that move less against each other are alike, whatever their directions
_PATCH = 0.006  # heights by which points of the patch that touches may be farther than the nearest
_MOUTH = 0.03  # heights across a mouth
_FRAMES_AT_ONCE = 16
_END_FRAMES = 5  # at begin and end, from which the first and the second place are found
_SMOOTH = 2.0  # frames over which the way between places is blurred


class _Group(NamedTuple):
    """Skin of some joints, in how many samples, and on which bones its places are."""

    joints: tuple[str, ...]
    samples: int
    bones: tuple[str, ...]


def _side_groups(side: str) -> dict[str, _Group]:
    leg = tuple(side + name for name in ("UpLeg", "Leg", "Foot", "ToeBase"))
    return {
        f"{side}Hand": _Group((f"{side}Hand",), 160, (f"{side}Hand",)),
        f"{side}ForeArm": _Group((f"{side}ForeArm",), 160, (f"{side}ForeArm",)),
        f"{side}Arm": _Group((f"{side}Arm",), 200, (f"{side}Arm",)),
        f"{side}Leg": _Group(leg, 600, leg),
    }


_GROUPS: dict[str, _Group] = {
    "Torso": _Group(
        ("Hips", "Spine", "Spine1", "Spine2", "LeftShoulder", "RightShoulder"),
        1000,
        ("Hips", "Spine", "Spine1", "Spine2", "LeftArm", "RightArm"),
    ),
    "Head": _Group(("Neck", "Head"), 500, ("Neck", "Head")),
    **_side_groups("Left"),
    **_side_groups("Right"),
}

# Of two arms each pair comes once; hands come, and forearms and upper arms are touched.
_PAIRED: tuple[tuple[str, str], ...] = tuple(
    (f"{side}{part}", touched)
    for side, other in (("Left", "Right"), ("Right", "Left"))
    for part in ("Hand", "ForeArm")
    for touched in (
        "Torso",
        "Head",
        "LeftLeg",
        "RightLeg",
        f"{other}Arm",
        *((f"{other}ForeArm",) if part == "Hand" or side == "Left" else ()),
        *((f"{other}Hand",) if part == "Hand" and side == "Left" else ()),
    )
)

_ON_ARM = ("upper_arm_outer", "upper_arm_front", "upper_arm_inner", "upper_arm_back")
"""Places on the bone of the upper arm that are not on the torso, as the shoulder is."""

_BESIDE = ("hip", "waist", "buttock", "thigh_outer", "thigh_front", "thigh_back")
"""Places beside which arms hang: being near there is no contact, touching is."""


@dataclass(frozen=True, eq=False)
class FoundContacts:
    """Contacts of a motion.

    Attributes:
        contacts: by the part that comes and then by time.
        unnamed: first frames of contacts that were left out because no named place is near, in the same order.
    """

    contacts: tuple[Contact, ...]
    unnamed: tuple[int, ...]


def find_contacts(body: Character, rotations: torch.Tensor, positions: torch.Tensor) -> FoundContacts:
    """Find the contacts of hands and forearms with torso, head, legs and the other arm.

    Args:
        body: with its 22 joints, at the T-pose.
        rotations: world rotations at 30 frames a second, (T, 22, 3, 3).
        positions: of the joints, (T, 22, 3) metres.

    Source: Villegas et al., "Contact-Aware Retargeting of Skinned Motion", ICCV 2021, §3: skins touch that are near,
    or that move alike. Theirs is an "or" of both; as two parts far from each other may well move alike, ours asks that
    those are near, too. Distances are measured from samples of one skin along the normal of the nearest of the other.
    """
    rest = body.skeleton.to_canonical().rest_positions.double()
    transforms = joint_transforms(rest, rotations.double(), positions.double()).float()
    skins = {name: _posed(body, name, transforms) for name in _GROUPS if len(_samples(body, name)) >= _PAIRS}
    contacts: list[Contact] = []
    unnamed: list[int] = []
    for moving, touched in _PAIRED:
        if moving not in skins or touched not in skins:
            continue
        nearest = _nearest(skins[moving], skins[touched], body.height)
        touching = nearest.distance < TOUCH_DISTANCE * body.height
        near = nearest.distance < NEAR_DISTANCE * body.height
        holds = touching | (near & _alike(skins[moving], skins[touched], nearest, body.height))
        for start, stop in runs_of(_closed(holds)):
            if stop - start < SHORTEST_CONTACT:
                continue
            frames = start + holds[start:stop].nonzero()[:, 0]
            named = _named(body, moving, touched, nearest, frames, len(rotations), (start, stop))
            if named is None:
                unnamed.append(start)
            elif bool(touching[start:stop].any()) or not named.first.endswith(_BESIDE):
                contacts.append(named)
    return FoundContacts(tuple(contacts), tuple(unnamed))


class _Posed(NamedTuple):
    """Points (T, N, 3), unit normals (T, N, 3), velocities per second (T, N, 3), the points' spacing, metres, and the
    points in the T-pose."""

    points: torch.Tensor
    normals: torch.Tensor
    velocities: torch.Tensor
    spacing: float
    samples: SurfaceSamples


class _Nearest(NamedTuple):
    """Where two parts are nearest in each frame.

    Attributes:
        distance: signed, (T,) metres.
        moving, touched: indices of the nearest pairs of points, (T, 3) each.
        own, other: middle of all points that are about as near, in the T-pose, and their mean normal, (T, 2, 3) each.
    """

    distance: torch.Tensor
    moving: torch.Tensor
    touched: torch.Tensor
    own: torch.Tensor
    other: torch.Tensor


@per_character
def _samples(body: Character, group: str) -> SurfaceSamples:
    """Samples of the skin of which more than half the weight is the group's; remembered per body."""
    joints = [canonical_index(name) for name in _GROUPS[group].joints]
    own = body.canonical_weights[:, joints].sum(-1)
    faces = (own[body.faces].amin(-1) > 0.5).nonzero()[:, 0]
    samples = sample_surface(body, faces, _GROUPS[group].samples)
    return samples.take(~_inside_mouth(samples, body.height)) if group == "Head" else samples


def _inside_mouth(samples: SurfaceSamples, height: float) -> torch.Tensor:
    """Whether samples of a head look at others close before them, as those in a mouth do, (N,) bool."""
    way = samples.positions[None] - samples.positions[:, None]
    apart = way.norm(dim=-1).clamp_min(1e-9)
    ahead = (way * samples.normals[:, None]).sum(-1) / apart
    facing = samples.normals @ samples.normals.T
    inside: torch.Tensor = ((apart < _MOUTH * height) & (ahead > 0.7) & (facing < -0.5)).any(-1)
    return inside


@per_character
def _group_places(body: Character, group: str) -> dict[str, SkinPoint]:
    """Named places on a group that this body has; remembered per body."""
    found = {}
    for name, place in PLACES.items():
        if place.bone not in _GROUPS[group].bones or (group == "Torso" and name.endswith(_ON_ARM)):
            continue
        try:
            found[name] = find_place(body, name)
        except CharacterError:
            continue
    return found


def _posed(body: Character, group: str, transforms: torch.Tensor) -> _Posed:
    samples = _samples(body, group)
    rows, turned = (x.float() for x in samples.skinning_rows())
    points = pose_rows(rows, transforms)
    normals = torch.nn.functional.normalize(pose_rows(turned, transforms), dim=-1)
    velocities = torch.gradient(points, dim=0)[0] * FPS if len(points) > 1 else torch.zeros_like(points)
    apart = torch.cdist(samples.positions, samples.positions)
    spacing = float(apart.fill_diagonal_(torch.inf).amin(-1).median())
    return _Posed(points, normals, velocities, spacing, samples)


def _nearest(moving: _Posed, touched: _Posed, height: float) -> _Nearest:
    """Find where two parts are nearest; frames in which they are far from each other get infinity."""
    frames = len(moving.points)
    distance = moving.points.new_full((frames,), torch.inf)
    indices = torch.zeros(2, frames, _PAIRS, dtype=torch.int64)
    own, other = torch.zeros(2, frames, 2, 3, dtype=torch.float64)
    mine_at_rest, theirs_at_rest = (torch.stack([x.positions, x.normals], 1) for x in (moving.samples, touched.samples))
    margin = NEAR_DISTANCE * height + touched.spacing + moving.spacing
    apart = torch.maximum(
        moving.points.amin(1) - touched.points.amax(1), touched.points.amin(1) - moving.points.amax(1)
    ).amax(-1)
    for part in torch.split((apart < margin).nonzero()[:, 0], _FRAMES_AT_ONCE):
        mine, theirs = moving.points[part], touched.points[part]
        straight, which = torch.cdist(mine, theirs).min(-1)
        row = torch.arange(len(part))[:, None]
        along = ((mine - theirs[row, which]) * touched.normals[part][row, which]).sum(-1)
        aside = (straight.square() - along.square()).clamp_min(0).sqrt()
        # Beside the edge of a part a normal tells nothing; there, and far away, points are as far as they are.
        plain = aside > torch.maximum(0.5 * along.abs(), along.new_tensor(touched.spacing))
        signed = torch.where(plain, straight, along)
        nearest, mine_index = signed.topk(_PAIRS, largest=False)
        distance[part] = nearest[:, 0]
        indices[0, part] = mine_index
        indices[1, part] = which.gather(1, mine_index)
        about = (signed < nearest[:, :1] + _PATCH * height).double()
        about = (about / about.sum(-1, keepdim=True))[..., None, None]
        own[part] = (about * mine_at_rest).sum(1)
        other[part] = (about * theirs_at_rest[which]).sum(1)
    return _Nearest(distance, indices[0], indices[1], own, other)


def _alike(moving: _Posed, touched: _Posed, nearest: _Nearest, height: float) -> torch.Tensor:
    """Whether the skins move alike where they are nearest, (T,) bool."""
    row = torch.arange(len(moving.points))[:, None]
    mine, theirs = moving.velocities[row, nearest.moving], touched.velocities[row, nearest.touched]
    cosine: torch.Tensor = torch.nn.functional.cosine_similarity(mine, theirs, dim=-1).mean(-1)
    against: torch.Tensor = (mine - theirs).norm(dim=-1).mean(-1)
    return (cosine > ALIKE_COSINE) | (against < _STILL * height)


def _closed(holds: torch.Tensor) -> torch.Tensor:
    """Fill short interruptions of a mask (T,)."""
    closed = holds.clone()
    for start, stop in runs_of(~holds):
        if start > 0 and stop < len(holds) and stop - start <= LONGEST_GAP:
            closed[start:stop] = True
    return closed


def _named(
    body: Character,
    moving: str,
    touched: str,
    nearest: _Nearest,
    frames: torch.Tensor,
    length: int,
    run: tuple[int, int],
) -> Contact | None:
    """Name the places of a contact that holds in ``run``; ``frames`` are those in which it was seen."""
    seen = nearest.other[frames]
    ends = min(_END_FRAMES, max(1, len(seen) // 3))
    own = _nearest_place(body, moving, nearest.own[frames])
    first = _nearest_place(body, touched, seen[:ends])
    second = _nearest_place(body, touched, seen[-ends:])
    if own is None or first is None or second is None:
        return None
    points = blurred(seen[:, 0], _SMOOTH)
    wander = float((points - points.quantile(0.5, dim=0)).norm(dim=-1).max())
    share = torch.zeros(length, dtype=torch.float64)
    active = torch.zeros(length, dtype=torch.bool)
    active[run[0] : run[1]] = True
    if first != second:
        places = _group_places(body, touched)
        start, way = places[first].position, places[second].position - places[first].position
        along = (((points - start) @ way) / (way @ way)).clamp(0, 1)
        # Frames without a sight of it, in short interruptions, take the last before them.
        last = (torch.searchsorted(frames, torch.arange(length), right=True) - 1).clamp(0, len(frames) - 1)
        share = blurred(along[last], _SMOOTH)
    slides = first != second or wander > SLIDE * body.height
    return Contact(own, first, second, share, active, gap=0.0, slides=slides)


def _nearest_place(body: Character, group: str, patches: torch.Tensor) -> str | None:
    """Name of the place nearest to the middle of patches, (N, 2, 3) points and normals; None if all are too far."""
    places = _group_places(body, group)
    if not places:
        return None
    middle, normal = patches[:, 0].quantile(0.5, dim=0), patches[:, 1].mean(0)
    names = list(places)
    distance = torch.stack([(places[name].position - middle).norm() for name in names])
    facing = torch.stack([places[name].normal @ normal for name in names])
    # A hand is thin: the back of it is near to a point of the palm, and yet the other side.
    if group.endswith("Hand") and bool((facing > 0).any()):
        distance = torch.where(facing > 0, distance, torch.inf)
    best = int(distance.argmin())
    return names[best] if float(distance[best]) <= FARTHEST_PLACE * body.height else None
