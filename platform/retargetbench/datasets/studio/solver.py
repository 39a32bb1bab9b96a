"""Puts performances on a body: all frames of a clip together, changing as little as its contacts and its skin ask for.

What is minimised, as a mean over key frames, with lengths in heights of the body:

    E =  s Σ_j w_j ‖δ_j‖²                     stay with the rotations of the reference
       + a Σ_j ‖δ̈_j‖²                         change them smoothly in time
       + c Σ_contacts (d − gap)²              touching skin is at its distance along the normal
       + p Σ_contacts max(0, s − tolerance)²  and at its place along the surface
       + f Σ_contacts (1 + n·n')              with the surfaces facing each other as they should
       + o Σ_points max(0, margin − depth)²   arms stay out of the body and of each other
       + l Σ_j max(0, limit excess_j)²        joints stay within anatomical limits

δ are, at key frames of 15 fps, rotation vectors of spine, neck, head and clavicles, and for each arm the way of the
wrist, the rotation vector of the hand and the swivel of the elbow (`retargetbench.datasets.studio.arm_solving`); legs
follow from the tracks of the feet by two-bone inverse kinematics, and the hips from the one root rule. Where a leg
touches something, its ankle, foot and knee may leave their track while the foot is not planted, and their offsets count
as δ do. There is no term on distances between sensors or on their directions (MeshRet's descriptors), so no method is
favoured by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.datasets.studio.arm_solving import ARM_JOINTS, ARM_UNKNOWNS, ArmPoser
from retargetbench.datasets.studio.collisions import Collisions, collision_model
from retargetbench.datasets.studio.contact_terms import ContactTerms
from retargetbench.datasets.studio.joint_limits import limit_excess
from retargetbench.datasets.studio.keys import interpolate_keys
from retargetbench.datasets.studio.legs import LEG_JOINTS, ankle_path, pose_leg, pose_legs
from retargetbench.datasets.studio.performance import FootTrack
from retargetbench.datasets.studio.places import PLACES
from retargetbench.datasets.studio.surface_samples import joint_transforms
from retargetbench.kinematics import forward_kinematics, hemisphere_continuous
from retargetbench.motion import Motion
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

_ARM_WEIGHTS = (4.0, 4.0, 4.0, 0.4, 0.4, 0.4, 0.25)
"""How much wrist (per height), hand and elbow (per radian) should stay as they are."""

_TIP = 0.35
"""Length of an arm in heights: ways of the wrist are smoothed as if they were angles of it."""

_REACHES = (
    torch.full((7, 1), 0.5),
    torch.tensor([0.4, 0.4, 0.4, 1.0, 1.0, 1.0, 1.0]),
    torch.tensor([0.4, 1.0, 1.0])[:, None],
)
"""What a step of Adam is multiplied with, so that all unknowns move a hand or a foot about as far."""

_LONG_CONTACT = 6
"""Key frames up to which a shorter contact counts as if it were that long."""

_LEG_BONES = frozenset(f"{side}{name}" for side in ("Left", "Right") for name in ("UpLeg", "Leg", "Foot"))


@dataclass(frozen=True)
class SolverSettings:
    """Weights of the terms, and how long to look."""

    steps: int = 250
    """Steps of Adam."""
    rate: float = 0.045
    """First step size, radians; it falls to a twentieth along a cosine."""
    stay: float = 0.01
    """Staying with the reference, times the joint's own weight."""
    smooth: float = 1.5
    """Second differences in time, per (15 fps)⁴."""
    touch: float = 600.0
    """Distance along the normal at contacts."""
    place: float = 150.0
    """Distance along the surface at contacts."""
    facing: float = 0.02
    """Normals at contacts."""
    outside: float = 400.0
    """Depth of arms."""
    limits: float = 2.0
    """Excess over anatomical limits, per radian squared."""
    spread: float = 5.0
    """How far steps of Adam spread to neighbouring keys."""
    margin: float = 0.0025
    """Distance that arms keep from the body, heights."""
    clearance: float = 0.002
    """Distance that touching skin keeps, heights."""
    tolerance: float = 0.006
    """Distance along the surface that is free where a contact does not slide, heights."""
    sliding_tolerance: float = 0.02
    """The same where it slides."""
    search_every: int = 15
    """Steps between searches for close pairs."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A performance on a body.

    Attributes:
        rotations: local rotations of the 22 joints at key frames, (K, 22, 4).
        root: position of the hips, (K, 3) metres.
        fps: of the motion that is interpolated through the keys.
        unknowns: what the solver found, from which it can go on.
    """

    rotations: torch.Tensor
    root: torch.Tensor
    fps: float
    unknowns: tuple[torch.Tensor, ...] = ()

    @property
    def motion(self) -> Motion:
        """The motion through all keys, T = 2 K − 1 frames."""
        rotations, root = interpolate_keys(self.rotations, self.root)
        return Motion(root, rotations, self.fps)

    @property
    def float_motion(self) -> Motion:
        """The same in float32, as the mesh of a body is."""
        motion = self.motion
        return Motion(motion.root_translation.float(), motion.local_rotations.float(), self.fps)


