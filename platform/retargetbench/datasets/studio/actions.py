"""Actions: what happens in a clip, written once for all bodies in ``actions/*.yaml``, one file per family.

An action says where hands and feet are at key times, what they touch, and how the trunk moves; it names no angles of
arms or legs. `retargetbench.datasets.studio.choreography` makes a performance of it on the reference body.

Lengths are in heights of the body, times in seconds, angles in degrees. Directions of hands are ``[outward, up,
forward]``: outward is away from the median plane, so that left and right read alike.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - pydantic reads annotations at run time
from importlib.resources import files
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from retargetbench.datasets.studio.places import PLACES
from retargetbench.errors import DatasetError

Family = Literal["hand-hand", "hand-head", "hand-torso", "hand-limb", "leg-leg", "locomotion", "free"]
"""``hand-limb`` holds hand to leg and arm to arm; ``free`` are gestures without contact."""

FAMILIES: tuple[Family, ...] = get_args(Family)

HandShape = Literal["relaxed", "flat", "fist", "point"]
"""What the fingers do during the whole clip, the same on all bodies."""

HAND_SHAPES: tuple[HandShape, ...] = get_args(HandShape)

Channel = Literal[
    "hips_x", "hips_y", "hips_z", "hips_yaw", "hips_pitch", "hips_roll",
    "bend", "lean", "twist", "nod", "tilt", "turn",
    "left_shrug", "right_shrug", "left_protract", "right_protract",
]  # fmt: skip
"""Channels of the trunk.

``hips_x/y/z`` are displacements from the rest (to the left, up, forward); ``hips_yaw/pitch/roll`` turn the pelvis (to
the left, forward, towards its left side down). ``bend`` (forward), ``lean`` (to the left), ``twist`` (to the left) are
of the whole spine against the pelvis; ``nod`` (down), ``tilt`` (to the left), ``turn`` (to the left) of neck and head
against the chest; ``*_shrug`` and ``*_protract`` raise a clavicle and bring it forward, beyond what comes from the arm.
"""

Vector = Annotated[tuple[float, float, float], Field(description="[outward, up, forward]")]
Place = Annotated[str, Field(description="a name of places.yaml")]
Side = Literal["left", "right"]


POSES: dict[str, dict[str, Any]] = {
    "hang": {"reach": (0.19, -0.945, 0.08), "palm": (-1.0, 0.0, -0.15)},
    "ready": {"reach": (0.12, -0.62, 0.55), "palm": (-0.8, -0.4, 0.0), "elbow": (0.4, -0.6, -0.7)},
    "front": {"reach": (-0.05, -0.1, 0.95), "palm": (0.0, -1.0, 0.0), "elbow": (0.6, -0.8, 0.0)},
    "side": {"reach": (0.97, 0.0, 0.1), "palm": (0.0, -0.3, 1.0), "elbow": (0.0, -0.7, -0.7)},
    "up": {"reach": (0.12, 0.97, 0.1), "palm": (-0.3, 0.0, 1.0), "elbow": (0.7, 0.0, 0.5)},
    "raised": {"reach": (0.45, 0.5, 0.4), "palm": (0.0, 0.0, 1.0), "fingers": (0.1, 1.0, 0.0)},
    "guard": {"reach": (-0.05, -0.1, 0.5), "palm": (-1.0, 0.0, 0.0), "elbow": (0.4, -0.9, 0.1)},
}
"""Named poses of a hand, as fields of `HandKey`."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


