"""Sensors of real characters."""

from __future__ import annotations

import pytest
import torch
from sensor_rigs import MIXAMO_NAMES, mixamo_character, reordered, subdivided, unwelded

from retargetbench.sensors import BONES, bone_slice, extract_sensors

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("name", MIXAMO_NAMES)
def test_most_sensors_of_real_characters_are_valid(shared_dir, name):
    character = mixamo_character(shared_dir, name)
    sensors = extract_sensors(character)
    assert sensors.valid.double().mean() >= 0.88
    assert (sensors.frames.mT @ sensors.frames - torch.eye(3)).abs().max() < 1e-9
    assert 0.02 < sensors.arm_radius / character.height < 0.075


def test_most_names_are_valid_on_all_characters_at_once(shared_dir):
    valid = torch.stack([extract_sensors(mixamo_character(shared_dir, name)).valid for name in MIXAMO_NAMES])
    assert valid.all(0).sum() >= 225
    for bone in BONES:
        assert valid.all(0)[bone_slice(bone.name)].sum() >= 5, bone.name


@pytest.mark.parametrize("name", ["Mousey", "Big_Vegas"])
def test_subdividing_a_real_character_leaves_its_sensors(shared_dir, name):
    character = mixamo_character(shared_dir, name)
    one, other = extract_sensors(character), extract_sensors(subdivided(character))
    unchanged = (one.valid == other.valid) & ((one.positions - other.positions).abs().amax(-1) < 1e-6)
    assert unchanged.sum() >= 285


@pytest.mark.parametrize("change", [reordered, unwelded])
def test_storing_a_real_character_otherwise_leaves_its_sensors(shared_dir, change):
    character = mixamo_character(shared_dir, "Sporty_Granny")
    one, other = extract_sensors(character), extract_sensors(change(character))
    assert torch.equal(one.valid, other.valid)
    assert (one.positions - other.positions).abs().max() < 1e-6
    assert (one.frames - other.frames).abs().max() < 1e-6


def test_float32_and_float64_characters_have_the_same_sensors(shared_dir):
    exact, rounded = (mixamo_character(shared_dir, "Peasant_Man", dtype) for dtype in (torch.float64, torch.float32))
    one, other = extract_sensors(exact), extract_sensors(rounded)
    assert torch.equal(one.valid, other.valid)
    assert (one.positions - other.positions).abs().max() < 1e-5
