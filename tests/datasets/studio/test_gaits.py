"""Curves of gaits: steps, feet on the floor, hips, reach of the legs, arms and mirror images."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from retargetbench.datasets.studio.actions import Gait, read_actions
from retargetbench.datasets.studio.gaits import gait_curves
from retargetbench.datasets.studio.variants import variant_of
from retargetbench.errors import DatasetError

FPS = 30.0
FRAMES = 111
HIP_ASIDE = 0.0685  # heights; half the distance of the feet of a body that stands

GAITS = {
    "walk": Gait(kind="walk", step=0.38, cadence=1.9, steps=3, start=0.2),
    "small steps": Gait(kind="walk", step=0.2, cadence=1.4, steps=2, start=0.2),
    "backwards": Gait(kind="walk", step=-0.28, cadence=1.7, steps=3, start=0.2),
    "curve": Gait(kind="walk", step=0.36, cadence=2.0, steps=4, start=0.2, turn=80, first="left"),
    "run": Gait(kind="run", step=0.6, cadence=2.7, steps=4, start=0.2, lift=0.15),
    "sidestep": Gait(kind="sidestep", step=0.22, cadence=1.9, steps=4, start=0.2),
    "open sidestep": Gait(kind="sidestep", step=-0.2, cadence=1.9, steps=3, start=0.2),
    "turn": Gait(kind="turn", turn=180, cadence=2.0, steps=4, start=0.2, first="left"),
    "march": Gait(kind="march", step=0.0, cadence=1.9, steps=4, start=0.2, lift=0.24),
    "march on": Gait(kind="march", step=0.25, cadence=1.9, steps=4, start=0.2, lift=0.2),
}


@pytest.fixture(params=GAITS)
def gait(request):
    return GAITS[request.param]


@pytest.fixture
def curves(gait):
    return gait_curves(gait, FRAMES, FPS)


def planted(curves):
    return torch.stack([foot.planted for foot in curves.feet], -1)


def swings(curves):
    """All swings as (first frame, frame after the last, side), in time."""
    found = []
    for side, foot in enumerate(curves.feet):
        edges = torch.diff(torch.cat([torch.tensor([1]), foot.planted.int(), torch.tensor([1])]))
        starts, ends = (edges == -1).nonzero()[:, 0].tolist(), (edges == 1).nonzero()[:, 0].tolist()
        found += [(start, end, side) for start, end in zip(starts, ends, strict=True)]
    return sorted(found)


def standing_place(side, heading, middle):
    """Place of a foot of a body that stands at a point and looks somewhere, by turning it about the body's axis."""
    rest = np.array([(HIP_ASIDE, -HIP_ASIDE)[side], 0.0, 0.0])
    turned = Rotation.from_euler("y", heading).apply(rest) - rest
    return torch.from_numpy(middle + turned[[0, 2]])


def test_planted_feet_keep_place_and_yaw_and_are_on_the_floor(curves):
    for foot in curves.feet:
        held = foot.planted[1:] & foot.planted[:-1]
        assert foot.place.diff(dim=0)[held].abs().max() < 1e-12
        assert foot.yaw.diff()[held].abs().max() < 1e-12
        assert foot.lift[foot.planted].abs().max() < 1e-12
        assert foot.lift.min() >= 0


def test_feet_take_turns(gait, curves):
    sides = [side for _, _, side in swings(curves)]
    assert all(one != other for one, other in itertools.pairwise(sides))
    assert len(sides) - gait.steps in (0, 1)  # a last one closes where feet are apart
    if gait.kind != "sidestep":
        assert sides[0] == ("left", "right").index(gait.first)


def test_only_running_flies(gait, curves):
    assert bool((~planted(curves)).all(-1).any()) == (gait.kind == "run")


def test_walking_has_the_double_support_of_textbooks():
    # Perry and Burnfield: two times 10 to 12 % of a stride, which is two steps; whole frames blur it.
    gait = GAITS["walk"].model_copy(update={"steps": 6})
    curves = gait_curves(gait, 600, 120.0)
    both = planted(curves).all(-1)
    landings = [end for _, end, _ in swings(curves)]
    share = both[landings[1] : landings[5]].double().mean()
    assert 0.18 < share < 0.26


