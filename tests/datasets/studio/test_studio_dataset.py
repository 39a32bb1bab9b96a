"""Reading packs: the same as what was written, lazily, and messages about damage."""

from __future__ import annotations

import json
import shutil
import zipfile

import numpy as np
import pytest
import roma
import torch
from pack_examples import KEYS, bodies, pack_arguments, write_example
from scipy.interpolate import CubicSpline

from retargetbench.datasets.check import check_dataset
from retargetbench.datasets.studio.dataset import open_studio
from retargetbench.datasets.studio.fingers import finger_rotations
from retargetbench.datasets.studio.pack_bodies import rounded_character
from retargetbench.datasets.studio.pack_motions import rounded_keys
from retargetbench.errors import DatasetError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("studio") / "pack"
    write_example(path, shard_bytes=20_000)
    return path


@pytest.fixture(scope="module")
def dataset(folder):
    return open_studio(folder)


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def change_manifest(folder, change):
    path = folder / "studio.json"
    values = json.loads(path.read_text("utf-8"))
    change(values)
    path.write_text(json.dumps(values), "utf-8")


def test_names_and_what_is_seen_are_those_that_were_written(dataset):
    assert dataset.name == "studio"
    assert dataset.character_names == ("anna", "bert", "stout")
    assert dataset.seen_characters == {"anna", "bert"}
    assert dataset.seen_motions == {"clap", "wave"}
    assert dataset.clip_names == tuple(sorted(pack_arguments()["clips"]))
    assert dataset.families == {"clap": "hand-hand", "punch": "free", "wave": "free"}
    assert dataset.splits == ("default",)


def test_a_character_is_the_rounded_body_and_loads_once(dataset):
    for name, body in bodies().items():
        expected = rounded_character(body)
        character = dataset.character(name)
        assert character is dataset.character(name)
        assert character.skeleton.names == body.skeleton.names
        assert dict(character.provenance) == {"rest": "made for a test"}
        for field in ("bind_vertices", "inverse_bind", "faces", "influence_joints", "influence_weights"):
            assert torch.equal(getattr(character, field), getattr(expected, field)), field


def test_bodies_of_one_topology_share_their_arrays(dataset):
    anna, bert = dataset.character("anna"), dataset.character("bert")
    assert anna.faces is bert.faces
    assert anna.influence_weights is bert.influence_weights


def test_a_clip_is_the_spline_through_the_written_keys(dataset):
    written = pack_arguments()["clips"]["bert", "punch"]
    clip = dataset.clip("bert", "punch")
    assert clip.character is dataset.character("bert")
    motion = clip.motion
    assert (motion.frame_count, motion.fps) == (2 * KEYS["punch"] - 1, 30.0)
    times = np.arange(motion.frame_count) / 2
    root = CubicSpline(np.arange(KEYS["punch"]), written.root, bc_type="natural")(times)
    np.testing.assert_allclose(motion.root_translation, root, atol=1.5e-4)
    canonical = motion.local_rotations[:, list(clip.character.skeleton.canonical)].double()
    turns = roma.quat_product(roma.quat_conjugation(canonical[::2]), written.rotations)[..., :3].norm(dim=-1)
    assert float(turns.max()) < 1e-4
    dots = (motion.local_rotations[1:] * motion.local_rotations[:-1]).sum(-1)
    assert float(dots.min()) > 0


def test_a_clip_is_exactly_what_rounded_keys_give(dataset):
    expected = rounded_keys(pack_arguments()["clips"]["anna", "wave"])
    keys = dataset.keys("anna", "wave")
    assert torch.equal(keys.rotations, expected.rotations)
    assert torch.equal(keys.root, expected.root)


@pytest.mark.parametrize(("motion", "shape"), [("wave", "flat"), ("punch", "fist")])
def test_fingers_keep_the_shape_of_the_action(dataset, motion, shape):
    clip = dataset.clip("anna", motion)
    skeleton = clip.character.skeleton
    finger = skeleton.names.index("LeftHandIndex2")
    expected = finger_rotations(skeleton, shape, "relaxed")[finger].float()
    assert torch.equal(clip.motion.local_rotations[:, finger], expected.expand(clip.motion.frame_count, -1))


def test_ground_truth_is_the_own_clip_and_none_where_it_was_left_out(dataset):
    truth = dataset.ground_truth("stout", "wave")
    assert torch.equal(truth.local_rotations, dataset.clip("stout", "wave").motion.local_rotations)
    assert dataset.ground_truth("stout", "clap") is None
    assert dataset.ground_truth("nobody", "clap") is None


def test_every_row_of_the_frozen_split_is_a_task_with_ground_truth(dataset):
    split = dataset.split()
    assert split.hash == pack_arguments()["splits"][0].hash
    assert split.rows
    for row in split.rows:
        task = dataset.task(row)
        assert task.ground_truth is not None
        assert task.ground_truth.frame_count == task.source.motion.frame_count


