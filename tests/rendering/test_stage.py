"""Shaded pictures: mirror images, bytes, floor and shadow, sides of open meshes, marks, subjects of scenes."""

from __future__ import annotations

import pytest
import torch
from rendering_scenes import box, posed_body

from retargetbench.datasets.capsules import open_capsules
from retargetbench.kinematics import Skinner
from retargetbench.metrics.obstacles import body_model
from retargetbench.metrics.penetration import measure_intrusion
from retargetbench.rendering.cameras import Camera, fit_camera, look_at, view_rotation
from retargetbench.rendering.scenes import Actor, Subject, shared_camera
from retargetbench.rendering.stage import Stage, Surface

GREY = torch.tensor([0.7, 0.7, 0.7])
RED_EXCESS = 60
"""A pixel is red where its red is larger than its green by this; grey bodies on a grey floor have no such pixel."""


def picture(
    vertices: torch.Tensor, faces: torch.Tensor, camera: Camera, size: int = 96, **options: object
) -> torch.Tensor:
    stage = Stage(camera, size, size)
    return stage.render(vertices[None], Surface.from_mesh(vertices, faces), GREY, **options)[0]


def silhouette(vertices: torch.Tensor, faces: torch.Tensor, camera: Camera, size: int = 96) -> torch.Tensor:
    """Where a body is, by its colour against that of the floor and its shadow, which are nearly grey."""
    image = Stage(camera, size, size).render(
        vertices[None], Surface.from_mesh(vertices, faces), torch.tensor([1.0, 0.2, 0.2])
    )[0]
    return red(image)


def red(image: torch.Tensor) -> torch.Tensor:
    return image[..., 0].int() - image[..., 1].int() > RED_EXCESS


def test_a_mirrored_scene_gives_the_mirrored_picture():
    vertices, faces = posed_body("average", "wave")
    camera = look_at(torch.tensor([0.0, 1.31, 5.03]), torch.tensor([0.0, 0.87, 0.0]))
    mirror = torch.tensor([-1.0, 1.0, 1.0])
    stage, mirrored_stage = Stage(camera, 96, 96), Stage(camera, 96, 96)
    mirrored_stage._lights = mirrored_stage._lights * mirror[:, None]
    mirrored_stage._floor._light = mirrored_stage._floor._light * mirror
    surface = Surface.from_mesh(vertices, faces)
    there = stage.render(vertices[None], surface, GREY)[0].int()
    back = mirrored_stage.render(vertices[None] * mirror, Surface(faces.flip(1), surface.welded.flip(1), True), GREY)[0]
    difference = (back.int() - there.flip(1)).abs()
    assert float((difference > 2).float().mean()) < 2e-3  # samples on edges, texels of the shadow
    assert float((there - there.flip(1)).abs().float().mean()) > 1


def test_the_same_picture_has_the_same_bytes_in_any_batch_and_with_any_threads():
    poses = torch.stack([posed_body(frame=frame)[0] for frame in (0, 25, 50)])
    surface = Surface.from_mesh(*posed_body())
    camera = fit_camera([poses], azimuth_deg=35.0)
    marked = torch.zeros(poses.shape[:2], dtype=torch.bool)
    marked[:, 200:400] = True
    together = Stage(camera, 80, 64).render(poses, surface, GREY, marked=marked)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        stage = Stage(camera, 80, 64)
        alone = [stage.render(poses[k : k + 1], surface, GREY, marked=marked[k : k + 1]) for k in range(3)]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.cat(alone), together)
    assert together.dtype == torch.uint8
    assert tuple(together.shape) == (3, 64, 80, 3)


def test_supersampling_softens_edges_and_keeps_the_picture():
    vertices, faces = posed_body()
    camera = fit_camera([vertices], azimuth_deg=35.0)
    surface = Surface.from_mesh(vertices, faces)
    coarse, fine = (
        Stage(camera, 64, 64, supersampling=n).render(vertices[None], surface, GREY)[0].float() for n in (1, 4)
    )
    # The fine picture is the mean of what a four times larger one has, up to what is drawn per pixel behind it.
    large = Stage(camera, 256, 256, supersampling=1).render(vertices[None], surface, GREY)[0].float()
    averaged = large.view(64, 4, 64, 4, 3).mean((1, 3))
    assert float((fine - averaged).abs().mean()) < 1.0
    assert float((coarse - averaged).abs().mean()) > 1.3 * float((fine - averaged).abs().mean())


