"""Puts a performance on a body: all frames of a clip together, changing as little as its contacts and its skin ask for.

What is minimised, as a mean over key frames, with lengths in heights of the body:

    E =  Σ_j w_j ‖δ_j‖²                       stay with the rotations of the reference
       + a Σ_j ‖δ̈_j‖²                         change them smoothly in time
       + c Σ_contacts (d − gap)²              touching skin is at its distance along the normal
       + p Σ_contacts max(0, s − tolerance)²  and at its place along the surface
       + f Σ_contacts (1 + n·n')              with the surfaces facing each other as they should
       + o Σ_points max(0, margin − depth)²   arms stay out of the body and of each other
       + l Σ_j max(0, limit excess_j)²        joints stay within anatomical limits

δ are rotation vectors in the local frames of spine, neck, head, clavicles, arms and hands at key frames of 15 fps; legs
follow from the tracks of the feet by two-bone inverse kinematics, and the hips from the one root rule. Where a leg
touches something, its ankle, foot and knee may leave their track while the foot is not planted, and their offsets count
as δ do. There is no term on distances between sensors or on their directions (MeshRet's descriptors), so no method is
favoured by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.datasets.studio.collisions import Collisions, collision_model
from retargetbench.datasets.studio.contact_terms import ContactTerm
from retargetbench.datasets.studio.joint_limits import limit_excess
from retargetbench.datasets.studio.keys import interpolate_keys
from retargetbench.datasets.studio.legs import LEG_JOINTS, ankle_path, pose_leg, pose_legs
from retargetbench.datasets.studio.performance import FootTrack
from retargetbench.datasets.studio.places import PLACES
from retargetbench.datasets.studio.surface_samples import joint_transforms
from retargetbench.kinematics import forward_kinematics, hemisphere_continuous
from retargetbench.motion import Motion
from retargetbench.skeleton import CANONICAL_JOINTS, canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import Performance

_WEIGHTS = {
    "Spine": 6.0, "Spine1": 6.0, "Spine2": 6.0, "Neck": 6.0, "Head": 4.0,
    "Shoulder": 2.0, "Arm": 0.25, "ForeArm": 0.25, "Hand": 0.8,
}  # fmt: skip
FREE_JOINTS: tuple[int, ...] = tuple(
    joint for joint, name in enumerate(CANONICAL_JOINTS) if name.removeprefix("Left").removeprefix("Right") in _WEIGHTS
)
"""Joints whose rotations are solved for."""


_LEG_BONES = frozenset(f"{side}{name}" for side in ("Left", "Right") for name in ("UpLeg", "Leg", "Foot"))


def _weight(joint: int) -> float:
    """How much a joint should stay as it is."""
    return _WEIGHTS[CANONICAL_JOINTS[joint].removeprefix("Left").removeprefix("Right")]


@dataclass(frozen=True)
class SolverSettings:
    """Weights of the terms, and how long to look."""

    steps: int = 150
    """Steps of Adam."""
    rate: float = 0.03
    """First step size, radians; it falls to a twentieth along a cosine."""
    stay: float = 0.01
    """Staying with the reference, times the joint's own weight."""
    smooth: float = 0.3
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
    margin: float = 0.0025
    """Distance that arms keep from the body, heights."""
    clearance: float = 0.002
    """Distance that touching skin keeps, heights."""
    tolerance: float = 0.006
    """Distance along the surface that is free where a contact does not slide, heights."""
    sliding_tolerance: float = 0.02
    """The same where it slides."""
    search_every: int = 12
    """Steps between searches for close pairs."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A performance on a body.

    Attributes:
        rotations: local rotations of the 22 joints at key frames, (K, 22, 4).
        root: position of the hips, (K, 3) metres.
        fps: of the motion that is interpolated through the keys.
        terms: final value of every term.
        unknowns: what the solver found, from which it can go on; None where it has not looked yet.
    """

    rotations: torch.Tensor
    root: torch.Tensor
    fps: float
    terms: dict[str, float] = field(default_factory=dict)
    unknowns: tuple[torch.Tensor, torch.Tensor] | None = None

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


