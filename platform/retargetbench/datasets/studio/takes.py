"""Takes: what every body of a build is to perform, whether authored in the package or found elsewhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, get_args

from retargetbench.datasets.studio.actions import Family, read_actions
from retargetbench.datasets.studio.choreography import choreograph
from retargetbench.datasets.studio.pack_motions import FPS
from retargetbench.datasets.studio.variants import variant_of
from retargetbench.errors import DatasetError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retargetbench.character import Character
    from retargetbench.datasets.studio.actions import Action, HandShape
    from retargetbench.datasets.studio.performance import Performance

    ShapedBody = Callable[[HandShape, HandShape], Character]
    """Gives the reference body on the 22 joints with the left and the right hand in these shapes."""

ALL = "all"
"""Word for all actions."""

_UNSEEN_EVERY = 4
"""Of takes that say nothing about it, every fourth is not for training."""


class Origin(Protocol):
    """Where a take comes from; picklable."""

    def identity(self) -> object:
        """Return what the draft depends on besides code and the reference body, as JSON has it."""

    def draft(self, shaped: ShapedBody) -> Performance:
        """Make the performance on the reference body, before it is solved there."""


@dataclass(frozen=True)
class Authored:
    """An action of the package in one of its variants."""

    action: Action
    variant: int
    seed: int

    def identity(self) -> object:
        """Return the action, the variant and the seed."""
        return [self.action.model_dump(mode="json", by_alias=True), self.variant, self.seed]

    def draft(self, shaped: ShapedBody) -> Performance:
        """Choreograph it."""
        hands = variant_of(self.action, seed=self.seed, variant=self.variant).hands
        return choreograph(self.action, shaped(hands.left, hands.right), seed=self.seed, variant=self.variant)


@dataclass(frozen=True, eq=False)
class Stored:
    """A performance on the reference body that there is already, such as one detected in a motion of a library."""

    performance: Performance

    def identity(self) -> object:
        """Return a digest of the motion and what is said of its steps and contacts."""
        p = self.performance
        digest = hashlib.sha256()
        steps = [value for track in p.feet for value in vars(track).values()]
        for tensor in (p.rotations, p.hips, *steps, *(t for c in p.contacts for t in (c.share, c.active))):
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        contacts = [[c.moving, c.first, c.second, c.gap, c.slides] for c in p.contacts]
        return [p.name, p.family, p.fps, dict(p.hands), p.seated, contacts, digest.hexdigest()]

    def draft(self, shaped: ShapedBody) -> Performance:
        """Return it as it is."""
        return self.performance


@dataclass(frozen=True, eq=False)
class Take:
    """A performance that every body gets.

    Attributes:
        name: of the motion in the dataset.
        family: of the action.
        summary: what one sees, in a few words.
        seen: whether methods may train on it.
        left: shape of the left hand.
        right: shape of the right hand.
        origin: makes it on the reference body.
    """

    name: str
    family: Family
    summary: str
    seen: bool
    left: HandShape
    right: HandShape
    origin: Origin


def authored_takes(actions: Sequence[Action], *, variants: int = 1, seed: int = 0) -> tuple[Take, ...]:
    """Return the first variants of actions: first all as authored, then all as variant 1, and so on.

    Args:
        actions: of the package or like them.
        variants: how many of each; variant 0 is as authored.
        seed: of small movements, tempo and amplitude.
    """
    takes = []
    for variant in range(variants):
        for action in actions:
            hands = variant_of(action, seed=seed, variant=variant).hands
            name = action.name if variant == 0 else f"{action.name}_v{variant}"
            origin = Authored(action, variant, seed)
            takes.append(Take(name, action.family, action.summary, action.seen, hands.left, hands.right, origin))
    return tuple(takes)


def stored_takes(performances: Sequence[Performance]) -> tuple[Take, ...]:
    """Return performances on the reference body as takes; every fourth by name is kept from training.

    Raises:
        DatasetError: two have one name, or one has another frame rate or number of frames than a pack takes.
    """
    takes: list[Take] = []
    for number, p in enumerate(sorted(performances, key=lambda performance: performance.name)):
        if takes and takes[-1].name == p.name:
            raise DatasetError(f"two motions are called {p.name}; rename one")
        if p.fps != FPS or len(p.rotations) % 2 != 1:
            raise DatasetError(
                f"motion {p.name}: a pack takes an odd number of frames at {FPS:g} fps, got {len(p.rotations)} at "
                f"{p.fps:g}"
            )
        seen = number % _UNSEEN_EVERY != _UNSEEN_EVERY - 1
        takes.append(Take(p.name, p.family, p.name, seen, p.hands["left"], p.hands["right"], Stored(p)))
    return tuple(takes)


def choose_actions(names: Sequence[str], actions: Sequence[Action] | None = None) -> tuple[Action, ...]:
    """Return the actions that are named, in the order of the package.

    Args:
        names: of actions or families, or ``all``.
        actions: to choose from; those of the package by default.

    Raises:
        UnknownNameError: there is no such action or family.
        UsageError: nothing is named.
    """
    if not names:
        raise UsageError("--actions names no action; give names or families separated by commas, or all")
    known = read_actions() if actions is None else tuple(actions)
    accepted = {ALL, *get_args(Family), *(action.name for action in known)}
    for name in names:
        if name not in accepted:
            raise UnknownNameError("action or family", name, accepted)
    wanted = set(names)
    return tuple(action for action in known if wanted & {ALL, action.family, action.name})
