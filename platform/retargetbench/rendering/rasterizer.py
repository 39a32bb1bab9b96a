"""Which face of a mesh is seen at which sample of a picture: a z-buffer by tensor operations alone.

Triangles are cut into spans, the rows that they cover, and spans into samples, so that only covered samples are ever
looked at. Two triangles that share an edge compute its place in a row from the same numbers in the same order, so
every sample belongs to exactly one of them: there are neither cracks nor overlaps. A sample is covered if its centre
is, where left and upper borders belong to a triangle and right and lower ones do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from retargetbench.rendering.cameras import Camera

_NUMBER_BITS = 32
"""A key of the z-buffer is the bits of the inverse depth above this bit and the number of the triangle below it."""


class Fragments(NamedTuple):
    """What is seen, one entry for each of N covered samples.

    Attributes:
        sample: where, (N,) int64, ascending: ``(image · height + row) · width + column``.
        face: which face, (N,) int64.
        barycentric: weights of the face's corners, exact in perspective, (N, 3); they sum to 1.
        depth: (N,) metres.
        is_front: whether the face is seen from the side on which its corners run counter-clockwise, (N,) bool.
    """

    sample: torch.Tensor
    face: torch.Tensor
    barycentric: torch.Tensor
    depth: torch.Tensor
    is_front: torch.Tensor


class _Spans(NamedTuple):
    """Rows of triangles, R of them.

    Attributes:
        triangle: (R,) int64.
        row: (R,) int64.
        start: the first column, (R,) int64.
        length: how many columns, possibly none, (R,) int64.
    """

    triangle: torch.Tensor
    row: torch.Tensor
    start: torch.Tensor
    length: torch.Tensor


class _Triangles(NamedTuple):
    """M triangles on the screen.

    Attributes:
        x: columns of the corners in samples, (M, 3).
        y: rows of the corners in samples, (M, 3).
        inverse_depth: of the corners, (M, 3) per metre.
        face: the face that each is, or is a part of, (M,) int64.
        image: (M,) int64.
        weights: corners as weights of the face's corners, (M, 3, 3); None where every triangle is a whole face.
    """

    x: torch.Tensor
    y: torch.Tensor
    inverse_depth: torch.Tensor
    face: torch.Tensor
    image: torch.Tensor
    weights: torch.Tensor | None

    def take(self, number: torch.Tensor) -> _Triangles:
        """Return some of the triangles, (m,)."""
        weights = self.weights if self.weights is None else self.weights[number]
        x, y, inverse_depth, face, image = (each.index_select(0, number) for each in self[:5])
        return _Triangles(x, y, inverse_depth, face, image, weights)


def rasterize(
    vertices: torch.Tensor, faces: torch.Tensor, camera: Camera, width: int, height: int, *, one_sided: bool = False
) -> Fragments:
    """Find the nearest face at the centre of every sample of B images.

    What is nearer than the camera's near plane is cut off. On a CPU the same input gives the same bits.

    Args:
        vertices: vertices in the world by image, (B, V, 3) metres.
        faces: (F, 3) int64.
        camera: of all images.
        width: samples in a row.
        height: rows.
        one_sided: leave out faces whose corners run clockwise; on a closed surface seen from outside that saves time
            and makes no holes.
    """
    triangles = _to_screen(camera.to_view(vertices.float()), faces, camera, width, height)
    if one_sided:
        triangles = triangles.take((_doubled_area(triangles.x, triangles.y) < 0).nonzero()[:, 0])
    spans = _find_spans(triangles.x, triangles.y, width, height)
    # Inverse depth is linear on the screen. It is limited to what the corners have, since the slopes of slivers are
    # mostly rounding.
    along_row, along_column = _slopes(triangles)
    q = triangles.inverse_depth
    plane = torch.stack([triangles.x[:, 0], triangles.y[:, 0], q[:, 0], along_row, along_column], -1)
    x, y, q_corner, step, q_down = plane.index_select(0, spans.triangle).unbind(-1)
    q_start = q_corner + (spans.start + 0.5 - x) * step + (spans.row + 0.5 - y) * q_down
    limits = torch.stack([q.amin(1), q.amax(1)], -1).index_select(0, spans.triangle)
    span, column = _expand(spans.length)
    of_span = torch.cat([torch.stack([q_start, step], -1), limits], -1).index_select(0, span)
    inverse_depth = (of_span[:, 0] + column * of_span[:, 1]).clamp(of_span[:, 2], of_span[:, 3])
    place = (triangles.image.index_select(0, spans.triangle) * height + spans.row) * width + spans.start
    sample = place.index_select(0, span) + column
    # Positive floats are ordered as their bits are; at equal depth the later triangle wins.
    key = inverse_depth.view(torch.int32).long() << _NUMBER_BITS
    key |= spans.triangle.index_select(0, span)
    nearest = key.new_zeros(len(vertices) * height * width).scatter_reduce_(0, sample, key, "amax")
    seen = nearest.nonzero()[:, 0]
    return _describe(triangles, seen, nearest[seen] & ((1 << _NUMBER_BITS) - 1), width, height)


def find_covered(points: torch.Tensor, faces: torch.Tensor, width: int, height: int) -> torch.Tensor:
    """Find the samples that any face covers, (B, height, width) bool.

    Args:
        points: vertices by image, (B, V, 2): column and row in samples.
        faces: (F, 3) int64.
        width: samples in a row.
        height: rows.
    """
    corners = points[:, faces]
    x, y = corners.reshape(-1, 3, 2).unbind(-1)
    spans = _find_spans(x, y, width, height)
    image = torch.div(spans.triangle, max(1, len(faces)), rounding_mode="floor")
    span, column = _expand(spans.length)
    place = (image * height + spans.row) * width + spans.start
    covered = torch.zeros(len(points) * height * width, dtype=torch.bool, device=points.device)
    covered[place.index_select(0, span) + column] = True
    return covered.view(len(points), height, width)


def _to_screen(view: torch.Tensor, faces: torch.Tensor, camera: Camera, width: int, height: int) -> _Triangles:
    """Project the faces of vertices in view space (B, V, 3); cut off what is nearer than the near plane."""
    is_near = view[..., 2] < camera.near
    images, count = len(view), len(faces)
    face = torch.arange(count, device=view.device).repeat(images)
    image = torch.arange(images, device=view.device).repeat_interleave(count)
    focal, half = camera.focal(height), view.new_tensor([0.5 * width, 0.5 * height])

    def project(points: torch.Tensor) -> torch.Tensor:
        inverse = 1 / points[..., 2:]
        scaled = points[..., :2] * (focal * inverse)
        return torch.cat([half[0] + scaled[..., :1], half[1] - scaled[..., 1:], inverse], -1)

    if not bool(is_near.any()):
        on_screen = project(view).movedim(-1, 0).contiguous()  # gathering is slow from anything that is not contiguous
        x, y, inverse_depth = on_screen[:, :, faces].view(3, -1, 3)
        return _Triangles(x, y, inverse_depth, face, image, None)
    near_corners = is_near[:, faces].reshape(-1, 3)
    whole = (~near_corners.any(1)).nonzero()[:, 0]
    cut = (near_corners.any(1) & ~near_corners.all(1)).nonzero()[:, 0]
    corners = view[:, faces].reshape(-1, 3, 3)
    part_of, weights = _clip(corners[cut, :, 2], near_corners[cut], camera.near)
    parts = weights @ corners[cut[part_of]]
    parts[..., 2].clamp_(min=camera.near)  # rounding
    chosen = torch.cat([whole, cut[part_of]])
    all_weights = torch.cat([torch.eye(3, device=view.device).expand(len(whole), 3, 3), weights])
    x, y, inverse_depth = project(torch.cat([corners[whole], parts])).movedim(-1, 0).contiguous()
    return _Triangles(x, y, inverse_depth, face[chosen], image[chosen], all_weights)


def _clip(depth: torch.Tensor, is_near: torch.Tensor, near: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut triangles with one or two corners before the near plane.

    Args:
        depth: of the corners, (K, 3).
        is_near: which corners are to be cut off, (K, 3) bool.
        near: depth of the plane.

    Returns:
        For each part the triangle that it is of, and its corners as weights of that triangle's, (P,) and (P, 3, 3);
        the sense of rotation stays.
    """
    one_near = is_near.sum(1) == 1
    # The corner that stands alone on its side comes first.
    alone = torch.where(one_near[:, None], is_near, ~is_near).int().argmax(1)
    order = (alone[:, None] + torch.arange(3, device=depth.device)) % 3
    corners = torch.eye(3, device=depth.device)[order]
    depths = depth.gather(1, order)

    def cut_to(k: int) -> torch.Tensor:
        share = ((near - depths[:, 0]) / (depths[:, k] - depths[:, 0]))[:, None]
        return (1 - share) * corners[:, 0] + share * corners[:, k]

    second, third = cut_to(1), cut_to(2)
    tip = (~one_near).nonzero()[:, 0]
    base = one_near.nonzero()[:, 0]
    weights = [
        torch.stack([corners[tip, 0], second[tip], third[tip]], 1),
        torch.stack([second[base], corners[base, 1], corners[base, 2]], 1),
        torch.stack([second[base], corners[base, 2], third[base]], 1),
    ]
    return torch.cat([tip, base, base]), torch.cat(weights)


