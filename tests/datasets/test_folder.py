"""Folder datasets: what is written comes back, all or nothing, the same bytes each time, damage is noticed."""

from __future__ import annotations

import gc
import io
import shutil
import subprocess
import sys
import weakref
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from retargetbench.character import Character
from retargetbench.clip import Clip
from retargetbench.datasets.base import Split, SplitRow
from retargetbench.datasets.folder import FolderDataset
from retargetbench.datasets.folder_files import (
    arrays_from_bytes,
    arrays_to_bytes,
    character_from_bytes,
    motion_from_bytes,
)
from retargetbench.datasets.folder_writer import FolderDatasetWriter, write_folder_dataset
from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.splits import balanced_default, every_pair
from retargetbench.errors import DatasetError, UnknownNameError, UsageError
from retargetbench.motion import Motion
from retargetbench.skeleton import canonical_skeleton


def character(name: str, seed: int = 0) -> Character:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(30, 3, generator=generator)
    return Character(
        name=name,
        skeleton=canonical_skeleton(torch.randn(22, 3, generator=generator)),
        bind_vertices=torch.randn(30, 3, generator=generator),
        inverse_bind=torch.eye(4).repeat(22, 1, 1),
        faces=torch.randint(0, 30, (50, 3), generator=generator),
        influence_joints=torch.randint(0, 22, (30, 3), generator=generator),
        influence_weights=weights / weights.sum(-1, keepdim=True),
        provenance={"source": "made here", "note": "ümlaut"},
    )


def clip(of: Character, name: str, frames: int = 7) -> Clip:
    generator = torch.Generator().manual_seed(frames)
    rotations = torch.nn.functional.normalize(torch.randn(frames, 22, 4, generator=generator), dim=-1)
    return Clip(name, of, Motion(torch.randn(frames, 3, generator=generator), rotations, 29.97))


CHARACTERS = [character("Ann", 1), character("Bob", 2)]
CLIPS = [clip(CHARACTERS[0], "walk slowly", 7), clip(CHARACTERS[1], "walk slowly", 7), clip(CHARACTERS[1], "run", 4)]


def content() -> dict:
    pairs = [(each.character.name, each.name) for each in CLIPS]
    rows = every_pair(pairs, ["Ann", "Bob"], seen_characters={"Ann"}, seen_motions={"run"})
    return {
        "name": "tiny",
        "characters": CHARACTERS,
        "clips": CLIPS,
        "splits": [Split("default", balanced_default(rows)), Split("small", rows[:1])],
        "seen_characters": {"Ann"},
        "seen_motions": {"run"},
        "description": "two people",
        "licence": "CC0",
        "readme": "# tiny\n",
    }


@pytest.fixture
def folder(tmp_path):
    write_folder_dataset(tmp_path / "tiny", **content())
    return tmp_path / "tiny"


