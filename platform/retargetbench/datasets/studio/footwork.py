"""Tracks of feet from their keys: planted, rolling over ball and heel, stepping, or in the air."""

from __future__ import annotations

from typing import TYPE_CHECKING

import roma
import torch

from retargetbench.datasets.capsule_ik import about
from retargetbench.datasets.studio.curves import bump, min_jerk, through_keys
from retargetbench.datasets.studio.performance import FootTrack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.datasets.studio.actions import FootKey
    from retargetbench.datasets.studio.gaits import FootCurves

_SAME_PLACE = 0.004  # heights; nearer places are one
_SAME_YAW_DEG = 2.0
_OFF, _DOWN = 0.12, 0.88  # shares of a step at which the foot leaves its place and is at the next
_LIFT, _LIFT_PER_LENGTH, _MOST_LIFT = 0.022, 0.13, 0.075  # heights
_WHOLE_STEP = 0.25  # heights; shorter steps roll less
_HEEL_OFF_DEG, _HEEL_LAND_DEG, _TOE_LAND_DEG, _SIDE_DEG = 30.0, 14.0, 16.0, 10.0
_TOES_FLAT_BELOW = 0.06  # heights of the sole
_MOST_TOES_DEG = 50.0


class _Columns:
    """Columns of the values of foot keys."""

    X, Z, LIFT, YAW, PITCH, ROLL = range(6)
    KNEE = slice(6, 9)


def foot_track(
    keys: Sequence[FootKey], side: int, time: torch.Tensor, aims: dict[int, torch.Tensor] | None = None
) -> FootTrack:
    """Make the track of a foot.

    Args:
        keys: of the foot.
        side: 0 for the left foot, 1 for the right.
        time: of the frames, (T,) seconds.
        aims: for keys that touch, by number: place and lift (x, z, lift) in every frame, (T, 3) heights.
    """
    sign = (1.0, -1.0)[side]
    rows = [_values(key, sign) for key in keys]
    values = torch.tensor(rows, dtype=torch.float64).expand(len(time), len(keys), -1).clone()
    for number, aim in (aims or {}).items():
        values[:, number, [_Columns.X, _Columns.Z, _Columns.LIFT]] = aim
    times = [key.at for key in keys]
    track = through_keys(values, times, [key.through for key in keys], time)
    planted = torch.zeros(len(time), dtype=torch.bool)
    planted[time <= times[0]] = _on_floor(keys[0])
    planted[time >= times[-1]] = _on_floor(keys[-1])
    for k in range(len(keys) - 1):
        within = (time >= times[k]) & (time <= times[k + 1])
        share = (time[within] - times[k]) / (times[k + 1] - times[k])
        start, end = keys[k], keys[k + 1]
        if _on_floor(start) and _on_floor(end):
            if _same_place(start, end):
                planted[within] = True
            else:
                track[within] = _step(values[within, k], values[within, k + 1], share)
                planted[within] = (share <= _OFF) | (share >= _DOWN)
        elif not (start.through or end.through):
            # The sole leaves the floor before the foot goes away, and is above its place before it comes down.
            u = min_jerk((share - _OFF * _on_floor(start)) / (1 - _OFF))[:, None]
            across = [_Columns.X, _Columns.Z, _Columns.YAW]
            track[within.nonzero(), across] = torch.lerp(
                values[within, k][:, across], values[within, k + 1][:, across], u
            )
    return _as_track(track, planted)


def gait_track(curves: FootCurves) -> FootTrack:
    """Make the track of a foot from the curves of a gait."""
    ahead = torch.stack([curves.yaw.sin(), torch.zeros_like(curves.yaw), curves.yaw.cos()], -1)
    flat = torch.zeros_like(curves.yaw)
    degrees = [torch.rad2deg(curves.yaw), torch.rad2deg(curves.pitch), flat]
    columns = torch.stack([*curves.place.unbind(-1), curves.lift, *degrees], -1)
    return _as_track(torch.cat([columns, ahead], -1), curves.planted)


def _values(key: FootKey, sign: float) -> list[float]:
    """Values of a key in the order of `_Columns`, with x to the left and signs of rotations; degrees."""
    knee = about("y", sign * key.yaw)[:, 2].tolist()
    if key.knee is not None:
        knee = [sign * key.knee[0], *key.knee[1:]]
    return [sign * key.out, key.forward, key.lift, sign * key.yaw, key.pitch, -sign * key.roll, *knee]


def _on_floor(key: FootKey) -> bool:
    return key.touch is None and key.lift == 0


def _same_place(start: FootKey, end: FootKey) -> bool:
    moved = max(abs(end.out - start.out), abs(end.forward - start.forward))
    return moved < _SAME_PLACE and abs(end.yaw - start.yaw) < _SAME_YAW_DEG


def _step(start: torch.Tensor, end: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Step from one place on the floor to another: the heel leaves it first, and lands first, if one goes forward."""
    flight = (share - _OFF) / (_DOWN - _OFF)
    track = torch.lerp(start, end, min_jerk(flight)[:, None])
    way = (end - start)[:, [_Columns.X, _Columns.Z]]
    length = way.norm(dim=-1)
    ahead = way[:, 1] / length.clamp_min(1e-6)
    size = (length / _WHOLE_STEP).clamp(max=1.0)
    track[:, _Columns.LIFT] = bump(flight) * (_LIFT + _LIFT_PER_LENGTH * length).clamp(max=_MOST_LIFT)
    leaving, landing = bump(share / 0.55), bump((share - 0.55) / 0.45)
    off = _HEEL_OFF_DEG * ahead.clamp_min(0) + _SIDE_DEG * (1 - ahead.abs())
    on = _TOE_LAND_DEG * (-ahead).clamp_min(0) - _HEEL_LAND_DEG * ahead.clamp_min(0)
    track[:, _Columns.PITCH] += size * (off * leaving + on * landing)
    return track


def _as_track(track: torch.Tensor, planted: torch.Tensor) -> FootTrack:
    lift = track[:, _Columns.LIFT].clamp_min(0)
    pitch = track[:, _Columns.PITCH]
    near_floor = 1 - min_jerk(lift / _TOES_FLAT_BELOW)
    return FootTrack(
        place=track[:, [_Columns.X, _Columns.Z]],
        lift=lift,
        yaw=torch.deg2rad(track[:, _Columns.YAW]),
        tilt=roma.rotmat_to_unitquat(about("x", pitch) @ about("z", track[:, _Columns.ROLL])),
        toes=-torch.deg2rad(pitch.clamp(0, _MOST_TOES_DEG)) * near_floor,
        knee=torch.nn.functional.normalize(track[:, _Columns.KNEE], dim=-1),
        planted=planted,
    )
