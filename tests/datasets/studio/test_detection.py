"""Steps and contacts found in clips: against authored ones, at any size, and in files of any condition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import roma
import torch

from retargetbench.clip import Clip
from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.actions import read_actions
from retargetbench.datasets.studio.choreography import choreograph
from retargetbench.datasets.studio.detection import (
    detect,
    on_floor,
    performance_from_clip,
    performances_from_folder,
    precise_skeleton,
)
from retargetbench.datasets.studio.detection_contacts import find_contacts
from retargetbench.datasets.studio.detection_feet import (
    BLEND,
    HELD_BEYOND,
    foot_of_skeleton,
    foot_track,
    resting_frames,
    runs_of,
    take_apart,
)
from retargetbench.datasets.studio.fingers import shaped_body
from retargetbench.datasets.studio.legs import LEG_JOINTS, ankle_path, pose_legs
from retargetbench.datasets.studio.places import PLACES
from retargetbench.errors import CharacterError, DatasetError
from retargetbench.formats.bvh import BvhFile, write_bvh
from retargetbench.kinematics import forward_kinematics
from retargetbench.motion import Motion
from retargetbench.skeleton import Skeleton, canonical_index


@pytest.fixture(scope="module")
def capsules():
    return open_dataset("capsules")


@pytest.fixture(scope="module")
def body(capsules):
    return shaped_body(capsules.character("stout"), "relaxed", "relaxed")


@pytest.fixture(scope="module")
def walk(body):
    (action,) = (action for action in read_actions() if action.name == "walk")
    return choreograph(action, body)


def clip_of(performance, body):
    root = precise_skeleton(body).rest_positions[0] + performance.hips * body.height
    return Clip(performance.name, body, Motion(root, performance.rotations, performance.fps))


def posed(body, performance):
    skeleton = precise_skeleton(body)
    return forward_kinematics(
        skeleton, skeleton.rest_positions[0] + performance.hips * body.height, performance.rotations
    )


def still(body, frames=60):
    """A motion at rest."""
    rotations = torch.zeros(frames, 22, 4, dtype=torch.float64)
    rotations[..., 3] = 1
    return Motion(precise_skeleton(body).rest_positions[0].expand(frames, 3).clone(), rotations, 30.0)


def turned(motion, turns):
    """The motion with rotation vectors (3,) or (T, 3) at joints."""
    rotations = motion.local_rotations.clone()
    for joint, vector in turns.items():
        rotations[:, canonical_index(joint)] = roma.rotvec_to_unitquat(
            torch.as_tensor(vector, dtype=torch.float64).expand(motion.frame_count, 3)
        )
    return replace(motion, local_rotations=rotations)


def far_from_stands(track):
    """Frames in which a track must be that of the motion."""
    reach = BLEND + HELD_BEYOND
    return torch.nn.functional.max_pool1d(track.planted.double()[None], 2 * reach + 1, 1, reach)[0] == 0


def test_walk_is_found_with_the_stands_it_was_made_with(body, walk):
    found = performance_from_clip(clip_of(walk, body), body, name="it")
    for made, seen in zip(walk.feet, found.feet, strict=True):
        wanted, got = runs_of(made.planted), runs_of(seen.planted)
        assert len(got) == len(wanted) >= 3
        assert np.abs(np.array(got) - np.array(wanted)).max() <= 2


def test_ankles_of_a_walk_stay_within_a_millimetre_of_the_copied_motion(body, walk):
    found = performance_from_clip(clip_of(walk, body), body, name="it")
    copied = on_floor(clip_of(walk, body).motion, body.skeleton, body).motion
    _, positions = forward_kinematics(precise_skeleton(body), copied.root_translation, copied.local_rotations)
    for side, track in enumerate(found.feet):
        path, _ = ankle_path(body, side, track, body.height)
        away = (path - positions[: len(path), LEG_JOINTS[side][2]]).norm(dim=-1)
        # A walk that was made with planted feet has nothing to be held; blends begin where feet lift.
        assert float(away[track.planted].max()) < 5e-3
        assert float(away[far_from_stands(track)].max() if far_from_stands(track).any() else 0) < 1e-3


def test_taking_a_foot_apart_and_putting_it_together_gives_the_same_foot(body):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(40, 22, 3, generator=generator, dtype=torch.float64)
    motion = replace(still(body, 40), local_rotations=roma.rotvec_to_unitquat(0.9 * noise))
    world, positions = forward_kinematics(precise_skeleton(body), motion.root_translation, motion.local_rotations)
    for side in range(2):
        track = take_apart(foot_of_skeleton(precise_skeleton(body), body, side), world, positions)
        ankle, foot = ankle_path(body, side, track, body.height)
        torch.testing.assert_close(ankle, positions[:, LEG_JOINTS[side][2]])
        torch.testing.assert_close(foot, world[:, LEG_JOINTS[side][2]])


def test_knees_point_where_those_of_the_motion_do(body):
    bent = turned(still(body), {"LeftUpLeg": (-0.7, 0.3, 0.2), "LeftLeg": (0.9, 0, 0), "RightUpLeg": (0, 0.4, 0)})
    world, positions = forward_kinematics(precise_skeleton(body), bent.root_translation, bent.local_rotations)
    tracks = tuple(
        take_apart(foot_of_skeleton(precise_skeleton(body), body, side), world, positions) for side in range(2)
    )
    legs, _ = pose_legs(body, world[:, 0], positions[:, 0], tracks)
    knee = positions[:, 0] + (world[:, 0] @ body.skeleton.offsets[LEG_JOINTS[0][0]].double())
    knee = knee + world[:, 0] @ legs[:, 0] @ body.skeleton.offsets[LEG_JOINTS[0][1]].double()
    assert (
        float((knee - positions[:, LEG_JOINTS[0][1]]).norm(dim=-1).max()) < 0.01
    )  # the thigh's offset is not vertical
    # A straight leg keeps the turn of its thigh.
    assert float(torch.rad2deg(roma.rotmat_geodesic_distance(legs[:, 4], bent_rotation(bent, "RightUpLeg"))).max()) < 6


def bent_rotation(motion, joint):
    return roma.unitquat_to_rotmat(motion.local_rotations[:, canonical_index(joint)])


def test_planted_feet_are_held_where_recorded_ones_tremble(body):
    trembling = still(body)
    root = trembling.root_translation.clone()
    root[:, 0] += 0.004 * torch.sin(torch.arange(60, dtype=torch.float64))
    found = performance_from_clip(Clip("it", body, replace(trembling, root_translation=root)), body, name="it")
    for track in found.feet:
        assert bool(track.planted.all())
        assert float((track.place - track.place[0]).abs().max()) == 0
        assert float(track.lift.max()) == 0


def test_a_shuffling_foot_stands_only_now_and_then(body):
    shuffling = still(body)
    root = shuffling.root_translation.clone()
    root[:, 2] += 0.006 * body.height / 1.8 * torch.arange(60, dtype=torch.float64)
    world, positions = forward_kinematics(precise_skeleton(body), root, shuffling.local_rotations)
    foot = foot_of_skeleton(precise_skeleton(body), body, 0)
    assert bool(resting_frames(foot, world, positions).all())
    stands = runs_of(foot_track(foot, world, positions).planted)
    assert len(stands) > 2
    assert all(stop - start < 10 for start, stop in stands)


def test_a_raised_foot_is_not_planted_however_still(body):
    raised = turned(still(body), {"LeftUpLeg": (-0.8, 0, 0), "LeftLeg": (0.8, 0, 0)})
    found = performance_from_clip(Clip("it", body, raised), body, name="it")
    assert not bool(found.feet[0].planted.any())
    assert bool(found.feet[1].planted.all())


def test_other_thighs_and_shins_leave_planted_feet_planted(body, walk):
    clip = clip_of(walk, body)
    skeleton = precise_skeleton(body)
    offsets = skeleton.offsets.clone()
    for leg in LEG_JOINTS:
        offsets[leg[1]] *= 1.15
        offsets[leg[2]] *= 0.8
    other = Skeleton(skeleton.names, skeleton.parents, offsets, skeleton.canonical)
    found = detect(clip.motion, skeleton, replace_skeleton(body, other), name="it")[0].performance
    for made, seen in zip(walk.feet, found.feet, strict=True):
        assert np.abs(np.array(runs_of(seen.planted)) - np.array(runs_of(made.planted))).max() <= 2
        for start, stop in runs_of(seen.planted):
            assert float((seen.place[start:stop] - seen.place[start]).abs().max()) < 1e-9


def replace_skeleton(body, skeleton):
    return replace(body, skeleton=skeleton.to(dtype=body.bind_vertices.dtype))


def arms_meet(body):
    """Hands together before the chest, by straight arms that turn forward and inward, then apart again."""
    motion = still(body, 61)
    share = torch.sin(torch.linspace(0, math.pi, 61, dtype=torch.float64)).clamp(max=0.9)[:, None] / 0.9
    forward = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)

    def closed(angle):
        moved = turned(motion, {"LeftArm": -angle * share * forward, "RightArm": angle * share * forward})
        world, positions = forward_kinematics(precise_skeleton(body), moved.root_translation, moved.local_rotations)
        return moved, world, positions

    # Palms turn to each other: the arms first roll about their own axis.
    for angle in torch.linspace(1.2, 2.0, 33).tolist():
        moved, world, positions = closed(angle)
        left, right = positions[30, canonical_index("LeftHand")], positions[30, canonical_index("RightHand")]
        if float(left[0] - right[0]) < 0.055 * body.height:
            break
    return moved, world, positions


def test_clap_gives_contacts_between_hands_alone(body):
    moved, world, positions = arms_meet(body)
    found = find_contacts(body, world, positions)
    assert found.contacts
    for contact in found.contacts:
        assert PLACES[contact.moving].bone.endswith("Hand")
        assert PLACES[contact.first].bone.endswith("Hand")
        assert contact.moving.startswith("left_")
        assert contact.first.startswith("right_")
        assert bool(contact.active[30])
        assert not bool(contact.active[0] | contact.active[-1])
    assert performance_from_clip(Clip("clap", body, moved), body, name="clap").contacts


def test_hanging_arms_touch_nothing_when_they_only_hang(capsules):
    slim = shaped_body(capsules.character("slim"), "relaxed", "relaxed")
    hanging = turned(still(slim), {"LeftArm": (0, 0, -1.35), "RightArm": (0, 0, 1.35)})
    assert performance_from_clip(Clip("hang", slim, hanging), slim, name="hang").contacts == ()


def test_size_of_the_character_changes_nothing(body, walk):
    factor = 1.5
    big = replace(
        body,
        skeleton=Skeleton(
            body.skeleton.names, body.skeleton.parents, body.skeleton.offsets * factor, body.skeleton.canonical
        ),
        bind_vertices=body.bind_vertices * factor,
        inverse_bind=torch.cat([body.inverse_bind[..., :3], body.inverse_bind[..., 3:] * factor_column(factor)], -1),
    )
    clap, *_ = arms_meet(body)
    steps = clip_of(walk, body).motion
    grown = [replace(motion, root_translation=motion.root_translation * factor) for motion in (clap, steps)]
    # Small and large recordings of the same on bodies of the same and of another size.
    same = [(clap, body, grown[0], big, body), (clap, body, grown[0], big, big), (steps, body, grown[1], big, big)]
    for motion, recorded, other_motion, other_recorded, other_body in same:
        one = performance_from_clip(Clip("it", recorded, motion), body, name="it")
        two = performance_from_clip(Clip("it", other_recorded, other_motion), other_body, name="it")
        for a, b in zip(one.feet, two.feet, strict=True):
            assert torch.equal(a.planted, b.planted)
            torch.testing.assert_close(a.place, b.place, atol=1e-5, rtol=0)  # float32 bodies
        torch.testing.assert_close(one.hips, two.hips, atol=1e-5, rtol=0)
        found = [(c.moving, c.first, c.second, runs_of(c.active)) for c in two.contacts]
        assert found == [(c.moving, c.first, c.second, runs_of(c.active)) for c in one.contacts]


def factor_column(factor):
    return torch.tensor([factor, factor, factor, 1.0])[:, None]


def test_a_motion_is_the_same_at_another_frame_rate(body, walk):
    motion = clip_of(walk, body).motion
    frames = torch.arange(0, motion.frame_count - 0.5, 0.5, dtype=torch.float64)
    double = Motion(
        torch.stack(
            [torch.lerp(motion.root_translation[int(f)], motion.root_translation[math.ceil(f)], f % 1) for f in frames]
        ),
        torch.stack(
            [
                roma.unitquat_slerp(motion.local_rotations[int(f)], motion.local_rotations[math.ceil(f)], f % 1)
                for f in frames
            ]
        ),
        60.0,
    )
    one, two = (detect(given, body.skeleton, body, name="it")[0].performance for given in (motion, double))
    assert len(one.rotations) == len(two.rotations)
    torch.testing.assert_close(one.hips, two.hips, atol=1e-9, rtol=0)


def test_a_hand_on_the_head_is_found_on_who_has_it_there(capsules):
    slim = shaped_body(capsules.character("slim"), "relaxed", "relaxed")
    found = performance_from_clip(capsules.clip("slim", "hand_to_head"), slim, name="it", family="hand-head")
    assert found.family == "hand-head"
    assert {PLACES[contact.first].bone for contact in found.contacts} == {"Head"}


def test_clips_of_other_characters_stand_on_the_reference_body(capsules, body):
    for name in ("child", "slim"):
        found = performance_from_clip(capsules.clip(name, "wave"), body, name=name)
        assert len(found.rotations) % 2 == 1
        assert all(bool(track.planted.all()) for track in found.feet)


def test_long_clips_become_windows_that_begin_over_the_origin(body, walk):
    motion = clip_of(walk, body).motion
    shift = motion.root_translation[-1] - motion.root_translation[0]
    parts = [motion.root_translation + k * shift * torch.tensor([1.0, 0.0, 1.0]) for k in range(4)]
    long = Motion(torch.cat(parts), motion.local_rotations.repeat(4, 1, 1), 30.0)
    found = detect(long, body.skeleton, body, name="walk")
    assert [each.performance.name for each in found] == [f"walk_{k + 1}" for k in range(len(found))]
    for each in found:
        frames = len(each.performance.rotations)
        assert frames % 2 == 1
        assert 2 <= (frames - 1) / 30 <= 4
        assert each.notes.frames == frames
        assert float(each.performance.hips[0, [0, 2]].abs().max()) < 1e-9
        for side, track in enumerate(each.performance.feet):
            _, positions = posed(body, each.performance)
            path, _ = ankle_path(body, side, track, body.height)
            away = (path - positions[:, LEG_JOINTS[side][2]]).norm(dim=-1)
            assert float(away.max()) < 0.01  # a leg that is all but straight is a little short


def test_clips_that_are_too_short_are_refused(body):
    with pytest.raises(DatasetError, match=r"0\.30 s are too short"):
        detect(still(body, 10), body.skeleton, body, name="blink")


def test_motions_of_other_joints_are_refused(body):
    motion = still(body)
    with pytest.raises(CharacterError, match="22 joints"):
        detect(replace(motion, local_rotations=motion.local_rotations[:, :20]), body.skeleton, body, name="it")


def bvh_of(motion, skeleton):
    return BvhFile(
        names=tuple(f"mixamorig:{name}" for name in skeleton.names),
        parents=skeleton.parents,
        offsets=skeleton.offsets.double().numpy() * 100,
        end_sites={},
        root_positions=motion.root_translation.numpy() * 100,
        rotations=motion.local_rotations.numpy(),
        frame_time=1 / motion.fps,
    )


def test_broken_files_of_a_folder_are_left_out_and_named(tmp_path, body, walk):
    (tmp_path / "some one").mkdir()
    write_bvh(tmp_path / "some one" / "slow walk.bvh", bvh_of(clip_of(walk, body).motion, precise_skeleton(body)))
    (tmp_path / "broken.bvh").write_text("HIERARCHY\nROOT")
    library = performances_from_folder(tmp_path, body)
    assert [performance.name for performance in library.performances] == ["some_one_slow_walk"]
    assert list(library.failures) == ["broken.bvh"]
    assert "broken.bvh" in library.failures["broken.bvh"]
    direct = performance_from_clip(clip_of(walk, body), body, name="it")
    torch.testing.assert_close(library.performances[0].hips, direct.hips, atol=1e-4, rtol=0)  # six digits in files
    (found,) = library.detected
    assert found.notes.stands == (3, 3)
    assert found.notes.planted_share > 0.9


def test_a_folder_without_clips_is_an_error(tmp_path, body):
    with pytest.raises(DatasetError, match="no BVH file"):
        performances_from_folder(tmp_path, body)


@pytest.mark.shared
def test_recorded_dances_have_the_contacts_that_are_seen_in_them(shared_dir, capsules):
    body = shaped_body(capsules.character("slim"), "relaxed", "relaxed")
    library = performances_from_folder(shared_dir / "data" / "r2et_mixamo" / "demo" / "Ortiz", body)
    assert library.failures == {}
    assert all(len(performance.rotations) <= 6 * 30 for performance in library.performances)
    macarena = [each for each in library.performances if "Macarena" in each.name]
    touched = {PLACES[contact.first].bone for each in macarena for contact in each.contacts}
    assert touched & {"Head", "LeftArm", "RightArm"}
    assert all(each.notes.planted_share > 0.8 for each in library.detected if "Macarena" in each.performance.name)
