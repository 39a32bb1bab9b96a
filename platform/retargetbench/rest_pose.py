"""Rest poses: what counts as T-like, how a rest is turned into a T-pose, how a motion moves from one rest to another.

A local rotation means nothing without the rest it starts from. Two rests of one rig differ by one rotation per joint,
the *rest change* ``C_j``: it takes the offsets of the joint's children in the new rest to those in the old one,
``C_j · new_c = old_c``. World rotations then become ``R'_j = R_j · C_j``, and because
``p_c = p_j + R_j · old_c = p_j + R'_j · new_c`` every joint stays where it was in every frame. A mesh follows when the
inverse bind matrices are turned by ``C_jᵀ``, and every vertex stays where it was too.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.kinematics import forward_kinematics, hemisphere_continuous
from retargetbench.motion import Motion, check_motion_fits
from retargetbench.skeleton import Skeleton, canonical_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.character import Character

T_TOLERANCE_DEG = 15.0
"""A rest is T-like when upper arms and thighs are at most this far from those of a T-pose."""

REPOSED = "re-posed to a T-pose"
"""Start of the note in a character's provenance, under ``rest``, where the file's rest was replaced."""

_T_CHAINS: tuple[tuple[tuple[str, ...], tuple[float, float, float]], ...] = (
    (("LeftArm", "LeftForeArm", "LeftHand"), (1.0, 0.0, 0.0)),
    (("RightArm", "RightForeArm", "RightHand"), (-1.0, 0.0, 0.0)),
    (("LeftUpLeg", "LeftLeg", "LeftFoot"), (0.0, -1.0, 0.0)),
    (("RightUpLeg", "RightLeg", "RightFoot"), (0.0, -1.0, 0.0)),
)
"""Joints whose bones point in one direction in a T-pose, +X being the character's left."""

_SOLE_JOINTS = ("LeftFoot", "LeftToeBase", "RightFoot", "RightToeBase")

_PRIOR_SHARE = 1e-9
"""Weight of the prior in `rotation_between` where vectors are nearly parallel; it turns the result by about as much."""

_SAME_OFFSET = 1e-6
"""Offsets that agree to a micrometre are the same: files print six decimals of a centimetre or store float32."""


def t_pose_angles(skeleton: Skeleton) -> dict[str, float]:
    """Measure how far upper arms, forearms, thighs and shins are from those of a T-pose.

    Returns:
        Joint at which the bone starts → angle in degrees, 0 for a bone of a T-pose and for one without length.
    """
    rest = skeleton.rest_positions.double()
    angles: dict[str, float] = {}
    for chain, direction in _T_CHAINS:
        for start, end in itertools.pairwise(chain):
            bone = rest[_joint(skeleton, end)] - rest[_joint(skeleton, start)]
            goal = bone.new_tensor(direction)
            across = torch.linalg.cross(bone, goal).norm()
            angles[start] = math.degrees(math.atan2(float(across), float(bone @ goal))) if bone.norm() > 0 else 0.0
    return angles


def is_t_like(skeleton: Skeleton, *, tolerance_deg: float = T_TOLERANCE_DEG) -> bool:
    """Return whether the rest is T-like: upper arms within a tolerance of ±X and thighs within it of −Y.

    Forearms and shins may be bent; the tolerance is generous because artists' T-poses are.
    """
    angles = t_pose_angles(skeleton)
    return all(angles[chain[0]] <= tolerance_deg for chain, _ in _T_CHAINS)


