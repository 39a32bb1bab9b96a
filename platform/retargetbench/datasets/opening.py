"""Open a dataset by the folder it lies in or by the name it is registered under."""

from __future__ import annotations

from pathlib import Path

from retargetbench.datasets.base import Dataset
from retargetbench.datasets.folder import MANIFEST, FolderDataset
from retargetbench.discovery import one_line
from retargetbench.errors import PluginError, RetargetBenchError, UnknownNameError, UsageError
from retargetbench.registry import load_target

PACK_MANIFEST = "studio.json"
"""The file that makes a folder a pack, as in `retargetbench.datasets.studio.pack_manifest`, which is slow to import."""


def open_dataset(spec: str | Path) -> Dataset:
    """Open a dataset.

    Args:
        spec: a folder that ``bench data import`` or ``bench data build`` made, or the name of a registered dataset. A
            folder wins over a name.

    Raises:
        UsageError: the folder is there but holds no dataset, there is no such folder, or two plugins have the name.
        UnknownNameError: there is no folder and no registered dataset of this name.
        DatasetError: the folder's manifest cannot be read.
        PluginError: the plugin that registers the name cannot be imported.
    """
    from retargetbench.plugins import catalogue

    folder = Path(spec)
    if (folder / MANIFEST).is_file():
        return FolderDataset(folder)
    if (folder / PACK_MANIFEST).is_file():
        from retargetbench.datasets.studio.dataset import StudioDataset

        return StudioDataset(folder)
    known = catalogue()
    names = ", ".join(sorted(known.registered.datasets)) or "none registered"
    is_path = isinstance(spec, Path) or len(folder.parts) != 1 or folder.is_absolute()
    if is_path or (folder.is_dir() and str(spec) not in known.registered.datasets):
        reason = f"holds no dataset: it has no {MANIFEST} or {PACK_MANIFEST}" if folder.is_dir() else "does not exist"
        raise UsageError(f"folder {folder} {reason}. Make one with bench data import or build, or give a name: {names}")
    try:
        info = known.dataset(str(spec))
    except UnknownNameError:
        note = f"A folder made with bench data import works too, but there is none at {folder.absolute()}"
        raise UnknownNameError("dataset", str(spec), known.registered.datasets, note=note) from None
    origin = known.origin("dataset", info.name).origin
    try:
        dataset = load_target(info.target)()
    except RetargetBenchError:
        raise
    except (Exception, SystemExit) as error:  # whatever a plugin raises is that plugin's failure
        raise PluginError(f"dataset {info.name!r} of plugin {origin} cannot be opened: {one_line(error)}") from error
    if not isinstance(dataset, Dataset):
        raise PluginError(
            f"dataset {info.name!r} of plugin {origin}: {info.target} must return a Dataset, got "
            f"{type(dataset).__name__}"
        )
    return dataset
