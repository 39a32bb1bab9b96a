"""A small pack: three bodies, two of one topology, with finger joints, in three hand-made motions."""

from __future__ import annotations

from dataclasses import replace

import roma
import torch

from retargetbench.datasets.capsules import open_capsules
from retargetbench.datasets.studio.pack import ActionRecord, CharacterRecord, write_pack
from retargetbench.datasets.studio.pack_motions import MotionKeys
from retargetbench.datasets.studio.pack_rows import frozen_split
from retargetbench.skeleton import Skeleton

FINGERS = tuple(f"LeftHandIndex{k}" for k in (1, 2, 3))

ACTIONS = (
    ActionRecord("wave", "free", "waves", True, "flat", "relaxed"),
    ActionRecord("clap", "hand-hand", "claps", True, "flat", "flat"),
    ActionRecord("punch", "free", "hits", False, "fist", "fist"),
)

KEYS = {"wave": 12, "clap": 9, "punch": 16}


def with_fingers(character, name, scale=1.0):
    """Return a capsule body of another name and size that has an index finger on its left hand."""
    old = character.skeleton
    hand = old.canonical[17]
    offsets = torch.cat([old.offsets, torch.tensor([[0.05, 0.0, 0.01], [0.02, 0.0, 0.0], [0.02, 0.0, 0.0]])]) * scale
    skeleton = Skeleton(
        (*old.names, *FINGERS),
        (*old.parents, hand, old.joint_count, old.joint_count + 1),
        offsets,
        old.canonical,
    )
    inverse_bind = torch.eye(4).repeat(skeleton.joint_count, 1, 1)
    inverse_bind[:, :3, 3] = -skeleton.rest_positions
    return replace(
        character,
        name=name,
        skeleton=skeleton,
        bind_vertices=character.bind_vertices * scale,
        inverse_bind=inverse_bind,
        provenance={"rest": "made for a test"},
    )


def bodies():
    """Return the bodies by name; ``bert`` is ``anna`` made smaller."""
    capsules = open_capsules()
    average = capsules.character("average")
    return {
        "bert": with_fingers(average, "bert", 0.8),
        "anna": with_fingers(average, "anna"),
        "stout": with_fingers(capsules.character("stout"), "stout"),
    }


def motion_keys(count, seed):
    """Return smooth keys; the hips turn by more than half a turn."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.linspace(0, 1, count, dtype=torch.float64)[:, None, None]
    vectors = 0.9 * torch.sin(3 * time + 6 * torch.rand(1, 22, 3, generator=generator, dtype=torch.float64))
    vectors[:, 0] = torch.tensor([0.0, 1.0, 0.1]) * 4 * time[:, 0]
    root = torch.cat([time[..., 0], 0.9 + 0.1 * torch.sin(9 * time[..., 0]), -4 * time[..., 0]], -1)
    return MotionKeys(roma.rotvec_to_unitquat(vectors), root)


def pack_arguments():
    """Return everything that `write_pack` wants."""
    people = bodies()
    pairs = [(name, action.name) for name in people for action in ACTIONS]
    left_out = {("stout", "clap"): "contact_gap, foot_drift"}
    clips = {pair: motion_keys(KEYS[pair[1]], seed) for seed, pair in enumerate(pairs) if pair not in left_out}
    return {
        "characters": [
            CharacterRecord(body, "adult", name != "stout", {"arm_radius": 0.05}) for name, body in people.items()
        ],
        "actions": list(ACTIONS),
        "clips": clips,
        "left_out": left_out,
        "qualities": {pair: {"penetration": 0.125 * k, "contact_gap": None} for k, pair in enumerate(pairs)},
        "splits": [
            frozen_split(
                clips,
                seen_characters={"anna", "bert"},
                seen_motions={"wave", "clap"},
                families={action.name: action.family for action in ACTIONS},
                builds={name: (body.height,) for name, body in people.items()},
            )
        ],
        "seed": 7,
        "made_with": {"torch": "2", "anny": "1"},
    }


def write_example(folder, **changes):
    """Write the small pack and return its manifest."""
    return write_pack(folder, **{**pack_arguments(), **changes})
