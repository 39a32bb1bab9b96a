"""Choreography: from an authored action to a performance of it on the reference body.

Trunk from eased channels, breathing and small movements; feet from their keys, with hips that follow the feet which
carry them; legs and arms by inverse kinematics; hands on the skin of the posed body. What is left to the solver is to
make contacts exact and to keep arms out of the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.datasets.studio.arms import arm_of
from retargetbench.datasets.studio.curves import FPS, blurred
from retargetbench.datasets.studio.footwork import foot_track, gait_track
from retargetbench.datasets.studio.gaits import gait_curves
from retargetbench.datasets.studio.hand_keys import TOUCH_CLEARANCE, Posed
from retargetbench.datasets.studio.handwork import arm_directions, move_arm
from retargetbench.datasets.studio.legs import LEG_JOINTS, pose_legs
from retargetbench.datasets.studio.life import live, seeded
from retargetbench.datasets.studio.performance import Performance
from retargetbench.datasets.studio.places import PLACES, find_place
from retargetbench.datasets.studio.touching import key_contacts, named_contact, with_instants
from retargetbench.datasets.studio.trunk import (
    CLAVICLES,
    channel_values,
    clavicle_rotation,
    shoulder_rhythm,
    trunk_rotations,
)
from retargetbench.datasets.studio.variants import variant_of
from retargetbench.errors import DatasetError
from retargetbench.kinematics import forward_kinematics, hemisphere_continuous
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.studio.actions import Action, FootKey, HandKey, Side
    from retargetbench.datasets.studio.gaits import GaitCurves
    from retargetbench.datasets.studio.performance import FootTrack

KNEE_DROP = 0.006
"""Heights by which standing hips are below the T-pose, so that legs are never quite straight."""

_SIDES: tuple[Side, Side] = ("left", "right")
_CHEST = canonical_index("Spine2")
_OVER_FOOT = 0.75  # share of the way to the carrying foot that the hips go
_SHIFT_BLUR = 5.0  # frames that a shift of weight takes
_DROP_BLUR = 3.0
_ROUNDS = 3
_ARM_ROUNDS, _MUTUAL_ROUNDS = 2, 5


def choreograph(action: Action, body: Character, *, seed: int = 0, variant: int = 0) -> Performance:
    """Make a performance of an action on the reference body; the same arguments give the same numbers.

    Args:
        action: what is done.
        body: reference body on 22 joints with shaped hands, see `retargetbench.datasets.studio.fingers.shaped_body`.
        seed: of small movements, tempo and amplitude.
        variant: 0 is as authored; others draw tempo and amplitude, and odd ones are mirrored.

    Returns:
        The performance at 30 frames a second, float64, with an odd number of frames.

    Raises:
        DatasetError: the action asks for what no body can do: both arms or both feet find their place by each other.
        CharacterError: a place is not found on the body.
    """
    shown = _with_instants(variant_of(action, seed=seed, variant=variant))
    frames = 2 * round(shown.seconds * FPS / 2) + 1
    time = torch.arange(frames, dtype=torch.float64) / FPS
    life = live(time, seeded("life", action.name, seed, variant), shown.sway)
    channels = channel_values(shown, time)
    for name, small in life.trunk.items():
        channels[name] = channels[name] + small if name in channels else small
    gait = None if shown.gait is None else gait_curves(shown.gait, frames, FPS)
    if gait is not None:
        for name, more in gait.trunk.items():
            channels[name] = channels[name] + more if name in channels else more
    local = trunk_rotations(channels, frames)
    zero = torch.zeros_like(time)
    hips = torch.stack([channels.get("hips_x", zero), channels.get("hips_y", zero), channels.get("hips_z", zero)], -1)
    if gait is not None:
        hips = hips + gait.hips
        feet = (gait_track(gait.feet[0]), gait_track(gait.feet[1]))
    else:
        hips[:, 1] -= KNEE_DROP
        feet = (foot_track(shown.left_foot, 0, time), foot_track(shown.right_foot, 1, time))
        if not shown.seated:
            hips = hips + _weight_shift(body, feet)
    hips, feet = _stand(body, shown, local, hips, feet, time)
    shrugs = [
        (channels.get("left_shrug", zero), channels.get("left_protract", zero)),
        (channels.get("right_shrug", zero), channels.get("right_protract", zero)),
    ]
    _move_arms(body, shown, local, hips, shrugs, life.hands * body.height, time, gait)
    contacts = [
        *key_contacts(shown.left, "left", time),
        *key_contacts(shown.right, "right", time),
        *key_contacts(shown.left_foot, "left", time),
        *key_contacts(shown.right_foot, "right", time),
        *(named_contact(touch, time) for touch in shown.contacts),
    ]
    return Performance(
        name=f"{action.name}_{variant}",
        family=action.family,
        fps=FPS,
        rotations=hemisphere_continuous(roma.rotmat_to_unitquat(local)),
        hips=hips,
        feet=feet,
        contacts=tuple(contacts),
        hands={"left": shown.hands.left, "right": shown.hands.right},
        seated=shown.seated,
    )


def _with_instants(action: Action) -> Action:
    tracks = {name: with_instants(getattr(action, name)) for name in ("left", "right", "left_foot", "right_foot")}
    return action.model_copy(update=tracks)


def _weight_shift(body: Character, feet: Sequence[FootTrack]) -> torch.Tensor:
    """Carry the hips over the feet that are planted, (T, 3) heights."""
    rest = body.skeleton.rest_positions.double()[[leg[2] for leg in LEG_JOINTS]]
    stand = torch.stack([rest[:, 0] - rest[:, 0].mean(), torch.zeros(2, dtype=torch.float64)], -1) / body.height
    places = torch.stack([track.place for track in feet], 1) + stand
    carrying = torch.stack([track.planted.double() for track in feet], 1)
    carrying = torch.where(carrying.sum(1, keepdim=True) == 0, 0.5, carrying)
    weights = blurred(carrying, _SHIFT_BLUR)
    weights = weights / weights.sum(1, keepdim=True)
    # Where a foot is in the air, the place that counts is where it stood or will stand: hips do not follow a kick.
    held = torch.stack([_held(track) for track in feet], 1) + stand
    middle = held.mean(1)
    carried = (weights[..., None] * places).sum(1)
    across = blurred(middle + _OVER_FOOT * (carried - middle), _SHIFT_BLUR)
    return torch.stack([across[:, 0], torch.zeros_like(across[:, 0]), across[:, 1]], -1)


def _held(track: FootTrack) -> torch.Tensor:
    """Place of a foot on the floor, in the air between where it was and where it will be by time, (T, 2) heights."""
    planted = track.planted.nonzero()[:, 0]
    if len(planted) == 0:
        return torch.zeros_like(track.place)
    frames = torch.arange(len(track.place))
    after = torch.searchsorted(planted, frames).clamp_max(len(planted) - 1)
    before = (torch.searchsorted(planted, frames, right=True) - 1).clamp_min(0)
    first, last = planted[before], planted[after]
    share = ((frames - first) / (last - first).clamp_min(1)).clamp(0, 1)[:, None]
    return torch.lerp(track.place[first], track.place[last], share.to(track.place))


def _stand(
    body: Character,
    action: Action,
    local: torch.Tensor,
    hips: torch.Tensor,
    feet: tuple[FootTrack, FootTrack],
    time: torch.Tensor,
) -> tuple[torch.Tensor, tuple[FootTrack, FootTrack]]:
    """Write the legs' local rotations, and return hips that legs allow and feet that touch what they touch."""
    keys = (action.left_foot, action.right_foot)
    by_each_other = [_touches(keys[side], _SIDES[1 - side], "Leg", "Foot") for side in range(2)]
    if all(by_each_other):
        raise DatasetError(
            f"action {action.name}: each foot touches the other leg; one of them needs a place of its own"
        )
    for _ in range(_ROUNDS):
        if action.seated:
            hips = _sit(body, local, hips)
        rotations, short = pose_legs(body, local[:, 0], _root(body, hips), feet)
        local[:, [joint for leg in LEG_JOINTS for joint in leg]] = rotations
        planted = torch.stack([track.planted for track in feet], -1)
        missing = (short * planted).amax(-1) / body.height
        if float(missing.max()) > 0 and not action.seated:
            radius = int(2 * _DROP_BLUR)
            widest = torch.nn.functional.max_pool1d(missing[None], 2 * radius + 1, 1, radius)[0]
            hips = hips - 1.1 * blurred(widest, _DROP_BLUR)[:, None] * hips.new_tensor([0.0, 1.0, 0.0])
        for side in (0, 1) if by_each_other[1] else (1, 0):
            if any(key.touch for key in keys[side]):
                track = _aimed_track(_pose(body, local, hips), keys[side], side, feet, time)
                feet = (track, feet[1]) if side == 0 else (feet[0], track)
                rotations, _ = pose_legs(body, local[:, 0], _root(body, hips), feet)
                local[:, [joint for leg in LEG_JOINTS for joint in leg]] = rotations
    rotations, _ = pose_legs(body, local[:, 0], _root(body, hips), feet)
    local[:, [joint for leg in LEG_JOINTS for joint in leg]] = rotations
    return hips, feet


