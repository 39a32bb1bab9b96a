"""Contact sheets: chosen moments of characters in motion, side by side in one PNG file."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retargetbench.errors import UsageError
from retargetbench.rendering.grid import Grid, require_pillow
from retargetbench.rendering.scenes import shared_camera
from retargetbench.rendering.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from retargetbench.rendering.scenes import Actor

_SUPERSAMPLING = 4
"""Finer than in films, since the pictures are small and stand still."""


@dataclass(frozen=True)
class SheetLayout:
    """Which moments of actors are drawn, and where.

    Attributes:
        columns: pictures in a row.
        frames: for each actor its frames.
        cells: place of each picture in reading order from 0, actor by actor and frame by frame.
        row_labels: names of the rows.
        column_labels: names above the columns, or none.
        captions: lines above all cells, or none.
    """

    columns: int
    frames: tuple[tuple[int, ...], ...]
    cells: tuple[int, ...]
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...] = ()
    captions: tuple[str, ...] = ()


def lay_out_moments(actors: Sequence[Actor], times: Sequence[float], count: int) -> SheetLayout:
    """Give each actor a row, with moments side by side.

    Args:
        actors: who is drawn.
        times: moments in seconds; or none, and each clip is cut into ``count`` parts whose middles are shown.
        count: how many moments, where there are no ``times``.

    Raises:
        UsageError: a clip ends before a moment.
    """
    if times:
        frames = [tuple(frame_at(actor, time) for time in times) for actor in actors]
    else:
        frames = [tuple(round((actor.frame_count - 1) * (k + 0.5) / count) for k in range(count)) for actor in actors]
    columns = len(frames[0])
    moments = [tuple(_seconds(frame / actor.fps) for frame in row) for actor, row in zip(actors, frames, strict=True)]
    rows = tuple(actor.subject.label for actor in actors)
    cells = tuple(range(columns * len(actors)))
    if len(set(moments)) == 1:
        return SheetLayout(columns, tuple(frames), cells, rows, column_labels=moments[0])
    return SheetLayout(columns, tuple(frames), cells, rows, captions=tuple(text for row in moments for text in row))


def lay_out_motions(actors: Sequence[Actor], time: float | None) -> SheetLayout:
    """Give each character a row and each motion a column, with one moment of each clip.

    Args:
        actors: who is drawn; what is named twice is drawn once.
        time: the moment in seconds; None is the middle of each clip.

    Raises:
        UsageError: a clip ends before the moment.
    """
    clips = [actor.subject.clip for actor in actors]
    characters = list(dict.fromkeys(clip.character.name for clip in clips))
    motions = list(dict.fromkeys(clip.name for clip in clips))
    frames = [(actor.frame_count // 2 if time is None else frame_at(actor, time),) for actor in actors]
    cells = [characters.index(clip.character.name) * len(motions) + motions.index(clip.name) for clip in clips]
    return SheetLayout(len(motions), tuple(frames), tuple(cells), tuple(characters), column_labels=tuple(motions))


def frame_at(actor: Actor, time: float) -> int:
    """Return the frame of an actor nearest to a time in seconds.

    Raises:
        UsageError: the clip is shorter.
    """
    frame = round(time * actor.fps)
    if not 0 <= frame < actor.frame_count:
        end = (actor.frame_count - 1) / actor.fps
        raise UsageError(f"{actor.subject.label} ends at {end:.2f} s, so there is no picture at {time:g} s")
    return frame


def draw_sheet(
    actors: Sequence[Actor],
    layout: SheetLayout,
    *,
    azimuth_deg: float,
    width: int,
    height: int,
    title: str = "",
    device: torch.device | str = "cpu",
    advance: Callable[[], None] = lambda: None,
) -> bytes:
    """Draw moments of actors, all by one camera, and return a PNG file; the same input gives the same bytes.

    Args:
        actors: who is drawn.
        layout: which moments, and where.
        azimuth_deg: where the camera stands.
        width: of a picture, pixels.
        height: of a picture, pixels.
        title: a line above all.
        device: where to draw.
        advance: called after each picture.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    require_pillow()
    from PIL import Image

    grid = Grid(
        layout.columns,
        width,
        height,
        layout.columns * len(layout.row_labels),
        captions=layout.captions,
        row_labels=layout.row_labels,
        column_labels=layout.column_labels,
        title=title,
    )
    camera = shared_camera(actors, layout.frames, azimuth_deg=azimuth_deg, aspect=width / height)
    stage = Stage(camera, width, height, supersampling=_SUPERSAMPLING, device=device)
    sheet = grid.background()
    pictures = (
        picture for actor, frames in zip(actors, layout.frames, strict=True) for picture in actor.draw(stage, frames)
    )
    for cell, picture in zip(layout.cells, pictures, strict=True):
        grid.put(sheet, cell, picture.numpy())
        advance()
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, format="png")
    return file.getvalue()


def _seconds(time: float) -> str:
    return f"{time:.2f} s"
