"""Biovision hierarchy (BVH) motion files: a reader that takes what real exporters write, and a writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from retargetbench.errors import CharacterError, UsageError
from retargetbench.formats._bvh_text import parse_bvh
from retargetbench.formats._files import read_limited, write_atomically
from retargetbench.formats._rotations import ORDERS, euler_to_quaternion, hemisphere_continuous, quaternion_to_euler

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from retargetbench.formats._bvh_text import BvhText
    from retargetbench.formats._rotations import Array

MAX_FILE_BYTES = 128 << 20
"""Larger files are refused."""

CONSTANT_TOLERANCE = 1e-4
"""A position channel that moves by less than this share of the longest bone counts as constant."""

_RATE_TOLERANCE = 5e-6  # seconds: half a unit of the fifth decimal, as coarse as exporters print the frame time


@dataclass(frozen=True, eq=False)
class BvhFile:
    """A BVH file in its own units and axes; nothing is converted but angles to quaternions.

    Attributes:
        names: joints as the file names and orders them, without End Sites.
        parents: index of each joint's parent, -1 for the root, which comes first.
        offsets: rest offset to the parent, (J, 3) file units; row 0 is the root's OFFSET.
        end_sites: offset of a joint's End Site, (3,) file units, by joint index.
        root_positions: (T, 3) file units, absolute: the root's position channels replace its OFFSET.
        rotations: local-to-parent unit quaternions xyzw, (T, J, 4), hemisphere-continuous in time.
        frame_time: seconds from frame to frame.
        warnings: what was left out or is odd, one line each.

    Raises:
        CharacterError: shapes do not fit each other, a parent does not come before its child, there is no frame, or
            the frame time is not 0.001 to 1 s.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    offsets: Array
    end_sites: Mapping[int, Array]
    root_positions: Array
    rotations: Array
    frame_time: float
    warnings: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "end_sites", MappingProxyType(dict(self.end_sites)))
        count, frames = len(self.names), len(self.root_positions)
        if not count or not frames or not 0.001 <= self.frame_time <= 1.0:
            raise CharacterError(
                f"at least one joint, one frame and a frame time of 0.001 to 1 s are needed, got {count} joints, "
                f"{frames} frames and {self.frame_time} s"
            )
        shapes = (self.offsets.shape, self.root_positions.shape, self.rotations.shape)
        if shapes != ((count, 3), (frames, 3), (frames, count, 4)) or len(self.parents) != count:
            raise CharacterError(
                f"{count} joints and {frames} frames need {count} parents, offsets ({count}, 3), root_positions "
                f"({frames}, 3) and rotations ({frames}, {count}, 4), got {len(self.parents)} parents and "
                f"{', '.join(map(str, shapes))}"
            )
        if any((parent != -1) if j == 0 else not 0 <= parent < j for j, parent in enumerate(self.parents)):
            raise CharacterError(f"the root comes first and every parent before its child, got {self.parents}")

    @property
    def fps(self) -> float:
        """Frames per second; a frame time rounded in print, such as 0.016667, is taken as the whole rate it means."""
        whole = round(1.0 / self.frame_time)
        return float(whole) if abs(1.0 / whole - self.frame_time) <= _RATE_TOLERANCE else 1.0 / self.frame_time


def read_bvh(path: str | PathLike[str]) -> BvhFile:
    """Read a BVH file.

    The rotation of a joint is the product of its axis rotations in the order of its CHANNELS. Position channels of
    joints other than the root: constant ones replace the joint's OFFSET, varying ones are left out with a warning.

    Raises:
        FileFormatError: the file cannot be read as BVH; the message names the line and the value.
    """
    text = parse_bvh(path, read_limited(path, MAX_FILE_BYTES))
    warnings = list(text.warnings)
    offsets = np.array([joint.offset for joint in text.joints])
    longest = float(np.linalg.norm(offsets[1:], axis=-1).max(initial=0.0))
    rotations = np.empty((len(text.values), len(text.joints), 4))
    root_positions = np.repeat(offsets[:1], len(text.values), axis=0)
    column = 0
    for j, joint in enumerate(text.joints):
        own = text.values[:, column : column + len(joint.channels or ())]
        column += own.shape[1]
        order, places = joint.channel_places("rotation")
        rotations[:, j] = hemisphere_continuous(euler_to_quaternion(own[:, places], order))
        moved, places = joint.channel_places("position")
        axes = ["XYZ".index(axis) for axis in moved]
        if j == 0:
            root_positions[:, axes] = own[:, places]
        elif axes:
            amplitude = float(np.ptp(own[:, places], axis=0).max())
            if amplitude <= CONSTANT_TOLERANCE * longest:
                offsets[j, axes] = own[0, places]
            else:
                warnings.append(
                    f"joint {joint.name!r} moves against its parent by up to {amplitude:.4g} file units; its position "
                    f"channels are left out and it stays at its OFFSET {tuple(offsets[j].tolist())}"
                )
    return BvhFile(
        names=tuple(joint.name for joint in text.joints),
        parents=tuple(joint.parent for joint in text.joints),
        offsets=offsets,
        end_sites=_end_sites(text),
        root_positions=root_positions,
        rotations=rotations,
        frame_time=text.frame_time,
        warnings=tuple(warnings),
    )


