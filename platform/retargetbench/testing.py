"""The conformance kit: what every method, metric and dataset must hold; the first two on small generated characters.

A plugin's own tests use it so::

    from retargetbench.testing import check_method

    def test_conforms():
        report = check_method("mine")
        assert report.passed, report

and ``bench plugin check mine`` does the same on the command line.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import roma
import torch

from retargetbench.clip import Clip
from retargetbench.datasets.base import Dataset
from retargetbench.datasets.capsules import open_capsules
from retargetbench.device import resolve_device
from retargetbench.discovery import one_line
from retargetbench.errors import RetargetBenchError
from retargetbench.methods import RetargetMethod
from retargetbench.metrics.base import Evaluation, Metric, MetricValue
from retargetbench.motion import Motion
from retargetbench.plugins import catalogue, create_method, create_metric
from retargetbench.registry import MetricInfo, load_target
from retargetbench.skeleton import CANONICAL_JOINTS, Skeleton
from retargetbench.transfer import from_canonical_motion

if TYPE_CHECKING:
    from retargetbench.character import Character
    from retargetbench.datasets.check import Finding

MethodFactory = Callable[..., object]
"""Called as ``factory(device=...)``, and should give a `RetargetMethod`; a subclass of it is one."""

BATCH_TOLERANCE = 1e-3
"""How much a motion may depend on what else is in the batch: metres, and radians of each joint. Float32 sums come out
differently for other batch sizes; 1 mm is far below what any metric sees."""

UNIT_TOLERANCE = 1e-4
"""How far quaternions may be from unit length: float32 after a few hundred products."""

_HAS_TORCH = 3  # an exit code that Python does not use itself


@dataclass(frozen=True)
class CheckResult:
    """One check of the kit."""

    name: str
    """What must hold, a few words."""
    advice: str = ""
    """A sentence that says what is wrong and what to do; empty if the check passed."""

    @property
    def passed(self) -> bool:
        """Whether it holds."""
        return not self.advice


@dataclass(frozen=True)
class ConformanceReport:
    """What the kit found; its text has one line for each check."""

    method: str
    """Name of the method, metric or dataset, or of the method's factory."""
    results: tuple[CheckResult, ...]
    """The checks, in the order in which they ran."""

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(result.passed for result in self.results)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if not result.passed)

    def __str__(self) -> str:
        lines = [f"  ok    {r.name}" if r.passed else f"  FAIL  {r.name}: {r.advice}" for r in self.results]
        head = "conforms" if self.passed else f"fails {len(self.failures)} of {len(self.results)} checks"
        return "\n".join([f"{self.method} {head}", *lines])


def check_method(method: str | MethodFactory, *, device: str = "cpu") -> ConformanceReport:
    """Check that a method keeps the contract of `RetargetMethod.retarget`.

    Args:
        method: name of an installed method, or a callable that makes one and takes ``device``.
        device: ``auto``, ``cpu`` or ``cuda``.

    Returns:
        A report; nothing that the method raises escapes.

    Raises:
        UnknownNameError: no installed plugin has a method of this name.
        UsageError: two plugins provide it, or there is no such device.
    """
    place = resolve_device(device)
    if not isinstance(method, str):
        name = getattr(method, "__name__", repr(method))
        return ConformanceReport(name, tuple(_run_checks(lambda: method(device=place), place)))
    module = catalogue().origin("method", catalogue().method(method).name).module
    results = _run_checks(lambda: create_method(method, device=place), place)
    return ConformanceReport(method, (_check_light(module), *results))


def check_metric(metric: str) -> ConformanceReport:
    """Check that a metric keeps the contract of `Metric.evaluate`.

    Args:
        metric: name of an installed metric, that is of a family of columns.

    Returns:
        A report; nothing that the metric raises escapes.

    Raises:
        UnknownNameError: no installed plugin has a metric of this name.
        UsageError: two plugins provide it.
    """
    info = catalogue().metric(metric)
    light = _check_light(catalogue().origin("metric", metric).module)
    try:
        made = create_metric(info)
    except RetargetBenchError as error:
        return ConformanceReport(metric, (light, CheckResult("can be made", str(error))))
    return ConformanceReport(metric, (light, CheckResult("can be made"), *_check_evaluations(info, made)))


