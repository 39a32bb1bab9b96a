"""Films: characters in motion side by side, as MP4 that browsers play (H.264, yuv420p)."""

from __future__ import annotations

import os
import uuid
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from retargetbench.errors import MissingExtraError, UsageError
from retargetbench.rendering.grid import Grid, require_pillow
from retargetbench.rendering.scenes import shared_camera
from retargetbench.rendering.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import torch

    from retargetbench.rendering.scenes import Actor

_QUALITY = 18
"""Constant rate factor of H.264: 0 is lossless, 18 looks like the original, 51 is worst."""


def require_av() -> None:
    """Raise `MissingExtraError` where PyAV is not installed."""
    try:
        import av  # noqa: F401
    except ImportError:
        raise MissingExtraError("av", "render", "writing MP4 files") from None


def write_video(path: Path, frames: Iterable[npt.NDArray[np.uint8]], fps: float) -> None:
    """Write frames as MP4, so that the file is there as a whole or not at all; the same frames give the same bytes.

    Args:
        path: the file, replaced if it is there.
        frames: at least one, each (height, width, 3) with even height and width.
        fps: frames a second.

    Raises:
        UsageError: the file cannot be written.
        MissingExtraError: PyAV is not installed.
    """
    require_av()
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        _encode(temporary, frames, fps)
        os.replace(temporary, path)
    except OSError as error:  # among them those of FFmpeg
        raise UsageError(f"{path} cannot be written: {error.strerror}; choose a folder that exists") from None
    finally:
        temporary.unlink(missing_ok=True)


def _encode(path: Path, frames: Iterable[npt.NDArray[np.uint8]], fps: float) -> None:
    import av
    from av.video.reformatter import ColorRange, Colorspace

    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        rate = Fraction(fps).limit_denominator(1001)
        stream = None
        for image in frames:
            if stream is None:
                stream = container.add_stream("libx264", rate=rate)
                stream.height, stream.width = image.shape[:2]
                stream.pix_fmt = "yuv420p"
                # Without these, players guess the colours from the size of the picture. 1 is BT.709 in all three.
                context = stream.codec_context
                context.color_primaries, context.color_trc, context.colorspace = 1, 1, 1
                context.color_range = ColorRange.MPEG.value
                # How threads share the work is part of the bytes.
                context.thread_count = 1
                stream.options = {"crf": str(_QUALITY), "preset": "fast"}
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame = frame.reformat(format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG)
            container.mux(stream.encode(frame))
        if stream is not None:
            container.mux(stream.encode())


def draw_frames(
    actors: Sequence[Actor],
    *,
    azimuth_deg: float,
    width: int,
    height: int,
    columns: int,
    title: str = "",
    device: torch.device | str = "cpu",
    advance: Callable[[], None] = lambda: None,
) -> Iterator[npt.NDArray[np.uint8]]:
    """Draw actors side by side through time, all by one camera; who ends earlier stands still.

    Args:
        actors: who is drawn, in reading order; all with one frame rate.
        azimuth_deg: where the camera stands.
        width: of a picture, pixels.
        height: of a picture, pixels.
        columns: pictures in a row.
        title: a line above all.
        device: where to draw.
        advance: called after each frame.

    Yields:
        Frames, (height, width, 3) uint8, both even.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    require_pillow()
    grid = Grid(columns, width, height, len(actors), captions=[a.subject.label for a in actors], title=title)
    ranges = [range(actor.frame_count) for actor in actors]
    camera = shared_camera(actors, ranges, azimuth_deg=azimuth_deg, aspect=width / height)
    stage = Stage(camera, width, height, device=device)
    sheet = grid.background()
    films = [actor.draw(stage, frames) for actor, frames in zip(actors, ranges, strict=True)]
    for _ in range(max(map(len, ranges))):
        for number, film in enumerate(films):
            picture = next(film, None)
            if picture is not None:
                grid.put(sheet, number, picture.numpy())
        yield sheet.copy()
        advance()
