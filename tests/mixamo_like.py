"""Small files in the layout of R2ET's Mixamo data, and a slow plain evaluation of such files.

Nothing here uses the platform: rotations are SciPy's, the BVH text is written and parsed by a few lines of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.transform import Rotation

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

CANONICAL = [
    "Hips", "Spine", "Spine1", "Spine2", "Neck", "Head",
    "LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase",
    "RightUpLeg", "RightLeg", "RightFoot", "RightToeBase",
    "LeftShoulder", "LeftArm", "LeftForeArm", "LeftHand",
    "RightShoulder", "RightArm", "RightForeArm", "RightHand",
]  # fmt: skip
CANONICAL_PARENTS = (-1, 0, 1, 2, 3, 4, 0, 6, 7, 8, 0, 10, 11, 12, 3, 14, 15, 16, 3, 18, 19, 20)


@dataclass(frozen=True)
class Rig:
    """Joints with parents and rest offsets in centimetres."""

    names: list[str]
    parents: list[int]
    offsets: np.ndarray

    @property
    def rest(self) -> np.ndarray:
        """Rest positions, (J, 3)."""
        return pose(self.parents, self.offsets, Rotation.identity(len(self.names)), self.offsets[0])[1]

    @property
    def canonical(self) -> list[int]:
        """Indices of the 22 canonical joints."""
        short = [name.split(":")[-1] for name in self.names]
        return [short.index(name) for name in CANONICAL]


def pose(
    parents: list[int], offsets: np.ndarray, local: Rotation, root: np.ndarray
) -> tuple[list[Rotation], np.ndarray]:
    """Evaluate one frame, joint by joint: world rotations and positions (J, 3)."""
    rotations: list[Rotation] = []
    positions: list[np.ndarray] = []
    for j, parent in enumerate(parents):
        if parent < 0:
            rotations.append(local[j])
            positions.append(np.asarray(root, float))
        else:
            rotations.append(rotations[parent] * local[j])
            positions.append(positions[parent] + rotations[parent].apply(offsets[j]))
    return rotations, np.stack(positions)


def humanoid(
    *,
    prefix: str = "mixamorig:",
    arm_deg: float = 4.0,
    thigh_deg: float = 3.0,
    knee_deg: float = 5.0,
    scale: float = 1.0,
    pelvis: bool = False,
    fingers: bool = True,
) -> Rig:
    """Make a humanoid rig whose arms hang ``arm_deg`` below ±X and whose thighs and knees are bent."""
    lean, bend = np.radians(thigh_deg), np.radians(thigh_deg - knee_deg)
    drop = np.radians(arm_deg)
    joints: list[tuple[str, str | None, tuple[float, float, float]]] = [
        ("Hips", None, (0, 0, 2)),
        ("Spine", "Hips", (0, 10, 0)),
        ("Spine1", "Spine", (0, 12, 0)),
        ("Spine2", "Spine1", (0, 13, -1)),
        ("Neck", "Spine2", (0, 15, 1)),
        ("Head", "Neck", (0, 10, 2)),
    ]
    legs_from = "Hips"
    if pelvis:
        joints.append(("Pelvis", "Hips", (0, 0, 0)))
        legs_from = "Pelvis"
    for side, sign in (("Left", 1), ("Right", -1)):
        joints += [
            (f"{side}UpLeg", legs_from, (9 * sign, -5, 0)),
            (f"{side}Leg", f"{side}UpLeg", (0, -42 * np.cos(lean), 42 * np.sin(lean))),
            (f"{side}Foot", f"{side}Leg", (0, -41 * np.cos(bend), 41 * np.sin(bend))),
            (f"{side}ToeBase", f"{side}Foot", (1 * sign, -8, 13)),
        ]
    for side, sign in (("Left", 1), ("Right", -1)):
        along = np.array([sign * np.cos(drop), -np.sin(drop), 0])
        joints += [
            (f"{side}Shoulder", "Spine2", (4 * sign, 12, 0)),
            (f"{side}Arm", f"{side}Shoulder", (12 * sign, 0, -1)),
            (f"{side}ForeArm", f"{side}Arm", tuple(26 * along)),
            (f"{side}Hand", f"{side}ForeArm", tuple(24 * along)),
        ]
    if fingers:
        for side, sign in (("Left", 1), ("Right", -1)):
            joints += [
                (f"{side}HandThumb1", f"{side}Hand", (3 * sign, -2, 3)),
                (f"{side}HandThumb2", f"{side}HandThumb1", (3 * sign, 0, 1)),
                (f"{side}HandIndex1", f"{side}Hand", (9 * sign, 0, 2)),
                (f"{side}HandIndex2", f"{side}HandIndex1", (3 * sign, 0, 0)),
                (f"{side}Toe_End", f"{side}ToeBase", (0, 0, 6)),
            ]
        joints.append(("HeadTop_End", "Head", (0, 18, 2)))
    short = [name for name, _, _ in joints]
    parents = [-1 if parent is None else short.index(parent) for _, parent, _ in joints]
    rig = Rig([prefix + name for name in short], parents, scale * np.array([offset for _, _, offset in joints], float))
    rig.offsets[0, 1] = 2 * scale - rig.rest[short.index("LeftToeBase"), 1]
    return rig


def turned_rest(rig: Rig, *, degrees: float, seed: int = 0, rigid: Collection[str] = ()) -> tuple[Rig, list[Rotation]]:
    """Turn the rest of a rig joint by joint, bones keep their lengths and branches their shape.

    Joints named in ``rigid`` turn with their parents, as a rig without them can only have it.

    Returns:
        The rig at the new rest, and for each joint the rotation that took its children's offsets there. A joint with
        one child turns without twist and a leaf goes with its parent, as nothing else could be told from positions.
    """
    rng = np.random.default_rng(seed)
    turns: list[Rotation] = []
    offsets = rig.offsets.copy()
    for j, parent in enumerate(rig.parents):
        before = turns[parent] if parent >= 0 else Rotation.identity()
        children = [k for k, p in enumerate(rig.parents) if p == j]
        axis = rng.normal(size=3)
        if len(children) == 1:
            axis = np.cross(axis, before.apply(rig.offsets[children[0]]))
        length = np.linalg.norm(axis)
        turns_itself = j > 0 and length > 0 and children and rig.names[j] not in rigid
        turns.append(Rotation.from_rotvec(axis / length * np.radians(degrees)) * before if turns_itself else before)
        for child in children:
            offsets[child] = turns[j].apply(rig.offsets[child])
    return replace(rig, offsets=offsets), turns


def random_motion(rig: Rig, frames: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make a smooth motion: root positions (T, 3) cm and rotation vectors (T, J, 3)."""
    rng = np.random.default_rng(seed)
    phase = np.linspace(0, 1.5, frames)[:, None, None]
    vectors = 0.5 * np.sin(2 * phase + rng.uniform(0, 6, (len(rig.names), 3))) * rng.normal(size=(len(rig.names), 3))
    sway = np.stack([8 * np.sin(phase[:, 0, 0]), 2 * np.cos(phase[:, 0, 0]), 30 * phase[:, 0, 0]], -1)
    return rig.offsets[0] + sway, vectors


