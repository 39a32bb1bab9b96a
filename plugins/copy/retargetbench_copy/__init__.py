"""The plugin ``copy``: the source's joint rotations as they are, and the root by the one root rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retargetbench import MethodInfo, hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable


@hookimpl
def register_methods(register: Callable[[MethodInfo], None]) -> None:
    """Register the method."""
    register(
        MethodInfo(
            "copy",
            "the source's joint rotations as they are, root scaled by the ratio of heights",
            "retargetbench_copy.method:CopyMethod",
            paper="the baseline of NKN, PMnet, R2ET and MeshRet",
            fidelity="rotations exact; the root rule is the platform's, with three choices of scale",
        )
    )
