"""``bench doctor``: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import shutil
import sys
import urllib.request
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from retargetbench.discovery import one_line
from retargetbench.plugins import catalogue

State = Literal["ok", "missing", "broken"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TO_COME = "not needed yet, but for what is still to come:"
_MARKS: dict[State, str] = {"ok": "ok     ", "missing": "-      ", "broken": "BROKEN "}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    topic: str
    """What was looked at."""
    state: State
    """``missing`` is what some part of the platform does without; ``broken`` needs a hand."""
    detail: str
    """What was found, and what to do about it."""
    essential: bool = False
    """Whether nothing works without it, so that the exit code is 1."""


def doctor(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False) -> None:
    """Say what this machine has and what is missing.

    The exit code is 1 if something without which nothing works is broken.
    """
    findings = examine()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        size = max(len(finding.topic) for finding in findings)
        for finding in findings:
            typer.echo(f"{_MARKS[finding.state]}{finding.topic:<{size}}  {finding.detail}")
    if any(finding.essential and finding.state == "broken" for finding in findings):
        raise typer.Exit(1)


def examine() -> list[Finding]:
    """Look at everything."""
    return [
        _examine_python(),
        *_examine_packages(),
        _examine_torch(),
        _examine_warp(),
        _examine_folder(),
        _examine_tracking(),
        *_examine_plugins(),
        _examine_shared(),
        _examine_module("gradio", f"{_TO_COME} the page (bench ui)", "pip install gradio"),
        _examine_module("playwright", f"{_TO_COME} tests of the page", "pip install playwright"),
        _examine_program("chromium", _BROWSERS, f"{_TO_COME} tests of the page"),
        _examine_program("node", ("node",), "only for one test, GLB files by Khronos' gltf-validator"),
    ]


def _examine_python() -> Finding:
    text = f"{platform.python_version()} ({sys.executable}) on {platform.platform()}"
    return Finding("python", "ok" if sys.version_info >= (3, 11) else "broken", text, essential=True)


def _examine_packages() -> list[Finding]:
    """Look for every package that ours requires, without importing any."""
    findings = [Finding("retargetbench", "ok", f"{version('retargetbench')} ({Path(__file__).parents[1]})")]
    for requirement in requires("retargetbench") or ():
        wanted, _, condition = requirement.partition(";")
        name = re.split(r"[^A-Za-z0-9_.-]", wanted, maxsplit=1)[0]
        if "extra ==" in condition:
            continue
        try:
            findings.append(Finding(name, "ok", version(name)))
        except PackageNotFoundError:
            findings.append(Finding(name, "broken", f"not installed: pip install '{wanted.strip()}'", essential=True))
    return findings


def _examine_torch() -> Finding:
    try:
        import torch

        if torch.cuda.is_available():
            return Finding(
                "device", "ok", f"cuda: {torch.cuda.get_device_name()}, torch built for {torch.version.cuda}"
            )
        return Finding("device", "ok", f"cpu, {torch.get_num_threads()} threads; torch sees no cuda device")
    except Exception as error:  # a damaged installation raises all kinds of errors
        return Finding("device", "broken", f"torch cannot be used: {one_line(error)}", essential=True)


def _examine_warp() -> Finding:
    if find_spec("warp") is None:
        return Finding(
            "warp", "missing", "penetration runs in pure torch; faster with pip install 'retargetbench[fast]'"
        )
    return Finding("warp", "ok", f"{version('warp-lang')}, used for penetration")


def _examine_folder() -> Finding:
    here = Path.cwd()
    if os.access(here, os.W_OK):
        return Finding("working folder", "ok", f"{here} takes runs/ and mlflow.db")
    return Finding(
        "working folder", "broken", f"{here} is not writable, and runs/ goes there; change to another folder"
    )


def _examine_tracking() -> Finding:
    try:
        from retargetbench.benchmark.tracking import resolve_tracking_uri
    except Exception as error:  # a damaged installation raises all kinds of errors
        return Finding("mlflow store", "broken", f"results cannot be sent: {one_line(error)}", essential=True)
    uri = resolve_tracking_uri(None)
    problem = find_tracking_problem(uri)
    if problem:
        return Finding(
            "mlflow store", "broken", f"{uri}: {problem}; results stay in runs/, send them later by bench push"
        )
    return Finding("mlflow store", "ok", uri)


def find_tracking_problem(uri: str) -> str | None:
    """Say why MLflow cannot write to a store, or return None if nothing speaks against it.

    A server is asked for its health; the folder of an SQLite file must be writable. Other stores are not looked at.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        try:
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=3):  # noqa: S310 - http or https
                return None
        except (OSError, ValueError) as error:
            return f"the server does not answer ({one_line(error)})"
    if parts.scheme == "sqlite":
        file = Path(uri.removeprefix("sqlite:///"))
        place = file if file.exists() else file.absolute().parent
        return None if os.access(place, os.W_OK) else f"{place} is not writable or does not exist"
    if parts.scheme in ("", "file"):
        return "MLflow no longer writes to plain folders; use sqlite:///FILE or a server"
    return None


def _examine_plugins() -> list[Finding]:
    findings = []
    for info in catalogue().plugins:
        state: State = "broken" if info.state == "broken" else "ok"
        findings.append(Finding(f"plugin {info.name}", state, info.error or f"{info.distribution} {info.version}"))
    for kind, name in catalogue().conflicts:
        findings.append(Finding(f"{kind} {name}", "broken", catalogue().conflict_message(kind, name)))
    return findings


def _examine_shared() -> Finding:
    """Look for the real Mixamo files, which only some tests use."""
    folder = Path(os.environ.get("RETARGETBENCH_SHARED", "../shared"))
    if (folder / "data").is_dir():
        return Finding("shared files", "ok", f"{folder.absolute()}")
    return Finding("shared files", "missing", f"no {folder}; tests on real Mixamo files skip, see RETARGETBENCH_SHARED")


def _examine_module(name: str, purpose: str, remedy: str) -> Finding:
    if find_spec(name) is None:
        return Finding(name, "missing", f"{purpose}; {remedy}")
    return Finding(name, "ok", version(name))


def _examine_program(name: str, names: tuple[str, ...], purpose: str) -> Finding:
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        return Finding(name, "missing", f"{purpose}; none of {', '.join(names)} is on the PATH")
    return Finding(name, "ok", found)