def files_of(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_characters_come_back_as_they_were(folder):
    for given in CHARACTERS:
        found = FolderDataset(folder).character(given.name)
        assert found.skeleton.names == given.skeleton.names
        assert found.skeleton.parents == given.skeleton.parents
        assert found.skeleton.canonical == given.skeleton.canonical
        assert found.provenance == given.provenance
        assert torch.equal(found.skeleton.offsets, given.skeleton.offsets)
        for field in ("bind_vertices", "inverse_bind", "faces", "influence_joints", "influence_weights"):
            assert torch.equal(getattr(found, field), getattr(given, field)), field


def test_clips_and_splits_come_back_as_they_were(folder):
    dataset = FolderDataset(folder)
    for given in CLIPS:
        found = dataset.clip(given.character.name, given.name)
        assert torch.equal(found.motion.root_translation, given.motion.root_translation)
        assert torch.equal(found.motion.local_rotations, given.motion.local_rotations)
        assert found.motion.fps == given.motion.fps
        assert found.character is dataset.character(given.character.name)
    assert dataset.splits == ("default", "small")
    assert [dataset.split(name).hash for name in dataset.splits] == [split.hash for split in content()["splits"]]
    assert dataset.seen_characters == {"Ann"}
    assert dataset.seen_motions == {"run"}
    assert dataset.character_names == ("Ann", "Bob")
    assert dataset.clip_names == (("Ann", "walk slowly"), ("Bob", "run"), ("Bob", "walk slowly"))


def test_the_clip_of_the_motion_on_the_target_is_the_ground_truth_where_frames_agree(folder):
    dataset = FolderDataset(folder)
    truth = dataset.task(SplitRow("SC+UM", "Bob", "walk slowly", "Ann")).ground_truth
    assert torch.equal(truth.local_rotations, CLIPS[0].motion.local_rotations)
    assert dataset.task(SplitRow("SC+SM", "Bob", "run", "Ann")).ground_truth is None


def test_writing_twice_gives_the_same_bytes_and_hash(folder, tmp_path):
    again = write_folder_dataset(tmp_path / "again", **content())
    assert files_of(tmp_path / "again") == files_of(folder)
    assert again.hash == FolderDataset(folder).hash


def test_the_hash_tells_content_apart(folder, tmp_path):
    changed = content()
    changed["clips"] = [*CLIPS[:2], clip(CHARACTERS[1], "run", 5)]
    other_seen = content() | {"seen_characters": set()}
    hashes = {
        FolderDataset(folder).hash,
        write_folder_dataset(tmp_path / "b", **changed).hash,
        write_folder_dataset(tmp_path / "c", **other_seen).hash,
    }
    assert len(hashes) == 3


def test_archives_are_plain_npz_without_dates_or_pickles(folder):
    with zipfile.ZipFile(folder / "characters" / "Ann.npz") as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    with np.load(folder / "clips" / "Bob" / "run.npz", allow_pickle=False) as archive:
        assert archive["local_rotations"].dtype == np.dtype("<f4")
        assert float(archive["fps"]) == 29.97


def test_arrays_of_any_order_and_byte_order_are_packed_alike():
    array = np.arange(6.0).reshape(2, 3)
    packed = {arrays_to_bytes({"a": a}) for a in (array, np.asfortranarray(array), array.astype(">f8"))}
    assert len(packed) == 1
    assert np.array_equal(arrays_from_bytes(packed.pop(), "x")["a"], array)


def test_loaded_clips_are_not_kept_and_characters_are(folder):
    dataset = FolderDataset(folder)
    loaded = dataset.clip("Bob", "run")
    gone = weakref.ref(loaded.motion.local_rotations)
    assert dataset.character("Bob") is loaded.character
    del loaded
    gc.collect()
    assert gone() is None


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def broken():
        yield CLIPS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder_dataset(tmp_path / "tiny", **(content() | {"clips": broken()}))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_replacement_leaves_the_old_dataset(folder, tmp_path):
    before = files_of(folder)

    def broken():
        yield CLIPS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder_dataset(folder, **(content() | {"clips": broken(), "force": True}))
    assert files_of(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_killed_write_leaves_no_folder_of_that_name(tmp_path):
    code = (
        "import os, sys; sys.path[:0] = sys.argv[2:]; from test_folder import CHARACTERS, FolderDatasetWriter\n"
        "with FolderDatasetWriter(sys.argv[1]) as writer:\n"
        "    writer.add_character(CHARACTERS[0]); os._exit(9)"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "tiny"), here], check=False)
    assert done.returncode == 9
    assert not (tmp_path / "tiny").exists()
    assert write_folder_dataset(tmp_path / "tiny", **content()).name == "tiny"


