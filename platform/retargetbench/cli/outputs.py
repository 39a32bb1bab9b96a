"""What is known of an output before any work is done for it."""

from __future__ import annotations

from pathlib import Path

from retargetbench.errors import UsageError


def check_output(output: Path, suffixes: tuple[str, ...], *inputs: str | None) -> None:
    """Refuse an output that could not be written.

    Args:
        output: the file that is to be written.
        suffixes: what it may end in, in lower case.
        inputs: files that are read; none of them may be overwritten.

    Raises:
        UsageError: its suffix is another, its folder does not exist, or it is a folder or an input.
    """
    if output.suffix.lower() not in suffixes:
        raise UsageError(f"cannot write {output}: suffix {output.suffix!r} is not one of {', '.join(suffixes)}")
    try:
        if output.is_dir():
            raise UsageError(f"cannot write {output}: it is a folder; give the name of a file")
        if not output.absolute().parent.is_dir():
            raise UsageError(f"cannot write {output}: its folder does not exist; make it first")
        if any(text is not None and Path(text).resolve() == output.resolve() for text in inputs):
            raise UsageError(f"cannot write {output}: it is also an input, which would be lost")
    except OSError as error:  # a name that the file system cannot hold
        raise UsageError(f"cannot write {output}: {error.strerror}") from None