def copy_performance(body: Character, performance: Performance) -> Solution:
    """Put a performance on a body without looking at its skin: rotations of the reference, steps and root rule.

    Args:
        body: with its 22 joints and the hands of the performance, at the T-pose.
        performance: T = 2 K − 1 frames.
    """
    rotations = performance.rotations[::2].double().clone()
    feet = tuple(_every_second(track) for track in performance.feet)
    root = _root_on_reachable_ground(body, performance, feet)  # type: ignore[arg-type]
    hips = roma.unitquat_to_rotmat(rotations[:, 0])
    legs, _ = pose_legs(body, hips, root, feet)  # type: ignore[arg-type]
    for k, joint in enumerate(j for leg in LEG_JOINTS for j in leg):
        rotations[:, joint] = roma.rotmat_to_unitquat(legs[:, k])
    return Solution(hemisphere_continuous(rotations), root, performance.fps)


def solve_performances(
    body: Character,
    performances: Sequence[Performance],
    settings: SolverSettings | None = None,
    *,
    starts: Sequence[Solution] | None = None,
) -> list[Solution]:
    """Put performances on a body so that contacts hold and arms stay outside.

    Clips are solved together because most of the time goes into starting small operations; they do not influence one
    another beyond the last bits of a float.

    Args:
        body: with its 22 joints and the hands of all performances, at the T-pose.
        performances: each of T = 2 K − 1 frames.
        settings: weights and steps.
        starts: where to begin; by default `copy_performance`.

    Returns:
        The solutions of the last step; on a CPU with one thread the same bytes every time.
    """
    settings = settings or SolverSettings()
    problem = _Problem(body, performances, settings)
    smoother = torch.block_diag(*(_smoother(part.stop - part.start, settings.spread) for part in problem.parts))
    first = problem.start(starts)
    changes = [torch.zeros_like(x).requires_grad_(True) for x in first]

    def unknowns_now() -> list[torch.Tensor]:
        moves = zip(first, changes, _REACHES, strict=True)
        return [x + reach * (smoother @ change.flatten(1)).view_as(x) for x, change, reach in moves]

    optimiser = torch.optim.Adam(changes, lr=settings.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps, eta_min=settings.rate / 20)
    for step in range(settings.steps):
        unknowns = unknowns_now()
        if step % settings.search_every == 0:
            problem.search(*unknowns)
        loss = torch.stack(list(problem.terms(*unknowns).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        unknowns = unknowns_now()
        rotations = problem.rotations(*(x.double() for x in unknowns))
    return [
        Solution(
            hemisphere_continuous(rotations[part]),
            problem.root[part],
            performance.fps,
            tuple(x[part].clone() for x in unknowns),
        )
        for part, performance in zip(problem.parts, performances, strict=True)
    ]


@lru_cache(maxsize=64)
def _smoother(keys: int, spread: float) -> torch.Tensor:
    """What Adam's steps are multiplied with, (K, K): (1 + λ D'D)^(-1/2) for second differences D.

    Without it a change of one key has to wait for its neighbours, and the solution is far from found when the steps are
    at an end; with it neighbours move together (Sobolev gradients: Neuberger, 1985).
    """
    bends = torch.eye(keys, dtype=torch.float64).diff(n=2, dim=0)
    values, vectors = torch.linalg.eigh(torch.eye(keys, dtype=torch.float64) + spread * bends.mT @ bends)
    return ((vectors / values.sqrt()) @ vectors.mT).float()


class _Problem:
    """The terms of some clips on one body, their K key frames one after the other.

    The unknowns are rotation vectors of `TRUNK_JOINTS` (K, 7, 3), what `ArmPoser` takes for each arm (K, 2, 7), and of
    each leg the way of the ankle in heights, the rotation vector of the foot and the way of the knee's direction
    (K, 2, 3, 3), which count only where the leg touches something and is not planted.
    """

    def __init__(self, body: Character, performances: Sequence[Performance], settings: SolverSettings) -> None:
        self._settings = settings
        self._body = body
        skeleton = body.skeleton.to_canonical()
        self._skeleton = skeleton.to(dtype=torch.float32)
        self._rest = self._skeleton.rest_positions
        copies = [copy_performance(body, performance) for performance in performances]
        lengths = [len(copy.root) for copy in copies]
        ends = list(accumulate(lengths))
        self.parts = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        self.root = torch.cat([copy.root for copy in copies])
        self._copied = torch.cat([copy.rotations for copy in copies])
        self._weights = torch.cat([torch.full((length,), 1 / length) for length in lengths])
        self._inner = torch.ones(ends[-1] - 2)  # frames with a neighbour on either side in their own clip
        for end in ends[:-1]:
            self._inner[end - 2 : end] = 0.0
        tracks = [tuple(_every_second(track) for track in performance.feet) for performance in performances]
        self._feet = tuple(_joined([pair[side] for pair in tracks]) for side in range(2))
        parts = zip(self.parts, performances, strict=True)
        self._contacts = ContactTerms(body, [(contact, part) for part, p in parts for contact in p.contacts])
        pairs = zip(performances, tracks, strict=True)
        self._free_legs = torch.cat([_free_legs(performance, track) for performance, track in pairs])
        model = collision_model(body, legs=bool(self._free_legs.any()))
        self._collisions = Collisions(model, settings.margin, self._weights)
        world, positions = forward_kinematics(skeleton.to(dtype=torch.float64), self.root, self._copied)
        self._arms = [ArmPoser(skeleton, side, world, positions) for side in range(2)]
        self._trunk_weights = torch.tensor(list(_TRUNK_WEIGHTS.values()))[:, None]
        self._arm_weights = torch.tensor(_ARM_WEIGHTS)

    def start(self, solutions: Sequence[Solution] | None) -> tuple[torch.Tensor, ...]:
        """First values of the unknowns: nothing changed, or as in solutions of the same clips."""
        if solutions is not None:
            return tuple(torch.cat(values) for values in zip(*(s.unknowns for s in solutions), strict=True))
        keys = len(self.root)
        return torch.zeros(keys, len(TRUNK_JOINTS), 3), torch.zeros(keys, 2, ARM_UNKNOWNS), torch.zeros(keys, 2, 3, 3)

    def rotations(self, trunk: torch.Tensor, arms: torch.Tensor, legs: torch.Tensor) -> torch.Tensor:
        """Local rotations of all joints, (K, 22, 4)."""
        copied = self._copied.to(trunk)
        joints = list(TRUNK_JOINTS)
        turned = [roma.quat_product(copied[:, joints], roma.rotvec_to_unitquat(trunk))]
        for side, arm in enumerate(self._arms):
            clavicle, *rest = ARM_JOINTS[side]
            local = roma.unitquat_to_rotmat(turned[0][:, joints.index(clavicle)])
            posed = arm.pose(local, arms[:, side], self._body.height)
            turned.append(roma.rotmat_to_unitquat(torch.stack(posed, 1)))
            joints += rest
        rotations = copied.index_copy(1, torch.tensor(joints), torch.cat(turned, 1))
        for side in range(2):
            if bool(self._free_legs[:, side].any()):
                rotations = self._with_leg(rotations, side, legs[:, side])
        return rotations

    def search(self, *unknowns: torch.Tensor) -> None:
        """Find pairs that are close now."""
        with torch.no_grad():
            transforms = self._transforms(self.rotations(*unknowns))
            self._collisions.search(transforms)
            if len(self._contacts):
                self._contacts.search(transforms)

    def terms(self, trunk: torch.Tensor, arms: torch.Tensor, legs: torch.Tensor) -> dict[str, torch.Tensor]:
        """All terms by name, each () and weighted."""
        settings = self._settings
        rotations = self.rotations(trunk, arms, legs)
        transforms = self._transforms(rotations)
        as_angles = torch.cat([arms[..., :3] / _TIP, arms[..., 3:]], -1)
        all_angles = torch.cat([trunk.flatten(1), as_angles.flatten(1), legs.flatten(1)], -1)
        bends = all_angles.diff(n=2, dim=0).square().sum(-1)
        stay = (self._trunk_weights * trunk.square()).flatten(1).sum(-1)
        stay = stay + (self._arm_weights * arms.square()).flatten(1).sum(-1) + legs.square().flatten(1).sum(-1)
        terms = {
            "stay": settings.stay * (self._weights @ stay),
            "smooth": settings.smooth * ((self._weights[1:-1] * self._inner) @ bends),
            "outside": settings.outside * self._collisions.penalty(transforms),
            "limits": settings.limits * (self._weights @ limit_excess(rotations).square().sum(-1)),
        }
        if len(self._contacts):
            contacts = self._contacts
            distance, aside, cosine = contacts.measure(transforms)
            tolerance = torch.where(contacts.slides, settings.sliding_tolerance, settings.tolerance)
            # A clap is as much of a contact as a hold is.
            weights = self._weights[contacts.frames] * (_LONG_CONTACT / contacts.lengths).clamp_min(1.0)
            terms["touch"] = settings.touch * (weights @ (distance - contacts.gap - settings.clearance).square())
            terms["place"] = settings.place * (weights @ (aside - tolerance).clamp_min(0).square())
            terms["facing"] = settings.facing * (weights @ (1 + cosine))
        return terms

    def _transforms(self, rotations: torch.Tensor) -> torch.Tensor:
        world, positions = forward_kinematics(self._skeleton, self.root.to(rotations), rotations)
        return joint_transforms(self._rest, world, positions)

    def _with_leg(self, rotations: torch.Tensor, side: int, change: torch.Tensor) -> torch.Tensor:
        """Replace one leg by its track with a change (K, 3, 3): of ankle, foot and knee."""
        track = self._feet[side]
        free = self._free_legs[:, side].to(change)
        change = change * free[:, None, None]
        ankle, foot = ankle_path(self._body, side, track, self._body.height)
        hip, knee, end, _ = LEG_JOINTS[side]
        *leg, _ = pose_leg(
            self._body,
            side,
            roma.unitquat_to_rotmat(rotations[:, 0]),
            self.root.to(rotations),
            ankle.to(rotations) + change[:, 0] * self._body.height,
            foot.to(rotations) @ roma.rotvec_to_rotmat(change[:, 1]),
            torch.nn.functional.normalize(track.knee, dim=-1).to(rotations) + change[:, 2],
        )
        turned = torch.stack([roma.rotmat_to_unitquat(rotation) for rotation in leg], 1)
        return rotations.index_copy(1, torch.tensor([hip, knee, end]), turned)


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


def _every_second(track: FootTrack) -> FootTrack:
    """The track at key frames."""
    return replace(track, **{name: getattr(track, name)[::2] for name in FootTrack.__dataclass_fields__})


def _root_on_reachable_ground(
    body: Character, performance: Performance, feet: tuple[FootTrack, FootTrack]
) -> torch.Tensor:
    """Hips by the root rule, shifted by one constant: so that both legs reach the floor wherever a foot is planted, or
    so that the seat is on the floor."""
    rest = body.skeleton.to_canonical().rest_positions.double()[canonical_index("Hips")]
    root = rest + performance.hips[::2].double() * body.height
    hips = roma.unitquat_to_rotmat(performance.rotations[::2, 0].double())
    if performance.seated:
        return root + _lift_of_seat(body, root, performance.rotations[::2, 0].double())
    planted = torch.stack([track.planted for track in feet], -1)
    down = root.new_tensor([0.0, 1.0, 0.0])
    low, high = 0.0, 0.12 * body.height

    def worst(drop: float) -> float:
        _, short = pose_legs(body, hips, root - drop * down, feet)
        return float(torch.where(planted, short, 0.0).max())

    if worst(0.0) <= 0.0:
        return root
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if worst(middle) > 0.0 else (low, middle)
    return root - high * down


def _lift_of_seat(body: Character, root: torch.Tensor, hips: torch.Tensor) -> torch.Tensor:
    """By how much the body has to be lifted so that the lowest skin of the hips is on the floor, (3,) metres."""
    skin = body.rest_vertices[body.dominant_joint == canonical_index("Hips")].double()
    from_hips = skin - body.skeleton.to_canonical().rest_positions.double()[0]
    lowest = (roma.unitquat_to_rotmat(hips)[:, 1] @ from_hips.T).amin(-1) + root[:, 1]
    return torch.stack([root.new_zeros(()), -lowest.min(), root.new_zeros(())])