def test_it_begins_and_ends_standing_with_feet_side_by_side(gait, curves):
    heading = math.radians(gait.turn)
    for side, foot in enumerate(curves.feet):
        assert foot.place[0].abs().max() == 0
        middle = curves.hips[-1, [0, 2]].numpy()
        assert torch.allclose(foot.place[-1], standing_place(side, heading, middle), atol=2e-3)
        assert foot.yaw[-1] == pytest.approx(heading)
        assert foot.pitch[[0, -1]].abs().max() == 0
    assert planted(curves)[[0, -1]].all()
    for curve in (*curves.trunk.values(), *curves.swing, *curves.elbow):
        assert curve.diff()[[0, -1]].abs().max() < 0.02


def test_it_stands_until_it_starts():
    curves = gait_curves(GAITS["walk"].model_copy(update={"start": 0.8}), FRAMES, FPS)
    still = slice(0, 14)  # the frames right before the start already feel it, as curves are blurred
    assert curves.hips[still].diff(dim=0).abs().max() < 1e-6
    assert planted(curves)[still].all()


def test_hips_move_smoothly(gait, curves):
    acceleration = curves.hips.diff(n=2, dim=0).norm(dim=-1) * FPS**2
    # heights/s²; free fall is 6 of them for a body of 1.6 m, and a walk has less than half of it
    assert acceleration.max() < (7.0 if gait.kind == "run" else 2.5)


def test_a_walk_rises_and_sinks_once_a_step():
    curves = gait_curves(GAITS["walk"].model_copy(update={"steps": 5}), 140, FPS)
    landings = [end for _, end, _ in swings(curves)]
    up = curves.hips[:, 1]
    for start, end in itertools.pairwise(landings[:-1]):
        assert 0.01 < up[start:end].max() - up[start : end + 1].min() < 0.035


def test_legs_are_never_stretched(gait, curves):
    """Hips and ankles of the reference body `adult_09` by scipy's rotations; all numbers in its heights."""
    hips, length = np.array([0.0024, 0.6157, 0.0175]), 0.5305
    ball, heel = np.array([-0.0097, -0.0404, 0.0951]), np.array([0.0, -0.0574, -0.0342])
    angles = torch.stack([curves.trunk["hips_yaw"], curves.trunk["hips_pitch"], -curves.trunk["hips_roll"]], -1)
    pelvis = Rotation.from_euler("YXZ", angles.numpy(), degrees=True)
    for sign, foot in zip((1, -1), curves.feet, strict=True):
        mirror = np.array([sign, 1, 1])
        hip, ankle = np.array([0.0689, 0.5878, 0.0126]) * mirror, np.array([0.0689, 0.0574, 0.0126]) * mirror
        start = hips + curves.hips.numpy() + pelvis.apply(hip - hips)
        pivot = np.where((foot.pitch > 0).numpy()[:, None], ball * mirror, heel)
        pitched = Rotation.from_rotvec(np.outer(foot.pitch.numpy(), [1, 0, 0]))
        rolled = Rotation.from_rotvec(np.outer(foot.yaw.numpy(), [0, 1, 0])).apply(pivot - pitched.apply(pivot))
        place = np.stack([foot.place[:, 0], foot.lift, foot.place[:, 1]], -1)
        reach = np.linalg.norm(start - (ankle + place + rolled), axis=-1) / length
        assert reach.max() < 0.985