def _check_evaluations(info: MetricInfo, metric: Metric) -> list[CheckResult]:
    """Let a metric judge the true motion of tasks that touch hands and feet, and what comes of less."""
    dataset = open_capsules()
    source = dataset.clip("average", "hands_on_belly")
    target = dataset.character("stout")
    truth = dataset.clip("stout", "hands_on_belly").motion
    single = Clip(source.name, source.character, source.motion.frames(0, 1))
    scenes = {
        "the ground truth": Evaluation(source, target, truth, truth),
        "a source itself": Evaluation(source, source.character, source.motion),
        "a motion without ground truth": Evaluation(source, target, truth),
        "a clip of one frame": Evaluation(single, target, truth.frames(0, 1), truth.frames(0, 1)),
    }
    columns = frozenset(column.name for column in info.columns)
    given = {name: _fingerprint(_Scene((scene.source,), scene.target)) for name, scene in scenes.items()}
    found = {name: _evaluate(metric, scene, columns) for name, scene in scenes.items()}
    results = [CheckResult(f"judges {name}", advice) for name, (_, advice) in found.items()]
    changed = [
        name for name, scene in scenes.items() if _fingerprint(_Scene((scene.source,), scene.target)) != given[name]
    ]
    advice = f"{changed[0]}: evaluate writes into its inputs; clone() a tensor before that" if changed else ""
    results.append(CheckResult("leaves its inputs alone", advice))
    if any(not result.passed for result in results):
        return results
    values, _ = found["the ground truth"]
    undefined = sorted(name for name in columns if not values[name].is_defined)
    advice = f"{', '.join(undefined)} is NaN there; a motion that cannot be better must have a value"
    results.append(CheckResult("has a value of every column for a perfect motion", advice if undefined else ""))
    scene = scenes["the ground truth"]
    alone = {name: _evaluate(metric, scene, frozenset({name})) for name in sorted(columns)}
    off = [name for name, (one, advice) in alone.items() if advice or not _agree(one[name], values[name])]
    advice = f"{', '.join(off)} differs from its value among all columns; a run asks only for columns without a value"
    results.append(CheckResult("gives a column the same value alone and among others", advice if off else ""))
    return results


def _evaluate(metric: Metric, scene: Evaluation, columns: frozenset[str]) -> tuple[dict[str, MetricValue], str]:
    """Return what a metric gives, or nothing and a sentence that says why it cannot be used."""
    try:
        values: object = metric.evaluate(scene, columns)
    except Exception as error:  # what a plugin raises is the finding
        return {}, f"evaluate raised {one_line(error)}"
    if not isinstance(values, dict) or not columns <= values.keys():
        return {}, f"evaluate must return a dict with a MetricValue for each of {', '.join(sorted(columns))}"
    for name in sorted(columns):
        value, frames = values[name], scene.motion.frame_count
        if not isinstance(value, MetricValue):
            return {}, f"{name} is a {type(value).__name__}; return a MetricValue, or UNDEFINED where there is no value"
        if not isinstance(value.value, float) or math.isinf(value.value):
            return {}, f"{name} has the value {value.value!r}; it must be a finite float, or NaN where there is none"
        if value.per_frame is not None and tuple(value.per_frame.shape) != (frames,):
            return {}, f"{name}: per_frame is {tuple(value.per_frame.shape)}, not ({frames},) like the frames"
    return values, ""


def _agree(one: MetricValue, other: MetricValue) -> bool:
    """Whether two values are the same up to the order of sums."""
    return math.isclose(one.value, other.value, rel_tol=1e-4, abs_tol=1e-6)


