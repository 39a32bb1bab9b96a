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
            Column("mse", "m", "lower", "mean squared joint distance to the ground truth over height, start aligned"),
            Column("mse_local", "m", "lower", "the same with every frame's root at one place"),
            Column("rms_distance", "", "lower", "root mean square joint distance over height", default=False),
        ),
    ),
    MetricInfo(
        "r2et",
        "retargetbench.metrics.r2et:R2etProtocol",
        (
            Column("mse_r2et", "cm", "lower", "protocol of NKN, PMnet and R2ET: 120-frame windows, start aligned"),
            Column("mse_r2et_local", "cm", "lower", "the same without root motion and heading"),
        ),
    ),
    MetricInfo(
        "san",
        "retargetbench.metrics.san:SanProtocol",
        (
            Column("mse_san", "", "lower", "SAN's code: mean of squared coordinate differences over squared height"),
            Column("mse_san_distance", "", "lower", "SAN's paper: mean joint distance over height"),
        ),
    ),
    MetricInfo(
        "contact",
        "retargetbench.metrics.contact:ContactError",
        (
            Column("contact_error", "", "lower", "how much farther hands are from the body than in the source"),
            Column("contact_error_two_sided", "", "lower", "the same, hands that come too close counted too"),
            Column(
                "contact_error_height",
                "",
                "lower",
                "text form, distances over height, in percent squared",
                default=False,
            ),
        ),
    ),
    MetricInfo(
        "penetration",
        "retargetbench.metrics.penetration:Penetration",
        (
            Column("penetration", "%", "lower", "arm vertices inside the rest of the body"),
            Column("penetration_area", "%", "lower", "the same by area, comparable between meshes"),
            Column("penetration_depth", "m", "lower", "deepest arm vertex of the clip"),
            Column("penetration_left_arm", "%", "lower", "of the left arm's vertices", default=False),
            Column("penetration_right_arm", "%", "lower", "of the right arm's vertices", default=False),
            Column("penetration_limbs", "%", "lower", "arm and leg vertices inside torso and head", default=False),
            Column("penetration_self", "%", "lower", "limb vertices inside anything but their limb", default=False),
            Column(
                "penetration_nearest_normal",
                "%",
                "lower",
                "arms by nearest vertex and normal as in papers, unreliable",
                default=False,
            ),
            Column("penetration_guard", "%", "none", "arm vertices that can never count", default=False),
        ),
    ),
    MetricInfo(
        "smoothness",
        "retargetbench.metrics.smoothness:Smoothness",
        (
            Column("acceleration", "m/s²", "none", "mean joint acceleration"),
            Column("acceleration_ratio", "", "none", "acceleration over the source's, each over its height"),
            Column("jerk", "m/s³", "none", "mean joint jerk"),
            Column("jerk_ratio", "", "none", "jerk over the source's, each over its height"),
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
