"""The metrics: one module per family. What stands here is light; the modules are imported on first use.

To add a metric, write a `retargetbench.metrics.base.Metric` and list it here, or register it from a plugin
(docs/add-a-metric.md).
"""

from __future__ import annotations

from retargetbench.registry import Column, MetricInfo

BUILTIN_METRICS: tuple[MetricInfo, ...] = (
    MetricInfo(
        "joints",
        "retargetbench.metrics.joints:JointError",
        (
            Column(
                "mse", "m", "lower", "mean squared joint distance to the ground truth over height, clip starts aligned"
            ),
            Column(
                "mse_local",
                "m",
                "lower",
                "mean squared joint distance to the ground truth over height, roots at one place in every frame",
            ),
            Column(
                "rms_distance",
                "",
                "lower",
                "root mean square joint distance to the ground truth over height",
                default=False,
            ),
        ),
    ),
    MetricInfo(
        "r2et",
        "retargetbench.metrics.r2et:R2etProtocol",
        (
            Column(
                "mse_r2et",
                "cm",
                "lower",
                "joint error by the protocol of NKN, PMnet and R2ET: windows of 2 s, window starts aligned",
            ),
            Column(
                "mse_r2et_local",
                "cm",
                "lower",
                "joint error by the protocol of NKN, PMnet and R2ET, without root motion and heading",
            ),
        ),
    ),
    MetricInfo(
        "san",
        "retargetbench.metrics.san:SanProtocol",
        (
            Column(
                "mse_san",
                "",
                "lower",
                "joint error by SAN's code: mean squared coordinate difference over squared height",
            ),
            Column("mse_san_distance", "", "lower", "joint error by SAN's paper: mean joint distance over height"),
        ),
    ),
    MetricInfo(
        "contact",
        "retargetbench.metrics.contact:ContactError",
        (
            Column(
                "contact_error",
                "",
                "lower",
                "how much farther hands are from the body than in the source, squared, in arm radii",
            ),
            Column(
                "contact_error_two_sided",
                "",
                "lower",
                "how much farther from or closer to the body hands are than in the source, squared, in arm radii",
            ),
            Column(
                "contact_error_height",
                "",
                "lower",
                "how much farther hands are from the body than in the source, squared, in percent of height",
                default=False,
            ),
        ),
    ),
    MetricInfo(
        "penetration",
        "retargetbench.metrics.penetration:Penetration",
        (
            Column("penetration", "%", "lower", "arm vertices inside the rest of the body"),
            Column(
                "penetration_area",
                "%",
                "lower",
                "area of the arms' skin inside the rest of the body, comparable between meshes",
            ),
            Column(
                "penetration_depth",
                "m",
                "lower",
                "depth of the deepest arm vertex of the clip inside the rest of the body",
            ),
            Column(
                "penetration_left_arm",
                "%",
                "lower",
                "vertices of the left arm inside the rest of the body",
                default=False,
            ),
            Column(
                "penetration_right_arm",
                "%",
                "lower",
                "vertices of the right arm inside the rest of the body",
                default=False,
            ),
            Column("penetration_limbs", "%", "lower", "arm and leg vertices inside torso and head", default=False),
            Column(
                "penetration_self",
                "%",
                "lower",
                "arm and leg vertices inside anything but their own limb",
                default=False,
            ),
            Column(
                "penetration_nearest_normal",
                "%",
                "lower",
                "arm vertices inside the body by nearest vertex and normal, as in papers, unreliable",
                default=False,
            ),
            Column(
                "penetration_guard",
                "%",
                "none",
                "arm vertices that never count in penetration, being too close to the body at rest",
                default=False,
            ),
        ),
    ),
    MetricInfo(
        "smoothness",
        "retargetbench.metrics.smoothness:Smoothness",
        (
            Column("acceleration", "m/s²", "none", "mean joint acceleration"),
            Column("acceleration_ratio", "", "none", "mean joint acceleration over the source's, each over its height"),
            Column("jerk", "m/s³", "none", "mean joint jerk"),
            Column("jerk_ratio", "", "none", "mean joint jerk over the source's, each over its height"),
        ),
    ),
    MetricInfo(
        "feet",
        "retargetbench.metrics.feet:Feet",
        (
            Column("foot_skate", "m/s", "lower", "sliding of feet that are planted in the source"),
            Column("ground_penetration", "m", "lower", "depth of the lowest sole below the floor"),
            Column("floating", "m", "lower", "height of the lowest sole while the source stands"),
        ),
    ),
)
"""Metrics of the core, by family."""

SPEED = Column("frames_per_second", "1/s", "higher", "frames a method retargets in a second, warmed up")
"""Measured by the predict step, not by a metric."""