class HandKey(_Strict):
    """Where a hand is at a time: at a named pose, reaching for a point, or touching a place. Exactly one of them."""

    at: float = Field(ge=0)
    """Seconds."""
    pose: str | None = None
    """A named pose, see `POSES`."""
    reach: Vector | None = None
    """Wrist from the shoulder joint, in lengths of the stretched arm; 1 is all of it."""
    touch: Place | None = None
    """What the hand touches."""
    with_: str = Field(default="palm", alias="with")
    """Place of this hand or arm that touches, without its side: ``palm``, ``fingertips``, ``forearm_inner`` …"""
    gap: float = Field(default=0.0, ge=0)
    """Distance to what is touched; above 0 the key is an approach and no contact."""
    frame: Literal["chest", "hips", "world"] = Field(default="chest", alias="in")
    """What ``reach`` and all directions turn with; the shoulder joint is its origin in any case."""
    palm: Vector | None = None
    """Where the palm looks; by default as the forearm brings it. In a touch the surface decides."""
    fingers: Vector | None = None
    """Where the fingers point; by default along the forearm."""
    elbow: Vector | None = None
    """Where the elbow points; by default out, down and back."""
    through: bool = False
    """Whether the hand passes without stopping."""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if sum(target is not None for target in (self.pose, self.reach, self.touch)) != 1:
            raise ValueError("a key of a hand has exactly one of pose, reach and touch")
        if self.pose is not None and self.pose not in POSES:
            raise ValueError(f"pose {self.pose!r} is not known; accepted: {', '.join(sorted(POSES))}")
        if self.touch is not None:
            _check_place(self.touch)
            _check_place(f"left_{self.with_}")
        return self


class FootKey(_Strict):
    """Where a foot is at a time. Between two keys at one place on the floor it is planted."""

    at: float = Field(ge=0)
    out: float = 0.0
    """Outward from its place at rest, heights."""
    forward: float = 0.0
    """Forward from its place at rest, heights."""
    lift: float = Field(default=0.0, ge=0)
    """Height of the sole above the floor, heights. A swing between two places on the floor is lifted by itself."""
    yaw: float = 0.0
    """Toes turned outward."""
    pitch: float = 0.0
    """Toes down; on the floor the foot then stands on its ball, and on its heel where negative."""
    roll: float = 0.0
    """Little toe's edge down."""
    knee: Vector | None = None
    """Where the knee points; by default forward along the foot."""
    touch: Place | None = None
    """What the foot or shank touches."""
    with_: str = Field(default="heel", alias="with")
    """Place of this leg that touches, without its side."""
    through: bool = False
    """Whether the foot passes without stopping."""

    @model_validator(mode="after")
    def _known_places(self) -> Self:
        if self.touch is not None:
            _check_place(self.touch)
            _check_place(f"left_{self.with_}")
        return self


class Gait(_Strict):
    """Steps, hips and arm swing of locomotion; foot keys, trunk and hands of the action are added to it."""

    kind: Literal["walk", "run", "sidestep", "turn", "march"]
    step: float = 0.38
    """Length of a step, heights; backwards if negative (``sidestep``: to the left)."""
    cadence: float = Field(default=1.8, gt=0)
    """Steps a second."""
    steps: int = Field(default=4, ge=1)
    first: Side = "right"
    start: float = Field(default=0.0, ge=0)
    """Second of the first step."""
    turn: float = 0.0
    """Turned to the left over all steps, degrees."""
    lift: float = Field(default=0.05, ge=0)
    """Height of the swinging foot."""
    arm_swing: float = 25.0
    """Swing of the hanging arms to either side, degrees; 0 leaves the hands to their keys."""


class Touch(_Strict):
    """A contact that no key names: two places of the body that are together for a while."""

    from_: float = Field(alias="from", ge=0)
    to: float
    place: Place
    """Of the arm or leg that comes."""
    on: Place
    gap: float = Field(default=0.0, ge=0)
    slide: bool = True
    """Whether the place on the body may wander."""

    @model_validator(mode="after")
    def _known_places(self) -> Self:
        _check_place(self.place)
        _check_place(self.on)
        if self.to <= self.from_:
            raise ValueError(f"a contact must end after it begins, not {self.from_} to {self.to}")
        return self


class Hands(_Strict):
    """Shapes of both hands."""

    left: HandShape = "relaxed"
    right: HandShape = "relaxed"


