"""What is minimised for some clips on one body, in a form that a solver of least squares takes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import roma
import torch

from retargetbench.datasets.studio.arm_solving import ARM_JOINTS, ARM_UNKNOWNS, ArmPoser
from retargetbench.datasets.studio.collisions import Collisions, collision_model
from retargetbench.datasets.studio.contact_terms import ContactTerms
from retargetbench.datasets.studio.copying import copy_performance, every_second
from retargetbench.datasets.studio.joint_limits import limit_excess
from retargetbench.datasets.studio.legs import LEG_JOINTS, ankle_path, pose_leg
from retargetbench.datasets.studio.performance import FootTrack
from retargetbench.datasets.studio.places import PLACES
from retargetbench.datasets.studio.residuals import Rows, join_rows, normal_equations
from retargetbench.datasets.studio.surface_samples import joint_transforms
from retargetbench.kinematics import forward_kinematics
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import Performance

_TRUNK_WEIGHTS = {
    "Spine": 6.0, "Spine1": 6.0, "Spine2": 6.0, "Neck": 6.0, "Head": 4.0, "LeftShoulder": 2.0, "RightShoulder": 2.0,
}  # fmt: skip
TRUNK_JOINTS: tuple[int, ...] = tuple(canonical_index(name) for name in _TRUNK_WEIGHTS)
"""Joints whose rotations are solved for; arms are solved for by wrist, hand and elbow."""

_ARM_WEIGHTS = (0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 1.0)
"""How much wrist, hand and elbow should stay as they are, see `ARM_UNKNOWNS`."""

_LEG_UNKNOWNS = 9
"""Way of the ankle in heights (3), rotation vector of the foot (3) and way of the knee's direction (3)."""

_LONG_CONTACT = 6
"""Key frames up to which a shorter contact counts as if it were that long."""

_LEG_BONES = frozenset(f"{side}{name}" for side in ("Left", "Right") for name in ("UpLeg", "Leg", "Foot"))
_DIFFERENCE = 1e-5  # of unknowns, for derivatives of the joints' transforms in float64


@dataclass(frozen=True)
class SolverSettings:
    """Weights of the terms, and how long to look."""

    steps: int = 24
    """Steps of Levenberg and Marquardt's method, taken or refused."""
    enough: float = 0.003
    """Decrease, as a share of the whole, below which a clip is done."""
    stay: float = 0.4
    """Staying with the reference, times the unknown's own weight. With much less of it second differences, which leave
    straight lines free, carry what a contact asks for on into frames far away from it."""
    smooth: float = 5.0
    """Second differences in time, per (15 fps)⁴."""
    touch: float = 600.0
    """Distance along the normal at contacts."""
    place: float = 150.0
    """Distance along the surface at contacts."""
    facing: float = 0.01
    """Sum of normals at contacts."""
    outside: float = 400.0
    """Depth of arms."""
    limits: float = 20.0
    """Excess over anatomical limits, per radian squared."""
    margin: float = 0.0025
    """Distance that arms keep from the body, heights."""
    clearance: float = 0.0005
    """Distance that touching skin keeps, heights."""
    tolerance: float = 0.006
    """Distance along the surface that is free where a contact does not slide, heights."""
    sliding_tolerance: float = 0.02
    """The same where it slides."""
    search_every: int = 2
    """Steps between searches for close pairs."""
    damping: float = 0.01
    """First damping, as a share of the diagonal."""
    longest: float = 0.35
    """Largest change of an unknown in a step."""


class Linearised(NamedTuple):
    """Second-order model of the sum of squares around a pose, K frames of n unknowns.

    Attributes:
        hessian: of each frame by itself, (K, n, n).
        gradient: of the whole, (K, n).
        bends: weights of second differences around inner frames, (K − 2,).
    """

    hessian: torch.Tensor
    gradient: torch.Tensor
    bends: torch.Tensor


