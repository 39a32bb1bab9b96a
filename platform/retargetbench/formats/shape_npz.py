"""R2ET's shape files: the mesh, skin weights and rest skeleton of a Mixamo character on 22 joints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from retargetbench.formats._npz_arrays import NpzArrays

if TYPE_CHECKING:
    from os import PathLike

MAX_VERTICES = 1_000_000
_MAX_NAME_LENGTH = 100
_LARGEST_COORDINATE = 1e6


@dataclass(frozen=True, eq=False)
class ShapeFile:
    """A shape file in its own units (centimetres in R2ET's files) and axes (Y up, facing +Z, T-pose).

    Attributes:
        name: the character's name as the file has it, or the file's own name.
        joint_names: the 22 joints, without namespace.
        offsets: rest offsets to the parent, (22, 3) file units; row 0 is the rest position of the hips.
        rest_vertices: rest mesh *relative to the hips*, (V, 3) file units; add ``offsets[0]``
            for its place above the ground.
        faces: triangles, (F, 3) int64.
        weights: skin weights as stored, (V, 22): rows may sum to a little less than 1.
    """

    name: str
    joint_names: tuple[str, ...]
    offsets: npt.NDArray[np.float64]
    rest_vertices: npt.NDArray[np.float64]
    faces: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]


def read_shape_npz(path: str | PathLike[str]) -> ShapeFile:
    """Read a shape file; arrays beyond those of `ShapeFile` are not looked at.

    Raises:
        FileFormatError: the archive is damaged or too large, an array is absent or of another shape or dtype, a
            value is not finite, a face names no vertex, or a vertex has no plausible skin weights.

    Source: R2ET (Zhang et al., CVPR 2023), files ``train_shape/*.npz`` and ``test_shape/*.npz`` of its public data.
    """
    arrays = NpzArrays(path)
    joint_names = _read_names(arrays, "joint_names", (22,))
    if len(set(joint_names)) != 22:
        repeated = next(name for name in joint_names if joint_names.count(name) > 1)
        arrays.fail(f"joint_names has {repeated!r} more than once; the 22 names must be unique")
    rest_vertices = _read_coordinates(arrays, "rest_vertices", (None, 3))
    count = len(rest_vertices)
    if count > MAX_VERTICES:
        arrays.fail(f"has {count} vertices; accepted are up to {MAX_VERTICES}")
    return ShapeFile(
        name=_read_names(arrays, "subject", ())[0] if "subject" in arrays else Path(path).stem,
        joint_names=joint_names,
        offsets=_read_coordinates(arrays, "skeleton", (22, 3)),
        rest_vertices=rest_vertices,
        faces=_read_faces(arrays, count),
        weights=_read_weights(arrays, count),
    )


def _read_names(arrays: NpzArrays, key: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    stored = arrays.read(key, "U", shape)
    codes = np.frombuffer(stored.tobytes(), f"{stored.dtype.str[0]}u4")
    if stored.dtype.itemsize > 4 * _MAX_NAME_LENGTH or int(codes.max()) > 0x10FFFF:
        arrays.fail(f"{key} must hold text of up to {_MAX_NAME_LENGTH} characters")
    names = tuple(str(name) for name in stored.reshape(-1))
    for name in names:
        if not name or not name.isprintable():
            arrays.fail(f"{key} must hold printable names, got {name!r}")
    return names


def _read_coordinates(arrays: NpzArrays, key: str, shape: tuple[int | None, ...]) -> npt.NDArray[np.float64]:
    values = arrays.read(key, "f", shape).astype(np.float64)
    bad = ~(np.abs(values) <= _LARGEST_COORDINATE)
    if bad.any():
        row = int(bad.any(-1).argmax())
        arrays.fail(f"{key} row {row} is {values[row].tolist()}; accepted are numbers up to {_LARGEST_COORDINATE:g}")
    return values


def _read_faces(arrays: NpzArrays, vertex_count: int) -> npt.NDArray[np.int64]:
    faces = arrays.read("rest_faces", "iu", (None, 3))
    low, high = int(faces.min()), int(faces.max())
    if low < 0 or high >= vertex_count:
        arrays.fail(f"rest_faces has indices {low}..{high}; accepted are 0..{vertex_count - 1}")
    return faces.astype(np.int64)


def _read_weights(arrays: NpzArrays, vertex_count: int) -> npt.NDArray[np.float64]:
    weights = arrays.read("skinning_weights", "f", (vertex_count, 22)).astype(np.float64)
    # Rows of real files sum to 0.997..1; beyond these bounds the numbers are no skin weights.
    plausible = np.asarray(((weights >= -1e-3) & (weights <= 1.001)).all(-1))
    plausible[plausible] = np.abs(weights[plausible].sum(-1) - 1) <= 0.5
    if not plausible.all():
        vertex = int(plausible.argmin())
        arrays.fail(
            f"skinning_weights of vertex {vertex} lie in {weights[vertex].min():.3g}..{weights[vertex].max():.3g} and "
            f"sum to {weights[vertex].sum():.3g}; accepted are weights 0..1 whose sum is 0.5..1.5"
        )
    return weights
