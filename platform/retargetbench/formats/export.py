"""Saving motions to files that other programs open: GLB with the character, BVH without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from retargetbench.errors import UsageError
from retargetbench.formats._files import write_atomically
from retargetbench.formats.bvh import BvhFile, write_bvh
from retargetbench.formats.gltf import GltfAnimation, GltfSkinnedMesh, encode_glb
from retargetbench.motion import Motion, check_motion_fits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    import torch

    from retargetbench.character import Character
    from retargetbench.skeleton import Skeleton

MOTION_SUFFIXES = (".bvh", ".glb")
"""File suffixes that `save_motion` accepts, in any case."""


def save_motion(path: str | PathLike[str], character: Character, motion: Motion) -> None:
    """Save a motion of a character in the format that the suffix of ``path`` names, atomically.

    Args:
        path: a ``.glb`` file takes the skinned character along, a ``.bvh`` file only its skeleton.
        character: the character that moves.
        motion: a motion of all its joints.

    Raises:
        UsageError: the suffix is another one, or the file cannot be written.
        CharacterError: the motion has another number of joints than the character.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".glb":
        save_glb(path, character, motion)
    elif suffix == ".bvh":
        save_bvh(path, character.skeleton, motion)
    else:
        raise UsageError(
            f"cannot save {str(path)!r}: unknown suffix {suffix!r}; accepted: {', '.join(MOTION_SUFFIXES)}"
        )


def save_glb(
    path: str | PathLike[str], character: Character, motion: Motion | Mapping[str, Motion], *, name: str | None = None
) -> None:
    """Save a character with one or several animations as a GLB file, atomically.

    Args:
        path: where to write.
        character: mesh, skin and skeleton; all influences are kept.
        motion: one motion, or several by the name of their animation.
        name: name of a single motion's animation; the name of the file by default.

    Raises:
        CharacterError: a motion has another number of joints than the character.
        UsageError: the file cannot be written.
    """
    motions = {name or Path(path).stem: motion} if isinstance(motion, Motion) else motion
    for each in motions.values():
        check_motion_fits(each, character.skeleton)
    mesh = GltfSkinnedMesh(
        name=character.name,
        joint_names=character.skeleton.names,
        parents=character.skeleton.parents,
        offsets=_float64(character.skeleton.offsets),
        inverse_bind=_float64(character.inverse_bind),
        bind_vertices=_float64(character.bind_vertices),
        faces=character.faces.cpu().numpy(),
        influence_joints=character.influence_joints.cpu().numpy(),
        influence_weights=_float64(character.influence_weights),
    )
    animations = [
        GltfAnimation(title, _float64(each.root_translation), _float64(each.local_rotations), each.fps)
        for title, each in motions.items()
    ]
    write_atomically(path, encode_glb(mesh, animations))


def save_bvh(path: str | PathLike[str], skeleton: Skeleton, motion: Motion, *, units_per_metre: float = 100.0) -> None:
    """Save a motion as a BVH file, atomically.

    Args:
        path: where to write.
        skeleton: names, hierarchy and rest offsets.
        motion: a motion of all its joints.
        units_per_metre: length unit of the file; BVH states none, and Mixamo's files are in centimetres.

    Raises:
        CharacterError: the motion has another number of joints than the skeleton.
        UsageError: the file cannot be written.
    """
    check_motion_fits(motion, skeleton)
    bvh = BvhFile(
        names=skeleton.names,
        parents=skeleton.parents,
        offsets=_float64(skeleton.offsets) * units_per_metre,
        end_sites={},
        root_positions=_float64(motion.root_translation) * units_per_metre,
        rotations=_float64(motion.local_rotations),
        frame_time=1.0 / motion.fps,
    )
    write_bvh(path, bvh)


def _float64(tensor: torch.Tensor) -> npt.NDArray[np.float64]:
    return np.asarray(tensor.detach().cpu().double().numpy())
