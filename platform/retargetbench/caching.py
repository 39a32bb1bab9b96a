"""Memory of what is computed once per character: sensors, closed bodies, skinning rows."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from retargetbench.character import Character

P = ParamSpec("P")
R = TypeVar("R")


def per_character(function: Callable[Concatenate[Character, P], R]) -> Callable[Concatenate[Character, P], R]:
    """Remember a function's results for as long as the character object lives.

    Characters are immutable and compared by identity, so a remembered value is never stale. Further arguments must
    be hashable.
    """
    memory: weakref.WeakKeyDictionary[Character, dict[Hashable, R]] = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def remembering(character: Character, /, *args: P.args, **kwargs: P.kwargs) -> R:
        known = memory.setdefault(character, {})
        key = (args, tuple(sorted(kwargs.items())))
        if key not in known:
            known[key] = function(character, *args, **kwargs)
        return known[key]

    return remembering