def test_a_dataset_is_replaced_only_by_force_and_anything_else_never(folder, tmp_path):
    with pytest.raises(UsageError, match="holds a dataset already; use --force"):
        write_folder_dataset(folder, **content())
    replaced = write_folder_dataset(folder, **(content() | {"name": "new", "force": True}))
    assert replaced.name == "new"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(UsageError, match="is not a dataset, so it is not replaced"):
        write_folder_dataset(tmp_path / "thesis", **(content() | {"force": True}))
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    assert write_folder_dataset(tmp_path / "empty", **content()).name == "tiny"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clips": []}, "would have no clip"),
        ({"splits": []}, "would have no split named default"),
        ({"seen_characters": {"Ann", "Zoe"}}, "listed as seen but not there: Zoe"),
        ({"splits": [Split("default", (SplitRow("UC+UM", "Ann", "fly", "Bob"),))]}, "Ann/fly/Bob names a clip or"),
        ({"characters": CHARACTERS[:1]}, "its character in the dataset has not been added yet"),
        ({"characters": [*CHARACTERS, character("ANN")]}, "two files of the dataset would be characters/ANN.npz"),
        ({"characters": [*CHARACTERS, character("../evil")]}, "'../evil' cannot be the name of a file"),
    ],
)
def test_inconsistent_content_is_refused_and_leaves_nothing(tmp_path, change, message):
    with pytest.raises(DatasetError) as error:
        write_folder_dataset(tmp_path / "tiny", **(content() | change))
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another folder"), FolderDatasetWriter(tmp_path / "file" / "tiny"):
        pass


def damage_character(folder):
    path = folder / "characters" / "Ann.npz"
    path.write_bytes(path.read_bytes()[:-200])
    return lambda dataset: dataset.character("Ann"), "Ann.npz is damaged or was changed"


def flip_a_bit_of_a_clip(folder):
    path = folder / "clips" / "Bob" / "run.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    return lambda dataset: dataset.clip("Bob", "run"), "run.npz is damaged or was changed"


def lose_a_clip(folder):
    (folder / "clips" / "Bob" / "run.npz").unlink()
    return lambda dataset: dataset.clip("Bob", "run"), "run.npz cannot be read (No such file or directory)"


def edit_a_frozen_split(folder):
    path = folder / "splits" / "default.csv"
    path.write_bytes(path.read_bytes().replace(b",1\n", b",0\n"))
    return lambda dataset: dataset.split(), "default.csv is damaged or was changed"


def lose_the_index(folder):
    (folder / "index.csv").unlink()
    return lambda dataset: dataset, "index.csv cannot be read"


def cut_the_index(folder):
    path = folder / "index.csv"
    path.write_text(path.read_text().partition("Bob.npz,char")[0] + "Bob.npz,char")
    return lambda dataset: dataset, "index.csv:3: not a line of an index"


def put_an_endless_cell_into_the_index(folder):
    path = folder / "index.csv"
    path.write_text(path.read_text().replace("Ann.npz,", "Ann.npz" + 200_000 * "x" + ",", 1))
    return lambda dataset: dataset, "not a line of an index: field larger"


def edit_what_is_seen(folder):
    manifest = yaml.safe_load((folder / "dataset.yaml").read_text())
    manifest["seen_characters"] = ["Ann", "Bob"]
    (folder / "dataset.yaml").write_text(yaml.safe_dump(manifest))
    return lambda dataset: dataset, "write the new hash there if you meant the change"


def break_the_manifest(folder):
    (folder / "dataset.yaml").write_text("name: [")
    return lambda dataset: dataset, "dataset.yaml is no YAML"


def another_version(folder):
    path = folder / "dataset.yaml"
    path.write_text(path.read_text().replace("version: 1", "version: 7"))
    return lambda dataset: dataset, "layout version 7 is not 1"


def another_type(folder):
    path = folder / "dataset.yaml"
    path.write_text(path.read_text().replace("name: tiny", "name: 5"))
    return lambda dataset: dataset, "name must be a str, got 5"


def another_yaml(folder):
    (folder / "dataset.yaml").write_text("tool: other\n")
    return lambda dataset: dataset, "lacks 'format: retargetbench-dataset'"


