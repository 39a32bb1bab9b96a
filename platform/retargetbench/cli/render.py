"""``bench render``: characters in motion as a film or a contact sheet."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retargetbench.benchmark.config import parse_names
from retargetbench.cli.outputs import check_output
from retargetbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from retargetbench.rendering.scenes import Actor, Subject

_FILM, _SHEET = ".mp4", ".png"
_DEFAULT_SIZE = {_FILM: 480, _SHEET: 256}
_SIZES = range(64, 2049)
_MOST_PIXELS = {_FILM: 2**24, _SHEET: 2**27}
"""Of a frame: what H.264 decoders take; of a sheet: what picture viewers take."""

_MOST_FILM_SIDE = 4096
_MOMENTS = 6
_BY_MOTION = "motions"


def register(app: typer.Typer) -> None:
    """Add the command to ``bench``."""
    app.command("render")(render_command)


@dataclass(frozen=True)
class _Look:
    """Options that films and sheets share."""

    azimuth_deg: float
    width: int
    height: int
    columns: int | None
    by_motion: bool
    times: tuple[float, ...]


def render_command(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Clips as DATASET:CHARACTER/MOTION, * and ? standing for any letters; or one run, with --task."
        ),
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Written file: .mp4 film, .png sheet; replaced.")
    ],
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="SOURCE/MOTION/TARGET of the run: source, ground truth and methods."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Methods of the run, separated by commas; default all.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of all runs.")] = Path("runs"),
    size: Annotated[
        str | None,
        typer.Option(metavar="N|WxH", help="Pixels of each picture; default 480 in films, 256 in sheets."),
    ] = None,
    camera: Annotated[
        str,
        typer.Option(metavar="WHERE", help="front, three-quarter, side, back, or degrees from front to its left."),
    ] = "three-quarter",
    times: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="Moments of a sheet, separated by commas; default spread evenly."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="N|motions",
            help="Sheet: moments of each clip (default 6), or one column for each motion and one row for each "
            "character. Film: pictures side by side.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--fixed", help="Whether the camera goes with the hips.")] = False,
    mark_penetration: Annotated[
        bool, typer.Option(help="Show arm vertices inside the body in red, also through what hides them.")
    ] = True,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Draw motions as a film (.mp4) or a sheet of moments (.png).

    All characters are seen by one camera. Needs the extra render: pip install 'retargetbench[render]'.
    """
    check_output(output, (_FILM, _SHEET))
    kind = output.suffix.lower()
    look = _parse_look(kind, size, camera, columns, times)
    if task is None and methods is not None:
        raise UsageError("--methods belongs to a run and its --task; leave it out for clips of datasets")
    if task is not None and len(sources) != 1:
        raise UsageError(f"--task is of one run, but {len(sources)} sources are named")

    from retargetbench.benchmark.run_folder import get_run
    from retargetbench.device import resolve_device
    from retargetbench.rendering.grid import require_pillow
    from retargetbench.rendering.scenes import Actor
    from retargetbench.rendering.sources import find_clips, find_task
    from retargetbench.rendering.video import require_av

    require_pillow()
    if kind == _FILM:
        require_av()
    place = resolve_device(device)
    title = ""
    if task is None:
        subjects = find_clips(sources)
    else:
        found = find_task(get_run(sources[0], out), task, None if methods is None else parse_names(methods))
        subjects, title = found.subjects, found.title
        for note in found.notes:
            typer.echo(f"note: {note}", err=True)
    subjects = _at_one_rate(subjects) if kind == _FILM else subjects
    actors = [Actor(each, mark_penetration=mark_penetration, follow=follow, device=place) for each in subjects]
    draw = _write_film if kind == _FILM else _write_sheet
    typer.echo(f"wrote {output}: {draw(output, actors, look, title, place)}")


