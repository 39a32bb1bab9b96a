"""The shape file reader against arrays that NumPy wrote, and against archives that are not what they claim."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retargetbench.errors import FileFormatError
from retargetbench.formats.shape_npz import read_shape_npz

if TYPE_CHECKING:
    from pathlib import Path


def shape_arrays(vertices: int = 40, seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays of a shape file; rows of the weights sum to 0.997, as in Mixamo's files."""
    rng = np.random.default_rng(seed)
    return {
        "subject": np.array("Big_Vegas"),
        "joint_names": np.array([f"Joint{j}" for j in range(22)]),
        "skeleton": rng.normal(size=(22, 3)).astype(np.float32),
        "rest_vertices": rng.normal(size=(vertices, 3)).astype(np.float32),
        "rest_faces": rng.integers(0, vertices, size=(2 * vertices, 3)).astype(np.int32),
        "skinning_weights": (0.997 * rng.dirichlet(np.ones(22), vertices)).astype(np.float32),
        "vertex_part": np.zeros(vertices, np.int64),
    }


def saved(folder: Path, name: str = "file.npz", *, save=np.savez, **changes: np.ndarray | None) -> Path:
    """Write a shape file; a change of None leaves the array out."""
    arrays = {key: value for key, value in (shape_arrays() | changes).items() if value is not None}
    save(folder / name, **arrays)
    return folder / name


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_reads_what_numpy_wrote(tmp_path: Path, save) -> None:
    shape, arrays = read_shape_npz(saved(tmp_path, save=save)), shape_arrays()
    assert shape.name == "Big_Vegas"
    assert shape.joint_names == tuple(f"Joint{j}" for j in range(22))
    for name, key in (("offsets", "skeleton"), ("rest_vertices", "rest_vertices"), ("weights", "skinning_weights")):
        np.testing.assert_array_equal(getattr(shape, name), arrays[key])
        assert getattr(shape, name).dtype == np.float64
    np.testing.assert_array_equal(shape.faces, arrays["rest_faces"])
    assert shape.faces.dtype == np.int64


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a.astype(np.float64), id="float64"),
        pytest.param(lambda a: a.astype(">f4"), id="big endian"),
        pytest.param(np.asfortranarray, id="fortran order"),
    ],
)
def test_layout_in_memory_does_not_matter(tmp_path: Path, change) -> None:
    weights = change(shape_arrays()["skinning_weights"])
    np.testing.assert_array_equal(read_shape_npz(saved(tmp_path, skinning_weights=weights)).weights, weights)


def test_file_name_stands_in_for_a_missing_subject(tmp_path: Path) -> None:
    assert read_shape_npz(saved(tmp_path, "Kaya.npz", subject=None)).name == "Kaya"


