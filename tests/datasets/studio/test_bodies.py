"""Recipes of bodies, and what sculpting does to a body."""

from __future__ import annotations

import igl
import numpy as np
import pytest
import torch
import trimesh

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.recipes import MeshRecipe, read_recipes
from retargetbench.datasets.studio.sculpting import retriangulate, scale_parts
from retargetbench.errors import DatasetError
from retargetbench.kinematics import Skinner
from retargetbench.motion import Motion
from retargetbench.rest_pose import t_pose_angles
from retargetbench.sensors import extract_sensors
from retargetbench.skeleton import canonical_index

ROW = "ann: {kind: adult, seen: true, phenotype: {age: 0.7}"


@pytest.fixture(scope="module")
def body():
    return open_dataset("capsules").character("stout")


def bone(character, start, end):
    rest = character.skeleton.rest_positions
    return float((rest[canonical_index(end)] - rest[canonical_index(start)]).norm())


def test_the_shipped_bodies_are_many_and_of_all_kinds():
    recipes = read_recipes()
    assert len({recipe.name for recipe in recipes}) == len(recipes) >= 40
    kinds = [recipe.kind for recipe in recipes]
    assert kinds.count("adult") >= 28
    assert kinds.count("child") >= 4
    assert kinds.count("stylised") >= 8
    assert sum(recipe.seen for recipe in recipes) >= 30
    assert {recipe.kind for recipe in recipes if not recipe.seen} == {"adult", "child", "stylised"}
    assert sum(not recipe.seen for recipe in recipes) >= 10
    assert 3 * sum(recipe.mesh.kind != "original" for recipe in recipes) >= len(recipes)


def test_unseen_bodies_have_triangulations_that_no_seen_body_has():
    recipes = read_recipes()
    seen = {recipe.mesh for recipe in recipes if recipe.seen}
    new = {recipe.mesh for recipe in recipes if not recipe.seen} - seen
    assert len(new) >= 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "must map names to recipes"),
        ("a: [", "no YAML"),
        ("ann: {kind: adult}", "body ann: a recipe has kind, seen, phenotype"),
        (ROW + ", colour: red}", "colour"),
        ("ann: {kind: giant, seen: true, phenotype: {}}", "kind must be one of adult, child, stylised"),
        ("ann: {kind: adult, seen: true, phenotype: {age: old}}", "phenotype must map names to numbers"),
        (ROW + ", scales: {Tail: [1, 1]}}", "'Tail' cannot be scaled; accepted: Arm,"),
        (ROW + ", scales: {Arm: [1, 0]}}", "scale of Arm must be"),
        (ROW + ", mesh: {kind: decimated, vertices: 3}}", "with 500 to 50000 vertices"),
        (ROW + ", mesh: {faces: 3}}", "mesh has kind and vertices"),
    ],
)
def test_a_row_that_is_no_recipe_is_named(text, message):
    with pytest.raises(DatasetError, match=message):
        read_recipes(text)


def test_a_part_gets_longer_along_its_bone_and_thicker_across(body):
    scaled = scale_parts(body, {"LeftForeArm": (1.5, 2.0)})
    assert bone(scaled, "LeftForeArm", "LeftHand") == pytest.approx(1.5 * bone(body, "LeftForeArm", "LeftHand"))
    assert bone(scaled, "RightForeArm", "RightHand") == pytest.approx(bone(body, "RightForeArm", "RightHand"))
    assert bone(scaled, "LeftArm", "LeftForeArm") == pytest.approx(bone(body, "LeftArm", "LeftForeArm"))
    elbow = canonical_index("LeftForeArm")
    rigid = (body.weights[:, body.skeleton.canonical[elbow]] == 1).nonzero()[:, 0]
    assert len(rigid) > 10
    before, after = (c.rest_vertices[rigid] - c.skeleton.rest_positions[elbow] for c in (body, scaled))
    wanted = before * torch.tensor([1.5, 2.0, 2.0])
    torch.testing.assert_close(after, wanted.to(after), atol=1e-6, rtol=0, check_dtype=False)


