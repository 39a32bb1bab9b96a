"""How far a run is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_LINE_SECONDS = 5.0
_LINE_SHARE = 0.1
_LONG_SECONDS = 60.0
"""Stages that took this long get the time that they will still take."""


class Progress:
    """Shows stages of known length, one after the other; a context manager.

    Args:
        stream: where to write; standard error by default, so that standard output holds results alone.
        quiet: write nothing.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._bar: RichProgress | None = None
        self._bar_task: TaskID | None = None
        self._title, self._total, self._done = "", 0, 0
        self._started_at, self._shown_at, self._shown_done = 0.0, 0.0, 0

    def __enter__(self) -> Self:
        if self._stream.isatty() and not self._quiet:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(file=self._stream),
            )
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, title: str, total: int) -> None:
        """Begin a stage of ``total`` steps; a stage without steps is not shown."""
        self._title, self._total, self._done = title, total, 0
        self._started_at = self._shown_at = time.monotonic()
        self._shown_done = 0
        if self._bar is not None and total:
            self._bar_task = self._bar.add_task(title, total=total)

    def note(self, text: str) -> None:
        """Write a line between the stages."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        elif not self._quiet:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def advance(self, steps: int = 1) -> None:
        """Count finished steps."""
        self._done += steps
        if self._bar is not None and self._bar_task is not None:
            self._bar.advance(self._bar_task, steps)
            return
        now = time.monotonic()
        due = now - self._shown_at >= _LINE_SECONDS or self._done - self._shown_done >= _LINE_SHARE * self._total
        if not self._quiet and (due or self._done == self._total):
            self._stream.write(f"{self._title}: {self._done}/{self._total}{self._remaining(now)}\n")
            self._stream.flush()
            self._shown_at, self._shown_done = now, self._done

    def _remaining(self, now: float) -> str:
        """Say how long a long stage will still take if it goes on as before."""
        elapsed = now - self._started_at
        left = self._total - self._done
        if elapsed < _LONG_SECONDS or not left or not self._done:
            return ""
        return f", about {math.ceil(elapsed / self._done * left / 60)} min left"
