"""Lines that tell how far a long run is where there is no terminal."""

from __future__ import annotations

import io

import pytest

from retargetbench.benchmark import progress
from retargetbench.benchmark.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that stages are measured by; set its one element."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_long_stage_tells_the_time_that_is_left(clock: list[float]) -> None:
    stream = io.StringIO()
    with Progress(stream) as shown:
        shown.start("clips", 10)
        for steps, seconds in ((1, 50.0), (1, 150.0), (4, 600.0), (4, 1000.0)):
            clock[0] = 100.0 + seconds
            shown.advance(steps)
    # 150 s for two are 600 s for the other eight.
    assert stream.getvalue().splitlines() == [
        "clips: 1/10",
        "clips: 2/10, about 10 min left",
        "clips: 6/10, about 7 min left",
        "clips: 10/10",
    ]


def test_each_stage_has_its_own_clock(clock: list[float]) -> None:
    stream = io.StringIO()
    with Progress(stream) as shown:
        shown.start("bodies", 1)
        clock[0] = 900.0
        shown.advance()
        shown.start("clips", 2)
        clock[0] = 930.0
        shown.advance()
    assert stream.getvalue().splitlines() == ["bodies: 1/1", "clips: 1/2"]
