"""Contacts of a performance on one body: how far a moving place is from what it should touch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from retargetbench.caching import per_character
from retargetbench.datasets.studio.places import PLACES, find_place
from retargetbench.datasets.studio.residuals import Rows, row_gradient
from retargetbench.datasets.studio.surface_samples import SurfaceSamples, sample_surface
from retargetbench.sensor_names import BONES
from retargetbench.skeleton import canonical_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.studio.performance import Contact

MOVING_RADIUS = 0.02
"""Skin this close to the moving place, in heights, may be what touches."""

TOUCHED_RADIUS = 0.06
"""Skin this close to the path on the touched part, in heights, may be touched."""

_MOVING_SAMPLES = 14
_TOUCHED_SAMPLES = 220
_NEAR_SAMPLES = 32
_SOFTNESS = 0.0015  # heights over which the smallest distance of the moving skin is blended
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


class Measured(NamedTuple):
    """What `ContactTerms` measures in each of M pairs of a contact and a frame in which it holds.

    Attributes:
        distance: signed, of the moving skin from the touched skin, (M,) heights.
        aside: of the moving place from the wanted place along the surface, (M,) heights.
        facing: sum of the outward normals of both places, nought where they face each other, three rows each (3 M,).
    """

    distance: Rows
    aside: Rows
    facing: Rows


class ContactTerms:
    """All contacts of some clips on one body, measured together.

    Attributes:
        frames: which of the solved frames each of M pairs of a contact and a frame is in, (M,) int64.
        gap: wanted distance in each, (M,) heights.
        slides: whether the contact slides, (M,) bool.
        lengths: number of frames of the contact, (M,).
    """

    def __init__(self, body: Character, contacts: Sequence[tuple[Contact, slice]]) -> None:
        """Prepare the skin around all places.

        Args:
            body: with its 22 joints.
            contacts: of the performances, and where the key frames of each are among all that are solved together.
        """
        self._height = body.height
        frames, gaps, slides, lengths, paths, normals, skins = ([] for _ in range(7))
        for contact, part in contacts:
            holds = contact.active[::2].nonzero()[:, 0]
            if len(holds) == 0:
                continue
            skin = _contact_skin(body, contact.moving, contact.first, contact.second)
            way = _way(body, contact, contact.share[::2][holds].double()[:, None])
            rows, turned = way.skinning_rows()
            frames.append(part.start + holds)
            gaps.append(torch.full((len(holds),), contact.gap))
            slides.append(torch.full((len(holds),), contact.slides))
            lengths.append(torch.full((len(holds),), float(len(holds))))
            paths.append(rows.float())
            normals.append(turned.float())
            skins += [skin] * len(holds)
        self.frames = torch.cat(frames) if frames else torch.zeros(0, dtype=torch.int64)
        if not frames:
            return
        self.gap, self.slides, self.lengths = torch.cat(gaps), torch.cat(slides), torch.cat(lengths)
        self._way, self._way_normals = torch.cat(paths)[:, None], torch.cat(normals)[:, None]
        self._moving, self._moving_off = _padded([skin.moving for skin in skins])
        self._facing = torch.stack([skin.moving_normals[:1] for skin in skins])
        self._all_touched, self._touched_off = _padded([skin.touched for skin in skins])
        self._all_normals, _ = _padded([skin.touched_normals for skin in skins])

    def __len__(self) -> int:
        return len(self.frames)

    @torch.no_grad()
    def search(self, transforms: torch.Tensor) -> None:
        """Choose the samples of touched skin that are near in a pose; `measure` looks at these alone.

        Args:
            transforms: of the solved frames, (K, 22, 3, 4).
        """
        now = self._in_frames(transforms)
        apart = torch.cdist(self._all_touched @ now, self._moving[:, :1] @ now)[..., 0] - self._touched_off
        near = apart.topk(min(_NEAR_SAMPLES, apart.shape[1]), largest=False).indices
        row = torch.arange(len(near))[:, None]
        self._touched, self._touched_normals = self._all_touched[row, near], self._all_normals[row, near]
        self._near_off = self._touched_off[row, near]

    def _in_frames(self, transforms: torch.Tensor) -> torch.Tensor:
        """Transforms of the frames in which contacts hold, (M, 88, 3)."""
        return transforms[self.frames].permute(0, 1, 3, 2).flatten(1, 2)

    def measure(self, transforms: torch.Tensor) -> Measured:
        """Measure all contacts in the frames in which they hold; call `search` first.

        Args:
            transforms: of the solved frames, (K, 22, 3, 4).
        """
        now = self._in_frames(transforms)
        moving, touched = self._moving @ now, self._touched @ now
        normals = torch.nn.functional.normalize(self._touched_normals @ now, dim=-1)
        # The surface as a blend of tangent planes, so that distances do not jump from sample to sample.
        squares = torch.cdist(moving, touched).square() / (2 * (_BLEND * self._height) ** 2)
        weights = torch.softmax(self._near_off[:, None] - squares, -1)
        planes = moving @ normals.mT - (touched * normals).sum(-1)[:, None, :]
        apart = (weights * planes).sum(-1) / self._height
        scores = self._moving_off - apart / _SOFTNESS
        share = torch.softmax(scores, -1)[..., None]
        # Weights and normals are held fixed in gradients.
        by_moving = self._moving.mT @ (share * (weights @ normals))
        by_touched = self._touched.mT @ ((weights.mT @ share) * normals)
        distance = Rows(
            self.frames, -_SOFTNESS * torch.logsumexp(scores, -1), _gradient(by_moving - by_touched) / self._height
        )
        place = (self._way @ now)[:, 0]
        normal = torch.nn.functional.normalize((self._way_normals @ now)[:, 0], dim=-1)
        off = (moving[:, 0] - place) / self._height
        along = off - (off * normal).sum(-1, keepdim=True) * normal
        length = along.norm(dim=-1).clamp_min(1e-9)
        between = self._moving[:, 0] - self._way[:, 0]
        aside = Rows(self.frames, length, row_gradient(between, along / length[:, None] / self._height))
        both = self._facing[:, 0] + self._way_normals[:, 0]
        axes = torch.eye(3).to(now)
        facing = Rows(
            self.frames.repeat(3),
            (both[:, None] @ now)[:, 0].T.flatten(),
            torch.cat([row_gradient(both, axis.expand(len(both), 3)) for axis in axes]),
        )
        return Measured(distance, aside, facing)


def _gradient(by_rows: torch.Tensor) -> torch.Tensor:
    """Gradients (M, 88, 3) by rows and directions in the layout of `Rows`, (M, 264)."""
    return by_rows.view(-1, 22, 4, 3).transpose(2, 3).flatten(1)


def _way(body: Character, contact: Contact, share: torch.Tensor) -> SurfaceSamples:
    """The wanted place in each frame, from shares (N, 1) of the second place of a contact."""
    start, end = find_place(body, contact.first), find_place(body, contact.second)
    return SurfaceSamples(
        torch.lerp(start.position, end.position, share),
        torch.nn.functional.normalize(torch.lerp(start.normal, end.normal, share), dim=-1),
        torch.lerp(start.weights, end.weights, share),
    )


def _padded(rows: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack rows (N_i, 88) with zeros behind, (M, N, 88), and what takes the zeros out of a softmax, (M, N)."""
    count = max(len(row) for row in rows)
    stacked = torch.zeros(len(rows), count, rows[0].shape[1])
    off = torch.full((len(rows), count), -torch.inf)
    for k, row in enumerate(rows):
        stacked[k, : len(row)] = row
        off[k, : len(row)] = 0.0
    return stacked, off


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
