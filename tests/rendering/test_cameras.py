"""Cameras: projection in closed form, directions, and one camera that has everything in view."""

from __future__ import annotations

import math

import pytest
import torch
from rendering_scenes import posed_body

from retargetbench.errors import UsageError
from retargetbench.rendering.cameras import DIRECTIONS, Camera, fit_camera, look_at, view_rotation


def test_projection_is_that_of_a_pinhole():
    camera = Camera(torch.tensor([0.0, 1.0, 5.0]), view_rotation(0.0, 0.0), math.radians(60.0))
    column, row, depth = camera.project(torch.tensor([0.5, 1.25, 1.0]), 200, 100).tolist()
    focal = 50 / math.tan(math.radians(30))
    assert depth == pytest.approx(4.0)
    assert column == pytest.approx(100 + focal * 0.5 / 4)
    assert row == pytest.approx(50 - focal * 0.25 / 4)


def test_a_pitched_camera_agrees_with_trigonometry():
    camera = Camera(torch.tensor([0.0, 2.0, 3.0]), view_rotation(0.0, 30.0))
    # Straight ahead, 4 m down a line that falls by 30 degrees.
    ahead = torch.tensor([0.0, 2 - 4 * math.sin(math.radians(30)), 3 - 4 * math.cos(math.radians(30))])
    assert camera.project(ahead, 64, 64).tolist() == pytest.approx([32, 32, 4], abs=1e-4)


@pytest.mark.parametrize("azimuth", [*DIRECTIONS.values(), -70.0, 300.0])
@pytest.mark.parametrize("pitch", [-20.0, 0.0, 35.0])
def test_a_camera_is_a_right_handed_frame_with_its_up_upwards(azimuth: float, pitch: float):
    right, up, forwards = view_rotation(azimuth, pitch).double()
    torch.testing.assert_close(torch.linalg.cross(right, up), -forwards, atol=1e-6, rtol=0)
    assert right[1] == 0
    assert up[1] > 0


def test_directions_are_named_as_the_character_sees_them():
    left_hand, face = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    for name, towards in {"front": face, "side": left_hand, "back": -face}.items():
        assert torch.allclose(view_rotation(DIRECTIONS[name], 0.0)[2], -towards, atol=1e-6), name


def test_look_at_has_its_target_in_the_middle():
    camera = look_at(torch.tensor([2.0, 1.5, -3.0]), torch.tensor([0.3, 0.9, 0.2]))
    column, row, depth = camera.project(torch.tensor([0.3, 0.9, 0.2]), 90, 60).tolist()
    assert (column, row) == pytest.approx((45, 30), abs=1e-3)
    assert depth == pytest.approx(math.dist((2.0, 1.5, -3.0), (0.3, 0.9, 0.2)), rel=1e-6)


def test_look_at_refuses_a_camera_without_upright():
    for eye in ([0.0, 3.0, 0.0], [0.0, 0.0, 0.0]):
        with pytest.raises(UsageError, match="no upright"):
            look_at(torch.tensor(eye), torch.zeros(3))


@pytest.mark.parametrize(("width", "height"), [(100, 100), (60, 120), (160, 90)])
@pytest.mark.parametrize("azimuth", [0.0, 35.0, 200.0])
def test_the_fitted_camera_is_as_near_as_the_margin_allows(width: int, height: int, azimuth: float):
    parts = [posed_body("giant", "wave")[0], posed_body("child", "crouch")[0] + torch.tensor([0.4, 0.0, 0.2])]
    margin = 0.1
    camera = fit_camera(iter(parts), azimuth_deg=azimuth, aspect=width / height, margin=margin)
    seen = camera.project(torch.cat(parts), width, height)
    free_columns = min(seen[:, 0].min().item(), width - seen[:, 0].max().item()) / width
    free_rows = min(seen[:, 1].min().item(), height - seen[:, 1].max().item()) / height
    assert min(free_columns, free_rows) == pytest.approx(margin, abs=1e-3)
    assert max(free_columns, free_rows) >= margin
    # In the middle along both axes.
    assert seen[:, 0].min().item() == pytest.approx(width - seen[:, 0].max().item(), abs=0.05 * width)
    assert seen[:, 1].min().item() == pytest.approx(height - seen[:, 1].max().item(), abs=0.05 * height)


def test_a_camera_of_one_point_stays_away_from_it():
    camera = fit_camera([torch.tensor([[1.0, 2.0, 3.0]])], azimuth_deg=0.0)
    assert camera.project(torch.tensor([1.0, 2.0, 3.0]), 10, 10).tolist() == pytest.approx([5, 5, 0.1], abs=1e-3)


def test_nothing_to_look_at_is_refused():
    with pytest.raises(UsageError, match="nothing to look at"):
        fit_camera([torch.zeros(0, 3)], azimuth_deg=0.0)
