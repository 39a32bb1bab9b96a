"""Between a rig's own joints and the 22 canonical ones, and the one root rule.

Methods see and return canonical motions. What else the target has (fingers, twist joints, props) is filled in here,
the same way for every method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import roma
import torch

from retargetbench.caching import per_character
from retargetbench.kinematics import Skinner, forward_kinematics, hemisphere_continuous
from retargetbench.motion import Motion, check_motion_fits
from retargetbench.skeleton import CANONICAL_PARENTS, strip_namespace

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.skeleton import Skeleton

RootRule = Literal["height_ratio", "hip_height", "none"]
"""Scale of the root translation: ratio of heights, ratio of rest hip heights, or 1."""

_SOLE_JOINTS = (8, 9, 12, 13)  # canonical feet and toe bases


def to_canonical_motion(skeleton: Skeleton, motion: Motion) -> Motion:
    """Reduce a motion of all J joints to the 22 canonical ones, (T, 22, 4).

    Joints between two canonical ones (a ``Pelvis``) are composed into their canonical descendant, so world rotations
    of the canonical joints stay exactly as they were.

    Raises:
        CharacterError: the motion does not fit the skeleton.
    """
    check_motion_fits(motion, skeleton)
    if skeleton.is_canonical():
        return motion
    world, positions = forward_kinematics(skeleton, motion.root_translation, motion.local_rotations)
    world = world[..., list(skeleton.canonical), :, :]
    parents = torch.tensor(CANONICAL_PARENTS).clamp_min(0)
    local = world[..., parents, :, :].mT @ world
    local = torch.cat([world[..., :1, :, :], local[..., 1:, :, :]], -3)
    quaternions = hemisphere_continuous(roma.rotmat_to_unitquat(local))
    return Motion(positions[..., skeleton.canonical[0], :], quaternions, motion.fps)


def from_canonical_motion(target: Skeleton, motion: Motion, source: Clip | None = None) -> Motion:
    """Extend a canonical motion to all joints of a target.

    A joint that is not canonical takes the source's local rotation where the source has a joint of that name
    (namespaces do not matter), and stays at rest otherwise.

    Args:
        target: J joints.
        motion: canonical motion, (T, 22, 4).
        source: the clip that was retargeted, of the same length.

    Returns:
        A motion of all J joints.
    """
    if target.is_canonical():
        return motion
    rotations = motion.local_rotations.new_zeros(motion.frame_count, target.joint_count, 4)
    rotations[..., 3] = 1.0
    canonical_of = {joint: k for k, joint in enumerate(target.canonical)}
    if source is not None:
        of_source = {strip_namespace(name): j for j, name in enumerate(source.character.skeleton.names)}
        for j, name in enumerate(target.names):
            k = of_source.get(strip_namespace(name))
            if k is not None and j not in canonical_of:
                rotations[:, j] = source.motion.local_rotations[:, k].to(rotations)
    for j, k in canonical_of.items():
        rotations[:, j] = motion.local_rotations[:, k]
    if any(_has_joints_between(target, k) for k in range(22)):
        rotations = _keep_world_rotations(target, motion, rotations)
    return Motion(_root_translation(target, motion, rotations), hemisphere_continuous(rotations), motion.fps)


def _has_joints_between(skeleton: Skeleton, k: int) -> bool:
    """Whether a joint of the rig lies between canonical joint ``k`` and its canonical parent (or above the hips)."""
    parent = CANONICAL_PARENTS[k]
    return skeleton.parents[skeleton.canonical[k]] != (skeleton.canonical[parent] if parent >= 0 else -1)


def _keep_world_rotations(target: Skeleton, motion: Motion, rotations: torch.Tensor) -> torch.Tensor:
    """Take what joints in between rotate out of their canonical descendants, whose world rotations must hold."""
    kept = rotations.clone()
    wanted = [motion.local_rotations[:, 0]]
    for k in range(1, 22):
        wanted.append(roma.quat_product(wanted[CANONICAL_PARENTS[k]], motion.local_rotations[:, k]))
    canonical_of = {joint: k for k, joint in enumerate(target.canonical)}
    world: list[torch.Tensor] = []
    for j, parent in enumerate(target.parents):
        if j in canonical_of:
            now = wanted[canonical_of[j]]
            kept[:, j] = now if parent < 0 else roma.quat_product(roma.quat_conjugation(world[parent]), now)
        else:
            now = kept[:, j] if parent < 0 else roma.quat_product(world[parent], kept[:, j])
        world.append(now)
    return kept


def _root_translation(target: Skeleton, motion: Motion, rotations: torch.Tensor) -> torch.Tensor:
    """Place joint 0 so that the hips are where the canonical motion has them."""
    hips = target.canonical[0]
    if hips == 0:
        return motion.root_translation
    _, positions = forward_kinematics(target, torch.zeros_like(motion.root_translation), rotations)
    return motion.root_translation - positions[:, hips]


def root_scale(source: Skeleton, target: Skeleton, rule: RootRule) -> float:
    """Return the factor s of the root rule for a source and a target skeleton."""
    if rule == "height_ratio":
        return target.height / source.height
    if rule == "hip_height":
        return target.hip_height / source.hip_height
    return 1.0


@per_character
def sole_skinner(character: Character, /) -> Skinner:
    """Return a skinner of the sole vertices, made once per character.

    Soles are the vertices whose dominant joint is a foot or toe base; a mesh without any counts as a whole.
    """
    feet = torch.isin(character.dominant_joint, torch.tensor(_SOLE_JOINTS, device=character.device))
    return Skinner.from_character(character, feet.nonzero()[:, 0] if bool(feet.any()) else None)


def lowest_sole(character: Character, motion: Motion) -> torch.Tensor:
    """Return the height of the lowest sole vertex in each frame of a full motion, (T,) metres."""
    return sole_skinner(character).pose_motion(motion)[..., 1].amin(-1)


def apply_root_rule(
    source: Clip, target: Character, rotations: torch.Tensor, *, rule: RootRule = "height_ratio"
) -> Motion:
    """Give retargeted rotations their root translation by the one rule that all methods share.

    Horizontally the root starts where the source starts and moves by ``s`` times the source's displacement;
    vertically it is ``hip_rest_B + s · (y_A − hip_rest_A)``, then shifted by one constant so that the lowest sole
    over the clip is as high as the source's.

    Args:
        source: the clip, with T frames.
        target: the character to move.
        rotations: canonical local rotations of the target, (T, 22, 4).
        rule: how s is chosen.

    Returns:
        The canonical motion of the target, (T, 22, 4), at the source's frame rate.
    """
    from_hips = to_canonical_motion(source.character.skeleton, source.motion).root_translation.to(rotations)
    scale = root_scale(source.character.skeleton, target.skeleton, rule)
    translation = from_hips[:1] + scale * (from_hips - from_hips[:1])
    height = target.skeleton.hip_height + scale * (from_hips[:, 1] - source.character.skeleton.hip_height)
    translation = torch.stack([translation[:, 0], height, translation[:, 2]], -1)
    motion = Motion(translation, rotations, source.motion.fps)
    lowest = lowest_sole(target, from_canonical_motion(target.skeleton, motion, source)).min()
    shift = lowest_sole(source.character, source.motion).min().to(lowest) - lowest
    return Motion(translation + shift * translation.new_tensor([0.0, 1.0, 0.0]), rotations, source.motion.fps)
