"""Where sensors are found, on figures whose surface is known."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import trimesh
from rigs import human_skeleton
from sensor_rigs import (
    ARM_RADIUS,
    arm_parts,
    deformed,
    figure,
    mirrored,
    reordered,
    scaled,
    subdivided,
    tube,
    tube_figure,
    unwelded,
)

from retargetbench.errors import CharacterError, UsageError
from retargetbench.sensors import (
    BONES,
    OBSERVED_PARTS,
    PART_SLICES,
    PARTS,
    SENSOR_NAMES,
    bone_slice,
    extract_sensors,
)
from retargetbench.skeleton import Skeleton, canonical_skeleton

if TYPE_CHECKING:
    from retargetbench.character import Character

LIMB_BONES = [bone.name for bone in BONES if bone.part not in ("torso", "head")]
ARM_BONES = ["LeftArm", "LeftForeArm", "LeftHand", "RightArm", "RightForeArm", "RightHand"]


def with_fingers(skeleton: Skeleton, reach: float) -> Skeleton:
    """Add the roots of both middle fingers, ``reach`` from the wrists."""
    names = (*skeleton.names, "mixamorig:LeftHandMiddle1", "mixamorig:RightHandMiddle1")
    parents = (*skeleton.parents, skeleton.names.index("LeftHand"), skeleton.names.index("RightHand"))
    fingers = skeleton.offsets.new_tensor([[reach, 0, 0], [-reach, 0, 0]])
    return Skeleton(names, parents, torch.cat([skeleton.offsets, fingers]), skeleton.canonical)


def bone_line(character: Character, bone: int) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of a bone that is no leaf."""
    rest = dict(zip(character.skeleton.names, character.skeleton.rest_positions.double().numpy(), strict=True))
    return rest[BONES[bone].name], rest[BONES[bone].end]


def test_there_are_288_names_in_a_fixed_order():
    assert len(SENSOR_NAMES) == len(set(SENSOR_NAMES)) == 288
    assert sorted(SENSOR_NAMES) == list(SENSOR_NAMES)
    assert SENSOR_NAMES[137] == (8, 0.5, 0.5 * math.pi)
    assert BONES[8].name == "LeftHand"


def test_parts_are_contiguous_and_cover_all_sensors():
    assert [PART_SLICES[part].stop - PART_SLICES[part].start for part in PARTS] == [64, 32, 48, 48, 48, 48]
    covered = np.concatenate([np.arange(288)[PART_SLICES[part]] for part in PARTS])
    assert (covered == np.arange(288)).all()
    for s, name in enumerate(SENSOR_NAMES):
        assert PART_SLICES[BONES[name.bone].part].start <= s < PART_SLICES[BONES[name.bone].part].stop


def test_no_part_observes_itself_and_torso_and_head_observe_nothing():
    assert set(OBSERVED_PARTS) == {"left_arm", "right_arm", "left_leg", "right_leg"}
    assert all(part not in seen for part, seen in OBSERVED_PARTS.items())


def test_an_unknown_bone_is_named_with_those_that_exist():
    with pytest.raises(UsageError, match=r"'LeftToeBase'.*LeftFoot"):
        bone_slice("LeftToeBase")


def test_an_unknown_hit_rule_is_refused():
    with pytest.raises(UsageError, match="'middle' is not one of: last, first"):
        extract_sensors(tube_figure(), hit="middle")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sensors_of_a_straight_tube_lie_at_its_radius_and_look_along_their_rays(device, dtype):
    character = tube_figure(dtype=dtype).to(device)
    sensors = extract_sensors(character)
    # float32: coordinates near 1 m are rounded to 6e-8 m, which the tangents of a 4 cm tube magnify
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert sensors.positions.dtype == dtype
    assert sensors.positions.device.type == device.type
    for bone in ARM_BONES:
        of_bone = bone_slice(bone)
        positions, frames = sensors.positions[of_bone], sensors.frames[of_bone]
        assert sensors.valid[of_bone].all()
        assert (sensors.radius[of_bone] - ARM_RADIUS).abs().max() < tolerance
        away = torch.stack([0 * positions[:, 0], positions[:, 1] - 1.44, positions[:, 2]], -1) / ARM_RADIUS
        assert ((frames[:, :, 2] * away).sum(-1) - 1).abs().max() < tolerance
        outward = frames.new_tensor([1.0 if bone.startswith("Left") else -1.0, 0, 0])
        assert (frames[:, :, 0] - outward).abs().max() < tolerance