def test_what_is_below_the_floor_is_hidden():
    vertices, faces = box((-0.3, -0.5, -0.3), (0.3, 0.5, 0.3))
    camera = look_at(torch.tensor([0.0, 1.0, 4.0]), torch.tensor([0.0, 0.0, 0.0]))
    seen = silhouette(vertices, faces, camera, 120)
    rows = seen.any(1).nonzero()[:, 0]
    waterline = camera.project(torch.tensor([0.0, 0.0, 0.3]), 120, 120)[1]
    bottom = camera.project(torch.tensor([0.0, -0.5, 0.3]), 120, 120)[1]
    assert float(rows.max()) == pytest.approx(float(waterline), abs=1.5)
    assert float(bottom) > float(rows.max()) + 8
    below = Camera(torch.tensor([0.0, -1.0, 4.0]), view_rotation(0.0, -10.0))
    from_below = silhouette(vertices, faces, below, 120).any(1).nonzero()[:, 0]
    assert float(from_below.max()) > float(below.project(torch.tensor([0.0, -0.45, 0.3]), 120, 120)[1])


def test_the_shadow_falls_away_from_the_light_and_touches_what_stands():
    vertices, faces = box((-0.2, 0.0, -0.2), (0.2, 1.0, 0.2))
    camera = look_at(torch.tensor([0.0, 2.5, 5.0]), torch.tensor([0.0, 0.3, 0.0]))
    nothing = picture(vertices + torch.tensor([0.0, 0.0, 50.0]), faces, camera).int()
    standing = picture(vertices, faces, camera).int()
    floating = picture(vertices + torch.tensor([0.0, 0.6, 0.0]), faces, camera).int()
    dark = (nothing - standing).sum(-1) > 90
    # The light is at the upper left behind the camera, so the shadow lies to the right and farther away.
    column, row, _ = camera.project(torch.tensor([0.45, 0.0, -0.45]), 96, 96).tolist()
    assert bool(dark[round(row), round(column)])
    column, row, _ = camera.project(torch.tensor([-0.6, 0.0, 0.3]), 96, 96).tolist()
    assert not bool(dark[round(row), round(column)])
    # Below something that floats there is light.
    column, row, _ = camera.project(torch.tensor([0.0, 0.0, 0.19]), 96, 96).tolist()
    assert int((nothing - floating).sum(-1)[round(row), round(column)]) < 60


def test_both_sides_of_open_meshes_are_lit():
    corners = torch.tensor([[-0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.5, 1.5, 0.0], [-0.5, 1.5, 0.0]])
    faces = torch.tensor([[0, 1, 2], [0, 2, 3]])
    camera = look_at(torch.tensor([0.0, 1.0, 4.0]), torch.tensor([0.0, 1.0, 0.0]))
    assert not Surface.from_mesh(corners, faces).is_closed
    front, back = picture(corners, faces, camera), picture(corners, faces.flip(1), camera)
    assert torch.equal(front, back)


