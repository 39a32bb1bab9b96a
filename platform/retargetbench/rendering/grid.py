"""Pictures in rows and columns with names beside them, in DejaVu Sans, a font that matplotlib brings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from retargetbench.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from PIL.ImageFont import FreeTypeFont

    Image = npt.NDArray[np.uint8]

_PAPER, _INK = (255, 255, 255), (45, 48, 52)
_GAP = 2
_ELLIPSIS = "…"
_MOST_LINES = 4


def require_pillow() -> None:
    """Raise `MissingExtraError` where Pillow is not installed."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingExtraError("pillow", "render", "drawing text and PNG files") from None


@lru_cache(maxsize=8)
def _font(size: int) -> FreeTypeFont:
    """DejaVu Sans, which knows more scripts than the font inside Pillow."""
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def shorten(text: str, font: FreeTypeFont, width: float) -> str:
    """Cut a text in its middle until it is at most ``width`` pixels wide."""
    if font.getlength(text) <= width:
        return text
    for kept in range(len(text) - 1, 0, -1):
        head = kept - kept // 2
        short = f"{text[:head].rstrip()}{_ELLIPSIS}{text[len(text) - kept // 2 :].lstrip()}"
        if font.getlength(short) <= width:
            return short
    return _ELLIPSIS


def wrap(text: str, font: FreeTypeFont, width: float) -> list[str]:
    """Break a text into lines of at most ``width`` pixels, after blanks, slashes and underscores where it can be."""
    words = [""]
    for sign in text:
        words[-1] += sign
        if sign in " /_-":
            words.append("")
    lines = [""]
    for word in words:
        if lines[-1] and font.getlength((lines[-1] + word).rstrip()) > width:
            lines.append("")
        lines[-1] += word
    lines = [line.strip() for line in lines if line.strip()]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], " ".join(lines[_MOST_LINES - 1 :])]
    return [shorten(line, font, width) for line in lines]


@dataclass(frozen=True)
class Grid:
    """Where pictures of one size are put, and what is written beside them.

    Attributes:
        columns: pictures in a row.
        width: of a picture, pixels.
        height: of a picture, pixels.
        captions: one line above each picture, in reading order; or none at all.
        row_labels: names to the left of the rows; or none.
        column_labels: names above the columns; or none.
        title: a line above all; or empty.
        count: number of pictures.
    """

    columns: int
    width: int
    height: int
    count: int
    captions: Sequence[str] = ()
    row_labels: Sequence[str] = ()
    column_labels: Sequence[str] = ()
    title: str = ""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.ceil(self.count / self.columns)

    @property
    def _text_size(self) -> int:
        return max(11, min(20, round(min(self.width, self.height) / 18)))

    @property
    def _line(self) -> int:
        return math.ceil(1.6 * self._text_size)

    @property
    def _left(self) -> int:
        """Width of the names of rows."""
        if not self.row_labels:
            return 0
        font = _font(self._text_size)
        widest = max(font.getlength(line) for text in self.row_labels for line in wrap(text, font, 0.7 * self.width))
        return math.ceil(widest) + self._text_size + 4

    @property
    def _top(self) -> int:
        """Height of what is written above the first row."""
        return (math.ceil(1.3 * self._line) if self.title else 0) + (self._line if self.column_labels else 0)

    @property
    def _row_height(self) -> int:
        return self.height + _GAP + (self._line if self.captions else 0)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the whole, both even, as films need them."""
        width = self._left + self.columns * (self.width + _GAP) - _GAP
        height = self._top + self.rows * self._row_height - _GAP
        return width + width % 2, height + height % 2

    def corner(self, number: int) -> tuple[int, int]:
        """Return the left upper corner of a picture: column and row in pixels."""
        row, column = divmod(number, self.columns)
        above = self._line if self.captions else 0
        return self._left + column * (self.width + _GAP), self._top + row * self._row_height + above

    def background(self) -> Image:
        """Draw everything but the pictures, (height, width, 3)."""
        from PIL import Image as PillowImage
        from PIL import ImageDraw

        size = self._text_size
        sheet = PillowImage.new("RGB", self.size, _PAPER)
        draw = ImageDraw.Draw(sheet)
        font = _font(size)

        def write(text: str, x: float, y: float, width: float, font: FreeTypeFont, anchor: str) -> None:
            draw.text((x, y), shorten(text, font, width), fill=_INK, font=font, anchor=anchor)

        if self.title:
            large = _font(math.ceil(1.15 * size))
            write(self.title, self.size[0] / 2, 0.65 * self._line, self.size[0] - size, large, "mm")
        for k, text in enumerate(self.column_labels):
            x, y = self.corner(k)[0] + self.width / 2, self._top - self._line / 2
            write(text, x, y, self.width - size, font, "mm")
        for k, text in enumerate(self.captions):
            x, y = self.corner(k)
            write(text, x + self.width / 2, y - self._line / 2, self.width - size, font, "mm")
        for k, text in enumerate(self.row_labels):
            lines = wrap(text, font, 0.7 * self.width)
            middle = self.corner(k * self.columns)[1] + self.height / 2
            for n, line in enumerate(lines):
                y = middle + (n - (len(lines) - 1) / 2) * 1.25 * size
                draw.text((self._left - size / 2 - 2, y), line, fill=_INK, font=font, anchor="rm")
        return np.asarray(sheet, dtype=np.uint8).copy()

    def put(self, sheet: Image, number: int, picture: Image) -> None:
        """Put a picture (height, width, 3) into its place of a sheet."""
        x, y = self.corner(number)
        sheet[y : y + self.height, x : x + self.width] = picture
