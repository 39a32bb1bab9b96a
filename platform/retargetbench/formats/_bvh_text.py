"""The text of a BVH file: its hierarchy and its numbers, checked against each other before memory is taken."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from retargetbench.errors import FileFormatError
from retargetbench.formats._files import shown

if TYPE_CHECKING:
    from os import PathLike

    from retargetbench.formats._rotations import Array

MAX_JOINTS = 4096
MAX_VALUES = 8_000_000
"""Angles that are accepted: ten minutes at 60 fps of a rig with 70 joints."""

CHANNELS = ("Xposition", "Yposition", "Zposition", "Xrotation", "Yrotation", "Zrotation")

_MAX_NAME_BYTES = 256
_END_SITE = -1
_LARGEST = 1e15
_CHUNK_BYTES = 1 << 20

_TOKEN = re.compile(rb"[{}]|[^\s{}]+")
_REST_OF_LINE = re.compile(rb"[^{}\r\n]*")
_MOTION_HEADER = re.compile(rb"\s*Frames?\s*:?\s*(\S+)\s+Frame\s*Time\s*:?\s*(\S+)", re.IGNORECASE)
_SPACE = re.compile(rb"\s")


@dataclass
class Joint:
    """One ROOT or JOINT block as it stands in the file."""

    name: str
    parent: int
    offset: tuple[float, ...] = ()
    channels: tuple[str, ...] | None = None
    end_site: tuple[float, ...] | None = None

    def channel_places(self, kind: str) -> tuple[str, list[int]]:
        """Return the axes of its "position" or "rotation" channels in file order, and their places in its values."""
        places = [place for place, channel in enumerate(self.channels or ()) if channel.endswith(kind)]
        return "".join((self.channels or ())[place][0] for place in places), places


@dataclass
class BvhText:
    """What a BVH file says: joints, the frame time in seconds and one row of channel values per frame."""

    joints: list[Joint]
    frame_time: float
    values: Array
    warnings: list[str] = field(default_factory=list)


class _Scanner:
    """Walks over the tokens of a text, without recursion and without splitting all of it at once."""

    def __init__(self, path: str | PathLike[str], data: bytes, start: int) -> None:
        self.path, self.data = path, data
        self.position = self.token_start = start

    def fail(self, reason: str, position: int | None = None) -> NoReturn:
        at = self.token_start if position is None else position
        raise FileFormatError(self.path, reason, line=self.data.count(b"\n", 0, at) + 1)

    def token(self) -> bytes:
        match = _TOKEN.search(self.data, self.position)
        if match is None:
            self.token_start = len(self.data)
            self.fail("the file ends before its MOTION section; it is cut off or no BVH file")
        self.token_start, self.position = match.span()
        return match.group()

    def name(self) -> str:
        """Return the rest of the line: names of some exporters have spaces."""
        match = _REST_OF_LINE.match(self.data, self.position)
        assert match is not None
        self.position = match.end()
        name = match.group().strip()
        if not 0 < len(name) <= _MAX_NAME_BYTES:
            self.fail(f"a joint name must have 1 to {_MAX_NAME_BYTES} bytes, got {len(name)}: {shown(name)}")
        return name.decode("utf-8", "backslashreplace")

    def vector(self) -> tuple[float, ...]:
        return tuple(self.number(self.token()) for _ in range(3))

    def number(self, token: bytes) -> float:
        value = _find_number(token)
        if value is None:
            self.fail(f"{shown(token)} is no finite number")
        return value


def parse_bvh(path: str | PathLike[str], data: bytes) -> BvhText:
    """Parse the content of a BVH file.

    Raises:
        FileFormatError: it is no BVH file; the message gives the line and the value.
    """
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")  # line ends of old Macs
    scanner = _Scanner(path, data, 3 if data.startswith(b"\xef\xbb\xbf") else 0)
    first = scanner.token()
    if first.lower() != b"hierarchy":
        scanner.fail(f"a BVH file begins with HIERARCHY, this one with {shown(first)}")
    warnings: list[str] = []
    joints = _HierarchyParser(scanner, warnings).parse()
    width = sum(len(joint.channels or ()) for joint in joints)
    if width == 0:
        scanner.fail("no joint has CHANNELS, so the file holds no motion")
    match = _MOTION_HEADER.match(data, scanner.position)
    if match is None:
        scanner.fail("MOTION must be followed by 'Frames: <count>' and 'Frame Time: <seconds>'")
    frames = _frame_count(scanner, match, width, len(joints))
    frame_time = _find_number(match.group(2))
    if frame_time is None or not 0.001 <= frame_time <= 1.0:
        scanner.fail(f"Frame Time must be 0.001 to 1 seconds, got {shown(match.group(2))}", match.start(2))
    values = _parse_values(scanner, match.end(), frames, width)
    return BvhText(joints, frame_time, values, warnings)


class _HierarchyParser:
    """Reads all blocks up to the word MOTION, with a stack of open blocks in place of recursion."""

    def __init__(self, scanner: _Scanner, warnings: list[str]) -> None:
        self.scanner, self.warnings = scanner, warnings
        self.joints: list[Joint] = []
        self.known: set[str] = set()
        self.open_blocks: list[int] = []  # joint indices, or _END_SITE
        self.declared: int | None = None  # the block whose '{' comes next

    def parse(self) -> list[Joint]:
        handlers = {
            b"}": self._close,
            b"root": self._root,
            b"joint": self._joint,
            b"end": self._end_site,
            b"offset": self._offset,
            b"channels": self._channels,
        }
        while True:
            token = self.scanner.token()
            keyword = token.lower()
            if self.declared is not None:
                if keyword != b"{":
                    self.scanner.fail(f"expected '{{', got {shown(token)}")
                self.open_blocks.append(self.declared)
                self.declared = None
            elif keyword == b"motion":
                if self.open_blocks or not self.joints:
                    self.scanner.fail(f"MOTION comes before the end of {self._block_name()}")
                return self.joints
            elif keyword in handlers:
                handlers[keyword]()
            else:
                accepted = "ROOT, JOINT, End Site, OFFSET, CHANNELS, '}' or MOTION"
                self.scanner.fail(f"expected {accepted}, got {shown(token)}")

    def _block_name(self) -> str:
        if not self.open_blocks:
            return "the hierarchy"
        if self.open_blocks[-1] == _END_SITE:
            return f"the End Site of {self.joints[self.open_blocks[-2]].name!r}"
        return repr(self.joints[self.open_blocks[-1]].name)

    def _open_joint(self, keyword: str) -> int:
        """Return the joint whose block is open."""
        if not self.open_blocks or self.open_blocks[-1] == _END_SITE:
            self.scanner.fail(f"{keyword} stands outside of the block of a joint, in {self._block_name()}")
        return self.open_blocks[-1]

    def _close(self) -> None:
        if not self.open_blocks:
            self.scanner.fail("'}' closes no block")
        block = self.open_blocks[-1]
        if not (self.joints[self.open_blocks[-2]].end_site if block == _END_SITE else self.joints[block].offset):
            self.scanner.fail(f"the block of {self._block_name()} has no OFFSET")
        self.open_blocks.pop()

    def _root(self) -> None:
        if self.joints:
            self.scanner.fail("a second ROOT; accepted are files with one character")
        self._declare(parent=-1)

    def _joint(self) -> None:
        self._declare(parent=self._open_joint("JOINT"))

    def _declare(self, parent: int) -> None:
        if len(self.joints) == MAX_JOINTS:
            self.scanner.fail(f"more than {MAX_JOINTS} joints; accepted are at most that many")
        name = self.scanner.name()
        if name in self.known:
            self.scanner.fail(f"joint name {name!r} occurs twice; joint names must be unique")
        self.known.add(name)
        self.declared = len(self.joints)
        self.joints.append(Joint(name, parent))

    def _end_site(self) -> None:
        self._open_joint("End Site")
        self.scanner.name()
        self.declared = _END_SITE

    def _offset(self) -> None:
        offset = self.scanner.vector()
        if self.open_blocks and self.open_blocks[-1] == _END_SITE:
            joint = self.joints[self.open_blocks[-2]]
            if joint.end_site is not None:
                self.warnings.append(f"joint {joint.name!r} has more than one End Site; the last one is kept")
            joint.end_site = offset
            return
        joint = self.joints[self._open_joint("OFFSET")]
        if joint.offset:
            self.scanner.fail(f"joint {joint.name!r} has a second OFFSET")
        joint.offset = offset

    def _channels(self) -> None:
        joint = self.joints[self._open_joint("CHANNELS")]
        if joint.channels is not None:
            self.scanner.fail(f"joint {joint.name!r} has a second CHANNELS")
        count = self.scanner.token()
        if count not in (b"0", b"1", b"2", b"3", b"4", b"5", b"6"):
            self.scanner.fail(f"CHANNELS must announce 0 to 6 channels, got {shown(count)}")
        names: list[str] = []
        for _ in range(int(count)):
            token = self.scanner.token()
            name = token.decode("latin-1").capitalize()
            if name not in CHANNELS or name in names:
                self.scanner.fail(
                    f"expected {int(count)} different channels of {', '.join(CHANNELS)}; got {shown(token)}"
                )
            names.append(name)
        joint.channels = tuple(names)


def _frame_count(scanner: _Scanner, match: re.Match[bytes], width: int, joint_count: int) -> int:
    """Return the number of frames after checking that the file can hold them and we accept them."""
    text = match.group(1)
    frames = int(text) if text.isdigit() and len(text) < 16 else 0
    if frames < 1:
        scanner.fail(f"Frames must be a whole number from 1 on, got {shown(text)}", match.start(1))
    # A value takes at least one digit and one separator.
    room = (len(scanner.data) - match.end() + 1) // 2
    if frames * width > room:
        scanner.fail(
            f"Frames: {frames} with {width} channels needs {frames * width} values, the rest of the file has room "
            f"for at most {room}; it is cut off or the count is wrong",
            match.start(1),
        )
    # Joints without channels take no room in the file, but in memory.
    frame_size = max(width, 3 * joint_count)
    if frames * frame_size > MAX_VALUES:
        scanner.fail(
            f"{frames} frames of {joint_count} joints are more than the {MAX_VALUES // frame_size} that are accepted "
            f"for such a rig; cut the file into clips",
            match.start(1),
        )
    return frames


def _parse_values(scanner: _Scanner, start: int, frames: int, width: int) -> Array:
    """Read (frames, width) numbers; where lines end does not matter. Works in chunks to bound the memory."""
    data, total = scanner.data, frames * width
    values = np.empty(total)
    filled = 0
    while start < len(data):
        space = _SPACE.search(data, min(start + _CHUNK_BYTES, len(data)))
        stop = space.end() if space else len(data)
        tokens = data[start:stop].split()
        if filled + len(tokens) > total:
            surplus = next(islice(re.finditer(rb"\S+", data[start:stop]), total - filled, None))
            scanner.fail(
                f"the file goes on after the {frames} x {width} values that Frames and CHANNELS announce",
                start + surplus.start(),
            )
        part = values[filled : filled + len(tokens)]
        try:
            part[:] = np.fromiter(map(float, tokens), np.float64, len(tokens))
            readable = bool((np.abs(part) <= _LARGEST).all()) and b"_" not in data[start:stop]
        except ValueError:
            readable = False
        if not readable:
            _fail_at_bad_number(scanner, start, stop)
        filled += len(tokens)
        start = stop
    if filled < total:
        scanner.fail(f"the file ends after {filled} of {frames} x {width} values; it is cut off", len(data) - 1)
    return values.reshape(frames, width)


def _fail_at_bad_number(scanner: _Scanner, start: int, stop: int) -> NoReturn:
    """Name the first value of a chunk that is no number."""
    for match in re.finditer(rb"\S+", scanner.data[start:stop]):
        if _find_number(match.group()) is None:
            scanner.fail(f"{shown(match.group())} is no finite number", start + match.start())
    raise AssertionError("a chunk was refused although all its values are numbers")


def _find_number(token: bytes) -> float | None:
    """Return a finite number, or None; Python's ``1_000`` is none."""
    try:
        value = float(token)
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST and b"_" not in token else None
