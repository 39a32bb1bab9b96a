"""The floor y = 0 behind the meshes: a grid that fades into the distance, and the shadow of what stands on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from retargetbench.rendering.rasterizer import find_covered

if TYPE_CHECKING:
    from retargetbench.rendering.cameras import Camera

_SKY, _HORIZON, _GROUND = (0.955, 0.96, 0.965), (0.90, 0.905, 0.91), (0.84, 0.845, 0.85)
_LINE_SHADE = 0.90
"""Brightness of the grid's lines against the floor between them."""

_CELL = 0.5
_LINE_WIDTH = 0.008
"""Of the grid, metres."""

_SHADOW_SHADE = 0.56
_CONTACT_SHADE = 0.62
_CONTACT_HEIGHT = 0.06
"""Besides the shadow, the floor darkens below what is not farther above it than about this, metres."""

_SHADOW_TEXELS = 160
_SHADOW_BLUR = 1.6
_CONTACT_BLUR = 3.0
"""The shadow is drawn on a map with this many texels along its longer side, and blurred by so many."""


class Floor:
    """What is behind the meshes in every image of one size and camera.

    Args:
        camera: of all images.
        width: pixels in a row.
        height: rows.
        light: direction to the light, (3,).
        device: where to draw.
    """

    def __init__(self, camera: Camera, width: int, height: int, light: torch.Tensor, *, device: torch.device) -> None:
        rays = camera.pixel_rays(width, height).to(device)
        eye = camera.eye.to(device, torch.float32)
        self.is_visible = bool(eye[1] > 0) and bool((rays[..., 1] < 0).any())
        """Whether the floor is in view; a camera below it sees none."""
        sky, horizon = rays.new_tensor(_SKY), rays.new_tensor(_HORIZON)
        climb = torch.linspace(1, 0, height, device=device)[:, None, None].expand(height, width, 1)
        self._base = torch.lerp(horizon.expand(height, width, 3), sky.expand(height, width, 3), climb).reshape(-1, 3)
        self._light = light.to(device)
        self._size = (height, width)
        if not self.is_visible:
            return
        depth = torch.where(rays[..., 1] < -1e-6, -eye[1] / rays[..., 1], torch.inf)
        nearest = depth.min()
        fade = ((3.2 - depth / nearest) / 2.0).clamp(0, 1)
        fade = fade * fade * (3 - 2 * fade)
        self._pixels = (fade.reshape(-1) > 0).nonzero()[:, 0]
        points = (eye + depth.nan_to_num(posinf=1e6)[..., None] * rays)[..., [0, 2]]
        # How far neighbouring pixels are apart on the floor, for lines without stairs.
        down, across = (torch.gradient(points, dim=k)[0].abs() for k in (0, 1))
        self._footprint = (down + across).reshape(-1, 2)[self._pixels].clamp_min(1e-6)
        self._points = points.reshape(-1, 2)[self._pixels]
        self._fade = fade.reshape(-1)[self._pixels]
        self._plain = self._with_grid(eye.new_zeros(2))

    def draw(self, vertices: torch.Tensor, faces: torch.Tensor, origin: torch.Tensor | None) -> torch.Tensor:
        """Draw what is behind meshes.

        Args:
            vertices: (B, V, 3) metres.
            faces: (F, 3) int64.
            origin: origin of the grid by image, (B, 3) metres; None is 0.

        Returns:
            (B, height · width, 3), from 0 to 1.
        """
        images = len(vertices)
        if not self.is_visible:
            return self._base.expand(images, -1, -1)
        if origin is None:
            ground = self._plain.expand(images, -1, -1)
        else:
            ground = torch.stack([self._with_grid(each) for each in origin.to(self._points)[:, [0, 2]]])
        background = self._base.repeat(images, 1, 1)
        darkness = torch.stack([self._darkness(mesh, faces) for mesh in vertices])
        background[:, self._pixels] = ground * (1 - (1 - darkness) * self._fade)[..., None]
        return background

    def _with_grid(self, origin: torch.Tensor) -> torch.Tensor:
        """Colours of the floor's pixels with a grid of an origin (2,), without shadow."""
        off = (self._points - origin + 0.5 * _CELL) % _CELL - 0.5 * _CELL
        covered = ((0.5 * (_LINE_WIDTH + self._footprint) - off.abs()) / self._footprint).clamp(0, 1)
        # Lines that are thinner than a pixel get fainter instead of thicker, and vanish where cells are a few pixels.
        fainter = (_LINE_WIDTH / self._footprint).clamp(0.35, 1) * (1.5 - 4 * self._footprint / _CELL).clamp(0, 1)
        shade = 1 - (1 - _LINE_SHADE) * (covered * fainter).amax(1)
        ground = shade[:, None] * self._points.new_tensor(_GROUND)
        return torch.lerp(self._base[self._pixels], ground, self._fade[:, None])

    def _darkness(self, mesh: torch.Tensor, faces: torch.Tensor) -> torch.Tensor:
        """Brightness that the shadow of a mesh (V, 3) leaves to each of the floor's pixels, (N,)."""
        height = mesh[:, 1:2].clamp_min(0)
        cast = mesh[:, [0, 2]] - height / self._light[1] * self._light[[0, 2]]
        both = torch.cat([cast, mesh[:, [0, 2]]])
        low, high = both.amin(0), both.amax(0)
        texel = (high - low).max().clamp_min(1e-3) / _SHADOW_TEXELS
        border = 4 * _CONTACT_BLUR
        corner = low - border * texel
        size = ((high - low) / texel + 2 * border).ceil().long() + 1
        columns, rows = (int(each) for each in size)
        shadow = find_covered(((cast - corner) / texel)[None], faces, columns, rows)[0].float()
        place = ((mesh[:, [0, 2]] - corner) / texel).long()
        closeness = torch.exp(-height[:, 0] / _CONTACT_HEIGHT)
        contact = torch.zeros(rows * columns, device=mesh.device)
        contact.scatter_reduce_(0, place[:, 1] * columns + place[:, 0], closeness, "amax")
        below = 2 * _blur(contact.view(rows, columns), _CONTACT_BLUR)
        maps = torch.stack([_blur(shadow, _SHADOW_BLUR), below]).clamp(0, 1)
        shades = maps.new_tensor([_SHADOW_SHADE, _CONTACT_SHADE])
        brightness = (1 - (1 - shades[:, None, None]) * maps).prod(0)
        at = (self._points - corner) / (texel * size.to(mesh)) * 2 - 1
        within = (at.abs() < 1).all(1).nonzero()[:, 0]
        left = torch.ones(len(at), device=mesh.device)
        sampled = torch.nn.functional.grid_sample(
            brightness[None, None], at[within][None, None], padding_mode="border", align_corners=False
        )
        left[within] = sampled.view(-1)
        return left


def _blur(image: torch.Tensor, sigma: float) -> torch.Tensor:
    """Blur an image (rows, columns) by a Gaussian of ``sigma`` texels."""
    reach = int(3 * sigma + 0.5)
    steps = torch.arange(-reach, reach + 1, device=image.device)
    kernel = torch.exp(-0.5 * (steps / sigma) ** 2)
    kernel = (kernel / kernel.sum())[None, None, None]
    blurred = torch.nn.functional.conv2d(image[None, None], kernel, padding=(0, reach))
    return torch.nn.functional.conv2d(blurred, kernel.mT, padding=(reach, 0))[0, 0]
