"""How a body is built: figures against another library and against bodies that are scaled by hand."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio import body_facts as module
from retargetbench.datasets.studio.body_facts import BUILD, body_facts, build_of
from retargetbench.datasets.studio.sculpting import scale_parts
from retargetbench.skeleton import canonical_index


@pytest.fixture(scope="module")
def body():
    return open_dataset("capsules").character("stout")


@pytest.fixture(scope="module")
def facts(body):
    return body_facts(body)


def test_girths_are_those_of_sections_by_trimesh_and_cauchys_formula(body):
    spine = body.skeleton.rest_positions[canonical_index("Spine2"), 1]
    levels = np.linspace(float(spine), float(spine) + 0.1, module._SLICES)
    trunk = np.isin(body.dominant_joint.numpy(), [canonical_index(name) for name in module._TRUNK])
    faces = body.faces.numpy()
    mesh = trimesh.Trimesh(body.rest_vertices.numpy(), faces[trunk[faces].all(-1)], process=False)
    found = module._girths(body, module._TRUNK, levels[0], levels[-1])
    for level, girth in zip(levels, found, strict=True):
        points = mesh.section((0, 1, 0), (0, level, 0)).vertices[:, [0, 2]]
        # Cauchy: the perimeter of a convex figure is π times its mean width.
        angle = np.linspace(0, np.pi, 2000, endpoint=False)
        widths = np.ptp(points @ np.stack([np.cos(angle), np.sin(angle)]), axis=0)
        assert girth == pytest.approx(np.pi * widths.mean(), rel=1e-4)


def test_lengths_are_those_of_the_build(body, facts):
    rest = body.skeleton.rest_positions
    upper, fore = (
        float((rest[canonical_index(a)] - rest[canonical_index(b)]).norm())
        for a, b in (("LeftArm", "LeftForeArm"), ("LeftForeArm", "LeftHand"))
    )
    assert facts["arm_ratio"] == pytest.approx((upper + fore) / body.height, rel=1e-4)
    assert facts["forearm_ratio"] == pytest.approx(fore / upper, rel=1e-4)
    assert facts["stature"] == pytest.approx(float(body.rest_vertices[:, 1].max()), rel=1e-4)
    assert facts["height"] == body.height


def test_what_is_thickened_or_lengthened_shows_in_its_own_figures(body, facts):
    thick = body_facts(scale_parts(body, {"Arm": (1.0, 1.5), "ForeArm": (1.0, 1.5)}))
    assert thick["arm_radius_ratio"] == pytest.approx(1.5 * facts["arm_radius_ratio"], rel=0.1)
    assert thick["arm_ratio"] == pytest.approx(facts["arm_ratio"], rel=1e-3)
    long = body_facts(scale_parts(body, {"Leg": (1.4, 1.0)}))
    assert long["shank_ratio"] == pytest.approx(1.4 * facts["shank_ratio"], rel=1e-3)
    assert long["leg_ratio"] > 1.05 * facts["leg_ratio"]
    broad = body_facts(scale_parts(body, {"Spine1": (1.0, 1.3), "Spine2": (1.0, 1.3), "Spine": (1.0, 1.3)}))
    assert broad["chest_girth_ratio"] > 1.2 * facts["chest_girth_ratio"]


def test_a_stout_body_is_thicker_than_a_slim_one_everywhere(facts):
    slim = body_facts(open_dataset("capsules").character("slim"))
    assert all(facts[name] > slim[name] for name in BUILD if "girth" in name or "radius" in name)


def test_a_figure_that_is_missing_counts_as_nothing(facts):
    assert build_of(facts) == tuple(facts[name] for name in BUILD)
    assert build_of({"height": 1.5}) == (1.5, *[0.0] * (len(BUILD) - 1))
