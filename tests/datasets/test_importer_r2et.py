"""Import of R2ET's files: what is made of them, and what happens to files that are missing or broken."""

from __future__ import annotations

import shutil
from collections import Counter

import numpy as np
import pytest
import torch
from mixamo_like import evaluate_bvh, humanoid, random_motion, write_bvh, write_tiny_r2et

from retargetbench.datasets.folder import FolderDataset
from retargetbench.datasets.importers.r2et import TRAINING_CHARACTERS, UNSEEN_MOTIONS, import_r2et
from retargetbench.errors import DatasetError, UsageError
from retargetbench.kinematics import forward_kinematics
from retargetbench.rest_pose import t_pose_angles


@pytest.fixture
def source(tmp_path):
    write_tiny_r2et(tmp_path / "r2et")
    return tmp_path / "r2et"


def files_of(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def farthest_joint(clip, bvh) -> float:
    names, _, positions = evaluate_bvh(bvh)
    _, ours = forward_kinematics(clip.character.skeleton, clip.motion.root_translation, clip.motion.local_rotations)
    short = [name.split(":")[-1] for name in clip.character.skeleton.names]
    matched = [(short.index(name.split(":")[-1]), j) for j, name in enumerate(names) if name.split(":")[-1] in short]
    ours_columns, file_columns = zip(*matched, strict=True)
    difference = ours.numpy()[:, list(ours_columns)] - positions[:, list(file_columns)] / 100
    return float(np.linalg.norm(difference, axis=-1).max())


def test_every_file_becomes_a_character_or_a_clip(source, tmp_path):
    report = import_r2et(source, tmp_path / "mix")
    dataset = report.dataset
    longer = len(humanoid(fingers=False).names)
    assert dataset.character_names == ("AJ", "Mousey", "Ortiz", f"Ortiz_{longer}")
    assert dataset.clip_names == (
        ("Mousey", "Gangnam Style"),
        ("Mousey", "Salsa Dancing"),
        ("Ortiz", "Gangnam Style"),
        ("Ortiz", "Salsa Dancing"),
        ("Ortiz", "Thankful"),
        (f"Ortiz_{longer}", "Situp To Idle"),
    )
    assert report.problems == ()
    assert any(f"character of its own, Ortiz_{longer}" in note for note in report.notes)


def test_every_joint_of_every_clip_is_where_the_file_has_it(source, tmp_path):
    dataset = import_r2et(source, tmp_path / "mix").dataset
    for owner, motion in dataset.clip_names:
        bvh = source / "demo" / owner.split("_")[0] / f"{motion}.bvh"
        assert farthest_joint(dataset.clip(owner, motion), bvh) < 1e-5


def test_a_bent_rest_is_re_posed_and_a_t_like_one_is_kept(source, tmp_path):
    dataset = import_r2et(source, tmp_path / "mix").dataset
    assert max(t_pose_angles(dataset.character("AJ").skeleton).values()) < 1e-3
    assert t_pose_angles(dataset.character("Mousey").skeleton)["LeftArm"] == pytest.approx(4, abs=1e-3)
    straight = import_r2et(source, tmp_path / "straight", straighten=True).dataset
    assert max(t_pose_angles(straight.character("Mousey").skeleton).values()) < 1e-3


def test_characters_say_where_they_come_from(source, tmp_path):
    character = import_r2et(source, tmp_path / "mix").dataset.character("Ortiz")
    assert character.provenance["source"].startswith("shape/Ortiz.npz sha256 ")
    assert "Adobe" in character.provenance["licence"]
    assert character.provenance["raw_weight_sums"] == "0.998500..0.998500"


def test_all_four_atoms_have_rows_by_what_r2et_was_trained_on(source, tmp_path):
    dataset = import_r2et(source, tmp_path / "mix").dataset
    rows = dataset.split().rows
    assert set(Counter(row.atom for row in rows)) == {"UC+UM", "UC+SM", "SC+UM", "SC+SM"}
    for row in rows:
        assert (row.target in TRAINING_CHARACTERS) == row.atom.startswith("SC")
        assert (row.motion in UNSEEN_MOTIONS) == row.atom.endswith("UM")
    assert len(rows) == 6 * 3
    assert len({(row.source, row.motion, row.target) for row in rows}) == len(rows)


def test_the_motion_on_the_target_is_the_ground_truth_where_it_exists(source, tmp_path):
    dataset = import_r2et(source, tmp_path / "mix").dataset
    with_truth = set()
    for row in dataset.split().rows:
        task = dataset.task(row)
        if task.ground_truth is not None:
            with_truth.add((row.source, row.motion, row.target))
            own = dataset.clip(row.target, row.motion).motion
            assert torch.equal(task.ground_truth.local_rotations, own.local_rotations)
    pair = (("Mousey", "Ortiz"), ("Ortiz", "Mousey"))
    assert with_truth == {(a, motion, b) for a, b in pair for motion in ("Salsa Dancing", "Gangnam Style")}


def test_the_readme_lists_what_is_unseen_and_for_whom(source, tmp_path):
    text = import_r2et(source, tmp_path / "mix").dataset.path.joinpath("README.md").read_text()
    assert "hold for R2ET's official weights only" in text
    assert "| Gangnam Style | unseen | Mousey, Ortiz |" in text
    assert "| AJ | seen |" in text
    assert "| Ortiz | unseen |" in text


def test_importing_twice_gives_the_same_bytes(source, tmp_path):
    import_r2et(source, tmp_path / "one")
    shutil.copytree(source, tmp_path / "elsewhere")
    import_r2et(tmp_path / "elsewhere", tmp_path / "two")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_an_interrupted_import_leaves_nothing(source, tmp_path):
    def stop_late(done, total, _):
        if done == total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_r2et(source, tmp_path / "mix", progress=stop_late)
    assert [path.name for path in tmp_path.iterdir()] == ["r2et"]


def test_progress_counts_every_file(source, tmp_path):
    seen = []
    import_r2et(source, tmp_path / "mix", progress=lambda *step: seen.append(step))
    # Three shapes, and six motions: once for their rests and once for their frames.
    assert [done for done, _, _ in seen] == list(range(3 + 2 * 6))
    assert {total for _, total, _ in seen} == {3 + 2 * 6}


def test_of_several_rests_that_fit_the_mesh_the_nearest_gives_the_fingers(source, tmp_path):
    skeleton = import_r2et(source, tmp_path / "mix").dataset.character("Ortiz").skeleton
    thumb = skeleton.names.index("mixamorig:LeftHandThumb1")
    rig = humanoid(scale=1.05)
    expected = rig.offsets[rig.names.index("mixamorig:LeftHandThumb1")] / 100
    assert np.allclose(skeleton.offsets[thumb].numpy(), expected, atol=1e-6)
    assert "Pelvis" not in skeleton.names


def test_r2ets_own_folders_are_accepted(source, tmp_path):
    own = tmp_path / "datasets" / "mixamo"
    (own / "train_shape").mkdir(parents=True)
    for name in ("AJ", "Mousey"):
        shutil.move(source / "shape" / f"{name}.npz", own / "train_shape" / f"{name}.npz")
    shutil.move(source / "shape", own / "test_shape")
    shutil.move(source / "demo", own / "train_char")
    assert len(import_r2et(tmp_path / "datasets", tmp_path / "mix").dataset.clip_names) == 6


def test_a_blank_in_a_folder_name_stands_for_an_underscore(source, tmp_path):
    shutil.move(source / "shape" / "Ortiz.npz", source / "shape" / "Big_Vegas.npz")
    shutil.move(source / "demo" / "Ortiz", source / "demo" / "Big Vegas")
    assert ("Big_Vegas", "Thankful") in import_r2et(source, tmp_path / "mix").dataset.clip_names


def test_what_is_missing_is_noted_and_the_rest_is_imported(source, tmp_path):
    (source / "shape" / "Ortiz.npz").unlink()
    report = import_r2et(source, tmp_path / "mix")
    assert report.problems == ()
    assert "Ortiz: no shape file, so its 4 BVH files are left out" in report.notes
    assert any(
        note.startswith("not there of the characters that R2ET was trained on: Big_Vegas") for note in report.notes
    )
    assert any("Hip Hop Dancing" in note for note in report.notes)
    assert report.dataset.character_names == ("AJ", "Mousey")


def break_a_bvh(source):
    path = source / "demo" / "Ortiz" / "Thankful.bvh"
    path.write_text(path.read_text()[:1000])
    return path, ("Ortiz", "Thankful")


def break_a_shape(source):
    path = source / "shape" / "Mousey.npz"
    path.write_bytes(path.read_bytes()[:500])
    return path, ("Mousey", "Salsa Dancing")


def strip_a_joint(source):
    path = source / "demo" / "Ortiz" / "Thankful.bvh"
    path.write_text(path.read_text().replace("JOINT Neck", "JOINT Nacken"))
    return path, ("Ortiz", "Thankful")


def spread_the_legs(source):
    rig = humanoid(scale=1.05)
    leg = rig.names.index("mixamorig:LeftUpLeg")
    rig.offsets[leg] = rig.offsets[leg][[1, 0, 2]] * [-1, -1, 1]
    path = source / "demo" / "Ortiz" / "Thankful.bvh"
    write_bvh(path, rig, *random_motion(rig, 4))
    return path, ("Ortiz", "Thankful")


@pytest.mark.parametrize(
    "damage", [break_a_bvh, break_a_shape, strip_a_joint, spread_the_legs], ids=lambda function: function.__name__
)
def test_a_broken_file_is_one_line_and_the_rest_is_imported(source, tmp_path, damage):
    path, lost = damage(source)
    report = import_r2et(source, tmp_path / "mix")
    assert len(report.problems) == 1
    assert str(path) in report.problems[0]
    assert "\n" not in report.problems[0]
    assert lost not in report.dataset.clip_names
    assert report.dataset.clip_names
    assert FolderDataset(tmp_path / "mix").split().rows


def test_a_folder_without_shapes_or_motions_or_none_at_all_is_wrong_use(source, tmp_path):
    with pytest.raises(UsageError, match="nowhere does not exist"):
        import_r2et(tmp_path / "nowhere", tmp_path / "mix")
    with pytest.raises(UsageError, match="holds no shape file"):
        import_r2et(source / "demo", tmp_path / "mix")
    shutil.rmtree(source / "demo")
    with pytest.raises(UsageError, match="holds no BVH file"):
        import_r2et(source, tmp_path / "mix")
    assert not (tmp_path / "mix").exists()


def test_if_no_file_can_be_used_nothing_is_written(source, tmp_path):
    for path in source.rglob("*.bvh"):
        path.write_text("HIERARCHY")
    with pytest.raises(DatasetError, match="would have no clip"):
        import_r2et(source, tmp_path / "mix")
    assert not (tmp_path / "mix").exists()


@pytest.mark.shared
def test_the_real_files_become_nine_characters_thirteen_clips_and_four_atoms(shared_dir, tmp_path):
    report = import_r2et(shared_dir / "data" / "r2et_mixamo", tmp_path / "mix")
    dataset = report.dataset
    assert report.problems == ()
    assert dataset.character_names == (
        "AJ",
        "Big_Vegas",
        "Goblin_D_Shareyko",
        "Mousey",
        "Ortiz",
        "Peasant_Man",
        "Sporty_Granny",
        "Sporty_Granny_99",
        "Warrok_W_Kurniawan",
    )
    joints = {name: dataset.character(name).skeleton.joint_count for name in dataset.character_names}
    assert (joints["AJ"], joints["Mousey"], joints["Ortiz"]) == (22, 57, 65)
    assert (joints["Sporty_Granny"], joints["Sporty_Granny_99"]) == (88, 99)
    # Heights by R2ET's rule, from the table of methods/r2et.md section 9 in centimetres.
    table = {"AJ": 142.3, "Mousey": 76.8, "Goblin_D_Shareyko": 180.4, "Warrok_W_Kurniawan": 201.1, "Ortiz": 159.7}
    for name, height in table.items():
        assert 100 * dataset.character(name).height == pytest.approx(height, abs=0.06)
    assert len(dataset.clip_names) == 13
    assert {motion for owner, motion in dataset.clip_names if owner == "Sporty_Granny"} == {"Hip Hop Dancing"}
    truths = Counter(row.atom for row in dataset.split().rows if dataset.task(row).ground_truth is not None)
    # Three dances on three characters: six ordered pairs each.
    assert truths == {"SC+SM": 4, "SC+UM": 2, "UC+SM": 8, "UC+UM": 4}
