"""Where one operation stands by its durable records, as the checker reads them."""

from __future__ import annotations

from holdfast.model import records as r


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
        self.unsent = 0
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
        """What came of an attempt, as far as somebody knows now."""
        match record:
            case r.OperationDeferred(number=number):
                self.ended.add(number)
                self.deferred = number
            case r.AttemptEnded(number=number, over=True, end=end):
                self.ended.add(number)
                self.unsent += end.kind in {"not_sent", "key_in_progress"}
                self.deaths += end.died
            case r.LateReport(end=end):
                self.unsent += end.kind in {"not_sent", "key_in_progress"}
                self.proved = self.proved or end.kind in {"not_sent", "rejected"}
            case _:
                return
