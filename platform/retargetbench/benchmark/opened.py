"""What a process opens once and then uses for many jobs: datasets, methods, metrics, characters on a device."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from retargetbench import plugins
from retargetbench.caching import per_character
from retargetbench.clip import Clip
from retargetbench.datasets.opening import open_dataset

if TYPE_CHECKING:
    import torch

    from retargetbench.character import Character
    from retargetbench.datasets.base import Dataset
    from retargetbench.methods import RetargetMethod
    from retargetbench.metrics.base import Metric
    from retargetbench.registry import MetricInfo

OptionItems = tuple[tuple[str, object], ...]
"""Options of a method by name, sorted, hashable."""


@lru_cache(maxsize=4)
def opened_dataset(spec: str, user: str = "") -> Dataset:
    """Open a dataset by name or folder.

    Args:
        spec: the dataset.
        user: label of the method that works on its characters and clips. Each has its own, so that one that writes
            into its inputs harms no other and not the scores.
    """
    del user  # part of what is remembered only
    return open_dataset(spec)


@lru_cache(maxsize=8)
def created_method(name: str, options: OptionItems, device: torch.device) -> RetargetMethod:
    """Make a method by its registered name."""
    return plugins.create_method(name, device=device, options=dict(options))


@lru_cache(maxsize=64)
def created_metric(info: MetricInfo) -> Metric:
    """Make a metric."""
    return plugins.create_metric(info)


def character_on(character: Character, device: torch.device) -> Character:
    """Return a character on a device; asking twice gives the same object, which caches by character rely on."""
    return character if character.device == device else _moved(character, device)


@per_character
def _moved(character: Character, device: torch.device) -> Character:
    return character.to(device)


def clip_on(clip: Clip, device: torch.device) -> Clip:
    """Return a clip on a device, its character shared with other clips of it."""
    return Clip(clip.name, character_on(clip.character, device), clip.motion.to(device))