def _end_sites(text: BvhText) -> dict[int, Array]:
    return {j: np.array(joint.end_site) for j, joint in enumerate(text.joints) if joint.end_site is not None}


def write_bvh(path: str | PathLike[str], bvh: BvhFile, *, order: str = "ZYX", decimals: int = 6) -> None:
    """Write a BVH file, atomically.

    The root gets three position and three rotation channels, every other joint three rotation channels. Joints
    are written depth first, as the format demands, so a file may list them in another order than ``bvh``. A leaf
    without an End Site gets one of length zero, which some programs need. Angles are continuous in time.

    Args:
        path: where to write.
        bvh: the motion; its rotations must be unit quaternions.
        order: rotation channels of every joint, one of `ORDERS`.
        decimals: digits behind the point; 6 keep every joint of a person in centimetres within 5e-5 cm.

    Raises:
        UsageError: the order is unknown, a joint name cannot stand in a BVH file, or the file cannot be written.
    """
    if order not in ORDERS:
        raise UsageError(f"unknown rotation order {order!r}; accepted are {', '.join(ORDERS)}")
    for name in bvh.names:
        if name != name.strip() or not name or any(mark in name for mark in "{}\r\n"):
            raise UsageError(f"joint name {name!r} cannot stand in a BVH file; rename it without braces or line ends")
    lines, joints = _hierarchy_lines(bvh, order, decimals)
    angles = np.unwrap(quaternion_to_euler(bvh.rotations[:, joints], order), axis=0, period=360.0)
    values = np.concatenate([bvh.root_positions, angles.reshape(len(angles), -1)], axis=1)
    lines += ["MOTION", f"Frames: {len(values)}", f"Frame Time: {bvh.frame_time:.9g}"]
    row_format = " ".join([f"%.{decimals}f"] * values.shape[1])
    lines += [row_format % tuple(row) for row in values.tolist()]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _hierarchy_lines(bvh: BvhFile, order: str, decimals: int) -> tuple[list[str], list[int]]:
    """Return the lines of the hierarchy and the joints in the order of their channels."""
    children: list[list[int]] = [[] for _ in bvh.names]
    for child, parent in enumerate(bvh.parents[1:], start=1):
        children[parent].append(child)

    def offset(vector: Array) -> str:
        return "OFFSET " + " ".join(f"{value:.{decimals}f}" for value in vector.tolist())

    rotation_channels = " ".join(f"{axis}rotation" for axis in order)
    lines, joints = ["HIERARCHY"], []
    # A stack of joints and of closing braces: chains may be deeper than Python's recursion.
    todo: list[tuple[int | None, int]] = [(0, 0)]
    while todo:
        entry, depth = todo.pop()
        tabs = "\t" * depth
        if entry is None:
            lines.append(f"{tabs}}}")
            continue
        j = entry
        joints.append(j)
        channels = f"3 {rotation_channels}" if j else f"6 Xposition Yposition Zposition {rotation_channels}"
        lines += [f"{tabs}{'JOINT' if j else 'ROOT'} {bvh.names[j]}", f"{tabs}{{"]
        lines += [f"{tabs}\t{offset(bvh.offsets[j])}", f"{tabs}\tCHANNELS {channels}"]
        if j in bvh.end_sites or not children[j]:
            end_site = offset(bvh.end_sites.get(j, np.zeros(3)))
            lines += [f"{tabs}\tEnd Site", f"{tabs}\t{{", f"{tabs}\t\t{end_site}", f"{tabs}\t}}"]
        todo.append((None, depth))
        todo += [(child, depth + 1) for child in reversed(children[j])]
    return lines, joints
