"""What tests of commands share: a tiny dataset, files as users have them, and MLflow's database ready made."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from mixamo_like import write_tiny_r2et
from tiny_dataset import write_tiny_dataset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder dataset of three capsule bodies and two motions of 24 frames: 12 rows in four atoms."""
    path = tmp_path_factory.mktemp("data") / "tiny"
    write_tiny_dataset(path)
    return path


@pytest.fixture(scope="session")
def r2et_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BVH and shape files of three characters in R2ET's layout; not to be changed."""
    path = tmp_path_factory.mktemp("files") / "r2et"
    write_tiny_r2et(path)
    return path


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Put an empty MLflow database somewhere and return its URI; MLflow itself needs seconds to make one."""
    from mlflow import MlflowClient

    template = tmp_path_factory.mktemp("mlflow") / "template.db"
    MlflowClient(f"sqlite:///{template}").search_experiments()

    def copy(path: Path) -> str:
        shutil.copy(template, path)
        return f"sqlite:///{path}"

    return copy


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return path