def test_angle_zero_is_the_front_of_every_bone_and_the_top_of_the_feet():
    sensors = extract_sensors(tube_figure())
    for s in sensors.valid.nonzero()[:, 0].tolist():
        bone, along, angle = SENSOR_NAMES[s]
        foot, thigh = (BONES[bone].name.endswith(end) for end in ("Foot", "UpLeg"))
        # In front of the ankle is the shin, and in front of the thigh's upper end the round of the hips.
        if angle == 0 and not (foot and along < 0.5) and not (thigh and along == 0):
            assert sensors.frames[s, 1 if foot else 2, 2] > 0.99


def test_rays_agree_with_the_printed_formula_where_the_bone_is_perpendicular_to_the_front():
    character = tube_figure()
    sensors = extract_sensors(character)
    forward = np.array([0.0, 0.0, 1.0])
    checked = 0
    for s, (bone, along, angle) in enumerate(SENSOR_NAMES):
        if BONES[bone].end is None or not sensors.valid[s]:
            continue
        start, end = bone_line(character, bone)
        direction = (end - start) / np.linalg.norm(end - start)
        if abs(direction @ forward) > 1e-12:
            continue
        printed = np.cos(angle) * forward + np.sin(angle) * np.cross(forward, direction)
        ray = (sensors.positions[s].numpy() - (1 - along) * start - along * end) / float(sensors.radius[s])
        assert np.abs(ray - printed).max() < 1e-12
        checked += 1
    assert checked > 120


def test_frames_are_orthonormal_and_right_handed():
    frames = extract_sensors(deformed(tube_figure())).frames
    assert (frames.mT @ frames - torch.eye(3)).abs().max() < 1e-12
    assert (torch.linalg.det(frames) - 1).abs().max() < 1e-12


def test_positions_and_weights_are_those_of_the_stored_face():
    character = deformed(tube_figure())
    sensors = extract_sensors(character)
    for s in sensors.valid.nonzero()[:, 0].tolist():
        corners = character.faces[sensors.faces[s]]
        point = sum(b * character.rest_vertices[v] for b, v in zip(sensors.barycentric[s], corners, strict=True))
        weights = sum(b * character.weights[v] for b, v in zip(sensors.barycentric[s], corners, strict=True))
        assert (point - sensors.positions[s]).abs().max() < 1e-12
        assert (weights - sensors.weights[s]).abs().max() < 1e-12


@pytest.mark.parametrize("change", [reordered, unwelded])
def test_sensors_do_not_depend_on_how_the_mesh_is_stored(change):
    character = deformed(tube_figure())
    one, other = extract_sensors(character), extract_sensors(change(character))
    assert torch.equal(one.valid, other.valid)
    for name in ("positions", "frames", "weights", "radius"):
        assert (getattr(one, name) - getattr(other, name)).abs().max() < 1e-9, name


def test_subdivision_moves_no_sensor():
    character = deformed(tube_figure())
    one, other = extract_sensors(character), extract_sensors(subdivided(character))
    assert torch.equal(one.valid, other.valid)
    assert (one.positions - other.positions).abs().max() < 1e-9
    assert (one.weights - other.weights).abs().max() < 1e-9


