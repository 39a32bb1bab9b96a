"""Do authored motions move as recorded ones do? Speeds, spectra and sways of joints against those of real clips.

Long recordings are cut into windows as long as an action, and every window or action becomes one row of figures. The
10 % and 90 % quantiles of the real rows are the range in which those of authored ones are expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import roma
import torch
from scipy.signal import periodogram

from retargetbench.errors import DatasetError
from retargetbench.formats.bvh import read_bvh
from retargetbench.kinematics import joint_positions, resample
from retargetbench.metrics.smoothness import acceleration, jerk
from retargetbench.motion import Motion, check_motion_fits
from retargetbench.rigs import CENTIMETRE, skeleton_from_bvh
from retargetbench.skeleton import canonical_index
from retargetbench.transfer import to_canonical_motion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from retargetbench.skeleton import Skeleton

FPS = 30.0
"""All motions are brought to this rate, since accelerations and spectra depend on it."""

WINDOW_SECONDS = 2.5
"""Length of the windows that long recordings are cut into: that of a typical action."""

SHORTEST_SECONDS = 1.0
"""Shorter motions have no spectrum below 1 Hz and are refused."""

JOINT_GROUPS: dict[str, tuple[str, ...]] = {
    "pelvis": ("Hips",),
    "spine": ("Spine", "Spine1", "Spine2"),
    "clavicles": ("LeftShoulder", "RightShoulder"),
    "neck": ("Neck", "Head"),
    "shoulders": ("LeftArm", "RightArm"),
    "elbows": ("LeftForeArm", "RightForeArm"),
    "wrists": ("LeftHand", "RightHand"),
    "hips": ("LeftUpLeg", "RightUpLeg"),
    "knees": ("LeftLeg", "RightLeg"),
    "ankles": ("LeftFoot", "RightFoot"),
}
"""Joints whose angular speeds are averaged; the pelvis turns against the world, all others against their parents."""

BANDS: tuple[tuple[float, float], ...] = ((0, 1), (1, 2), (2, 4), (4, 8), (8, math.inf))
"""Frequencies from (included) and to (left out), Hz."""

_CHAINS: dict[str, tuple[tuple[str, ...], ...]] = {
    "spine": (("Spine", "Spine1", "Spine2"),),
    "clavicles": (("LeftShoulder",), ("RightShoulder",)),
    "neck": (("Neck", "Head"),),
}
"""Rotations whose spread is measured: chest against pelvis, each clavicle, head against chest. How a bend is shared
out over the joints of a chain does not matter."""


@dataclass(frozen=True, eq=False)
class Take:
    """A motion and the skeleton it was made for, which says how large an acceleration is.

    Raises:
        CharacterError: the motion has another number of joints than the skeleton.
    """

    motion: Motion
    skeleton: Skeleton

    def __post_init__(self) -> None:
        check_motion_fits(self.motion, self.skeleton)

    def to_canonical(self) -> Take:
        """Return the same motion of the 22 canonical joints alone."""
        return Take(to_canonical_motion(self.skeleton, self.motion), self.skeleton.to_canonical())


def takes_from_bvh(folder: Path) -> dict[str, Take]:
    """Read every BVH file below a folder of Mixamo-named clips: takes by "character/motion", sorted.

    Raises:
        DatasetError: there is no BVH file.
        FileFormatError: a file cannot be read.
    """
    takes: dict[str, Take] = {}
    for path in sorted(folder.rglob("*.bvh")):
        bvh = read_bvh(path)
        root = torch.from_numpy(bvh.root_positions) * CENTIMETRE
        motion = Motion(root.double(), torch.from_numpy(bvh.rotations).double(), bvh.fps)
        takes[f"{path.parent.name}/{path.stem}"] = Take(motion, skeleton_from_bvh(bvh)).to_canonical()
    if not takes:
        raise DatasetError(f"no BVH file lies below {folder}")
    return takes


def cut_into_windows(takes: Mapping[str, Take], seconds: float = WINDOW_SECONDS) -> dict[str, Take]:
    """Cut takes into windows of equal length, spread evenly from begin to end; short takes stay as they are.

    As many windows as fit, rounded, so that neighbours overlap or leave gaps by less than half a window.
    """
    windows: dict[str, Take] = {}
    for name, take in takes.items():
        motion = take.motion
        length = round(seconds * motion.fps) + 1
        count = max(1, round(motion.frame_count / length))
        starts = np.linspace(0, max(0, motion.frame_count - length), count).round().astype(int).tolist()
        for start in starts:
            windows[f"{name}@{start / motion.fps:.2f}"] = Take(motion.frames(start, start + length), take.skeleton)
    return windows


def angular_velocities(motion: Motion) -> torch.Tensor:
    """Compute how each joint turns against its parent between frames, (T − 1, J, 3) rad/s in the joint's own frame."""
    rotations = motion.local_rotations.double()
    steps = roma.quat_product(roma.quat_conjugation(rotations[:-1]), rotations[1:])
    turns: torch.Tensor = roma.unitquat_to_rotvec(steps)
    return turns * motion.fps