def solve_performance(
    body: Character, performance: Performance, settings: SolverSettings | None = None, *, start: Solution | None = None
) -> Solution:
    """Put a performance on a body so that contacts hold and arms stay outside.

    Args:
        body: with its 22 joints and the hands of the performance, at the T-pose.
        performance: T = 2 K − 1 frames.
        settings: weights and steps.
        start: where to begin; by default `copy_performance`.

    Returns:
        The solution of the last step; on a CPU with one thread the same bytes every time.
    """
    settings = settings or SolverSettings()
    problem = _Problem(body, performance, settings)
    unknowns = [x.requires_grad_(True) for x in problem.start(start)]
    optimiser = torch.optim.Adam(unknowns, lr=settings.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps, eta_min=settings.rate / 20)
    for step in range(settings.steps):
        if step % settings.search_every == 0:
            problem.search(*unknowns)
        loss = torch.stack(list(problem.terms(*unknowns).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        problem.search(*unknowns)
        values = {name: float(term) for name, term in problem.terms(*unknowns).items()}
        rotations = problem.rotations(*(x.double() for x in unknowns))
    unknown = tuple(x.detach() for x in unknowns)
    return Solution(hemisphere_continuous(rotations), problem.root, performance.fps, values, unknown)


class _Problem:
    """The terms of one clip on one body.

    Its unknowns are rotation vectors of the free joints (K, 13, 3), and of each leg the way of the ankle in heights,
    the rotation vector of the foot and the way of the knee's direction (K, 2, 3, 3), which count only where the leg
    touches something and is not planted.
    """

    def __init__(self, body: Character, performance: Performance, settings: SolverSettings) -> None:
        self._settings = settings
        self._body = body
        copied = copy_performance(body, performance)
        skeleton = body.skeleton.to_canonical()
        self._skeleton = skeleton.to(dtype=torch.float32)
        self._rest = self._skeleton.rest_positions
        self._copied = copied.rotations
        self.root = copied.root
        self._feet = tuple(_every_second(track) for track in performance.feet)
        frames = torch.arange(0, len(performance.rotations), 2)
        terms = (ContactTerm(body, contact, frames) for contact in performance.contacts)
        self._contacts = [term for term in terms if len(term.active)]
        self._free_legs = self._find_free_legs(performance)
        self._collisions = Collisions(collision_model(body, legs=bool(self._free_legs.any())), settings.margin)
        self._weights = torch.tensor([_weight(joint) for joint in FREE_JOINTS])

    def start(self, solution: Solution | None) -> tuple[torch.Tensor, torch.Tensor]:
        """First values of the unknowns: nothing changed, or as in a solution of the same clip."""
        if solution is not None and solution.unknowns is not None:
            upper, legs = solution.unknowns
            return upper.clone(), legs.clone()
        return torch.zeros(len(self.root), len(FREE_JOINTS), 3), torch.zeros(len(self.root), 2, 3, 3)

    def rotations(self, upper: torch.Tensor, legs: torch.Tensor) -> torch.Tensor:
        """Local rotations of all joints, (K, 22, 4)."""
        copied = self._copied.to(upper)
        free = list(FREE_JOINTS)
        turned = roma.quat_product(copied[:, free], roma.rotvec_to_unitquat(upper))
        rotations = copied.index_copy(1, torch.tensor(free), turned)
        for side in range(2):
            if bool(self._free_legs[:, side].any()):
                rotations = self._with_leg(rotations, side, legs[:, side])
        return rotations

    def search(self, upper: torch.Tensor, legs: torch.Tensor) -> None:
        """Find pairs that are close now."""
        with torch.no_grad():
            self._collisions.search(self._transforms(upper, legs))

    def terms(self, upper: torch.Tensor, legs: torch.Tensor) -> dict[str, torch.Tensor]:
        """All terms by name, each () and weighted."""
        settings = self._settings
        frames = len(upper)
        rotations = self.rotations(upper, legs)
        transforms = self._transforms_of(rotations)
        smooth = upper.diff(n=2, dim=0).square().sum() + legs.diff(n=2, dim=0).square().sum()
        terms = {
            "stay": settings.stay * ((self._weights[:, None] * upper.square()).sum() + legs.square().sum()) / frames,
            "smooth": settings.smooth * smooth / frames,
            "outside": settings.outside * self._collisions.penalty(transforms),
            "limits": settings.limits * limit_excess(rotations).square().sum() / frames,
        }
        touch, place, facing = ([transforms.new_zeros(())] for _ in range(3))
        for term in self._contacts:
            distance, aside, cosine = term.measure(transforms)
            tolerance = settings.sliding_tolerance if term.contact.slides else settings.tolerance
            touch.append((distance - term.contact.gap - settings.clearance).square().sum())
            place.append((aside - tolerance).clamp_min(0).square().sum())
            facing.append((1 + cosine).sum())
        terms["touch"] = settings.touch * torch.stack(touch).sum() / frames
        terms["place"] = settings.place * torch.stack(place).sum() / frames
        terms["facing"] = settings.facing * torch.stack(facing).sum() / frames
        return terms

    def _transforms(self, upper: torch.Tensor, legs: torch.Tensor) -> torch.Tensor:
        return self._transforms_of(self.rotations(upper, legs))

    def _transforms_of(self, rotations: torch.Tensor) -> torch.Tensor:
        world, positions = forward_kinematics(self._skeleton, self.root.to(rotations), rotations)
        return joint_transforms(self._rest, world, positions)

    def _find_free_legs(self, performance: Performance) -> torch.Tensor:
        """How far each leg is free to leave its track, (K, 2) from 0 to 1."""
        free = [torch.zeros(len(self.root)), torch.zeros(len(self.root))]
        for contact in performance.contacts:
            for side, name in enumerate(("left", "right")):
                if contact.moving.startswith(name) and PLACES[contact.moving].bone in _LEG_BONES:
                    free[side] = (~self._feet[side].planted).float()
        # Eased, or a foot would jump at the frame in which it leaves the floor.
        kernel = torch.tensor([0.25, 0.5, 0.25])
        eased = []
        for mask in free:
            padded = torch.cat([mask[:1], mask, mask[-1:]])
            eased.append(torch.minimum(mask, (padded.unfold(0, 3, 1) * kernel).sum(-1)))
        return torch.stack(eased, -1)

    def _with_leg(self, rotations: torch.Tensor, side: int, change: torch.Tensor) -> torch.Tensor:
        """Replace one leg by its track with a change (K, 3, 3): of ankle, foot and knee."""
        track = self._feet[side]
        change = change * self._free_legs[:, side, None, None].to(change)
        ankle, foot = ankle_path(self._body, side, track, self._body.height)
        hips = roma.unitquat_to_rotmat(rotations[:, 0])
        hip, knee, end, _ = LEG_JOINTS[side]
        *leg, _ = pose_leg(
            self._body,
            side,
            hips,
            self.root.to(rotations),
            ankle.to(rotations) + change[:, 0] * self._body.height,
            foot.to(rotations) @ roma.rotvec_to_rotmat(change[:, 1]),
            torch.nn.functional.normalize(track.knee, dim=-1).to(rotations) + change[:, 2],
        )
        turned = torch.stack([roma.rotmat_to_unitquat(rotation) for rotation in leg], 1)
        return rotations.index_copy(1, torch.tensor([hip, knee, end]), turned)


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
