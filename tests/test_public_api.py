"""The public names of the package: listed, sorted, imported when used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import retargetbench

SOURCE = Path(retargetbench.__file__)

PUBLIC = {
    "CANONICAL_JOINTS", "CANONICAL_PARENTS", "Character", "CharacterError", "Clip", "Column", "ConformanceReport",
    "Dataset", "DatasetError", "DatasetInfo", "Evaluation", "FileFormatError", "FileFormatInfo",
    "FolderDatasetWriter", "MethodInfo", "MethodOutputError", "Metric", "MetricInfo", "MetricValue",
    "MissingExtraError", "Motion", "PluginError", "RetargetBenchError", "RetargetMethod", "RootRule", "SPLIT_ATOMS",
    "Skeleton", "Skinner", "Split", "SplitAtom", "SplitRow", "Task", "TrackingError", "UNDEFINED",
    "UnknownNameError", "UsageError", "__version__", "apply_root_rule", "balanced_default", "canonical_index",
    "canonical_skeleton", "catalogue", "character_from_shape", "check_method", "clip_from_bvh", "create_method",
    "create_metric", "every_pair", "find_canonical_map", "forward_kinematics", "from_canonical_motion",
    "hemisphere_continuous", "hookimpl", "joint_positions", "lowest_sole", "open_dataset", "padded_batch",
    "per_character", "read_bvh", "read_shape_npz", "resample", "resample_to_frames", "resolve_device", "root_scale",
    "save_motion", "to_canonical_motion", "write_folder_dataset",
}  # fmt: skip
"""A name that disappears from here breaks plugins: say so in the changelog."""


def names_for_type_checkers() -> set[str]:
    """What the block under TYPE_CHECKING declares."""
    (block,) = (node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    imported = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return imported | {node.target.id for node in block.body if isinstance(node, ast.AnnAssign)}


def test_no_public_name_comes_or_goes_unnoticed():
    assert set(retargetbench.__all__) == PUBLIC


def test_all_is_sorted_constants_first_then_classes_then_functions():
    def order(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert retargetbench.__all__ == sorted(retargetbench.__all__, key=order)


def test_type_checkers_see_the_same_names():
    assert names_for_type_checkers() == set(retargetbench.__all__)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_can_be_imported(name: str):
    assert getattr(retargetbench, name) is not None
    assert name in dir(retargetbench)


def test_no_public_name_hides_a_module():
    modules = {path.stem for path in SOURCE.parent.iterdir()}
    assert not modules & (PUBLIC - {"__version__"})


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Skeletons'"):
        retargetbench.Skeletons  # noqa: B018


def test_version_is_the_distributions():
    assert retargetbench.__version__ == version("retargetbench")


def test_importing_the_package_and_marking_hooks_needs_no_torch():
    code = "import sys; from retargetbench import MethodInfo, hookimpl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
