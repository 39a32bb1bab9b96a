"""The largest distance of chosen points to a triangle mesh, batched over frames and exact."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_FACES_PER_CLUSTER = 64
_POINTS_AT_ONCE = 4

_PAIRS_AT_ONCE_CPU = 2**18
_PAIRS_AT_ONCE_GPU = 2**24
"""Pairs of a point and a cluster worked on together: on a CPU what stays in its caches, on a GPU enough to fill it."""

_SLACK = 1e-5
"""Metres by which a lower bound is lowered, more than float32 rounds at human size."""


@dataclass(frozen=True, eq=False)
class FaceClusters:
    """Faces in groups of neighbours, each of which can be ruled out as a whole.

    Attributes:
        faces: corners of the faces of G clusters of S faces, (G, S, 3) int64; some faces may be repeated.
        members: vertices of each cluster, the one nearest to its middle first, (G, K) int64; some are repeated.
    """

    faces: torch.Tensor
    members: torch.Tensor

    @classmethod
    def from_rest(cls, points: torch.Tensor, faces: torch.Tensor) -> FaceClusters:
        """Group faces (F, 3) by where they are at rest; the grouping serves in any pose, best in similar ones."""
        positions, corners = points.detach().cpu().double(), faces.cpu()
        groups = _halve(torch.arange(len(corners)), positions[corners].mean(1))
        members = []
        for group in groups:
            vertices = torch.unique(corners[group])
            at = positions[vertices]
            members.append(vertices[(at - at.mean(0)).norm(dim=-1).argsort()])
        return cls(corners[_padded(groups)].to(faces.device), _padded(members).to(faces.device))


def _halve(group: torch.Tensor, middles: torch.Tensor) -> list[torch.Tensor]:
    """Split faces at the median of their longest axis until groups are small; their sizes differ by one at most."""
    if len(group) <= _FACES_PER_CLUSTER:
        return [group]
    at = middles[group]
    axis = int((at.amax(0) - at.amin(0)).argmax())
    order = group[at[:, axis].argsort(stable=True)]
    half = len(order) // 2
    return _halve(order[:half], middles) + _halve(order[half:], middles)


def _padded(lists: list[torch.Tensor]) -> torch.Tensor:
    """Stack lists of different length, repeating their first element."""
    width = max(len(entries) for entries in lists)
    return torch.stack([torch.cat([entries, entries[:1].expand(width - len(entries))]) for entries in lists])


def largest_distance(
    vertices: torch.Tensor, clusters: FaceClusters, points: torch.Tensor, chosen: torch.Tensor
) -> torch.Tensor:
    """Find how far the farthest of the chosen points is from the mesh, frame by frame.

    The vertices near a point bound its distance from above. Only points whose bound exceeds the largest distance
    found so far are measured, and only against clusters that may hold their nearest face. Memory stays bounded
    however many frames there are.

    Args:
        vertices: mesh vertices by frame, (B, N, 3) metres.
        clusters: the faces.
        points: (B, M, 3) metres.
        chosen: which points count, (B, M) bool.

    Returns:
        Metres, (B,); 0 in frames without a chosen point.
    """
    largest = vertices.new_zeros(len(vertices))
    counts = chosen.sum(1)
    # Frames with about as many chosen points go together, as each is padded to the longest of its group.
    order = counts.argsort(stable=True)
    order = order[counts[order] > 0]
    pairs_at_once = _PAIRS_AT_ONCE_CPU if vertices.device.type == "cpu" else _PAIRS_AT_ONCE_GPU
    while len(order):
        width = int(counts[order[-1]])
        group = max(1, pairs_at_once // (width * len(clusters.members)))
        order, frames = order[:-group], order[-group:]
        largest[frames] = _largest_of_frames(vertices[frames], clusters, points[frames], chosen[frames], width)
    return largest


def _largest_of_frames(
    vertices: torch.Tensor, clusters: FaceClusters, points: torch.Tensor, chosen: torch.Tensor, width: int
) -> torch.Tensor:
    """Compute `largest_distance` for frames with at most ``width`` chosen points, worked on together."""
    _, picks = chosen.int().topk(width)
    picked = points.gather(1, picks[..., None].expand(-1, -1, 3))
    mesh = vertices.reshape(-1, 3)
    first_vertex = torch.arange(len(vertices), device=vertices.device)[:, None] * vertices.shape[1]
    seeds = _rows(mesh, first_vertex + clusters.members[:, 0])
    members = _rows(mesh, first_vertex[..., None] + clusters.members)
    radii = (members - seeds[:, :, None]).square().sum(-1).amax(-1).sqrt() + _SLACK
    # Rounding of these distances does not matter: any cluster gives a bound, a near one a tight bound.
    bounds, near = torch.cdist(picked, seeds).min(-1)
    bounds = torch.where(chosen.gather(1, picks), bounds + _SLACK, -torch.inf)

    def tighten(frame: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Bound distances by all vertices of the nearest cluster."""
        around = members[frame, near[frame, place]]
        return (around - picked[frame, place][:, None]).square().sum(-1).amin(-1).sqrt()

    def measure(largest: torch.Tensor) -> torch.Tensor:
        """Measure a few points with the largest bounds, and take them out."""
        _, place = bounds.topk(min(_POINTS_AT_ONCE, width), dim=1)
        frame, rank = (bounds.gather(1, place) > largest[:, None]).nonzero(as_tuple=True)
        place = place[frame, rank]
        point, bound = picked[frame, place], tighten(frame, place)
        least = (seeds[frame] - point[:, None]).square().sum(-1).sqrt() - radii[frame]
        pair, cluster = (least <= bound[:, None]).nonzero(as_tuple=True)
        corners = first_vertex[frame[pair], :, None] + clusters.faces[cluster]
        triangles = _rows(mesh, corners).permute(2, 3, 0, 1).contiguous()
        distances = point_triangle_distance(point[pair].T[..., None], triangles).amin(1)
        nearest = torch.full_like(bound, torch.inf).scatter_reduce(0, pair, distances, "amin")
        bounds[frame, place] = -torch.inf
        return largest.scatter_reduce(0, frame, nearest, "amax")

    # The first points rule out most others by a bound that costs little; the rest are worth a tight one.
    largest = measure(vertices.new_zeros(len(vertices)))
    left = (bounds > largest[:, None]).nonzero(as_tuple=True)
    bounds[left] = tighten(*left)
    while bool((bounds > largest[:, None]).any()):
        largest = measure(largest)
    return largest


