"""Contacts of a performance on one body: how far a moving place is from what it should touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from retargetbench.datasets.studio.places import PLACES, find_place
from retargetbench.datasets.studio.surface_samples import SurfaceSamples, pose_rows, sample_surface
from retargetbench.sensor_names import BONES
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import Contact

MOVING_RADIUS = 0.02
"""Skin this close to the moving place, in heights, may be what touches."""

TOUCHED_RADIUS = 0.06
"""Skin this close to the path on the touched part, in heights, may be touched."""

_MOVING_SAMPLES = 14
_TOUCHED_SAMPLES = 220
_SOFTNESS = 0.003  # heights over which the smallest distance of the moving skin is blended
_SAME_SIDE = 0.3  # cosine between normals of skin that belongs to one place


class ContactTerm:
    """One contact on one body.

    Attributes:
        contact: of the performance.
        active: frames in which it holds, (N,) int64.
    """

    def __init__(self, body: Character, contact: Contact, frames: torch.Tensor) -> None:
        """Prepare the skin around both places.

        Args:
            body: with its 22 joints.
            contact: of the performance.
            frames: which of its frames are solved, (K,) int64.
        """
        self.contact = contact
        self._height = body.height
        moving, first, second = (find_place(body, name) for name in (contact.moving, contact.first, contact.second))
        self.active = contact.active[frames].nonzero()[:, 0]
        share = contact.share[frames][self.active].double()[:, None]
        path = torch.lerp(first.position, second.position, share)
        normals = torch.nn.functional.normalize(torch.lerp(first.normal, second.normal, share), dim=-1)
        weights = torch.lerp(first.weights, second.weights, share)
        one = torch.ones_like(path[:, :1])
        self._path = (weights[:, :, None] * torch.cat([path, one], -1)[:, None, :]).flatten(1).float()
        self._path_normal = (weights[:, :, None] * torch.cat([normals, 0 * one], -1)[:, None, :]).flatten(1).float()
        own = SurfaceSamples(moving.position[None], moving.normal[None], moving.weights[None])
        around = _around(body, contact.moving, own.positions, own.normals, MOVING_RADIUS, _MOVING_SAMPLES)
        self._moving, self._moving_normals = (x.float() for x in own.joined(around).skinning_rows())
        some = torch.linspace(0, len(path) - 1, min(len(path), 12)).long() if len(path) else self.active
        skin = [
            _around(body, name, path[some], normals[some], TOUCHED_RADIUS, _TOUCHED_SAMPLES)
            for name in dict.fromkeys((contact.first, contact.second))
        ]
        touched = skin[0] if len(skin) == 1 else skin[0].joined(skin[1])
        self._touched, self._touched_normals = (x.float() for x in touched.skinning_rows())

    def measure(self, transforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Measure the contact in its active frames, N of them.

        Args:
            transforms: of the solved frames, (K, 22, 3, 4).

        Returns:
            Signed distance of the moving skin from the touched skin, (N,) heights; distance of the moving place from
            the wanted place along the surface, (N,) heights; cosine between the outward normals of both, (N,).
        """
        now = transforms[self.active]
        moving = pose_rows(self._moving, now)
        facing = torch.nn.functional.normalize(pose_rows(self._moving_normals[:1], now)[:, 0], dim=-1)
        touched = pose_rows(self._touched, now)
        with torch.no_grad():
            nearest = torch.cdist(moving, touched).argmin(-1)
        row = torch.arange(len(now))[:, None]
        normals = torch.nn.functional.normalize(pose_rows(self._touched_normals, now)[row, nearest], dim=-1)
        apart = ((moving - touched[row, nearest]) * normals).sum(-1) / self._height
        distance = -_SOFTNESS * torch.logsumexp(-apart / _SOFTNESS, -1)
        stacked = now.permute(0, 2, 1, 3).flatten(2)  # (N, 3, 88)
        place = (stacked @ self._path[..., None])[..., 0]
        normal = torch.nn.functional.normalize((stacked @ self._path_normal[..., None])[..., 0], dim=-1)
        off = (moving[:, 0] - place) / self._height
        along = off - (off * normal).sum(-1, keepdim=True) * normal
        return distance, along.square().sum(-1).clamp_min(1e-12).sqrt(), (facing * normal).sum(-1)


def _around(
    body: Character, name: str, points: torch.Tensor, normals: torch.Tensor, radius: float, count: int
) -> SurfaceSamples:
    """Samples of the skin of a place's part around some points, on their side of the body."""
    bone = next(bone for bone in BONES if bone.name == PLACES[name].bone)
    block = [canonical_index(joint) for joint in bone.block]
    belongs = body.canonical_weights[body.faces].double()[..., block].sum(-1).mean(-1) >= 0.5
    centres = body.rest_vertices[body.faces].double().mean(1)
    apart = torch.cdist(centres, points)
    near, which = apart.min(-1)
    corners = body.rest_vertices[body.faces].double()
    size = (corners - centres[:, None]).norm(dim=-1).amax(-1)
    facing = torch.nn.functional.normalize(
        torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), dim=-1
    )
    chosen = belongs & (near < radius * body.height + size) & ((facing * normals[which]).sum(-1) > _SAME_SIDE)
    samples = sample_surface(body, chosen.nonzero()[:, 0], count)
    if len(samples):
        kept = torch.cdist(samples.positions, points).amin(-1) < radius * body.height
        samples = samples.take(kept) if bool(kept.any()) else samples
    return samples
