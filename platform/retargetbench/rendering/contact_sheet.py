"""Contact sheets: chosen moments of characters in motion, side by side in one PNG file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from retargetbench.errors import UsageError
from retargetbench.rendering.grid import Grid, require_pillow
from retargetbench.rendering.scenes import shared_camera
from retargetbench.rendering.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from retargetbench.rendering.scenes import Actor


def spread_times(duration: float, count: int) -> tuple[float, ...]:
    """Spread moments evenly over a clip, its ends left out, seconds.

    Example:
        >>> spread_times(3.0, 3)
        (0.5, 1.5, 2.5)
    """
    return tuple(duration * (k + 0.5) / count for k in range(count))


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
    times: Sequence[Sequence[float]],
    *,
    azimuth_deg: float,
    width: int,
    height: int,
    columns: int,
    captions: Sequence[str] = (),
    row_labels: Sequence[str] = (),
    column_labels: Sequence[str] = (),
    title: str = "",
    device: torch.device | str = "cpu",
    advance: Callable[[], None] = lambda: None,
) -> bytes:
    """Draw moments of actors, all by one camera, and return a PNG file; the same input gives the same bytes.

    Args:
        actors: who is drawn; all moments of the first, then of the second …, in reading order.
        times: for each actor its moments, seconds.
        azimuth_deg: where the camera stands.
        width: of a picture, pixels.
        height: of a picture, pixels.
        columns: pictures in a row.
        captions: lines above the pictures, or none.
        row_labels: names of the rows, or none.
        column_labels: names of the columns, or none.
        title: a line above all.
        device: where to draw.
        advance: called after each picture.

    Raises:
        UsageError: a clip ends before a moment.
        MissingExtraError: Pillow is not installed.
    """
    require_pillow()
    from PIL import Image

    frames = [[frame_at(actor, time) for time in moments] for actor, moments in zip(actors, times, strict=True)]
    grid = Grid(columns, width, height, sum(map(len, frames)), captions, row_labels, column_labels, title)
    camera = shared_camera(actors, frames, azimuth_deg=azimuth_deg, aspect=width / height)
    stage = Stage(camera, width, height, device=device)
    sheet = grid.background()
    number = 0
    for actor, chosen in zip(actors, frames, strict=True):
        for picture in actor.draw(stage, chosen):
            grid.put(sheet, number, picture.numpy())
            number += 1
            advance()
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, format="png")
    return file.getvalue()
