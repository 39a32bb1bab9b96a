"""The check of a dataset: each defect that is put in is found, and sound data are not blamed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from mixamo_like import humanoid, random_motion, write_bvh, write_shape, write_tiny_r2et

from retargetbench.clip import Clip
from retargetbench.datasets.check import (
    character_findings,
    check_dataset,
    clip_findings,
    measure_character,
    measure_clip,
)
from retargetbench.datasets.importers.r2et import import_r2et
from retargetbench.datasets.summary import summarise
from retargetbench.formats.bvh import read_bvh
from retargetbench.formats.shape_npz import read_shape_npz
from retargetbench.motion import Motion
from retargetbench.rigs import character_from_shape, clip_from_bvh
from retargetbench.skeleton import Skeleton


@pytest.fixture
def body(tmp_path):
    write_shape(tmp_path / "Body.npz", humanoid())
    return character_from_shape(read_shape_npz(tmp_path / "Body.npz"))


@pytest.fixture
def dataset(tmp_path):
    write_tiny_r2et(tmp_path / "r2et")
    return import_r2et(tmp_path / "r2et", tmp_path / "mix").dataset


def texts(character) -> str:
    return " | ".join(finding.text for finding in character_findings(character))


def turned(character, matrix):
    """The character with its whole rest turned about the origin."""
    turn = torch.tensor(matrix, dtype=torch.float32)
    skeleton = character.skeleton
    inverse_bind = character.inverse_bind.clone()
    inverse_bind[:, :3, 3] = inverse_bind[:, :3, 3] @ turn.T
    return replace(
        character,
        skeleton=Skeleton(skeleton.names, skeleton.parents, skeleton.offsets @ turn.T, skeleton.canonical),
        bind_vertices=character.bind_vertices @ turn.T,
        inverse_bind=inverse_bind,
    )


def scaled(character, factor):
    """The character in other units."""
    skeleton = character.skeleton
    inverse_bind = character.inverse_bind.clone()
    inverse_bind[:, :3, 3] *= factor
    return replace(
        character,
        skeleton=Skeleton(skeleton.names, skeleton.parents, skeleton.offsets * factor, skeleton.canonical),
        bind_vertices=character.bind_vertices * factor,
        inverse_bind=inverse_bind,
    )


def still(character, frames=6, fps=30.0):
    rotations = torch.zeros(frames, character.skeleton.joint_count, 4)
    rotations[..., 3] = 1
    return Motion(character.skeleton.offsets[:1].repeat(frames, 1), rotations, fps)


def clip_texts(character, motion) -> str:
    measures = measure_clip(Clip("move", character, motion), penetration=False)
    return " | ".join(finding.text for finding in clip_findings(measures))


def test_a_sound_character_has_only_the_note_on_its_weights(body):
    assert texts(body) == "skin weights of a vertex summed to 0.9985..0.9985; they were normalised"


def test_heights_that_hint_at_wrong_units_are_reported(body):
    assert "height 1" in texts(scaled(body, 100))
    assert "were the file's units centimetres?" in texts(scaled(body, 100))
    assert "is outside 0.4..3.0 m" in texts(scaled(body, 0.2))


@pytest.mark.parametrize(("part", "joint"), [("Head", 5), ("LeftHand", 17), ("RightHand", 21), ("LeftFoot", 8)])
def test_missing_parts_are_named(body, part, joint):
    keep = (body.dominant_joint[body.faces] != joint).all(-1)
    weights = body.influence_weights.clone()
    joints = body.influence_joints.clone()
    lost = body.dominant_joint == joint
    joints[lost], weights[lost] = 0, torch.eye(2)[0]
    without = replace(body, faces=body.faces[keep], influence_joints=joints, influence_weights=weights)
    assert f"no vertex belongs to the {part}" in texts(without)


def test_a_rest_that_is_not_t_like_and_one_that_was_re_posed_are_reported(tmp_path, body):
    write_shape(tmp_path / "Bent.npz", humanoid(thigh_deg=20))
    bent = character_from_shape(read_shape_npz(tmp_path / "Bent.npz"))
    assert "the rest was re-posed to a T-pose; " in texts(bent)
    offsets = body.skeleton.offsets.clone()
    offsets[16] = torch.tensor([0.1, -0.24, 0.0])
    slack = replace(
        body, skeleton=Skeleton(body.skeleton.names, body.skeleton.parents, offsets, body.skeleton.canonical)
    )
    assert "the rest is not T-like: LeftArm is 67.4 degrees from a T-pose" in texts(slack)


def test_wrong_axes_are_reported(body):
    assert "the head is not above the feet" in texts(turned(body, [[1, 0, 0], [0, 0, -1], [0, 1, 0]]))
    backwards = texts(turned(body, [[-1, 0, 0], [0, 1, 0], [0, 0, -1]]))
    assert "the feet do not point to +Z" in backwards
    assert "the left arm is not at +X" in backwards


def test_soles_off_the_floor_at_rest_are_reported(body):
    offsets = body.skeleton.offsets.clone()
    offsets[0, 1] += 0.3
    lifted = replace(
        body, skeleton=Skeleton(body.skeleton.names, body.skeleton.parents, offsets, body.skeleton.canonical)
    )
    expected = measure_character(body).lowest_sole + 0.3
    assert f"the lowest sole is {expected:.3f} m above the floor" in texts(lifted)


def test_a_bone_without_length_is_reported(body):
    offsets = body.skeleton.offsets.clone()
    offsets[2] = 0
    flat = replace(
        body, skeleton=Skeleton(body.skeleton.names, body.skeleton.parents, offsets, body.skeleton.canonical)
    )
    assert "bone Spine-Spine1 has no length" in texts(flat)


def test_a_sound_clip_has_no_finding(body):
    assert clip_texts(body, still(body)) == ""


def test_jumps_of_root_and_joints_are_reported_with_their_size(body):
    motion = still(body)
    motion.root_translation[3:, 0] += 1.0
    assert "the hips jump: 30.0 m/s between two frames" in clip_texts(body, motion)
    motion = still(body)
    motion.local_rotations[3:, 16] = torch.tensor([0.0, 0.9238795, 0.0, 0.3826834])  # 135 degrees
    assert "a joint jumps: it turns by 135 degrees between two frames" in clip_texts(body, motion)


def test_a_floor_elsewhere_a_single_frame_and_an_odd_rate_are_reported(body):
    motion = still(body)
    motion.root_translation[:, 1] -= 0.5
    floor = 0.5 - measure_character(body).lowest_sole
    assert f"the lowest sole of the clip is {floor:.3f} m below y = 0" in clip_texts(body, motion)
    assert "one frame only" in clip_texts(body, still(body, frames=1))
    assert "1000 frames a second is unusual" in clip_texts(body, still(body, fps=1000.0))


def test_signs_of_quaternions_are_no_jumps(body):
    motion = still(body)
    motion.local_rotations[3:] *= -1
    assert clip_texts(body, motion) == ""


def test_a_dataset_is_checked_as_a_whole(dataset):
    report = check_dataset(dataset, penetration=False)
    assert [measures.name for measures in report.characters] == list(dataset.character_names)
    assert [(m.character, m.motion) for m in report.clips] == list(dataset.clip_names)
    assert {finding.level for finding in report.findings} <= {"note", "warning"}
    assert not report.has_errors
    assert report.hash == dataset.hash
    assert all(measures.penetration is None for measures in report.clips)


def test_damaged_files_are_errors_and_the_rest_is_checked(dataset):
    (dataset.path / "clips" / "Ortiz" / "Thankful.npz").unlink()
    split = dataset.path / "splits" / "default.csv"
    split.write_text(split.read_text() + "UC+UM,A,b,C,1\n")
    report = check_dataset(dataset, penetration=False)
    assert report.has_errors
    errors = {finding.subject: finding.text for finding in report.findings if finding.level == "error"}
    assert set(errors) == {"Ortiz/Thankful", "split default"}
    assert len(report.clips) == len(dataset.clip_names) - 1


def test_a_damaged_character_is_an_error_of_it_and_its_clips(dataset):
    path = dataset.path / "characters" / "Mousey.npz"
    path.write_bytes(path.read_bytes()[:100])
    report = check_dataset(dataset, penetration=False)
    subjects = {finding.subject for finding in report.findings if finding.level == "error"}
    assert subjects == {"Mousey", "Mousey/Salsa Dancing", "Mousey/Gangnam Style"}


def test_rows_in_the_wrong_atom_and_empty_atoms_are_reported(dataset):
    added = dataset.path / "splits" / "mine.csv"
    added.write_text("atom,source,motion,target,default\nUC+UM,Ortiz,Thankful,Mousey,1\n")
    findings = [f for f in check_dataset(dataset, penetration=False).findings if f.subject == "split mine"]
    assert "1 rows are in another atom" in findings[0].text
    assert findings[0].level == "warning"
    assert findings[1].text == "no row in UC+SM, SC+UM, SC+SM"


def test_sources_that_penetrate_themselves_are_reported(tmp_path):
    rig = humanoid()
    write_shape(tmp_path / "Body.npz", rig)
    root, vectors = random_motion(rig, 4)
    vectors[:] = 0
    write_bvh(tmp_path / "T.bvh", rig, root, vectors)
    for side, sign in (("Left", 1), ("Right", -1)):
        # Arms down and forearms folded back through the chest.
        vectors[:, rig.names.index(f"mixamorig:{side}Arm"), 2] = -sign * 1.2
        vectors[:, rig.names.index(f"mixamorig:{side}ForeArm"), 2] = -sign * 1.9
    write_bvh(tmp_path / "In.bvh", rig, root, vectors)
    character = character_from_shape(read_shape_npz(tmp_path / "Body.npz"), rig=read_bvh(tmp_path / "T.bvh"))
    measured = {
        name: measure_clip(clip_from_bvh(read_bvh(tmp_path / f"{name}.bvh"), character, name=name))
        for name in ("T", "In")
    }
    assert measured["T"].penetration < 5
    assert measured["In"].penetration > 10
    assert any("the source penetrates itself" in finding.text for finding in clip_findings(measured["In"]))
    assert not any("penetrates" in finding.text for finding in clip_findings(measured["T"]))


def test_a_summary_counts_what_is_in_the_dataset(dataset):
    summary = summarise(dataset)
    assert [row["name"] for row in summary["characters"]] == list(dataset.character_names)
    assert {row["name"]: row["clips"] for row in summary["characters"]}["Ortiz"] == 3
    lengths = {(row["character"], row["motion"]): (row["frames"], row["fps"]) for row in summary["clips"]}
    assert lengths["Mousey", "Gangnam Style"] == (15, 60.0)
    assert summary["splits"][0]["rows"] == len(dataset.split().rows)
    assert summary["bytes"] == sum(
        path.stat().st_size
        for folder in ("characters", "clips", "splits")
        for path in (dataset.path / folder).rglob("*.*")
    )


@pytest.mark.shared
def test_the_real_files_have_only_known_oddities(shared_dir, tmp_path):
    dataset = import_r2et(shared_dir / "data" / "r2et_mixamo", tmp_path / "mix").dataset
    report = check_dataset(dataset, penetration=False)
    found = {(finding.level, finding.subject) for finding in report.findings}
    assert found == {("note", name) for name in ("Goblin_D_Shareyko", "Warrok_W_Kurniawan", "Mousey", "Ortiz")}
