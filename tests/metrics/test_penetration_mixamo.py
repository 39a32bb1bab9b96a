"""Penetration on real characters, against libigl's winding number on bodies that this test closes by itself."""

from __future__ import annotations

from collections import defaultdict

import igl
import numpy as np
import pytest
import torch
from penetration_rigs import evaluation, rest_motion
from scipy.spatial.distance import cdist
from sensor_rigs import MIXAMO_NAMES, mixamo_character

from retargetbench.datasets.importers.r2et import import_r2et
from retargetbench.datasets.opening import open_dataset
from retargetbench.kinematics import Skinner
from retargetbench.metrics.obstacles import body_model
from retargetbench.metrics.penetration import Penetration
from retargetbench.motion import Motion
from retargetbench.skeleton import canonical_index
from retargetbench.transfer import to_canonical_motion

pytestmark = pytest.mark.shared

ARMS = [["LeftArm", "LeftForeArm", "LeftHand"], ["RightArm", "RightForeArm", "RightHand"]]
LEGS = [[side + part for part in ("UpLeg", "Leg", "Foot", "ToeBase")] for side in ("Left", "Right")]
OBSTACLES = {
    "penetration": [(ARMS, ARMS)],
    "penetration_limbs": [(ARMS + LEGS, ARMS + LEGS)],
    "penetration_self": [([limb], [limb]) for limb in ARMS + LEGS],
}


@pytest.fixture(scope="module")
def mixamo(shared_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixamo") / "mix"
    import_r2et(shared_dir / "data" / "r2et_mixamo", folder)
    return open_dataset(str(folder))


def closed(faces, positions):
    """Faces with a cone over every connected part of their border, and the corners of each cone."""
    _, first, group = np.unique(positions, axis=0, return_index=True, return_inverse=True)
    welded = first[group.reshape(-1)][faces]
    welded = [tuple(face) for face in welded if len(set(face)) == 3]
    balance = defaultdict(int)
    for face in welded:
        for a, b in zip(face, face[1:] + face[:1], strict=True):
            balance[a, b] += 1
            balance[b, a] -= 1
    border = [(edge, count) for edge, count in balance.items() if count > 0]
    group_of = {vertex: vertex for (a, b), _ in border for vertex in (a, b)}

    def root(vertex):
        while group_of[vertex] != vertex:
            vertex = group_of[vertex]
        return vertex

    for (a, b), _ in border:
        group_of[root(a)] = root(b)
    apex = {top: len(positions) + i for i, top in enumerate(sorted({root(v) for v in group_of}))}
    corners = defaultdict(set)
    for (a, b), count in border:
        welded += [(b, a, apex[root(a)])] * count
        corners[apex[root(a)]] |= {a, b}
    return np.array(welded), [sorted(corners[key]) for key in sorted(corners)]


def winding(points, faces, queries):
    return np.round(igl.winding_number(points, faces.astype(np.int64), queries)).astype(int)


def shares_by_libigl(character, motion, column):
    """Percent of the limbs' vertices that are inside, by frame."""
    rest, part = character.rest_vertices.double().numpy(), character.dominant_joint.numpy()
    joints = character.skeleton.to_canonical().rest_positions.double().numpy()
    posed = Skinner.from_character(character).pose_motion(motion).double().numpy()
    inside, total = np.zeros(len(posed), int), 0
    for limbs, removed in OBSTACLES[column]:
        numbers = [[canonical_index(name) for name in limb] for limb in limbs]
        without = np.isin(part, [canonical_index(name) for limb in removed for name in limb])
        body = character.faces.numpy()
        body = body[~without[body].any(1)]
        faces, loops = closed(body, character.bind_vertices.numpy())
        used = np.unique(faces[faces < len(rest)])

        def with_apexes(positions, loops=loops):
            return np.concatenate([positions, *(positions[loop].mean(0, keepdims=True) for loop in loops)])

        for limb in numbers:
            vertices = np.flatnonzero(np.isin(part, limb))
            skin = rest[part == limb[0]] - joints[limb[0]]
            along = (joints[limb[1]] - joints[limb[0]]) / np.linalg.norm(joints[limb[1]] - joints[limb[0]])
            radius = np.median(np.linalg.norm(skin - np.outer(skin @ along, along), axis=1))
            free = cdist(rest[vertices], rest[used]).min(1) >= radius
            free &= winding(with_apexes(rest), faces, rest[vertices]) < 1
            total += len(vertices)
            for frame, positions in enumerate(posed):
                number = winding(with_apexes(positions), faces, positions[vertices[free]])
                inside[frame] += np.count_nonzero(number > 0)
    return 100 * inside / total


@pytest.mark.parametrize("column", OBSTACLES)
@pytest.mark.parametrize(
    ("owner", "clip", "target"),
    [
        ("Mousey", "Macarena Dance", "Mousey"),
        ("Sporty_Granny_99", "Gangnam Style", "Sporty_Granny_99"),
        ("Mousey", "Salsa Dancing", "Warrok_W_Kurniawan"),
    ],
)
def test_shares_are_those_of_libigl_on_a_body_closed_apart(mixamo, column, owner, clip, target):
    character, motion = mixamo.character(target), mixamo.clip(owner, clip).motion
    if target != owner:
        motion = to_canonical_motion(mixamo.character(owner).skeleton, motion)
    frames = torch.linspace(0, motion.frame_count - 1, 3).long()
    sampled = Motion(motion.root_translation[frames], motion.local_rotations[frames], motion.fps)
    value = Penetration().evaluate(evaluation(character, sampled), frozenset({column}))[column]
    expected = shares_by_libigl(character, sampled, column)
    assert expected.max() > 0
    # To the last vertex, which is 0.01 % or more.
    np.testing.assert_allclose(value.per_frame.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", MIXAMO_NAMES)
def test_clothed_characters_at_rest_penetrate_by_nothing(shared_dir, name):
    character = mixamo_character(shared_dir, name, torch.float32)
    values = Penetration().evaluate(evaluation(character, rest_motion(character)), frozenset(OBSTACLES))
    assert {column: value.value for column, value in values.items()} == dict.fromkeys(OBSTACLES, 0.0)


def test_armour_around_limbs_takes_as_many_vertices_as_in_the_trial(shared_dir):
    character = mixamo_character(shared_dir, "Warrok_W_Kurniawan", torch.float32)
    (obstacle,) = body_model(character, "limbs").obstacles
    assert 100 * float((~obstacle.can_count).float().mean()) == pytest.approx(44, abs=1)
