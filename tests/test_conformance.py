"""The conformance kit finds each way of breaking the contract, and says what to do."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from fake_plugins import plugin_folder

from retargetbench.errors import UnknownNameError, UsageError
from retargetbench.kinematics import resample
from retargetbench.metrics.base import UNDEFINED, Metric, MetricValue
from retargetbench.plugins import catalogue
from retargetbench.testing import ConformanceReport, check_dataset_plugin, check_method, check_metric
from retargetbench_copy.method import CopyMethod

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retargetbench.character import Character
    from retargetbench.clip import Clip
    from retargetbench.motion import Motion


class Spoiled(CopyMethod):
    """Copy, with what it returns spoiled by `spoil`."""

    def retarget(self, sources: Sequence[Clip], target: Character) -> list[Motion]:
        return [
            self.spoil(motion, source)
            for motion, source in zip(super().retarget(sources, target), sources, strict=True)
        ]

    def spoil(self, motion: Motion, source: Clip) -> Motion:
        return motion


class Raises(CopyMethod):
    def retarget(self, sources, target):
        raise RuntimeError("out of\nluck")


class NeedsTwoFrames(Spoiled):
    def spoil(self, motion, source):
        assert motion.frame_count > 1, "cannot take a velocity"
        return motion


class TakesOneClip(CopyMethod):
    def retarget(self, sources, target):
        return super().retarget(sources[:1], target)


class ReturnsTuple(CopyMethod):
    def retarget(self, sources, target):
        return tuple(super().retarget(sources, target))


class ReturnsTensors(CopyMethod):
    def retarget(self, sources, target):
        return [motion.local_rotations for motion in super().retarget(sources, target)]


class DropsFrame(Spoiled):
    def spoil(self, motion, source):
        return motion.frames(0, max(1, motion.frame_count - 1))


class KeepsTrainingRate(Spoiled):
    def spoil(self, motion, source):
        return replace(motion, fps=30.0)


class ResamplesOnly(Spoiled):
    def spoil(self, motion, source):
        return resample(motion, 60.0)


class ForgetsTheMap(CopyMethod):
    def retarget(self, sources, target):
        return [source.motion for source in sources]


class WorksInDouble(Spoiled):
    def spoil(self, motion, source):
        return motion.to(dtype=torch.float64)


class WritesNan(Spoiled):
    def spoil(self, motion, source):
        motion.root_translation[-1, 1] = torch.nan
        return motion


class DoesNotNormalise(Spoiled):
    def spoil(self, motion, source):
        return replace(motion, local_rotations=motion.local_rotations * 1.0005)


class Flips(Spoiled):
    def spoil(self, motion, source):
        signs = torch.ones(motion.frame_count, 1, 1)
        signs[1::2] = -1.0
        return replace(motion, local_rotations=motion.local_rotations * signs)


class WritesIntoSource(Spoiled):
    def spoil(self, motion, source):
        source.motion.root_translation[:, 1] += 0.001
        return motion


class WritesIntoTarget(CopyMethod):
    def retarget(self, sources, target):
        motions = super().retarget(sources, target)
        target.bind_vertices.mul_(1.001)
        return motions


class NormalisesOverTheBatch(CopyMethod):
    def retarget(self, sources, target):
        motions = super().retarget(sources, target)
        mean = torch.cat([motion.root_translation for motion in motions]).mean(0)
        return [replace(motion, root_translation=motion.root_translation - mean) for motion in motions]


class SortsByLength(CopyMethod):
    def retarget(self, sources, target):
        order = sorted(range(len(sources)), key=lambda i: sources[i].motion.frame_count)
        motions = super().retarget([sources[i] for i in order], target)
        lift = [0.01 * i for i in range(len(motions))]
        sorted_back = [motions[order.index(i)] for i in range(len(sources))]
        return [replace(m, root_translation=m.root_translation + z) for m, z in zip(sorted_back, lift, strict=True)]


class DrawsNoise(Spoiled):
    def spoil(self, motion, source):
        return replace(motion, root_translation=motion.root_translation + 1e-4 * torch.rand(motion.frame_count, 3))


class DrawsNoiseOnce(CopyMethod):
    def __init__(self, *, device="cpu"):
        super().__init__(device=device)
        self.noise = 1e-4 * torch.rand(3)

    def retarget(self, sources, target):
        motions = super().retarget(sources, target)
        return [replace(motion, root_translation=motion.root_translation + self.noise) for motion in motions]


class CannotBeMade(CopyMethod):
    def __init__(self, *, device):
        raise FileNotFoundError("weights.safetensors")


class Stranger:
    def __init__(self, *, device):
        pass


SHAPE = "keeps frames and frame rate, gives 22 joints"
BATCH = "retargets a batch of different lengths and frame rates"
CASES = {
    Raises: ("retargets a clip", "retarget raised RuntimeError: out of luck"),
    NeedsTwoFrames: ("retargets a clip of one frame", "cannot take a velocity"),
    TakesOneClip: (BATCH, "1 motions for 3 sources; return a list with one Motion for each source"),
    ReturnsTuple: ("retargets a clip", "returned a tuple; return a list"),
    ReturnsTensors: ("retargets a clip", "a list of Tensor; return a list with one Motion"),
    DropsFrame: (SHAPE, "(23, 22, 4), not (24, 22, 4)"),
    KeepsTrainingRate: (SHAPE, "30 fps, its source 24; resample back"),
    ResamplesOnly: (SHAPE, "(47, 22, 4), not (24, 22, 4)"),
    ForgetsTheMap: (SHAPE, "(24, 24, 4), not (24, 22, 4)"),
    WorksInDouble: ("keeps device and dtype", "torch.float64 on cpu, the source torch.float32"),
    WritesNan: ("gives finite values", "NaN or infinite"),
    DoesNotNormalise: ("gives unit quaternions", "0.0005 from unit length"),
    Flips: ("is continuous in time", "hemisphere_continuous"),
    WritesIntoSource: ("leaves its inputs alone", "clone()"),
    WritesIntoTarget: ("leaves its inputs alone", "clone()"),
    NormalisesOverTheBatch: ("does not depend on the batch", "normalise each clip by itself"),
    SortsByLength: ("does not depend on the batch", "changes by 0.02"),
    DrawsNoise: ("gives the same bytes twice", "fixed seed"),
    DrawsNoiseOnce: ("gives the same bytes twice", "fixed seed"),
    CannotBeMade: ("can be made", "FileNotFoundError: weights.safetensors"),
    Stranger: ("can be made", "derive it from RetargetMethod"),
}


FAIL_IN_SEVERAL_SCENES = (Raises, NeedsTwoFrames, ReturnsTuple, ReturnsTensors)


@pytest.mark.parametrize("method", CASES, ids=lambda method: method.__name__)
def test_one_defect_fails_one_check_that_says_what_to_do(method: type):
    report = check_method(method)
    check, advice = CASES[method]
    assert not report.passed
    assert report.failures[0].name == check, report
    assert advice in report.failures[0].advice
    assert f"FAIL  {check}: " in str(report)
    assert len(report.failures) == 1 or method in FAIL_IN_SEVERAL_SCENES


@pytest.mark.parametrize("method", ["copy", CopyMethod, lambda device: CopyMethod(device=device, root="none")])
def test_copy_conforms_by_name_by_class_and_by_factory(method, device: torch.device):
    report = check_method(method, device=device.type)
    assert report.passed, report
    assert str(report).splitlines()[0].endswith(" conforms")


def test_report_counts_its_failures():
    report = check_method(Flips)
    assert str(report).startswith("Flips fails 1 of ")
    assert isinstance(report, ConformanceReport)


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(UnknownNameError, match="Did you mean 'copy'"):
        check_method("copi")


def test_an_unknown_device_is_refused():
    with pytest.raises(UsageError, match="'tpu' is not one of: auto, cpu, cuda"):
        check_method("copy", device="tpu")


def test_hooks_that_import_torch_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = """
        import torch

        @hookimpl
        def register_methods(register):
            register(MethodInfo("heavy", "", "retargetbench_copy.method:CopyMethod"))
    """
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "torch.py").touch()  # stands for torch in the new process, which takes seconds to import
    with plugin_folder(tmp_path, monkeypatch) as folder:
        module = folder.add("heavy", source)
        (failure,) = check_method("heavy").failures
    assert failure.name == "hooks load without torch"
    assert f"importing {module} imports torch" in failure.advice


class Height(Metric):
    """Mean height of the hips; spoiled by `spoil`."""

    def evaluate(self, evaluation, columns):
        per_frame = evaluation.positions[:, 0, 1]
        values = {name: MetricValue(float(per_frame.mean()), per_frame) for name in columns}
        return self.spoil(values, evaluation)

    def spoil(self, values, evaluation):
        return values


def spoiled(spoil):
    return type("Spoiled", (Height,), {"spoil": staticmethod(spoil)})


def raises(values, evaluation):
    return values if evaluation.ground_truth is not None else 1 / 0


def writes_inputs(values, evaluation):
    evaluation.source.motion.root_translation.add_(1.0)
    return values


def depends_on_company(values, evaluation):
    return {name: MetricValue(float(len(values))) for name in values}


METRICS = {
    "conforms": (Height, None),
    "raises": (spoiled(raises), "judges a source itself: evaluate raised ZeroDivisionError"),
    "forgets a column": (spoiled(lambda values, _: dict(list(values.items())[:1])), "a MetricValue for each of"),
    "gives a number": (spoiled(lambda values, _: dict.fromkeys(values, 1.0)), "is a float; return a MetricValue"),
    "is infinite": (spoiled(lambda values, _: dict.fromkeys(values, MetricValue(float("inf")))), "the value inf"),
    "has frames of its own": (
        spoiled(lambda values, _: dict.fromkeys(values, MetricValue(1.0, torch.ones(7)))),
        "per_frame is \\(7,\\), not",
    ),
    "is never defined": (spoiled(lambda values, _: dict.fromkeys(values, UNDEFINED)), "is NaN there"),
    "writes its inputs": (spoiled(writes_inputs), "evaluate writes into its inputs"),
    "depends on company": (spoiled(depends_on_company), "differs from its value among all columns"),
}


@pytest.mark.parametrize("case", METRICS)
def test_each_way_of_breaking_the_contract_of_metrics_is_found(case, tmp_path, monkeypatch):
    metric, advice = METRICS[case]
    source = """
        @hookimpl
        def register_metrics(register):
            columns = tuple(Column(name, "m", "none", "a column") for name in ("one", "two"))
            register(MetricInfo("tried", "{module}:Tried", columns))
    """
    with plugin_folder(tmp_path, monkeypatch) as folder:
        module = folder.add("tried", source)
        catalogue()  # imports the plugin
        monkeypatch.setattr(sys.modules[module], "Tried", metric, raising=False)
        report = check_metric("tried")
    assert report.passed == (advice is None), report
    if advice is not None:
        assert re.search(advice, str(report)), report


@pytest.mark.parametrize("name", sorted(catalogue().registered.metrics))
def test_every_metric_of_the_core_conforms(name):
    report = check_metric(name)
    assert report.passed, report


def test_the_shipped_dataset_conforms():
    report = check_dataset_plugin("capsules")
    assert report.passed, report


def test_a_dataset_that_differs_each_time_is_found(tmp_path, monkeypatch):
    source = """
        import itertools
        numbers = itertools.count()

        def open_odd():
            from retargetbench.datasets.capsules import CapsuleDataset
            dataset = CapsuleDataset()
            dataset.__dict__["hash"] = f"{next(numbers)}"
            return dataset

        @hookimpl
        def register_datasets(register):
            register(DatasetInfo("odd", "a dataset", "{module}:open_odd"))
    """
    with plugin_folder(tmp_path, monkeypatch) as folder:
        folder.add("odd", source)
        (failure,) = check_dataset_plugin("odd").failures
    assert failure.name == "is the same when opened again"
