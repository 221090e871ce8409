"""Durable records: where an operation is, what is stored and chained at the end, and what a replay delivers again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from beforehand.journal.record_codec import decode
from beforehand.journal.run_log import genesis, verify_chain
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory
from beforehand.testing.loop import Actor

if TYPE_CHECKING:
    from beforehand.testing.world.disk import Store
    from beforehand.testing.world.files import Files


class Standing:
    """What the durable records say about one operation, kept apart from the product's own fold."""

    __slots__ = (
        "absences",
        "asked",
        "attempts",
        "deaths",
        "deferred",
        "ended",
        "intent",
        "person",
        "proved",
        "retries",
        "run",
        "settled",
        "step",
        "unknown",
        "unsent",
    )

    def __init__(self, run: str, step: str) -> None:
        self.run = run
        self.step = step
        self.intent: r.Intent | None = None
        self.attempts: dict[int, r.AttemptStarted] = {}
        self.settled: r.OperationSettled | r.Resolved | r.ResultGiven | None = None
        self.ended: set[int] = set()
        self.asked = False
        """A person is asked to approve it, or was."""
        self.retries = 0
        self.person = False
        self.unknown = False
        self.unsent: set[int] = set()
        """The attempts that sent nothing, or whose key was in use: a report may say so a second time."""
        self.deaths = 0
        """Attempts whose process died: they have a limit of their own."""
        self.deferred = 0
        """The attempt whose answer is to come later."""
        self.proved = False
        """A late report says that nothing landed."""

    def state(self) -> str:
        """Where it stands: nothing where it has ended."""
        if self.settled is not None:
            return "unknown" if getattr(self.settled, "status", "") == "unknown" else ""
        if not self.attempts:
            return "gated" if self.asked else "planned"
        if max(self.attempts) == self.deferred:
            return "awaiting"
        return "ended" if max(self.attempts) in self.ended else "running"

    def said(self, record: r.ArgumentsEdited | r.ResultGiven | r.Resolved) -> None:
        """A person said what is to be sent, or what came of it."""
        match record:
            case r.ArgumentsEdited(intent=intent):
                self.intent = intent
            case r.Resolved(word="retry" | "same_key"):
                self.person, self.settled = True, None
                self.retries += 1
            case _:
                self.person, self.settled = True, record

    def told(self, record: r.AttemptEnded | r.OperationDeferred | r.LateReport) -> None:
        """The end of an attempt, as far as it is known now."""
        match record:
            case r.OperationDeferred(number=number):
                self.ended.add(number)
                self.deferred = number
            case r.AttemptEnded(number=number, over=True, end=end):
                self.ended.add(number)
                self._sent_nothing(number, end)
                self.deaths += end.died
            case r.LateReport(number=number, end=end):
                self._sent_nothing(number, end)
                self.proved = self.proved or end.kind in {"not_sent", "rejected"}
            case _:
                return

    def _sent_nothing(self, number: int, end: r.End) -> None:
        if end.kind in {"not_sent", "key_in_progress"}:
            self.unsent.add(number)


# --- the records of every run at the end ------------------------------------------------------------------------------


async def check_records(
    store: Store | Files, acknowledged: Iterable[tuple[str, int, bytes]], broken: Callable[[int, str], None]
) -> None:
    """Look at all records; `acknowledged` are those, by run, number and hash, that a process was told are durable."""
    listed = await store.runs(limit=10_000)
    rows = {row.run: await store.read(row.run, limit=100_000) for row in listed}
    for run, seq, head in acknowledged:
        if len(rows[run]) < seq or rows[run][seq - 1].hash != head:
            broken(20, f"record {seq} of run {run} was acknowledged and is not there")
    for listing in listed:
        stored = rows[listing.run]
        if verify_chain(stored, genesis(store.identity.namespace, listing.run)) is not None:
            broken(15, f"the chain of run {listing.run} does not hold")
        history = RunHistory(listing.run)
        for row in stored:
            history.add(decode(row.body))
        if (
            stored
            and history.lifecycle.status != listing.status
            and not _both_open(history.lifecycle.status, listing.status)
        ):
            broken(
                14, f"run {listing.run} is listed as {listing.status}, and its records say {history.lifecycle.status}"
            )


def _both_open(recorded: str, listed: str) -> bool:
    """A run that waits is listed as running while a process drives it, or as soon as it is due."""
    return {recorded, listed} <= {"running", "suspended"}


# --- replay -----------------------------------------------------------------------------------------------------------


PLACE: Final[ContextVar[tuple[str, int]]] = ContextVar("beforehand_simulated_place")
"""The run and the place in its script where agent code is; nothing where the runtime itself is at work."""


class Replays:
    """What the code of every run was told, place by place."""

    def __init__(self, broken: Callable[[int, str], None]) -> None:
        self._broken = broken
        self._told: dict[tuple[str, int], list[str]] = {}
        self._firm: dict[tuple[str, int], tuple[int, list[str]]] = {}
        """What is on record, and how many executions of an agent had begun by then."""
        self._executions = 0

    def restored(self) -> None:
        """The records say less than they did."""
        self._told.clear()
        self._firm.clear()

    def begin(self) -> int:
        """An agent begins anew: the number of this execution."""
        self._executions += 1
        return self._executions

    def told(self, actor: Actor, execution: int, place: tuple[str, int], news: list[str], *, owned: bool) -> None:
        """Agent code has done what stands at one place of its script. A late process may be given what is not recorded.

        So may a process that another one has taken the run from (not `owned`), also where its code begins only then.
        """
        if not actor.alive or not owned:
            return
        since, before = self._firm.get(place, (execution, news))
        if since < execution and before != news:
            self._broken(14, f"run {place[0]} was told {news} at {place[1]}, and {before} before something else left")
        self._told[place] = news

    def sent(self) -> None:
        """A write of agent code is about to leave: what was told before it is on record."""
        run, number = PLACE.get(("", 0))
        for place in range(number):
            news = self._told.get((run, place))
            if news is not None:
                self._firm.setdefault((run, place), (self._executions, news))
