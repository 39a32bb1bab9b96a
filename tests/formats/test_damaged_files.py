"""Readers on 500 damaged files: each loads or gives a one-line error, quickly and in bounded memory."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

WORKER = Path(__file__).with_name("damaged_files_worker.py")
FILES_PER_KIND = 250
SECONDS_PER_FILE = 5.0
MAX_MIB = 1024

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory limits of processes are those of Linux")


def small_bvh() -> bytes:
    """A chain of joints with random angles."""
    rng = random.Random(1)
    lines = ["HIERARCHY", "ROOT Hips", "{", "OFFSET 0 90 0", "CHANNELS 6 Xposition Yposition Zposition"]
    lines[-1] += " Zrotation Xrotation Yrotation"
    for j in range(5):
        lines += [f"JOINT Bone{j}", "{", "OFFSET 0.0 10.5 -2.25", "CHANNELS 3 Zrotation Xrotation Yrotation"]
    lines += ["End Site", "{", "OFFSET 0 5 0", "}"] + ["}"] * 6
    lines += ["MOTION", "Frames: 20", "Frame Time: 0.0333333"]
    lines += [" ".join(f"{rng.uniform(-90, 90):.6f}" for _ in range(21)) for _ in range(20)]
    return ("\n".join(lines) + "\n").encode()


def small_npz(*, compressed: bool) -> bytes:
    rng = np.random.default_rng(1)
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(
        buffer,
        subject=np.array("Somebody"),
        joint_names=np.array([f"Joint{j}" for j in range(22)]),
        skeleton=rng.normal(size=(22, 3)).astype(np.float32),
        rest_vertices=rng.normal(size=(30, 3)).astype(np.float32),
        rest_faces=rng.integers(0, 30, size=(50, 3)).astype(np.int32),
        skinning_weights=rng.dirichlet(np.ones(22), 30).astype(np.float32),
    )
    return buffer.getvalue()


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def with_flipped_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 2, 5, 20, 100])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def with_huge_count(data: bytes, rng: random.Random) -> bytes:
    """Replace one number of the text, or of the archive's array headers, by a huge one."""
    huge = rng.choice([b"999999999", b"4294967296", b"18446744073709551616", b"9" * 400, b"-1", b"1e308"])
    if data.startswith(b"PK"):
        return with_changed_header(data, lambda text: replaced_number(text, huge, rng))
    return replaced_number(data, huge, rng)


def with_wrong_type(data: bytes, rng: random.Random) -> bytes:
    """Put a word where a number belongs, or another dtype where the archive's reader expects one."""
    if data.startswith(b"PK"):
        dtype = rng.choice(
            [b"'|O'", b"'<U99999'", b"'<c16'", b"'<i8'", b"'<f8'", b"'|b1'", b"'<m8[s]'", b"[('a', '<f4')]"]
        )
        return with_changed_header(data, lambda text: text[:10] + dtype + text[text.index(b",") :])
    words = [b"nan", b"inf", b"-inf", b"True", b"{", b"}", b"MOTION", b"0x10", b"1_0", b"1,5", b"\x00", b"\xff\xfe"]
    return replaced_number(data, rng.choice(words), rng)


def replaced_number(data: bytes, word: bytes, rng: random.Random) -> bytes:
    """Replace one run of digits."""
    starts = [i for i in range(len(data)) if data[i : i + 1].isdigit() and not data[i - 1 : i].isdigit()]
    start = rng.choice(starts)
    stop = next((i for i in range(start, len(data)) if not data[i : i + 1].isdigit()), len(data))
    return data[:start] + word + data[stop:]


def with_changed_header(data: bytes, change) -> bytes:
    """Rewrite the header of one array of an archive and leave its data as it is."""
    rng = random.Random(len(data))
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        chosen = rng.choice([n for n in old.namelist() if n != "subject.npy"])
        for name in old.namelist():
            member = old.read(name)
            if name == chosen:
                length = int.from_bytes(member[8:10], "little")
                header = change(member[10 : 10 + length])
                member = member[:8] + len(header).to_bytes(2, "little") + header + member[10 + length :]
            new.writestr(name, member)
    return buffer.getvalue()


DAMAGES = (truncated, with_flipped_bytes, with_huge_count, with_wrong_type)


def read_in_worker(folder: Path) -> list[dict]:
    """Read all files of a folder in a process whose memory is limited."""
    done = subprocess.run(
        [sys.executable, str(WORKER), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        # Each thread that NumPy starts would count against the limit.
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["bvh", "npz"])
def test_damaged_files_load_or_give_one_line(tmp_path: Path, kind: str) -> None:
    originals = {"bvh": [small_bvh()], "npz": [small_npz(compressed=False), small_npz(compressed=True)]}[kind]
    for seed in range(FILES_PER_KIND):
        damage = DAMAGES[seed % len(DAMAGES)]
        data = damage(originals[seed // len(DAMAGES) % len(originals)], random.Random(seed))
        (tmp_path / f"{damage.__name__}_{seed:03}.{kind}").write_bytes(data)
    results = read_in_worker(tmp_path)
    assert len(results) == FILES_PER_KIND
    for result in results:
        outcome = result["outcome"]
        assert outcome == "loaded" or outcome.startswith(str(tmp_path / result["file"])), result
        assert "\n" not in outcome
        assert len(outcome) < 1000
        assert result["seconds"] < SECONDS_PER_FILE, result
        assert result["peak_mib"] < MAX_MIB, result
    # The damage is real, but some of it leaves a valid file: neither outcome may be the only one.
    refused = sum(result["outcome"] != "loaded" for result in results)
    assert FILES_PER_KIND // 2 < refused < FILES_PER_KIND


def test_largest_accepted_bvh_stays_in_bounds(tmp_path: Path) -> None:
    names = "".join(f"JOINT j{j}\n{{ OFFSET 0 1 0 CHANNELS 3 Zrotation Xrotation Yrotation " for j in range(99))
    head = f"HIERARCHY ROOT r\n{{ OFFSET 0 0 0 CHANNELS 3 Zrotation Xrotation Yrotation {names}{'}' * 100}\n"
    frames = 26_000
    head += f"MOTION\nFrames: {frames}\nFrame Time: 0.01\n"
    (tmp_path / "large.bvh").write_text(head + ("1 " * 300 + "\n") * frames)
    (result,) = read_in_worker(tmp_path)
    assert result["outcome"] == "loaded"
    assert result["seconds"] < SECONDS_PER_FILE
    assert result["peak_mib"] < MAX_MIB


def test_readers_import_neither_torch_nor_scipy() -> None:
    code = (
        "import sys, retargetbench.formats.bvh, retargetbench.formats.shape_npz; "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'scipy', 'roma', 'pandas', 'trimesh'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