def check_dataset_plugin(dataset: str) -> ConformanceReport:
    """Check that a registered dataset can be opened and read, and is the same every time.

    What is odd about its content is said by ``bench data check``.

    Args:
        dataset: name of an installed dataset.

    Returns:
        A report; nothing that the dataset raises escapes.

    Raises:
        UnknownNameError: no installed plugin has a dataset of this name.
        UsageError: two plugins provide it.
    """
    info = catalogue().dataset(dataset)
    results = [_check_light(catalogue().origin("dataset", dataset).module)]
    try:
        opened, again = load_target(info.target)(), load_target(info.target)()
        advice = "" if isinstance(opened, Dataset) else f"it is a {type(opened).__name__}; return a Dataset"
        results.append(CheckResult("can be opened", advice))
        if not advice:
            errors = [finding for finding in _find_oddities(opened) if finding.level == "error"]
            advice = f"{errors[0].subject}: {errors[0].text}" if errors else ""
            results.append(CheckResult("can be read whole", advice))
            rows = opened.split().rows
            opened.check_rows(rows)
            advice = "" if rows else "there is nothing to run; see every_pair and balanced_default"
            results.append(CheckResult("has a default split whose rows it can load", advice))
            advice = "" if opened.hash == again.hash else "its hash differs when it is opened again; use fixed seeds"
            results.append(CheckResult("is the same when opened again", advice))
    except Exception as error:  # what a plugin raises is the finding
        results.append(CheckResult("can be used", one_line(error)))
    return ConformanceReport(dataset, tuple(results))


def _find_oddities(dataset: Dataset) -> tuple[Finding, ...]:
    from retargetbench.datasets.check import check_dataset

    return check_dataset(dataset, penetration=False).findings


def _check_light(module: str) -> CheckResult:
    """Whether a plugin's hooks can be read without importing torch."""
    code = f"import sys; import {module.partition(':')[0]}; sys.exit({_HAS_TORCH} * ('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)  # noqa: S603 - own interpreter
    advice = f"importing {module} imports torch, which slows every bench command; import it in the method's module"
    return CheckResult("hooks load without torch", advice if done.returncode == _HAS_TORCH else "")


def _run_checks(factory: Callable[[], object], device: torch.device) -> list[CheckResult]:
    """Make the method, let it retarget every scene, and judge what comes out."""
    try:
        method = factory()
    except Exception as error:  # what a plugin raises is the finding
        return [CheckResult("can be made", f"making it raised {one_line(error)}")]
    if not isinstance(method, RetargetMethod):
        return [CheckResult("can be made", f"it is a {type(method).__name__}; derive it from RetargetMethod")]
    results = [CheckResult("can be made")]
    scenes = _make_scenes(device)
    given = {name: _fingerprint(scene) for name, scene in scenes.items()}
    outputs: dict[str, list[Motion]] = {}
    for name, scene in scenes.items():
        motions, advice = _retarget(method, scene)
        results.append(CheckResult(f"retargets {name}", advice))
        if not advice:
            outputs[name] = motions
    changed = [name for name, scene in scenes.items() if _fingerprint(scene) != given[name]]
    advice = (
        f"{changed[0]}: retarget writes into its inputs; clone() a tensor before writing into it" if changed else ""
    )
    results.append(CheckResult("leaves its inputs alone", advice))
    for name, judge in _JUDGES.items():
        advices = (
            (scene, judge(motion, source))
            for scene, motions in outputs.items()
            for motion, source in zip(motions, scenes[scene].sources, strict=True)
        )
        results.append(CheckResult(name, next((f"{scene}: {advice}" for scene, advice in advices if advice), "")))
    if all(result.passed for result in results):
        batch = scenes["a batch of different lengths and frame rates"]
        results.append(_check_batches(method, batch))
        results.append(_check_repetition((method, method, factory()), batch))
    return results


@dataclass(frozen=True)
class _Scene:
    """Something to retarget."""

    sources: tuple[Clip, ...]
    target: Character


