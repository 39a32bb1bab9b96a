"""The rasteriser against a loop over pixels, against rays of embree, and against what geometry demands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rendering_scenes import box, posed_body

from retargetbench.rendering.cameras import Camera, fit_camera, look_at, view_rotation
from retargetbench.rendering.rasterizer import find_covered, rasterize


def covered_by_loop(corners: list[list[float]], width: int, height: int) -> np.ndarray:
    """Samples whose centre is inside a triangle, one after the other, by signs of areas."""
    (ax, ay), (bx, by), (cx, cy) = corners
    covered = np.zeros((height, width), dtype=bool)
    for row in range(height):
        for column in range(width):
            x, y = column + 0.5, row + 0.5
            areas = [
                (px - x) * (qy - y) - (py - y) * (qx - x)
                for (px, py), (qx, qy) in (((ax, ay), (bx, by)), ((bx, by), (cx, cy)), ((cx, cy), (ax, ay)))
            ]
            covered[row, column] = all(a > 0 for a in areas) or all(a < 0 for a in areas)
    return covered


def test_coverage_is_that_of_a_loop_over_samples():
    generator = torch.Generator().manual_seed(3)
    points = (torch.rand(40, 3, 2, generator=generator) * 44 - 10).double()  # many stick out of the picture
    faces = torch.tensor([[0, 1, 2]])
    found = find_covered(points.float(), faces, 24, 20).numpy()
    for corners, ours in zip(points.float().double().tolist(), found, strict=True):
        np.testing.assert_array_equal(ours, covered_by_loop(corners, 24, 20))
    assert 0.05 < found.mean() < 0.6


def test_triangles_that_share_edges_cover_every_sample_once():
    generator = torch.Generator().manual_seed(0)
    # A warped grid whose corners often lie exactly on centres of samples.
    side = torch.arange(0, 33, 4).float() + 0.5
    inner = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).clone()
    shift = torch.randint(-1, 2, (7, 7, 2), generator=generator).float() * 0.5
    inner[1:-1, 1:-1] += shift
    points, count = inner.reshape(-1, 2), len(side)
    faces = []
    for i in range(count - 1):
        for j in range(count - 1):
            a = i * count + j
            faces += [(a, a + 1, a + count + 1), (a, a + count + 1, a + count)]
    total = torch.zeros(34, 34, dtype=torch.int64)
    for face in faces:
        total += find_covered(points[None], torch.tensor([face]), 34, 34)[0]
    expected = torch.zeros_like(total)
    expected[:32, :32] = 1  # left and upper borders count, right and lower ones do not
    assert torch.equal(total, expected)


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("azimuth", [20.0, 145.0])
def test_the_faces_seen_are_those_that_rays_hit_first(azimuth: float, one_sided: bool):
    trimesh = pytest.importorskip("trimesh")
    pytest.importorskip("embreex", reason="embreex comes with the extra 'test'")
    vertices, faces = posed_body()
    width, height = 160, 200
    camera = fit_camera([vertices], azimuth_deg=azimuth, aspect=width / height)
    seen = rasterize(vertices[None], faces, camera, width, height, one_sided=one_sided)
    mesh = trimesh.Trimesh(vertices.numpy(), faces.numpy(), process=False)
    rays = camera.pixel_rays(width, height).reshape(-1, 3).double().numpy()
    hit = mesh.ray.intersects_first(np.broadcast_to(camera.eye.double().numpy(), rays.shape), rays)
    ours = np.full(width * height, -1)
    ours[seen.sample] = seen.face
    assert (hit >= 0).sum() > 4000
    assert (ours == hit).mean() >= 0.999
    agree = (ours == hit)[seen.sample]
    assert agree.mean() >= 0.999
    # Where the face is the same, so is the point.
    where = seen.barycentric[agree].double() @ torch.eye(3).double()
    points = (where[..., None] * vertices[faces[seen.face[agree]]].double()).sum(1)
    along = torch.from_numpy(rays[seen.sample[agree]]) * seen.depth[agree, None] + camera.eye
    assert (points - along).abs().max() < 2e-4  # float32 at 5 m; edge-on faces magnify it


def test_a_mirrored_scene_is_seen_mirrored():
    vertices, faces = posed_body("average", "wave")
    camera = look_at(torch.tensor([0.0, 1.31, 5.03]), torch.tensor([0.0, 0.87, 0.0]))
    depths = []
    for points, chosen in ((vertices, faces), (vertices * torch.tensor([-1.0, 1.0, 1.0]), faces.flip(1))):
        seen = rasterize(points[None], chosen, camera, 120, 120)
        assert bool(seen.is_front.all())
        depths.append(torch.full((120, 120), torch.inf))
        depths[-1].view(-1)[seen.sample] = seen.depth
    there, mirrored = depths
    assert int(there.isfinite().sum()) > 1000
    assert not torch.equal(there.isfinite(), there.flip(1).isfinite())  # one arm is up
    differs = ~torch.isclose(mirrored, there.flip(1), atol=1e-4, rtol=0)
    assert int(differs.sum()) <= 2  # samples on borders: left ones count and right ones do not


def test_depth_and_weights_are_exact_in_perspective():
    corners = torch.tensor([[[-1.0, -1.0, -2.0], [3.0, -1.0, -8.0], [0.0, 2.0, -4.0]]])
    camera = Camera(torch.zeros(3), view_rotation(0.0, 0.0), 1.2)
    seen = rasterize(corners, torch.tensor([[0, 1, 2]]), camera, 50, 40)
    points = seen.barycentric @ corners[0]
    back = camera.project(points, 50, 40)
    assert len(seen.sample) > 200
    torch.testing.assert_close(back[:, 0], seen.sample % 50 + 0.5, atol=2e-4, rtol=0)
    torch.testing.assert_close(back[:, 1], seen.sample // 50 + 0.5, atol=2e-4, rtol=0)
    torch.testing.assert_close(back[:, 2], seen.depth, atol=1e-4, rtol=0)


def test_sides_are_told_apart_and_the_far_side_can_be_left_out():
    camera = Camera(torch.tensor([0.0, 0.0, 3.0]), view_rotation(0.0, 0.0))
    triangle = torch.tensor([[[-0.3, -0.3, 0.0], [0.3, -0.3, 0.0], [0.0, 0.3, 0.0]]])
    towards, away = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 2, 1]])
    assert bool(rasterize(triangle, towards, camera, 20, 20).is_front.all())
    from_behind = rasterize(triangle, away, camera, 20, 20)
    assert len(from_behind.sample)
    assert not bool(from_behind.is_front.any())
    assert len(rasterize(triangle, away, camera, 20, 20, one_sided=True).sample) == 0


def test_what_is_behind_or_before_the_near_plane_is_cut_off():
    # A floor from far behind the camera to far in front of it: seen up to the horizon, and from the near plane on.
    camera = Camera(torch.tensor([0.0, 1.0, 0.0]), view_rotation(0.0, 0.0), 1.2, near=0.5)
    floor = torch.tensor([[[-500.0, 0.0, 500.0], [500.0, 0.0, 500.0], [500.0, 0.0, -500.0], [-500.0, 0.0, -500.0]]])
    faces = torch.tensor([[0, 1, 2], [0, 2, 3]])
    seen = rasterize(floor, faces, camera, 40, 60)
    covered = torch.zeros(60, 40, dtype=torch.bool)
    covered.view(-1)[seen.sample] = True
    assert not bool(covered[:30].any())
    assert bool(covered[31:].all())
    rays = camera.pixel_rays(40, 60).reshape(-1, 3)[seen.sample]
    torch.testing.assert_close(seen.depth, -1 / rays[:, 1], rtol=2e-3, atol=0)
    torch.testing.assert_close(seen.barycentric.sum(1), torch.ones(len(seen.sample)))
    assert bool(seen.is_front.all())
    points = (seen.barycentric[..., None] * floor[0][faces[seen.face]]).sum(1)
    torch.testing.assert_close(points, rays * seen.depth[:, None] + camera.eye, atol=0.05, rtol=0.005)


def test_the_near_plane_opens_a_box_that_the_camera_is_close_to():
    vertices, faces = box((-1.0, -1.0, -5.0), (1.0, 1.0, -1.0))
    eye, rotation = torch.zeros(3), view_rotation(0.0, 0.0)
    # Its front at 1 m is before the near plane, so the back at 5 m and the sides from within are seen.
    seen = rasterize(vertices[None], faces, Camera(eye, rotation, 0.9, near=2.0), 32, 32)
    assert len(seen.sample) == 32 * 32
    assert float(seen.depth.min()) >= 2.0 - 1e-5
    assert float(seen.depth.max()) == pytest.approx(5.0, rel=1e-5)
    assert not bool(seen.is_front.any())
    whole = rasterize(vertices[None], faces, Camera(eye, rotation, 0.9, near=0.5), 32, 32)
    assert bool(whole.is_front.all())
    assert float(whole.depth.max()) == pytest.approx(1.0, rel=1e-5)


def test_empty_views_give_nothing():
    camera = Camera(torch.zeros(3), view_rotation(0.0, 0.0))
    vertices, faces = box((-1.0, -1.0, 2.0), (1.0, 1.0, 3.0))  # behind
    aside = vertices + torch.tensor([100.0, 0.0, -8.0])
    for points, chosen in ((vertices, faces), (aside, faces), (aside, faces[:0])):
        seen = rasterize(points[None], chosen, camera, 16, 16)
        assert [tuple(each.shape) for each in seen] == [(0,), (0,), (0, 3), (0,), (0,)]
    assert len(rasterize(vertices[None][:0], faces, camera, 16, 16).sample) == 0


def test_images_of_a_batch_are_those_of_each_alone(device: torch.device):
    poses = torch.stack([posed_body(frame=frame)[0] for frame in (0, 25, 50)]).to(device)
    faces = posed_body()[1].to(device)
    camera = fit_camera([poses], azimuth_deg=35.0)
    together = rasterize(poses, faces, camera, 60, 50)
    for image, pose in enumerate(poses):
        alone = rasterize(pose[None], faces, camera, 60, 50)
        mine = together.sample // 3000 == image
        assert torch.equal(together.sample[mine] - image * 3000, alone.sample)
        for ours, theirs in zip(together[1:], alone[1:], strict=True):
            assert torch.equal(ours[mine], theirs)
