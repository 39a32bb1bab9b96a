"""Points that `Skinner` derives from others."""

from __future__ import annotations

import pytest
import torch
from rigs import human_skeleton, random_character, random_motion

from retargetbench.kinematics import Skinner


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_of_points_are_posed_as_the_means_of_posed_points(dtype, device):
    character = random_character(human_skeleton(), vertices=40, seed=3).to(device, dtype)
    motion = random_motion(human_skeleton(), 5, seed=3).to(device, dtype)
    means = [torch.tensor([4, 7, 30], device=device), torch.tensor([0], device=device)]
    skinner = Skinner.from_points(character, character.bind_vertices, character.weights, means=means)
    posed = skinner.pose_motion(motion)
    assert posed.shape == (5, 42, 3)
    torch.testing.assert_close(posed[:, 40], posed[:, [4, 7, 30]].mean(1))
    torch.testing.assert_close(posed[:, 41], posed[:, 0])
