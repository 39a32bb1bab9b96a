"""Forward kinematics, linear blend skinning, resampling and quaternion continuity, batched and differentiable.

Conventions (docs/decisions.md): metres, Y up, quaternions xyzw, joint frames world-aligned in the rest pose, so
that ``R_j = R_parent · r_j`` and ``p_j = p_parent + R_parent · offset_j``; the root translation *is* the position of
joint 0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.motion import Motion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.character import Character
    from retargetbench.skeleton import Skeleton

SPARSE_FROM_JOINTS = 50
"""From this many weighted joints on, skinning uses a sparse matrix on a GPU, and on a CPU where gradients are wanted.

Measured on a CPU; no GPU was at hand.
"""

SPARSE_BELOW_DENSITY = 0.25
"""On a CPU, without gradients, a sparse matrix is faster where fewer than this share of its entries are not zero.

Measured with 22 to 65 joints and 2 to 30 influences: twice as fast at 0.1, a third faster at 0.2, equal at 0.35.
"""

_FRAMES_AT_ONCE = 16
"""Frames skinned by one product on a CPU where no gradient is wanted."""


@lru_cache(maxsize=64)
def _levels(parents: tuple[int, ...]) -> tuple[tuple[list[int], list[int]], ...]:
    """Joints and their parents by depth below the root, so that one step poses a whole level."""
    depth: list[int] = []
    for parent in parents:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    return tuple(
        (
            [j for j, d in enumerate(depth) if d == level],
            [parents[j] for j, d in enumerate(depth) if d == level],
        )
        for level in range(1, max(depth) + 1)
    )


def forward_kinematics(
    skeleton: Skeleton, root_translation: torch.Tensor, local_rotations: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute world rotations and positions of all joints.

    Args:
        skeleton: J joints.
        root_translation: world position of joint 0, (..., 3) metres.
        local_rotations: unit quaternions xyzw, (..., J, 4).

    Returns:
        World rotation matrices (..., J, 3, 3) and world positions (..., J, 3) in metres.
    """
    local = roma.unitquat_to_rotmat(local_rotations)
    offsets = skeleton.offsets.to(local)
    # Lists instead of writes into one tensor: in-place writes would break gradients.
    rotations: list[torch.Tensor] = [local[..., 0, :, :]] * skeleton.joint_count
    positions: list[torch.Tensor] = [root_translation] * skeleton.joint_count
    for joints, parents in _levels(skeleton.parents):
        parent_rotation = torch.stack([rotations[p] for p in parents], -3)
        parent_position = torch.stack([positions[p] for p in parents], -2)
        rotation = parent_rotation @ local[..., joints, :, :]
        position = parent_position + (parent_rotation @ offsets[joints, :, None])[..., 0]
        for i, j in enumerate(joints):
            rotations[j], positions[j] = rotation[..., i, :, :], position[..., i, :]
    return torch.stack(rotations, -3), torch.stack(positions, -2)


def joint_positions(skeleton: Skeleton, motion: Motion) -> torch.Tensor:
    """Compute the world positions of the 22 canonical joints over time, (T, 22, 3) metres."""
    _, positions = forward_kinematics(skeleton, motion.root_translation, motion.local_rotations)
    return positions[..., list(skeleton.canonical), :]


def skinning_transforms(
    inverse_bind: torch.Tensor, world_rotations: torch.Tensor, world_positions: torch.Tensor
) -> torch.Tensor:
    """Compute the transforms that take bind-space points to the world, one per joint.

    Args:
        inverse_bind: bind space to joint rest frame, (J, 4, 4).
        world_rotations: (..., J, 3, 3).
        world_positions: (..., J, 3), metres.

    Returns:
        (..., J, 3, 4).
    """
    rotation = world_rotations @ inverse_bind[:, :3, :3]
    translation = (world_rotations @ inverse_bind[:, :3, 3:])[..., 0] + world_positions
    return torch.cat([rotation, translation[..., None]], -1)