def write_bvh(
    path: Path, rig: Rig, root: np.ndarray, vectors: np.ndarray, *, order: str = "ZYX", fps: int = 60
) -> None:
    """Write a BVH file with joints in depth-first order, as given."""
    children = [[k for k, p in enumerate(rig.parents) if p == j] for j in range(len(rig.names))]
    lines, visited = ["HIERARCHY"], []

    def put(j: int, tabs: str) -> None:
        visited.append(j)
        lines.append(f"{tabs}{'JOINT' if rig.parents[j] >= 0 else 'ROOT'} {rig.names[j]}")
        lines.append(tabs + "{")
        lines.append(f"{tabs}\tOFFSET " + " ".join(f"{v:.7f}" for v in rig.offsets[j]))
        rotation = " ".join(f"{axis}rotation" for axis in order)
        position = "Xposition Yposition Zposition " if rig.parents[j] < 0 else ""
        lines.append(f"{tabs}\tCHANNELS {6 if position else 3} {position}{rotation}")
        for child in children[j]:
            put(child, tabs + "\t")
        if not children[j]:
            lines.extend([f"{tabs}\tEnd Site", tabs + "\t{", f"{tabs}\t\tOFFSET 0 1 0", tabs + "\t}"])
        lines.append(tabs + "}")

    put(0, "")
    lines += ["MOTION", f"Frames: {len(root)}", f"Frame Time: {1 / fps:.6f}"]
    for position, frame in zip(root, vectors, strict=True):
        angles = Rotation.from_rotvec(frame[visited]).as_euler(order, degrees=True)
        lines.append(" ".join(f"{value:.7f}" for value in [*position, *angles.reshape(-1)]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def evaluate_bvh(path: Path) -> tuple[list[str], list[list[Rotation]], np.ndarray]:
    """Evaluate a BVH file: joint names, world rotations per frame and joint, positions (T, J, 3) in centimetres."""
    names: list[str] = []
    parents: list[int] = []
    offsets: list[list[float]] = []
    channels: list[list[str]] = []
    open_joints: list[int] = []
    tokens = path.read_text().split()
    i = 0
    while tokens[i] != "MOTION":
        if tokens[i] in ("ROOT", "JOINT"):
            names.append(tokens[i + 1])
            parents.append(open_joints[-1] if open_joints else -1)
            i += 1
        elif tokens[i] == "End":
            names.append("End")
            parents.append(open_joints[-1])
            channels.append([])
        elif tokens[i] == "{":
            open_joints.append(len(names) - 1)
        elif tokens[i] == "}":
            open_joints.pop()
        elif tokens[i] == "OFFSET":
            offsets.append([float(value) for value in tokens[i + 1 : i + 4]])
        elif tokens[i] == "CHANNELS":
            count = int(tokens[i + 1])
            channels.append(tokens[i + 2 : i + 2 + count])
        i += 1
    frames = int(tokens[i + 2])
    values = np.array(tokens[i + 6 :], float).reshape(frames, -1)
    world, positions = [], []
    for row in values:
        place, rotations, root = 0, [], np.array(offsets[0])
        for j, own in enumerate(channels):
            rotation = Rotation.identity()
            for name, value in zip(own, row[place : place + len(own)], strict=True):
                if name.endswith("rotation"):
                    rotation = rotation * Rotation.from_euler(name[0], value, degrees=True)
                elif j == 0:
                    root["XYZ".index(name[0])] = value
            place += len(own)
            rotations.append(rotation)
        now, where = pose(parents, np.array(offsets), Rotation.concatenate(rotations), root)
        world.append(now)
        positions.append(where)
    keep = [j for j, name in enumerate(names) if name != "End"]
    return [names[j] for j in keep], [[frame[j] for j in keep] for frame in world], np.stack(positions)[:, keep]


def boxes(rig: Rig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a mesh of one box along each canonical bone: vertices (V, 3) cm, faces (F, 3), raw weights (V, 22).

    The half of a box that is near its joint follows the parent by 30 percent; rows sum to 0.9985, as some real files'.
    """
    rest = rig.rest[rig.canonical]
    corners = np.array([[x, y, z] for x in (0, 1) for y in (-1, 1) for z in (-1, 1)], float)
    quads = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
    vertices, faces, weights = [], [], []
    for k, parent in enumerate(CANONICAL_PARENTS):
        children = [c for c, p in enumerate(CANONICAL_PARENTS) if p == k]
        bone = rest[children[0]] - rest[k] if children else 0.5 * (rest[k] - rest[parent])
        if CANONICAL[k].endswith("ToeBase"):
            bone[1] = 0.0  # toes lie flat on the floor
        side = np.cross(bone, [0.3, 0.5, 0.8])
        side *= 3 / np.linalg.norm(side)
        across = np.cross(bone, side)
        across *= 3 / np.linalg.norm(across)
        start = 8 * k
        vertices.append(rest[k] + corners[:, :1] * bone + corners[:, 1:2] * side + corners[:, 2:] * across)
        for a, b, c, d in quads:
            faces += [[start + a, start + b, start + c], [start + a, start + c, start + d]]
        for corner in corners:
            row = np.zeros(22)
            row[k] = 1.0
            if corner[0] == 0 and parent >= 0:
                row[k], row[parent] = 0.7, 0.3
            weights.append(0.9985 * row)
    return np.concatenate(vertices), np.array(faces), np.array(weights)


def write_shape(path: Path, rig: Rig) -> None:
    """Write a shape file of boxes bound to the rest of a rig."""
    vertices, faces, weights = boxes(rig)
    rest = rig.rest[rig.canonical]
    skeleton = rest - rest[[max(p, 0) for p in CANONICAL_PARENTS]]
    skeleton[0] = rest[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        skinning_weights=weights.astype(np.float32),
        joint_names=np.array(CANONICAL),
        rest_vertices=(vertices - rest[0]).astype(np.float32),
        rest_faces=faces.astype(np.int32),
        skeleton=skeleton.astype(np.float32),
        subject=np.array(path.stem),
    )


def skin(
    vertices: np.ndarray, weights: np.ndarray, rest: np.ndarray, world: list[Rotation], positions: np.ndarray
) -> np.ndarray:
    """Pose a mesh bone by bone: every vertex turns about the rest position of each of the 22 joints, (V, 3)."""
    weights = weights / weights.sum(-1, keepdims=True)
    posed = np.zeros_like(vertices)
    for k in range(22):
        posed += weights[:, k : k + 1] * (world[k].apply(vertices - rest[k]) + positions[k])
    return posed


def write_tiny_r2et(folder: Path) -> None:
    """Write three characters in the layout of R2ET's demo: a seen one with bent legs, a seen one, an unseen one.

    Mousey and Ortiz have the same two dances, Ortiz one more in another rest and one on a rig with longer bones.
    """
    rigs = {"AJ": humanoid(thigh_deg=22, knee_deg=40), "Mousey": humanoid(scale=0.6), "Ortiz": humanoid(scale=1.05)}
    for seed, (name, rig) in enumerate(rigs.items()):
        write_shape(folder / "shape" / f"{name}.npz", rig)
        if name != "AJ":
            for motion, frames in (("Salsa Dancing", 12), ("Gangnam Style", 15)):
                write_bvh(folder / "demo" / name / f"{motion}.bvh", rig, *random_motion(rig, frames, seed=seed))
    other, _ = turned_rest(humanoid(prefix="", scale=1.05, pelvis=True), degrees=6, rigid=["Pelvis"])
    root, vectors = random_motion(other, 10, seed=5)
    vectors[:, other.names.index("Pelvis")] = 0  # the other rigs have no such joint, so they could not follow it
    write_bvh(folder / "demo" / "Ortiz" / "Thankful.bvh", other, root, vectors)
    longer = humanoid(prefix="mixamorig1:", scale=1.07, fingers=False)
    write_bvh(folder / "demo" / "Ortiz" / "Situp To Idle.bvh", longer, *random_motion(longer, 9, seed=6))