def rotation_between(before: torch.Tensor, after: torch.Tensor, prior: torch.Tensor) -> torch.Tensor:
    """Find the rotation that best takes vectors to vectors and, where they leave freedom, stays nearest to a prior.

    Several vectors that are not parallel fix the rotation (Kabsch). A single one leaves the twist about itself free;
    the result is then the smallest rotation on top of the prior. None at all give the prior.

    Args:
        before: vectors, (N, 3).
        after: where they shall go, (N, 3).
        prior: rotation matrix, (3, 3).

    Returns:
        Rotation matrix, (3, 3) float64.

    Example:
        >>> quarter = rotation_between(torch.tensor([[1.0, 0, 0]]), torch.tensor([[0.0, 2, 0]]), torch.eye(3))
        >>> (quarter @ torch.tensor([0.0, 1, 0], dtype=torch.float64)).round().tolist()
        [-1.0, 0.0, 0.0]
    """
    before, after, prior = before.double(), after.double(), prior.double()
    scales = before.norm(dim=-1) * after.norm(dim=-1)
    if len(before) == 0 or float(scales.max()) == 0.0:
        return prior
    longest = int(scales.argmax())
    swung = _smallest_rotation(prior @ before[longest], after[longest]) @ prior
    if len(before) == 1:
        return swung
    # roma's closed-form Procrustes does not resolve so small a share of the prior; the decomposition does.
    left, _, right = torch.linalg.svd(after.mT @ before / scales.sum() + _PRIOR_SHARE * swung)
    signs = torch.stack([scales.new_ones(()), scales.new_ones(()), torch.linalg.det(left @ right).sign()])
    rotation: torch.Tensor = left @ (signs[:, None] * right)
    return rotation


