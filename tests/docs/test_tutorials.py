"""The tutorials are run as they stand: files are written, commands must succeed and print what is shown.

In a page, a block ```` ```python title="path" ```` is a file, and in a ```` ```console ```` block a line with ``$`` is
a command; other lines must occur in what it prints. Packages are installed without pip and without touching this
environment: an editable wheel is unpacked into a folder on PYTHONPATH.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BUILD = "import hatchling.build, sys; print(hatchling.build.build_editable(sys.argv[1]))"


class Shell:
    """A folder with its own PYTHONPATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / ".site"
        self.site.mkdir()
        self.python_path = [str(self.site)]

    def run(self, command: str) -> str:
        words = shlex.split(command)
        if words[:3] == ["pip", "install", "-e"]:
            return self.install(self.folder / words[3])
        programs = {
            "bench": [sys.executable, "-c", "import sys; from retargetbench.cli import main; sys.exit(main())"],
            "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
            "python": [sys.executable],
        }
        return self.call([*programs[words[0]], *words[1:]], self.folder)

    def install(self, package: Path) -> str:
        wheel = self.call([sys.executable, "-c", BUILD, str(self.site)], package).split()[-1]
        with zipfile.ZipFile(self.site / wheel) as archive:
            archive.extractall(self.site)
        self.python_path.append(str(package))
        return ""

    def call(self, arguments: list[str], folder: Path) -> str:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(self.python_path),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
            "PYTHONDONTWRITEBYTECODE": "1",  # files are rewritten within a second, which would leave stale bytecode
        }
        done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{arguments} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


def run_page(page: Path, folder: Path) -> int:
    """Run a page and return the number of commands that were run."""
    shell, commands = Shell(folder), 0
    for language, title, text in BLOCK.findall(page.read_text()):
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(text)
        elif language == "console":
            printed = ""
            for line in text.splitlines():
                if line.startswith("$ "):
                    printed = shell.run(line[2:])
                    commands += 1
                else:
                    assert line in printed, f"{page.name}: {line!r} is not in what was printed:\n{printed}"
    return commands


@pytest.mark.slow
def test_the_page_about_run_folders_names_every_file(tmp_path):
    page = (DOCS / "run-folder.md").read_text()
    shell = Shell(tmp_path)
    shell.run("bench run --methods copy --split UC+UM --metrics mse,contact_error,penetration --run all --no-track")
    folder = tmp_path / "runs" / "all"
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    deep = {"predictions", "scores", "frames", "failures"}
    tops = {path.parts[0] if path.parts[0] in deep else str(path).replace("copy", "METHOD") for path in found}
    named = {top: f"`{top}/METHOD/SOURCE/MOTION/TARGET." if top in deep else f"`{top}`" for top in tops}
    assert len(named) > 10
    assert [top for top, text in named.items() if text not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(p.name for p in DOCS.glob("*.md") if "```console" in p.read_text()))
def test_a_tutorial_can_be_followed_as_it_stands(page, tmp_path):
    assert run_page(DOCS / page, tmp_path) > 0


def test_a_page_with_a_failing_command_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ python -c 'raise SystemExit(3)'\n```\n")
    with pytest.raises(AssertionError, match="gave 3"):
        run_page(page, tmp_path)


def test_a_page_that_shows_what_is_not_printed_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ python -c 'print(1)'\n2\n```\n")
    with pytest.raises(AssertionError, match="'2' is not in what was printed"):
        run_page(page, tmp_path)
