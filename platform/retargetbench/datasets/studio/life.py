"""Small movements of a living body: breathing and slow wandering of weight, pelvis, spine, head and hands."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from retargetbench.datasets.studio.actions import Channel

_WANDERING: dict[Channel, float] = {
    "hips_x": 0.0035, "hips_z": 0.0025, "hips_yaw": 0.9, "hips_roll": 0.6, "hips_pitch": 0.4,
    "twist": 1.3, "lean": 0.9, "bend": 0.8, "nod": 1.3, "tilt": 1.1, "turn": 2.0,
    "left_shrug": 0.5, "right_shrug": 0.5, "left_protract": 0.6, "right_protract": 0.6,
}  # fmt: skip
"""Size of the wandering of each channel of a person who stands at ease, heights or degrees; our choice by eye."""

_BREATHING: dict[Channel, float] = {"bend": -0.7, "left_shrug": 1.0, "right_shrug": 1.0, "hips_y": 0.0005}
"""What a breath adds: the chest rises, the shoulders with it."""

_BREATHS_PER_SECOND = (0.24, 0.32)
_HANDS = 0.004  # heights by which free hands wander
_LOW, _HIGH = 0.12, 0.65  # hertz; slower is no movement in clips of some seconds, faster is trembling
_WAVES = 3


class Life(NamedTuple):
    """What is added to a performance.

    Attributes:
        trunk: by channel, (T,) in the channel's unit.
        hands: displacement of the left and the right hand, (2, T, 3) heights.
    """

    trunk: dict[Channel, torch.Tensor]
    hands: torch.Tensor


def seeded(*parts: object) -> torch.Generator:
    """Return a random generator that depends on nothing but the text of ``parts``."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))


def wander(time: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return slow smooth noise over time (T,): a sum of a few waves, between −1 and 1."""
    frequency, phase = torch.rand(2, _WAVES, 1, generator=generator, dtype=torch.float64)
    frequency = _LOW * (_HIGH / _LOW) ** frequency
    return torch.sin(2 * math.pi * (frequency * time + phase)).mean(0)


def live(time: torch.Tensor, generator: torch.Generator, amount: float) -> Life:
    """Make up breathing and small movements.

    Args:
        time: (T,) seconds.
        generator: seeded for the clip.
        amount: 1 is a person who stands at ease.
    """
    trunk = {name: amount * size * wander(time, generator) for name, size in _WANDERING.items()}
    rate, phase = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    low, high = _BREATHS_PER_SECOND
    breath = torch.sin(2 * math.pi * ((low + rate * (high - low)) * time + phase))
    for name, size in _BREATHING.items():
        trunk[name] = trunk.get(name, torch.zeros_like(time)) + amount * size * breath
    hands = [[wander(time, generator) for _ in range(3)] for _ in range(2)]
    return Life(trunk, amount * _HANDS * torch.stack([torch.stack(hand, -1) for hand in hands]))
