"""The skeleton: joint names, hierarchy and rest offsets, and the 22 canonical joints every method sees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from retargetbench.errors import CharacterError

CANONICAL_JOINTS: tuple[str, ...] = (
    "Hips", "Spine", "Spine1", "Spine2", "Neck", "Head",
    "LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase",
    "RightUpLeg", "RightLeg", "RightFoot", "RightToeBase",
    "LeftShoulder", "LeftArm", "LeftForeArm", "LeftHand",
    "RightShoulder", "RightArm", "RightForeArm", "RightHand",
)  # fmt: skip
"""The 22 joints of the Mixamo family, in the order that NKN, PMnet, R2ET and this project share."""

CANONICAL_PARENTS: tuple[int, ...] = (
    -1, 0, 1, 2, 3, 4, 0, 6, 7, 8, 0, 10, 11, 12, 3, 14, 15, 16, 3, 18, 19, 20,
)  # fmt: skip
"""Parent of each canonical joint; -1 marks the root."""

HEIGHT_JOINTS: tuple[str, ...] = (
    "Spine", "Spine1", "Spine2", "Neck", "Head", "LeftLeg", "LeftFoot", "LeftToeBase",
)  # fmt: skip
"""Joints whose offset lengths add up to the height (R2ET's rule: no head end is needed)."""


def canonical_index(name: str) -> int:
    """Return the position of a canonical joint name.

    Raises:
        CharacterError: the name is not one of the 22.
    """
    try:
        return CANONICAL_JOINTS.index(name)
    except ValueError:
        raise CharacterError(f"{name!r} is not a canonical joint; these are: {', '.join(CANONICAL_JOINTS)}") from None


def strip_namespace(name: str) -> str:
    """Return a joint name without its namespace: ``mixamorig1:Hips`` and ``Hips`` are the same joint."""
    return name.rsplit(":", 1)[-1]


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A joint hierarchy in the house convention: metres, Y up, facing +Z, joint frames world-aligned at rest.

    ``offsets[j]`` goes from the parent to joint ``j`` in the rest pose, (J, 3) metres; ``offsets[0]`` is the rest
    position of the root. Parents come before their children.

    Raises:
        CharacterError: shapes differ, parents are not in topological order, a name repeats, an offset is not
            finite, or the canonical map does not name 22 different joints with the canonical ancestry.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    offsets: torch.Tensor
    canonical: tuple[int, ...]

    def __post_init__(self) -> None:
        count = len(self.names)
        if len(self.parents) != count or tuple(self.offsets.shape) != (count, 3):
            raise CharacterError(
                f"a skeleton of {count} names needs {count} parents and offsets ({count}, 3), "
                f"got {len(self.parents)} parents and offsets {tuple(self.offsets.shape)}"
            )
        if len(set(self.names)) != count:
            repeated = next(n for n in self.names if self.names.count(n) > 1)
            raise CharacterError(f"joint name {repeated!r} occurs more than once; joint names must be unique")
        for j, parent in enumerate(self.parents):
            if (parent != -1) if j == 0 else not 0 <= parent < j:
                raise CharacterError(
                    f"joint {self.names[j]!r} (index {j}) has parent index {parent}; the root comes first with "
                    f"parent -1 and every other parent comes before its child"
                )
        if not bool(torch.isfinite(self.offsets).all()):
            bad = self.names[int((~torch.isfinite(self.offsets)).any(-1).nonzero()[0, 0])]
            raise CharacterError(f"the rest offset of joint {bad!r} is not finite")
        self._check_canonical()

    def _check_canonical(self) -> None:
        if len(self.canonical) != 22 or len(set(self.canonical)) != 22:
            raise CharacterError(f"the canonical map must name 22 different joints, got {self.canonical}")
        if not all(0 <= j < len(self.names) for j in self.canonical):
            raise CharacterError(f"the canonical map has indices outside 0..{len(self.names) - 1}: {self.canonical}")
        for k, parent in enumerate(CANONICAL_PARENTS):
            if parent >= 0 and self.nearest_canonical[self.parents[self.canonical[k]]] != parent:
                raise CharacterError(
                    f"{CANONICAL_JOINTS[k]} (joint {self.names[self.canonical[k]]!r}) does not descend from "
                    f"{CANONICAL_JOINTS[parent]}; the joint map is wrong or the rig is not a humanoid"
                )

    @property
    def joint_count(self) -> int:
        """Number of joints, J."""
        return len(self.names)

    @cached_property
    def nearest_canonical(self) -> tuple[int, ...]:
        """For each of the J joints the canonical joint (0..21) that it is or hangs under.

        A joint above or beside the hips (an armature root, a prop) counts to the hips.
        """
        of = {joint: k for k, joint in enumerate(self.canonical)}
        nearest: list[int] = []
        for j, parent in enumerate(self.parents):
            nearest.append(of[j] if j in of else (nearest[parent] if parent >= 0 else 0))
        return tuple(nearest)

    @cached_property
    def rest_positions(self) -> torch.Tensor:
        """Joint positions in the rest pose, (J, 3) metres."""
        positions: list[torch.Tensor] = []
        for j, parent in enumerate(self.parents):
            positions.append(self.offsets[j] if parent < 0 else positions[parent] + self.offsets[j])
        return torch.stack(positions)

    @cached_property
    def canonical_offsets(self) -> torch.Tensor:
        """Rest offsets of the 22 canonical joints to their canonical parents, (22, 3) metres; row 0 is the hips."""
        rest = self.rest_positions[list(self.canonical)]
        parents = torch.tensor(CANONICAL_PARENTS).clamp_min(0)
        offsets = rest - rest[parents]
        return torch.cat([rest[:1], offsets[1:]])

    @cached_property
    def height(self) -> float:
        """Height in metres: the sum of the eight bone lengths of R2ET's rule (see `HEIGHT_JOINTS`)."""
        chosen = [CANONICAL_JOINTS.index(name) for name in HEIGHT_JOINTS]
        return float(self.canonical_offsets[chosen].double().norm(dim=-1).sum())

    @property
    def hip_height(self) -> float:
        """Rest height of the hips above y = 0, metres."""
        return float(self.canonical_offsets[0, 1])

    def is_canonical(self) -> bool:
        """Return whether the skeleton is exactly the 22 canonical joints in canonical order."""
        return self.canonical == tuple(range(22)) and self.joint_count == 22

    def to_canonical(self) -> Skeleton:
        """Return the skeleton of the 22 canonical joints alone."""
        return canonical_skeleton(self.canonical_offsets)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Skeleton:
        """Return the same skeleton with its offsets on another device or in another floating-point type."""
        return Skeleton(self.names, self.parents, self.offsets.to(device=device, dtype=dtype), self.canonical)


def canonical_skeleton(offsets: torch.Tensor) -> Skeleton:
    """Return the skeleton of the 22 canonical joints with these rest offsets, (22, 3) metres."""
    return Skeleton(CANONICAL_JOINTS, CANONICAL_PARENTS, offsets, tuple(range(22)))


def find_canonical_map(names: tuple[str, ...] | list[str]) -> tuple[int, ...]:
    """Find the 22 canonical joints by name; namespaces such as ``mixamorig:`` do not matter.

    Raises:
        CharacterError: one or more of the 22 are missing; the message names them.
    """
    short = [strip_namespace(name) for name in names]
    missing = [name for name in CANONICAL_JOINTS if name not in short]
    if missing:
        raise CharacterError(
            f"the rig lacks {len(missing)} of the 22 joints: {', '.join(missing)}. Accepted names are "
            f"mixamorig:X, mixamorig1:X or X; rename the joints or export the rig with Mixamo's names"
        )
    return tuple(short.index(name) for name in CANONICAL_JOINTS)