def _make_scenes(device: torch.device) -> dict[str, _Scene]:
    """Generate the scenes, the plainest first so that its failure is read first."""
    dataset = open_capsules()
    names = dataset.character_names
    motions = sorted({motion for _, motion in dataset.clip_names})
    clips = [dataset.clip(name, motion).to(device) for name, motion in zip(names[:3], motions[:3], strict=True)]
    batch = tuple(
        Clip(clip.name, clip.character, replace(clip.motion.frames(0, length), fps=fps))
        for clip, length, fps in zip(clips, (24, 1, 17), (30.0, 24.0, 60.0), strict=True)
    )
    plain, single, _ = batch
    target = dataset.character(names[-1]).to(device)
    rigged = _with_extra_joints(plain.character)
    extended = from_canonical_motion(rigged.skeleton, plain.motion)
    return {
        "a clip": _Scene((plain,), target),
        "a clip of one frame": _Scene((single,), target),
        "a batch of different lengths and frame rates": _Scene(batch, target),
        "onto the source's own character": _Scene((plain,), plain.character),
        "onto a target with extra joints": _Scene((plain,), _with_extra_joints(target)),
        "from a source with extra joints": _Scene((Clip(plain.name, rigged, extended),), target),
    }


def _with_extra_joints(character: Character) -> Character:
    """Put a joint above the hips and a finger under the left hand of a canonical character."""
    rest = character.skeleton.offsets
    hand = CANONICAL_JOINTS.index("LeftHand") + 1
    finger = rest.new_tensor([[0.08, 0.0, 0.0]])
    skeleton = Skeleton(
        ("Armature", *CANONICAL_JOINTS, "LeftHandIndex1"),
        (-1, *(parent + 1 for parent in character.skeleton.parents), hand),
        torch.cat([torch.zeros_like(rest[:1]), rest, finger]),
        tuple(range(1, 23)),
    )
    inverse_bind = torch.eye(4).to(rest).repeat(24, 1, 1)
    inverse_bind[1:23] = character.inverse_bind
    inverse_bind[23, :3, 3] = -skeleton.rest_positions[23]
    return replace(
        character,
        name=f"{character.name}_extra",
        skeleton=skeleton,
        inverse_bind=inverse_bind,
        influence_joints=character.influence_joints + 1,
    )


def _fingerprint(scene: _Scene) -> list[bytes]:
    """Return the bytes of every tensor that a method is given."""
    characters = [scene.target, *(clip.character for clip in scene.sources)]
    tensors = [
        tensor for clip in scene.sources for tensor in (clip.motion.root_translation, clip.motion.local_rotations)
    ]
    for c in characters:
        tensors += [
            c.skeleton.offsets,
            c.bind_vertices,
            c.inverse_bind,
            c.faces,
            c.influence_joints,
            c.influence_weights,
        ]
    return [tensor.cpu().numpy().tobytes() for tensor in tensors]


def _retarget(method: RetargetMethod, scene: _Scene) -> tuple[list[Motion], str]:
    """Return what the method gives, or nothing and a sentence that says why it cannot be used."""
    wanted = "return a list with one Motion for each source, in their order"
    try:
        with torch.no_grad():
            motions: object = method.retarget(list(scene.sources), scene.target)
    except Exception as error:  # what a plugin raises is the finding
        return [], f"retarget raised {one_line(error)}"
    if not isinstance(motions, list):
        return [], f"retarget returned a {type(motions).__name__}; {wanted}"
    strangers = [type(motion).__name__ for motion in motions if not isinstance(motion, Motion)]
    if strangers or len(motions) != len(scene.sources):
        found = f"a list of {strangers[0]}" if strangers else f"{len(motions)} motions for {len(scene.sources)} sources"
        return [], f"retarget returned {found}; {wanted}"
    return motions, ""


