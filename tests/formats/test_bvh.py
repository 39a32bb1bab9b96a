"""The BVH reader against SciPy's Euler angles and official R2ET outputs; the writer by round trips."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from retargetbench.errors import CharacterError, FileFormatError, UsageError
from retargetbench.formats.bvh import BvhFile, read_bvh, write_bvh

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = """HIERARCHY
ROOT Hips
{
	OFFSET 0.0 90.0 1.0
	CHANNELS 6 Xposition Yposition Zposition Zrotation Xrotation Yrotation
	JOINT Spine
	{
		OFFSET 0.0 20.0 -2.0
		CHANNELS 3 Yrotation Zrotation Xrotation
		End Site
		{
			OFFSET 0.0 10.0 0.5
		}
	}
	JOINT Leg
	{
		OFFSET 10.0 -5.0 0.0
		CHANNELS 3 Xrotation Yrotation Zrotation
	}
}
MOTION
Frames: 2
Frame Time: 0.033333
1.0 91.0 2.0 10.0 20.0 30.0 -40.0 50.0 60.0 5.0 -15.0 25.0
1.5 92.0 2.5 11.0 21.0 31.0 -41.0 51.0 61.0 6.0 -16.0 26.0
"""
VALUES = np.array([line.split() for line in PLAIN.splitlines()[-2:]], dtype=np.float64)


def written(folder: Path, text: str | bytes, name: str = "clip.bvh") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def assert_same_rotation(actual: np.ndarray, expected: Rotation, atol: float = 1e-12) -> None:
    difference = (Rotation.from_quat(actual.reshape(-1, 4)) * expected.inv()).magnitude()
    np.testing.assert_allclose(difference, 0.0, atol=atol)


def random_motion(seed: int, frames: int = 7, names: tuple[str, ...] = ("a", "b", "c", "d")) -> BvhFile:
    rng = np.random.default_rng(seed)
    rotations = Rotation.random(frames * len(names), random_state=seed).as_quat().reshape(frames, len(names), 4)
    parents = (-1, *(int(rng.integers(0, j)) for j in range(1, len(names))))
    return BvhFile(
        names, parents, rng.normal(size=(len(names), 3)), {}, rng.normal(size=(frames, 3)), rotations, 1 / 60
    )


def test_reads_hierarchy_offsets_and_end_sites(tmp_path: Path) -> None:
    bvh = read_bvh(written(tmp_path, PLAIN))
    assert bvh.names == ("Hips", "Spine", "Leg")
    assert bvh.parents == (-1, 0, 0)
    np.testing.assert_array_equal(bvh.offsets, [[0, 90, 1], [0, 20, -2], [10, -5, 0]])
    assert list(bvh.end_sites) == [1]
    np.testing.assert_array_equal(bvh.end_sites[1], [0, 10, 0.5])
    np.testing.assert_array_equal(bvh.root_positions, VALUES[:, :3])
    assert bvh.frame_time == 0.033333
    assert bvh.warnings == ()


def test_rotation_is_the_product_of_axis_rotations_in_declared_order(tmp_path: Path) -> None:
    bvh = read_bvh(written(tmp_path, PLAIN))
    for joint, (order, first) in enumerate([("ZXY", 3), ("YZX", 6), ("XYZ", 9)]):
        expected = Rotation.from_euler(order, VALUES[:, first : first + 3], degrees=True)
        assert_same_rotation(bvh.rotations[:, joint], expected)


@pytest.mark.parametrize(
    "rewrite",
    [
        pytest.param(lambda t: t.replace("\n", "\r\n"), id="crlf"),
        pytest.param(lambda t: t.replace("\n", "\r"), id="cr"),
        pytest.param(lambda t: t.replace(" ", "\t"), id="tabs"),
        pytest.param(lambda t: t.replace("\t", ""), id="no indentation"),
        pytest.param(lambda t: "\ufeff" + t, id="byte order mark"),
        pytest.param(
            lambda t: t.replace("ROOT", "root").replace("JOINT", "Joint").replace("OFFSET", "offset"), id="low"
        ),
        pytest.param(lambda t: t.replace("rotation", "ROTATION").replace("position", "POSITION"), id="upper channels"),
        pytest.param(lambda t: t.replace("Hips\n{", "Hips {").replace("Site\n\t\t{", "Site {"), id="brace on the line"),
        pytest.param(lambda t: t.replace("\n1.5", " 1.5"), id="two frames on one line"),
        pytest.param(lambda t: t.replace(" 50.0", "\n50.0").replace(" 51.0", "\n\n51.0"), id="frames over lines"),
        pytest.param(lambda t: t.replace("91.0", "9.1e+01").replace("-40.0", "-.4E2"), id="exponents"),
        pytest.param(lambda t: t.replace("Frames: 2", "Frames:2").replace("Frame Time: ", "frame time:"), id="colons"),
        pytest.param(lambda t: t.rstrip("\n"), id="no line end at the end"),
        pytest.param(lambda t: t + "\n\n  \n", id="blank lines at the end"),
        pytest.param(lambda t: t.replace("OFFSET 0.0 20.0", "OFFSET\n0.0\n20.0"), id="offset over lines"),
    ],
)
def test_spelling_of_the_file_does_not_matter(tmp_path: Path, rewrite) -> None:
    expected = read_bvh(written(tmp_path, PLAIN))
    actual = read_bvh(written(tmp_path, rewrite(PLAIN), "other.bvh"))
    assert (actual.names, actual.parents) == (expected.names, expected.parents)
    assert actual.frame_time == expected.frame_time
    for name in ("offsets", "root_positions", "rotations"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    np.testing.assert_array_equal(actual.end_sites[1], expected.end_sites[1])


@pytest.mark.parametrize("name", ["Left Arm", "mixamorig:Hips", "胴体", "end", "a.b-c|d"])
def test_takes_any_joint_name(tmp_path: Path, name: str) -> None:
    assert read_bvh(written(tmp_path, PLAIN.replace("Hips", name))).names[0] == name


def test_one_frame_is_enough(tmp_path: Path) -> None:
    text = PLAIN.replace("Frames: 2", "Frames: 1").rsplit("1.5 92.0", 1)[0]
    np.testing.assert_array_equal(read_bvh(written(tmp_path, text)).root_positions, VALUES[:1, :3])


def test_root_keeps_its_offset_where_it_has_no_position_channel(tmp_path: Path) -> None:
    text = PLAIN.replace("6 Xposition Yposition Zposition", "4 Yposition")
    text = text.replace("\n1.0 91.0 2.0", "\n91.0").replace("\n1.5 92.0 2.5", "\n92.0")
    np.testing.assert_array_equal(read_bvh(written(tmp_path, text)).root_positions, [[0, 91, 1], [0, 92, 1]])


def with_leg_positions(first: str, second: str) -> str:
    text = PLAIN.replace(
        "3 Xrotation Yrotation Zrotation", "6 Yposition Xposition Zposition Xrotation Yrotation Zrotation"
    )
    return text.replace(" 5.0 -15.0", f" {first} 5.0 -15.0").replace(" 6.0 -16.0", f" {second} 6.0 -16.0")


def test_constant_position_channels_of_a_joint_become_its_offset(tmp_path: Path) -> None:
    bvh = read_bvh(written(tmp_path, with_leg_positions("-7.0 11.0 3.0", "-7.0 11.0 3.000001")))
    np.testing.assert_array_equal(bvh.offsets[2], [11, -7, 3])
    assert bvh.warnings == ()


def test_varying_position_channels_are_left_out_with_a_warning(tmp_path: Path) -> None:
    bvh = read_bvh(written(tmp_path, with_leg_positions("-7.0 11.0 3.0", "-7.0 11.0 5.5")))
    np.testing.assert_array_equal(bvh.offsets[2], [10, -5, 0])
    (warning,) = bvh.warnings
    assert "'Leg'" in warning
    assert "2.5 file units" in warning
    assert_same_rotation(bvh.rotations[:, 2], Rotation.from_euler("XYZ", VALUES[:, 9:], degrees=True))


def test_second_end_site_of_a_joint_is_reported(tmp_path: Path) -> None:
    block = "End Site\n\t\t{\n\t\t\tOFFSET 0.0 10.0 0.5\n\t\t}\n"
    bvh = read_bvh(written(tmp_path, PLAIN.replace(block, block + block.replace("10.0", "12.0"))))
    np.testing.assert_array_equal(bvh.end_sites[1], [0, 12, 0.5])
    assert "'Spine' has more than one End Site" in bvh.warnings[0]


def test_quaternions_do_not_jump_where_an_angle_wraps(tmp_path: Path) -> None:
    angles = np.arange(0, 1440, 30)
    angles = (angles + 180) % 360 - 180
    text = PLAIN.split("MOTION")[0] + f"MOTION\nFrames: {len(angles)}\nFrame Time: 0.01\n"
    text += "".join(f"0 0 0 {angle} 0 0  0 0 0  0 {angle} 0\n" for angle in angles)
    rotations = read_bvh(written(tmp_path, text)).rotations
    assert float((rotations[1:] * rotations[:-1]).sum(-1).min()) > 0.9
    np.testing.assert_allclose(np.linalg.norm(rotations, axis=-1), 1.0, atol=1e-14)
    assert (rotations[0, :, 3] >= 0).all()


@pytest.mark.parametrize(
    ("printed", "fps"),
    [("0.016667", 60), ("0.0083333", 120), ("0.033333", 30), ("0.04", 25), ("0.0333667", 1 / 0.0333667), ("1", 1)],
)
def test_frame_rate_is_the_whole_number_that_a_rounded_frame_time_means(
    tmp_path: Path, printed: str, fps: float
) -> None:
    assert read_bvh(written(tmp_path, PLAIN.replace("0.033333", printed))).fps == pytest.approx(fps, rel=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("HIERARCHY", "SOLID x", 1, "begins with HIERARCHY, this one with 'SOLID'"),
        ("OFFSET 0.0 20.0 -2.0", "OFFSET 0.0 2O.0 -2.0", 8, "'2O.0' is no finite number"),
        ("OFFSET 0.0 20.0 -2.0", "OFFSET 0.0 nan -2.0", 8, "'nan' is no finite number"),
        ("\t\tOFFSET 0.0 20.0 -2.0\n", "", 13, "'Spine' has no OFFSET"),
        ("\t\tOFFSET 0.0 20.0 -2.0", "\t\tOFFSET 0 0 0 OFFSET 0 0 0", 8, "'Spine' has a second OFFSET"),
        ("CHANNELS 3 Yrot", "CHANNELS 4 Yrot", 10, "expected 4 different channels"),
        ("CHANNELS 3 Yrot", "CHANNELS 999999999 Yrot", 9, "0 to 6 channels, got '999999999'"),
        ("Yrotation Zrotation", "Yrotation Yrotation", 9, "got 'Yrotation'"),
        ("Yrotation Zrotation", "Yrotation Wrotation", 9, "got 'Wrotation'"),
        ("JOINT Leg", "JOINT Spine", 15, "joint name 'Spine' occurs twice"),
        ("JOINT Leg", "JOINT", 15, "a joint name must have 1 to 256 bytes"),
        ("JOINT Leg", "JOINT " + "x" * 300, 15, "got 300"),
        ("JOINT Leg", "ROOT Leg", 15, "a second ROOT"),
        ("JOINT Leg", "BONE Leg", 15, "got 'BONE'"),
        ("\t{\n\t\tOFFSET 10.0", "\t\tOFFSET 10.0", 16, "expected '{', got 'OFFSET'"),
        ("MOTION", "}\nMOTION", 21, "'}' closes no block"),
        ("}\nMOTION", "MOTION", 20, "MOTION comes before the end of 'Hips'"),
        ("Frames: 2\n", "", 21, "MOTION must be followed by 'Frames: <count>'"),
        ("Frames: 2", "Frames: 999999999", 22, "999999999 with 12 channels needs 11999999988 values"),
        ("Frames: 2", "Frames: 3", 25, "the file ends after 24 of 3 x 12 values"),
        ("Frames: 2", "Frames: 1", 25, "the file goes on after the 1 x 12 values"),
        ("Frames: 2", "Frames: 0", 22, "from 1 on, got '0'"),
        ("Frames: 2", "Frames: -2", 22, "from 1 on, got '-2'"),
        ("0.033333", "0", 23, "Frame Time must be 0.001 to 1 seconds, got '0'"),
        ("0.033333", "inf", 23, "got 'inf'"),
        (" 51.0", " 5l.0", 25, "'5l.0' is no finite number"),
        (" 51.0", " nan", 25, "'nan' is no finite number"),
        (" 51.0", " 1e999", 25, "'1e999' is no finite number"),
        (" 51.0", " 5_1.0", 25, "'5_1.0' is no finite number"),
        (" 51.0", " 51,0", 25, "'51,0' is no finite number"),
    ],
)
def test_error_is_one_line_with_line_number_and_value(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    path = written(tmp_path, PLAIN.replace(old, new, 1))
    with pytest.raises(FileFormatError) as caught:
        read_bvh(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:{line}: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b" \n" * 1000, id="blank"),
        pytest.param(bytes(range(256)) * 100, id="binary"),
        pytest.param(PLAIN.encode("utf-16"), id="utf-16"),
        pytest.param(b"HIERARCHY ROOT a " + b"{" * 100_000, id="100000 braces"),
        pytest.param(
            b"HIERARCHY ROOT r\n{ OFFSET 0 0 0 " + b"".join(b"JOINT j%d\n{ OFFSET 0 0 0 " % j for j in range(100_000)),
            id="100000 nested joints",
        ),
        pytest.param(
            b"HIERARCHY ROOT r\n{ OFFSET 0 0 0 CHANNELS 1 Xrotation "
            + b"".join(b"JOINT j%d\n{ OFFSET 0 0 0 } " % j for j in range(4000))
            + b"} MOTION Frames: 500000 Frame Time: 0.01\n"
            + b"0 " * 500_000,
            id="4000 joints without channels in 500000 frames",
        ),
        pytest.param(b"HIERARCHY ROOT a " + b"x" * 10_000_000, id="a name of 10 MB"),
        pytest.param(PLAIN.replace("1.5 92.0", "1" * 5_000_000).encode(), id="a number of 5 MB"),
    ],
)
def test_hopeless_content_is_refused_quickly(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content)
    started = time.process_time()
    with pytest.raises(FileFormatError) as caught:
        read_bvh(path)
    assert time.process_time() - started < 2.0
    assert len(str(caught.value)) < 500


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"nowhere\.bvh: cannot be read: No such file"):
        read_bvh(tmp_path / "nowhere.bvh")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_bvh(tmp_path)


def test_two_megabytes_are_read_in_half_a_second(tmp_path: Path) -> None:
    bvh = random_motion(3, frames=1400, names=tuple(f"joint{j}" for j in range(60)))
    path = tmp_path / "long.bvh"
    write_bvh(path, bvh)
    assert path.stat().st_size > 2_000_000
    started = time.process_time()
    read_bvh(path)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("order", ["XYZ", "XZY", "YXZ", "YZX", "ZXY", "ZYX"])
def test_round_trip_keeps_everything_within_six_decimals(tmp_path: Path, order: str) -> None:
    bvh = random_motion(5)
    write_bvh(tmp_path / "clip.bvh", bvh, order=order)
    again = read_bvh(tmp_path / "clip.bvh")
    by_name = [again.names.index(name) for name in bvh.names]
    assert [again.names[again.parents[j]] for j in by_name[1:]] == [bvh.names[p] for p in bvh.parents[1:]]
    np.testing.assert_allclose(again.offsets[by_name], bvh.offsets, atol=5.1e-7)
    np.testing.assert_allclose(again.root_positions, bvh.root_positions, atol=5.1e-7)
    # three angles, each rounded by half of 1e-6 degrees
    assert_same_rotation(again.rotations[:, by_name], Rotation.from_quat(bvh.rotations.reshape(-1, 4)), atol=3e-8)
    assert again.frame_time == pytest.approx(1 / 60, abs=1e-9)


@pytest.mark.parametrize("order", ["XYZ", "XZY", "YXZ", "YZX", "ZXY", "ZYX"])
@pytest.mark.parametrize("middle", [90.0, -90.0, 89.9999999, 0.0])
def test_gimbal_lock_loses_no_accuracy(tmp_path: Path, order: str, middle: float) -> None:
    outer = np.array([-170.0, -90.0, 0.0, 33.0, 180.0])
    angles = np.array([[a, middle, c] for a in outer for c in outer])
    expected = Rotation.from_euler(order, angles, degrees=True)
    quaternions = expected.as_quat()[:, None]
    bvh = BvhFile(("a",), (-1,), np.zeros((1, 3)), {}, np.zeros((25, 3)), quaternions, 0.01)
    write_bvh(tmp_path / "clip.bvh", bvh, order=order)
    assert_same_rotation(read_bvh(tmp_path / "clip.bvh").rotations, expected, atol=3e-8)


def test_joints_are_written_depth_first_with_their_own_rotations(tmp_path: Path) -> None:
    # Breadth first, as the 22 canonical joints are: the children of "b" come after "c".
    bvh = random_motion(8, names=("a", "b", "c", "d"))
    bvh = BvhFile(bvh.names, (-1, 0, 0, 1), bvh.offsets, {}, bvh.root_positions, bvh.rotations, 0.02)
    write_bvh(tmp_path / "clip.bvh", bvh)
    again = read_bvh(tmp_path / "clip.bvh")
    assert again.names == ("a", "b", "d", "c")
    expected = Rotation.from_quat(bvh.rotations[:, [0, 1, 3, 2]].reshape(-1, 4))
    assert_same_rotation(again.rotations, expected, atol=3e-8)


def test_written_angles_do_not_jump(tmp_path: Path) -> None:
    turn = Rotation.from_euler("Y", np.arange(0, 1080, 15)[:, None], degrees=True).as_quat()[:, None]
    bvh = BvhFile(("a",), (-1,), np.zeros((1, 3)), {}, np.zeros((len(turn), 3)), turn, 0.01)
    write_bvh(tmp_path / "clip.bvh", bvh, order="YXZ")
    rows = (tmp_path / "clip.bvh").read_text().split("Frame Time: 0.01\n")[1].splitlines()
    angles = np.array([row.split() for row in rows], dtype=np.float64)[:, 3]
    np.testing.assert_allclose(np.diff(angles), 15.0, atol=2e-6)


def test_leaf_without_end_site_gets_one_of_length_zero(tmp_path: Path) -> None:
    write_bvh(tmp_path / "clip.bvh", random_motion(1, names=("a", "b")))
    np.testing.assert_array_equal(read_bvh(tmp_path / "clip.bvh").end_sites[1], [0, 0, 0])


def test_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(UsageError, match="No space left on device"):
        write_bvh(path, random_motion(1))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_writer_refuses_what_the_format_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown rotation order 'XYX'; accepted are XYZ"):
        write_bvh(tmp_path / "a.bvh", random_motion(1), order="XYX")
    with pytest.raises(UsageError, match="joint name 'b"):
        write_bvh(tmp_path / "a.bvh", random_motion(1, names=("a", "b{")))
    with pytest.raises(UsageError, match="choose a folder that exists"):
        write_bvh(tmp_path / "none" / "a.bvh", random_motion(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"parents": (-1, 0, 3, 0)},
        {"parents": (-1, 0)},
        {"offsets": np.zeros((3, 3))},
        {"rotations": np.zeros((7, 4, 3))},
        {"root_positions": np.zeros((0, 3)), "rotations": np.zeros((0, 4, 4))},
        {"frame_time": 0.0},
    ],
)
def test_inconsistent_motion_is_refused(change: dict) -> None:
    good = random_motion(1)
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__}
    with pytest.raises(CharacterError):
        BvhFile(**(fields | change))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "joints", "frames"),
    [
        ("Mousey/Salsa Dancing", 57, 270),
        ("Ortiz/Salsa Dancing", 65, 270),
        ("Ortiz/Thankful", 65, 181),
        ("Sporty_Granny/Salsa Dancing", 99, 270),
        ("Sporty_Granny/Hip Hop Dancing", 88, 826),
    ],
)
def test_reads_real_mixamo_files(shared_dir: Path, tmp_path: Path, name: str, joints: int, frames: int) -> None:
    bvh = read_bvh(shared_dir / "data/r2et_mixamo/demo" / f"{name}.bvh")
    assert bvh.rotations.shape == (frames, joints, 4)
    assert bvh.fps == 60
    assert bvh.warnings == ()
    write_bvh(tmp_path / "again.bvh", bvh)
    again = read_bvh(tmp_path / "again.bvh")
    assert (again.names, again.parents) == (bvh.names, bvh.parents)
    assert again.end_sites.keys() == bvh.end_sites.keys()
    # The bound that r2et.md §1 gives for six decimals.
    np.testing.assert_allclose(world_positions(again), world_positions(bvh), atol=5e-5)


def world_positions(bvh: BvhFile) -> np.ndarray:
    """Joint positions (T, J, 3) by SciPy's rotations."""
    frames = len(bvh.root_positions)
    rotations: list[Rotation] = []
    positions: list[np.ndarray] = []
    for j, parent in enumerate(bvh.parents):
        local = Rotation.from_quat(bvh.rotations[:, j])
        rotations.append(local if parent < 0 else rotations[parent] * local)
        offset = np.repeat(bvh.offsets[j : j + 1], frames, axis=0)
        positions.append(bvh.root_positions if parent < 0 else positions[parent] + rotations[parent].apply(offset))
    return np.stack(positions, axis=1)