def _sparse_is_faster(rows: torch.Tensor, joint_count: int) -> bool:
    """Whether skinning rows (P, 4A) should be kept as a sparse matrix."""
    if rows.device.type != "cpu":
        return rows.device.type == "cuda" and joint_count >= SPARSE_FROM_JOINTS
    # Torch leaves sparse products on a CPU to MKL; builds without it were not measured.
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return False
    return float((rows != 0).float().mean()) < SPARSE_BELOW_DENSITY


def _pose_rows(rows: torch.Tensor, transforms: torch.Tensor) -> torch.Tensor:
    """Multiply rows (P, 4A) with the transforms (T, A, 3, 4) of A joints: a view (T, P, 3) of points by frame."""
    frames, joints = transforms.shape[:2]
    stacked = transforms.permute(1, 3, 0, 2).reshape(4 * joints, 3 * frames)
    return (rows @ stacked).view(-1, frames, 3).permute(1, 0, 2)


@dataclass(frozen=True, eq=False)
class Skinner:
    """Linear blend skinning of chosen points as one matrix product.

    Posed points are linear in rows ``x = w ⊗ (v, 1)``, so the rows of all points are laid down once and every
    pose costs one GEMM with any number of influences. Rows may be averaged: the mean of rows poses to the mean of
    the points. Joints without weight are left out.

    Attributes:
        skeleton: J joints.
        inverse_bind: of the joints with weight, (A, 4, 4).
        joints: indices of the joints with weight, (A,).
        rows: (P, 4A), dense, or sparse CSR (see `SPARSE_FROM_JOINTS`, `SPARSE_BELOW_DENSITY`).
    """

    skeleton: Skeleton
    inverse_bind: torch.Tensor
    joints: torch.Tensor
    rows: torch.Tensor

    @classmethod
    def from_points(
        cls,
        character: Character,
        points: torch.Tensor,
        weights: torch.Tensor,
        *,
        means: Sequence[torch.Tensor] = (),
    ) -> Skinner:
        """Make a skinner for bind-space points (P, 3) with dense weights (P, J).

        Each entry of ``means`` lists indices of points whose posed mean follows as one more point.
        """
        used = (weights != 0).any(0)
        used[0] = True
        joints = used.nonzero()[:, 0]
        homogeneous = torch.cat([points, torch.ones_like(points[:, :1])], -1)
        rows = (weights[:, joints, None] * homogeneous[:, None, :]).reshape(len(points), -1)
        rows = torch.cat([rows, *(rows[chosen].mean(0, keepdim=True) for chosen in means)])
        if _sparse_is_faster(rows, len(joints)):
            with warnings.catch_warnings():
                # torch calls its CSR layout beta; the product used here is compared with a slow loop in the tests.
                warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
                rows = rows.to_sparse_csr()
        return cls(character.skeleton, character.inverse_bind[joints], joints, rows)

    @classmethod
    def from_character(cls, character: Character, vertices: torch.Tensor | None = None) -> Skinner:
        """Make a skinner for all vertices of a character, or for the vertex indices ``vertices``."""
        chosen = slice(None) if vertices is None else vertices
        return cls.from_points(character, character.bind_vertices[chosen], character.weights[chosen])

    def pose(self, world_rotations: torch.Tensor, world_positions: torch.Tensor) -> torch.Tensor:
        """Pose the points.

        Args:
            world_rotations: (..., J, 3, 3).
            world_positions: (..., J, 3), metres.

        Returns:
            World positions of the points, (..., P, 3) metres, contiguous.
        """
        batch = world_positions.shape[:-2]
        transforms = skinning_transforms(
            self.inverse_bind.to(world_rotations),
            world_rotations[..., self.joints, :, :],
            world_positions[..., self.joints, :],
        ).reshape(-1, len(self.joints), 3, 4)
        rows = self.rows.to(transforms.dtype)
        if transforms.requires_grad or rows.requires_grad or transforms.device.type != "cpu":
            if rows.is_sparse_csr and len(self.joints) < SPARSE_FROM_JOINTS:
                # The product on the way back takes twice as long with a sparse matrix.
                rows = rows.to_dense()
            return _pose_rows(rows, transforms).contiguous().view(*batch, -1, 3)
        # A few frames at a time stay in the processor's cache while they are brought from (P, T, 3) to (T, P, 3).
        posed = transforms.new_empty(len(transforms), rows.shape[0], 3)
        for start in range(0, len(transforms), _FRAMES_AT_ONCE):
            part = slice(start, start + _FRAMES_AT_ONCE)
            posed[part] = _pose_rows(rows, transforms[part])
        return posed.view(*batch, -1, 3)

    def pose_motion(self, motion: Motion) -> torch.Tensor:
        """Pose the points in every frame of a motion, (T, P, 3) metres."""
        return self.pose(*forward_kinematics(self.skeleton, motion.root_translation, motion.local_rotations))


