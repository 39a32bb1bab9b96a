"""Hips, spine, neck, head and clavicles from the channels of an action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from retargetbench.datasets.capsule_ik import about
from retargetbench.datasets.studio.curves import blurred, channel_curve
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retargetbench.datasets.studio.actions import Action, Channel

SPINE: tuple[tuple[int, float], ...] = tuple(
    (canonical_index(name), share) for name, share in (("Spine", 0.3), ("Spine1", 0.33), ("Spine2", 0.37))
)
"""Joints of the spine from below, and their shares of its angles."""

HEAD: tuple[tuple[int, float], ...] = ((canonical_index("Neck"), 0.45), (canonical_index("Head"), 0.55))
"""Neck and head, and their shares."""

CLAVICLES = (canonical_index("LeftShoulder"), canonical_index("RightShoulder"))

_BLUR = 1.5  # frames; takes the corners off the curves where keys follow each other closely
_RAISED_FROM_DEG, _RAISED_TO_DEG, _RAISED_DEG = 30.0, 150.0, 25.0
_FORWARD_DEG, _BACK_DEG = 22.0, 8.0
_CLAVICLE_BLUR = 2.5


def channel_values(action: Action, time: torch.Tensor) -> dict[Channel, torch.Tensor]:
    """Evaluate the trunk's channels over time, by name (T,), in heights and degrees."""
    return {name: blurred(channel_curve(keys, time), _BLUR) for name, keys in action.trunk.items()}


def trunk_rotations(channels: Mapping[Channel, torch.Tensor], frames: int) -> torch.Tensor:
    """Pose hips, spine, neck and head; everything else is at rest.

    Each joint of the spine follows the one below a frame later, and so do neck and head: movements run upwards.

    Returns:
        Local rotations, (T, 22, 3, 3).
    """
    local = torch.eye(3, dtype=torch.float64).repeat(frames, 22, 1, 1)

    def value(name: Channel, late: int = 0) -> torch.Tensor:
        curve = channels.get(name, torch.zeros(frames, dtype=torch.float64))
        return torch.cat([curve[:1].expand(late), curve[: frames - late]])

    local[:, 0] = about("y", value("hips_yaw")) @ about("x", value("hips_pitch")) @ about("z", -value("hips_roll"))
    for late, (joint, share) in enumerate(SPINE):
        local[:, joint] = _turned(*(share * value(name, late) for name in ("twist", "lean", "bend")))
    for late, (joint, share) in enumerate(HEAD, start=1):
        local[:, joint] = _turned(*(share * value(name, late) for name in ("turn", "tilt", "nod")))
    return local


def clavicle_rotation(side: int, raised: torch.Tensor, forward: torch.Tensor) -> torch.Tensor:
    """Raise the left (0) or right (1) clavicle and bring it forward by degrees (T,); local rotations (T, 3, 3)."""
    sign = (1.0, -1.0)[side]
    return about("y", -sign * forward) @ about("z", sign * raised)


def shoulder_rhythm(side: int, upper_arm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find what the shoulder girdle does by itself as the arm moves.

    Args:
        side: 0 for the left arm, 1 for the right.
        upper_arm: its direction in the frame of the chest, (T, 3).

    Returns:
        How far the clavicle is raised and brought forward, (T,) degrees each. It rises by a fifth to a third of the
        arm's elevation beyond 30°, up to 25°, and goes forward as the arm does so, most where it reaches across.

    Source: the scapulohumeral rhythm, of which about a third is the girdle's (Inman, Saunders and Abbott, "Observations
    on the function of the shoulder joint", 1944), reduced because a rig's clavicle in the T-pose counts as zero.
    """
    outward = upper_arm[:, 0] * (1.0, -1.0)[side]
    elevation = torch.rad2deg(torch.acos((-upper_arm[:, 1]).clamp(-1, 1)))
    share = ((elevation - _RAISED_FROM_DEG) / (_RAISED_TO_DEG - _RAISED_FROM_DEG)).clamp(0, 1)
    ahead = 0.7 * upper_arm[:, 2] - 0.5 * outward * (upper_arm[:, 2] > 0) * upper_arm[:, 2]
    forward = _FORWARD_DEG * ahead.clamp(0, 1) - _BACK_DEG * (-ahead).clamp(0, 1)
    return blurred(_RAISED_DEG * share**2 * (3 - 2 * share), _CLAVICLE_BLUR), blurred(forward, _CLAVICLE_BLUR)


def _turned(left: torch.Tensor, sideways: torch.Tensor, forward: torch.Tensor) -> torch.Tensor:
    """Rotations by angles (T,) in degrees: about the vertical, towards the left side, forward; (T, 3, 3)."""
    return about("y", left) @ about("z", -sideways) @ about("x", forward)