def _parse_look(kind: str, size: str | None, camera: str, columns: str | None, times: str | None) -> _Look:
    by_motion = columns == _BY_MOTION
    if kind == _FILM and (by_motion or times is not None):
        raise UsageError(f"{'--columns motions' if by_motion else '--times'} is for sheets; write a file X.png")
    moments: list[float] = []
    for text in parse_names(times) if times is not None else ():
        try:
            moments.append(float(text))
        except ValueError:
            moments.append(math.nan)
        if not 0 <= moments[-1] < math.inf:
            raise UsageError(f"--times {times!r}: {text!r} is no time in seconds; give such as 0.5,1,1.5")
    if times is not None and not moments:
        raise UsageError("--times '' names no moment; give such as 0.5,1,1.5")
    if by_motion and len(moments) > 1:
        raise UsageError("--columns motions shows one moment of each clip; give --times only one, or leave it out")
    if columns is not None and not by_motion:
        if not columns.isdecimal() or not 1 <= int(columns) <= 100:
            raise UsageError(f"--columns {columns!r} is not a number from 1 to 100 or {_BY_MOTION!r}")
        if moments:
            raise UsageError("--times says which moments a sheet has; leave out --columns")
    width, height = _parse_size(size or str(_DEFAULT_SIZE[kind]))
    count = None if columns is None or by_motion else int(columns)
    return _Look(_parse_camera(camera), width, height, count, by_motion, tuple(moments))


def _parse_size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", text)
    if match:
        width, height = int(match[1]), int(match[2] or match[1])
        if width in _SIZES and height in _SIZES:
            return width, height
    raise UsageError(f"--size {text!r} is not N or WxH with numbers from {_SIZES[0]} to {_SIZES[-1]}, such as 384x512")


def _parse_camera(text: str) -> float:
    from retargetbench.rendering.cameras import DIRECTIONS

    if text in DIRECTIONS:
        return DIRECTIONS[text]
    try:
        degrees = float(text)
    except ValueError:
        degrees = math.nan
    if not abs(degrees) <= 360:
        names = ", ".join(DIRECTIONS)
        raise UsageError(f"--camera {text!r} is not one of {names}, and no angle from -360 to 360 degrees")
    return degrees


def _at_one_rate(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    """Bring all motions to the highest frame rate among them."""
    from retargetbench.clip import Clip
    from retargetbench.kinematics import resample

    fps = max(each.clip.motion.fps for each in subjects)
    return tuple(
        replace(each, clip=Clip(each.clip.name, each.clip.character, resample(each.clip.motion, fps)))
        for each in subjects
    )


def _check_pixels(kind: str, width: int, height: int) -> None:
    """Refuse what cannot be played or opened, before it is drawn."""
    too_long = kind == _FILM and max(width, height) > _MOST_FILM_SIDE
    if too_long or width * height > _MOST_PIXELS[kind]:
        raise UsageError(
            f"the whole would be about {width}x{height} pixels, which is too large; choose a smaller --size or fewer "
            f"pictures"
        )


def _write_film(output: Path, actors: Sequence[Actor], look: _Look, title: str, device: torch.device) -> str:
    from retargetbench.benchmark.progress import Progress
    from retargetbench.rendering.video import draw_frames, write_video

    count = len(actors)
    columns = min(count, look.columns or (count if count <= 3 else math.ceil(math.sqrt(count))))
    _check_pixels(_FILM, columns * look.width, math.ceil(count / columns) * look.height)
    frames = max(actor.frame_count for actor in actors)
    with Progress() as progress:
        progress.start("draw frames", frames)
        film = draw_frames(
            actors,
            azimuth_deg=look.azimuth_deg,
            width=look.width,
            height=look.height,
            columns=columns,
            title=title,
            device=device,
            advance=progress.advance,
        )
        write_video(output, film, actors[0].fps)
    fps = actors[0].fps
    return f"{_number(count, 'picture')} side by side, {frames} frames, {frames / fps:.2f} s at {fps:g} fps"


def _write_sheet(output: Path, actors: Sequence[Actor], look: _Look, title: str, device: torch.device) -> str:
    from retargetbench.benchmark.progress import Progress
    from retargetbench.formats._files import write_atomically
    from retargetbench.rendering.contact_sheet import draw_sheet, lay_out_moments, lay_out_motions

    if look.by_motion:
        layout = lay_out_motions(actors, look.times[0] if look.times else None)
    else:
        layout = lay_out_moments(actors, look.times, look.columns or _MOMENTS)
    rows = len(layout.row_labels)
    _check_pixels(_SHEET, layout.columns * look.width, rows * look.height)
    with Progress() as progress:
        progress.start("draw pictures", len(layout.cells))
        data = draw_sheet(
            actors,
            layout,
            azimuth_deg=look.azimuth_deg,
            width=look.width,
            height=look.height,
            title=title,
            device=device,
            advance=progress.advance,
        )
    write_atomically(output, data)
    return f"{_number(rows, 'row')} of {_number(layout.columns, 'picture')}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