def hemisphere_continuous(quaternions: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Flip signs so that neighbours along ``dim`` lie in one hemisphere; the rotations stay the same.

    Args:
        quaternions: unit quaternions, (..., 4).
        dim: the time axis.
    """
    moved = quaternions.movedim(dim, 0)
    dots = (moved[1:] * moved[:-1]).sum(-1, keepdim=True)
    flips = torch.where(dots < 0, -1.0, 1.0).to(quaternions.dtype).cumprod(0)
    return torch.cat([moved[:1], moved[1:] * flips]).movedim(0, dim)


def resample(motion: Motion, fps: float) -> Motion:
    """Resample a motion to another frame rate; the first frame stays where it is.

    Rotations by spherical, translations by linear interpolation. The last sample is the last one that lies within
    the motion, so the length changes by less than one frame of the new rate.
    """
    if fps == motion.fps:
        return motion
    count = int(motion.duration * fps + 1e-6) + 1
    return _sample(motion, torch.arange(count, device=motion.device, dtype=torch.float64) * (motion.fps / fps), fps)


def resample_to_frames(motion: Motion, frame_count: int, fps: float) -> Motion:
    """Stretch a motion over exactly ``frame_count`` frames of rate ``fps``, e.g. back to its source's frames."""
    position = torch.arange(frame_count, device=motion.device, dtype=torch.float64) * (motion.fps / fps)
    return _sample(motion, position.clamp_max(motion.frame_count - 1), fps)


def _sample(motion: Motion, position: torch.Tensor, fps: float) -> Motion:
    """Sample at fractional frame numbers, (N,)."""
    low = position.floor().long().clamp_max(motion.frame_count - 1)
    high = (low + 1).clamp_max(motion.frame_count - 1)
    share = (position - low).to(motion.local_rotations.dtype)
    translation = torch.lerp(motion.root_translation[low], motion.root_translation[high], share[:, None])
    start = motion.local_rotations[low]
    end = motion.local_rotations[high]
    dot = (start * end).sum(-1, keepdim=True)
    end = torch.where(dot < 0, -end, end)
    angle = torch.acos(dot.abs().clamp_max(1.0))
    # sin(0)/sin(0): neighbours closer than 1e-3 rad are interpolated linearly, off by less than 1e-10.
    near = angle < 1e-3
    sine = torch.where(near, torch.ones_like(angle), torch.sin(angle))
    fraction = share[:, None, None]
    first = torch.where(near, 1 - fraction, torch.sin((1 - fraction) * angle) / sine)
    second = torch.where(near, fraction.expand_as(angle), torch.sin(fraction * angle) / sine)
    rotations = torch.nn.functional.normalize(first * start + second * end, dim=-1)
    return Motion(translation, hemisphere_continuous(rotations), fps)


def padded_batch(motions: Sequence[Motion]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Stack motions of different length, repeating their last frame.

    Returns:
        Root translations (B, T, 3), local rotations (B, T, J, 4) and a mask (B, T) that is true on real frames.
    """
    longest = max(motion.frame_count for motion in motions)
    steps = torch.arange(longest, device=motions[0].device)
    picks = [steps.clamp_max(motion.frame_count - 1) for motion in motions]
    return (
        torch.stack([motion.root_translation[pick] for motion, pick in zip(motions, picks, strict=True)]),
        torch.stack([motion.local_rotations[pick] for motion, pick in zip(motions, picks, strict=True)]),
        torch.stack([steps < motion.frame_count for motion in motions]),
    )
