"""A small honest world: services that promise what their contracts say, and no more.

Time is one true clock that no process can read. A request *arrives*, is *committed* and becomes *visible*,
in that order; how late is drawn by the test, within the declared settle window after its call is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from beforehand.model.contract import Contract
from beforehand.policies import milliseconds

Answer = Literal["returned", "rejected", "key_in_progress", "silence"]


@dataclass
class Effect:
    """One application in the world: `at` it is committed, from `visible` on it can be read."""

    at: int
    visible: int


@dataclass
class World:
    """What the service holds, and what another party changed there."""

    contract: Contract
    effects: list[Effect] = field(default_factory=list)
    key_first: int | None = None  # when the service first saw the key that it remembers
    key_answer: Answer = "returned"
    changes: int = 0  # by others
    observed: int = 0

    def arrives(self, now: int, late: int, lag: int, *, refuses: bool) -> Answer:
        """A request reaches the service. Returns what the service would answer at once."""
        key = self.contract.key
        if key is None:
            return self._applies(now, late, lag, refuses=refuses)
        known = self.key_first is not None and (key.ttl is None or now < self.key_first + milliseconds(key.ttl))
        if not known:
            answer = self._applies(now, late, lag, refuses=refuses)
            if answer == "returned" or key.stores == "all":
                self.key_first, self.key_answer = now, answer
            return answer
        if any(effect.at > now for effect in self.effects):  # the first request is still in progress
            if key.in_progress == "runs_twice":
                return self._applies(now, late, lag, refuses=refuses)
            return "rejected" if refuses and key.stores == "success" else "key_in_progress"
        return self.key_answer

    def _applies(self, now: int, late: int, lag: int, *, refuses: bool) -> Answer:
        if refuses:
            return "rejected"
        self.effects.append(Effect(now + late, now + late + lag))
        return "returned"

    def happened(self, now: int) -> bool:
        """Whether a reader sees our effect now."""
        return any(effect.visible <= now for effect in self.effects)

    def reading(self, now: int) -> Literal["same", "changed"]:
        """The preconditions against those that were observed first; our own effect changes them too."""
        landed = any(effect.at <= now for effect in self.effects)
        return "changed" if landed or self.changes != self.observed else "same"