def point_triangle_distance(points: torch.Tensor, triangles: torch.Tensor) -> torch.Tensor:
    """Compute distances of points (3, ...) to triangles with corners first and coordinates second, (3, 3, ...).

    Over the face it is the distance to its plane, elsewhere to its nearest edge.
    """
    a, b, c = triangles
    normal = _cross(b - a, c - a)
    area = _dot(normal, normal).sqrt()
    sides, squares, lengths = [], [], []
    for start, end in ((a, b), (b, c), (c, a)):
        edge, offset = end - start, points - start
        sides.append(_dot(_cross(edge, offset), normal) >= 0)
        lengths.append(_dot(edge, edge))
        along = (_dot(offset, edge) / lengths[-1].clamp_min(_TINY)).clamp(0, 1)
        rest = offset - along * edge
        squares.append(_dot(rest, rest))
    height = _dot(points - a, normal).abs() / area.clamp_min(_TINY)
    to_edges = torch.minimum(torch.minimum(squares[0], squares[1]), squares[2]).sqrt()
    # The normal of a face that is next to a line is all rounding, and its edges are near wherever one is over it.
    longest = torch.maximum(torch.maximum(lengths[0], lengths[1]), lengths[2])
    has_plane = area > torch.finfo(area.dtype).eps ** 0.5 * longest
    return torch.where(sides[0] & sides[1] & sides[2] & has_plane, height, to_edges)


_TINY = 1e-30


def _rows(mesh: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Gather rows of (B·N, 3) at places of any shape, (..., 3); many times faster than indexing on a CPU."""
    return mesh.index_select(0, places.reshape(-1)).view(*places.shape, 3)


def _dot(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Inner product over the first axis; written out, as short reductions are slow."""
    return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]


def _cross(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Cross product over the first axis."""
    return torch.stack((u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]))