def band_shares(velocities: torch.Tensor, fps: float) -> dict[tuple[float, float], float]:
    """Compute the share of each of `BANDS` in the spectral energy of angular velocities; the shares add up to 1.

    Periodogram under a Hann window, summed over joints and axes. The mean stays in: turning steadily is slow motion.

    Args:
        velocities: (T, J, 3) rad/s.
        fps: frames a second.

    Returns:
        Shares; NaN where nothing moves.
    """
    signals = velocities.flatten(1).numpy()
    frequencies, power = periodogram(signals, fs=fps, window="hann", detrend=False, axis=0)
    energy = power.sum(1)
    total = float(energy.sum())
    within = {band: float(energy[(frequencies >= band[0]) & (frequencies < band[1])].sum()) for band in BANDS}
    return {band: value / total if total > 0 else math.nan for band, value in within.items()}


def rotation_spread(rotations: torch.Tensor) -> float:
    """Compute the standard deviation of rotations about their mean, degrees: root of the mean squared angle to it.

    The mean is the eigenvector of Σ q qᵀ with the largest eigenvalue (Markley et al., "Averaging Quaternions", Journal
    of Guidance, Control, and Dynamics 30, 2007), which does not care about signs.

    Args:
        rotations: unit quaternions xyzw, (T, 4).
    """
    q = rotations.double()
    mean = torch.linalg.eigh(q.mT @ q).eigenvectors[:, -1]
    angles = roma.unitquat_to_rotvec(roma.quat_product(roma.quat_conjugation(mean).expand_as(q), q)).norm(dim=-1)
    return math.degrees(float(angles.square().mean().sqrt()))


def take_statistics(take: Take) -> dict[str, float]:
    """Compute all figures of one take at `FPS`.

    Returns:
        By name with unit: ``speed_G_deg_s``, mean angular speed of a group of joints; ``spread_G_deg``, standard
        deviation about the mean rotation of spine, clavicles and neck; ``energy_A_B_hz``, share of a band in the energy
        of all joints' angular velocities; ``acceleration_heights_s2`` and ``jerk_heights_s3``, means over joints and
        frames as the metrics `acceleration` and `jerk` have them; ``hips_speed_heights_s``, mean speed of the hips.

    Raises:
        DatasetError: the take is shorter than `SHORTEST_SECONDS`.
    """
    if take.motion.duration < SHORTEST_SECONDS:
        raise DatasetError(
            f"statistics need motions of at least {SHORTEST_SECONDS:g} s, this one has {take.motion.duration:.2f} s"
        )
    take = take.to_canonical()
    motion = resample(take.motion.to(dtype=torch.float64), FPS)
    velocities = angular_velocities(motion)
    speeds = velocities.norm(dim=-1).mean(0).rad2deg()
    figures: dict[str, float] = {}
    for group, joints in JOINT_GROUPS.items():
        figures[f"speed_{group}_deg_s"] = float(speeds[[canonical_index(joint) for joint in joints]].mean())
    for group, chains in _CHAINS.items():
        spreads = [rotation_spread(_composed(motion, chain)) for chain in chains]
        figures[f"spread_{group}_deg"] = sum(spreads) / len(spreads)
    for (low, high), share in band_shares(velocities, FPS).items():
        figures["energy_" + (f"above_{low:g}_hz" if high == math.inf else f"{low:g}_{high:g}_hz")] = share
    positions = joint_positions(take.skeleton.to(dtype=torch.float64), motion) / take.skeleton.height
    figures["acceleration_heights_s2"] = float(acceleration(positions, FPS).nanmean())
    figures["jerk_heights_s3"] = float(jerk(positions, FPS).nanmean())
    figures["hips_speed_heights_s"] = float(positions[:, 0].diff(dim=0).norm(dim=-1).mean()) * FPS
    return figures


