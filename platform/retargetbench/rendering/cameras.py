"""Cameras that look at a point, and one camera that has everything in view.

View space is x to the right, y up and the third axis forwards, so that the third coordinate is the depth. Pixels
count from the upper left corner; the centre of the first is at (0.5, 0.5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from retargetbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

DIRECTIONS: dict[str, float] = {"front": 0.0, "three-quarter": 35.0, "side": 90.0, "back": 180.0}
"""Names for where the camera stands: degrees about the vertical, from the front towards the character's left."""

PITCH_DEG = 10.0
"""How far the camera looks down."""

FIELD_OF_VIEW_DEG = 24.0
"""Vertical field of view: that of a long lens, which leaves proportions as they are."""

NEAR = 0.02
"""Distance from which on things are seen, metres."""

_LEAST_DISTANCE = 0.1
"""A camera that is placed by itself stays this far from the nearest point, metres."""


@dataclass(frozen=True, eq=False)
class Camera:
    """A perspective camera.

    Attributes:
        eye: where it is, (3,) metres.
        rotation: rows are the directions right, up and forwards of the picture in the world, (3, 3).
        field_of_view: vertical, radians.
        near: depth from which on things are seen, metres.
    """

    eye: torch.Tensor
    rotation: torch.Tensor
    field_of_view: float = math.radians(FIELD_OF_VIEW_DEG)
    near: float = NEAR

    def to_view(self, points: torch.Tensor) -> torch.Tensor:
        """Bring points of the world (..., 3) into view space: right, up, depth; (..., 3) metres."""
        return (points - self.eye.to(points)) @ self.rotation.to(points).T

    def focal(self, height: int) -> float:
        """Return the focal length in pixels for a picture of ``height`` rows."""
        return 0.5 * height / math.tan(0.5 * self.field_of_view)

    def project(self, points: torch.Tensor, width: int, height: int) -> torch.Tensor:
        """Project points of the world (..., 3) to column and row in pixels and depth in metres, (..., 3)."""
        right, up, depth = self.to_view(points).unbind(-1)
        focal = self.focal(height)
        return torch.stack([0.5 * width + focal * right / depth, 0.5 * height - focal * up / depth, depth], -1)

    def pixel_rays(self, width: int, height: int) -> torch.Tensor:
        """Return for each pixel the step in the world by which a depth of 1 m is gained, (height, width, 3)."""
        focal = self.focal(height)
        rows = (0.5 * height - (torch.arange(height) + 0.5)) / focal
        columns = ((torch.arange(width) + 0.5) - 0.5 * width) / focal
        up, right = torch.meshgrid(rows, columns, indexing="ij")
        rays: torch.Tensor = torch.stack([right, up, torch.ones_like(up)], -1) @ self.rotation.cpu().float()
        return rays


def view_rotation(azimuth_deg: float, pitch_deg: float = PITCH_DEG) -> torch.Tensor:
    """Return the rotation of a camera that stands at an azimuth and looks down by a pitch, (3, 3).

    Args:
        azimuth_deg: 0 in front of a character that faces +Z, 90 at its left side (+X).
        pitch_deg: from -90 (straight up) to 90 (straight down).
    """
    azimuth, pitch = math.radians(azimuth_deg), math.radians(pitch_deg)
    forwards = [-math.sin(azimuth) * math.cos(pitch), -math.sin(pitch), -math.cos(azimuth) * math.cos(pitch)]
    right = [math.cos(azimuth), 0.0, -math.sin(azimuth)]
    up = [-math.sin(azimuth) * math.sin(pitch), math.cos(pitch), -math.cos(azimuth) * math.sin(pitch)]
    return torch.tensor([right, up, forwards])


def look_at(
    eye: torch.Tensor, target: torch.Tensor, *, field_of_view: float = math.radians(FIELD_OF_VIEW_DEG)
) -> Camera:
    """Make a camera at ``eye`` (3,) that has ``target`` (3,) in the middle of its picture and the vertical upright.

    Raises:
        UsageError: eye and target are at one place, or one is right above the other.
    """
    forwards = (target - eye).float()
    level = math.hypot(float(forwards[0]), float(forwards[2]))
    if level < 1e-6 * float(forwards.norm()) or level == 0.0:
        raise UsageError(f"a camera at {eye.tolist()} that looks at {target.tolist()} has no upright; move it aside")
    azimuth = math.degrees(math.atan2(-float(forwards[0]), -float(forwards[2])))
    pitch = math.degrees(math.atan2(-float(forwards[1]), level))
    return Camera(eye.float(), view_rotation(azimuth, pitch), field_of_view)


def fit_camera(
    points: Iterable[torch.Tensor],
    *,
    azimuth_deg: float,
    pitch_deg: float = PITCH_DEG,
    aspect: float = 1.0,
    margin: float = 0.06,
    field_of_view: float = math.radians(FIELD_OF_VIEW_DEG),
) -> Camera:
    """Place a camera of given direction as near as it can be with all points in view.

    The four sides of what a camera sees are planes of known directions, so the outermost point along each of them
    is all that has to be known, and the points may come in parts.

    Args:
        points: positions in the world, each (..., 3) metres; taken one after the other and not kept.
        azimuth_deg: as in `view_rotation`.
        pitch_deg: as in `view_rotation`.
        aspect: width of the picture over its height.
        margin: share of the picture that stays free at each side.
        field_of_view: vertical, radians.

    Raises:
        UsageError: there are no points.
    """
    rotation = view_rotation(azimuth_deg, pitch_deg).double()
    slope_y = math.tan(0.5 * field_of_view) * (1 - 2 * margin)
    slope_x = slope_y * aspect
    # A point (x, y, z) is in view of an eye (X, Y, Z) if |x - X| <= slope_x (z - Z) and |y - Y| <= slope_y (z - Z).
    sides = torch.tensor(
        [[1.0, 0, -slope_x], [-1, 0, -slope_x], [0, 1, -slope_y], [0, -1, -slope_y], [0, 0, -1]], dtype=torch.float64
    )
    directions = sides @ rotation
    outermost = torch.full((5,), -math.inf, dtype=torch.float64)
    for part in points:
        if part.numel():
            along = part.reshape(-1, 3) @ directions.to(part).T
            outermost = torch.maximum(outermost, along.amax(0).double().cpu())
    if not bool(torch.isfinite(outermost).all()):
        raise UsageError("there is nothing to look at: a camera needs at least one point")
    right, left, top, bottom, nearest = outermost.tolist()
    eye = torch.tensor(
        [
            0.5 * (right - left),
            0.5 * (top - bottom),
            -max(0.5 * (right + left) / slope_x, 0.5 * (top + bottom) / slope_y, nearest + _LEAST_DISTANCE),
        ],
        dtype=torch.float64,
    )
    return Camera((eye @ rotation).float(), rotation.float(), field_of_view)