def _find_spans(x: torch.Tensor, y: torch.Tensor, width: int, height: int) -> _Spans:
    """Find the rows of triangles with corners x, y (M, 3), and in each the columns whose centres are inside."""
    y, order = y.sort(1)
    x = x.gather(1, order)
    top, middle, bottom = y.unbind(1)
    slopes = (x[:, [2, 1, 2]] - x[:, [0, 0, 1]]) / (y[:, [2, 1, 2]] - y[:, [0, 0, 1]])
    first_row = (top - 0.5).ceil().clamp(0, height).long()
    row_count = (bottom - 0.5).ceil().clamp(0, height).long() - first_row
    triangle, below = _expand(row_count)
    table = torch.cat([top[:, None], middle[:, None], x[:, :2], slopes], 1).index_select(0, triangle)
    at_top, at_middle, x_top, x_middle, long_edge, upper_edge, lower_edge = table.unbind(1)
    row = first_row.index_select(0, triangle) + below
    centre = row + 0.5
    down = centre - at_top
    # Each edge is followed from its upper end, by both of its triangles. Level edges have no rows; what their
    # infinite slopes give is never chosen.
    one = x_top + down * long_edge
    other = torch.where(centre < at_middle, x_top + down * upper_edge, x_middle + (centre - at_middle) * lower_edge)
    start = (torch.minimum(one, other) - 0.5).ceil().clamp(0, width).long()
    count = (torch.maximum(one, other) - 0.5).ceil().clamp(0, width).long() - start
    return _Spans(triangle, row, start, count)