def test_a_side_that_is_not_named_means_both_and_heads_scale_in_all_directions(body):
    scaled = scale_parts(body, {"UpLeg": (0.8, 1.0), "Head": (2.0, 1.0)})
    for side in ("Left", "Right"):
        assert bone(scaled, f"{side}UpLeg", f"{side}Leg") == pytest.approx(
            0.8 * bone(body, f"{side}UpLeg", f"{side}Leg")
        )
    head = canonical_index("Head")
    rigid = (body.weights[:, head] == 1).nonzero()[:, 0]
    sizes = [c.rest_vertices[rigid].amax(0) - c.rest_vertices[rigid].amin(0) for c in (body, scaled)]
    torch.testing.assert_close(sizes[1], 2.0 * sizes[0], atol=1e-6, rtol=0, check_dtype=False)


def test_sculpted_bodies_stand_on_the_floor_in_a_t_pose_and_keep_their_weights(body):
    scaled = scale_parts(body, {"Leg": (1.3, 1.1), "Foot": (1.2, 1.0), "Shoulder": (1.2, 1.0)})
    assert float(scaled.rest_vertices[:, 1].min()) == pytest.approx(0, abs=1e-6)
    assert max(t_pose_angles(scaled.skeleton).values()) < max(t_pose_angles(body.skeleton).values()) + 0.1
    torch.testing.assert_close(scaled.weights, body.weights.to(scaled.weights), atol=1e-6, rtol=0)


@pytest.mark.parametrize("mesh", [MeshRecipe("decimated", 700), MeshRecipe("remeshed", 2500)])
def test_a_new_triangulation_is_closed_and_moves_as_the_old_one(body, mesh):
    pytest.importorskip("fast_simplification", reason="needs the extra studio")
    new = retriangulate(body, mesh)
    assert new.vertex_count == pytest.approx(mesh.vertices, rel=0.02)
    assert trimesh.Trimesh(new.rest_vertices.numpy(), new.faces.numpy(), process=False).is_watertight
    rotations = torch.zeros(1, new.skeleton.joint_count, 4)
    rotations[..., 3] = 1
    rotations[0, canonical_index("LeftForeArm")] = torch.tensor([0.0, -0.5, 0.0, 0.75**0.5])
    motion = Motion(new.skeleton.offsets[:1].float(), rotations, 30.0)
    old_points, new_points = (
        Skinner.from_character(c.to(dtype=torch.float32)).pose_motion(motion)[0] for c in (body, new)
    )
    squared, _, _ = igl.point_mesh_squared_distance(
        new_points.double().numpy(), old_points.double().numpy(), body.faces.numpy()
    )
    # At the bent elbow a coarse mesh cuts corners.
    assert np.sqrt(squared).max() < 0.01


def test_the_original_triangulation_is_left_alone(body):
    assert retriangulate(body, MeshRecipe()) is body


@pytest.mark.slow
def test_a_body_of_the_model_is_one_closed_surface_in_an_exact_t_pose():
    pytest.importorskip("anny", reason="needs the extra studio")
    from retargetbench.datasets.studio.anny_bodies import AnnyBodies

    bodies = AnnyBodies()
    recipes = {recipe.name: recipe for recipe in read_recipes()}
    for name in ("adult_02", "child_03", "gnome", "bruiser"):
        character = bodies.build(recipes[name])
        surface = trimesh.Trimesh(character.rest_vertices.numpy(), character.faces.numpy(), process=False)
        assert surface.is_watertight
        assert surface.body_count == 1
        assert surface.volume > 0
        assert max(t_pose_angles(character.skeleton).values()) < 0.01
        assert float(character.rest_vertices[:, 1].min()) == pytest.approx(0, abs=1e-5)


@pytest.mark.slow
def test_arms_span_the_range_of_the_public_characters():
    pytest.importorskip("anny", reason="needs the extra studio")
    from retargetbench.datasets.studio.anny_bodies import AnnyBodies

    bodies = AnnyBodies()
    built = {recipe.name: bodies.build(recipe) for recipe in read_recipes()}
    radii = {name: extract_sensors(character).arm_radius / character.height for name, character in built.items()}
    # Public Mixamo characters: 0.021 to 0.070 of the height.
    assert 0.017 < min(radii.values()) < 0.021
    assert 0.060 < max(radii.values()) < 0.072
    assert sum(radius > 0.060 for radius in radii.values()) >= 3