def test_sensors_move_with_the_character_and_grow_with_it():
    character = deformed(tube_figure())
    shift = torch.tensor([0.4, 0.0, -0.7], dtype=torch.float64)
    offsets = character.skeleton.offsets.clone()
    offsets[0] += shift
    inverse_bind = character.inverse_bind.clone()
    inverse_bind[:, :3, 3] -= shift
    moved = replace(
        character,
        skeleton=canonical_skeleton(offsets),
        bind_vertices=character.bind_vertices + shift,
        inverse_bind=inverse_bind,
    )
    one, there, large = (extract_sensors(c) for c in (character, moved, scaled(character, 1.7)))
    for other in (there, large):
        assert torch.equal(one.valid, other.valid)
        assert (one.frames - other.frames).abs().max() < 1e-9
    valid = one.valid
    assert (there.positions[valid] - one.positions[valid] - shift).abs().max() < 1e-9
    assert (large.positions - 1.7 * one.positions).abs().max() < 1e-9


def test_mirroring_exchanges_left_and_right_and_turns_angles_around():
    character = deformed(tube_figure())
    one, other = extract_sensors(character), extract_sensors(mirrored(character))
    flip = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    twin = {}
    for s, (bone, along, angle) in enumerate(SENSOR_NAMES):
        name = BONES[bone].name
        swapped = name.replace("Left", "#").replace("Right", "Left").replace("#", "Right")
        quarter = round(angle / (0.5 * math.pi))
        twin[s] = bone_slice(swapped).start + round(4 * along) * 4 + (4 - quarter) % 4
    twins = [twin[s] for s in range(288)]
    assert torch.equal(one.valid, other.valid[twins])
    assert (one.positions - other.positions[twins] * flip).abs().max() < 1e-9
    turned = other.frames[twins] * flip[:, None] * torch.tensor([1.0, -1.0, 1.0])
    assert (one.frames - turned)[one.valid].abs().max() < 1e-9


def test_the_last_hit_is_the_outer_surface_and_the_first_the_inner():
    layers = [*arm_parts(), *arm_parts(radius=0.03)]
    character = figure(layers)
    for hit, radius in (("last", ARM_RADIUS), ("first", 0.03)):
        sensors = extract_sensors(character, hit=hit)
        assert sensors.valid[bone_slice("LeftForeArm")].all()
        assert (sensors.radius[bone_slice("LeftForeArm")] - radius).abs().max() < 1e-12


def test_a_leg_sensor_on_the_other_side_of_the_body_is_invalid():
    # A thick leg inside round hips. From the top of the thigh toward the other leg, the ray leaves the leg and last
    # meets the far side of the hips, which is not too far away as the leg's own radius goes.
    leg, leg_faces = tube(1, (0.45, 0.99), (0.1, 0, 0), 0.08)
    hips, hip_faces = tube(1, (0.85, 1.1), (0, 0, 0), 0.13)
    parts = [(leg, leg_faces, ["LeftUpLeg"] * len(leg)), (hips, hip_faces, ["Hips"] * len(hips))]
    top = extract_sensors(figure(parts)).valid[bone_slice("LeftUpLeg")].view(4, 4)[0]
    assert top.tolist() == [True, True, True, False]


def test_normals_point_outward_whichever_way_the_faces_turn():
    character = deformed(tube_figure())
    inside_out = replace(character, faces=character.faces.flip(-1))
    one, other = extract_sensors(character), extract_sensors(inside_out)
    assert torch.equal(one.valid, other.valid)
    assert (one.frames - other.frames).abs().max() < 1e-9


def test_a_surface_far_from_the_bone_is_not_its_skin():
    wing = np.array([[0.5, 2.0, -0.2], [0.68, 2.0, -0.2], [0.59, 2.0, 0.4]])
    parts = arm_parts()
    plain = extract_sensors(figure(parts))
    winged = extract_sensors(figure([*parts, (wing, np.array([[0, 1, 2]]), ["LeftForeArm"] * 3)]))
    lost = plain.valid & ~winged.valid
    assert lost.sum() == 2  # straight up from half and three quarters of the forearm
    assert lost[bone_slice("LeftForeArm")].sum() == 2


