"""The README shows what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from retargetbench.cli import main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMMAND = re.compile(r"<!-- Checked by tests/docs/test_readme.py: bench (.*) -->")


def numbers(row: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", row)]


@pytest.mark.slow
def test_the_table_is_what_its_command_gives(tmp_path, capsys):
    (command,) = COMMAND.findall(README)
    assert main([*shlex.split(command), "--no-track", "--out", str(tmp_path), "--run", "readme"]) == 0
    capsys.readouterr()
    assert main(["report", "readme", "--out", str(tmp_path), "--format", "md"]) == 0
    printed = capsys.readouterr().out
    made = [line for line in printed.splitlines() if line.startswith("| method") or "| mean |" in line]
    shown = [line for line in README.splitlines() if line.startswith("| method") or "| mean |" in line]
    assert len(shown) == len(made) == 4
    assert shown[0] == made[0]
    for ours, theirs in zip(shown[1:], made[1:], strict=True):
        assert ours.split("|")[:5] == theirs.split("|")[:5]
        assert [cell.strip() == "–" for cell in ours.split("|")] == [cell.strip() == "–" for cell in theirs.split("|")]
        # Processors differ in the last digits, and a sensor or vertex at a border may count or not.
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=0.02)


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 5
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []
