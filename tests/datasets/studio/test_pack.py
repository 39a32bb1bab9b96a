"""Writing packs: what rounding costs, equal bytes, and what is refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import roma
import torch
from pack_examples import ACTIONS, bodies, motion_keys, pack_arguments, write_example

from retargetbench.datasets.studio import actions
from retargetbench.datasets.studio.build_pack import slim_sources
from retargetbench.datasets.studio.pack_bodies import rounded_character
from retargetbench.datasets.studio.pack_files import differences, from_differences
from retargetbench.datasets.studio.pack_manifest import HandShape, is_pack
from retargetbench.datasets.studio.pack_motions import (
    MotionKeys,
    WholeKeys,
    motions_from_arrays,
    motions_to_arrays,
    rounded_keys,
)
from retargetbench.datasets.studio.pack_rows import frozen_split
from retargetbench.errors import DatasetError, UsageError


def turn_between(first, second):
    """Angle from one rotation to another, radians; exact for small ones."""
    sine = roma.quat_product(roma.quat_conjugation(first), second)[..., :3].norm(dim=-1)
    return 2 * torch.asin(sine.clamp_max(1.0))


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint16"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (5, 4, 2)])
def test_differences_give_back_the_same_whole_numbers_even_the_largest(dtype, shape):
    limits = np.iinfo(dtype)
    values = np.random.default_rng(0).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    values.flat[0], values.flat[-1] = limits.min, limits.max
    packed = differences(values)
    back = from_differences(packed, shape, dtype)
    assert packed.dtype == np.uint8
    assert back.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(back, values)


def test_differences_of_slow_numbers_have_empty_high_bytes():
    packed = differences(np.arange(-50, 50, dtype=np.int16)[:, None] * 3)
    assert packed[0, 1:].tolist() == [6] * 99  # 3 in zigzag
    assert not packed[1, 1:].any()


def test_differences_of_another_size_are_refused():
    with pytest.raises(ValueError, match="int16"):
        from_differences(differences(np.zeros((4, 3), np.int16)), (5, 3), "int16")


def test_rounded_keys_are_within_the_stated_steps():
    keys = motion_keys(40, 1)
    rounded = rounded_keys(keys)
    # Half a step in each of three components; a rotation vector's length exaggerates turns, never hides them.
    assert math.degrees(float(turn_between(keys.rotations, rounded.rotations).max())) < 0.005
    assert float((keys.root - rounded.root).abs().max()) <= 0.5e-4 + 1e-9


def test_rounding_twice_is_rounding_once():
    once = WholeKeys.of(motion_keys(30, 2))
    twice = WholeKeys.of(once.keys())
    np.testing.assert_array_equal(once.rotations, twice.rotations)
    np.testing.assert_array_equal(once.root, twice.root)
    body = rounded_character(bodies()["stout"])
    again = rounded_character(body)
    for name in ("bind_vertices", "influence_weights", "influence_joints", "inverse_bind", "faces"):
        assert torch.equal(getattr(body, name), getattr(again, name)), name


def test_half_turns_are_kept():
    half = torch.tensor([[1.0, 0, 0, 0], [0, 0.6, 0.8, 0], [0, -1, 0, 1e-9]], dtype=torch.float64)
    keys = MotionKeys(half[:, None].expand(-1, 22, -1), torch.zeros(3, 3, dtype=torch.float64))
    assert float(turn_between(rounded_keys(keys).rotations, keys.rotations).max()) < 1e-4


def test_motions_of_a_character_come_back_in_their_order():
    motions = [motion_keys(count, count) for count in (5, 9, 2)]
    back = motions_from_arrays(motions_to_arrays(motions), [5, 9, 2])
    for keys, whole in zip(motions, back, strict=True):
        np.testing.assert_array_equal(whole.rotations, WholeKeys.of(keys).rotations)
        np.testing.assert_array_equal(whole.root, WholeKeys.of(keys).root)


def test_a_rounded_body_is_the_body_within_a_fraction_of_a_tenth_of_a_millimetre():
    body = bodies()["stout"]
    rounded = rounded_character(body)
    assert float((body.bind_vertices - rounded.bind_vertices).norm(dim=-1).max()) < 5e-5
    assert float((body.weights - rounded.weights).abs().max()) < 5e-5
    assert torch.equal(body.skeleton.offsets, rounded.skeleton.offsets)
    torch.testing.assert_close(rounded.rest_vertices, rounded.bind_vertices, atol=1e-6, rtol=0)
    whole = rounded.influence_weights.double() * 65535
    torch.testing.assert_close(whole.round().sum(-1), torch.full((body.vertex_count,), 65535.0).double())


def test_equal_arguments_give_equal_bytes_in_any_order(tmp_path):
    first = write_example(tmp_path / "a")
    arguments = pack_arguments()
    second = write_example(
        tmp_path / "b",
        characters=arguments["characters"][::-1],
        actions=arguments["actions"][::-1],
        clips=dict(reversed(arguments["clips"].items())),
    )
    assert first.hash == second.hash
    files = sorted(file.relative_to(tmp_path / "a") for file in (tmp_path / "a").rglob("*") if file.is_file())
    assert {"studio.json", "quality.csv", "splits/default.csv", "shard_00.zip"} == {file.as_posix() for file in files}
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_hash_tells_whatever_changes_results_but_not_other_figures(tmp_path):
    arguments = pack_arguments()
    plain = write_example(tmp_path / "plain").hash
    split = arguments["splits"][0]
    changes = [
        {"clips": {**arguments["clips"], ("anna", "wave"): motion_keys(12, 99)}},
        {"actions": [replace(action, seen=not action.seen) for action in ACTIONS]},
        {"actions": [replace(action, left="point") for action in ACTIONS]},
        {"characters": [replace(record, seen=not record.seen) for record in arguments["characters"]]},
        {"splits": [replace(split, rows=split.rows[1:])]},
    ]
    hashes = [write_example(tmp_path / str(k), **change).hash for k, change in enumerate(changes)]
    assert len({plain, *hashes}) == 6
    assert write_example(tmp_path / "figures", qualities={}).hash == plain


def test_shards_stay_under_their_size_and_bodies_of_one_topology_share_its_block(tmp_path):
    manifest = write_example(tmp_path / "pack", shard_bytes=20_000)
    shards = sorted((tmp_path / "pack").glob("shard_*.zip"))
    assert len(shards) > 1
    assert all(shard.stat().st_size <= 20_000 for shard in shards)
    assert {name: c.topology for name, c in manifest.characters.items()} == {
        "anna": "anna",
        "bert": "anna",
        "stout": "stout",
    }
    assert {name for name in manifest.blocks if name.startswith("topology/")} == {"topology/anna", "topology/stout"}


def test_the_manifest_is_sorted_json_that_a_person_can_read(tmp_path):
    write_example(tmp_path / "pack")
    text = (tmp_path / "pack" / "studio.json").read_text("utf-8")
    values = json.loads(text)
    assert list(values) == sorted(values)
    assert values["seed"] == 7
    assert values["made_with"] == {"anny": "1", "torch": "2"}
    assert "CC0-1.0" in values["licence"]
    assert values["actions"]["wave"] == {
        "family": "free",
        "summary": "waves",
        "seen": True,
        "left": "flat",
        "right": "relaxed",
        "keys": 12,
        "seconds": 0.7333,
    }
    assert values["characters"]["stout"]["left_out"] == ["clap"]
    assert values["characters"]["stout"]["facts"] == {"arm_radius": 0.05}


def test_the_manifest_knows_the_hand_shapes_of_the_actions():
    assert get_args(HandShape) == get_args(actions.HandShape)


def test_a_pack_is_replaced_as_a_whole_and_other_folders_are_left_alone(tmp_path):
    first = write_example(tmp_path / "pack", shard_bytes=20_000)
    second = write_example(tmp_path / "pack", seed=8)
    assert first.hash == second.hash
    assert [file.name for file in (tmp_path / "pack").glob("shard_*")] == ["shard_00.zip"]
    assert [folder.name for folder in tmp_path.iterdir()] == ["pack"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("work of years")
    with pytest.raises(UsageError, match="is no pack"):
        write_example(other)
    assert not is_pack(other)
    assert (other / "thesis.tex").exists()


def test_a_write_that_fails_leaves_the_old_pack(tmp_path):
    write_example(tmp_path / "pack")
    before = (tmp_path / "pack" / "studio.json").read_bytes()
    broken = bodies()["anna"]
    moved = replace(broken, inverse_bind=broken.inverse_bind + torch.eye(4) * 0.1)
    characters = [
        replace(r, character=moved) if r.character.name == "anna" else r for r in pack_arguments()["characters"]
    ]
    with pytest.raises(DatasetError, match="character anna: a pack takes bodies of up to 256 joints bound at their"):
        write_example(tmp_path / "pack", characters=characters)
    assert (tmp_path / "pack" / "studio.json").read_bytes() == before
    assert [folder.name for folder in tmp_path.iterdir()] == ["pack"]


def test_pairs_that_are_neither_clips_nor_left_out_are_refused(tmp_path):
    arguments = pack_arguments()
    with pytest.raises(DatasetError, match="stout/clap must be either a clip or left out"):
        write_example(tmp_path / "pack", left_out={})
    with pytest.raises(DatasetError, match="anna/wave must be either"):
        write_example(tmp_path / "pack", left_out={**arguments["left_out"], ("anna", "wave"): "twice"})
    with pytest.raises(DatasetError, match="bert/wave has 4 keys, other characters' have 12"):
        write_example(tmp_path / "pack", clips={**arguments["clips"], ("bert", "wave"): motion_keys(4, 0)})
    with pytest.raises(DatasetError, match="each with a name of its own"):
        write_example(tmp_path / "pack", actions=[*ACTIONS, ACTIONS[0]])


def many_clips(*, missing=()):
    characters = [f"c{k:02d}" for k in range(14)]
    motions = [f"m{k:02d}" for k in range(21)]
    return {
        "clips": [(c, m) for c in characters for m in motions if (c, m) not in missing],
        "seen_characters": set(characters[:10]),
        "seen_motions": set(motions[:15]),
        "families": {motion: f"f{k % 3}" for k, motion in enumerate(motions)},
        "builds": {character: (1.5 + 0.03 * k, (k * 5) % 7) for k, character in enumerate(characters)},
    }


@pytest.mark.parametrize("atom", ["UC+UM", "UC+SM", "SC+UM", "SC+SM"])
@pytest.mark.parametrize("full", [False, True])
def test_rows_are_balanced_over_targets_and_families(atom, full):
    arguments = many_clips()
    rows = frozen_split(**arguments, full=60).select([atom], full=full)
    assert len(rows) == (60 if full else 24)
    for counts in (Counter(row.target for row in rows), Counter(arguments["families"][row.motion] for row in rows)):
        assert max(counts.values()) - min(counts.values()) <= 1
    assert all(row.source != row.target for row in rows)
    assert len({row.source for row in rows}) == 14
    assert {row.target in arguments["seen_characters"] for row in rows} == {atom.startswith("SC")}
    assert {row.motion in arguments["seen_motions"] for row in rows} == {atom.endswith("SM")}


def test_every_row_has_a_ground_truth_and_the_order_of_clips_does_not_matter():
    missing = {("c12", "m03"), ("c13", "m20"), ("c01", "m00")}
    arguments = many_clips(missing=missing)
    split = frozen_split(**arguments)
    there = set(arguments["clips"])
    assert all((row.target, row.motion) in there and (row.source, row.motion) in there for row in split.rows)
    assert frozen_split(**{**arguments, "clips": arguments["clips"][::-1]}).hash == split.hash


def test_sources_are_built_unlike_their_targets():
    arguments = many_clips()
    builds = np.array([arguments["builds"][name] for name in sorted(arguments["builds"])])
    scaled = (builds - builds.mean(0)) / builds.std(0)
    distances = np.linalg.norm(scaled[:, None] - scaled[None], axis=-1)
    index = {name: k for k, name in enumerate(sorted(arguments["builds"]))}
    rows = frozen_split(**arguments, default=8).select(["UC+UM", "UC+SM", "SC+UM", "SC+SM"])
    chosen = np.mean([distances[index[row.source], index[row.target]] for row in rows])
    assert chosen > 1.2 * distances[distances > 0].mean()


def test_default_rows_of_different_atoms_take_turns_with_targets_and_motions():
    split = frozen_split(**many_clips(), default=5)
    unseen_motion, seen_motion = split.select(["SC+UM"]), split.select(["SC+SM"])
    assert len({row.target for row in (*unseen_motion, *seen_motion)}) == 10
    split = frozen_split(**many_clips(), default=3)
    unseen, seen = split.select(["UC+UM"]), split.select(["SC+UM"])
    assert len({row.motion for row in (*unseen, *seen)}) == 6


def test_small_datasets_give_all_their_rows():
    split = frozen_split(
        [(c, m) for c in "ab" for m in "xy"],
        seen_characters={"a"},
        seen_motions={"x"},
        families={"x": "f", "y": "f"},
        builds={"a": (1.0,), "b": (1.0,)},
    )
    assert sorted((row.atom, row.source, row.motion, row.target) for row in split.rows) == [
        ("SC+SM", "b", "x", "a"),
        ("SC+UM", "b", "y", "a"),
        ("UC+SM", "a", "x", "b"),
        ("UC+UM", "a", "y", "b"),
    ]


def test_sources_are_chosen_among_those_allowed_and_all_bodies_stay_targets():
    rows = frozen_split(**many_clips(), sources={"c03", "c05", "c12"}).rows
    assert {row.source for row in rows} == {"c03", "c05", "c12"}
    assert {row.target for row in rows} == {f"c{k:02d}" for k in range(14)}


def test_bodies_with_stout_arms_are_no_sources():
    facts = {
        name: {"arm_radius_ratio": radius} for name, radius in zip("abcd", (0.02, 0.024, 0.026, 0.05), strict=True)
    }
    assert slim_sources(facts) == {"a", "b", "c"}
    assert slim_sources({**facts, "unmeasured": {}}) == {"a", "b", "c", "unmeasured"}