class Problem:
    """The terms of some clips on one body, their K key frames one after the other.

    The unknowns (K, n) are rotation vectors of `TRUNK_JOINTS` (21), what `ArmPoser` takes for each arm (14), and, where
    a leg touches something, `_LEG_UNKNOWNS` of each leg (18), which count only while it is not planted.

    Attributes:
        parts: where each clip is among the key frames.
        root: position of the hips, (K, 3) metres.
    """

    def __init__(self, body: Character, performances: Sequence[Performance], settings: SolverSettings) -> None:
        self._settings = settings
        self._body = body
        skeleton = body.skeleton.to_canonical().to(dtype=torch.float64)
        self._skeleton = skeleton
        self._rest = skeleton.rest_positions
        copies = [copy_performance(body, performance) for performance in performances]
        lengths = [len(copy.root) for copy in copies]
        ends = list(accumulate(lengths))
        self.parts = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        self.root = torch.cat([copy.root for copy in copies])
        self._copied = torch.cat([copy.rotations for copy in copies])
        self._weights = torch.cat([torch.full((length,), 1 / length, dtype=torch.float64) for length in lengths])
        inner = torch.ones(ends[-1] - 2, dtype=torch.float64)  # frames with neighbours on both sides in their own clip
        for end in ends[:-1]:
            inner[end - 2 : end] = 0.0
        self._bends = settings.smooth * self._weights[1:-1] * inner
        tracks = [tuple(every_second(track) for track in performance.feet) for performance in performances]
        self._feet = tuple(_joined([pair[side] for pair in tracks]) for side in range(2))
        parts = zip(self.parts, performances, strict=True)
        self._contacts = ContactTerms(body, [(contact, part) for part, p in parts for contact in p.contacts])
        pairs = zip(performances, tracks, strict=True)
        self._free_legs = torch.cat([_free_legs(performance, track) for performance, track in pairs]).double()
        self._collisions = Collisions(collision_model(body, legs=self._has_legs), settings.margin)
        self._ankles = [ankle_path(body, side, track, body.height) for side, track in enumerate(self._feet)]
        world, positions = forward_kinematics(skeleton, self.root, self._copied)
        self._arms = [ArmPoser(skeleton, side, world, positions) for side in range(2)]
        trunk = [weight for weight in _TRUNK_WEIGHTS.values() for _ in range(3)]
        legs = [1.0] * (2 * _LEG_UNKNOWNS if self._has_legs else 0)
        self._stay = settings.stay * torch.tensor([*trunk, *2 * _ARM_WEIGHTS, *legs], dtype=torch.float64)

    @property
    def _has_legs(self) -> bool:
        return bool(self._free_legs.any())

    @property
    def size(self) -> int:
        """Number of unknowns of a frame, n."""
        return len(self._stay)

    def start(self, unknowns: Sequence[torch.Tensor] | None) -> torch.Tensor:
        """First values of the unknowns, (K, n): nothing changed, or those of solutions of the same clips.

        Solutions whose clips had been together with one whose legs are free have more unknowns than are needed.
        """
        first = torch.zeros(len(self.root), self.size, dtype=torch.float64)
        for part, known in zip(self.parts, unknowns or (), strict=unknowns is not None):
            count = min(self.size, known.shape[1])
            first[part, :count] = known[:, :count]
        return first

    def rotations(self, unknowns: torch.Tensor) -> torch.Tensor:
        """Local rotations of all joints, (..., K, 22, 4), from unknowns (..., K, n)."""
        joints = list(TRUNK_JOINTS)
        trunk, arms, legs = unknowns.tensor_split([21, 21 + 2 * ARM_UNKNOWNS], -1)
        turned = [
            roma.quat_product(
                self._copied[:, joints].expand(*unknowns.shape[:-1], -1, -1),
                roma.rotvec_to_unitquat(trunk.reshape(*trunk.shape[:-1], 7, 3)),
            )
        ]
        for side, arm in enumerate(self._arms):
            clavicle, *others = ARM_JOINTS[side]
            local = roma.unitquat_to_rotmat(turned[0][..., joints.index(clavicle), :])
            posed = arm.pose(local, arms[..., side * ARM_UNKNOWNS : (side + 1) * ARM_UNKNOWNS], self._body.height)
            turned.append(roma.rotmat_to_unitquat(torch.stack(posed, -3)))
            joints += others
        for side in range(2 if self._has_legs else 0):
            posed = self._leg(side, legs.reshape(*legs.shape[:-1], 2, 3, 3)[..., side, :, :])
            turned.append(roma.rotmat_to_unitquat(torch.stack(posed, -3)))
            joints += LEG_JOINTS[side][:3]
        rotations = self._copied.expand(*unknowns.shape[:-1], -1, -1).clone()
        rotations[..., joints, :] = torch.cat(turned, -2)
        return rotations

    def pose(self, unknowns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Transforms from the T-pose (..., K, 22, 3, 4) and excess over limits (..., K, 22)."""
        rotations = self.rotations(unknowns)
        root = self.root.expand(*unknowns.shape[:-1], -1)
        world, positions = forward_kinematics(self._skeleton, root, rotations)
        return joint_transforms(self._rest, world, positions), limit_excess(rotations)

    def search(self, transforms: torch.Tensor) -> None:
        """Find what is close in a pose."""
        self._collisions.search(transforms.float())
        if len(self._contacts):
            self._contacts.search(transforms.float())

    def costs(self, unknowns: torch.Tensor, transforms: torch.Tensor, excess: torch.Tensor) -> torch.Tensor:
        """Sum of squares of each clip with the pairs of the last search, (clips,)."""
        by_frame = self._weights * (self._stay * unknowns.square()).sum(-1)
        by_frame = by_frame + self._settings.limits * self._weights * excess.square().sum(-1)
        by_frame[1:-1] += self._bends * unknowns.diff(n=2, dim=0).square().sum(-1)
        rows = self._rows(transforms)
        by_frame.index_add_(0, rows.frame, rows.value.double().square())
        return torch.stack([by_frame[part].sum() for part in self.parts])

    def linearise(self, unknowns: torch.Tensor, transforms: torch.Tensor, excess: torch.Tensor) -> Linearised:
        """Model the sum of squares around a pose."""
        moved = unknowns + _DIFFERENCE * torch.eye(self.size, dtype=torch.float64)[:, None]
        near_transforms, near_excess = self.pose(moved)
        jacobian = ((near_transforms - transforms) / _DIFFERENCE).flatten(2).transpose(0, 1)
        by_limits = ((near_excess - excess) / _DIFFERENCE).permute(1, 2, 0)
        hessian, gradient = normal_equations(self._rows(transforms), jacobian.float())
        weights = self._settings.limits * self._weights[:, None, None]
        hessian = hessian.double() + weights * (by_limits.mT @ by_limits)
        gradient = gradient.double() + (weights * (by_limits.mT @ excess[..., None]))[..., 0]
        stay = self._weights[:, None] * self._stay
        gradient = gradient + stay * unknowns + _bend_gradient(self._bends, unknowns)
        return Linearised(hessian + torch.diag_embed(stay), gradient, self._bends)

    def _rows(self, transforms: torch.Tensor) -> Rows:
        """Weighted residuals of depth and contacts."""
        settings = self._settings
        posed, weights = transforms.float(), self._weights.float()
        depths = self._collisions.depths(posed)
        found = [depths.weighted(settings.outside * weights[depths.frame])]
        if len(self._contacts):
            contacts = self._contacts
            distance, aside, facing = contacts.measure(posed)
            tolerance = torch.where(contacts.slides, settings.sliding_tolerance, settings.tolerance)
            # A clap is as much of a contact as a hold is.
            weights = weights[contacts.frames] * (_LONG_CONTACT / contacts.lengths).clamp_min(1.0)
            off = distance._replace(value=distance.value - contacts.gap - settings.clearance)
            away = aside._replace(
                value=(aside.value - tolerance).clamp_min(0),
                gradient=torch.where((aside.value > tolerance)[:, None], aside.gradient, 0.0),
            )
            found.append(off.weighted(settings.touch * weights))
            found.append(away.weighted(settings.place * weights))
            found.append(facing.weighted(settings.facing * weights.repeat(3)))
        return join_rows(found, posed)

    def _leg(self, side: int, change: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Local rotations of hip, knee and ankle joint with a change (..., K, 3, 3) of ankle, foot and knee."""
        change = change * self._free_legs[:, side, None, None]
        ankle, foot = self._ankles[side]
        hip, knee, end, _ = pose_leg(
            self._body,
            side,
            roma.unitquat_to_rotmat(self._copied[:, 0]),
            self.root,
            ankle + change[..., 0, :] * self._body.height,
            foot @ roma.rotvec_to_rotmat(change[..., 1, :]),
            torch.nn.functional.normalize(self._feet[side].knee, dim=-1) + change[..., 2, :],
        )
        return hip, knee, end


def _bend_gradient(bends: torch.Tensor, unknowns: torch.Tensor) -> torch.Tensor:
    """Half the gradient of the weighted squares of second differences, (K, n)."""
    weighted = bends[:, None] * unknowns.diff(n=2, dim=0)
    gradient = torch.zeros_like(unknowns)
    gradient[:-2] += weighted
    gradient[1:-1] -= 2 * weighted
    gradient[2:] += weighted
    return gradient


def _free_legs(performance: Performance, feet: Sequence[FootTrack]) -> torch.Tensor:
    """How far each leg of a clip is free to leave its track, (K, 2) from 0 to 1."""
    free = [torch.zeros(len(track.lift)) for track in feet]
    for contact in performance.contacts:
        for side, name in enumerate(("left", "right")):
            if contact.moving.startswith(name) and PLACES[contact.moving].bone in _LEG_BONES:
                free[side] = (~feet[side].planted).float()
    # Eased, or a foot would jump at the frame in which it leaves the floor.
    kernel = torch.tensor([0.25, 0.5, 0.25])
    eased = []
    for mask in free:
        padded = torch.cat([mask[:1], mask, mask[-1:]])
        eased.append(torch.minimum(mask, (padded.unfold(0, 3, 1) * kernel).sum(-1)))
    return torch.stack(eased, -1)


def _joined(tracks: Sequence[FootTrack]) -> FootTrack:
    """Tracks one after the other."""
    return FootTrack(
        **{name: torch.cat([getattr(track, name) for track in tracks]) for name in FootTrack.__dataclass_fields__}
    )
