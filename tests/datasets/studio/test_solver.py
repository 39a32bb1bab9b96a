"""The solver against dense least squares, finite differences, and what a solved clip has to keep."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import roma
import torch
from studio_examples import FRAMES, performance

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.arm_solving import ARM_JOINTS, ARM_UNKNOWNS, ArmPoser
from retargetbench.datasets.studio.collisions import Collisions, collision_model
from retargetbench.datasets.studio.contact_terms import ContactTerms
from retargetbench.datasets.studio.copying import copy_performance
from retargetbench.datasets.studio.gates import failed_gates, measure_quality
from retargetbench.datasets.studio.levenberg import minimise
from retargetbench.datasets.studio.problem import Linearised, Problem, SolverSettings
from retargetbench.datasets.studio.residuals import Rows, normal_equations
from retargetbench.datasets.studio.solver import solve_performances
from retargetbench.datasets.studio.surface_samples import joint_transforms
from retargetbench.datasets.studio.verified import repaired, solve_verified
from retargetbench.kinematics import forward_kinematics


@pytest.fixture(scope="module")
def body():
    return open_dataset("capsules").character("stout")


def transforms_of(body, solution):
    skeleton = body.skeleton.to(dtype=torch.float64)
    world, positions = forward_kinematics(skeleton, solution.root.double(), solution.rotations.double())
    return joint_transforms(skeleton.rest_positions, world, positions).float()


class Quadratic:
    """Two clips whose frames want fixed values and are tied by second differences: what dense algebra solves."""

    parts = (slice(0, 6), slice(6, 11))

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.wanted = torch.randn(11, 3, dtype=torch.float64, generator=generator)
        self.weights = torch.rand(11, 3, dtype=torch.float64, generator=generator) + 0.1
        self.bends = torch.full((9,), 2.0, dtype=torch.float64)
        self.bends[4:6] = 0.0

    def pose(self, unknowns):
        return unknowns[..., None, None], unknowns

    def search(self, transforms):
        pass

    def costs(self, unknowns, transforms, excess):
        each = (self.weights * (unknowns - self.wanted).square()).sum(-1)
        each[1:-1] += self.bends * unknowns.diff(n=2, dim=0).square().sum(-1)
        return torch.stack([each[part].sum() for part in self.parts])

    def linearise(self, unknowns, transforms, excess):
        gradient = self.weights * (unknowns - self.wanted)
        weighted = self.bends[:, None] * unknowns.diff(n=2, dim=0)
        gradient[:-2] += weighted
        gradient[1:-1] -= 2 * weighted
        gradient[2:] += weighted
        return Linearised(torch.diag_embed(self.weights), gradient, self.bends)

    def solve_densely(self):
        solved = []
        for unknown in range(3):
            bends = np.diff(np.eye(11), n=2, axis=0) * self.bends.sqrt().numpy()[:, None]
            roots = self.weights[:, unknown].sqrt().numpy()
            rows = np.concatenate([np.diag(roots), bends])
            values = np.concatenate([roots * self.wanted[:, unknown].numpy(), np.zeros(9)])
            solved.append(np.linalg.lstsq(rows, values, rcond=None)[0])
        return np.stack(solved, -1)


def test_steps_solve_a_quadratic_problem_of_two_clips_like_dense_least_squares():
    problem = Quadratic()
    settings = SolverSettings(steps=30, longest=100.0, enough=0.0)
    found = minimise(problem, torch.zeros(11, 3, dtype=torch.float64), settings)
    np.testing.assert_allclose(found.numpy(), problem.solve_densely(), atol=1e-6)


def test_normal_equations_equal_sums_of_outer_products():
    generator = torch.Generator().manual_seed(0)
    rows = Rows(
        torch.tensor([2, 0, 2, 2]), torch.randn(4, generator=generator), torch.randn(4, 264, generator=generator)
    )
    jacobian = torch.randn(3, 5, 264, generator=generator)
    hessian, gradient = normal_equations(rows, jacobian)
    for frame in range(3):
        by_unknowns = [jacobian[frame] @ g for f, g in zip(rows.frame, rows.gradient, strict=True) if f == frame]
        values = [v for f, v in zip(rows.frame, rows.value, strict=True) if f == frame]
        wanted = sum((torch.outer(g, g) for g in by_unknowns), torch.zeros(5, 5))
        torch.testing.assert_close(hessian[frame], wanted, rtol=1e-4, atol=1e-3)
        pull = sum((v * g for v, g in zip(values, by_unknowns, strict=True)), torch.zeros(5))
        torch.testing.assert_close(gradient[frame], pull, rtol=1e-4, atol=1e-3)


def numeric_change(rows_at, transforms, direction, step=1e-3):
    """Change of residuals along a change of the transforms, by central differences."""
    return (rows_at(transforms + step * direction).value - rows_at(transforms - step * direction).value) / (2 * step)


def moved(transforms, seed):
    """A random displacement of all joints: what gradients with fixed normals have to get right."""
    direction = torch.zeros_like(transforms)
    direction[..., 3] = torch.randn(transforms.shape[:-1], generator=torch.Generator().manual_seed(seed))
    return direction


def test_gradients_of_depths_equal_finite_differences(body):
    transforms = transforms_of(body, copy_performance(body, performance(hang=80.0, flex=120.0)))
    collisions = Collisions(collision_model(body), 0.01)
    collisions.search(transforms)
    direction = moved(transforms, 3)
    direction = direction * (0.02 / direction.abs().max())
    rows = collisions.depths(transforms)
    assert len(rows.value) > 50
    slopes = (rows.gradient * direction.flatten(1)[rows.frame]).sum(-1)
    # A point that enters or leaves the margin within the step is another residual.
    step = 1e-3
    low, high = (collisions.depths(transforms + sign * step * direction) for sign in (-1, 1))
    assert len(low.value) == len(high.value) == len(rows.value)
    torch.testing.assert_close((high.value - low.value) / (2 * step), slopes, rtol=0.02, atol=2e-3)


def test_gradients_of_contacts_equal_finite_differences(body):
    wanted = performance()
    transforms = transforms_of(body, copy_performance(body, wanted))
    terms = ContactTerms(body, [(contact, slice(0, 21)) for contact in wanted.contacts])
    terms.search(transforms)
    direction = moved(transforms, 4) * 0.05
    measured = terms.measure(transforms)
    for name in ("aside", "facing"):
        rows = getattr(measured, name)
        slopes = (rows.gradient * direction.flatten(1)[rows.frame]).sum(-1)
        numeric = numeric_change(lambda x, name=name: getattr(terms.measure(x), name), transforms, direction)
        torch.testing.assert_close(slopes, numeric, rtol=0.03, atol=3e-3)
    # The weights of tangent planes move along, which gradients leave out: right to a tenth of the steepest.
    rows = measured.distance
    slopes = (rows.gradient * direction.flatten(1)[rows.frame]).sum(-1)
    numeric = numeric_change(lambda x: terms.measure(x).distance, transforms, direction)
    assert float((slopes - numeric).abs().max()) < 0.25 * float(numeric.abs().max())


@pytest.mark.parametrize("side", [0, 1])
def test_an_arm_with_unknowns_of_zero_is_the_arm_it_was_made_from(body, side):
    copied = copy_performance(body, performance())
    skeleton = body.skeleton.to(dtype=torch.float64)
    world, positions = forward_kinematics(skeleton, copied.root, copied.rotations)
    clavicle, *joints = ARM_JOINTS[side]
    local = roma.unitquat_to_rotmat(copied.rotations[:, clavicle])
    posed = ArmPoser(skeleton, side, world, positions).pose(local, torch.zeros(21, ARM_UNKNOWNS).double(), body.height)
    wanted = roma.unitquat_to_rotmat(copied.rotations[:, joints])
    angle = roma.rotmat_geodesic_distance(torch.stack(posed, 1), wanted)
    assert float(angle.max()) < np.radians(1.5)  # the hinge is blended with the bone's own where an arm is straight


@pytest.mark.parametrize("side", [0, 1])
def test_a_swivel_moves_the_elbow_and_leaves_wrist_and_hand_where_they_are(body, side):
    copied = copy_performance(body, performance())
    skeleton = body.skeleton.to(dtype=torch.float64)
    world, positions = forward_kinematics(skeleton, copied.root, copied.rotations)
    clavicle, shoulder, elbow, wrist = ARM_JOINTS[side]
    poser = ArmPoser(skeleton, side, world, positions)
    local = roma.unitquat_to_rotmat(copied.rotations[:, clavicle])

    def posed(swivel):
        unknowns = torch.zeros(21, ARM_UNKNOWNS).double()
        unknowns[:, 6] = swivel
        rotations = copied.rotations.clone()
        arm = torch.stack(poser.pose(local, unknowns, body.height), 1)
        rotations[:, [shoulder, elbow, wrist]] = roma.rotmat_to_unitquat(arm)
        return forward_kinematics(skeleton, copied.root, rotations)

    (world0, at0), (world1, at1) = posed(0.0), posed(0.5)
    torch.testing.assert_close(at0[:, wrist], at1[:, wrist], atol=1e-9, rtol=0)
    torch.testing.assert_close(world0[:, wrist], world1[:, wrist], atol=1e-9, rtol=0)
    assert float((at0[:, elbow] - at1[:, elbow]).norm(dim=-1).max()) > 0.02


def test_a_clip_without_contacts_whose_arms_are_clear_stays_as_it_is(body):
    clear = performance(touching=False, flex=0.0, hang=20.0)
    solved = solve_performances(body, [clear])[0]
    copied = copy_performance(body, clear)
    turned = (solved.rotations * copied.rotations).sum(-1).abs().clamp(max=1)
    assert float(torch.rad2deg(2 * torch.acos(turned)).max()) < 2.5  # most of it from the blended hinge


def test_solving_brings_palms_to_the_belly(body):
    wanted = performance()
    copied = measure_quality(body, copy_performance(body, wanted).float_motion, wanted, None)
    solved = measure_quality(body, solve_performances(body, [wanted])[0].float_motion, wanted, None)
    assert copied.contact_gap > 0.03
    assert solved.contact_gap < 0.45 * copied.contact_gap
    assert solved.contact_distance < 0.6 * copied.contact_distance
    assert solved.foot_drift < 0.01


def test_solving_takes_hands_out_of_the_body(body):
    deep = performance(touching=False, flex=115.0, hang=70.0)
    copied = measure_quality(body, copy_performance(body, deep).float_motion, deep, None)
    solved = measure_quality(body, solve_performances(body, [deep])[0].float_motion, deep, None)
    assert copied.penetration > 2
    assert copied.unfolded_depth > 0.03
    assert solved.penetration < 0.25 * copied.penetration
    assert solved.unfolded_depth < 0.015


def test_solving_twice_gives_the_same_bytes(body):
    first, second = (solve_performances(body, [performance()], SolverSettings(steps=4))[0] for _ in range(2))
    assert torch.equal(first.rotations, second.rotations)


def test_a_clip_comes_out_the_same_alone_and_among_others(body):
    clips = [performance(), performance(hang=75.0, flex=30.0, touching=False)]
    alone = solve_performances(body, clips[:1], SolverSettings(steps=6))[0]
    among = solve_performances(body, clips, SolverSettings(steps=6))[0]
    assert float((alone.rotations - among.rotations).abs().max()) < 1e-2  # the last bits choose samples


def test_mirrored_clips_have_mirrored_solutions(body):
    # The performance is symmetric; samples of both sides are not, so it is so within what they resolve.
    solved = solve_performances(body, [performance()])[0]
    skeleton = body.skeleton.to(dtype=torch.float64)
    _, at = forward_kinematics(skeleton, solved.root, solved.rotations)
    left, right = at[:, ARM_JOINTS[0][3]], at[:, ARM_JOINTS[1][3]]
    assert float((left - right * left.new_tensor([-1.0, 1.0, 1.0])).abs().max()) < 0.02


def test_going_on_from_a_solution_starts_there(body):
    solved = solve_performances(body, [performance()])[0]
    again = solve_performances(body, [performance()], SolverSettings(steps=0), starts=[solved])[0]
    torch.testing.assert_close(again.rotations, solved.rotations, atol=1e-12, rtol=0)


def test_legs_that_touch_leave_their_track_only_while_they_are_not_planted(body):
    wanted = performance(touching=False)
    planted = torch.zeros(FRAMES, dtype=torch.bool)
    planted[:10] = planted[-10:] = True
    lifted = replace(wanted.feet[1], planted=planted, lift=torch.where(planted, 0.0, 0.05).double())
    contact = replace(
        performance().contacts[0], moving="right_ankle_inner", first="left_calf_inner", second="left_calf_inner"
    )
    wanted = replace(wanted, feet=(wanted.feet[0], lifted), contacts=(contact,))
    problem = Problem(body, [wanted], SolverSettings())
    unknowns = problem.start(None)
    assert unknowns.shape[1] == 21 + 14 + 18
    unknowns[:, 35:] = 0.3
    changed = problem.rotations(unknowns) - problem.rotations(torch.zeros_like(unknowns))
    moved_frames = changed.abs().amax((1, 2)) > 1e-6
    assert not bool(moved_frames[planted[::2]].any())
    assert bool(moved_frames[~planted[::2]].any())


@pytest.mark.parametrize(
    ("failures", "tries", "kept"),
    [
        ([()], 1, 1),
        ([("penetration",), ()], 2, 2),
        ([("foot_speed",)], 1, 1),
        ([("penetration", "contact_gap"), ("penetration",), ("contact_gap",), ("contact_gap",)], 4, 2),
    ],
    ids=["passes", "is repaired", "has feet that nothing repairs", "never passes"],
)
def test_a_clip_is_tried_again_while_that_can_repair_it_and_the_best_try_is_kept(
    body, monkeypatch, failures, tries, kept
):
    asked = []

    def fake_solve(body, clips, settings, *, starts=None):
        asked.append((settings, starts))
        return [SimpleNamespace(float_motion=len(asked) - 1)]

    monkeypatch.setattr("retargetbench.datasets.studio.verified.solve_performances", fake_solve)
    monkeypatch.setattr(
        "retargetbench.datasets.studio.verified.measure_quality", lambda body, motion, clip, copied: failures[motion]
    )
    monkeypatch.setattr("retargetbench.datasets.studio.verified.failed_gates", lambda quality, height: quality)
    found = solve_verified(body, performance(), None)
    assert len(asked) == tries
    assert (found.tries, found.failed) == (kept, failures[kept - 1])
    assert asked[0][1] is None
    assert all(starts is not None for _, starts in asked[1:])


def test_what_failed_weighs_more_in_the_next_try():
    first = SolverSettings()
    assert repaired(first, ["contact_gap"]).touch > first.touch
    assert repaired(first, ["contact_gap"]).outside == first.outside
    deeper = repaired(first, ["penetration", "unfolded_depth"])
    assert deeper.outside > first.outside
    assert deeper.margin > first.margin
    assert repaired(first, ["foot_drift"]) == replace(first, steps=deeper.steps)


def test_a_solved_clip_passes_the_gates_of_the_body(body):
    found = solve_verified(body, performance(), None)
    assert found.failed == failed_gates(found.quality, body.height)
    assert "contact_gap" not in found.failed
    assert "penetration" not in found.failed