class Vary(_Strict):
    """Ranges from which the variants of an action draw."""

    tempo: tuple[float, float] = (0.9, 1.12)
    """Factor of speed."""
    amplitude: tuple[float, float] = (0.85, 1.15)
    """Factor of trunk channels, steps and reaches."""


class Action(_Strict):
    """One action."""

    name: str
    family: Family
    summary: str
    """What one sees, in a few words."""
    seen: bool
    """Whether methods may train on it."""
    seconds: float = Field(ge=1.0, le=6.0)
    trunk: dict[Channel, list[tuple[float, float]]] = {}
    """Channel → [second, value]; smooth between, constant outside."""
    left: tuple[HandKey, ...] = (HandKey(at=0.0, pose="hang"),)
    right: tuple[HandKey, ...] = (HandKey(at=0.0, pose="hang"),)
    left_foot: tuple[FootKey, ...] = (FootKey(at=0.0),)
    right_foot: tuple[FootKey, ...] = (FootKey(at=0.0),)
    gait: Gait | None = None
    contacts: tuple[Touch, ...] = ()
    hands: Hands = Hands()
    sway: float = Field(1.0, ge=0)
    """How much breathing and small movements are added; 1 is a person standing at ease."""
    seated: bool = False
    """Whether the body sits on the floor; the seat then decides how high it is."""
    vary: Vary = Vary()

    def _tracks(self) -> list[Sequence[HandKey | FootKey | tuple[float, float]]]:
        """Keys of hands, feet and channels."""
        return [self.left, self.right, self.left_foot, self.right_foot, *self.trunk.values()]

    @model_validator(mode="after")
    def _keys_in_order(self) -> Self:
        for track in self._tracks():
            times = [key.at if isinstance(key, HandKey | FootKey) else key[0] for key in track]
            if not times or times != sorted(set(times)) or times[-1] > self.seconds:
                raise ValueError(f"keys must rise in time and end by {self.seconds} s, not {times}")
        for touch in self.contacts:
            if touch.to > self.seconds:
                raise ValueError(f"a contact ends at {touch.to} s, after the action of {self.seconds} s")
        return self


def read_actions(texts: dict[str, str] | None = None) -> tuple[Action, ...]:
    """Read actions, sorted by family and name.

    Args:
        texts: YAML by file name, each mapping names to actions; by default the files that are shipped.

    Raises:
        DatasetError: an action is not one; the message names file, action, field and what is wrong.
    """
    if texts is None:
        folder = files(__package__) / "actions"
        texts = {f.name: f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".yaml")}
    actions: dict[str, Action] = {}
    for file, text in sorted(texts.items()):
        try:
            rows = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise DatasetError(f"{file} is no YAML: {error}") from None
        if not isinstance(rows, dict):
            raise DatasetError(f"{file} must map names to actions")
        for name, row in rows.items():
            if str(name) in actions:
                raise DatasetError(f"{file}: there is an action {name} already")
            actions[str(name)] = _action(file, str(name), row)
    return tuple(sorted(actions.values(), key=lambda action: (FAMILIES.index(action.family), action.name)))


def _action(file: str, name: str, row: Any) -> Action:
    if not isinstance(row, dict):
        raise DatasetError(f"{file}: action {name} must be a mapping, not {row!r}")
    # YAML 1.1 reads a bare ``on`` as true.
    touches = [{"on" if key is True else key: value for key, value in t.items()} if isinstance(t, dict) else t
               for t in row.get("contacts") or ()]  # fmt: skip
    try:
        return Action.model_validate({**row, "contacts": touches, "name": name})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "action"
        raise DatasetError(f"{file}: action {name}, {place}: {first['msg']} (got {first['input']!r})") from None


def _check_place(name: str) -> None:
    if name not in PLACES:
        raise ValueError(f"place {name!r} is not known; accepted: {', '.join(sorted(PLACES))}")
