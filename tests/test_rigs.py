"""Characters and clips from files, against a plain evaluation of the files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from mixamo_like import (
    CANONICAL_PARENTS,
    boxes,
    evaluate_bvh,
    humanoid,
    random_motion,
    skin,
    turned_rest,
    write_bvh,
    write_shape,
)
from scipy.spatial.transform import Rotation

from retargetbench.errors import CharacterError
from retargetbench.formats.bvh import BvhFile, read_bvh
from retargetbench.formats.shape_npz import read_shape_npz
from retargetbench.kinematics import Skinner, forward_kinematics
from retargetbench.rest_pose import is_t_like, t_pose_angles
from retargetbench.rigs import (
    character_bound_at_bvh_rest,
    character_from_shape,
    clip_from_bvh,
    clip_from_files,
    skeleton_from_bvh,
)

EXACT = 1e-4  # metres, what design.md section 2 asks of every joint and vertex


def files(folder, rig, motion_rig=None, frames=8, order="ZYX"):
    """Write a shape file bound to one rig and a BVH file of another; return their paths."""
    motion_rig = motion_rig or rig
    write_shape(folder / "Body.npz", rig)
    write_bvh(folder / "Move.bvh", motion_rig, *random_motion(motion_rig, frames), order=order)
    return folder / "Body.npz", folder / "Move.bvh"


def joint_error(clip, bvh_path) -> float:
    """Largest distance of any joint of the file in any frame, metres."""
    names, _, positions = evaluate_bvh(bvh_path)
    _, ours = forward_kinematics(clip.character.skeleton, clip.motion.root_translation, clip.motion.local_rotations)
    short = [name.split(":")[-1] for name in clip.character.skeleton.names]
    columns = [short.index(name.split(":")[-1]) for name in names]
    return float(np.linalg.norm(ours.numpy()[:, columns] - positions / 100, axis=-1).max())


def vertex_error(clip, expected_cm) -> float:
    """Largest distance of any vertex in any frame, metres."""
    posed = Skinner.from_character(clip.character).pose_motion(clip.motion).numpy()
    return float(np.linalg.norm(posed - np.stack(expected_cm) / 100, axis=-1).max())


def plain_vertices(rig, bvh_path, changes=None):
    """Skin the boxes of a rig by a file, bone by bone; ``changes`` turn the mesh's rest to the file's."""
    vertices, _, weights = boxes(rig)
    names, world, positions = evaluate_bvh(bvh_path)
    short = [name.split(":")[-1] for name in names]
    columns = [short.index(rig.names[j].split(":")[-1]) for j in rig.canonical]
    turns = changes or [Rotation.identity()] * 22
    for now, where in zip(world, positions, strict=True):
        frame = [now[column] * turn for column, turn in zip(columns, turns, strict=True)]
        yield skin(vertices, weights, rig.rest[rig.canonical], frame, where[columns])


@pytest.mark.parametrize("prefix", ["mixamorig:", "mixamorig1:", ""])
@pytest.mark.parametrize("order", ["ZYX", "XYZ", "ZXY"])
def test_a_clip_on_its_own_rest_is_exact_for_every_joint_and_vertex(tmp_path, prefix, order):
    rig = humanoid(prefix=prefix)
    shape, bvh = files(tmp_path, rig, order=order)
    clip = clip_from_files(read_bvh(bvh), read_shape_npz(shape), name="Move")
    assert clip.character.skeleton.names == tuple(read_bvh(bvh).names)
    assert joint_error(clip, bvh) < EXACT / 10
    assert vertex_error(clip, list(plain_vertices(rig, bvh))) < EXACT / 10


@pytest.mark.parametrize("degrees", [1.0, 6.0, 25.0])
@pytest.mark.parametrize("pelvis", [False, True])
def test_a_clip_in_another_rest_is_re_expressed_without_moving_a_joint_or_vertex(tmp_path, degrees, pelvis):
    rig = humanoid(pelvis=pelvis)
    turned, turns = turned_rest(rig, degrees=degrees, seed=2)
    shape, bvh = files(tmp_path, rig, turned)
    clip = clip_from_files(read_bvh(bvh), read_shape_npz(shape), name="Move")
    assert joint_error(clip, bvh) < EXACT / 10
    mesh_offsets = clip.character.skeleton.canonical_offsets.numpy()
    wanted = rig.rest[rig.canonical] - rig.rest[rig.canonical][[max(p, 0) for p in CANONICAL_PARENTS]]
    assert np.allclose(mesh_offsets[1:], wanted[1:] / 100, atol=1e-6), "the rest is the mesh's"
    # The 22 joints of the shape file do not tell how a hand turned, but its fingers do once the rig has them.
    known = character_from_shape(read_shape_npz(shape), rig=as_bvh(rig))
    again = clip_from_bvh(read_bvh(bvh), known, name="Move")
    assert joint_error(again, bvh) < EXACT / 10
    changes = [turns[j] for j in rig.canonical]
    assert vertex_error(again, list(plain_vertices(rig, bvh, changes))) < EXACT / 10


def as_bvh(rig) -> BvhFile:
    """One frame at rest of a rig."""
    still = np.zeros((1, len(rig.names), 4))
    still[..., 3] = 1
    return BvhFile(tuple(rig.names), tuple(rig.parents), rig.offsets, {}, rig.offsets[:1], still, 1 / 60)


@pytest.mark.parametrize(
    ("rig", "straighten"),
    [(humanoid(thigh_deg=20, knee_deg=44), False), (humanoid(), True), (humanoid(arm_deg=50), False)],
)
def test_re_posing_leaves_every_joint_and_vertex_of_the_file_in_place(tmp_path, rig, straighten):
    shape, bvh = files(tmp_path, rig)
    clip = clip_from_files(read_bvh(bvh), read_shape_npz(shape), name="Move", straighten=straighten)
    assert max(t_pose_angles(clip.character.skeleton).values()) < 1e-3
    assert joint_error(clip, bvh) < EXACT / 10
    assert vertex_error(clip, list(plain_vertices(rig, bvh))) < EXACT / 10


def test_a_re_posed_character_takes_files_of_its_maker_and_files_at_its_new_rest(tmp_path):
    rig = humanoid(thigh_deg=20, knee_deg=44)
    shape, bvh = files(tmp_path, rig)
    clip = clip_from_files(read_bvh(bvh), read_shape_npz(shape), name="Move")
    skeleton, motion = clip.character.skeleton, clip.motion
    written = BvhFile(
        skeleton.names,
        skeleton.parents,
        skeleton.offsets.double().numpy() * 100,
        {},
        motion.root_translation.double().numpy() * 100,
        motion.local_rotations.double().numpy(),
        1 / 60,
    )
    again = clip_from_bvh(written, clip.character, name="Move")
    same = (again.motion.local_rotations * motion.local_rotations).sum(-1).abs()
    assert torch.allclose(same, torch.ones_like(same), atol=1e-6)
    assert torch.allclose(again.motion.root_translation, motion.root_translation, atol=1e-6)


def test_rigs_without_fingers_or_with_more_joints_than_the_character_still_fit(tmp_path):
    full, bare = humanoid(prefix="mixamorig1:"), humanoid(prefix="", fingers=False)
    shape, bvh = files(tmp_path, full, bare)
    with_fingers = character_from_shape(read_shape_npz(shape), rig=as_bvh(full))
    clip = clip_from_bvh(read_bvh(bvh), with_fingers, name="Move")
    assert joint_error(clip, bvh) < EXACT / 10
    finger = with_fingers.skeleton.names.index("mixamorig1:LeftHandIndex1")
    assert torch.allclose(clip.motion.local_rotations[:, finger, 3].abs(), torch.ones(8), atol=1e-6), "stays at rest"
    only_22 = character_from_shape(read_shape_npz(shape))
    write_bvh(tmp_path / "Full.bvh", full, *random_motion(full, 6))
    reduced = clip_from_bvh(read_bvh(tmp_path / "Full.bvh"), only_22, name="Full")
    assert vertex_error(reduced, list(plain_vertices(full, tmp_path / "Full.bvh"))) < EXACT / 10


def test_a_joint_above_the_hips_carries_the_motion(tmp_path):
    rig = humanoid(prefix="")
    rooted = replace(
        rig,
        names=["Armature", *rig.names],
        parents=[-1, *(parent + 1 for parent in rig.parents)],
        offsets=np.concatenate([[[1.0, 0, 2.0]], rig.offsets]),
    )
    shape, bvh = files(tmp_path, rig, rooted)
    clip = clip_from_files(read_bvh(bvh), read_shape_npz(shape), name="Move")
    assert clip.character.skeleton.names[0] == "Armature"
    assert joint_error(clip, bvh) < EXACT / 10
    expected = list(plain_vertices(rig, bvh))
    assert vertex_error(clip, expected) < EXACT / 10
    on_hips = clip_from_bvh(read_bvh(bvh), character_from_shape(read_shape_npz(shape)), name="Move")
    assert vertex_error(on_hips, expected) < EXACT / 10


def test_other_bone_lengths_are_refused_with_bone_and_lengths(tmp_path):
    shape, bvh = files(tmp_path, humanoid(), humanoid(scale=1.05))
    character = character_from_shape(read_shape_npz(shape))
    with pytest.raises(CharacterError, match=r"clip Move: bone \S+ is 0\.\d+ m and 0\.\d+ m long.*another character"):
        clip_from_bvh(read_bvh(bvh), character, name="Move")
    with pytest.raises(CharacterError, match="mesh and rig of Body"):
        character_from_shape(read_shape_npz(shape), rig=read_bvh(bvh))


def test_a_file_in_metres_is_recognised(tmp_path):
    shape, bvh = files(tmp_path, humanoid(), humanoid(scale=0.01))
    character = character_from_shape(read_shape_npz(shape))
    with pytest.raises(CharacterError, match=r"factor 0\.01: set unit"):
        clip_from_bvh(read_bvh(bvh), character, name="Move")
    clip = clip_from_bvh(read_bvh(bvh), character, name="Move", unit=1.0)
    # Offsets of 1e-7 m precision in the file, eight bones from hips to hand.
    assert np.allclose(clip.motion.root_translation.numpy(), evaluate_bvh(bvh)[2][:, 0], atol=1e-6)


def test_branches_of_another_shape_are_refused_though_lengths_agree(tmp_path):
    rig = humanoid()
    spread = replace(rig, offsets=rig.offsets.copy())
    leg = rig.names.index("mixamorig:LeftUpLeg")
    spread.offsets[leg] = Rotation.from_euler("Y", 3, degrees=True).apply(rig.offsets[leg])
    shape, bvh = files(tmp_path, rig, spread)
    with pytest.raises(CharacterError, match=r"mm from where the file has it in frame \d+"):
        clip_from_bvh(read_bvh(bvh), character_from_shape(read_shape_npz(shape)), name="Move")


def test_a_missing_joint_is_named(tmp_path):
    rig = humanoid()
    renamed = replace(rig, names=["Pelvis0" if name.endswith("Hips") else name for name in rig.names])
    shape, bvh = files(tmp_path, rig, renamed)
    with pytest.raises(CharacterError, match="lacks 1 of the 22 joints: Hips"):
        clip_from_files(read_bvh(bvh), read_shape_npz(shape), name="Move")


def test_a_rig_with_other_lengths_becomes_a_character_whose_mesh_follows_its_bones(tmp_path):
    mesh_rig, long_rig = humanoid(), humanoid(scale=1.03, arm_deg=0)
    shape, bvh = files(tmp_path, mesh_rig, long_rig)
    clip = clip_from_files(read_bvh(bvh), read_shape_npz(shape), name="Move")
    assert clip.character.name == f"Body_{len(long_rig.names)}"
    assert joint_error(clip, bvh) < EXACT / 10
    character = clip.character
    rest = character.skeleton.rest_positions
    # The boxes were built around bones that hang 4 degrees below X, the hand's centre 4 cm lower than the shoulder;
    # now they must lie around level bones.
    for k in (15, 16, 17):
        box = character.rest_vertices[8 * k : 8 * (k + 1)]
        assert (box[:, 1].mean() - rest[character.skeleton.canonical[k], 1]).abs() < 0.003
    feet = [character.skeleton.canonical[k] for k in (9, 13)]
    assert rest[feet, 1].min() == pytest.approx(0.02, abs=1e-5), "soles are as high as the mesh's"


def test_a_character_bound_at_a_rest_of_the_same_lengths_poses_like_the_mesh(tmp_path):
    rig = humanoid()
    shape, bvh = files(tmp_path, rig)
    bound = character_bound_at_bvh_rest(read_shape_npz(shape), read_bvh(bvh), name="Same")
    clip = clip_from_bvh(read_bvh(bvh), bound, name="Move")
    assert vertex_error(clip, list(plain_vertices(rig, bvh))) < EXACT / 10


def test_weights_are_normalised_and_the_files_sums_are_kept(tmp_path):
    shape, _ = files(tmp_path, humanoid())
    character = character_from_shape(read_shape_npz(shape))
    assert torch.allclose(character.influence_weights.sum(-1), torch.ones(character.vertex_count), atol=1e-6)
    assert character.influence_weights.shape[1] == 2
    assert character.provenance["raw_weight_sums"] == "0.998500..0.998500"


def test_the_order_of_joints_in_the_shape_file_does_not_matter(tmp_path):
    shape, bvh = files(tmp_path, humanoid())
    original = read_shape_npz(shape)
    order = np.random.default_rng(0).permutation(22)
    shuffled = replace(
        original,
        joint_names=tuple(original.joint_names[k] for k in order),
        offsets=original.offsets[order],
        weights=original.weights[:, order],
    )
    clips = [clip_from_files(read_bvh(bvh), s, name="Move") for s in (original, shuffled)]
    posed = [Skinner.from_character(clip.character).pose_motion(clip.motion) for clip in clips]
    assert torch.allclose(posed[0], posed[1], atol=1e-6)


def test_quaternions_of_a_clip_are_continuous_in_time(tmp_path):
    rig = humanoid()
    root, vectors = random_motion(rig, 40)
    vectors[:, 0] = np.linspace(0, 4 * np.pi, 40)[:, None] * [0, 1, 0]  # two turns on the spot
    write_shape(tmp_path / "Body.npz", rig)
    write_bvh(tmp_path / "Turn.bvh", rig, root, vectors)
    clip = clip_from_files(read_bvh(tmp_path / "Turn.bvh"), read_shape_npz(tmp_path / "Body.npz"), name="Turn")
    rotations = clip.motion.local_rotations
    assert (rotations[1:] * rotations[:-1]).sum(-1).min() > 0


@pytest.fixture(scope="module")
def mixamo(shared_dir):
    return shared_dir / "data" / "r2et_mixamo"


REAL_CLIPS = [
    ("Mousey", "Salsa Dancing"),
    ("Mousey", "Macarena Dance"),
    ("Mousey", "Gangnam Style"),
    ("Ortiz", "Salsa Dancing"),
    ("Ortiz", "Macarena Dance"),
    ("Ortiz", "Gangnam Style"),
    ("Ortiz", "Thankful"),
    ("Ortiz", "Situp To Idle"),
    ("Ortiz", "Removing Driver"),
    ("Sporty_Granny", "Hip Hop Dancing"),
    ("Sporty_Granny", "Salsa Dancing"),
    ("Sporty_Granny", "Macarena Dance"),
    ("Sporty_Granny", "Gangnam Style"),
]
OWN_REST = {clip for clip in REAL_CLIPS if clip[0] != "Sporty_Granny"} - {
    ("Ortiz", motion) for motion in ("Thankful", "Situp To Idle", "Removing Driver")
}


def every_nth_frame(bvh: BvhFile, step: int) -> BvhFile:
    return replace(bvh, root_positions=bvh.root_positions[::step], rotations=bvh.rotations[::step])


def plain_file(bvh: BvhFile):
    """Evaluate a file that was read, joint by joint, with SciPy: world rotations and positions in metres."""
    rotations, positions = [], []
    for j, parent in enumerate(bvh.parents):
        local = Rotation.from_quat(bvh.rotations[:, j])
        rotations.append(local if parent < 0 else rotations[parent] * local)
        moved = bvh.root_positions if parent < 0 else positions[parent] + rotations[parent].apply(bvh.offsets[j])
        positions.append(moved)
    return rotations, np.stack(positions, 1) / 100


@pytest.mark.shared
@pytest.mark.parametrize("straighten", [False, True])
@pytest.mark.parametrize(("owner", "motion"), REAL_CLIPS)
def test_every_joint_of_real_clips_stays_where_the_file_has_it(mixamo, owner, motion, straighten):
    bvh = read_bvh(mixamo / "demo" / owner / f"{motion}.bvh")
    shape = read_shape_npz(mixamo / "shape" / f"{owner}.npz")
    clip = clip_from_files(bvh, shape, name=motion, straighten=straighten)
    _, positions = plain_file(bvh)
    _, ours = forward_kinematics(clip.character.skeleton, clip.motion.root_translation, clip.motion.local_rotations)
    assert np.linalg.norm(ours.numpy() - positions, axis=-1).max() < EXACT


@pytest.mark.shared
@pytest.mark.parametrize("straighten", [False, True])
@pytest.mark.parametrize(("owner", "motion"), sorted(OWN_REST))
def test_every_vertex_of_real_clips_on_their_own_rest_is_where_the_file_puts_it(mixamo, owner, motion, straighten):
    bvh = every_nth_frame(read_bvh(mixamo / "demo" / owner / f"{motion}.bvh"), 60)
    shape = read_shape_npz(mixamo / "shape" / f"{owner}.npz")
    clip = clip_from_files(bvh, shape, name=motion, straighten=straighten)
    assert real_vertex_error(clip, shape, bvh) < EXACT


@pytest.mark.shared
@pytest.mark.parametrize("straighten", [False, True])
@pytest.mark.parametrize(
    "owner",
    ["AJ", "Big_Vegas", "Goblin_D_Shareyko", "Mousey", "Ortiz", "Peasant_Man", "Sporty_Granny", "Warrok_W_Kurniawan"],
)
def test_every_vertex_of_every_real_mesh_is_where_its_own_rest_puts_it_in_any_pose(mixamo, owner, straighten):
    shape = read_shape_npz(mixamo / "shape" / f"{owner}.npz")
    rng = np.random.default_rng(0)
    rotations = Rotation.from_rotvec(rng.normal(size=(4 * 22, 3))).as_quat().reshape(4, 22, 4)
    bvh = BvhFile(
        shape.joint_names, CANONICAL_PARENTS, shape.offsets, {}, 100 * rng.normal(size=(4, 3)), rotations, 1 / 60
    )
    character = character_from_shape(shape, straighten=straighten)
    assert is_t_like(character.skeleton)
    assert real_vertex_error(clip_from_bvh(bvh, character, name="any"), shape, bvh) < EXACT


def real_vertex_error(clip, shape, bvh) -> float:
    """Largest distance of a vertex from where straight skinning of the file puts it, metres."""
    rest = np.stack([shape.offsets[0]] * 22)
    for k, parent in enumerate(CANONICAL_PARENTS):
        if parent >= 0:
            rest[k] = rest[parent] + shape.offsets[k]
    vertices = shape.rest_vertices + shape.offsets[0]
    rotations, positions = plain_file(bvh)
    columns = skeleton_from_bvh(bvh).canonical
    posed = Skinner.from_character(clip.character).pose_motion(clip.motion).numpy()
    worst = 0.0
    for t in range(len(posed)):
        world = [rotations[column][t] for column in columns]
        expected = skin(vertices, shape.weights, rest, world, 100 * positions[t][list(columns)]) / 100
        worst = max(worst, float(np.linalg.norm(posed[t] - expected, axis=-1).max()))
    return worst


@pytest.mark.shared
@pytest.mark.parametrize(
    ("owner", "motion"),
    [
        ("Ortiz", "Thankful"),
        ("Ortiz", "Situp To Idle"),
        ("Ortiz", "Removing Driver"),
        ("Sporty_Granny", "Hip Hop Dancing"),
    ],
)
def test_parts_of_real_meshes_keep_their_place_on_the_bone_when_the_file_has_another_rest(mixamo, owner, motion):
    shape = read_shape_npz(mixamo / "shape" / f"{owner}.npz")
    bvh = every_nth_frame(read_bvh(mixamo / "demo" / owner / f"{motion}.bvh"), 40)
    rig = read_bvh(mixamo / "demo" / owner / ("Hip Hop Dancing.bvh" if owner != "Ortiz" else "Salsa Dancing.bvh"))
    clip = clip_from_bvh(bvh, character_from_shape(shape, rig=rig), name=motion)
    _, positions = plain_file(bvh)
    joints = positions[:, list(skeleton_from_bvh(bvh).canonical)]
    posed = Skinner.from_character(clip.character).pose_motion(clip.motion).numpy()
    rest_joints = np.cumsum([shape.offsets[0]], axis=0)
    for k, parent in enumerate(CANONICAL_PARENTS[1:], start=1):
        rest_joints = np.concatenate([rest_joints, [rest_joints[parent] + shape.offsets[k]]])
    vertices = (shape.rest_vertices + shape.offsets[0]) / 100
    for k, parent in enumerate(CANONICAL_PARENTS):
        owned = shape.weights[:, k] / shape.weights.sum(-1) > 1 - 1e-6
        children = [c for c, p in enumerate(CANONICAL_PARENTS) if p == k]
        if parent < 0 or not children or not owned.any():
            continue
        for end in (k, children[0]):
            before = np.linalg.norm(vertices[owned] - rest_joints[end] / 100, axis=-1)
            after = np.linalg.norm(posed[:, owned] - joints[:, None, end], axis=-1)
            assert np.abs(after - before).max() < EXACT
