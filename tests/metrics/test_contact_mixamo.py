"""The contact error of Copy on real dances, against figures of an earlier trial implementation."""

from __future__ import annotations

import pytest
import torch
from sensor_rigs import mixamo_character

from retargetbench.clip import Clip
from retargetbench.formats.bvh import read_bvh
from retargetbench.metrics.base import Evaluation
from retargetbench.metrics.contact import ContactError
from retargetbench.motion import Motion
from retargetbench.skeleton import Skeleton, find_canonical_map
from retargetbench.transfer import to_canonical_motion

pytestmark = pytest.mark.shared


@pytest.mark.parametrize(
    ("source", "target", "clip", "farther", "either"),
    [
        ("Ortiz", "Big_Vegas", "Macarena Dance", 2.73, 2.76),
        ("Mousey", "Ortiz", "Macarena Dance", 1.33, 1.43),
        ("Sporty_Granny", "Ortiz", "Gangnam Style", 0.86, 0.86),
    ],
)
def test_copied_dances_have_the_known_errors(shared_dir, source, target, clip, farther, either):
    bvh = read_bvh(shared_dir / "data" / "r2et_mixamo" / "demo" / source / f"{clip}.bvh")
    skeleton = Skeleton(bvh.names, bvh.parents, torch.tensor(bvh.offsets) / 100, find_canonical_map(bvh.names))
    whole = Motion(torch.tensor(bvh.root_positions) / 100, torch.tensor(bvh.rotations), 60.0)
    motion = to_canonical_motion(skeleton, whole)
    motion = Motion(motion.root_translation[:120:2], motion.local_rotations[:120:2], 30.0)
    evaluation = Evaluation(
        Clip(clip, mixamo_character(shared_dir, source), motion), mixamo_character(shared_dir, target), motion
    )
    values = ContactError().evaluate(evaluation, frozenset({"contact_error", "contact_error_two_sided"}))
    # Both choose skin by other rules (dominant joints of a face there, weights at the hit here), worth up to 3 %.
    assert values["contact_error"].value == pytest.approx(farther, rel=0.05)
    assert values["contact_error_two_sided"].value == pytest.approx(either, rel=0.05)