def _smallest_rotation(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return the smallest rotation that takes one direction, (3,), to another, (3, 3)."""
    axis = torch.linalg.cross(before, after)
    sine, cosine = axis.norm(), before @ after
    if float(sine) <= 1e-12 * float(cosine.abs()):
        if float(cosine) >= 0:
            return torch.eye(3, dtype=before.dtype, device=before.device)
        # Half a turn about anything across: the coordinate axis farthest from the direction gives one.
        farthest = torch.nn.functional.one_hot(before.abs().argmin(), 3).to(before)
        axis = torch.linalg.cross(before, farthest)
    angle = torch.atan2(sine, cosine)
    rotation: torch.Tensor = roma.rotvec_to_rotmat(angle * axis / axis.norm())
    return rotation


def rest_change(parents: Sequence[int], new_offsets: torch.Tensor, old_offsets: torch.Tensor) -> torch.Tensor:
    """Find the rest change between two rests of one rig, as the module describes it.

    A joint with one child takes the smallest rotation on top of its parent's, a leaf takes its parent's: what the
    joint positions do not tell (twist, the pose of a hand without fingers) is taken to move along rigidly.

    Args:
        parents: parent of each joint, before its children, -1 for the root, (J).
        new_offsets: offsets to the parent in the new rest, (J, 3) metres; the root's is not used.
        old_offsets: offsets in the old rest, (J, 3) metres.

    Returns:
        Rotation matrices C, (J, 3, 3), float64.
    """
    children: list[list[int]] = [[] for _ in parents]
    for joint, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(joint)
    changes: list[torch.Tensor] = []
    for joint, parent in enumerate(parents):
        prior = changes[parent] if parent >= 0 else torch.eye(3, dtype=torch.float64, device=new_offsets.device)
        new, old = new_offsets[children[joint]].double(), old_offsets[children[joint]].double()
        rigid = bool(((new @ prior.mT - old).norm(dim=-1) <= _SAME_OFFSET).all())
        changes.append(prior if rigid else rotation_between(new, old, prior))
    return torch.stack(changes)


def local_rotations(parents: Sequence[int], world_rotations: torch.Tensor) -> torch.Tensor:
    """Turn world rotations into local quaternions that are continuous in time.

    Args:
        parents: parent of each joint, -1 for the root, (J).
        world_rotations: (T, J, 3, 3).

    Returns:
        Unit quaternions xyzw, (T, J, 4).
    """
    of_parent = world_rotations[:, [max(parent, 0) for parent in parents]]
    local = of_parent.mT @ world_rotations
    is_root = torch.tensor([parent < 0 for parent in parents], device=world_rotations.device)
    local = torch.where(is_root[:, None, None], world_rotations, local)
    return hemisphere_continuous(roma.rotmat_to_unitquat(local))


def change_motion_rest(skeleton: Skeleton, motion: Motion, changes: torch.Tensor) -> Motion:
    """Re-express a motion on another rest; every joint stays where it was in every frame.

    Args:
        skeleton: the rest that the motion is expressed on, J joints.
        motion: motion of all J joints.
        changes: rest change from the new rest to this one, (J, 3, 3).

    Returns:
        The motion of a skeleton with the new rest, with the same number type.

    Raises:
        CharacterError: the motion does not fit the skeleton.
    """
    check_motion_fits(motion, skeleton)
    world, _ = forward_kinematics(skeleton, motion.root_translation.double(), motion.local_rotations.double())
    rotations = local_rotations(skeleton.parents, world @ changes.to(world))
    return replace(motion, local_rotations=rotations.to(motion.local_rotations))


def change_character_rest(character: Character, changes: torch.Tensor, *, hips_lift: float = 0.0) -> Character:
    """Give a character another rest; motions re-expressed by `change_motion_rest` move its mesh exactly as before.

    Args:
        character: J joints.
        changes: rest change from the new rest to the present one, (J, 3, 3).
        hips_lift: how much higher the root is placed in the new rest, metres. It moves no posed vertex, since motions
            carry absolute root translations.
    """
    skeleton = character.skeleton
    turns = changes.double().mT
    of_parent = turns[[max(parent, 0) for parent in skeleton.parents]]
    offsets = (of_parent @ skeleton.offsets.double()[:, :, None])[..., 0]
    offsets[0] = skeleton.offsets[0].double() + offsets.new_tensor([0.0, hips_lift, 0.0])
    inverse_bind = character.inverse_bind.double().clone()
    inverse_bind[:, :3] = turns @ inverse_bind[:, :3]
    return replace(
        character,
        skeleton=Skeleton(skeleton.names, skeleton.parents, offsets.to(skeleton.offsets), skeleton.canonical),
        inverse_bind=inverse_bind.to(character.inverse_bind),
    )


def t_pose_change(skeleton: Skeleton) -> torch.Tensor:
    """Find the rest change from an exact T-pose to the rest of a skeleton.

    Arms are put along ±X and legs along −Y by the smallest rotations; feet keep their direction in the world, hands
    go with the forearms, and all else stays as it is.

    Returns:
        Rotation matrices C, (J, 3, 3), float64: ``C_j`` takes T-pose offsets to the skeleton's.
    """
    rest = skeleton.rest_positions.double()
    next_on_chain = {
        _joint(skeleton, start): (_joint(skeleton, end), direction)
        for chain, direction in _T_CHAINS
        for start, end in itertools.pairwise(chain)
    }
    feet = {_joint(skeleton, name) for name in ("LeftFoot", "RightFoot")}
    upright = torch.eye(3, dtype=torch.float64, device=rest.device)
    turns: list[torch.Tensor] = []
    for joint, parent in enumerate(skeleton.parents):
        turn = upright if parent < 0 or joint in feet else turns[parent]
        if joint in next_on_chain:
            end, direction = next_on_chain[joint]
            turn = rotation_between((rest[end] - rest[joint])[None], rest.new_tensor([direction]), turn)
        turns.append(turn)
    return torch.stack(turns).mT


def to_t_pose(character: Character) -> Character:
    """Re-pose the rest of a character to an exact T-pose (``--straighten``).

    The hips are lifted or lowered so that the lowest foot joint stays as high as it was: straight legs are longer.
    Motions of the character must be re-expressed with `t_pose_change` of its skeleton.
    """
    changes = t_pose_change(character.skeleton)
    posed = change_character_rest(character, changes)
    lift = lowest_foot(character.skeleton) - lowest_foot(posed.skeleton)
    posed = change_character_rest(character, changes, hips_lift=lift)
    worst, angle = max(t_pose_angles(character.skeleton).items(), key=lambda item: item[1])
    note = f"{REPOSED}; {worst} was {angle:.1f} degrees off"
    return replace(posed, provenance={**character.provenance, "rest": note})


def to_house_rest(character: Character, *, straighten: bool = False) -> Character:
    """Return the character on the rest that the house convention asks for: its own if T-like, else a T-pose.

    Args:
        character: with a rest in metres, Y up, facing +Z.
        straighten: make any rest an exact T-pose.
    """
    if straighten or not is_t_like(character.skeleton):
        return to_t_pose(character)
    return replace(character, provenance={**character.provenance, "rest": "as in the file"})


def lowest_foot(skeleton: Skeleton) -> float:
    """Return the height of the lowest ankle or toe base at rest, metres."""
    soles = [skeleton.canonical[canonical_index(name)] for name in _SOLE_JOINTS]
    return float(skeleton.rest_positions.double()[soles, 1].min())


def _joint(skeleton: Skeleton, name: str) -> int:
    """Index of a canonical joint within the rig."""
    return skeleton.canonical[canonical_index(name)]
