"""Figures of how motions move, and their comparison with real ones."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import roma
import torch
from scipy.spatial.transform import Rotation

from retargetbench.datasets.opening import open_dataset
from retargetbench.datasets.studio.statistics import (
    BANDS,
    JOINT_GROUPS,
    Take,
    angular_velocities,
    band_shares,
    cut_into_windows,
    quantile_table,
    realism_report,
    report_text,
    rotation_spread,
    statistics_table,
    take_statistics,
    takes_from_bvh,
)
from retargetbench.errors import CharacterError, DatasetError
from retargetbench.formats.bvh import BvhFile, write_bvh
from retargetbench.motion import Motion
from retargetbench.skeleton import CANONICAL_JOINTS, Skeleton, canonical_index

FPS = 30.0


@pytest.fixture(scope="module")
def skeleton():
    return open_dataset("capsules").character("stout").skeleton.to_canonical()


def motion_of(angles, *, frames=76, fps=FPS, root=None):
    """A motion whose joints turn by rotation vectors: joint → (T, 3) radians."""
    rotations = torch.zeros(frames, 22, 4, dtype=torch.float64)
    rotations[..., 3] = 1
    for joint, vectors in angles.items():
        rotations[:, canonical_index(joint)] = roma.rotvec_to_unitquat(torch.as_tensor(vectors, dtype=torch.float64))
    return Motion(torch.zeros(frames, 3, dtype=torch.float64) if root is None else root, rotations, fps)


def about_x(angles):
    return np.stack([angles, np.zeros_like(angles), np.zeros_like(angles)], -1)


def seconds(frames=76, fps=FPS):
    return np.arange(frames) / fps


def wavy(skeleton, seed=0, frames=76, fps=FPS, tempo=1.0):
    """All joints and the hips move on smooth random waves."""
    random = np.random.default_rng(seed)
    time = seconds(frames, fps)[:, None]
    angles = {
        joint: sum(
            random.normal(0, 0.2, 3) * np.sin(2 * math.pi * tempo * f * time + random.uniform(0, 6, 3))
            for f in (0.4, 1.1, 2.3)
        )
        for joint in CANONICAL_JOINTS
    }
    root = torch.from_numpy(np.concatenate([0.1 * np.sin(3 * tempo * time), 1 + 0 * time, 0.2 * tempo * time], 1))
    return Take(motion_of(angles, frames=frames, fps=fps, root=root), skeleton)


def test_a_take_needs_a_motion_of_its_skeletons_joints(skeleton):
    with pytest.raises(CharacterError, match="22 joints"):
        Take(Motion(torch.zeros(9, 3), torch.tensor([0.0, 0, 0, 1]).expand(9, 5, 4), FPS), skeleton)


def test_a_joint_that_turns_steadily_has_that_speed_and_only_slow_energy(skeleton):
    take = Take(motion_of({"LeftForeArm": about_x(1.5 * seconds())}), skeleton)
    figures = take_statistics(take)
    assert figures["speed_elbows_deg_s"] == pytest.approx(math.degrees(1.5) / 2)  # the right elbow rests
    assert figures["speed_knees_deg_s"] == pytest.approx(0, abs=1e-9)
    assert figures["energy_0_1_hz"] == pytest.approx(1, abs=0.02)  # what the Hann window leaks


def test_angular_velocities_equal_those_of_scipy(skeleton):
    motion = wavy(skeleton).motion
    for joint in range(22):
        rotation = Rotation.from_quat(motion.local_rotations[:, joint].numpy())
        expected = (rotation[:-1].inv() * rotation[1:]).as_rotvec() * FPS
        np.testing.assert_allclose(angular_velocities(motion)[:, joint].numpy(), expected, atol=1e-9)


@pytest.mark.parametrize(("hertz", "band"), [(0.4, 0), (1.5, 1), (3.0, 2), (6.0, 3), (11.0, 4)])
def test_an_oscillation_lies_in_its_band(hertz, band):
    velocities = torch.zeros(300, 22, 3, dtype=torch.float64)
    velocities[:, 7, 1] = torch.from_numpy(np.cos(2 * math.pi * hertz * seconds(300)))
    shares = band_shares(velocities, FPS)
    assert shares[BANDS[band]] > 0.97
    assert sum(shares.values()) == pytest.approx(1)


def test_band_shares_equal_a_plain_fourier_transform():
    velocities = torch.randn(75, 22, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    # Periodic Hann window, as in spectral analysis.
    window = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(75) / 75)
    energy = np.zeros(38)
    for signal in velocities.reshape(75, -1).T.numpy():
        spectrum = [
            sum(w * x * np.exp(-2j * math.pi * k * n / 75) for n, (w, x) in enumerate(zip(window, signal, strict=True)))
            for k in range(38)
        ]
        energy += np.abs(spectrum) ** 2 * np.where(np.arange(38) == 0, 1, 2)
    frequencies = np.arange(38) * FPS / 75
    for (low, high), share in band_shares(velocities, FPS).items():
        inside = (frequencies >= low) & (frequencies < high)
        assert share == pytest.approx(energy[inside].sum() / energy.sum())


def test_what_stands_still_has_no_spectrum():
    assert all(math.isnan(share) for share in band_shares(torch.zeros(60, 22, 3), FPS).values())


def test_spread_is_the_standard_deviation_of_the_angle_wherever_the_mean_is():
    angles = np.array([-0.3, 0.3] * 20)
    q = roma.rotvec_to_unitquat(torch.from_numpy(about_x(angles)))
    expected = pytest.approx(math.degrees(0.3))
    assert rotation_spread(q) == expected
    turned = roma.quat_product(roma.random_unitquat().double().expand_as(q), q)
    assert rotation_spread(turned) == expected
    signs = torch.tensor([1.0, -1.0, -1.0, 1.0]).repeat(10)[:, None]
    assert rotation_spread(q * signs) == expected
    assert rotation_spread(q[:1].expand(9, 4)) == pytest.approx(0, abs=1e-5)


def test_spread_of_rotations_about_many_axes_equals_scipys():
    rotations = Rotation.from_rotvec(np.random.default_rng(2).normal(0, 0.4, (50, 3)))
    away = (rotations.mean().inv() * rotations).magnitude()
    spread = rotation_spread(torch.from_numpy(rotations.as_quat()))
    assert spread == pytest.approx(math.degrees(math.sqrt((away**2).mean())))


def test_how_a_bend_is_shared_over_the_spine_does_not_matter_to_its_spread(skeleton):
    bend = about_x(0.4 * np.sin(5 * seconds()))
    in_one = take_statistics(Take(motion_of({"Spine1": bend}), skeleton))
    shared = motion_of(dict.fromkeys(JOINT_GROUPS["spine"], bend / 3))
    in_three = take_statistics(Take(shared, skeleton))
    assert in_three["spread_spine_deg"] == pytest.approx(in_one["spread_spine_deg"])
    assert in_one["spread_spine_deg"] == pytest.approx(math.degrees(np.std(bend[:, 0])), rel=1e-3)


def test_translations_are_measured_in_heights(skeleton):
    time = torch.from_numpy(seconds())
    root = torch.stack([0.5 * 4.0 * time**2, 0 * time, 0 * time], -1)
    figures = take_statistics(Take(motion_of({}, root=root), skeleton))
    assert figures["acceleration_heights_s2"] == pytest.approx(4.0 / skeleton.height, rel=1e-4)
    assert figures["jerk_heights_s3"] == pytest.approx(0, abs=1e-6)
    assert figures["hips_speed_heights_s"] == pytest.approx(4.0 * 1.25 / skeleton.height, rel=1e-4)


def test_size_does_not_matter(skeleton):
    take = wavy(skeleton)
    large = Skeleton(skeleton.names, skeleton.parents, 2.5 * skeleton.offsets, skeleton.canonical)
    scaled = Motion(2.5 * take.motion.root_translation, take.motion.local_rotations, FPS)
    assert take_statistics(Take(scaled, large)) == pytest.approx(take_statistics(take))


def test_frame_rate_does_not_matter(skeleton):
    slow, fast = wavy(skeleton), wavy(skeleton, frames=151, fps=60.0)
    assert take_statistics(fast) == pytest.approx(take_statistics(slow), abs=1e-9)


def test_short_motions_are_refused(skeleton):
    with pytest.raises(DatasetError, match=r"at least 1 s, this one has 0\.50 s"):
        take_statistics(wavy(skeleton, frames=16))


def test_windows_are_equally_long_and_reach_from_begin_to_end(skeleton):
    take = wavy(skeleton, frames=250)
    windows = cut_into_windows({"long": take, "short": wavy(skeleton, frames=50)})
    assert list(windows) == ["long@0.00", "long@2.90", "long@5.80", "short@0.00"]
    assert [window.motion.frame_count for window in windows.values()] == [76, 76, 76, 50]
    last = windows["long@5.80"].motion
    torch.testing.assert_close(last.local_rotations[-1], take.motion.local_rotations[-1])


def test_files_are_read_by_character_and_motion_in_their_units(skeleton, tmp_path):
    take = wavy(skeleton)
    bvh = BvhFile(
        skeleton.names,
        skeleton.parents,
        100 * skeleton.offsets.double().numpy(),
        {},
        100 * take.motion.root_translation.numpy(),
        take.motion.local_rotations.numpy(),
        1 / FPS,
    )
    (tmp_path / "ann").mkdir()
    write_bvh(tmp_path / "ann" / "wave.bvh", bvh)
    takes = takes_from_bvh(tmp_path)
    assert list(takes) == ["ann/wave"]
    # Six decimals of degrees and centimetres, which jerk multiplies by 30³.
    assert take_statistics(takes["ann/wave"]) == pytest.approx(take_statistics(take), rel=1e-3, abs=1e-4)


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="no BVH file"):
        takes_from_bvh(tmp_path)


def test_quantiles_without_groups_are_hazens():
    values = np.random.default_rng(3).normal(size=23)
    (row,) = quantile_table(pd.DataFrame({"a": values})).to_numpy()
    np.testing.assert_allclose(row, np.quantile(values, [0.1, 0.5, 0.9], method="hazen"))


def test_long_recordings_do_not_outweigh_short_ones():
    long, short = np.arange(90.0), np.array([1000.0, 1001.0])
    table = pd.DataFrame({"a": np.concatenate([long, short])})
    row = quantile_table(table, ["long"] * 90 + ["short"] * 2).loc["a"]
    assert row["10%"] == pytest.approx(17.5, abs=1)  # 20 % of the long one
    assert row["90%"] >= 1000
    assert quantile_table(table).loc["a", "90%"] < 90


def test_undefined_figures_are_left_out_of_quantiles():
    table = pd.DataFrame({"a": [1.0, math.nan, 3.0], "b": [math.nan] * 3})
    quantiles = quantile_table(table)
    assert quantiles.loc["a", "50%"] == 2
    assert quantiles.loc["b"].isna().all()


def test_motions_are_inside_their_own_range_and_faster_ones_are_high(skeleton):
    own = statistics_table({str(seed): wavy(skeleton, seed) for seed in range(12)})
    real = quantile_table(own)
    same = realism_report(real, own)
    assert set(same["verdict"]) == {"inside"}
    assert (same["inside"] >= 0.8).all()
    fast = statistics_table({"fast": wavy(skeleton, 20, tempo=2.0), "faster": wavy(skeleton, 21, tempo=2.2)})
    report = realism_report(real, fast)
    assert (report.loc[["speed_elbows_deg_s", "jerk_heights_s3", "energy_4_8_hz"], "verdict"] == "high").all()
    assert report.loc["energy_0_1_hz", "verdict"] == "low"
    assert report.loc["speed_elbows_deg_s", "inside"] == 0


def test_a_report_of_what_stands_still_says_that_it_has_no_spectrum(skeleton):
    real = quantile_table(statistics_table({"a": wavy(skeleton), "b": wavy(skeleton, 1)}))
    report = realism_report(real, statistics_table({"still": Take(motion_of({}), skeleton)}))
    assert report.loc["energy_2_4_hz", "verdict"] == "undefined"
    assert report.loc["speed_spine_deg_s", "verdict"] == "low"
    assert "undefined" in report_text(report)


def test_the_text_puts_what_is_out_last_and_counts(skeleton):
    table = statistics_table({"a": wavy(skeleton), "b": wavy(skeleton, 1), "c": wavy(skeleton, 2)})
    real = quantile_table(table)
    real.loc["speed_wrists_deg_s"] = [900.0, 950.0, 999.0]
    lines = report_text(realism_report(real, table)).splitlines()
    assert len(lines) == len(real) + 2
    assert lines[-2].startswith("speed_wrists_deg_s")
    assert lines[-2].endswith("0%  low")
    assert lines[-1] == f"{len(real) - 1} of {len(real)} medians lie inside the range of the real motions"


@pytest.mark.parametrize("authored", [pd.DataFrame(), pd.DataFrame({"b": [1.0]})])
def test_tables_of_other_figures_are_refused(authored):
    with pytest.raises(DatasetError, match=r"figures of the real ones, a; got \d with"):
        realism_report(quantile_table(pd.DataFrame({"a": [1.0, 2.0]})), authored)


@pytest.mark.shared
def test_real_clips_lie_where_they_were_measured(shared_dir):
    takes = takes_from_bvh(shared_dir / "data" / "r2et_mixamo")
    assert len(takes) == 13
    table = statistics_table(cut_into_windows(takes))
    recordings = [name.rsplit("@", 1)[0] for name in table.index]
    assert set(recordings) == set(takes)
    real = quantile_table(table, recordings)
    assert tuple(real.loc["speed_elbows_deg_s"]) == pytest.approx((56.0, 128.2, 203.1), abs=0.1)
    assert tuple(real.loc["spread_spine_deg"]) == pytest.approx((4.87, 10.22, 27.61), abs=0.01)
    # A gesture made standing moves the legs less than any dance.
    assert table.loc["Ortiz/Thankful@0.00", "speed_knees_deg_s"] == table["speed_knees_deg_s"].min()