def test_the_other_first_foot_mirrors_everything(gait, curves):
    update = {"first": "left" if gait.first == "right" else "right", "turn": -gait.turn}
    if gait.kind == "sidestep":
        update["step"] = -gait.step
    mirrored = gait_curves(gait.model_copy(update=update), FRAMES, FPS)
    flip = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    assert torch.allclose(mirrored.hips, curves.hips * flip)
    for foot, other in zip(mirrored.feet, reversed(curves.feet), strict=True):
        assert torch.allclose(foot.place, other.place * flip[[0, 2]])
        assert torch.allclose(foot.yaw, -other.yaw)
        for field in ("lift", "pitch", "planted"):
            assert torch.allclose(getattr(foot, field).double(), getattr(other, field).double())
    for name, curve in curves.trunk.items():
        sign = 1 if name in {"hips_pitch", "bend", "nod", "left_protract", "right_protract"} else -1
        same = {"left_protract": "right_protract", "right_protract": "left_protract"}.get(name, name)
        assert torch.allclose(mirrored.trunk[same], sign * curve), name
    assert torch.allclose(mirrored.swing[0], curves.swing[1])
    assert torch.allclose(mirrored.elbow[0], curves.elbow[1])


def test_arms_swing_against_the_legs():
    curves = gait_curves(GAITS["walk"], FRAMES, FPS)
    for start, end, side in swings(curves)[:-1]:
        assert end - start > 5
        assert curves.swing[1 - side][end + 1] > 0.15  # radians, forward as the other foot has landed
        assert curves.swing[side][end + 1] < -0.15
    largest = torch.stack(curves.swing).abs().max()
    assert math.radians(20) < largest <= math.radians(GAITS["walk"].arm_swing)


def test_a_walk_lands_on_the_heel_and_leaves_from_the_ball():
    gait = GAITS["walk"]
    curves = gait_curves(gait, FRAMES, FPS)
    start, end, side = swings(curves)[2]
    pitch = torch.rad2deg(curves.feet[side].pitch)
    assert -19 < pitch[end] < -12
    assert 25 < pitch[start - 1] < 45
    backwards = gait_curves(GAITS["backwards"], FRAMES, FPS)
    _, end, side = swings(backwards)[1]
    assert backwards.feet[side].pitch[end] > 0


def test_a_curved_walk_goes_along_an_arc():
    gait = GAITS["curve"]
    curves = gait_curves(gait, FRAMES, FPS)
    length, angle = gait.step * (0.72 + 1 + 1 + 0.85), math.radians(gait.turn)
    radius = length / angle
    end = torch.tensor([radius * (1 - math.cos(angle)), radius * math.sin(angle)], dtype=torch.float64)
    assert torch.allclose(curves.hips[-1, [0, 2]], end, atol=2e-3)
    assert curves.trunk["hips_yaw"][-1] == pytest.approx(gait.turn, abs=0.1)
    assert (curves.trunk["turn"] > 3).any()  # the head looks where it goes


@pytest.mark.parametrize(("name", "way"), [("sidestep", -0.44), ("open sidestep", 0.4)])
def test_a_sidestep_goes_sideways_without_crossing(name, way):
    curves = gait_curves(GAITS[name], FRAMES, FPS)
    left, right = (foot.place for foot in curves.feet)
    assert curves.hips[-1, 0] == pytest.approx(way, abs=2e-3)
    assert (left - right)[:, 0].min() > -1e-9
    assert torch.stack([left, right])[..., 1].abs().max() < 0.01


def test_a_march_lifts_the_foot_before_the_body():
    curves = gait_curves(GAITS["march"], FRAMES, FPS)
    for foot in curves.feet:
        top = foot.lift.argmax()
        assert foot.lift[top] == pytest.approx(0.24, abs=0.02)
        assert foot.place[top, 1] > 0.08


def test_a_gait_that_does_not_fit_its_clip_is_refused():
    with pytest.raises(DatasetError, match=r"walk of 3 steps.*ends at 2\.\d+ s, after the clip of 1\.67 s"):
        gait_curves(GAITS["walk"], 51, FPS)


def test_all_variants_of_the_shipped_gaits_fit_their_clips():
    shipped = [action for action in read_actions() if action.gait is not None]
    assert len(shipped) >= 8
    for action in shipped:
        for variant in range(12):
            shown = variant_of(action, seed=1, variant=variant)
            assert shown.gait is not None
            curves = gait_curves(shown.gait, 2 * round(shown.seconds * FPS / 2) + 1, FPS)
            assert planted(curves)[-1].all()
