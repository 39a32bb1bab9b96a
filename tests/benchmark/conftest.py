"""A tiny dataset, a plugin with misbehaving methods and metrics, and a way to call ``bench``."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fake_plugins import PluginFolder, plugin_folder
from tiny_dataset import write_tiny_dataset

from retargetbench.benchmark import opened
from retargetbench.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BENCH = (sys.executable, "-c", "import sys; from retargetbench.cli import main; sys.exit(main())")

LAB = """
import os, signal, sys, time
import torch
from retargetbench import (
    UNDEFINED, Column, Metric, MethodInfo, MetricInfo, MetricValue, Motion, RetargetMethod, apply_root_rule,
    hookimpl, to_canonical_motion,
)

@hookimpl
def register_methods(register):
    names = "Plain Strict WrongShape NotFinite WrongCount WrongRate Crash Slow Vandal Quitter"
    for name in names.split():
        register(MethodInfo(name.lower(), "a method", "{module}:" + name))
    register(MethodInfo("absent", "cannot be imported", "{module}_absent:Method"))

@hookimpl
def register_metrics(register):
    for name in ("Tall", "Faulty", "Endless", "Brief", "Odd"):
        register(MetricInfo(name.lower(), "{module}:" + name, (Column(name.lower() + "_value", "m", "higher", "-"),)))

def note(text):
    if "LAB_LOG" in os.environ:
        with open(os.environ["LAB_LOG"], "a") as log:
            log.write(text + "\\n")

class Plain(RetargetMethod):
    options = {"shift": float}
    def __init__(self, *, device="cpu", shift=0.0):
        super().__init__(device=device, shift=shift)
        self.shift = shift
    def retarget(self, sources, target):
        return [self.one(source, target) for source in sources]
    def one(self, source, target):
        note(f"{type(self).__name__} {source.character.name}/{source.name}/{target.name}")
        rotations = to_canonical_motion(source.character.skeleton, source.motion).local_rotations
        motion = apply_root_rule(source, target, rotations)
        return Motion(motion.root_translation + self.shift, motion.local_rotations, motion.fps)

class Strict(Plain):
    def one(self, source, target):
        if (source.character.name, source.name, target.name) == ("average", "wave", "child"):
            raise RuntimeError("no wave for a child")
        return super().one(source, target)

class WrongShape(Plain):
    def one(self, source, target):
        return super().one(source, target).frames(0, 5)

class NotFinite(Plain):
    def one(self, source, target):
        motion = super().one(source, target)
        motion.root_translation[2, 1] = float("nan")
        return motion

class WrongCount(Plain):
    def retarget(self, sources, target):
        return super().retarget(sources, target)[1:]

class WrongRate(Plain):
    def one(self, source, target):
        motion = super().one(source, target)
        return Motion(motion.root_translation, motion.local_rotations, 2 * motion.fps)

class Crash(Plain):
    def one(self, source, target):
        if (source.character.name, source.name, target.name) == ("average", "wave", "child"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().one(source, target)

class Slow(Plain):
    def one(self, source, target):
        time.sleep(float(os.environ.get("LAB_METHOD_SECONDS", "0")))
        return super().one(source, target)

class Vandal(Plain):
    def one(self, source, target):
        motion = super().one(source, target)
        source.motion.local_rotations.zero_()
        source.motion.root_translation.mul_(100)
        target.bind_vertices.mul_(3)
        target.skeleton.offsets.mul_(2)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        os.chdir("/")
        return motion

class Quitter(Plain):
    def one(self, source, target):
        sys.exit(0)

class Odd(Metric):
    def evaluate(self, evaluation, columns):
        evaluation.motion.root_translation.zero_()
        return {"odd_value": MetricValue("seven")}

class Tall(Metric):
    def evaluate(self, evaluation, columns):
        time.sleep(float(os.environ.get("LAB_METRIC_SECONDS", "0")))
        note(f"Tall {evaluation.source.name}/{evaluation.target.name}")
        heights = evaluation.positions[..., 1].amax(-1)
        return {"tall_value": MetricValue(float(heights.mean()), heights)}

class Faulty(Metric):
    def evaluate(self, evaluation, columns):
        if evaluation.target.name == "child" and "LAB_REPAIRED" not in os.environ:
            raise ValueError("children are not judged")
        return {"faulty_value": UNDEFINED}

class Brief(Metric):
    def evaluate(self, evaluation, columns):
        speeds = evaluation.positions.diff(dim=0).norm(dim=-1).mean(-1)
        return {"brief_value": MetricValue(float(speeds.mean()), speeds)}

class Endless(Metric):
    def evaluate(self, evaluation, columns):
        return {"endless_value": MetricValue(float("inf"))}
"""


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder dataset of three capsule bodies and two motions of 24 frames: 12 rows in four atoms."""
    path = tmp_path_factory.mktemp("data") / "tiny"
    write_tiny_dataset(path)
    return path


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginFolder]:
    """The plugin ``lab`` with methods and metrics that misbehave in all ways."""
    path = tmp_path / "plugins"
    path.mkdir()
    with plugin_folder(path, monkeypatch) as folder:
        folder.add("lab", LAB)
        opened.created_method.cache_clear()
        opened.created_metric.cache_clear()
        yield folder
    opened.created_method.cache_clear()
    opened.created_metric.cache_clear()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return path


@pytest.fixture
def bench(workplace: Path, tiny_dataset: Path) -> Callable[..., int]:
    """Call ``bench run`` on the tiny dataset with some cheap metrics, in this process; returns the exit code."""

    def run(*arguments: str, metrics: str = "mse,acceleration", split: str = "all") -> int:
        fixed = ["--dataset", str(tiny_dataset), "--split", split, "--metrics", metrics]
        return main(["run", *fixed, *([] if "--tracking-uri" in arguments else ["--no-track"]), *arguments])

    return run


@pytest.fixture
def start_bench(workplace: Path, tiny_dataset: Path, lab: PluginFolder) -> Callable[..., subprocess.Popen[str]]:
    """Start ``bench run`` on the tiny dataset as a process of its own that sees the plugin ``lab``."""

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*BENCH, "run", "--dataset", str(tiny_dataset), "--split", "all", "--no-track", *arguments],
            cwd=workplace,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join([str(lab.path), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1"}
            | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
