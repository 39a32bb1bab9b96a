"""A floor, a light and a camera: shades what the rasteriser finds, with a grid and a soft shadow below.

Colours are display values from 0 to 1; there is no colour management. The light goes with the camera, so that every
view is lit from the upper left.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch.nn.functional import normalize

from retargetbench.mesh.closing import boundary_edges, weld
from retargetbench.rendering.floor import Floor
from retargetbench.rendering.rasterizer import rasterize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retargetbench.rendering.cameras import Camera
    from retargetbench.rendering.rasterizer import Fragments

MARK_COLOUR = (0.86, 0.13, 0.10)
"""Of marked vertices, where they are seen and through what hides them."""

_LIGHT = (-0.45, 0.80, -0.55)
"""Direction to the light: right, up and forwards as seen from a level camera."""

_FILL_LIGHT = (0.80, 0.15, -0.50)
_GLOSS_POWER = 24

_HIDDEN_OPACITY = 0.75
_HIDDEN_DEPTH = 0.10
"""Marked skin is seen through what hides it, fainter by a factor of e for each of these metres below the surface."""


@dataclass(frozen=True, eq=False)
class Surface:
    """What of a mesh does not change over time.

    Attributes:
        faces: (F, 3) int64.
        welded: the same with one vertex for all at one place, so that shading shows no seams, (F, 3) int64.
        is_closed: whether all parts are closed and face outwards, so that no face is seen from behind.
    """

    faces: torch.Tensor
    welded: torch.Tensor
    is_closed: bool

    @classmethod
    def from_mesh(cls, vertices: torch.Tensor, faces: torch.Tensor) -> Surface:
        """Find the seams of a mesh from any of its poses in which nothing but seams touches, (V, 3) metres."""
        representative, proper = weld(vertices, faces)
        return cls(faces, representative[faces], _is_closed(vertices, proper))


class Stage:
    """Draws images of one size and camera; what does not depend on the mesh is computed once.

    Args:
        camera: of all images.
        width: pixels in a row.
        height: rows.
        supersampling: samples of a pixel in each direction.
        device: where to draw.
    """

    def __init__(
        self,
        camera: Camera,
        width: int,
        height: int,
        *,
        supersampling: int = 2,
        device: torch.device | str = "cpu",
    ) -> None:
        self.camera, self.width, self.height, self.supersampling = camera, width, height, supersampling
        self.device = torch.device(device)
        level = _level(camera.rotation)
        light, fill = (normalize(torch.tensor(each), dim=0) @ level for each in (_LIGHT, _FILL_LIGHT))
        towards_camera = -camera.rotation[2].float()
        half_way = normalize(light + towards_camera, dim=0)
        self._lights = torch.stack([light, fill, torch.tensor([0.0, 1.0, 0.0]), towards_camera, half_way], 1).to(device)
        self._floor = Floor(camera, width, height, light, device=self.device)

    def render(
        self,
        vertices: torch.Tensor,
        surface: Surface,
        colours: torch.Tensor,
        *,
        marked: torch.Tensor | None = None,
        origin: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Draw a mesh in B poses.

        Args:
            vertices: (B, V, 3) metres.
            surface: of the mesh.
            colours: one colour (3,) or one for each vertex (V, 3).
            marked: vertices that are to stand out, even where they are hidden, (B, V) bool.
            origin: where the grid of the floor has its origin in each image, (B, 3) metres.

        Returns:
            Images, (B, height, width, 3) uint8. On a CPU the same input gives the same bytes.
        """
        with _one_thread(self.device):
            return self._render(vertices, surface, colours, marked, origin)

    def _render(
        self,
        vertices: torch.Tensor,
        surface: Surface,
        colours: torch.Tensor,
        marked: torch.Tensor | None,
        origin: torch.Tensor | None,
    ) -> torch.Tensor:
        images, scale = len(vertices), self.supersampling
        columns, rows = self.width * scale, self.height * scale
        vertices = vertices.to(self.device, torch.float32)
        background = self._floor.draw(vertices, surface.faces, origin)
        seen = rasterize(vertices, surface.faces, self.camera, columns, rows, one_sided=surface.is_closed)
        colour = self._shade(seen, vertices, surface, colours.to(vertices), marked, rows * columns)
        if marked is not None and bool(marked.any()):
            colour = self._show_hidden(colour, seen, vertices, surface.faces, marked)
        column, row = seen.sample % columns, torch.div(seen.sample, columns, rounding_mode="floor")
        # Rows of all images follow each other, so that the row of the pixel needs no regard to images.
        pixel = torch.div(row, scale, rounding_mode="floor") * self.width + torch.div(
            column, scale, rounding_mode="floor"
        )
        if self._floor.is_visible:
            # Below the floor is what the floor hides: the camera is above it.
            above = (self.camera.eye[1].item() + seen.depth * self._climb(row % rows, column)) >= 0
            colour, pixel = colour[above], pixel[above]
        layer = torch.cat([colour, torch.ones_like(colour[:, :1])], 1) / scale**2
        total = colour.new_zeros(images * self.height * self.width, 4).index_add_(0, pixel, layer)
        mixed = background.view(-1, 3) * (1 - total[:, 3:]) + total[:, :3]
        return (mixed * 255 + 0.5).clamp(0, 255).byte().view(images, self.height, self.width, 3)

    def _climb(self, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        """Return how much a sample's ray climbs for each metre of depth, (N,)."""
        scale = self.supersampling
        focal = self.camera.focal(self.height * scale)
        right, up, forwards = self.camera.rotation[:, 1].tolist()
        x = (column + (0.5 - 0.5 * self.width * scale)) / focal
        y = ((0.5 * self.height * scale - 0.5) - row) / focal
        climb: torch.Tensor = x * right + y * up + forwards
        return climb

    def _shade(
        self,
        seen: Fragments,
        vertices: torch.Tensor,
        surface: Surface,
        colours: torch.Tensor,
        marked: torch.Tensor | None,
        samples: int,
    ) -> torch.Tensor:
        """Compute the colour of each fragment, (N, 3)."""
        images, count = vertices.shape[:2]
        shift = torch.div(seen.sample, samples, rounding_mode="floor")[:, None] * count if images > 1 else 0
        normals = _vertex_normals(vertices, surface.welded).view(-1, 3)
        normal = _interpolate(normals, surface.welded[seen.face] + shift, seen.barycentric)
        normal = normalize(normal, dim=1)
        normal = torch.where(seen.is_front[:, None], normal, -normal)
        base = colours
        if colours.ndim == 2 or marked is not None:
            by_vertex = colours.expand(images, count, 3)
            if marked is not None:
                by_vertex = torch.where(marked[..., None], colours.new_tensor(MARK_COLOUR), by_vertex)
            base = _interpolate(by_vertex.reshape(-1, 3), surface.faces[seen.face] + shift, seen.barycentric)
        light, fill, up, facing, gloss = (normal @ self._lights).unbind(1)
        brightness = 0.39 + 0.12 * up + 0.58 * light.clamp_min(0) + 0.16 * fill.clamp_min(0)
        # Darker where the surface turns away, so that limbs stand out from what is behind them.
        brightness = brightness * (0.62 + 0.38 * facing.clamp(0, 1).sqrt())
        shine = 0.10 * gloss.clamp_min(0) ** _GLOSS_POWER
        return (base * brightness[:, None] + shine[:, None]).clamp_(0, 1)

    def _show_hidden(
        self,
        colour: torch.Tensor,
        seen: Fragments,
        vertices: torch.Tensor,
        faces: torch.Tensor,
        marked: torch.Tensor,
    ) -> torch.Tensor:
        """Let marked skin shine through what hides it."""
        scale = self.supersampling
        alpha = torch.zeros_like(seen.depth)
        for image, is_marked in enumerate(marked):
            chosen = faces[is_marked[faces].all(1)]
            inner = rasterize(vertices[image : image + 1], chosen, self.camera, self.width * scale, self.height * scale)
            sample = inner.sample + image * self.width * self.height * scale**2
            # Whatever is marked belongs to the mesh, so something is seen wherever it is.
            at = torch.searchsorted(seen.sample, sample).clamp_max(max(0, len(seen.sample) - 1))
            below = (inner.depth - seen.depth[at]).clamp_min(0)
            alpha[at] = _HIDDEN_OPACITY * torch.exp(-below / _HIDDEN_DEPTH)
        return torch.lerp(colour, colour.new_tensor(MARK_COLOUR).expand_as(colour), alpha[:, None])


@contextmanager
def _one_thread(device: torch.device) -> Iterator[None]:
    """Work in one thread on a CPU.

    Hundreds of short steps make an image. Between threads they gain little, and on a machine whose cores are busy
    with other work each step waits for the slowest: films then took four times as long.
    """
    before = torch.get_num_threads()
    if device.type != "cpu" or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_closed(vertices: torch.Tensor, faces: torch.Tensor) -> bool:
    """Whether every directed edge has its opposite, and every connected part encloses a positive volume."""
    triangles = faces.cpu().numpy()
    if len(boundary_edges(triangles)):
        return False
    count = len(vertices)
    pairs = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]]])
    _, part = connected_components(coo_matrix((np.ones(len(pairs)), pairs.T), shape=(count, count)), directed=False)
    a, b, c = vertices.detach().cpu().double()[torch.from_numpy(triangles)].unbind(1)
    six_volumes = (a * torch.linalg.cross(b, c)).sum(-1).numpy()
    return bool((np.bincount(part[triangles[:, 0]], six_volumes)[np.unique(part[triangles])] > 0).all())


def _level(rotation: torch.Tensor) -> torch.Tensor:
    """Return a camera's rotation without its pitch: rows right, up, forwards, (3, 3)."""
    right, up = rotation[0].float(), torch.tensor([0.0, 1.0, 0.0])
    return torch.stack([right, up, torch.linalg.cross(up, right)])


def _interpolate(table: torch.Tensor, corners: torch.Tensor, barycentric: torch.Tensor) -> torch.Tensor:
    """Mix rows of a table (P, C) by the weights of three corners (N, 3), (N, C)."""
    mixed = table.index_select(0, corners[:, 0].contiguous()) * barycentric[:, :1]
    for k in (1, 2):
        mixed = mixed + table.index_select(0, corners[:, k].contiguous()) * barycentric[:, k : k + 1]
    return mixed


def _vertex_normals(vertices: torch.Tensor, faces: torch.Tensor) -> torch.Tensor:
    """Area-weighted normals of posed vertices (B, V, 3), not normalised."""
    a, b, c = (vertices.index_select(1, faces[:, k].contiguous()) for k in range(3))
    normal = torch.linalg.cross(b - a, c - a)
    total = torch.zeros_like(vertices)
    for k in range(3):
        total.index_add_(1, faces[:, k].contiguous(), normal)
    return total
