"""A build of capsule bodies in two short actions, with a solver that is quick."""

from __future__ import annotations

from retargetbench.datasets.capsules import open_capsules
from retargetbench.datasets.studio import build_work
from retargetbench.datasets.studio.actions import read_actions
from retargetbench.datasets.studio.build_bodies import DatasetBodies
from retargetbench.datasets.studio.gates import Quality
from retargetbench.datasets.studio.solver import SolverSettings, copy_performance
from retargetbench.datasets.studio.verified import Verified, solve_verified

REFERENCE = "average"
CAST = ("average", "slim", "stout")

ACTIONS = read_actions(
    {
        "short.yaml": """
nod: {family: free, summary: nods, seen: true, seconds: 1.0, trunk: {nod: [[0, 0], [0.5, 20], [1, 0]]}}
clasp:
  family: hand-hand
  summary: brings a hand to the other
  seen: false
  seconds: 1.0
  hands: {left: flat, right: flat}
  left: [{at: 0, pose: hang}, {at: 0.8, touch: right_palm, with: palm}]
  right: [{at: 0, pose: hang}, {at: 0.8, reach: [0.05, 0.72, 0.25]}]
"""
    }
)


class Watch:
    """Stands for a progress bar, and remembers the stages."""

    def __init__(self):
        self.stages = {}

    def start(self, title, total):
        self.title = title
        self.stages[title] = [0, total]

    def advance(self, steps=1):
        self.stages[self.title][0] += steps


class Bodies(DatasetBodies):
    """Bodies of the capsules; those in ``broken`` cannot be built."""

    broken = ()

    def __init__(self):
        super().__init__(open_capsules())

    def make(self, name):
        if name in self.broken:
            raise ValueError(f"{name} has no surface")
        return super().make(name)


def solve_by_copying(monkeypatch, before=lambda body, performance: None):
    """Put plain copying in the place of the solver, and a figure of the motion in that of measuring.

    Calls ``before`` each time the solver is asked; returns the names of bodies and performances it was asked for.
    """
    asked = []

    def measure(body, motion, performance, reference):
        mean = float(motion.root_translation.mean())
        return Quality(None, None, None, 0.0, mean / 1e3, mean / 1e3, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)

    def solve(body, performance, copied, settings=None):
        asked.append((body.name, performance.name))
        before(body, performance)
        solution = copy_performance(body, performance)
        return Verified(solution, measure(body, solution.motion, performance, None), (), 1)

    monkeypatch.setattr(build_work, "solve_verified", solve)
    monkeypatch.setattr(build_work, "measure_quality", measure)
    return asked


def solve_shortly(monkeypatch):
    """Let the solver take two steps."""
    monkeypatch.setattr(
        build_work,
        "solve_verified",
        lambda body, performance, copied, settings=None: solve_verified(
            body, performance, copied, SolverSettings(steps=2)
        ),
    )