DAMAGE = [
    damage_character,
    flip_a_bit_of_a_clip,
    lose_a_clip,
    edit_a_frozen_split,
    lose_the_index,
    cut_the_index,
    put_an_endless_cell_into_the_index,
    edit_what_is_seen,
    break_the_manifest,
    another_version,
    another_type,
    another_yaml,
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda function: function.__name__)
def test_damage_is_one_line_that_names_the_file_and_what_to_do(folder, damage):
    use, message = damage(folder)
    with pytest.raises(DatasetError) as error:
        use(FolderDataset(folder))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "arrays",
    [{}, {"names": np.array(["Hips"])}, {"root_translation": np.zeros((3, 3), np.float32)}],
)
def test_an_archive_of_other_arrays_is_refused(arrays):
    data = arrays_to_bytes(arrays)
    with pytest.raises(DatasetError, match=r"x\.npz: not a character of this dataset"):
        character_from_bytes(data, "x", "x.npz")
    with pytest.raises(DatasetError, match=r"x\.npz: not a motion of this dataset"):
        motion_from_bytes(data, "x.npz")


def test_a_pickled_array_is_never_loaded():
    buffer = io.BytesIO()
    np.savez(buffer, names=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DatasetError, match="not a NumPy archive"):
        arrays_from_bytes(buffer.getvalue(), "x.npz")


def test_unknown_names_are_answered_with_what_there_is(folder):
    dataset = FolderDataset(folder)
    with pytest.raises(DatasetError, match="has no character 'Zoe'; it has Ann, Bob"):
        dataset.character("Zoe")
    with pytest.raises(DatasetError, match="no motion 'fly' of character 'Bob'; it has run, walk slowly"):
        dataset.clip("Bob", "fly")
    with pytest.raises(DatasetError, match="no split 'x'; it has default, small"):
        dataset.split("x")


def test_a_split_file_that_is_added_can_be_used(folder):
    shutil.copy(folder / "splits" / "small.csv", folder / "splits" / "mine.csv")
    dataset = FolderDataset(folder)
    assert dataset.splits == ("default", "mine", "small")
    assert dataset.split("mine").hash == dataset.split("small").hash


def test_a_dataset_is_opened_by_folder(folder, monkeypatch):
    assert open_dataset(folder).name == "tiny"
    assert open_dataset(str(folder)).name == "tiny"
    monkeypatch.chdir(folder.parent)
    assert open_dataset("tiny").name == "tiny"


def test_a_folder_that_is_no_dataset_or_not_there_is_explained(tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match=r"other holds no dataset: it has no dataset\.yaml.*bench data import"):
        open_dataset(tmp_path / "other")
    with pytest.raises(UsageError, match=r"missing does not exist.*bench data import"):
        open_dataset(str(tmp_path / "missing"))


def test_an_unknown_name_is_explained_as_name_and_as_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match=r"unknown dataset 'mxi'.*made with bench data import works too"):
        open_dataset("mxi")


@pytest.mark.slow
def test_peak_memory_does_not_grow_with_the_number_of_clips(tmp_path):
    code = (
        "import sys, pathlib; from retargetbench.datasets.folder import FolderDataset\n"
        "dataset = FolderDataset(sys.argv[1])\n"
        "for name in dataset.clip_names: dataset.clip(*name)\n"
        # Not getrusage: it counts the process that started this one too.
        "print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    peaks = []
    for count in (8, 80):
        clips = (clip(CHARACTERS[0], f"motion {i}", 3000 + i) for i in range(count))  # about 1 MB each
        rows = [SplitRow("UC+UM", "Ann", "motion 0", "Bob")]
        given = content() | {"clips": clips, "splits": [Split("default", tuple(rows))], "seen_motions": set()}
        write_folder_dataset(tmp_path / str(count), **given)
        run = [sys.executable, "-c", code, str(tmp_path / str(count))]
        peaks.append(int(subprocess.run(run, check=True, capture_output=True, text=True).stdout))
    assert peaks[1] < 1.1 * peaks[0]
