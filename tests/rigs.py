"""Small random rigs for tests: built from seeds, independent of the code under test."""

from __future__ import annotations

import numpy as np
import torch

from retargetbench.character import Character
from retargetbench.motion import Motion
from retargetbench.skeleton import CANONICAL_JOINTS, CANONICAL_PARENTS, Skeleton

HUMAN_OFFSETS = {
    "Hips": (0.0, 1.0, 0.0), "Spine": (0.0, 0.1, 0.0), "Spine1": (0.0, 0.12, 0.0), "Spine2": (0.0, 0.12, 0.0),
    "Neck": (0.0, 0.15, 0.0), "Head": (0.0, 0.1, 0.02), "LeftUpLeg": (0.1, -0.05, 0.0), "LeftLeg": (0.0, -0.45, 0.0),
    "LeftFoot": (0.0, -0.42, -0.02), "LeftToeBase": (0.0, -0.06, 0.12), "RightUpLeg": (-0.1, -0.05, 0.0),
    "RightLeg": (0.0, -0.45, 0.0), "RightFoot": (0.0, -0.42, -0.02), "RightToeBase": (0.0, -0.06, 0.12),
    "LeftShoulder": (0.05, 0.1, 0.0), "LeftArm": (0.12, 0.0, 0.0), "LeftForeArm": (0.28, 0.0, 0.0),
    "LeftHand": (0.25, 0.0, 0.0), "RightShoulder": (-0.05, 0.1, 0.0), "RightArm": (-0.12, 0.0, 0.0),
    "RightForeArm": (-0.28, 0.0, 0.0), "RightHand": (-0.25, 0.0, 0.0),
}  # fmt: skip


def human_skeleton(*, extra_joints: bool = False, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Skeleton:
    """A plausible skeleton; with extra joints it has a Pelvis in between, a root above the hips, and fingers."""
    names, parents, offsets = [], [], []
    if extra_joints:
        names, parents, offsets = ["Armature"], [-1], [(0.0, 0.0, 0.0)]
    for name, parent in zip(CANONICAL_JOINTS, CANONICAL_PARENTS, strict=True):
        prefix = "mixamorig:" if extra_joints else ""
        above = names.index(prefix + CANONICAL_JOINTS[parent]) if parent >= 0 else (0 if extra_joints else -1)
        if extra_joints and name == "LeftUpLeg":
            names.append("Pelvis")
            parents.append(above)
            offsets.append((0.0, -0.02, 0.01))
        if extra_joints and name.endswith("UpLeg"):
            above = names.index("Pelvis")
        names.append(prefix + name)
        parents.append(above)
        offsets.append(HUMAN_OFFSETS[name])
    if extra_joints:
        for side, sign in (("Left", 1.0), ("Right", -1.0)):
            names.append(f"mixamorig:{side}HandIndex1")
            parents.append(names.index(f"mixamorig:{side}Hand"))
            offsets.append((sign * 0.08, 0.0, 0.01))
    canonical = tuple(
        next(i for i, full in enumerate(names) if full.rsplit(":", 1)[-1] == short) for short in CANONICAL_JOINTS
    )
    return Skeleton(tuple(names), tuple(parents), scale * torch.tensor(offsets, dtype=dtype), canonical)


def random_motion(
    skeleton: Skeleton, frames: int, *, seed: int = 0, fps: float = 30.0, spread: float = 1.0, dtype=torch.float64
) -> Motion:
    """Smooth random rotations (sums of sines) of every joint and a wandering root."""
    rng = np.random.default_rng(seed)
    from scipy.spatial.transform import Rotation

    time = np.arange(frames)[:, None, None] / fps
    amplitude = spread * rng.normal(size=(1, skeleton.joint_count, 3)) * 0.4
    phase = rng.uniform(0, 2 * np.pi, size=(1, skeleton.joint_count, 3))
    rotvec = amplitude * np.sin(2 * np.pi * rng.uniform(0.2, 0.8) * time + phase)
    quaternions = Rotation.from_rotvec(rotvec.reshape(-1, 3)).as_quat().reshape(frames, -1, 4)
    root = np.cumsum(rng.normal(size=(frames, 3)) * 0.01, 0) + np.array([0.3, 1.0, -0.2])
    return Motion(torch.tensor(root, dtype=dtype), torch.tensor(quaternions, dtype=dtype), fps)


def random_character(
    skeleton: Skeleton, *, vertices: int = 300, influences: int = 6, seed: int = 0, name: str = "random"
) -> Character:
    """A cloud of points around the bones with random weights and random, non-trivial bind matrices."""
    rng = np.random.default_rng(seed)
    from scipy.spatial.transform import Rotation

    dtype = skeleton.offsets.dtype
    near = rng.integers(0, skeleton.joint_count, vertices)
    points = skeleton.rest_positions.numpy()[near] + rng.normal(size=(vertices, 3)) * 0.05
    joints = np.stack([rng.permutation(skeleton.joint_count)[:influences] for _ in range(vertices)])
    weights = rng.dirichlet(np.ones(influences), vertices)
    inverse_bind = np.tile(np.eye(4), (skeleton.joint_count, 1, 1))
    inverse_bind[:, :3, :3] = Rotation.from_rotvec(rng.normal(size=(skeleton.joint_count, 3)) * 0.3).as_matrix()
    inverse_bind[:, :3, 3] = -skeleton.rest_positions.numpy() + rng.normal(size=(skeleton.joint_count, 3)) * 0.02
    faces = np.stack([rng.permutation(vertices)[:3] for _ in range(2 * vertices)])
    return Character(
        name,
        skeleton,
        torch.tensor(points, dtype=dtype),
        torch.tensor(inverse_bind, dtype=dtype),
        torch.tensor(faces),
        torch.tensor(joints),
        torch.tensor(weights, dtype=dtype),
    )
