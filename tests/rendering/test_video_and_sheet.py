"""Files: films are read back by PyAV, sheets by Pillow; bytes do not change from one time to the next."""

from __future__ import annotations

import builtins
import io
from itertools import pairwise
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from PIL import Image

from retargetbench.clip import Clip
from retargetbench.datasets.capsules import open_capsules
from retargetbench.errors import MissingExtraError, UsageError
from retargetbench.rendering.contact_sheet import draw_sheet, frame_at, lay_out_moments, lay_out_motions
from retargetbench.rendering.grid import Grid, require_pillow
from retargetbench.rendering.scenes import Actor, Subject
from retargetbench.rendering.video import draw_frames, require_av, write_video

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def actor(character: str, motion: str, frames: int, start: int = 0) -> Actor:
    clip = open_capsules().clip(character, motion)
    clip = Clip(motion, clip.character, clip.motion.frames(start, start + frames))
    return Actor(Subject(f"{character}/{motion}", clip))


def colours(count: int, height: int = 48, width: int = 64) -> Iterator[np.ndarray]:
    for number in range(count):
        frame = np.full((height, width, 3), 40 + 10 * number, dtype=np.uint8)
        frame[: height // 2] = (180, 60, 30)
        yield frame


def read_film(path: Path) -> tuple[list[np.ndarray], av.VideoStream]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)], stream


@pytest.mark.parametrize("fps", [30.0, 60.0, 23.976, 119.88])
def test_a_film_has_the_frames_size_and_rate_that_were_given(tmp_path: Path, fps: float):
    write_video(tmp_path / "film.mp4", colours(7), fps)
    frames, stream = read_film(tmp_path / "film.mp4")
    assert len(frames) == stream.frames == 7
    assert frames[0].shape == (48, 64, 3)
    assert float(stream.average_rate) == pytest.approx(fps, rel=1e-5)
    assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")


def test_a_film_has_the_colours_that_were_given(tmp_path: Path):
    write_video(tmp_path / "film.mp4", colours(5), 30.0)
    with av.open(str(tmp_path / "film.mp4")) as container:
        context = container.streams.video[0].codec_context
        assert (context.color_primaries, context.color_trc, context.colorspace, context.color_range) == (1, 1, 1, 1)
        for given, frame in zip(colours(5), container.decode(video=0), strict=True):
            # The formulas of BT.709 with limited range, so that no conversion of PyAV's own is trusted.
            y, u, v = (float(plane[8, 8]) for plane in (frame.to_ndarray()[:48], *split_chroma(frame.to_ndarray())))
            red = 1.1644 * (y - 16) + 1.7927 * (v - 128)
            green = 1.1644 * (y - 16) - 0.2132 * (u - 128) - 0.5329 * (v - 128)
            blue = 1.1644 * (y - 16) + 2.1124 * (u - 128)
            assert (red, green, blue) == pytest.approx(tuple(given[8, 8].tolist()), abs=6)


