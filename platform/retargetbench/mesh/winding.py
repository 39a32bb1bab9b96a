"""Winding number of closed triangle meshes at points: an exact inside test, batched over frames.

The winding number of a closed surface at a point is an integer: 0 outside, 1 inside, 2 or more where parts of the
surface overlap. It is the signed number of faces that the ray from the point along +z crosses: +1 where the ray
leaves through a front face, -1 where it enters through a back face.

Whether the ray meets a face is decided in the xy plane by the signs of three edge functions. For float32 positions
these are products of two 25-bit differences, so float64 gives their signs without error, and a ray that passes
exactly through a vertex or an edge is decided as if the point were moved by (ε, ε²): no ray slips between two
neighbours and none is counted twice. Only the comparison of heights rounds, by about 1e-16 relative; it matters for
points on the surface itself.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch

from retargetbench.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

WindingBackend = Literal["auto", "torch", "warp"]
"""``warp`` is faster and needs warp-lang; ``auto`` takes it where it can be used. The results are the same."""

_FACES_AT_ONCE_CPU = 2**17
_FACES_AT_ONCE_GPU = 2**21
"""Faces times frames worked on together: on a CPU what stays in its caches, on a GPU enough to fill it."""


def winding_number(
    vertices: torch.Tensor, faces: torch.Tensor, points: torch.Tensor, *, backend: WindingBackend = "auto"
) -> torch.Tensor:
    """Compute the winding number of a closed mesh at points.

    Positions are taken in float32. The result does not depend on how frames are batched, nor on the backend; memory
    stays bounded however many frames there are.

    Args:
        vertices: mesh vertices by frame, (..., N, 3).
        faces: triangles, counter-clockwise seen from outside, (F, 3) int64. Every directed edge must have its
            opposite (see `retargetbench.mesh.closing`); on an open mesh the result has no meaning.
        points: query points by frame, (..., M, 3), with the leading axes of ``vertices``.
        backend: "torch", "warp" or "auto".

    Returns:
        Winding numbers, (..., M) int32. A point on the surface gets the number of one of its sides.

    Raises:
        UsageError: shapes do not fit, or the backend is unknown.
        MissingExtraError: backend "warp" is asked for and warp-lang is not installed.

    Source:
        Signed ray crossings; ties as in simulation of simplicity (Edelsbrunner and Mücke 1990), which in the plane
        is the top-left rule of rasterisers.

    Example:
        >>> corners = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
        >>> faces = torch.tensor([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
        >>> winding_number(corners, faces, torch.tensor([[0.1, 0.1, 0.1], [1.0, 1.0, 1.0]]), backend="torch")
        tensor([1, 0], dtype=torch.int32)
    """
    batch = vertices.shape[:-2]
    if vertices.shape[-1] != 3 or points.shape[-1] != 3 or points.shape[:-2] != batch:
        raise UsageError(
            f"winding_number needs vertices (..., N, 3) and points (..., M, 3) with the same leading axes, got "
            f"{tuple(vertices.shape)} and {tuple(points.shape)}"
        )
    if faces.ndim != 2 or faces.shape[1] != 3:
        raise UsageError(f"winding_number needs faces (F, 3), got {tuple(faces.shape)}")
    chosen = _choose_backend(backend, vertices.device)
    if points.numel() == 0 or len(faces) == 0:
        return torch.zeros(points.shape[:-1], dtype=torch.int32, device=points.device)
    flat_vertices = vertices.detach().float().reshape(-1, *vertices.shape[-2:])
    flat_points = points.detach().float().reshape(-1, *points.shape[-2:])
    if chosen == "warp":
        from retargetbench.mesh.winding_warp import winding_number_warp

        return winding_number_warp(flat_vertices, faces, flat_points).view(points.shape[:-1])
    winding = torch.empty(flat_points.shape[:2], dtype=torch.int32, device=points.device)
    corners = faces.T.contiguous()
    for part in frame_chunks(len(flat_vertices), len(faces), vertices.device):
        winding[part] = _winding_of_frames(flat_vertices[part], corners, flat_points[part])
    return winding.view(points.shape[:-1])


def frame_chunks(frame_count: int, face_count: int, device: torch.device) -> Iterator[slice]:
    """Cut frames into runs that are worked on together, short enough that memory stays bounded."""
    at_once = _FACES_AT_ONCE_CPU if device.type == "cpu" else _FACES_AT_ONCE_GPU
    step = max(1, at_once // max(1, face_count))
    return (slice(start, min(start + step, frame_count)) for start in range(0, frame_count, step))


def _choose_backend(backend: WindingBackend, device: torch.device) -> Literal["torch", "warp"]:
    """Resolve "auto" and refuse what cannot work."""
    if backend not in get_args(WindingBackend):
        raise UsageError(f"winding backend {backend!r} is not one of: {', '.join(get_args(WindingBackend))}")
    if backend == "torch":
        return "torch"
    if importlib.util.find_spec("warp") is None:
        if backend == "warp":
            raise MissingExtraError("warp-lang", "fast", "the winding backend 'warp'")
        return "torch"
    from retargetbench.mesh.winding_warp import supports

    if supports(device):
        return "warp"
    if backend == "warp":
        raise UsageError(f"warp-lang cannot use the device {device}; use the winding backend 'torch' or 'auto'")
    return "torch"


class _Grid(NamedTuple):
    """Query points of B frames sorted into the cells of one xy grid per frame; the outer cells hold no point.

    Attributes:
        size: cells along one side without the outer ones, R.
        vertex_cells: cell numbers 0..R+1 of the mesh vertices along x and y, (N, 2, B) int16.
        points: of the sorted points, place in the flattened (B, M) queries, (Q,).
        first: by cell (frame, row, column) the number of sorted points before it, (B·(R+2)² + 1,).
    """

    size: int
    vertex_cells: torch.Tensor
    points: torch.Tensor
    first: torch.Tensor


def _winding_of_frames(vertices: torch.Tensor, corners: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Compute winding numbers (B, M) from vertices (B, N, 3), face corners (3, F) and points (B, M, 3)."""
    mesh = vertices.permute(2, 0, 1).contiguous()
    query = points.permute(2, 0, 1).contiguous()
    winding = torch.zeros(query[0].numel(), dtype=torch.int32, device=points.device)
    low, high = mesh.amin(2, keepdim=True), mesh.amax(2, keepdim=True)
    near = ((query >= low) & (query < high)).all(0)
    if bool(near.any()):
        grid = _sort_into_cells(mesh, query, near, size=max(8, int(corners.shape[1] ** 0.5)))
        face, frame, point = _candidate_pairs(grid, corners, frames=len(vertices))
        _add_crossings(winding, mesh, query, corners.index_select(1, face) + frame * vertices.shape[1], point)
    return winding.view(query.shape[1:])


def _sort_into_cells(mesh: torch.Tensor, query: torch.Tensor, near: torch.Tensor, size: int) -> _Grid:
    """Lay a grid over the near points of each frame and sort them into it."""
    frames = query.shape[1]
    infinity = torch.full_like(query[:2], torch.inf)
    low = torch.where(near, query[:2], infinity).amin(2, keepdim=True)
    high = torch.where(near, query[:2], -infinity).amax(2, keepdim=True)
    # Half a cell of slack keeps the last points out of the outer cells; those catch all that lies beyond.
    scale = (size - 0.5) / (high - low).clamp_min(1e-6)

    def cells(positions: torch.Tensor) -> torch.Tensor:
        # Rounding is monotone, so a point inside a face's xy box is in a cell between its corners' cells.
        return ((positions - low) * scale).add_(1).clamp_(0, size + 1).to(torch.int16)

    side = size + 2
    column, row = cells(query[:2]).int()
    frame = torch.arange(frames, device=query.device, dtype=torch.int32)[:, None]
    places = near.flatten().nonzero()[:, 0]
    cell, order = ((frame * side + row) * side + column).flatten().index_select(0, places).sort()
    first = torch.zeros(frames * side * side + 1, dtype=torch.int64, device=query.device)
    torch.cumsum(torch.bincount(cell, minlength=frames * side * side), 0, out=first[1:])
    return _Grid(size, cells(mesh[:2]).permute(2, 0, 1).contiguous(), places.index_select(0, order), first)


def _candidate_pairs(
    grid: _Grid, corners: torch.Tensor, frames: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """List pairs of a face and a point whose cell the face's xy box touches.

    Returns:
        Face and frame of each pair and its point as place in the flattened (B, M) queries, each (K,).
    """
    side = grid.size + 2
    # A gathered row holds a vertex in all frames, so the gather copies runs of memory.
    a, b, c = (grid.vertex_cells.index_select(0, corner) for corner in corners)
    lowest = torch.minimum(torch.minimum(a, b), c)
    highest = torch.maximum(torch.maximum(a, b), c)
    within = (highest > 0) & (lowest <= grid.size)
    face, frame = (within[:, 0] & within[:, 1]).nonzero(as_tuple=True)
    place = face * (2 * frames) + frame
    left, bottom = (lowest.view(-1).index_select(0, place + k * frames).long() for k in (0, 1))
    right, top = (highest.view(-1).index_select(0, place + k * frames).long() for k in (0, 1))

    # Summed areas count the points in each face's rectangle of cells; most faces have none.
    counts = grid.first.diff().view(frames, side, side)
    sums = torch.nn.functional.pad(counts.cumsum(1).cumsum(2), (1, 0, 1, 0)).flatten()
    above = (frame * (side + 1) + top + 1) * (side + 1)
    below = (frame * (side + 1) + bottom) * (side + 1)
    held = sums.index_select(0, above + right + 1) - sums.index_select(0, above + left)
    held += sums.index_select(0, below + left) - sums.index_select(0, below + right + 1)
    kept = held.nonzero()[:, 0]
    face, frame, left, right, bottom, top = (x.index_select(0, kept) for x in (face, frame, left, right, bottom, top))

    # In one row of cells the points of a rectangle are one run of the sorted points.
    of_row, step = _runs(top - bottom + 1)
    row = ((frame * side + bottom).index_select(0, of_row) + step) * side
    start = grid.first.index_select(0, row + left.index_select(0, of_row))
    stop = grid.first.index_select(0, row + right.index_select(0, of_row) + 1)
    of_pair, step = _runs(stop - start)
    chosen = of_row.index_select(0, of_pair)
    point = grid.points.index_select(0, start.index_select(0, of_pair) + step)
    return face.index_select(0, chosen), frame.index_select(0, chosen), point


def _runs(lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Number the members of runs of these lengths: the run of each member, and its place in the run."""
    run = torch.repeat_interleave(lengths)
    before = lengths.cumsum(0) - lengths
    return run, torch.arange(len(run), device=run.device) - before.index_select(0, run)


def _add_crossings(
    winding: torch.Tensor, mesh: torch.Tensor, query: torch.Tensor, corners: torch.Tensor, point: torch.Tensor
) -> None:
    """Add to ``winding`` the sign of each pair whose face lies straight above its point.

    Args:
        winding: flattened (B, M), changed in place. Integers, so the order of the additions does not matter.
        mesh: (3, B, N).
        query: (3, B, M).
        corners: of each pair the corners as places in the flattened (B, N), (3, K).
        point: of each pair the place in the flattened (B, M), (K,).
    """
    x, y = (_relative(mesh[k], query[k], corners, point) for k in (0, 1))
    edges, sides = zip(*(_edge_side(x[i], y[i], x[j], y[j]) for i, j in ((0, 1), (1, 2), (2, 0))), strict=True)
    over = ((sides[0] == sides[1]) & (sides[1] == sides[2])).nonzero()[:, 0]
    point = point.index_select(0, over)
    z = _relative(mesh[2], query[2], corners.index_select(1, over), point)
    # Height of the face over the point, times twice its signed area in the xy plane.
    height = edges[1][over] * z[0] + edges[2][over] * z[1] + edges[0][over] * z[2]
    front = sides[0][over]
    winding.index_add_(0, point, (front & (height > 0)).int() - (~front & (height < 0)).int())


def _relative(mesh: torch.Tensor, query: torch.Tensor, corners: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    """Gather one coordinate of the corners of pairs relative to their points, (3, K) float64."""
    of_corners = mesh.view(-1).index_select(0, corners.view(-1)).view(3, -1).double()
    return of_corners - query.view(-1).index_select(0, point).double()


def _edge_side(
    ax: torch.Tensor, ay: torch.Tensor, bx: torch.Tensor, by: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the edge function of a → b at the origin, and whether the origin lies to its left.

    Swapping the ends gives exactly the negative, so both faces of an edge agree on the side.
    """
    edge = ax * by - ay * bx
    left = edge > 0
    ties = (edge == 0).nonzero()[:, 0]
    dx, dy = (bx - ax)[ties], (by - ay)[ties]
    left[ties] = torch.where(dy != 0, dy < 0, dx > 0)
    return edge, left
