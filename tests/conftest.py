"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every device that tests run on; cuda is left out by name where there is none."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no cuda device on this machine")
    return torch.device(request.param)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder with real Mixamo files and official outputs, which are never committed."""
    default = Path(__file__).resolve().parents[1].parent / "shared"
    path = Path(os.environ.get("RETARGETBENCH_SHARED", default))
    if not (path / "data" / "r2et_mixamo").is_dir():
        pytest.skip(f"no real Mixamo files under {path}; set RETARGETBENCH_SHARED")
    return path
