"""Speed of inside tests and of skinning beside the usual ways to do them, measured alternately in one thread.

Exit code 1 means that a speed is below what the project promises, or that an inside test is not exact. Needs the
extras ``fast`` and ``test``: pip install -e .[fast,test]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

# Before anything that starts threads is imported.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import igl
import numpy as np
import torch
import trimesh
from bodies import SEGMENTS, body_with_soft_skin, copied_poses, fine_body, random_poses
from trimesh.ray import has_embree

from retargetbench.kinematics import Skinner, skinning_transforms
from retargetbench.mesh.winding import winding_number
from retargetbench.metrics.obstacles import body_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from retargetbench.character import Character
    from retargetbench.metrics.obstacles import Definition

TORCH_BOUND, WARP_BOUND = 4.0, 20.0
"""How much faster than trimesh the inside test of the penetration metric must be."""

SKINNING_BOUND = 3.0
"""How much faster than blending matrices skinning must be."""

BODY, SOURCE = "stout", "average"
"""The body that is posed, and the one whose motions it gets."""


class Queries(NamedTuple):
    """A closed surface and query points by frame: (T, N, 3), (F, 3), (T, M, 3)."""

    vertices: torch.Tensor
    faces: torch.Tensor
    points: torch.Tensor


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=32, help="frames of the inside test (default %(default)s)")
    parser.add_argument("--points", type=int, default=5000, help="query points by frame (default %(default)s)")
    parser.add_argument("--skinned-frames", type=int, default=120, help="frames that are skinned (default %(default)s)")
    parser.add_argument(
        "--segments", type=int, default=SEGMENTS, help="fineness of the body; %(default)s gives 13 674 vertices"
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds that medians are taken of (default %(default)s)")
    chosen = parser.parse_args()
    if not has_embree:
        parser.error("trimesh finds no embree to compare with; install the extra 'test'")
    torch.set_num_threads(1)
    body = fine_body(BODY, segments=chosen.segments)
    print(f"{body.vertex_count} vertices, one thread, medians of {chosen.rounds} alternating rounds\n")
    kept = compare_inside_tests(body, chosen.frames, chosen.points, chosen.rounds)
    kept &= compare_skinning(body, chosen.skinned_frames, chosen.rounds)
    return 0 if kept else 1


def alternate(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Time contestants in turn, after one round that does not count: seconds by contestant and round.

    Whatever else the machine does slows all contestants of a round alike, so compare within rounds.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for measured in [False] + [True] * rounds:
        for name, work in contestants.items():
            start = time.perf_counter()
            work()
            if measured:
                times[name].append(time.perf_counter() - start)
    return times


def _speedup(times: Mapping[str, list[float]], slow: str, fast: str) -> float:
    return statistics.median(a / b for a, b in zip(times[slow], times[fast], strict=True))


def compare_inside_tests(body: Character, frames: int, count: int, rounds: int) -> bool:
    """Compare winding numbers with trimesh's rays, print a table, and return whether all is as promised."""
    print(f"Inside test of {count} points by frame: frames/s, (times as fast as trimesh), wrong answers")
    print(f"{'':46}{'faces':>7}{'trimesh + embree':>18}{'torch':>20}{'warp':>20}")
    kept = True
    for title, queries, is_bound in (
        ("arms in the rest of the body (penetration)", _limb_queries(body, "arms", frames, count), True),
        ("limbs in the trunk (penetration_limbs)", _limb_queries(body, "limbs", frames, count), True),
        ("points within 5 cm of all skin, no metric", _skin_queries(body, frames, count), False),
    ):
        kept &= _compare_inside_test(title, queries, rounds, is_bound=is_bound)
    print(f"needed for penetration: torch {TORCH_BOUND:g}x, warp {WARP_BOUND:g}x; no wrong answer of torch and warp\n")
    return kept