def _judge_shape(motion: Motion, source: Clip) -> str:
    frames, fps = source.motion.frame_count, source.motion.fps
    if (motion.frame_count, motion.joint_count) != (frames, 22):
        return (
            f"local_rotations are {tuple(motion.local_rotations.shape)}, not ({frames}, 22, 4); return the source's "
            f"frames and the 22 canonical joints, see resample_to_frames and to_canonical_motion"
        )
    if motion.fps != fps:
        return f"the motion has {motion.fps:g} fps, its source {fps:g}; resample back to the source's frame rate"
    return ""


def _judge_tensors(motion: Motion, source: Clip) -> str:
    for name in ("root_translation", "local_rotations"):
        found, wanted = getattr(motion, name), getattr(source.motion, name)
        if found.device != wanted.device or found.dtype != wanted.dtype:
            return (
                f"{name} is {found.dtype} on {found.device}, the source {wanted.dtype} on {wanted.device}; make "
                f"tensors with new_zeros() or to() of a source tensor"
            )
    return ""


def _judge_finite(motion: Motion, source: Clip) -> str:
    if bool(torch.isfinite(motion.root_translation).all() and torch.isfinite(motion.local_rotations).all()):
        return ""
    return "some values are NaN or infinite; look for divisions by zero and square roots of negative numbers"


def _judge_units(motion: Motion, source: Clip) -> str:
    off = float((motion.local_rotations.norm(dim=-1) - 1).abs().max())
    if off <= UNIT_TOLERANCE:
        return ""
    return f"a quaternion is {off:.2g} from unit length, allowed are {UNIT_TOLERANCE:g}; normalise them at the end"


def _judge_continuity(motion: Motion, source: Clip) -> str:
    rotations = motion.local_rotations
    if bool(((rotations[1:] * rotations[:-1]).sum(-1) >= 0).all()):
        return ""
    return "quaternions flip their sign from frame to frame; pass them through hemisphere_continuous"


_JUDGES: dict[str, Callable[[Motion, Clip], str]] = {
    "keeps frames and frame rate, gives 22 joints": _judge_shape,
    "keeps device and dtype": _judge_tensors,
    "gives finite values": _judge_finite,
    "gives unit quaternions": _judge_units,
    "is continuous in time": _judge_continuity,
}


def _check_batches(method: RetargetMethod, batch: _Scene) -> CheckResult:
    """Whether a clip's result depends on which clips are with it in the batch."""
    together, _ = _retarget(method, batch)
    alone = [_retarget(method, _Scene((source,), batch.target))[0][0] for source in batch.sources]
    backwards = _retarget(method, _Scene(batch.sources[::-1], batch.target))[0][::-1]
    off = max(
        _distance(one, other) for others in (alone, backwards) for one, other in zip(together, others, strict=True)
    )
    advice = (
        f"a clip's motion changes by {off:.2g} (m or rad) with what else is in the batch, allowed are "
        f"{BATCH_TOLERANCE:g}; mask padded frames and normalise each clip by itself"
    )
    return CheckResult("does not depend on the batch", advice if off > BATCH_TOLERANCE else "")


def _distance(one: Motion, other: Motion) -> float:
    """Largest difference of two motions, in metres or radians."""
    metres = (one.root_translation - other.root_translation).abs().max()
    radians = roma.unitquat_geodesic_distance(one.local_rotations, other.local_rotations).max()
    return float(torch.maximum(metres, radians))


def _check_repetition(methods: Iterable[object], batch: _Scene) -> CheckResult:
    """Whether one method, and one newly made, give the same bytes again."""
    runs = []
    for method in methods:
        motions, _ = _retarget(cast("RetargetMethod", method), batch)
        tensors = [tensor for motion in motions for tensor in (motion.root_translation, motion.local_rotations)]
        runs.append([tensor.cpu().numpy().tobytes() for tensor in tensors])
    advice = "two runs on the same clips differ; use a generator with a fixed seed, made inside retarget"
    return CheckResult("gives the same bytes twice", "" if all(run == runs[0] for run in runs) else advice)