def split_chroma(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two chroma planes of 48 rows of 64 in yuv420p, which lie below the luma."""
    return planes[48:60].reshape(24, 32), planes[60:72].reshape(24, 32)


def test_the_same_frames_give_the_same_bytes(tmp_path: Path):
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, colours(9), 30.0)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_film_that_is_interrupted_leaves_the_old_one_and_nothing_else(tmp_path: Path, error: type[BaseException]):
    def interrupted() -> Iterator[np.ndarray]:
        yield from colours(3)
        raise error

    (tmp_path / "film.mp4").write_text("old")
    with pytest.raises(error):
        write_video(tmp_path / "film.mp4", interrupted(), 30.0)
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]
    assert (tmp_path / "film.mp4").read_text() == "old"


def test_a_film_that_cannot_be_written_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot be written"):
        write_video(tmp_path / "nowhere" / "film.mp4", colours(2), 30.0)


def test_actors_move_side_by_side_and_who_ends_stands_still():
    long, short = actor("slim", "wave", 6, start=20), actor("child", "wave", 3, start=20)
    done: list[None] = []
    frames = list(
        draw_frames([long, short], azimuth_deg=0.0, width=80, height=64, columns=2, advance=lambda: done.append(None))
    )
    assert len(frames) == len(done) == 6
    grid = Grid(2, 80, 64, 2, captions=["x", "y"])
    assert frames[0].shape == (grid.size[1], grid.size[0], 3)

    def part(frame: np.ndarray, number: int) -> np.ndarray:
        x, y = grid.corner(number)
        return frame[y : y + 64, x : x + 80]

    assert all((part(a, 0) != part(b, 0)).any() for a, b in pairwise(frames))
    assert (part(frames[0], 1) != part(frames[2], 1)).any()
    assert all((part(frame, 1) == part(frames[2], 1)).all() for frame in frames[3:])


def test_a_sheet_has_a_row_for_each_actor_and_the_same_bytes_twice():
    actors = [actor("slim", "wave", 31), actor("stout", "wave", 31)]
    layout = lay_out_moments(actors, (), 3)
    assert layout.frames == ((5, 15, 25),) * 2
    assert layout.column_labels == ("0.17 s", "0.50 s", "0.83 s")
    assert layout.row_labels == ("slim/wave", "stout/wave")
    files = [draw_sheet(actors, layout, azimuth_deg=35.0, width=64, height=80) for _ in range(2)]
    assert files[0] == files[1]
    grid = Grid(3, 64, 80, 6, row_labels=layout.row_labels, column_labels=layout.column_labels)
    sheet = np.asarray(Image.open(io.BytesIO(files[0])))
    assert sheet.shape == (grid.size[1], grid.size[0], 3)
    cells = [sheet[y : y + 80, x : x + 64] for x, y in map(grid.corner, range(6))]
    assert len({cell.tobytes() for cell in cells}) == 6


def test_moments_differ_by_clip_where_clips_do():
    actors = [actor("slim", "wave", 31), actor("slim", "clap", 16)]
    layout = lay_out_moments(actors, (), 2)
    assert layout.column_labels == ()
    assert layout.captions == ("0.27 s", "0.73 s", "0.13 s", "0.37 s")
    assert lay_out_moments(actors, (0.1, 0.4), 9).frames == ((3, 12),) * 2
    with pytest.raises(UsageError, match=r"slim/clap ends at 0\.50 s, so there is no picture at 0\.9 s"):
        lay_out_moments(actors, (0.9,), 1)


def test_a_sheet_of_motions_has_characters_in_rows_and_gaps_where_clips_are_missing():
    actors = [actor("slim", "wave", 9), actor("child", "clap", 11), actor("slim", "clap", 11)]
    layout = lay_out_motions(actors, None)
    assert layout.row_labels == ("slim", "child")
    assert layout.column_labels == ("wave", "clap")
    assert layout.cells == (0, 3, 1)
    assert layout.frames == ((4,), (5,), (5,))
    sheet = np.asarray(Image.open(io.BytesIO(draw_sheet(actors, layout, azimuth_deg=0.0, width=64, height=64))))
    grid = Grid(2, 64, 64, 4, row_labels=layout.row_labels, column_labels=layout.column_labels)
    shown = [bool((sheet[y : y + 64, x : x + 64] != 255).any()) for x, y in map(grid.corner, range(4))]
    assert shown == [True, True, False, True]


def test_moments_are_rounded_to_frames():
    clip = actor("slim", "wave", 10)
    assert [frame_at(clip, time) for time in (0.0, 0.016, 0.017, 0.3)] == [0, 0, 1, 9]
    with pytest.raises(UsageError):
        frame_at(clip, 0.32)


@pytest.mark.parametrize(("module", "check"), [("av", require_av), ("PIL", require_pillow)])
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, module: str, check: object):
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.partition(".")[0] == module:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'retargetbench\[render\]'"):
        check()
