"""Time of each stage of `bench run`, and its peak memory with few and with many clips, each in a fresh process.

Exit code 1 means that memory grows with the number of clips, or that a run fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# This process imports neither torch nor the platform: Linux hands the peak of a parent down to its children.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
BENCH = (sys.executable, "-c", "import sys; from retargetbench.cli import main; sys.exit(main())")
GROWTH_BOUND = 1.2
"""How much more memory ten times as many clips may take."""

CHARACTERS = ("average", "stout")
FRAMES = 60


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, nargs=2, default=(8, 80), metavar="N", help="clips of the two runs (8 80)")
    parser.add_argument("--metrics", default="all", help="metrics of the runs (default %(default)s)")
    parser.add_argument("--segments", type=int, default=18, help="fineness of the bodies; 47 gives 3 431 vertices")
    parser.add_argument("--make", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.make is not None:
        make_dataset(chosen.make, chosen.clips[0], chosen.segments)
        return 0
    peaks = []
    with tempfile.TemporaryDirectory() as place:
        for clips in chosen.clips:
            print(f"{clips} clips of {FRAMES} frames, each on one other character")
            peaks.append(measure_run(Path(place) / str(clips), clips, chosen.segments, chosen.metrics))
    growth = peaks[1] / peaks[0]
    print(f"peak memory grows {growth:.2f}-fold with the clips; allowed are {GROWTH_BOUND:g}")
    return 0 if growth <= GROWTH_BOUND else 1


def measure_run(folder: Path, clips: int, segments: int, metrics: str) -> float:
    """Run the benchmark on a new dataset, print the time of its stages, and return its peak memory in MB."""
    dataset = folder / "dataset"
    make = (sys.executable, __file__, "--make", str(dataset), "--segments", str(segments), "--clips", str(clips), "0")
    subprocess.run(make, check=True, env=os.environ | ONE_THREAD)
    command = [*BENCH, "run", "--dataset", str(dataset), "--methods", "copy", "--split", "all", "--full"]
    command += ["--metrics", metrics, "--out", "runs", "--tracking-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    with (folder / "stderr").open("w+") as errors, (folder / "stdout").open("w") as table:
        process = subprocess.Popen(command, cwd=folder, env=os.environ | ONE_THREAD, stdout=table, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read()
    times = re.findall(r"(\w+) ([\d.]+) s\b", said.rpartition("time  ")[2])
    if process.returncode or not times:
        sys.exit(f"the run failed with exit code {process.returncode}:\n{said}")
    stages = {stage: float(seconds) for stage, seconds in times}
    for stage, seconds in stages.items():
        print(f"  {stage:10}{seconds:8.1f} s{100 * seconds / sum(stages.values()):6.0f} %")
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    peak = usage.ru_maxrss / unit
    print(f"  {'peak':10}{peak:8.0f} MB\n")
    return peak


def make_dataset(folder: Path, clips: int, segments: int) -> None:
    """Write a dataset of two bodies and ``clips`` different clips, half of them on each, as each other's truth."""
    from dataclasses import replace

    import torch

    from retargetbench.clip import Clip
    from retargetbench.datasets.base import Split
    from retargetbench.datasets.capsule_bodies import BUILDS, Body
    from retargetbench.datasets.capsules import open_capsules
    from retargetbench.datasets.folder_writer import write_folder_dataset
    from retargetbench.datasets.splits import every_pair

    shipped = open_capsules()
    bodies = [Body(replace(b, segments=segments)).character for b in BUILDS if b.name in CHARACTERS]
    motions = sorted({motion for _, motion in shipped.clip_names})
    made = []
    for body in bodies:
        for k in range(clips // len(bodies)):
            motion = shipped.clip(body.name, motions[k % len(motions)]).motion
            # Each time a motion comes again it starts a frame later, so that no two clips are equal.
            order = (torch.arange(FRAMES) + k // len(motions)) % motion.frame_count
            part = replace(
                motion,
                root_translation=motion.root_translation[order],
                local_rotations=motion.local_rotations[order],
            )
            made.append(Clip(f"motion{k:04}", body, part))
    names = {clip.name for clip in made}
    pairs = [(clip.character.name, clip.name) for clip in made]
    rows = every_pair(pairs, CHARACTERS, seen_characters=CHARACTERS, seen_motions=names)
    write_folder_dataset(
        folder,
        name=f"{clips} clips",
        characters=bodies,
        clips=made,
        splits=[Split("default", rows)],
        seen_characters=CHARACTERS,
        seen_motions=names,
    )


if __name__ == "__main__":
    sys.exit(main())
