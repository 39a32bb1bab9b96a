"""Scores of source and ground truth that a dataset ships, so that a first run does not compute them again.

They are the files of a run folder in one zip archive. Every value in them carries the key that it was computed under
(dataset, clip, metric, version), so a value of another version of the data or of a metric is not taken but computed.
To make the archive of a dataset anew, run any method on it and call::

    python -m retargetbench.benchmark.known_scores RUN_FOLDER ARCHIVE
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from retargetbench.benchmark.plan import GROUND_TRUTH, SOURCE
from retargetbench.benchmark.predictions import UNREADABLE
from retargetbench.benchmark.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retargetbench.benchmark.score import ScoreJob

_REFERENCES = (SOURCE, GROUND_TRUTH)
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)


def lay_out_known_scores(archive: Path | None, jobs: Iterable[ScoreJob], folder: RunFolder) -> None:
    """Put what is known into a run folder, where nothing is there yet.

    Args:
        archive: of the dataset; None, or one that is missing or damaged, is as good as an empty one.
        jobs: what is going to be judged.
        folder: of the run.
    """
    if archive is None or not archive.is_file():
        return
    pairs = [(label, job.row) for job in jobs for label in job.labels if label in _REFERENCES]
    try:
        with zipfile.ZipFile(archive) as known:
            names = set(known.namelist())
            for label, row in pairs:
                score = folder.score(label, row)
                if score.exists():
                    continue
                for path in (folder.frames(label, row), score):  # the score last: it says that all is there
                    name = _name(path, folder)
                    if name in names:
                        folder.write(path, known.read(name))
    except UNREADABLE:
        return  # what is not there is computed


def pack_known_scores(folder: RunFolder, archive: Path) -> int:
    """Write scores and frames of the reference rows of a run into an archive; return how many files it holds.

    The same files give the same bytes.
    """
    files = sorted(
        path
        for kind in ("scores", "frames")
        for label in _REFERENCES
        for path in (folder.path / kind / label).rglob("*")
        if path.is_file()
    )
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in files:
            packed.writestr(
                zipfile.ZipInfo(_name(path, folder), _FIXED_DATE), path.read_bytes(), zipfile.ZIP_DEFLATED, 9
            )
    return len(files)


def _name(path: Path, folder: RunFolder) -> str:
    return str(PurePosixPath(path.relative_to(folder.path)))


if __name__ == "__main__":
    run, target = (Path(argument) for argument in sys.argv[1:])
    print(f"{target}: {pack_known_scores(RunFolder(run), target)} files")