def _aimed_track(
    posed: Posed, keys: Sequence[FootKey], side: int, feet: tuple[FootTrack, FootTrack], time: torch.Tensor
) -> FootTrack:
    """Make the track of a foot whose touching keys bring their place of the leg to what they touch."""
    body = posed.body
    aims = {}
    for number, key in enumerate(keys):
        if key.touch is None:
            continue
        own = find_place(body, f"{_SIDES[side]}_{key.with_}")
        point, normal = posed.skin(find_place(body, key.touch))
        target = point + TOUCH_CLEARANCE * body.height * normal
        sign = (1.0, -1.0)[side]
        aim = time.new_tensor([sign * key.out, key.forward, key.lift]).expand(len(time), 3)
        for _ in range(_ROUNDS + 2):
            held = foot_track((key,), side, time, {0: aim})
            tracks = (held, feet[1]) if side == 0 else (feet[0], held)
            rotations, _ = pose_legs(body, posed.rotations[:, 0], posed.positions[:, 0], tracks)
            world = posed.rotations.clone()
            positions = posed.positions.clone()
            _carry_leg(body, side, rotations[:, 4 * side : 4 * side + 4], world, positions)
            reached, _ = Posed(body, world, positions).skin(own)
            aim = aim + ((target - reached) / body.height)[:, [0, 2, 1]]
        aims[number] = aim
    return foot_track(keys, side, time, aims)