def _composed(motion: Motion, chain: tuple[str, ...]) -> torch.Tensor:
    """Rotation of the last joint of a chain against the parent of its first, (T, 4)."""
    first, *others = (motion.local_rotations[:, canonical_index(joint)] for joint in chain)
    for rotation in others:
        first = roma.quat_product(first, rotation)
    return first


def statistics_table(takes: Mapping[str, Take]) -> pd.DataFrame:
    """Return the figures of takes, one row each."""
    return pd.DataFrame.from_dict({name: take_statistics(take) for name, take in takes.items()}, orient="index")


def quantile_table(table: pd.DataFrame, groups: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the quantiles ``10%``, ``50%`` and ``90%`` of each figure, one row a figure; NaN are left out.

    Those of recordings may be published where the recordings may not.

    Args:
        table: as `statistics_table` gives it.
        groups: for each row the group it belongs to, such as its recording; all groups count alike, so that long
            recordings do not outweigh short ones. By default all rows count alike.
    """
    names = pd.Series(list(table.index if groups is None else groups))
    weights = (1 / names.map(names.value_counts())).to_numpy(dtype=float)
    levels = {"10%": 0.1, "50%": 0.5, "90%": 0.9}
    rows = {
        str(column): _weighted_quantiles(values.to_numpy(dtype=float), weights, list(levels.values()))
        for column, values in table.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(levels)).rename_axis("statistic")


def _weighted_quantiles(values: np.ndarray, weights: np.ndarray, levels: list[float]) -> np.ndarray:
    """Quantiles between values that stand in the middle of their weights; with equal ones Hazen's definition."""
    order = np.argsort(values, kind="stable")
    order = order[~np.isnan(values[order])]
    if not len(order):
        return np.full(len(levels), math.nan)
    sorted_weights = weights[order]
    places = (np.cumsum(sorted_weights) - sorted_weights / 2) / sorted_weights.sum()
    return np.asarray(np.interp(levels, places, values[order]))


def realism_report(real: pd.DataFrame, authored: pd.DataFrame) -> pd.DataFrame:
    """Compare authored motions with the range of real ones.

    Args:
        real: quantiles as `quantile_table` gives them.
        authored: figures as `statistics_table` gives them, at least one row.

    Returns:
        One row a figure: ``real 10%``, ``real 50%`` and ``real 90%``; the same of ``authored``; ``inside``, the share
        of authored motions between the first and the third; and ``verdict``, whether the authored median is ``low``,
        ``inside`` or ``high``.

    Raises:
        DatasetError: the two have other figures, or there is no authored motion.
    """
    if authored.empty or set(real.index) != set(authored.columns):
        raise DatasetError(
            f"a report needs authored motions with the figures of the real ones, {', '.join(map(str, real.index))}; "
            f"got {len(authored)} with {', '.join(map(str, authored.columns)) or 'none'}"
        )
    own = quantile_table(authored).reindex(real.index)
    low, high, median = real["10%"], real["90%"], own["50%"]
    report = pd.concat([real.add_prefix("real "), own.add_prefix("authored ")], axis=1)
    known = authored[real.index]
    report["inside"] = ((known >= low) & (known <= high)).sum() / known.notna().sum()
    report["verdict"] = np.select([median < low, median > high, median.notna()], ["low", "high", "inside"], "undefined")
    return report


def report_text(report: pd.DataFrame) -> str:
    """Return a report as lines of plain text, what lies outside last and marked."""
    width = max(len(str(name)) for name in report.index)
    lines = [f"{'statistic':{width}}  {'real 10-90 %':>17}  {'authored 10-50-90 %':>25}  inside"]
    is_out = report["verdict"] != "inside"
    for name, row in pd.concat([report[~is_out], report[is_out]]).iterrows():
        real = f"{row['real 10%']:.4g} - {row['real 90%']:.4g}"
        authored = " ".join(f"{row[f'authored {q}']:.4g}" for q in ("10%", "50%", "90%"))
        mark = "" if row["verdict"] == "inside" else f"  {row['verdict']}"
        lines.append(f"{name!s:{width}}  {real:>17}  {authored:>25}  {row['inside']:6.0%}{mark}")
    lines.append(f"{int((~is_out).sum())} of {len(report)} medians lie inside the range of the real motions")
    return "\n".join(lines)