def changed(key: str, place: object, value: object) -> dict[str, np.ndarray]:
    array = shape_arrays()[key].copy()
    array[place] = value
    return {key: array}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rest_faces": None}, "has no array 'rest_faces'; present are 'joint_names', 'rest_vertices'"),
        ({"rest_vertices": np.zeros((5, 2))}, r"must have shape (any, 3) and a dtype of kind 'f', got (5, 2) float64"),
        ({"rest_vertices": np.zeros((0, 3))}, "got (0, 3)"),
        ({"skinning_weights": np.zeros((39, 22))}, "must have shape (40, 22)"),
        ({"skeleton": np.zeros((22, 3), np.int64)}, "kind 'f', got (22, 3) int64"),
        ({"skeleton": np.array([[None] * 3] * 22)}, "has a header that no plain number or text array has"),
        ({"skeleton": np.zeros((22, 3), np.complex128)}, "has a header that no plain number or text array has"),
        ({"rest_faces": shape_arrays()["rest_faces"].astype(float)}, "kind 'iu'"),
        (changed("rest_faces", (3, 1), 40), "rest_faces has indices 0..40; accepted are 0..39"),
        (changed("rest_faces", (3, 1), -1), "rest_faces has indices -1.."),
        (changed("rest_vertices", (7, 2), np.nan), "rest_vertices row 7 is ["),
        (changed("skeleton", (21, 0), np.inf), "skeleton row 21 is [inf, "),
        (changed("skinning_weights", 9, 0.0), "skinning_weights of vertex 9 lie in 0..0 and sum to 0"),
        (changed("skinning_weights", (9, 0), -0.5), "skinning_weights of vertex 9 lie in -0.5.."),
        (changed("skinning_weights", (9, 0), np.nan), "skinning_weights of vertex 9"),
        (changed("joint_names", 4, "Joint3"), "joint_names has 'Joint3' more than once"),
        ({"joint_names": shape_arrays()["joint_names"][:21]}, "got (21,)"),
        ({"subject": np.array("two\nlines")}, r"printable names, got 'two\nlines'"),
        ({"subject": np.array("x" * 101)}, "text of up to 100 characters"),
        ({"subject": np.array(7)}, "kind 'U', got () int64"),
    ],
)
def test_error_names_the_array_and_what_is_accepted(tmp_path: Path, change: dict, message: str) -> None:
    path = saved(tmp_path, **change)
    with pytest.raises(FileFormatError) as caught:
        read_shape_npz(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header.encode() + data


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 3), }"), "and has 0"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999, 999999999999), }"), "must have shape"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", b"\0" * 23), "24 bytes, and has 23"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 3000), "has a header that no plain"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1" * 3000), "has a header that no plain"),
        (npy("__import__('os').abort()"), "has a header that no plain"),
        (npy("", version=b"\x03\x00"), "does not begin as a .npy file of version 1 or 2"),
        (b"", "does not begin as a .npy file of version 1 or 2, but with ''"),
    ],
)
def test_headers_that_lie_are_refused_before_memory_is_taken(tmp_path: Path, member: bytes, message: str) -> None:
    path = saved(tmp_path, rest_vertices=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("rest_vertices.npy", member)
    with pytest.raises(FileFormatError) as caught:
        read_shape_npz(path)
    assert message in str(caught.value)


def test_zip_bomb_is_refused_unopened(tmp_path: Path) -> None:
    path = saved(tmp_path, rest_vertices=None)
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (16000000, 3), }"
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("rest_vertices.npy", "w") as stream:
        stream.write(npy(header))
        for _ in range(192):
            stream.write(bytes(1_000_000))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(FileFormatError, match="accepted are whole arrays of up to 128 MiB"):
        read_shape_npz(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"no archive", bytes(1000), b"PK\x01\x02" * 2000, b"PK\x05\x06" + bytes(18)]
)
def test_files_that_are_no_shape_archive_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError) as caught:
        read_shape_npz(path)
    assert "\n" not in str(caught.value)


def test_flipped_byte_in_the_data_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"rest_vertices.npy") + 300] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match="'rest_vertices' is damaged: Bad CRC-32"):
        read_shape_npz(path)


def test_other_compression_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, skeleton=None)
    buffer = io.BytesIO()
    np.save(buffer, shape_arrays()["skeleton"])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_LZMA) as archive:
        archive.writestr("skeleton.npy", buffer.getvalue())
    with pytest.raises(FileFormatError, match="'skeleton' is compressed by method 14"):
        read_shape_npz(path)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "vertices", "height_cm"),
    [
        ("AJ", 3980, 142.3),
        ("Big_Vegas", 3504, 155.1),
        ("Goblin_D_Shareyko", 7049, 180.4),
        ("Mousey", 6109, 76.8),
        ("Ortiz", 24798, 159.7),
        ("Peasant_Man", 2414, 182.1),
        ("Sporty_Granny", 5525, 141.1),
        ("Warrok_W_Kurniawan", 6557, 201.1),
    ],
)
def test_reads_real_shape_files(shared_dir: Path, name: str, vertices: int, height_cm: float) -> None:
    path = shared_dir / "data/r2et_mixamo/shape" / f"{name}.npz"
    shape = read_shape_npz(path)
    with np.load(path, allow_pickle=False) as arrays:
        assert shape.joint_names == tuple(arrays["joint_names"])
        np.testing.assert_array_equal(shape.faces, arrays["rest_faces"])
        np.testing.assert_array_equal(shape.weights, arrays["skinning_weights"])
        np.testing.assert_array_equal(shape.offsets, arrays["skeleton"])
        np.testing.assert_array_equal(shape.rest_vertices, arrays["rest_vertices"])
    assert (shape.name, len(shape.rest_vertices)) == (name, vertices)
    # The table of r2et.md §9, which sums eight bones; Granny's comes from her BVH.
    height = float(np.linalg.norm(shape.offsets[[1, 2, 3, 4, 5, 7, 8, 9]], axis=-1).sum())
    assert height == pytest.approx(height_cm, abs=2.0 if name == "Sporty_Granny" else 0.06)