def _carry_leg(body: Character, side: int, local: torch.Tensor, world: torch.Tensor, positions: torch.Tensor) -> None:
    """Write world rotations and positions of a leg from its local rotations, (T, 4, 3, 3)."""
    offsets = body.skeleton.canonical_offsets.double()
    parent = 0
    for number, joint in enumerate(LEG_JOINTS[side]):
        positions[:, joint] = positions[:, parent] + world[:, parent] @ offsets[joint]
        world[:, joint] = world[:, parent] @ local[:, number]
        parent = joint


def _sit(body: Character, local: torch.Tensor, hips: torch.Tensor) -> torch.Tensor:
    """Bring the lowest skin of the pelvis to the floor, with one height for the whole clip."""
    skin = (body.dominant_joint == 0).nonzero()[:, 0]
    rest = body.skeleton.rest_positions.double()[0]
    seat = body.rest_vertices.double()[skin] - rest
    lowest = (seat @ local[:, 0].mT)[..., 1].amin(-1)
    height = float((-lowest).mean() - rest[1]) / body.height
    hips = hips.clone()
    hips[:, 1] = height
    return hips


def _move_arms(
    body: Character,
    action: Action,
    local: torch.Tensor,
    hips: torch.Tensor,
    shrugs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    wander: torch.Tensor,
    time: torch.Tensor,
    gait: GaitCurves | None,
) -> None:
    """Write the local rotations of clavicles and arms."""
    keys = (action.left, action.right)
    touching = [_touches(keys[side], _SIDES[1 - side], "Arm", "Hand") for side in range(2)]
    order = (1, 0) if touching[0] else (0, 1)
    rounds = _ARM_ROUNDS
    if all(touching):
        if any(_touches(keys[side], _SIDES[1 - side], "ForeArm", "Hand") for side in range(2)):
            raise DatasetError(
                f"action {action.name}: each hand touches the other hand or forearm; one needs a place of its own"
            )
        rounds = _MUTUAL_ROUNDS  # hands on each other's upper arms, which hardly move for it
    rhythm = [(torch.zeros_like(time), torch.zeros_like(time))] * 2
    for _ in range(rounds):
        for side in range(2):
            raised, forward = (own + more for own, more in zip(rhythm[side], shrugs[side], strict=True))
            local[:, CLAVICLES[side]] = clavicle_rotation(side, raised, forward)
        for side in order:
            arm = arm_of(body, side)
            posed = _pose(body, local, hips)
            swing = None if gait is None else (gait.swing[side], gait.elbow[side])
            pose = move_arm(posed, arm, keys[side], time, wander[side], swing)
            local[:, arm.shoulder] = posed.rotations[:, arm.clavicle].mT @ pose.upper
            local[:, arm.elbow] = pose.upper.mT @ pose.forearm
            local[:, arm.hand] = pose.forearm.mT @ pose.hand
            rhythm[side] = shoulder_rhythm(side, arm_directions(arm, pose, posed.rotations[:, _CHEST]))


def _touches(keys: Sequence[HandKey | FootKey], side: Side, *bones: str) -> bool:
    """Whether a key touches a bone of a side whose name ends like one of ``bones``."""
    return any(
        key.touch is not None
        and PLACES[key.touch].bone.startswith(side.capitalize())
        and PLACES[key.touch].bone.endswith(bones)
        for key in keys
    )


def _root(body: Character, hips: torch.Tensor) -> torch.Tensor:
    return body.skeleton.rest_positions.double()[0] + hips * body.height


def _pose(body: Character, local: torch.Tensor, hips: torch.Tensor) -> Posed:
    skeleton = body.skeleton.to(dtype=torch.float64)
    return Posed(body, *forward_kinematics(skeleton, _root(body, hips), roma.rotmat_to_unitquat(local)))
