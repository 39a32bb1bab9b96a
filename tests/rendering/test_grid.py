"""Names beside pictures: no text over a picture or over other text, whatever the names are."""

from __future__ import annotations

import numpy as np
import pytest

from retargetbench.rendering.grid import Grid, _font, shorten, wrap

LONG = "Sporty_Granny_99/Northern Soul Spin Combo On The Floor With A Very Long Name That Nobody Would Give"


@pytest.mark.parametrize("text", ["short", LONG, "W" * 200, "日本/wave", ""])
@pytest.mark.parametrize("width", [20, 100, 300])
def test_shortened_and_wrapped_texts_fit(text: str, width: int):
    font = _font(12)
    assert font.getlength(shorten(text, font, width)) <= width
    lines = wrap(text, font, width)
    assert len(lines) <= 4
    assert all(font.getlength(line) <= width for line in lines)


def test_texts_that_fit_stay_as_they_are_and_others_keep_both_ends():
    font = _font(12)
    assert shorten("slim/wave", font, 200) == "slim/wave"
    assert wrap("slim/wave", font, 200) == ["slim/wave"]
    cut = shorten(LONG, font, 150)
    assert cut.startswith("Sport")
    assert cut.endswith("Give")
    assert "…" in cut
    assert wrap("hands_on_belly of stout", font, 75) == ["hands_on_", "belly of", "stout"]


@pytest.mark.parametrize("size", [(64, 64), (160, 200), (512, 384)])
@pytest.mark.parametrize("columns", [1, 3])
def test_pictures_are_whole_and_no_text_reaches_them_or_the_border(size: tuple[int, int], columns: int):
    width, height = size
    texts = {"captions": [LONG, "", "x", LONG, "yy"], "row_labels": [LONG] * 5, "column_labels": [LONG] * columns}
    grid = Grid(columns, width, height, 5, title=LONG, **texts | {"row_labels": [LONG] * -(-5 // columns)})
    sheet = grid.background()
    assert sheet.shape == (grid.size[1], grid.size[0], 3)
    assert sheet.shape[0] % 2 == sheet.shape[1] % 2 == 0
    ink = sheet.min(-1) < 200
    assert ink.sum() > 100
    taken = np.zeros_like(ink)
    for number in range(5):
        x, y = grid.corner(number)
        assert 0 <= x <= sheet.shape[1] - width
        assert 0 <= y <= sheet.shape[0] - height
        assert not taken[y : y + height, x : x + width].any()
        taken[y : y + height, x : x + width] = True
        grid.put(sheet, number, np.full((height, width, 3), number + 1, dtype=np.uint8))
    assert not (ink & taken).any()
    border = np.ones_like(ink)
    border[1:-1, 1:-1] = False
    assert not (ink & border).any()
    for number in range(5):
        x, y = grid.corner(number)
        assert (sheet[y : y + height, x : x + width] == number + 1).all()


def test_neighbouring_captions_do_not_touch():
    grid = Grid(3, 90, 60, 3, captions=[LONG] * 3)
    ink = (grid.background().min(-1) < 200).any(0)
    for number in (1, 2):
        x, _ = grid.corner(number)
        assert not ink[x - 3 : x + 3].any()
