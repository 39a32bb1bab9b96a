"""Speed of drawing beside matplotlib's plot_trisurf, measured alternately in one thread.

Exit code 1 means that fewer than 10 frames a second are drawn. Needs nothing but the package.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING

# Before anything that starts threads is imported.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import torch
from bodies import SEGMENTS, copied_poses, fine_body
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from retargetbench.kinematics import Skinner
from retargetbench.metrics.obstacles import body_model
from retargetbench.rendering.cameras import DIRECTIONS, fit_camera
from retargetbench.rendering.stage import Stage, Surface

if TYPE_CHECKING:
    from collections.abc import Callable

BOUND = 10.0
"""Frames a second that are promised."""

BODY, SOURCE = "stout", "average"


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=10, help="frames of each round (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; their median counts (default %(default)s)")
    parser.add_argument("--size", type=int, default=512, help="pixels of a picture's side (default %(default)s)")
    parser.add_argument("--segments", type=int, default=SEGMENTS, help="of the trunk (default %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)

    character = fine_body(BODY, segments=options.segments)
    rotations, positions = copied_poses(SOURCE, character, options.frames)
    model = body_model(character, "arms")
    (obstacle,) = model.obstacles
    posed = model.skinner.pose(rotations, positions)
    vertices = Skinner.from_character(character).pose(rotations, positions)
    marked = torch.zeros(vertices.shape[:2], dtype=torch.bool)
    marked[:, obstacle.limb_vertices] = obstacle.find_inside(posed)
    surface = Surface.from_mesh(character.bind_vertices, character.faces)
    camera = fit_camera([vertices], azimuth_deg=DIRECTIONS["three-quarter"])
    stage = Stage(camera, options.size, options.size)
    colour = torch.tensor([0.62, 0.70, 0.80])

    def draw(frame: int, *, mark: bool) -> None:
        part = slice(frame, frame + 1)
        stage.render(vertices[part], surface, colour, marked=marked[part] if mark else None)

    triangles, points = character.faces.numpy(), vertices.numpy()

    def draw_by_matplotlib(frame: int) -> None:
        figure = Figure(figsize=(options.size / 100, options.size / 100), dpi=100)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_subplot(projection="3d")
        x, y, z = points[frame].T
        axes.plot_trisurf(x, z, y, triangles=triangles)
        axes.set_box_aspect((1, 1, 1))
        canvas.draw()

    contestants: dict[str, Callable[[int], None]] = {
        "Stage.render": lambda frame: draw(frame, mark=False),
        "Stage.render, penetration marked": lambda frame: draw(frame, mark=True),
        "matplotlib plot_trisurf": draw_by_matplotlib,
    }
    mesh = f"{character.vertex_count} vertices, {len(character.faces)} faces"
    print(f"{mesh}, {options.size}x{options.size} pixels, one thread")
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(options.rounds):
        for name, contestant in contestants.items():
            # matplotlib needs about a second for each frame.
            frames = 1 if contestant is draw_by_matplotlib else options.frames
            start = time.perf_counter()
            for frame in range(frames):
                contestant(frame)
            rates[name].append(frames / (time.perf_counter() - start))
    slow = rates["matplotlib plot_trisurf"]
    for name, measured in rates.items():
        ratio = statistics.median(a / b for a, b in zip(measured, slow, strict=True))
        print(f"  {name:34} {statistics.median(measured):7.2f} frames/s ({ratio:.0f}x)")
    return 0 if statistics.median(rates["Stage.render"]) >= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
