"""The layout of the repository: containers, packages, entry points, and the direction of imports."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PLUGINS = sorted(path for path in (ROOT / "plugins").iterdir() if path.is_dir() and path.name != "__pycache__")
CONTAINERS = [ROOT / "platform", ROOT / "plugins", *PLUGINS, ROOT / "benchmarks"]
CORE = ROOT / "platform" / "retargetbench"


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_container_is_no_package_and_holds_no_module(container: Path):
    assert not list(container.glob("*.py"))


def test_no_container_hides_a_module_of_the_standard_library():
    for package in PACKAGES:
        assert Path(package).name not in sys.stdlib_module_names


def test_the_wheel_has_every_package_and_plugins_are_what_the_folder_holds():
    plugins = [f"plugins/{path.name}/retargetbench_{path.name}" for path in PLUGINS]
    assert sorted(PACKAGES) == sorted(["platform/retargetbench", "benchmarks/retargetbench_suites", *plugins])
    assert all((ROOT / package / "__init__.py").is_file() for package in PACKAGES)


def test_every_plugin_has_an_entry_point_and_a_readme():
    wanted = {path.name: f"retargetbench_{path.name}" for path in PLUGINS}
    assert PROJECT["project"]["entry-points"]["retargetbench"] == wanted
    assert all((path / "README.md").read_text().startswith(f"# {path.name}\n") for path in PLUGINS)


def test_the_installed_entry_points_are_those_of_the_project():
    installed = {
        entry.name: entry.value
        for entry in entry_points(group="retargetbench")
        if entry.dist is not None and entry.dist.name == "retargetbench"
    }
    assert installed == PROJECT["project"]["entry-points"]["retargetbench"], "run pip install -e . again"


def test_type_checks_cover_every_package():
    names = {Path(package).name for package in PACKAGES}
    folders = {str(Path(package).parent) for package in PACKAGES}
    assert set(PROJECT["tool"]["mypy"]["packages"]) == names
    assert set(PROJECT["tool"]["mypy"]["mypy_path"]) == folders


def test_the_standard_library_is_not_shadowed_from_the_root():
    code = (
        "import copy, platform, sysconfig; from pathlib import Path; "
        "library = Path(sysconfig.get_path('stdlib')); "
        "assert Path(copy.__file__).parent == library, copy.__file__; "
        "assert Path(platform.__file__).parent == library, platform.__file__; "
        "import retargetbench, retargetbench_copy, retargetbench_suites"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_m_pytest_collects_from_the_root():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/test_public_api.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_test_files_have_names_of_their_own():
    """pytest's default import mode makes each a top-level module."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
    assert not list((ROOT / "tests").rglob("__init__.py"))


LAYERS: list[tuple[str, ...]] = [
    ("errors", "registry", "skeleton", "motion", "character", "clip", "caching", "device"),
    ("kinematics", "transfer"),
    ("mesh", "sensor_names", "_sensor_geometry", "sensors", "formats", "rigs", "rest_pose"),
    ("methods", "metrics", "datasets", "hookspecs", "builtin", "discovery", "plugins"),
    ("testing", "scaffold", "benchmark", "retargeting", "training", "rendering"),
    ("viewer", "cli"),
]
"""Modules and packages of the core, lowest first: none imports one of a higher layer (design: imports run one way)."""
LAYER = {name: depth for depth, names in enumerate(LAYERS) for name in names}


def imports_of(path: Path) -> set[str]:
    """Modules that a file imports while it is loaded or run, without those for type checkers alone."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def part_of(module: str) -> str | None:
    """The part of the core that a dotted name belongs to."""
    package, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    return name if package == "retargetbench" and name in LAYER else None


CORE_FILES = sorted(path for path in CORE.rglob("*.py") if path != CORE / "__init__.py")


def test_every_part_of_the_core_has_its_layer():
    parts = {path.relative_to(CORE).parts[0].removesuffix(".py") for path in CORE_FILES}
    assert parts <= set(LAYER)


@pytest.mark.parametrize("path", CORE_FILES, ids=lambda path: str(path.relative_to(CORE)))
def test_imports_run_one_way(path: Path):
    own = LAYER[path.relative_to(CORE).parts[0].removesuffix(".py")]
    higher = {module for module in imports_of(path) if LAYER.get(part_of(module) or "", 0) > own}
    assert not higher


PLUGIN_FILES = sorted(path for plugin in PLUGINS for path in plugin.rglob("*.py"))


@pytest.mark.parametrize("path", PLUGIN_FILES, ids=lambda path: str(path.relative_to(ROOT / "plugins")))
def test_a_plugin_imports_only_the_public_api_and_no_other_plugin(path: Path):
    own = f"retargetbench_{path.relative_to(ROOT / 'plugins').parts[0]}"
    for module in imports_of(path):
        package, _, rest = module.partition(".")
        if package.startswith("retargetbench_"):
            assert package == own
        elif package == "retargetbench":
            assert rest == "" or part_of(module) in (None, "testing"), f"{module} is not public"


def test_the_import_guard_sees_an_import_that_runs_upwards(tmp_path: Path):
    file = tmp_path / "low.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from retargetbench.cli import app\n"
        "def late():\n    from retargetbench.benchmark import runner\n"
    )
    assert {part_of(module) for module in imports_of(file)} == {None, "benchmark"}
