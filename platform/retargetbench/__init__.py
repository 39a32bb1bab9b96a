"""RetargetBench: a neutral benchmark of skinned motion retargeting.

Everything that plugins and scripts use is here; other modules may change without notice. Names are imported when they
are first used, so that ``import retargetbench`` is cheap and a plugin's hooks need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retargetbench.caching import per_character
    from retargetbench.character import Character
    from retargetbench.clip import SPLIT_ATOMS, Clip, SplitAtom, Task
    from retargetbench.datasets.base import Dataset, Split, SplitRow
    from retargetbench.datasets.folder_writer import FolderDatasetWriter, write_folder_dataset
    from retargetbench.datasets.opening import open_dataset
    from retargetbench.datasets.splits import balanced_default, every_pair
    from retargetbench.device import resolve_device
    from retargetbench.errors import (
        CharacterError,
        DatasetError,
        FileFormatError,
        MethodOutputError,
        MissingExtraError,
        PluginError,
        RetargetBenchError,
        TrackingError,
        UnknownNameError,
        UsageError,
    )
    from retargetbench.formats.bvh import read_bvh
    from retargetbench.formats.export import save_motion
    from retargetbench.formats.shape_npz import read_shape_npz
    from retargetbench.hookspecs import hookimpl
    from retargetbench.kinematics import (
        Skinner,
        forward_kinematics,
        hemisphere_continuous,
        joint_positions,
        padded_batch,
        resample,
        resample_to_frames,
    )
    from retargetbench.methods import RetargetMethod
    from retargetbench.metrics.base import UNDEFINED, Evaluation, Metric, MetricValue
    from retargetbench.motion import Motion
    from retargetbench.plugins import catalogue, create_method, create_metric
    from retargetbench.registry import Column, DatasetInfo, FileFormatInfo, MethodInfo, MetricInfo
    from retargetbench.rigs import character_from_shape, clip_from_bvh
    from retargetbench.skeleton import (
        CANONICAL_JOINTS,
        CANONICAL_PARENTS,
        Skeleton,
        canonical_index,
        canonical_skeleton,
        find_canonical_map,
    )
    from retargetbench.testing import ConformanceReport, check_method
    from retargetbench.transfer import (
        RootRule,
        apply_root_rule,
        from_canonical_motion,
        lowest_sole,
        root_scale,
        to_canonical_motion,
    )

    __version__: str

_HOMES = {
    "caching": ("per_character",),
    "character": ("Character",),
    "clip": ("SPLIT_ATOMS", "Clip", "SplitAtom", "Task"),
    "datasets.base": ("Dataset", "Split", "SplitRow"),
    "datasets.folder_writer": ("FolderDatasetWriter", "write_folder_dataset"),
    "datasets.opening": ("open_dataset",),
    "datasets.splits": ("balanced_default", "every_pair"),
    "device": ("resolve_device",),
    "errors": (
        "CharacterError",
        "DatasetError",
        "FileFormatError",
        "MethodOutputError",
        "MissingExtraError",
        "PluginError",
        "RetargetBenchError",
        "TrackingError",
        "UnknownNameError",
        "UsageError",
    ),
    "formats.bvh": ("read_bvh",),
    "formats.export": ("save_motion",),
    "formats.shape_npz": ("read_shape_npz",),
    "hookspecs": ("hookimpl",),
    "kinematics": (
        "Skinner",
        "forward_kinematics",
        "hemisphere_continuous",
        "joint_positions",
        "padded_batch",
        "resample",
        "resample_to_frames",
    ),
    "methods": ("RetargetMethod",),
    "metrics.base": ("UNDEFINED", "Evaluation", "Metric", "MetricValue"),
    "motion": ("Motion",),
    "plugins": ("catalogue", "create_method", "create_metric"),
    "registry": ("Column", "DatasetInfo", "FileFormatInfo", "MethodInfo", "MetricInfo"),
    "rigs": ("character_from_shape", "clip_from_bvh"),
    "skeleton": (
        "CANONICAL_JOINTS",
        "CANONICAL_PARENTS",
        "Skeleton",
        "canonical_index",
        "canonical_skeleton",
        "find_canonical_map",
    ),
    "testing": ("ConformanceReport", "check_method"),
    "transfer": (
        "RootRule",
        "apply_root_rule",
        "from_canonical_motion",
        "lowest_sole",
        "root_scale",
        "to_canonical_motion",
    ),
}
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CANONICAL_JOINTS",
    "CANONICAL_PARENTS",
    "SPLIT_ATOMS",
    "UNDEFINED",
    "Character",
    "CharacterError",
    "Clip",
    "Column",
    "ConformanceReport",
    "Dataset",
    "DatasetError",
    "DatasetInfo",
    "Evaluation",
    "FileFormatError",
    "FileFormatInfo",
    "FolderDatasetWriter",
    "MethodInfo",
    "MethodOutputError",
    "Metric",
    "MetricInfo",
    "MetricValue",
    "MissingExtraError",
    "Motion",
    "PluginError",
    "RetargetBenchError",
    "RetargetMethod",
    "RootRule",
    "Skeleton",
    "Skinner",
    "Split",
    "SplitAtom",
    "SplitRow",
    "Task",
    "TrackingError",
    "UnknownNameError",
    "UsageError",
    "__version__",
    "apply_root_rule",
    "balanced_default",
    "canonical_index",
    "canonical_skeleton",
    "catalogue",
    "character_from_shape",
    "check_method",
    "clip_from_bvh",
    "create_method",
    "create_metric",
    "every_pair",
    "find_canonical_map",
    "forward_kinematics",
    "from_canonical_motion",
    "hemisphere_continuous",
    "hookimpl",
    "joint_positions",
    "lowest_sole",
    "open_dataset",
    "padded_batch",
    "per_character",
    "read_bvh",
    "read_shape_npz",
    "resample",
    "resample_to_frames",
    "resolve_device",
    "root_scale",
    "save_motion",
    "to_canonical_motion",
    "write_folder_dataset",
]