def test_skin_of_other_parts_is_not_seen():
    sleeve, faces = tube(0, (0.3, 0.9), (0, 1.44, 0), 0.06)
    alone = extract_sensors(figure(arm_parts()))
    covered = extract_sensors(figure([*arm_parts(), (sleeve, faces, ["Spine"] * len(sleeve))]))
    assert torch.equal(alone.radius, covered.radius)


def test_arms_without_hands_have_no_hand_sensors():
    character = figure(arm_parts(end=0.68))
    sensors = extract_sensors(character)
    hands = torch.cat([sensors.valid[bone_slice(hand)] for hand in ("LeftHand", "RightHand")])
    assert not hands.any()
    assert sensors.valid[bone_slice("LeftForeArm")].all()
    absent = ~sensors.valid
    assert (sensors.positions[absent] == 0).all()
    assert (sensors.radius[absent] == 0).all()
    assert (sensors.faces[absent] == -1).all()
    assert (sensors.weights.sum(-1) - 1).abs().max() < 1e-12
    assert torch.equal(sensors.frames[absent], torch.eye(3, dtype=torch.float64).expand(int(absent.sum()), 3, 3))


def test_the_hand_ends_at_twice_the_middle_finger_root_or_at_its_farthest_vertex():
    bare = extract_sensors(figure(arm_parts()))
    fingered = extract_sensors(figure(arm_parts(), with_fingers(human_skeleton(), 0.08)))
    assert (bare.positions[bone_slice("LeftHand"), 0].max() - (0.7 + 0.75 * 0.22)).abs() < 1e-12
    assert (fingered.positions[bone_slice("LeftHand"), 0].max() - (0.7 + 0.75 * 0.16)).abs() < 1e-12
    assert (fingered.positions[bone_slice("RightHand"), 0].min() + (0.7 + 0.75 * 0.16)).abs() < 1e-12


def test_the_head_ends_at_its_marker_or_above_its_joint_at_its_highest_vertex():
    figure_without = tube_figure()
    skeleton = figure_without.skeleton
    marked = Skeleton(
        (*skeleton.names, "mixamorig:HeadTop_End"),
        (*skeleton.parents, skeleton.names.index("Head")),
        torch.cat([skeleton.offsets, torch.tensor([[0.0, 0.12, 0.0]], dtype=torch.float64)]),
        skeleton.canonical,
    )
    inverse_bind = torch.cat([figure_without.inverse_bind, torch.eye(4, dtype=torch.float64)[None]])
    inverse_bind[-1, :3, 3] = -marked.rest_positions[-1]
    figure_with = replace(figure_without, skeleton=marked, inverse_bind=inverse_bind)
    for character, length in ((figure_without, 1.8 - 1.59), (figure_with, 0.12)):
        heights = extract_sensors(character).positions[bone_slice("Head"), 1].view(4, 4)
        expected = 1.59 + length * torch.tensor([0.0, 0.25, 0.5, 0.75], dtype=torch.float64)
        assert (heights - expected[:, None]).abs().max() < 1e-9


def test_a_foot_that_points_straight_ahead_takes_its_front_from_above():
    skeleton = human_skeleton()
    offsets = skeleton.offsets.clone()
    for toe in ("LeftToeBase", "RightToeBase"):
        offsets[skeleton.names.index(toe)] = offsets.new_tensor([0.0, 0.001, 0.12])  # even slightly upward
    character = tube_figure()
    inverse_bind = character.inverse_bind.clone()
    flat = canonical_skeleton(offsets)
    inverse_bind[:, :3, 3] = -flat.rest_positions
    sensors = extract_sensors(replace(character, skeleton=flat, inverse_bind=inverse_bind))
    front = sensors.frames[bone_slice("LeftFoot")].view(4, 4, 3, 3)[1:, 0, :, 2]
    assert (front[:, 1] > 0.9).all()


def test_arm_radius_is_the_median_over_both_arms():
    assert extract_sensors(tube_figure(arm_radius=0.05)).arm_radius == pytest.approx(0.05, abs=1e-12)
    trunk, faces = tube(1, (0.85, 1.55), (0, 0, 0), 0.13)
    assert math.isnan(extract_sensors(figure([(trunk, faces, ["Spine"] * len(trunk))])).arm_radius)