@pytest.mark.shared
@pytest.mark.parametrize("character", ["Mousey", "Ortiz", "Sporty_Granny"])
def test_rotations_equal_the_official_preprocessing(shared_dir: Path, character: str) -> None:
    folder = shared_dir / "data/r2et_mixamo/demo" / character
    bvh = read_bvh(folder / "Salsa Dancing.bvh")
    official = np.load(folder / "Salsa Dancing_quat.npy")[..., [1, 2, 3, 0]]
    official_offsets = np.load(folder / "Salsa Dancing_skel.npy")[0]
    keep = np.load(shared_dir / f"reference/r2et/skel_{character}_to_{other(character)}_SalsaDancing.npz")["keep_src"]
    np.testing.assert_allclose(bvh.rotations[:, keep[1:]], official[:, 1:], atol=1e-9)
    np.testing.assert_allclose(bvh.offsets[keep[1:]], official_offsets[1:], atol=1e-9)
    # The official root differs by a turn about Y that removes the heading.
    yaw = Rotation.from_quat(official[:, 0]) * Rotation.from_quat(bvh.rotations[:, 0]).inv()
    np.testing.assert_allclose(yaw.as_rotvec()[:, [0, 2]], 0.0, atol=1e-9)


def other(character: str) -> str:
    return "Mousey" if character != "Mousey" else "Ortiz"
