"""Contacts of a performance from the keys of hands and feet."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar

import torch

from retargetbench.datasets.studio.actions import FootKey, HandKey
from retargetbench.datasets.studio.curves import key_progress
from retargetbench.datasets.studio.performance import Contact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retargetbench.datasets.studio.actions import Side, Touch

INSTANT = 0.05
"""Seconds to either side of a key that alone touches, e.g. of a clap; the hand rests so long on what it touches."""

_ROUNDING = 1e-6


_Key = TypeVar("_Key", HandKey, FootKey)


def with_instants(keys: Sequence[_Key]) -> tuple[_Key, ...]:
    """Let each key that alone touches, between others, last from `INSTANT` before to `INSTANT` after it.

    It lasts at most for half the time to its neighbours, so that keys stay in order.
    """
    alone = {run[0] for run in _runs(keys) if len(run) == 1}
    lasting: list[_Key] = []
    for number, key in enumerate(keys):
        if number not in alone or number == len(keys) - 1:
            lasting.append(key)
            continue
        if number > 0:
            lasting.append(key.model_copy(update={"at": key.at - min(INSTANT, (key.at - keys[number - 1].at) / 2)}))
        lasting.append(key.model_copy(update={"at": key.at + min(INSTANT, (keys[number + 1].at - key.at) / 2)}))
    return tuple(lasting)


def key_contacts(keys: Sequence[HandKey | FootKey], side: Side, time: torch.Tensor) -> tuple[Contact, ...]:
    """Find the contacts of one hand or foot.

    A contact holds through every run of neighbouring keys that touch with one place and no gap; a run does not begin
    or end with a key that is passed. It holds from the first frame if the run begins with the first key, and to the
    last if it ends with the last key, since the hand stays where it is. Between keys at different
    places the touched place slides; each such way is a contact of its own.

    Args:
        keys: of the hand or foot, see `with_instants`.
        side: of it.
        time: of the frames, (T,) seconds.
    """
    contacts: list[Contact] = []
    for run in _runs(keys):
        begin, end = keys[run[0]].at, keys[run[-1]].at
        if run[0] == 0:
            begin = -torch.inf
        if run[-1] == len(keys) - 1:
            end = torch.inf
        active = (time >= begin - _ROUNDING) & (time <= end + _ROUNDING)
        contacts += _run_contacts(keys, run, active, side, time)
    return tuple(contact for contact in contacts if bool(contact.active.any()))


def named_contact(touch: Touch, time: torch.Tensor) -> Contact:
    """Return a contact that an action names itself."""
    return Contact(
        moving=touch.place,
        first=touch.on,
        second=touch.on,
        share=torch.zeros_like(time),
        active=(time >= touch.from_ - _ROUNDING) & (time <= touch.to + _ROUNDING),
        gap=touch.gap,
        slides=touch.slide,
    )


def _runs(keys: Sequence[HandKey | FootKey]) -> list[list[int]]:
    """Numbers of neighbouring keys that touch with one place and no gap."""

    def kind(number: int) -> str | None:
        key = keys[number]
        return key.with_ if key.touch is not None and getattr(key, "gap", 0.0) == 0 else None

    runs = []
    for place, numbers in itertools.groupby(range(len(keys)), kind):
        run = list(numbers)
        while run and keys[run[0]].through:
            run.pop(0)
        while run and keys[run[-1]].through:
            run.pop()
        if place is not None and run:
            runs.append(run)
    return runs


def _run_contacts(
    keys: Sequence[HandKey | FootKey], run: list[int], active: torch.Tensor, side: Side, time: torch.Tensor
) -> list[Contact]:
    """Make the contacts of one run: one for each way between places, with the hold before it; the last holds on."""
    moving = f"{side}_{keys[run[0]].with_}"
    before, share = key_progress([key.at for key in keys], [key.through for key in keys], time)
    ways = [(a, b) for a, b in itertools.pairwise(run) if keys[a].touch != keys[b].touch]
    if not ways:
        place = keys[run[0]].touch
        assert place is not None
        return [Contact(moving, place, place, torch.zeros_like(time), active, 0.0, slides=False)]
    contacts = []
    start = -torch.inf
    for number, (a, b) in enumerate(ways):
        end = torch.inf if number == len(ways) - 1 else keys[b].at
        first, second = keys[a].touch, keys[b].touch
        assert first is not None
        assert second is not None
        wandered = torch.where(before < a, 0.0, torch.where(before > a, 1.0, share))
        within = active & (time >= start) & (time < end)
        contacts.append(Contact(moving, first, second, wandered, within, 0.0, slides=True))
        start = end
    return contacts
