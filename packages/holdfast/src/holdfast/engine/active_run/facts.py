"""Facts of a run about the world: a correction stops the steps of plans that relied on the old value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.engine.active_run.log import RunRecorder
from holdfast.model import records as r
from holdfast.model.facts import Correction, Fact, Known
from holdfast.model.transaction import encloses


class RunFacts:
    """The facts of one run. `learned` are the messages whose facts it knows already."""

    def __init__(self, log: RunRecorder, wake: Callable[[], None]) -> None:
        self.known: Final = Known()
        self.learned: Final[set[int]] = set()
        self.seen_by_models: Final[dict[str, bytes]] = {}
        self._log: Final = log
        self._wake: Final = wake  # let the drivers evaluate their situation again

    def learn(self, fact: Fact, by: str = "") -> Correction | None:
        """Take a fact. If it corrects one that steps of a plan under way rely on, nothing more is sent for them.

        That is on record: a process that recovers the run does not send it either.
        """
        correction = self.known.learn(fact, by)
        if correction is None:
            return None
        if correction != Correction(fact.name):
            self.known.corrections.append(correction)
        self.drop({*correction.dropped, *correction.underway} & self.known.planned.keys(), fact.name)
        return correction

    def undelivered(self) -> tuple[r.MessageReceived, ...]:
        """Messages with facts that no code of this run has received in this process."""
        messages = self._log.history.messages
        if messages is None:
            return ()
        return tuple(one for one in messages.received.values() if one.facts and one.entry not in self.learned)

    def drop_open_steps(self) -> None:
        """Drop steps under way in a plan that begins (perhaps again) and relies on a fact that a message corrected."""
        under_way = [operation.step for operation in self._log.history.open_operations()]
        for message in self.undelivered():
            for fact in message.facts:
                resting = self.resting_on(fact)
                self.drop({one for one in resting if any(encloses(one, step) for step in under_way)}, fact.name)

    def drop_resting_on(self, message: r.MessageReceived) -> None:
        """Drop every step of a plan that relies on a fact that this message corrects."""
        for fact in message.facts:
            self.drop(self.resting_on(fact), fact.name)

    def resting_on(self, fact: r.Reported) -> set[str]:
        """The steps of plans that rely on another value of this fact."""
        return self.known.resting_on(fact.name, msgspec.json.decode(fact.value))

    def drop(self, steps: set[str], fact: str) -> None:
        """Send nothing more for these steps of plans: the fact that they rely on was corrected."""
        steps -= self._log.history.given_up
        if steps:
            dropped = r.StepsDropped(steps=tuple(sorted(steps)), why=f"{fact} was corrected", **self._log.stamp())
            self._log.buffer(dropped)
            self._wake()