def test_a_pack_passes_the_checks_of_datasets(dataset):
    report = check_dataset(dataset, penetration=False)
    assert not report.has_errors
    assert len(report.clips) == 8
    assert not [finding for finding in report.findings if finding.subject in dataset.character_names]


def test_figures_of_all_clips_and_reasons_of_those_left_out_can_be_read(dataset):
    rows = {(row["character"], row["action"]): row for row in dataset.quality()}
    assert len(rows) == 9
    assert rows["stout", "clap"]["left_out"] == "contact_gap, foot_drift"
    assert rows["bert", "clap"] == {
        "character": "bert",
        "action": "clap",
        "left_out": "",
        "penetration": "0.125",
        "contact_gap": "",
    }


def test_opening_reads_the_manifest_alone(copy):
    for file in copy.rglob("*"):
        if file.is_file() and file.name != "studio.json":
            file.unlink()
    dataset = open_studio(copy)
    assert len(dataset.hash) == 16
    assert len(dataset.clip_names) == 8
    assert dataset.splits == ("default",)


def test_unknown_names_are_answered_with_those_there_are(dataset):
    with pytest.raises(DatasetError, match=r"no character 'bob'; it has: anna, bert, stout"):
        dataset.character("bob")
    with pytest.raises(DatasetError, match=r"no motion 'clap' of character 'stout': it was left out.*punch, wave"):
        dataset.clip("stout", "clap")
    with pytest.raises(DatasetError, match=r"no motion 'fly' of character 'anna': it is not an action"):
        dataset.clip("anna", "fly")
    with pytest.raises(DatasetError, match="no split 'hard'; it has: default"):
        dataset.split("hard")


def damage_missing(folder):
    for shard in folder.glob("shard_*.zip"):
        shard.unlink()


def damage_truncated(folder):
    for shard in folder.glob("shard_*.zip"):
        shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])


def damage_flipped(folder):
    for shard in folder.glob("shard_*.zip"):
        data = bytearray(shard.read_bytes())
        data[200 : len(data) // 2 : 50] = bytes(len(data[200 : len(data) // 2 : 50]))
        shard.write_bytes(bytes(data))


def damage_swapped(folder):
    for shard in folder.glob("shard_*.zip"):
        with zipfile.ZipFile(shard) as archive:
            names = archive.namelist()
        with zipfile.ZipFile(shard, "w") as archive:
            for name in names:
                archive.writestr(name, b"not an archive")


@pytest.mark.parametrize("damage", [damage_missing, damage_truncated, damage_flipped, damage_swapped])
@pytest.mark.parametrize("what", ["character", "clip"])
def test_a_damaged_shard_is_named_in_one_line_with_the_next_step(copy, damage, what):
    damage(copy)
    dataset = open_studio(copy)
    with pytest.raises(DatasetError) as caught:
        dataset.character("anna") if what == "character" else dataset.clip("anna", "wave")
    message = str(caught.value)
    assert "\n" not in message
    assert str(copy / "shard_") in message
    assert "install retargetbench again" in message


@pytest.mark.parametrize("file", ["splits/default.csv", "quality.csv"])
def test_a_changed_or_missing_table_is_named(copy, file):
    read = open_studio(copy).split if file.startswith("splits") else open_studio(copy).quality
    (copy / file).write_text("changed")
    with pytest.raises(DatasetError, match=r"csv is damaged or was changed.*install retargetbench again"):
        read()
    (copy / file).unlink()
    with pytest.raises(DatasetError, match=r"csv cannot be read \(No such file or directory\)"):
        read()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.update(version=2), "layout version 2 is not 1"),
        (lambda values: values.update(format="zoo"), "is not the manifest of a pack"),
        (lambda values: values.update(seed="x"), "seed: Input should be a valid integer"),
        (lambda values: values.update(colour=1), "colour: Extra inputs are not permitted"),
        (lambda values: values["actions"]["wave"].update(seen=False), "was changed: its hash"),
        (lambda values: values["characters"]["stout"].update(left_out=[]), "was changed: its hash"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(copy, change, message):
    change_manifest(copy, change)
    with pytest.raises(DatasetError, match=message) as caught:
        open_studio(copy)
    assert str(copy / "studio.json") in str(caught.value)


def test_a_manifest_that_is_missing_or_no_json_is_refused(copy):
    (copy / "studio.json").write_text("{")
    with pytest.raises(DatasetError, match=r"studio.json is damaged: it is no JSON"):
        open_studio(copy)
    with pytest.raises(DatasetError, match=r"studio.json cannot be read \(No such file"):
        open_studio(copy / "nowhere")
