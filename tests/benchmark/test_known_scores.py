"""Scores that come with a dataset: taken where they hold, computed where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from retargetbench.benchmark import score as score_module
from retargetbench.benchmark.known_scores import pack_known_scores
from retargetbench.benchmark.run_folder import RunFolder
from retargetbench.datasets.folder import FolderDataset

if TYPE_CHECKING:
    from collections.abc import Callable

    Bench = Callable[..., int]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels of what metrics were computed for."""
    labels: list[str] = []
    original = score_module._score_subject

    def spy(job: score_module.ScoreJob, label: str, evaluation: object) -> None:
        key = job.subject_key(label)
        record = score_module.read_record(RunFolder(job.folder).score(label, job.row))
        if key is not None and any(job.missing(record, key, metric) for metric in job.metrics):
            labels.append(label)
        original(job, label, evaluation)  # type: ignore[arg-type]

    monkeypatch.setattr(score_module, "_score_subject", spy)
    return labels


@pytest.fixture
def archive(bench: Bench, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a run found out, as the archive of the dataset from now on."""
    assert bench("--methods", "copy", "--run", "first") == 0
    path = workplace / "known.zip"
    assert pack_known_scores(RunFolder(workplace / "runs" / "first"), path) > 0
    monkeypatch.setattr(FolderDataset, "known_scores", path)
    return path


def table(run: str) -> pd.DataFrame:
    return pd.read_parquet(Path("runs", run, "scores.parquet"))


def test_what_is_known_is_not_computed_again_and_gives_the_same_table(
    archive: Path, bench: Bench, judged: list[str]
) -> None:
    assert archive.is_file()
    assert bench("--methods", "copy", "--run", "second") == 0
    assert set(judged) == {"copy"}
    pd.testing.assert_frame_equal(table("second"), table("first"))
    for file in Path("runs/first/frames").rglob("*.npz"):
        assert (Path("runs/second") / file.relative_to("runs/first")).read_bytes() == file.read_bytes()


def test_a_metric_that_is_not_in_the_archive_is_computed(archive: Path, bench: Bench, judged: list[str]) -> None:
    assert archive.is_file()
    assert bench("--methods", "copy", "--run", "second", metrics="mse,jerk") == 0
    assert set(judged) == {"source", "ground-truth", "copy"}
    assert table("second")["jerk"].notna().all()


def test_scores_of_other_data_are_not_taken(
    archive: Path, bench: Bench, judged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive.is_file()
    monkeypatch.setattr(FolderDataset, "hash", "0123456789abcdef")
    assert bench("--methods", "copy", "--run", "second") == 0
    assert set(judged) == {"source", "ground-truth", "copy"}


def test_a_damaged_archive_costs_only_time(archive: Path, bench: Bench, judged: list[str]) -> None:
    archive.write_bytes(archive.read_bytes()[:500])
    assert bench("--methods", "copy", "--run", "second") == 0
    assert set(judged) == {"source", "ground-truth", "copy"}
    pd.testing.assert_frame_equal(table("second"), table("first"))


def test_the_same_scores_give_the_same_archive(archive: Path, workplace: Path) -> None:
    again = workplace / "again.zip"
    pack_known_scores(RunFolder(workplace / "runs" / "first"), again)
    assert again.read_bytes() == archive.read_bytes()