def _expand(count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Count through things that have several parts each: (0, 0), (0, 1), …, (1, 0), …; two tensors (sum of count,)."""
    owner = torch.repeat_interleave(count)
    before = count.cumsum(0) - count
    return owner, torch.arange(len(owner), device=count.device) - before.index_select(0, owner)


def _doubled_area(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return twice the area of triangles (M, 3), negative where the corners run counter-clockwise for the eye, (M,)."""
    x, y = x - x[:, :1], y - y[:, :1]
    return x[:, 1] * y[:, 2] - x[:, 2] * y[:, 1]


def _slopes(triangles: _Triangles) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how inverse depth grows along rows and along columns, (M,) each; 0 where a triangle has no area."""
    (x1, x2), (y1, y2), (q1, q2) = ((each - each[:, :1])[:, 1:].unbind(1) for each in triangles[:3])
    area = x1 * y2 - x2 * y1
    along_row, along_column = (q1 * y2 - q2 * y1) / area, (x1 * q2 - x2 * q1) / area
    return along_row.nan_to_num(0, 0, 0), along_column.nan_to_num(0, 0, 0)


def _describe(triangles: _Triangles, sample: torch.Tensor, number: torch.Tensor, width: int, height: int) -> Fragments:
    """Say what is seen of triangle ``number`` at ``sample``."""
    x, y, q = (each.index_select(0, number) for each in triangles[:3])
    column = sample % width + 0.5 - x[:, 0]
    row = torch.div(sample, width, rounding_mode="floor") % height + 0.5 - y[:, 0]
    x, y = x - x[:, :1], y - y[:, :1]
    area = x[:, 1] * y[:, 2] - x[:, 2] * y[:, 1]
    second = (column * y[:, 2] - x[:, 2] * row) / area
    third = (x[:, 1] * row - column * y[:, 1]) / area
    on_screen = torch.stack([1 - second - third, second, third], -1).clamp(0, 1) * q
    inverse_depth = on_screen.sum(-1, keepdim=True)
    barycentric = on_screen / inverse_depth
    if triangles.weights is not None:
        barycentric = (barycentric[:, None] @ triangles.weights[number])[:, 0]
    # Rows run downwards, so what is counter-clockwise has a negative area.
    return Fragments(sample, triangles.face[number], barycentric, on_screen.sum(-1).reciprocal(), is_front=area < 0)
