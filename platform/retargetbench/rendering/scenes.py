"""From characters in motion to what a stage draws: posed vertices, what is inside the body, one camera for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.metrics.obstacles import body_model
from retargetbench.rendering.cameras import PITCH_DEG, fit_camera
from retargetbench.rendering.stage import Stage, Surface

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retargetbench.clip import Clip
    from retargetbench.metrics.obstacles import Obstacle
    from retargetbench.rendering.cameras import Camera

BODY_COLOUR = (0.62, 0.70, 0.80)
"""Colour of a character that has no special role."""

_FRAMES_AT_ONCE = 16
"""Frames posed together."""

_TRIANGLES_AT_ONCE_GPU = 2**21
"""Triangles drawn together on a GPU, enough to fill it; a CPU draws frame by frame, which stays in its caches."""

_FOLLOW_SECONDS = 0.4
"""A camera that follows does so by the mean position around a time, weighted by a bell this wide."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A character in motion with the name that is written beside it.

    Attributes:
        label: name beside the picture.
        clip: who moves how.
        colour: of the body, from 0 to 1.
    """

    label: str
    clip: Clip
    colour: tuple[float, float, float] = BODY_COLOUR


class Actor:
    """A subject ready to be posed, with its hips at first above the origin of the floor, or always if followed.

    Args:
        subject: who moves how.
        mark_penetration: find the arm vertices inside the body, as the metric ``penetration`` counts them.
        follow: keep the hips in the middle; else they move as they do from where they are in the first frame.
        device: where to pose and draw.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        mark_penetration: bool = True,
        follow: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        self.subject = subject
        clip = subject.clip.to(device)
        character, motion = clip.character, clip.motion
        self.frame_count, self.fps = motion.frame_count, motion.fps
        self._vertex_count = character.vertex_count
        self._joints = forward_kinematics(character.skeleton, motion.root_translation, motion.local_rotations)
        hips = self._joints[1][:, character.skeleton.canonical[0]]
        anchor = _smoothed(hips, motion.fps * _FOLLOW_SECONDS) if follow else hips[:1].expand_as(hips)
        self._anchor = anchor * anchor.new_tensor([1.0, 0.0, 1.0])
        self._obstacle: Obstacle | None = None
        if mark_penetration:
            model = body_model(character, "arms")
            self._skinner = model.skinner
            if not model.is_empty:
                (self._obstacle,) = model.obstacles
        else:
            self._skinner = Skinner.from_character(character)
        self._surface = Surface.from_mesh(character.bind_vertices, character.faces)
        self._colour = torch.tensor(subject.colour, device=device)

    def _chunks(self, frames: Sequence[int], at_once: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Pose some frames at a time: their numbers (t,) and all points of the skinner (t, P, 3)."""
        rotations, positions = self._joints
        for start in range(0, len(frames), at_once):
            chosen = torch.tensor(frames[start : start + at_once], device=positions.device)
            yield chosen, self._skinner.pose(rotations[chosen], positions[chosen])

    def vertices(self, frames: Sequence[int]) -> Iterator[torch.Tensor]:
        """Pose the vertices in some frames, in parts of (t, V, 3) metres."""
        for chosen, posed in self._chunks(frames, _FRAMES_AT_ONCE):
            yield posed[:, : self._vertex_count] - self._anchor[chosen, None]

    def draw(self, stage: Stage, frames: Sequence[int]) -> Iterator[torch.Tensor]:
        """Draw some frames one after the other, each (height, width, 3) uint8 on the CPU."""
        at_once = 1
        if stage.device.type != "cpu":
            at_once = max(1, min(_FRAMES_AT_ONCE, _TRIANGLES_AT_ONCE_GPU // len(self._surface.faces)))
        for chosen, posed in self._chunks(frames, _FRAMES_AT_ONCE):
            vertices = posed[:, : self._vertex_count] - self._anchor[chosen, None]
            marked = self._find_marked(posed)
            for start in range(0, len(chosen), at_once):
                part = slice(start, start + at_once)
                images = stage.render(
                    vertices[part],
                    self._surface,
                    self._colour,
                    marked=None if marked is None else marked[part],
                    origin=-self._anchor[chosen[part]],
                )
                yield from images.cpu()

    def _find_marked(self, posed: torch.Tensor) -> torch.Tensor | None:
        """Find vertices inside the body at points of the skinner (t, P, 3), (t, V) bool; None where none can be."""
        if self._obstacle is None:
            return None
        marked = torch.zeros(len(posed), self._vertex_count, dtype=torch.bool, device=posed.device)
        marked[:, self._obstacle.limb_vertices] = self._obstacle.find_inside(posed)
        return marked


def _smoothed(positions: torch.Tensor, sigma: float) -> torch.Tensor:
    """Average positions over time (T, 3), weighted by a Gaussian of ``sigma`` frames; the ends hold their value."""
    reach = max(1, int(3 * sigma))
    steps = torch.arange(-reach, reach + 1, device=positions.device)
    kernel = torch.exp(-0.5 * (steps / sigma) ** 2).to(positions)
    padded = torch.cat([positions[:1].expand(reach, 3), positions, positions[-1:].expand(reach, 3)])
    return (padded.unfold(0, len(kernel), 1) * (kernel / kernel.sum())).sum(-1)


def shared_camera(
    actors: Sequence[Actor],
    frames: Sequence[Sequence[int]],
    *,
    azimuth_deg: float,
    aspect: float = 1.0,
    pitch_deg: float = PITCH_DEG,
) -> Camera:
    """Place one camera that has every actor in view in all of its frames, so that all are drawn at one scale.

    Args:
        actors: who is to be seen.
        frames: for each actor its frames.
        azimuth_deg: where the camera stands, see `retargetbench.rendering.cameras.DIRECTIONS`.
        aspect: width of a picture over its height.
        pitch_deg: how far the camera looks down.
    """
    parts = (part for actor, chosen in zip(actors, frames, strict=True) for part in actor.vertices(chosen))
    return fit_camera(parts, azimuth_deg=azimuth_deg, pitch_deg=pitch_deg, aspect=aspect)
