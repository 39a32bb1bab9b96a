"""Small performances for tests of the solver: hands that should touch the belly, arms that hang."""

from __future__ import annotations

import roma
import torch

from retargetbench.datasets.studio.performance import Contact, FootTrack, Performance
from retargetbench.skeleton import canonical_index

FRAMES, FPS = 41, 30.0


def standing_feet() -> tuple[FootTrack, FootTrack]:
    zeros = torch.zeros(FRAMES, dtype=torch.float64)
    tilt = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64).repeat(FRAMES, 1)
    knee = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).repeat(FRAMES, 1)
    track = FootTrack(torch.stack([zeros, zeros], -1), zeros, zeros, tilt, zeros, knee, zeros == 0)
    return track, track


def performance(
    *, flex: float = 80.0, hang: float = 55.0, touching: bool = True, knee_drop: float = 0.006
) -> Performance:
    """Arms that hang by ``hang`` degrees and bend their elbows by ``flex`` in the middle of the clip.

    In the middle both palms should touch the sides of the belly, which they do on no body without being solved.
    """
    time = torch.linspace(0, 1, FRAMES, dtype=torch.float64)
    there = (torch.sin(torch.pi * time) * 1.6).clamp(0, 1)
    there = there * there * (3 - 2 * there)
    rotations = torch.zeros(FRAMES, 22, 4, dtype=torch.float64)
    rotations[..., 3] = 1.0
    zero = torch.zeros_like(there)
    for side, sign in (("Left", 1.0), ("Right", -1.0)):
        down = torch.stack([zero, -sign * 25 * there, -sign * hang + zero], -1)
        bend = torch.stack([70 * there, -sign * (8 + flex * there), zero], -1)
        rotations[:, canonical_index(f"{side}Arm")] = roma.rotvec_to_unitquat(down.deg2rad())
        rotations[:, canonical_index(f"{side}ForeArm")] = roma.rotvec_to_unitquat(bend.deg2rad())
    active = there > 0.999
    contacts = tuple(
        Contact(f"{side}_palm", f"{side}_belly_side", f"{side}_belly_side", zero, active, 0.0, False)
        for side in ("left", "right")
    )
    hips = torch.stack([zero, zero - knee_drop, zero], -1)
    return Performance(
        "belly", "hand-torso", FPS, rotations, hips, standing_feet(), contacts if touching else (),
        {"left": "relaxed", "right": "relaxed"},
    )  # fmt: skip
