"""What plugins register, and the import of what it names."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from retargetbench.errors import PluginError
from retargetbench.plugins import catalogue
from retargetbench.registry import Column, DatasetInfo, FileFormatInfo, MethodInfo, MetricInfo, Registered, load_target


def test_a_target_is_the_attribute_that_it_names():
    from retargetbench.datasets.capsules import open_capsules

    assert load_target("retargetbench.datasets.capsules:open_capsules") is open_capsules


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("retargetbench.datasets.capsules", "must look like 'module:Class'"),
        ("retargetbench.datasets.capsules:", "must look like 'module:Class'"),
        ("", "must look like 'module:Class'"),
        ("retargetbench.nowhere:Thing", "ModuleNotFoundError: No module named 'retargetbench.nowhere'"),
        ("retargetbench.registry:Thing", "AttributeError: .*no attribute 'Thing'"),
        (":Thing", "ValueError"),
    ],
)
def test_a_target_that_cannot_be_imported_is_the_plugins_failure(target, reason):
    with pytest.raises(PluginError, match=reason) as caught:
        load_target(target)
    assert repr(target) in str(caught.value)


def test_whatever_a_module_raises_on_import_is_told(tmp_path, monkeypatch):
    (tmp_path / "a_module_that_fails.py").write_text("raise RuntimeError('no licence file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(PluginError, match="RuntimeError: no licence file") as caught:
        load_target("a_module_that_fails:Method")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_everything_that_is_registered_can_be_imported():
    registered = catalogue().registered
    infos = [*registered.methods.values(), *registered.metrics.values(), *registered.datasets.values()]
    targets = [info.target for info in infos]
    targets += [way for info in registered.formats.values() for way in (info.writer, info.reader) if way]
    assert len(targets) >= 10
    assert all(callable(load_target(target)) for target in targets)


def test_columns_have_names_that_a_tracker_takes_units_and_one_place():
    columns = [column for info in catalogue().registered.metrics.values() for column in info.columns]
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    for column in columns:
        assert column.name.isidentifier()
        assert column.direction in ("lower", "higher", "none")
        assert column.summary
        assert not column.summary.endswith(".")


@pytest.mark.parametrize("info", [MethodInfo, Column, MetricInfo, DatasetInfo, FileFormatInfo, Registered])
def test_what_is_registered_cannot_be_changed(info):
    assert info.__dataclass_params__.frozen


def test_the_registry_is_read_without_torch():
    program = "import sys, retargetbench.registry; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