def _compare_inside_test(title: str, queries: Queries, rounds: int, *, is_bound: bool) -> bool:
    vertices, points, faces = queries.vertices.numpy(), queries.points.numpy(), queries.faces.numpy()

    def by_trimesh() -> np.ndarray:
        meshes = (trimesh.Trimesh(posed, faces, process=False, validate=False) for posed in vertices)
        return np.stack([mesh.contains(p) for mesh, p in zip(meshes, points, strict=True)])

    contestants: dict[str, Callable[[], np.ndarray]] = {
        "trimesh": by_trimesh,
        "torch": lambda: winding_number(*queries, backend="torch").numpy() > 0,
        "warp": lambda: winding_number(*queries, backend="warp").numpy() > 0,
    }
    times = alternate(contestants, rounds)
    exact = np.stack([_inside_by_libigl(v, faces, p) for v, p in zip(vertices, points, strict=True)])
    wrong = {name: int((work() != exact).sum()) for name, work in contestants.items()}
    gain = {name: _speedup(times, "trimesh", name) for name in contestants}
    speed = {name: len(vertices) / statistics.median(seconds) for name, seconds in times.items()}
    cells = [f"{speed[name]:.0f} ({gain[name]:.1f}x) {wrong[name]}" for name in ("torch", "warp")]
    print(f"{title:46}{len(faces):7}{speed['trimesh']:12.0f} {wrong['trimesh']:5}{cells[0]:>20}{cells[1]:>20}")
    print(f"{'':46}{'':7}  {exact.size} queries, {100 * exact.mean():.2f} % inside")
    is_fast = not is_bound or (gain["torch"] >= TORCH_BOUND and gain["warp"] >= WARP_BOUND)
    return is_fast and wrong["torch"] == 0 and wrong["warp"] == 0


def _inside_by_libigl(vertices: np.ndarray, faces: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The exact winding number of one frame by another program, from solid angles in float64."""
    return np.asarray(igl.winding_number(vertices.astype(float), faces, points.astype(float)) > 0.5)


def _limb_queries(body: Character, definition: Definition, frames: int, count: int) -> Queries:
    """The closed surface that a penetration metric uses, and vertices of the limbs.

    Where there are fewer vertices than points, vertices come more than once, each time moved by some millimetres.
    """
    model = body_model(body, definition)
    (obstacle,) = model.obstacles
    posed = model.skinner.pose(*copied_poses(SOURCE, body, frames))
    limbs = posed[:, obstacle.limb_vertices]
    generator = torch.Generator().manual_seed(0)
    chosen = torch.linspace(0, limbs.shape[1] - 1, count).long()
    jitter = 0.0 if count <= limbs.shape[1] else 0.002 * torch.randn(1, count, 3, generator=generator)
    return Queries(posed[:, obstacle.points].contiguous(), obstacle.surface.faces, limbs[:, chosen] + jitter)


def _skin_queries(body: Character, frames: int, count: int) -> Queries:
    """The whole surface, and points around it in random order: many of them over every face."""
    posed = Skinner.from_character(body).pose(*copied_poses(SOURCE, body, frames))
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(body.vertex_count, (count,), generator=generator)
    return Queries(posed, body.faces, posed[:, chosen] + 0.05 * torch.randn(frames, count, 3, generator=generator))


def compare_skinning(body: Character, frames: int, rounds: int) -> bool:
    """Compare skinning with blending matrices, print a table, and return whether it is as fast as promised."""
    print(f"Skinning of {frames} frames at once, four influences: frames/s")
    print(f"{'joints':>8}{'blended matrices':>19}{'Skinner':>10}{'times':>8}{'largest difference':>21}")
    gains = [_compare_skinning(body_with_soft_skin(body, fingers=fingers), frames, rounds) for fingers in (False, True)]
    print(f"needed: {SKINNING_BOUND:g}x")
    return min(gains) >= SKINNING_BOUND


def _compare_skinning(character: Character, frames: int, rounds: int) -> float:
    skeleton, weights = character.skeleton, character.weights
    rotations, positions = random_poses(skeleton, frames)
    homogeneous = torch.cat([character.bind_vertices, torch.ones(character.vertex_count, 1)], -1)
    skinner = Skinner.from_character(character)

    def blend() -> torch.Tensor:
        transforms = skinning_transforms(character.inverse_bind, rotations, positions)
        return torch.einsum("tvab,vb->tva", torch.einsum("vj,tjab->tvab", weights, transforms), homogeneous)

    def pose() -> torch.Tensor:
        return skinner.pose(rotations, positions)

    times = alternate({"blend": blend, "pose": pose}, rounds)
    slow, fast = (frames / statistics.median(times[name]) for name in ("blend", "pose"))
    gain = _speedup(times, "blend", "pose")
    off = float((blend() - pose()).abs().max())
    print(f"{skeleton.joint_count:8}{slow:19.0f}{fast:10.0f}{gain:7.1f}x{off:19.1e} m")
    return gain


if __name__ == "__main__":
    sys.exit(main())
