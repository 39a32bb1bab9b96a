"""Figures whose arms are known to be inside the body, by construction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
import trimesh
from rigs import human_skeleton
from sensor_rigs import figure, tube

from retargetbench.clip import Clip
from retargetbench.metrics.base import Evaluation
from retargetbench.motion import Motion
from retargetbench.skeleton import Skeleton, canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character

HALF_WIDTH = 0.13
"""Half the side of the trunk, a box."""
RINGS = np.arange(42) * 0.02 + 0.1
"""Distance of the arm's rings from the middle of the body, metres; 16 vertices each."""
_ARM_LEVEL = 1.44


def box_figure(elbow: float = 0.45, *, dtype: torch.dtype = torch.float64, name: str = "box") -> Character:
    """A box for a trunk and two tubes for arms, from inside the box outwards, bent at ``elbow``.

    Legs are boxes far below, the right one a little smaller.
    """
    base = human_skeleton(dtype=torch.float64)
    offsets = base.offsets.clone()
    for side, sign in (("Left", 1.0), ("Right", -1.0)):
        offsets[canonical_index(side + "ForeArm"), 0] = sign * (elbow - 0.17)
        offsets[canonical_index(side + "Hand"), 0] = sign * (0.7 - elbow)
    skeleton = Skeleton(base.names, base.parents, offsets, base.canonical)
    parts = [(*_box((0.0, _ARM_LEVEL, 0.0), HALF_WIDTH, cells=8), "Spine1")]
    for side, sign in (("Left", 1.0), ("Right", -1.0)):
        parts.append((*_box((sign * 0.1, 0.3, 0.0), 0.05 if side == "Left" else 0.045, cells=8), side + "Leg"))
    solid = [(vertices, faces, [joint] * len(vertices)) for vertices, faces, joint in parts]
    return figure([*solid, *_arms(elbow)], skeleton, name=name, dtype=dtype)


def sphere_figure(elbow: float, *, radius: float = 0.2, dtype: torch.dtype = torch.float64) -> Character:
    """The same arms, and for a trunk a ball of 20 480 faces with a piece of the top cut off."""
    character = box_figure(elbow, dtype=torch.float64)
    ball = trimesh.creation.icosphere(subdivisions=5, radius=radius)
    kept = ball.triangles_center[:, 1] < 0.9 * radius
    centre = np.array([0.0, _ARM_LEVEL, 0.0])
    parts = [(ball.vertices + centre, ball.faces[kept], ["Spine1"] * len(ball.vertices))]
    return figure([*parts, *_arms(elbow)], character.skeleton, name="ball", dtype=dtype)


def _arms(elbow: float):
    parts = []
    for side, sign in (("Left", 1.0), ("Right", -1.0)):
        vertices, faces = tube(0, (sign * RINGS[0], sign * RINGS[-1]), (0, _ARM_LEVEL, 0), 0.04)
        along = abs(vertices[:, 0])
        joints = np.where(along < elbow - 1e-9, side + "Arm", np.where(along < 0.7 - 1e-9, side + "ForeArm", "hand"))
        parts.append((vertices, faces, [side + "Hand" if joint == "hand" else str(joint) for joint in joints]))
    return parts


def _box(centre: tuple[float, float, float], half: float, *, cells: int):
    """A cube with ``cells`` by ``cells`` squares on each side, welded."""
    box = trimesh.creation.box(extents=[2 * half] * 3)
    for _ in range(int(math.log2(cells))):
        box = box.subdivide()
    box.merge_vertices()
    return np.asarray(box.vertices) + np.asarray(centre), np.asarray(box.faces)


def folded(character: Character, *, left: tuple[bool, ...], right: tuple[bool, ...] = ()) -> Motion:
    """Frames in which forearms are folded straight back along the upper arm, or stretched.

    A point of the forearm at distance x from the middle of the body is then at 2 · elbow − x.
    """
    skeleton = character.skeleton
    rotations = skeleton.offsets.new_zeros(len(left), skeleton.joint_count, 4)
    rotations[..., 3] = 1
    for side, frames in (("Left", left), ("Right", right)):
        half_turn = skeleton.offsets.new_tensor([0.0, 1.0, 0.0, 0.0])
        rotations[: len(frames), skeleton.canonical[canonical_index(side + "ForeArm")]] = torch.where(
            torch.tensor(frames, dtype=torch.bool, device=half_turn.device)[:, None],
            half_turn,
            rotations.new_tensor([0.0, 0.0, 0.0, 1.0]),
        )
    return Motion(skeleton.offsets[:1].repeat(len(left), 1), rotations, 30.0)


def rest_motion(character: Character, frames: int = 1) -> Motion:
    """A character that stands at rest."""
    return folded(character, left=(False,) * frames)


def evaluation(character: Character, motion: Motion) -> Evaluation:
    """What a metric gets for the row ``source`` of a motion."""
    return Evaluation(Clip("clip", character, motion), character, motion)
