"""The entry point: help, wrong use, exit codes, tracebacks."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer
from fake_plugins import plugin_folder

from retargetbench.builtin import COMMANDS
from retargetbench.cli import main
from retargetbench.cli.app import build_command
from retargetbench.cli.errors import run_guarded
from retargetbench.errors import FileFormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def all_commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from all_commands(command, (*path, name))


PATHS = [path for path, _ in all_commands(build_command())]


def test_names_kept_from_plugins_are_those_of_bench():
    assert set(build_command().commands) == COMMANDS


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {command} " in shown for command in COMMANDS)


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_has_a_help_text(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert main([*path, "--help"]) == 0
    usage, text = capsys.readouterr().out.split("\n\n")[:2]
    assert usage.startswith(f"Usage: bench {' '.join(path)} ")
    assert text.strip().endswith((".", ")"))


@pytest.mark.parametrize(
    "group",
    [(), *(path for path, command in all_commands(build_command()) if hasattr(command, "commands"))],
    ids=" ".join,
)
def test_no_summary_of_a_command_is_cut(group: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert main([*group, "--help"]) == 0
    lines = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert lines
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("arguments", [[], ["list"], ["data"], ["plugin"]])
def test_a_group_alone_shows_its_help_as_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Commands:" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "unknown bench command 'lst'. Did you mean 'list'? Available: data, "),
        (["list", "metods"], "unknown bench list command 'metods'. Did you mean 'methods'? Available: datasets, "),
        (["list", "methods", "--jsn"], "--json"),
        (["--verison"], "--version"),
        (["plugin", "check"], "Missing argument 'name'"),
        (["plugin", "check", "cpoy"], "unknown method, metric or dataset 'cpoy'. Did you mean 'copy'?"),
        (["list", "methods", "extra"], "extra"),
        (["plugin", "check", "copy", "--device", "tpu"], "device 'tpu' is not one of: auto, cpu, cuda"),
    ],
)
def test_wrong_use_is_answered_with_what_would_work(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_version_is_shown(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("retargetbench 0.")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("no such thing"), 2, "error: no such thing\n"),
        (FileFormatError("a.bvh", "no MOTION", line=3), 1, "error: a.bvh:3: no MOTION\n"),
        (ValueError("first\nsecond"), 1, "error: ValueError: first second (unexpected; --debug shows where)\n"),
        (MemoryError(), 1, "error: MemoryError: no message (unexpected; --debug shows where)\n"),
        (typer.BadParameter("too large"), 2, "error: Invalid value: too large\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (typer.Exit(3), 3, ""),
    ],
)
def test_an_exception_becomes_one_line_and_an_exit_code(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
):
    def action() -> None:
        raise error

    assert run_guarded(action) == code
    assert capsys.readouterr().err == message


BROKEN_COMMAND = """
@hookimpl
def register_commands(app):
    @app.command()
    def greet(name: str):
        if name == "nobody":
            raise LookupError(name)
        print("hello", name)
"""


@pytest.mark.parametrize("arguments", [["--debug", "greet", "nobody"], ["greet", "nobody", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with plugin_folder(tmp_path, monkeypatch) as folder:
        folder.add("greeter", BROKEN_COMMAND)
        assert main(arguments) == 1
        assert "raise LookupError(name)\nLookupError: nobody\n" in capsys.readouterr().err
        assert main(["greet", "nobody"]) == 1
        assert capsys.readouterr().err == "error: LookupError: nobody (unexpected; --debug shows where)\n"


def test_a_command_of_a_plugin_stands_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with plugin_folder(tmp_path, monkeypatch) as folder:
        folder.add("greeter", BROKEN_COMMAND)
        assert main(["greet", "you"]) == 0
        assert capsys.readouterr().out == "hello you\n"
        assert main(["--help"]) == 0
        assert "\n  greet" in capsys.readouterr().out


def test_log_messages_go_to_standard_error_debug_ones_with_debug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    source = """
        import logging

        @hookimpl
        def register_commands(app):
            @app.command()
            def talk():
                logging.getLogger("retargetbench.talk").warning("odd value %d", 3)
                logging.getLogger("retargetbench.talk").debug("detail")
    """
    handlers = logging.getLogger().handlers[:]
    with plugin_folder(tmp_path, monkeypatch) as folder:
        folder.add("talker", source)
        assert main(["talk"]) == 0
        assert capsys.readouterr().err == "WARNING: odd value 3\n"
        assert main(["talk", "--debug"]) == 0
        assert capsys.readouterr().err == "WARNING: odd value 3\nDEBUG: detail\n"
    assert logging.getLogger().handlers == handlers


def test_a_reader_that_leaves_the_pipe_ends_it_quietly():
    code = "from retargetbench.cli import main; raise SystemExit(main(['list', 'metrics']))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
