"""Motions of the shipped capsule dataset, written down once for all bodies.

A score says what happens in terms of any body: how far the hips move in heights, where a foot steps, what a hand
touches. `retargetbench.datasets.capsule_posing` solves a score for one body, and so every body has its own true version
of every motion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

FPS = 30.0
"""Frame rate of all motions."""

Channel = Literal["hips_x", "hips_y", "hips_z", "hips_yaw", "bend", "lean", "twist", "nod", "turn"]
"""What a trunk does: hips offsets in heights; angles in degrees, of the whole spine (forward, to the left, turning
left) and of neck and head together (forward, turning left)."""

Touch = Literal["hang", "wave", "belly", "chest", "head", "palms", "thigh"]
"""Where a hand is: hanging beside the body, raised, or with its palm on the body or on the other palm."""


@dataclass(frozen=True)
class Hand:
    """A hand at a key frame; left and right are mirrored."""

    frame: int
    touch: Touch
    gap: float = 0.0
    """Distance of the palm from what it touches, in heights, beside the clearance that every touch keeps."""
    swing: float = 0.0
    """``hang``: arm forward, ``wave``: forearm outward of upright, degrees."""
    level: float = 0.0
    """``belly``, ``chest``: how much higher than the middle, in arm radii, so that hands lie above one another."""

    @property
    def pose(self) -> tuple[Touch, float, float, float]:
        """What the hand does, whenever it does it."""
        return self.touch, self.gap, self.swing, self.level


@dataclass(frozen=True)
class Step:
    """A foot leaves the floor at ``start`` and is planted at ``end``, ``length`` heights further forward."""

    foot: Literal["Left", "Right"]
    start: int
    end: int
    length: float


@dataclass(frozen=True)
class Score:
    """A motion for any body: key frames of trunk, feet and hands; between them everything is eased."""

    name: str
    family: Literal["locomotion", "gesture", "contact"]
    frames: int
    left: tuple[Hand, ...]
    right: tuple[Hand, ...]
    trunk: Mapping[Channel, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()


def _there_and_back(frames: int, arrive: int, leave: int, touch: Touch, level: float = 0.0) -> tuple[Hand, ...]:
    """A hand that hangs, goes to a touch, holds it, and hangs again."""
    return (
        Hand(0, "hang"),
        Hand(arrive, touch, level=level),
        Hand(leave, touch, level=level),
        Hand(frames - 1, "hang"),
    )


_CLAP = (
    Hand(0, "hang"),
    Hand(16, "palms", gap=0.09),
    Hand(22, "palms"),
    Hand(24, "palms"),
    Hand(31, "palms", gap=0.09),
    Hand(38, "palms"),
    Hand(40, "palms"),
    Hand(46, "palms", gap=0.09),
    Hand(61, "hang"),
)

SCORES: tuple[Score, ...] = (
    Score(
        "arms_crossed",
        "contact",
        72,
        left=_there_and_back(72, 24, 50, "chest", level=-1.4),
        right=_there_and_back(72, 27, 47, "chest", level=1.4),
        trunk={"lean": ((24, 0.0), (38, 3.0), (50, 0.0)), "turn": ((24, 0.0), (36, 20.0), (48, -10.0), (71, 0.0))},
    ),
    Score(
        "clap",
        "contact",
        62,
        left=_CLAP,
        right=_CLAP,
        trunk={"bend": ((8, 0.0), (22, 4.0), (31, 1.0), (38, 4.0), (58, 0.0)), "nod": ((8, 0.0), (22, 6.0), (58, 0.0))},
    ),
    Score(
        "crouch",
        "contact",
        75,
        left=_there_and_back(75, 30, 46, "thigh"),
        right=_there_and_back(75, 30, 46, "thigh"),
        trunk={
            "hips_y": ((0, 0.0), (30, -0.16), (46, -0.16), (74, 0.0)),
            "hips_z": ((0, 0.0), (30, -0.05), (46, -0.05), (74, 0.0)),
            "bend": ((0, 0.0), (30, 46.0), (46, 46.0), (74, 0.0)),
            "nod": ((0, 0.0), (30, -30.0), (46, -30.0), (74, 0.0)),
        },
    ),
    Score(
        "hand_to_head",
        "contact",
        78,
        left=(Hand(0, "hang"), Hand(39, "hang", swing=6.0), Hand(77, "hang")),
        # Raised on the way, or else fingers that turn up would sweep through the head where shoulders are wide.
        right=(Hand(0, "hang"), Hand(18, "wave", swing=20.0), Hand(32, "head"),
               Hand(46, "head"), Hand(60, "wave", swing=20.0), Hand(77, "hang")),
        trunk={"lean": ((8, 0.0), (32, -4.0), (46, -4.0), (77, 0.0)), "nod": ((24, 0.0), (38, 10.0), (56, 0.0))},
    ),
    Score(
        "hands_on_belly",
        "contact",
        78,
        left=_there_and_back(78, 26, 54, "belly", level=1.3),
        right=_there_and_back(78, 26, 54, "belly", level=-1.3),
        trunk={
            "bend": ((0, 0.0), (30, -4.0), (40, -2.0), (50, -4.0), (77, 0.0)),
            "twist": ((26, 0.0), (34, 8.0), (46, -8.0), (54, 0.0)),
            "nod": ((10, 0.0), (28, 15.0), (52, 15.0), (70, 0.0)),
        },
    ),
    Score(
        "idle_sway",
        "gesture",
        60,
        left=(Hand(0, "hang"), Hand(30, "hang", swing=5.0), Hand(59, "hang")),
        right=(Hand(0, "hang"), Hand(30, "hang", swing=-3.0), Hand(59, "hang")),
        trunk={
            "hips_x": ((0, 0.0), (15, 0.025), (45, -0.025), (59, 0.0)),
            "lean": ((0, 0.0), (15, -3.0), (45, 3.0), (59, 0.0)),
            "turn": ((10, 0.0), (25, 15.0), (40, -15.0), (55, 0.0)),
        },
    ),
    Score(
        "walk",
        "locomotion",
        84,
        left=(Hand(0, "hang"), Hand(16, "hang", swing=16.0), Hand(34, "hang", swing=-14.0),
              Hand(52, "hang", swing=16.0), Hand(70, "hang", swing=-8.0), Hand(83, "hang")),
        right=(Hand(0, "hang"), Hand(16, "hang", swing=-14.0), Hand(34, "hang", swing=16.0),
               Hand(52, "hang", swing=-14.0), Hand(70, "hang", swing=10.0), Hand(83, "hang")),
        trunk={
            "hips_y": ((0, 0.0), (12, -0.016), (70, -0.016), (83, 0.0)),
            "hips_x": ((0, 0.0), (14, 0.015), (32, -0.015), (50, 0.015), (68, -0.01), (83, 0.0)),
            "twist": ((0, 0.0), (16, -6.0), (34, 6.0), (52, -6.0), (70, 3.0), (83, 0.0)),
        },
        steps=(
            Step("Right", 6, 20, 0.16),
            Step("Left", 22, 38, 0.32),
            Step("Right", 40, 56, 0.32),
            Step("Left", 58, 74, 0.16),
        ),
    ),
    Score(
        "wave",
        "gesture",
        70,
        left=(Hand(0, "hang"), Hand(35, "hang", swing=4.0), Hand(69, "hang")),
        right=(Hand(0, "hang"), Hand(18, "wave", swing=-12.0), Hand(25, "wave", swing=25.0),
               Hand(32, "wave", swing=-12.0), Hand(39, "wave", swing=25.0), Hand(46, "wave", swing=-12.0),
               Hand(69, "hang")),
        trunk={"lean": ((0, 0.0), (20, 3.0), (46, 3.0), (69, 0.0)), "turn": ((5, 0.0), (20, -8.0), (60, 0.0))},
    ),
)  # fmt: skip
"""The motions, by name."""
