"""Performances: actions solved on a reference body, in a form that any body can take over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from retargetbench.datasets.studio.actions import Family, HandShape, Side


@dataclass(frozen=True, eq=False)
class FootTrack:
    """What one foot does, free of the length of the legs and the size of the foot; T frames.

    The ankle of a body is at

        p = rest + h (x, lift, z) + Y (c − P c),

    where rest is its ankle's place in the T-pose, h its height, Y the yaw, P the tilt and c the pivot seen from the
    ankle at rest: the ball of the foot where it is pitched forward, the heel where it is pitched back. The foot's world
    rotation is Y P, so a planted foot rolls over heel and ball without sliding on any body.

    Attributes:
        place: x (to the left) and z (forward) of the flat foot from its place at rest, (T, 2) heights.
        lift: of the sole above the floor, (T,) heights.
        yaw: rotation about Y, (T,) radians, counter-clockwise from above.
        tilt: pitch and roll, unit quaternions, (T, 4).
        toes: rotation of the toe joint about X that keeps the toes on the floor, (T,) radians, toes up negative.
        knee: direction of the knee, (T, 3).
        planted: whether the foot rests on the floor, (T,) bool.
    """

    place: torch.Tensor
    lift: torch.Tensor
    yaw: torch.Tensor
    tilt: torch.Tensor
    toes: torch.Tensor
    knee: torch.Tensor
    planted: torch.Tensor


@dataclass(frozen=True, eq=False)
class Contact:
    """Two places of the body that are together for a while.

    Attributes:
        moving: place of the arm or leg that comes, a name of `PLACES`.
        first: place that is touched, at the begin of the contact.
        second: place that is touched at the end; on the way it wanders from one to the other along ``share``.
        share: of ``second``, (T,) from 0 to 1.
        active: whether the contact holds, (T,) bool.
        gap: wanted distance, heights.
        slides: whether the touched place may wander on the body.
    """

    moving: str
    first: str
    second: str
    share: torch.Tensor
    active: torch.Tensor
    gap: float
    slides: bool


@dataclass(frozen=True, eq=False)
class Performance:
    """A motion with its contacts and steps; T frames.

    Attributes:
        name: of the action, with its variant.
        family: of the action.
        fps: frames a second.
        rotations: local rotations of the 22 canonical joints, (T, 22, 4).
        hips: displacement of the hips from their rest, (T, 3) heights.
        feet: of the left and the right foot.
        contacts: in no particular order.
        hands: shapes of the left and the right hand.
        seated: whether the seat and not the soles decides how high the body is.
    """

    name: str
    family: Family
    fps: float
    rotations: torch.Tensor
    hips: torch.Tensor
    feet: tuple[FootTrack, FootTrack]
    contacts: tuple[Contact, ...]
    hands: dict[Side, HandShape]
    seated: bool = False
