"""Joint limits: how far each of the 22 joints may turn before a body looks broken.

A range is a normal range of motion from the literature and a slack. The slack is there because a rig is not an
anatomy: shoulder and clavicle share the way of the arm, three joints stand for seventeen vertebrae, the wrist of most
rigs carries the twist of the forearm.

The slack was set on the 13 clips of ``../shared/data/r2et_mixamo`` (dances, getting up, stepping out of a car, thanks;
3 208 frames at 30 fps on three stylised bodies). Of their frames 83 % are within all ranges and 89 % within 5° of them.
Spine, neck, head, clavicles, arms, forearms, thighs and toes are within 5° in more than 99.5 % of the frames. What is
left out is what these clips owe to bodies of other shape than the actor's: wrists that deviate to the thumb by up to
63° (8 % of the frames are outside on the left, 5 % on the right), ankles that bend up by up to 94° (3 % and 2 %), and
knees that bend sideways by up to 48° (1 %). No wrist, ankle or knee does that, so the ranges do not follow.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

import torch

from retargetbench.skeleton import CANONICAL_JOINTS, canonical_index

_AAOS = "AAOS 1965"
"""American Academy of Orthopaedic Surgeons: Joint Motion, Method of Measuring and Recording, 1965."""

_KAPANDJI = "Kapandji"
"""I. A. Kapandji: The Physiology of the Joints, volumes 1 to 3."""

Vector = tuple[float, float, float]

Kind = Literal["twist", "swing", "toward"]
"""What of a rotation is measured, see `JointRange`."""


class JointRange(NamedTuple):
    """One degree of freedom of a joint of the left side or the middle; the right side is its mirror image.

    A rotation is a twist about the axis of the joint's bone, then a swing that takes the bone where it points.

    Attributes:
        joint: canonical joint without its side.
        motion: anatomical name, from ``low`` to ``high``.
        kind: ``twist``: angle of the twist; ``swing``: part of the swing's rotation vector about ``axis``;
            ``toward``: angle by which the bone points to the side of ``axis``, 90° along it and −90° against it.
        axis: in the frame of the parent (hand: of the hand), unit length is not required; not used for ``twist``.
        low: normal range, degrees.
        high: normal range, degrees.
        slack: added on both sides, degrees.
        source: of the normal range.
    """

    joint: str
    motion: str
    kind: Kind
    axis: Vector
    low: float
    high: float
    slack: float
    source: str


_X, _Y, _Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
_DOWN, _BACK, _ACROSS = (0.0, -1.0, 0.0), (0.0, 0.0, -1.0), (-1.0, 0.0, 0.0)
_FREE = -90.0
"""Lower end of a ``toward`` that has none."""

# In the T-pose the left arm lies along +X with the palm down, so that elbow and wrist bend forward about −Y and the
# wrist down about −Z; thighs and shanks hang along −Y.
JOINT_RANGES: tuple[JointRange, ...] = (
    *(
        row
        for joint in ("Spine", "Spine1", "Spine2")
        for row in (
            JointRange(joint, "extension to flexion, a third of 30 to 80", "swing", _X, -10, 27, 25, _AAOS),
            JointRange(joint, "side bend, a third of 35", "swing", _Z, -12, 12, 12, _AAOS),
            JointRange(joint, "rotation, a third of 45", "twist", _Y, -15, 15, 12, _AAOS),
        )
    ),
    JointRange("Neck", "extension to flexion, of neck and head", "swing", _X, -45, 45, 10, _AAOS),
    JointRange("Neck", "side bend, of neck and head", "swing", _Z, -45, 45, 0, _AAOS),
    JointRange("Neck", "rotation, of neck and head", "twist", _Y, -60, 60, 0, _AAOS),
    JointRange("Head", "extension to flexion, with the neck", "swing", _X, -45, 45, 15, _AAOS),
    JointRange("Head", "side bend, with the neck", "swing", _Z, -45, 45, 10, _AAOS),
    JointRange("Head", "rotation, with the neck", "twist", _Y, -80, 80, 10, _KAPANDJI),
    JointRange("Shoulder", "depression to elevation", "swing", _Z, -10, 30, 20, _KAPANDJI),
    JointRange("Shoulder", "protraction to retraction", "swing", _Y, -30, 25, 15, _KAPANDJI),
    JointRange("Shoulder", "rotation about its length", "twist", _X, -30, 30, 15, _KAPANDJI),
    JointRange("Arm", "to the back", "toward", _BACK, _FREE, 60, 15, _AAOS),
    JointRange("Arm", "across the front", "toward", _ACROSS, _FREE, 50, 20, _AAOS),
    JointRange("Arm", "across the back", "toward", (-0.7, 0.0, -0.7), _FREE, 45, 15, _KAPANDJI),
    JointRange("Arm", "outward to inward rotation", "twist", _X, -90, 80, 25, _AAOS),
    JointRange("ForeArm", "flexion to extension", "swing", _Y, -145, 5, 5, _KAPANDJI),
    JointRange("ForeArm", "carrying angle", "swing", _Z, -15, 15, 5, _KAPANDJI),
    JointRange("ForeArm", "supination to pronation", "twist", _X, -90, 85, 10, _KAPANDJI),
    JointRange("Hand", "flexion to extension", "swing", _Z, -80, 70, 10, _AAOS),
    JointRange("Hand", "deviation to the thumb or the little finger", "swing", _Y, -20, 35, 20, _AAOS),
    JointRange("Hand", "supination to pronation, with the forearm", "twist", _X, -90, 85, 20, _KAPANDJI),
    JointRange("UpLeg", "extension", "toward", _BACK, _FREE, 30, 10, _AAOS),
    JointRange("UpLeg", "flexion to extension", "swing", _X, -120, 30, 20, _AAOS),
    JointRange("UpLeg", "adduction to abduction", "toward", _X, -30, 45, 20, _AAOS),
    JointRange("UpLeg", "rotation", "twist", _Y, -45, 45, 25, _AAOS),
    JointRange("Leg", "extension to flexion", "swing", _X, -5, 150, 5, _KAPANDJI),
    JointRange("Leg", "sideways", "swing", _Z, -5, 5, 15, _KAPANDJI),
    JointRange("Leg", "rotation of the bent knee", "twist", _Y, -40, 40, 5, _KAPANDJI),
    JointRange("Foot", "dorsal to plantar flexion", "swing", _X, -30, 50, 20, _KAPANDJI),
    JointRange("Foot", "eversion to inversion", "swing", _Z, -25, 35, 10, _AAOS),
    JointRange("Foot", "toes inward or outward", "twist", _Y, -35, 35, 10, _KAPANDJI),
    JointRange("ToeBase", "extension to flexion", "swing", _X, -80, 45, 10, _AAOS),
    JointRange("ToeBase", "sideways", "swing", _Y, -10, 10, 10, _KAPANDJI),
)
"""All ranges. Hips turn freely; what is not named of a joint is free."""

_BONE_AXES: dict[str, Vector] = {
    "Spine": _Y, "Spine1": _Y, "Spine2": _Y, "Neck": _Y, "Head": _Y,
    "Shoulder": _X, "Arm": _X, "ForeArm": _X, "Hand": _X,
    "UpLeg": _DOWN, "Leg": _DOWN, "Foot": _DOWN, "ToeBase": _Z,
}  # fmt: skip
"""Axis of the twist of each joint. An ankle twists about the shank."""

_TINY = 1e-6


class _Compiled(NamedTuple):
    """The ranges of both sides as tensors; N ranges.

    Attributes:
        axes: of twists of the 22 joints, as on the left side, (22, 3).
        joint: of each range, (N,) int64.
        kind: which of the measures of `Kind`, (N,) int64.
        vector: (N, 3).
        low: radians, with slack, (N,).
        high: radians, with slack, (N,).
    """

    axes: torch.Tensor
    joint: torch.Tensor
    kind: torch.Tensor
    vector: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor


_KINDS: tuple[Kind, ...] = ("twist", "swing", "toward")
_RIGHT = tuple(k for k, name in enumerate(CANONICAL_JOINTS) if name.startswith("Right"))
_HANDS = (canonical_index("LeftHand"), canonical_index("RightHand"))
_FOREARMS = (canonical_index("LeftForeArm"), canonical_index("RightForeArm"))
_NECK, _HEAD = canonical_index("Neck"), canonical_index("Head")


def _without_side(name: str) -> str:
    return name.removeprefix("Left").removeprefix("Right")


@cache
def _compiled() -> _Compiled:
    rows = [
        (joint, row)
        for row in JOINT_RANGES
        for joint, n in enumerate(CANONICAL_JOINTS)
        if _without_side(n) == row.joint
    ]
    vector = torch.tensor([row.axis for _, row in rows], dtype=torch.float64)
    slack = torch.tensor([row.slack for _, row in rows], dtype=torch.float64)
    return _Compiled(
        axes=torch.tensor([_BONE_AXES.get(_without_side(name), _Y) for name in CANONICAL_JOINTS], dtype=torch.float64),
        joint=torch.tensor([joint for joint, _ in rows]),
        kind=torch.tensor([_KINDS.index(row.kind) for _, row in rows]),
        vector=torch.nn.functional.normalize(vector, dim=-1),
        low=torch.deg2rad(torch.tensor([row.low for _, row in rows], dtype=torch.float64) - slack),
        high=torch.deg2rad(torch.tensor([row.high for _, row in rows], dtype=torch.float64) + slack),
    )


def limit_excess(local_rotations: torch.Tensor) -> torch.Tensor:
    """Compute how far each joint is beyond its range: 0 within, else the norm over its degrees of freedom.

    Forearm and hand are limited together in their twists, neck and head in all; what is too much is the hand's and the
    head's. Gradients are finite everywhere, and those of the square are continuous up to a half turn.

    Args:
        local_rotations: unit quaternions xyzw of the 22 canonical joints, identity in the T-pose, (..., 22, 4).

    Returns:
        (..., 22) radians.

    Example:
        An elbow bent by a right angle the wrong way, 10° of which are within its range:

        >>> pose = torch.tensor([0.0, 0.0, 0.0, 1.0]).repeat(22, 1)
        >>> pose[canonical_index("LeftForeArm")] = torch.tensor([0.0, 0.5**0.5, 0.0, 0.5**0.5])
        >>> torch.rad2deg(limit_excess(pose)).max().round()
        tensor(80.)
    """
    ranges = _compiled()
    measured = _measures(local_rotations)
    beyond = (measured - ranges.high.to(measured)).relu() + (ranges.low.to(measured) - measured).relu()
    squares = beyond.new_zeros(local_rotations.shape[:-1])
    squares = squares.index_add(-1, ranges.joint.to(beyond.device), beyond.square())
    return _safe_sqrt(squares)


def _measures(local_rotations: torch.Tensor) -> torch.Tensor:
    """Measure all N degrees of freedom, (..., N) radians."""
    ranges = _compiled()
    mirror = local_rotations.new_ones(22, 4)
    mirror[_RIGHT, 1:3] = -1
    rotations = local_rotations * mirror
    head = _product(rotations[..., _NECK, :], rotations[..., _HEAD, :])
    rotations = torch.cat([rotations[..., :_HEAD, :], head[..., None, :], rotations[..., _HEAD + 1 :, :]], -2)
    # One of the two quaternions of a rotation turns by less than half a turn.
    rotations = torch.where(rotations[..., 3:] < 0, -rotations, rotations)

    axes = ranges.axes.to(rotations)
    vector, scalar = rotations[..., :3], rotations[..., 3]
    along = (vector * axes).sum(-1)
    across = vector - along[..., None] * axes
    cosine = (scalar.square() + along.square()).clamp_min(_TINY**2).sqrt()  # of half the swing
    # After a swing of half a turn no twist is defined, and none is measured.
    defined = cosine > 1e-3
    twist = 2 * torch.atan2(torch.where(defined, along, 0.0), torch.where(defined, scalar, 1.0))
    # The forearm's bones cross before the wrist bends, so the wrist's axes turn with the hand's own twist.
    side = torch.ones_like(along)
    side[..., _HANDS] = -1
    sine = _safe_sqrt(across.square().sum(-1))
    small = sine < _TINY
    scale = torch.where(small, 2.0, 2 * torch.atan2(sine, cosine) / torch.where(small, 1.0, sine))
    turned = torch.linalg.cross(axes.expand_as(across), across)
    swing = (scale / cosine)[..., None] * (scalar[..., None] * across + (side * along)[..., None] * turned)
    twist = twist.index_add(-1, torch.tensor(_HANDS, device=twist.device), twist[..., _FOREARMS])

    joint, kind, wanted = ranges.joint.to(twist.device), ranges.kind.to(twist.device), ranges.vector.to(rotations)
    # The bone after the rotation: a + 2 s (v × a) + 2 v × (v × a).
    first = torch.linalg.cross(vector, axes.expand_as(vector))
    bone = axes + 2 * scalar[..., None] * first + 2 * torch.linalg.cross(vector, first)
    component = (bone[..., joint, :] * wanted).sum(-1)
    toward = torch.atan2(component, (1 - component.square()).clamp_min(_TINY**2).sqrt())
    about = (swing[..., joint, :] * wanted).sum(-1)
    return torch.where(kind == 0, twist[..., joint], torch.where(kind == 1, about, toward))


def _product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Multiply quaternions xyzw, (..., 4)."""
    v, w = first[..., :3], first[..., 3:]
    u, s = second[..., :3], second[..., 3:]
    return torch.cat([w * u + s * v + torch.linalg.cross(v, u), w * s - (v * u).sum(-1, keepdim=True)], -1)


def _safe_sqrt(squares: torch.Tensor) -> torch.Tensor:
    """Square root whose gradient at 0 is 0."""
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)
