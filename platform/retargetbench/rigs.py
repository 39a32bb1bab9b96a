"""Characters and clips from files: a mesh from a shape file, its full rig and its motions from BVH files.

The mesh's own rest is the reference. A BVH file whose bones are as long as the mesh's moves that character, whatever
rest it was exported with; one with other lengths is another character, which is bound at its BVH rest. Nothing is
assumed to be exact: `clip_from_bvh` compares every joint of every frame with the file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from retargetbench.character import Character
from retargetbench.clip import Clip
from retargetbench.errors import CharacterError
from retargetbench.kinematics import forward_kinematics
from retargetbench.motion import Motion
from retargetbench.rest_pose import local_rotations, lowest_foot, rest_change, to_house_rest
from retargetbench.skeleton import (
    CANONICAL_JOINTS,
    CANONICAL_PARENTS,
    Skeleton,
    canonical_skeleton,
    find_canonical_map,
    strip_namespace,
)

if TYPE_CHECKING:
    from retargetbench.formats.bvh import BvhFile
    from retargetbench.formats.shape_npz import ShapeFile

CENTIMETRE = 0.01
"""Metres per unit of Mixamo's and R2ET's files."""

SAME_LENGTH = 5e-5
"""Bones whose lengths differ by more than this, metres, belong to different characters."""

EXACTNESS = 1e-4
"""No joint of any frame may be farther than this from where the file has it, metres."""

RAW_WEIGHT_SUMS = "raw_weight_sums"
"""Key of a character's provenance: smallest and largest sum of a vertex's weights before they were normalised."""


def skeleton_from_bvh(bvh: BvhFile, *, unit: float = CENTIMETRE) -> Skeleton:
    """Return the skeleton of a BVH file at its own rest, in metres, with all joints under their own names.

    Args:
        bvh: a humanoid rig with Mixamo's joint names, with or without a namespace.
        unit: metres per unit of the file.

    Raises:
        CharacterError: one of the 22 canonical joints is missing.
    """
    offsets = torch.from_numpy(bvh.offsets).double() * unit
    return Skeleton(bvh.names, bvh.parents, offsets, find_canonical_map(bvh.names))


def bone_length_difference(first: Skeleton, second: Skeleton) -> tuple[float, str]:
    """Compare the 21 bones between canonical joints.

    Returns:
        The largest difference of lengths in metres, and a description of that bone with both lengths.
    """
    lengths = torch.stack([first.canonical_offsets.double(), second.canonical_offsets.double()]).norm(dim=-1)
    difference = (lengths[0] - lengths[1])[1:].abs()
    worst = int(difference.argmax()) + 1
    bone = f"{CANONICAL_JOINTS[CANONICAL_PARENTS[worst]]}-{CANONICAL_JOINTS[worst]}"
    text = f"bone {bone} is {float(lengths[0, worst]):.4f} m and {float(lengths[1, worst]):.4f} m long"
    return float(difference.max()), text


def character_from_shape(
    shape: ShapeFile,
    *,
    rig: BvhFile | None = None,
    name: str | None = None,
    straighten: bool = False,
    unit: float = CENTIMETRE,
) -> Character:
    """Build a character from a shape file, on the mesh's own rest.

    Args:
        shape: mesh, weights and the 22 joints it is bound to.
        rig: a BVH file of the same character; the character then has all its joints (fingers, ends). Joints that the
            shape file lacks are placed on the mesh's rest as if they moved with their parents.
        name: name of the character, the shape file's own by default.
        straighten: make the rest an exact T-pose.
        unit: metres per unit of both files.

    Returns:
        The character, float32, with normalised weights, on its own rest if that is T-like, else on a T-pose.

    Raises:
        CharacterError: the rig's bones have other lengths, or joints are missing.
    """
    skeleton = _mesh_skeleton(shape, unit)
    if rig is not None:
        full = skeleton_from_bvh(rig, unit=unit)
        _check_lengths(skeleton, full, f"mesh and rig of {name or shape.name}")
        skeleton, _ = _with_all_joints(skeleton, full)
    character = _skinned(shape, skeleton, name or shape.name, unit)
    return to_house_rest(character, straighten=straighten).to(dtype=torch.float32)


def character_bound_at_bvh_rest(
    shape: ShapeFile,
    bvh: BvhFile,
    *,
    name: str | None = None,
    straighten: bool = False,
    unit: float = CENTIMETRE,
) -> Character:
    """Build a character from a shape file and the rest of a BVH file with other bone lengths.

    The mesh is posed into the file's rest: each bone's part turns with the bone and moves to the joint, so that arms
    that the mesh holds 5 degrees lower still run around their bones. Lengths stay the file's. The hips are placed so
    that the lowest foot joint is as high as the mesh's.

    Args:
        shape: mesh, weights and the 22 joints it was made for.
        bvh: the rig; its joints are the character's.
        name: name of the character; by default the shape file's with the number of joints, ``Sporty_Granny_99``.
        straighten: make the rest an exact T-pose.
        unit: metres per unit of both files.

    Raises:
        CharacterError: joints are missing.
    """
    rig = skeleton_from_bvh(bvh, unit=unit)
    mesh, changes = _with_all_joints(_mesh_skeleton(shape, unit), rig)
    offsets = rig.offsets.clone()
    offsets[0] += mesh.rest_positions[mesh.canonical[0]] - rig.rest_positions[rig.canonical[0]]
    offsets[0, 1] += lowest_foot(mesh) - lowest_foot(Skeleton(rig.names, rig.parents, offsets, rig.canonical))
    posed = _skinned(shape, mesh, name or f"{shape.name}_{rig.joint_count}", unit)
    inverse_bind = posed.inverse_bind.clone()
    inverse_bind[:, :3] = changes @ inverse_bind[:, :3]
    skeleton = Skeleton(rig.names, rig.parents, offsets, rig.canonical)
    character = replace(posed, skeleton=skeleton, inverse_bind=inverse_bind)
    return to_house_rest(character, straighten=straighten).to(dtype=torch.float32)


def clip_from_bvh(bvh: BvhFile, character: Character, *, name: str, unit: float = CENTIMETRE) -> Clip:
    """Put the motion of a BVH file on the character it was made for, re-expressed on the character's rest.

    Joints are matched by name, namespaces do not matter. Joints that the file lacks stay at rest; joints that the
    character lacks are composed into those below.

    Args:
        bvh: T frames, any number of joints.
        character: of the same bone lengths.
        name: name of the motion.
        unit: metres per unit of the file.

    Returns:
        The clip at the file's frame rate, with every matched joint of every frame within `EXACTNESS` of the file.

    Raises:
        CharacterError: bone lengths differ (another character), or a joint cannot be kept where the file has it.
    """
    rig = skeleton_from_bvh(bvh, unit=unit)
    _check_lengths(character.skeleton, rig, f"character {character.name}, clip {name}")
    file_world, file_positions = forward_kinematics(
        rig, torch.from_numpy(bvh.root_positions).double() * unit, torch.from_numpy(bvh.rotations).double()
    )
    matches = _match_joints(character.skeleton, rig)
    changes = _changes_to_file(character, rig, matches)
    parents = character.skeleton.parents
    still = torch.eye(3, dtype=torch.float64).expand(len(file_world), 3, 3)
    world: list[torch.Tensor] = []
    for joint, parent in enumerate(parents):
        if joint in matches:
            world.append(file_world[:, matches[joint]] @ changes[joint])
        else:
            world.append(world[parent] if parent >= 0 else still)
    rotations = local_rotations(parents, torch.stack(world, 1))
    anchor = 0 if 0 in matches else character.skeleton.canonical[0]
    _, from_root = forward_kinematics(character.skeleton, torch.zeros_like(file_positions[:, 0]), rotations)
    translation = file_positions[:, matches[anchor]] - from_root[:, anchor]
    clip = Clip(name, character, Motion(translation.float(), rotations.float(), bvh.fps))
    _check_positions(clip, file_positions, matches)
    return clip


def clip_from_files(
    bvh: BvhFile, shape: ShapeFile, *, name: str, straighten: bool = False, unit: float = CENTIMETRE
) -> Clip:
    """Build a clip and its character from one BVH and one shape file.

    The character is `character_from_shape` where the bone lengths agree, else `character_bound_at_bvh_rest`.

    Raises:
        CharacterError: joints are missing, or a joint cannot be kept where the file has it.
    """
    difference, _ = bone_length_difference(_mesh_skeleton(shape, unit), skeleton_from_bvh(bvh, unit=unit))
    if difference <= SAME_LENGTH:
        character = character_from_shape(shape, rig=bvh, straighten=straighten, unit=unit)
    else:
        character = character_bound_at_bvh_rest(shape, bvh, straighten=straighten, unit=unit)
    return clip_from_bvh(bvh, character, name=name, unit=unit)


def _mesh_skeleton(shape: ShapeFile, unit: float) -> Skeleton:
    """Return the 22 joints that the mesh is bound to, metres, float64."""
    order = list(find_canonical_map(tuple(shape.joint_names)))
    return canonical_skeleton(torch.from_numpy(shape.offsets).double()[order] * unit)


def _check_lengths(first: Skeleton, second: Skeleton, what: str) -> None:
    difference, text = bone_length_difference(first, second)
    if difference <= SAME_LENGTH:
        return
    shares = second.canonical_offsets[1:].norm(dim=-1) / first.canonical_offsets[1:].norm(dim=-1).to(second.offsets)
    factor = float(shares.median())
    if not 0.2 < factor < 5 and bool(((shares - factor).abs() < 0.01 * factor).all()):
        hint = f"all bones differ by the factor {factor:.4g}: set unit, the metres per unit of the file"
    else:
        hint = (
            "a rig with other bone lengths is another character: bind the mesh to it with character_bound_at_bvh_rest"
        )
    raise CharacterError(f"{what}: {text}; {hint}")


def _with_all_joints(mesh: Skeleton, rig: Skeleton) -> tuple[Skeleton, torch.Tensor]:
    """Extend the 22 joints of a mesh by the rig's other joints, placed on the mesh's rest.

    Returns:
        The mesh's rest with all J joints of the rig, and the rest change from it to the rig's rest, (J, 3, 3).
    """
    of_canonical = {joint: k for k, joint in enumerate(rig.canonical)}
    canonical_changes = rest_change(CANONICAL_PARENTS, mesh.offsets, rig.canonical_offsets)
    changes: list[torch.Tensor] = []
    positions: list[torch.Tensor] = []
    for joint, parent in enumerate(rig.parents):
        if joint in of_canonical:
            changes.append(canonical_changes[of_canonical[joint]])
            positions.append(mesh.rest_positions[of_canonical[joint]])
        elif parent < 0:  # an armature root keeps its place to the hips
            changes.append(torch.eye(3, dtype=torch.float64))
            positions.append(mesh.offsets[0] + rig.rest_positions[0] - rig.rest_positions[rig.canonical[0]])
        else:
            changes.append(changes[parent])
            positions.append(positions[parent] + changes[parent].mT @ rig.offsets[joint])
    offsets = [p if j == 0 else p - positions[rig.parents[j]] for j, p in enumerate(positions)]
    return Skeleton(rig.names, rig.parents, torch.stack(offsets), rig.canonical), torch.stack(changes)


def _skinned(shape: ShapeFile, skeleton: Skeleton, name: str, unit: float) -> Character:
    """Bind the mesh of a shape file to joints at the mesh's rest, float64, with normalised weights."""
    order = list(find_canonical_map(tuple(shape.joint_names)))
    raw = torch.from_numpy(shape.weights).double()[:, order].clamp_min(0.0)
    sums = raw.sum(-1, keepdim=True)
    weights, joints = (raw / sums).sort(dim=-1, descending=True, stable=True)
    influences = int((raw > 0).sum(-1).max())
    weights, joints = weights[:, :influences], joints[:, :influences]
    inverse_bind = torch.eye(4, dtype=torch.float64).repeat(skeleton.joint_count, 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    hips = skeleton.rest_positions[skeleton.canonical[0]]
    return Character(
        name=name,
        skeleton=skeleton,
        bind_vertices=torch.from_numpy(shape.rest_vertices).double() * unit + hips,
        inverse_bind=inverse_bind,
        faces=torch.from_numpy(shape.faces).long(),
        influence_joints=torch.where(weights > 0, torch.tensor(skeleton.canonical)[joints], 0),
        influence_weights=weights,
        provenance={RAW_WEIGHT_SUMS: f"{float(sums.min()):.6f}..{float(sums.max()):.6f}"},
    )


def _match_joints(skeleton: Skeleton, rig: Skeleton) -> dict[int, int]:
    """Joint of the skeleton → joint of the rig with the same name; canonical joints match by what they are."""
    of_rig = {strip_namespace(name): j for j, name in reversed(list(enumerate(rig.names)))}
    matches = {j: of_rig[strip_namespace(n)] for j, n in enumerate(skeleton.names) if strip_namespace(n) in of_rig}
    return matches | dict(zip(skeleton.canonical, rig.canonical, strict=True))


def _changes_to_file(character: Character, rig: Skeleton, matches: dict[int, int]) -> dict[int, torch.Tensor]:
    """Find for each matched joint the rest change from the character's rest to the file's.

    Of two rests of the character the one that is nearer to the file's is compared with it: the house rest (files that
    we wrote) or the pose the mesh was bound in (files of the character's maker). Only joint positions are compared,
    so the nearer rest leaves less to guess about twist.
    """
    joints = sorted(matches)
    place = {joint: i for i, joint in enumerate(joints)}
    parents: list[int] = []
    for joint in joints:
        above = character.skeleton.parents[joint]
        while above >= 0 and above not in place:
            above = character.skeleton.parents[above]
        parents.append(place.get(above, -1))

    def between(positions: torch.Tensor) -> torch.Tensor:
        return positions - positions[[max(parent, 0) for parent in parents]]

    file_offsets = between(rig.rest_positions[[matches[joint] for joint in joints]])
    to_bind = torch.linalg.inv(character.inverse_bind.double())
    house = between(character.skeleton.to(dtype=torch.float64).rest_positions[joints])
    bound = between(to_bind[joints, :3, 3])
    if (house - file_offsets).norm(dim=-1).max() <= (bound - file_offsets).norm(dim=-1).max():
        changes = rest_change(parents, house, file_offsets)
    else:
        changes = rest_change(parents, bound, file_offsets) @ to_bind[joints, :3, :3]
    return dict(zip(joints, changes, strict=True))


def _check_positions(clip: Clip, file_positions: torch.Tensor, matches: dict[int, int]) -> None:
    """Compare every matched joint of every frame with the file."""
    motion = clip.motion.to(dtype=torch.float64)
    _, positions = forward_kinematics(clip.character.skeleton, motion.root_translation, motion.local_rotations)
    joints = list(matches)
    distance = (positions[:, joints] - file_positions[:, [matches[joint] for joint in joints]]).norm(dim=-1)
    if float(distance.max()) > EXACTNESS:
        frame, worst = divmod(int(distance.argmax()), len(joints))
        joint = clip.character.skeleton.names[joints[worst]]
        raise CharacterError(
            f"character {clip.character.name}, clip {clip.name}: joint {joint!r} is "
            f"{float(distance.max()) * 1000:.3g} mm from where the file has it in frame {frame}; the rig is built "
            f"otherwise, so it is another character: bind the mesh to it with character_bound_at_bvh_rest"
        )