def test_only_closed_meshes_that_face_outwards_are_drawn_one_sided():
    vertices, faces = box((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert Surface.from_mesh(vertices, faces).is_closed
    assert not Surface.from_mesh(vertices, faces[1:]).is_closed
    assert not Surface.from_mesh(vertices, faces.flip(1)).is_closed
    # A seam doubles vertices; it is no hole. A second part that is inside out counts.
    seam = torch.cat([vertices, vertices])
    assert Surface.from_mesh(seam, torch.cat([faces[:6], faces[6:] + 8])).is_closed
    two = torch.cat([vertices, vertices * 0.1 + 3])
    assert Surface.from_mesh(two, torch.cat([faces, faces + 8])).is_closed
    assert not Surface.from_mesh(two, torch.cat([faces, faces.flip(1) + 8])).is_closed


def test_shading_shows_no_seams():
    vertices, faces = posed_body("stout", "idle_sway")
    split = vertices[faces].reshape(-1, 3)  # every face with vertices of its own
    camera = fit_camera([vertices], azimuth_deg=35.0)
    whole = picture(vertices, faces, camera).int()
    in_pieces = picture(split, torch.arange(len(split)).view(-1, 3), camera).int()
    assert int((whole - in_pieces).abs().max()) <= 1


def test_marked_vertices_shine_through_what_hides_them():
    outer, faces = box((-0.5, 0.2, -0.5), (0.5, 1.2, 0.5))
    inner, _ = box((-0.2, 0.5, 0.2), (0.2, 0.9, 0.47))
    far, _ = box((-0.2, 0.5, 0.1), (0.2, 0.9, 0.33))
    camera = look_at(torch.tensor([0.0, 0.7, 5.0]), torch.tensor([0.0, 0.7, 0.0]))
    both = torch.cat([faces, faces + 8])
    marked = torch.arange(16)[None] >= 8
    amounts = []
    for hidden in (inner, far):
        vertices = torch.cat([outer, hidden])
        assert not bool(red(picture(vertices, both, camera)).any())
        image = picture(vertices, both, camera, marked=marked).int()
        amounts.append(int(image[48, 48, 0] - image[48, 48, 1]))
        assert int(image[30, 30, 0] - image[30, 30, 1]) < 20  # beside it
    assert amounts[0] > 2 * amounts[1] > 0


def test_an_empty_view_shows_the_floor_alone():
    vertices, faces = box((-0.1, 0.0, -0.1), (0.1, 0.2, 0.1))
    camera = look_at(torch.tensor([0.0, 1.0, 4.0]), torch.tensor([0.0, 0.8, 0.0]))
    away = vertices + torch.tensor([0.0, 0.0, 400.0])
    empty = picture(away, faces, camera, marked=torch.ones(1, 8, dtype=torch.bool))
    assert torch.equal(empty, picture(away, faces, camera))
    assert int(empty.min()) > 150
    assert int((empty[..., 0].int() - empty[..., 2].int()).abs().max()) < 6  # neutral


def test_actors_are_posed_and_marked_as_the_metric_does():
    clip = open_capsules().clip("stout", "hands_on_belly")
    copied = type(clip)("copied", clip.character, open_capsules().clip("slim", "hands_on_belly").motion)
    actor = Actor(Subject("x", copied))
    frames = [0, 20, 35, 50]
    posed = torch.cat(list(actor.vertices(frames)))
    expected = Skinner.from_character(clip.character).pose_motion(copied.motion)[frames]
    hips = copied.motion.root_translation[0] * torch.tensor([1.0, 0.0, 1.0])
    torch.testing.assert_close(posed, expected - hips, atol=1e-5, rtol=0)
    model = body_model(clip.character, "arms")
    (found,) = measure_intrusion(model, *(each[frames] for each in actor._joints))
    points = model.skinner.pose(*(each[frames] for each in actor._joints))
    marked = actor._find_marked(points)
    assert marked is not None
    assert torch.equal(marked[:, model.obstacles[0].limb_vertices], found.inside)
    assert int(marked.sum()) == int(found.inside.sum()) > 50
    assert Actor(Subject("x", copied), mark_penetration=False)._find_marked(points) is None


def test_a_camera_that_follows_keeps_the_hips_in_the_middle():
    clip = open_capsules().clip("average", "walk")
    frames = range(clip.motion.frame_count)
    fixed, following = (Actor(Subject("walk", clip), follow=follow) for follow in (False, True))
    middles = [torch.cat(list(actor.vertices(frames)))[..., 2].mean(1) for actor in (fixed, following)]
    travelled = [float(each.max() - each.min()) for each in middles]
    assert travelled[0] > 0.6
    assert travelled[1] < 0.3
    near, far = (shared_camera([a], [frames], azimuth_deg=90.0, aspect=0.3) for a in (following, fixed))
    assert float(near.eye[0]) < float(far.eye[0])


def test_all_actors_are_seen_at_one_scale():
    clips = [open_capsules().clip(name, "idle_sway") for name in ("giant", "child")]
    actors = [Actor(Subject(clip.character.name, clip), mark_penetration=False) for clip in clips]
    camera = shared_camera(actors, [[0], [0]], azimuth_deg=0.0)
    stage = Stage(camera, 200, 200)
    heights = []
    for actor, clip in zip(actors, clips, strict=True):
        (image,) = actor.draw(stage, [0])
        floor = Stage(camera, 200, 200).render(
            torch.full((1, 3, 3), 900.0), Surface(torch.zeros(0, 3).long(), torch.zeros(0, 3).long(), False), GREY
        )[0]
        rows = ((image.int() - floor.int()).abs().sum(-1)[:, 95:105] > 60).any(1).nonzero()[:, 0]
        vertices = next(actor.vertices([0]))[0]
        heights.append(float(rows.max() - rows.min()) / float(vertices[:, 1].max() - vertices[:, 1].min()))
        assert clip.character.name in ("giant", "child")
    assert heights[0] == pytest.approx(heights[1], rel=0.08)
