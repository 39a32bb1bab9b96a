"""Worker of test_damaged_files.py: reads files one by one and prints what came of each, one JSON line per file.

It runs in a process of its own with a memory limit, so that a reader that runs away ends it and not the tests.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from retargetbench.errors import FileFormatError
from retargetbench.formats.bvh import read_bvh
from retargetbench.formats.shape_npz import read_shape_npz

ADDRESS_SPACE_BYTES = 3 << 29


def peak_kib() -> int:
    """Peak resident memory of this program; what getrusage gives counts the process that started it too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main(folder: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    for path in sorted(Path(folder).iterdir()):
        started = time.process_time()
        try:
            (read_bvh if path.suffix == ".bvh" else read_shape_npz)(path)
            outcome = "loaded"
        except FileFormatError as error:
            outcome = str(error)
        except Exception as error:
            outcome = f"UNEXPECTED {error!r}"
        peak_mib = peak_kib() >> 10
        seconds = time.process_time() - started
        print(json.dumps({"file": path.name, "outcome": outcome, "seconds": seconds, "peak_mib": peak_mib}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
