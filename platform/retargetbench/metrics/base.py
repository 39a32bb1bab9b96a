"""What a metric sees and gives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from retargetbench.kinematics import forward_kinematics, joint_positions
from retargetbench.motion import check_motion_fits

if TYPE_CHECKING:
    import torch

    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.motion import Motion


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A retargeted motion together with what it is judged by.

    All motions hold all joints of their characters, have T frames and one frame rate; everything is on one device.
    For the row ``source`` the target is the source's own character and the motion its own motion.
    """

    source: Clip
    target: Character
    motion: Motion
    ground_truth: Motion | None = None

    def __post_init__(self) -> None:
        check_motion_fits(self.motion, self.target.skeleton)

    @property
    def fps(self) -> float:
        """Frame rate of all motions."""
        return self.motion.fps

    @cached_property
    def source_positions(self) -> torch.Tensor:
        """Canonical joints of the source, (T, 22, 3) metres."""
        return joint_positions(self.source.character.skeleton, self.source.motion)

    @cached_property
    def positions(self) -> torch.Tensor:
        """Canonical joints of the retargeted motion, (T, 22, 3) metres."""
        return joint_positions(self.target.skeleton, self.motion)

    @cached_property
    def truth_positions(self) -> torch.Tensor | None:
        """Canonical joints of the ground truth, (T, 22, 3) metres, or None."""
        return None if self.ground_truth is None else joint_positions(self.target.skeleton, self.ground_truth)

    @cached_property
    def target_joints(self) -> tuple[torch.Tensor, torch.Tensor]:
        """World rotations (T, J, 3, 3) and positions (T, J, 3) of all joints of the retargeted motion."""
        return forward_kinematics(self.target.skeleton, self.motion.root_translation, self.motion.local_rotations)

    @cached_property
    def source_joints(self) -> tuple[torch.Tensor, torch.Tensor]:
        """World rotations (T, J, 3, 3) and positions (T, J, 3) of all joints of the source."""
        motion = self.source.motion
        return forward_kinematics(self.source.character.skeleton, motion.root_translation, motion.local_rotations)


@dataclass(frozen=True, eq=False)
class MetricValue:
    """The value of one column for one task.

    Attributes:
        value: the number in the table; NaN where the metric is undefined (no ground truth, no contact).
        per_frame: values by frame, (T,), NaN where undefined; None where the metric has no meaning by frame.
    """

    value: float
    per_frame: torch.Tensor | None = None

    @property
    def is_defined(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)


UNDEFINED = MetricValue(math.nan)
"""The value of a metric that has no meaning for a task; the table shows ``–``."""


class Metric(ABC):
    """Computes the columns of one `MetricInfo`; pure functions on tensors do the work."""

    @abstractmethod
    def evaluate(self, evaluation: Evaluation, columns: frozenset[str]) -> dict[str, MetricValue]:
        """Compute the wanted columns of this metric.

        Args:
            evaluation: what is judged.
            columns: names of the wanted columns, all of them columns of this metric's `MetricInfo`.

        Returns:
            A value for each wanted column; `UNDEFINED` where there is none.
        """
