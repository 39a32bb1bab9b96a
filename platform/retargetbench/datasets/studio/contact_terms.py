"""Contacts of a performance on one body: how far a moving place is from what it should touch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from retargetbench.caching import per_character
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
_BLEND = 0.007  # heights over which tangent planes of the touched skin are blended
_WAY_POINTS = 9  # along which a sliding contact has its skin
_SAME_SIDE = 0.3  # cosine between normals of skin that belongs to one place


class _Skin(NamedTuple):
    """Rows that pose the skin around a contact: of points and of normals that come, the place itself first, and of
    points and normals that are touched."""

    moving: torch.Tensor
    moving_normals: torch.Tensor
    touched: torch.Tensor
    touched_normals: torch.Tensor


@per_character
def _contact_skin(body: Character, moving: str, first: str, second: str) -> _Skin:
    """Sample the skin around both places of a contact and on the way between; remembered per body."""
    own, start, end = (find_place(body, name) for name in (moving, first, second))
    place = SurfaceSamples(own.position[None], own.normal[None], own.weights[None])
    around = _around(body, moving, place.positions, place.normals, MOVING_RADIUS, _MOVING_SAMPLES)
    share = torch.linspace(0, 1, 1 if first == second else _WAY_POINTS, dtype=torch.float64)[:, None]
    way = torch.lerp(start.position, end.position, share)
    normals = torch.nn.functional.normalize(torch.lerp(start.normal, end.normal, share), dim=-1)
    skin = [
        _around(body, name, way, normals, TOUCHED_RADIUS, _TOUCHED_SAMPLES) for name in dict.fromkeys((first, second))
    ]
    touched = skin[0] if len(skin) == 1 else skin[0].joined(skin[1])
    return _Skin(*(x.float() for samples in (place.joined(around), touched) for x in samples.skinning_rows()))


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
        self._skin = _contact_skin(body, contact.moving, contact.first, contact.second)
        self.active = contact.active[frames].nonzero()[:, 0]
        first, second = find_place(body, contact.first), find_place(body, contact.second)
        share = contact.share[frames][self.active].double()[:, None]
        path = torch.lerp(first.position, second.position, share)
        normals = torch.nn.functional.normalize(torch.lerp(first.normal, second.normal, share), dim=-1)
        way = SurfaceSamples(path, normals, torch.lerp(first.weights, second.weights, share))
        self._path, self._path_normal = (x.float() for x in way.skinning_rows())

    def measure(self, transforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Measure the contact in its active frames, N of them.

        Args:
            transforms: of the solved frames, (K, 22, 3, 4).

        Returns:
            Signed distance of the moving skin from the touched skin, (N,) heights; distance of the moving place from
            the wanted place along the surface, (N,) heights; cosine between the outward normals of both, (N,).
        """
        now = transforms[self.active]
        moving, touched = pose_rows(self._skin.moving, now), pose_rows(self._skin.touched, now)
        facing = torch.nn.functional.normalize(pose_rows(self._skin.moving_normals[:1], now)[:, 0], dim=-1)
        normals = torch.nn.functional.normalize(pose_rows(self._skin.touched_normals, now), dim=-1)
        with torch.no_grad():
            # The surface as a blend of tangent planes, so that distances do not jump from sample to sample.
            squares = torch.cdist(moving, touched).square() / (2 * (_BLEND * self._height) ** 2)
            weights = torch.softmax(-squares, -1)
        planes = moving @ normals.mT - (touched * normals).sum(-1)[:, None, :]
        apart = (weights * planes).sum(-1) / self._height
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
