"""The winding number with warp: one walk through a bounding volume hierarchy per point (extra ``fast``).

Same rules as `retargetbench.mesh.winding`, where they are explained, and the same results. Runs on the CPU (one
thread) and is written for CUDA, where it has not been run yet.
"""

# Annotations of kernels are warp's types, which mypy cannot read, and warp's functions are typed in part only.
# mypy: disable-error-code="arg-type, no-any-return, no-untyped-call, valid-type"

from __future__ import annotations

import functools
import os
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch
import warp as wp

if TYPE_CHECKING:
    from collections.abc import Iterator

wp.set_module_options({"enable_backward": False})

_LEAF_SIZE = 4
"""Faces in a leaf of the hierarchy; the default of 1 makes refitting half as slow again and queries no faster."""


def supports(device: torch.device) -> bool:
    """Return whether warp can work on tensors of this device."""
    _initialise()
    return device.type == "cpu" or (device.type == "cuda" and bool(wp.is_cuda_available()))


def winding_number_warp(vertices: torch.Tensor, faces: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Compute winding numbers (B, M) int32 from float32 vertices (B, N, 3), faces (F, 3) and points (B, M, 3).

    No axis may be empty.
    """
    _initialise()
    winding = torch.zeros(points.shape[:2], dtype=torch.int32, device=points.device)
    vertices, points = vertices.contiguous(), points.contiguous()
    posed = vertices[0].clone()
    tops = vertices[..., 2].amax(1)
    with _quiet(), _stream_of(vertices.device):
        corners = wp.from_torch(faces.int().contiguous().view(-1))
        arrays = [wp.from_torch(posed, dtype=wp.vec3), corners, wp.from_torch(points, dtype=wp.vec3)]
        mesh = wp.Mesh(points=arrays[0], indices=corners, bvh_leaf_size=_LEAF_SIZE)
        for frame in range(len(vertices)):
            # One hierarchy follows the surface through all frames: its shape is kept, its boxes are refitted.
            posed.copy_(vertices[frame])
            mesh.refit()
            wp.launch(
                _add_crossings,
                dim=points.shape[1],
                inputs=[mesh.id, *arrays, wp.from_torch(tops), frame],
                outputs=[wp.from_torch(winding)],
                device=arrays[0].device,
            )
    return winding


@functools.cache
def _initialise() -> None:
    """Start warp without a word."""
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if not torch.cuda.is_available():
            # Warp's native code (1.19) reports a missing CUDA driver straight to the error stream.
            stack.enter_context(_error_stream_closed())
        wp.init()


@contextmanager
def _error_stream_closed() -> Iterator[None]:
    """Drop what is written to file descriptor 2."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep warp from printing what it compiles and loads."""
    # Newer releases have `log_level` in place of `quiet`.
    name, value = ("log_level", wp.LOG_WARNING) if hasattr(wp.config, "log_level") else ("quiet", True)
    before = getattr(wp.config, name)
    setattr(wp.config, name, value)
    try:
        yield
    finally:
        setattr(wp.config, name, before)


@contextmanager
def _stream_of(device: torch.device) -> Iterator[None]:
    """Let warp work in torch's order of execution."""
    if device.type != "cuda":
        yield
        return
    with wp.ScopedStream(wp.stream_from_torch(torch.cuda.current_stream(device))):
        yield


@wp.func
def _edge(ax: wp.float64, ay: wp.float64, bx: wp.float64, by: wp.float64) -> wp.float64:
    # Products of differences of float32 numbers are exact in float64, with or without fused multiply-add.
    return ax * by - ay * bx


@wp.func
def _is_left(edge: wp.float64, ax: wp.float64, ay: wp.float64, bx: wp.float64, by: wp.float64) -> bool:
    if edge != wp.float64(0.0):
        return edge > wp.float64(0.0)
    if by != ay:
        return by < ay
    return bx > ax


@wp.kernel
def _add_crossings(
    mesh: wp.uint64,
    vertices: wp.array(dtype=wp.vec3),
    corners: wp.array(dtype=wp.int32),
    points: wp.array2d(dtype=wp.vec3),
    tops: wp.array(dtype=float),
    frame: int,
    winding: wp.array2d(dtype=wp.int32),
) -> None:
    i = wp.tid()
    p = points[frame, i]
    if p[2] >= tops[frame]:
        return
    px = wp.float64(p[0])
    py = wp.float64(p[1])
    pz = wp.float64(p[2])
    # Faces whose box meets the segment from the point up to the top of the mesh.
    query = wp.mesh_query_aabb(mesh, p, wp.vec3(p[0], p[1], tops[frame]))
    face = wp.int32(0)
    total = wp.int32(0)
    while wp.mesh_query_aabb_next(query, face):
        a = vertices[corners[3 * face]]
        b = vertices[corners[3 * face + 1]]
        c = vertices[corners[3 * face + 2]]
        ax = wp.float64(a[0]) - px
        ay = wp.float64(a[1]) - py
        bx = wp.float64(b[0]) - px
        by = wp.float64(b[1]) - py
        cx = wp.float64(c[0]) - px
        cy = wp.float64(c[1]) - py
        ab = _edge(ax, ay, bx, by)
        bc = _edge(bx, by, cx, cy)
        ca = _edge(cx, cy, ax, ay)
        front = _is_left(ab, ax, ay, bx, by)
        if _is_left(bc, bx, by, cx, cy) == front and _is_left(ca, cx, cy, ax, ay) == front:
            height = bc * (wp.float64(a[2]) - pz) + ca * (wp.float64(b[2]) - pz) + ab * (wp.float64(c[2]) - pz)
            if front and height > wp.float64(0.0):
                total += 1
            if not front and height < wp.float64(0.0):
                total -= 1
    winding[frame, i] = total