def test_a_character_that_faces_backward_is_refused():
    skeleton = human_skeleton()
    turned = canonical_skeleton(skeleton.offsets * torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64))
    character = tube_figure()
    with pytest.raises(CharacterError, match=r"faces \(0\.00, 0\.00, -1\.00\).*\+Z"):
        extract_sensors(replace(character, skeleton=turned))


def test_toes_that_point_backward_are_reported(caplog):
    skeleton = human_skeleton()
    offsets = skeleton.offsets.clone()
    for toe in ("LeftToeBase", "RightToeBase"):
        offsets[skeleton.names.index(toe), 2] = -0.12
    with caplog.at_level(logging.WARNING):
        extract_sensors(replace(tube_figure(), skeleton=canonical_skeleton(offsets)))
    assert "toes do not point to +Z" in caplog.text


def test_sensors_are_found_once_per_character():
    character = tube_figure()
    assert extract_sensors(character) is extract_sensors(character)
    assert extract_sensors(character, hit="first") is not extract_sensors(character)


def test_sensors_change_type_without_touching_indices():
    sensors = extract_sensors(tube_figure()).to(dtype=torch.float32)
    assert sensors.frames.dtype == sensors.weights.dtype == torch.float32
    assert sensors.faces.dtype == torch.int64
    assert sensors.valid.dtype == torch.bool


def embree_sensors(character: Character) -> np.ndarray:
    """Sensors of all bones that are no leaf, one by one with Embree's rays and plain loops; NaN where invalid."""
    vertices, faces = character.rest_vertices.numpy(), character.faces.numpy()
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    names = list(character.skeleton.names)
    height, forward = character.height, np.array([0.0, 0.0, 1.0])
    found = np.full((288, 3), np.nan)
    for b, bone in enumerate(BONES):
        if bone.end is None:
            continue
        start, end = bone_line(character, b)
        direction = (end - start) / np.linalg.norm(end - start)
        front = forward - (forward @ direction) * direction
        front /= np.linalg.norm(front)
        side = np.cross(front, direction)
        block = [names.index(name) for name in bone.block]
        reach = np.full(16, np.nan)
        for k in range(16):
            _, along, angle = SENSOR_NAMES[16 * b + k]
            origin = (1 - along) * start + along * end
            ray = np.cos(angle) * front + np.sin(angle) * side
            points, _, hit_faces = mesh.ray.intersects_location(origin[None], ray[None], multiple_hits=True)
            for point, face in zip(points, hit_faces, strict=True):
                triangle = vertices[faces[face]]
                share = trimesh.triangles.points_to_barycentric(triangle[None], point[None])[0]
                if (share @ character.weights.numpy()[faces[face]])[block].sum() < 0.25:
                    continue
                if not reach[k] > np.linalg.norm(point - origin):
                    reach[k], found[16 * b + k] = np.linalg.norm(point - origin), point
            if bone.name in LIMB_BONES and found[16 * b + k, 0] * (start + end)[0] < 0:
                reach[k], found[16 * b + k] = np.nan, np.nan
        limit = max(3 * np.nanmedian(reach), 0.05 * height)
        found[16 * b : 16 * b + 16][~(reach <= limit)] = np.nan
    return found


def test_sensors_agree_with_embree():
    # Bent, so that no ray runs exactly along an edge, where Embree reports one hit or two as rounding will have it.
    character = deformed(tube_figure())
    expected = embree_sensors(character)
    sensors = extract_sensors(character)
    checked = [s for s, name in enumerate(SENSOR_NAMES) if BONES[name.bone].end is not None]
    valid = ~np.isnan(expected).any(-1)
    assert (valid == sensors.valid.numpy())[checked].all()
    assert valid.sum() > 220
    assert np.abs(expected - sensors.positions.numpy())[valid].max() < 1e-5  # Embree works in float32
