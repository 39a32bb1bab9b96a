"""From exceptions to messages and exit codes.

0 ok, 1 something failed, 2 wrong use, 130 interrupted. A message is on standard error; a traceback only with
``--debug``.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

import typer

from retargetbench.discovery import one_line
from retargetbench.errors import RetargetBenchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


def run_guarded(action: Callable[[], object], *, debug: bool = False) -> int:
    """Run a command and return its exit code; no exception passes.

    Args:
        action: the command; it says by ``typer.Exit(code)`` that it ends with another code than 0.
        debug: whether to show tracebacks.
    """
    try:
        action()
        if sys.stdout is not None:  # None where a shell has closed it
            sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except KeyboardInterrupt as interruption:
        _say(str(interruption) or "interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has left; Python would complain again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (Exception, SystemExit) as error:  # the last line of defence; a plugin's exit must not look like success
        if debug:
            traceback.print_exc()
        message, code = explain(error)
        _say(message)
        return code
    return OK


def explain(error: BaseException) -> tuple[str, int]:
    """Return the message for an exception and the exit code that goes with it."""
    if isinstance(error, UsageError):
        return f"error: {error}", WRONG_USE
    if isinstance(error, RetargetBenchError):
        return f"error: {error}", FAILED
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = f"\nSee '{context.command_path} --help'" if context is not None else ""
        return f"error: {error.format_message()}{hint}", error.exit_code
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"error: {where}{error.strerror}", FAILED
    return f"error: {one_line(error)} (unexpected; --debug shows where)", FAILED


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
