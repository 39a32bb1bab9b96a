"""Variants of actions: faster or slower, larger or smaller, and mirrored."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import torch

from retargetbench.datasets.studio.actions import POSES, Action, FootKey, HandKey, Hands
from retargetbench.datasets.studio.hand_keys import resolved
from retargetbench.datasets.studio.life import seeded

if TYPE_CHECKING:
    from retargetbench.datasets.studio.actions import Channel, Gait, Vector

_Name = TypeVar("_Name", bound=str)
_Key = TypeVar("_Key", HandKey, FootKey)

_REVERSED: frozenset[Channel] = frozenset({"hips_x", "hips_yaw", "hips_roll", "lean", "twist", "tilt", "turn"})
"""Channels that change their sign in the mirror."""

_SHORTEST, _LONGEST = 1.0, 6.0  # seconds of an action


def variant_of(action: Action, *, seed: int, variant: int) -> Action:
    """Return a variant of an action: 0 is as authored, odd ones are mirrored.

    Tempo and amplitude are drawn from the ranges of the action by a generator of seed, name and variant.
    """
    if variant == 0:
        return action
    generator = seeded("variant", action.name, seed, variant)
    shares = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    (slow, fast), (small, large) = action.vary.tempo, action.vary.amplitude
    tempo, amplitude = slow + shares[0] * (fast - slow), small + shares[1] * (large - small)
    tempo = min(max(tempo, action.seconds / _LONGEST), action.seconds / _SHORTEST)
    changed = _amplified(_paced(action, tempo), amplitude)
    return mirrored(changed) if variant % 2 else changed


def mirrored(action: Action) -> Action:
    """Return the action with left and right exchanged."""
    trunk = {
        _other_side(name): [(at, -v if name in _REVERSED else v) for at, v in keys]
        for name, keys in action.trunk.items()
    }
    return action.model_copy(
        update={
            "trunk": trunk,
            "left": tuple(_mirrored_key(key) for key in action.right),
            "right": tuple(_mirrored_key(key) for key in action.left),
            "left_foot": tuple(_mirrored_key(key) for key in action.right_foot),
            "right_foot": tuple(_mirrored_key(key) for key in action.left_foot),
            "gait": None if action.gait is None else _mirrored_gait(action.gait),
            "contacts": tuple(
                touch.model_copy(update={"place": _other_side(touch.place), "on": _other_side(touch.on)})
                for touch in action.contacts
            ),
            "hands": Hands(left=action.hands.right, right=action.hands.left),
        }
    )


def _other_side(name: _Name) -> _Name:
    """Return the name of the same on the other side; names of the middle stay."""
    for side, other in (("left_", "right_"), ("right_", "left_")):
        if name.startswith(side):
            return cast("_Name", other + name.removeprefix(side))
    return name


def _mirrored_key(key: _Key) -> _Key:
    return key if key.touch is None else key.model_copy(update={"touch": _other_side(key.touch)})


def _mirrored_gait(gait: Gait) -> Gait:
    update: dict[str, object] = {"first": "left" if gait.first == "right" else "right", "turn": -gait.turn}
    if gait.kind == "sidestep":
        update["step"] = -gait.step
    return gait.model_copy(update=update)


def _paced(action: Action, tempo: float) -> Action:
    """Let everything happen ``tempo`` times as fast."""

    def sooner(keys: tuple[_Key, ...]) -> tuple[_Key, ...]:
        return tuple(key.model_copy(update={"at": key.at / tempo}) for key in keys)

    gait = action.gait
    if gait is not None:
        gait = gait.model_copy(update={"cadence": gait.cadence * tempo, "start": gait.start / tempo})
    return action.model_copy(
        update={
            "seconds": action.seconds / tempo,
            "trunk": {name: [(at / tempo, value) for at, value in keys] for name, keys in action.trunk.items()},
            "left": sooner(action.left),
            "right": sooner(action.right),
            "left_foot": sooner(action.left_foot),
            "right_foot": sooner(action.right_foot),
            "gait": gait,
            "contacts": tuple(
                touch.model_copy(update={"from_": touch.from_ / tempo, "to": touch.to / tempo})
                for touch in action.contacts
            ),
        }
    )


def _amplified(action: Action, amplitude: float) -> Action:
    """Scale the trunk's channels, steps, and reaches as they differ from the first key of the hand or from hanging."""

    def farther(keys: tuple[HandKey, ...]) -> tuple[HandKey, ...]:
        origin = resolved(keys[0]).reach or POSES["hang"]["reach"]
        return tuple(
            key if key.reach is None else key.model_copy(update={"reach": _scaled(key.reach, origin, amplitude)})
            for key in keys
        )

    gait = action.gait
    if gait is not None:
        gait = gait.model_copy(update={"step": gait.step * amplitude})
    return action.model_copy(
        update={
            "trunk": {name: [(at, amplitude * value) for at, value in keys] for name, keys in action.trunk.items()},
            "left": farther(action.left),
            "right": farther(action.right),
            "gait": gait,
        }
    )


def _scaled(reach: Vector, origin: Vector, amplitude: float) -> Vector:
    x, y, z = (start + amplitude * (end - start) for end, start in zip(reach, origin, strict=True))
    return x, y, z
