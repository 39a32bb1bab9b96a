"""Named places of the body: all are found, on the skin, on the part and side that their names say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.places import PLACES, find_place
from retargetbench.errors import CharacterError
from retargetbench.skeleton import canonical_index

BODIES = ("average", "child", "giant", "longarm", "slim", "stout")
FORWARD = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)


@pytest.fixture(scope="module", params=BODIES)
def body(request):
    return open_dataset("capsules").character(request.param)


def at(body, *names):
    """Positions of places, (N, 3)."""
    return torch.stack([find_place(body, name).position for name in names])


def joint(body, name):
    return body.skeleton.to_canonical().rest_positions[canonical_index(name)].double()


def share(point, *joints):
    return float(point.weights[[canonical_index(name) for name in joints]].sum())


def test_every_place_is_found_with_a_unit_normal_and_weights_that_sum_to_one(body):
    for name in PLACES:
        point = find_place(body, name)
        assert float(point.normal.norm()) == pytest.approx(1.0)
        assert float(point.weights.sum()) == pytest.approx(1.0)


def test_places_lie_on_the_side_that_their_names_say(body):
    for name in PLACES:
        x = float(find_place(body, name).position[0])
        if name.startswith("left_"):
            assert x > 0, name
        elif name.startswith("right_"):
            assert x < 0, name
        else:
            assert abs(x) < 1e-3 * body.height, name


def test_right_places_mirror_left_ones(body):
    flip = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    for name in (name for name in PLACES if name.startswith("left_")):
        left, right = find_place(body, name), find_place(body, name.replace("left", "right", 1))
        # a farthest vertex may be one of several at the same distance
        if PLACES[name].along is not None:
            torch.testing.assert_close(left.position, right.position * flip, atol=2e-3, rtol=0)
            assert float(left.normal @ (right.normal * flip)) > 0.99


def test_skin_faces_where_the_place_is_looked_for(body):
    for name in ("belly", "chest", "nose", "left_knee", "left_shin", "left_thigh_front"):
        assert float(find_place(body, name).normal @ FORWARD) > 0.4, name
    for name in ("lower_back", "upper_back", "back_of_head", "left_calf", "left_shoulder_blade"):
        assert float(find_place(body, name).normal @ FORWARD) < -0.4, name
    assert float(find_place(body, "left_palm").normal[1]) < -0.4
    assert float(find_place(body, "left_back_of_hand").normal[1]) > 0.4


def test_the_belly_is_the_last_skin_in_front_of_its_bone(body):
    """Against a search in the plane: the triangles that hold the ray's x and y, and the depth of each there."""
    x, y, _ = find_place(body, "belly").position
    a, b, c = body.rest_vertices.double()[body.faces].unbind(1)
    start, end = joint(body, "Spine"), joint(body, "Spine1")
    origin = start + 0.2 * (end - start)
    torch.testing.assert_close(torch.stack([x, y]), origin[:2], atol=1e-9, rtol=0)
    edges = torch.stack([b - a, c - a], -1)[:, :2]
    proper = edges.det().abs() > 1e-12
    solved = torch.linalg.solve(edges[proper], (origin - a)[proper, :2])
    inside = (solved >= 0).all(-1) & (solved.sum(-1) <= 1)
    depth = (a[proper] + (torch.stack([b - a, c - a], -1)[proper] @ solved[..., None])[..., 0])[inside, 2]
    assert float(find_place(body, "belly").position[2]) == pytest.approx(float(depth.max()), abs=1e-9)


def test_places_of_the_foot_are_on_the_foot_and_not_on_the_leg_above_it(body):
    for side in ("Left", "Right"):
        for name in ("instep", "toes", "heel", "foot_inner", "foot_outer"):
            point = find_place(body, f"{side.lower()}_{name}")
            assert share(point, f"{side}Foot", f"{side}ToeBase") >= 0.25, name
            assert float(point.position[1]) < float(joint(body, f"{side}Foot")[1]) + 0.05 * body.height, name
    toes, instep, heel = at(body, "left_toes", "left_instep", "left_heel")
    assert toes[2] > instep[2] > heel[2]
    assert float(find_place(body, "left_instep").normal[1]) > 0.3


def test_places_of_the_face_stand_above_one_another_from_the_throat_to_the_crown(body):
    names = ("throat", "chin", "mouth", "nose", "left_eye", "forehead", "crown")
    heights = at(body, *names)[:, 1]
    assert (heights.diff() > 0).all()
    head = joint(body, "Head")
    assert (at(body, *names[1:6])[:, 2] > head[2]).all()


def test_fingertips_are_the_palm_s_side_of_the_finger_that_reaches_farthest(body):
    tip = find_place(body, "left_fingertips")
    skin = body.rest_vertices[body.canonical_weights[:, canonical_index("LeftHand")] >= 0.25].double()
    length = float(skin[:, 0].max() - joint(body, "LeftHand")[0])
    assert float(skin[:, 0].max() - tip.position[0]) < 0.25 * length
    down = torch.tensor([1.0, -0.5, 0.0], dtype=torch.float64)
    assert not ((skin @ down) > tip.position @ down + 1e-9).any()
    assert float(tip.normal @ down) > 0


def test_a_point_of_the_skin_does_not_depend_on_the_order_of_vertices():
    body = open_dataset("capsules").character("stout")
    order = torch.randperm(body.vertex_count, generator=torch.Generator().manual_seed(0))
    shuffled = replace(
        body,
        bind_vertices=body.bind_vertices[order],
        faces=order.argsort()[body.faces],
        influence_joints=body.influence_joints[order],
        influence_weights=body.influence_weights[order],
    )
    for name in ("belly", "left_instep", "right_palm", "crown"):
        first, second = find_place(body, name), find_place(shuffled, name)
        torch.testing.assert_close(first.position, second.position)
        torch.testing.assert_close(first.weights, second.weights)


def test_a_body_without_skin_at_a_place_says_which(body):
    joints = body.influence_joints.clone()
    for bone, instead in (("Foot", "Leg"), ("ToeBase", "Leg"), ("Hand", "ForeArm")):
        joints[joints == canonical_index(f"Left{bone}")] = canonical_index(f"Left{instead}")
    bare = replace(body, influence_joints=joints)
    for name in ("left_instep", "left_fingertips"):
        with pytest.raises(CharacterError, match=f"{body.name}: no skin was found for the place {name}"):
            find_place(bare, name)


def test_an_unknown_place_is_an_error(body):
    with pytest.raises(KeyError, match="left_wing"):
        find_place(body, "left_wing")
