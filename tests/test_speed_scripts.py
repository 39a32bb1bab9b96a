"""The scripts that measure speed run; how fast anything is, is not a matter for tests on busy machines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "benchmarks" / "speed"


def run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPTS / name, *arguments], capture_output=True, text=True)


def test_geometry_compares_inside_tests_and_skinning():
    for module in ("embreex", "igl", "warp"):
        pytest.importorskip(module, reason=f"{module} comes with the extras 'fast' and 'test'")
    sizes = ("--segments", "10", "--frames", "2", "--points", "40", "--skinned-frames", "2", "--rounds", "1")
    done = run_script("geometry.py", *sizes)
    assert done.returncode in (0, 1), done.stderr
    wrong = re.findall(r"x\) (\d+)", done.stdout)
    assert wrong == ["0"] * 6, "torch and warp must agree with libigl on three surfaces"
    assert re.search(r"^ +22 .*x .*e-0[5-9] m$", done.stdout, re.MULTILINE)
    assert re.search(r"^ +52 .*x .*e-0[5-9] m$", done.stdout, re.MULTILINE)


def test_rendering_compares_with_matplotlib():
    done = run_script("rendering.py", "--segments", "8", "--frames", "2", "--rounds", "1", "--size", "64")
    assert done.returncode in (0, 1), done.stderr
    rates = re.findall(r"^  (\S.*?) +[\d.]+ frames/s \(\d+x\)$", done.stdout, re.MULTILINE)
    assert rates == ["Stage.render", "Stage.render, penetration marked", "matplotlib plot_trisurf"]


@pytest.mark.slow
def test_run_stages_prints_shares_of_time_and_growth_of_memory():
    done = run_script("run_stages.py", "--clips", "2", "4", "--metrics", "mse")
    assert done.returncode == 0, done.stdout + done.stderr
    for stage in ("plan", "predict", "score", "report", "MLflow"):
        assert len(re.findall(rf"^  {stage} .* s .* %$", done.stdout, re.MULTILINE)) == 2
    assert re.search(r"^peak memory grows \d\.\d\d-fold", done.stdout, re.MULTILINE)
