"""Meshes that tests of drawing share."""

from __future__ import annotations

from functools import lru_cache

import torch

from retargetbench.datasets.capsules import open_capsules
from retargetbench.kinematics import Skinner


@lru_cache
def posed_body(name: str = "stout", motion: str = "arms_crossed", frame: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """A capsule body in a pose of one of its clips: vertices (V, 3) metres and faces (F, 3)."""
    clip = open_capsules().clip(name, motion)
    chosen = clip.motion.frames(frame, frame + 1)
    return Skinner.from_character(clip.character).pose_motion(chosen)[0], clip.character.faces


def box(low: tuple[float, float, float], high: tuple[float, float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """A closed box, faces outwards: (8, 3) and (12, 3)."""
    low_corner, high_corner = torch.tensor(low), torch.tensor(high)
    bits = torch.tensor([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [(a, b, c) for a, b, c, _ in quads] + [(a, c, d) for a, _, c, d in quads]
    return torch.where(bits > 0, high_corner, low_corner), torch.tensor(faces)
