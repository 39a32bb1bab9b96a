"""Copying of joint rotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, get_args

from retargetbench import RetargetMethod, RootRule, apply_root_rule, to_canonical_motion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from retargetbench import Character, Clip, Motion


class CopyMethod(RetargetMethod):
    """Gives the target the source's local rotations, joint by joint, and scales the root's path.

    Where both rests are T-poses, equal local rotations are equal directions of all bones. What bodies differ in, the
    length of bones and the shape of the mesh, is ignored, apart from one factor for the root and one shift of the
    height per clip that puts the lowest sole where the source's is.

    Args:
        device: where the tensors are.
        root: scale of the root's path: ``height_ratio``, ``hip_height`` (ratio of the rest heights of the hips), or
            ``none`` for 1.

    Source:
        The row "Copy" in the tables of R2ET (CVPR 2023) and MeshRet (NeurIPS 2024). Their code leaves the height of
        the feet to chance; here the platform's root rule sets it.
    """

    options: ClassVar[Mapping[str, tuple[str, ...] | type]] = {"root": get_args(RootRule)}

    def __init__(self, *, device: torch.device | str = "cpu", root: RootRule = "height_ratio") -> None:
        super().__init__(device=device, root=root)
        self._root = root

    def retarget(self, sources: Sequence[Clip], target: Character) -> list[Motion]:
        """Put the motions of ``sources`` on ``target``; see `RetargetMethod.retarget`."""
        return [
            apply_root_rule(
                source,
                target,
                to_canonical_motion(source.character.skeleton, source.motion).local_rotations,
                rule=self._root,
            )
            for source in sources
        ]
