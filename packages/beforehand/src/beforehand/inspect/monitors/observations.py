"""Observations: what the records of one run say that a rule may want to count.

Each observation follows from the records up to one record and belongs to that record. So an observation is made once,
in whatever portions the records are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import msgspec

from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.records import Intent, Raw

ENDS: Final = (r.RunCompleted, r.RunStoppedRecord, r.RunUndone)
RESTS: Final = (r.RunSuspendedRecord, *ENDS)
"""The records after which no process drives a run."""
STEPS: Final = {"tokens": 1000, "driven": 10_000, "repeats": 2}
"""The sizes of a run that are observed, from these values on and each time that they double: the tokens of its models,
the milliseconds in which a process drove it, and how often it made one call with the same arguments."""
_LONGEST: Final = 200
_DEEPEST: Final = 12
_RECEIPT: Final = {"operation", "tool", "key", "basis", "at_ms"}


class Observation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing to count: under a topic, a value. `subject` is a run or an operation, `at_ms` the wall clock."""

    topic: str
    value: str
    subject: str
    at_ms: int


class RunReading:
    """A reading of the records of one run from the first one on, as far as it has come.

    `agent` is empty until the first record is read; `length` is the number of records that were read.
    """

    def __init__(self, run: str) -> None:
        self.run: Final = run
        self.agent = ""
        self.length = 0
        self._tools: dict[str, str] = {}
        self._settled: set[str] = set()
        self._landed: dict[str, str] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._sizes = dict.fromkeys(STEPS, 0)
        self._last: r.Record | None = None

    @property
    def ended(self) -> bool:
        """True if the last record ended the run."""
        return isinstance(self._last, ENDS)

    def read(self, record: r.Record) -> list[Observation]:
        """Take in the next record; the observations that belong to it."""
        self.length += 1
        return list(self._read(record))

    def _read(self, record: r.Record) -> Iterator[Observation]:
        intent = getattr(record, "intent", None)
        step = getattr(record, "step", "")
        if isinstance(intent, Intent) and not intent.serves and step not in self._tools:
            self._tools[step] = intent.tool
            yield from self._called(intent.tool, intent.digest, record.at)
        match record:
            case r.RunStarted():
                self.agent = record.agent
                yield self._seen("versions", record.version, record.at)
            case r.ReadRecorded():
                yield from self._called(record.tool, record.digest, record.at)
            case r.DecisionStarted() | r.DecisionRecorded():
                used = record.before if isinstance(record, r.DecisionStarted) else record.usage
                yield from self._grown("tokens", used.input_tokens + used.output_tokens, record.at)
            case r.Verified():
                tool = self._tools.get(record.step, "")
                yield self._seen(f"verdicts of {tool}", record.verdict, record.at, record.step)
            case r.OperationSettled() | r.OutcomeReused():
                yield from self._outcome(record)
            case r.RunCompleted():
                yield from self._completed(record)
            case _:
                pass
        yield from self._driven(record)

    def _driven(self, record: r.Record) -> Iterator[Observation]:
        """The time since the record before, where a process drove the run meanwhile."""
        last = self._last
        if record.at and last is not None and not isinstance(last, RESTS) and not isinstance(record, r.Claimed):
            yield from self._grown("driven", max(0, record.at - last.at), record.at)
        self._last = record if record.at else last

    def _seen(self, topic: str, value: str, at_ms: int, step: str = "") -> Observation:
        subject = operation_id(self.run, step) if step else self.run
        return Observation(topic[:_LONGEST], value[:_LONGEST], subject, at_ms)

    def _called(self, tool: str, digest: str, at_ms: int) -> Iterator[Observation]:
        self._calls[tool, digest] += 1
        more = self._calls[tool, digest] - self._sizes["repeats"]
        yield from self._grown("repeats", max(0, more), at_ms)

    def _grown(self, name: str, by: int, at_ms: int) -> Iterator[Observation]:
        """A size has grown: an observation for each step that it has reached by that."""
        before, after = self._sizes[name], self._sizes[name] + by
        self._sizes[name] = after
        step = STEPS[name]
        while step <= after:
            if step > before:
                yield self._seen(name, str(step), at_ms)
            step *= 2

    def _outcome(self, record: r.OperationSettled | r.OutcomeReused) -> Iterator[Observation]:
        if isinstance(record, r.OutcomeReused) or record.status == "succeeded":
            self._landed[record.step] = self._tools.get(record.step, "")
        if isinstance(record, r.OperationSettled) and record.step not in self._settled:
            self._settled.add(record.step)
            yield self._seen("writes", record.status, record.at, record.step)

    def _completed(self, record: r.RunCompleted) -> Iterator[Observation]:
        yield self._seen("runs", "completed", record.at)
        yield self._seen("effects", ", ".join(sorted(set(self._landed.values()) - {""})), record.at)
        for operation in _claimed(record.result):
            run, _, step = operation.rpartition("/")
            if run != self.run or step not in self._landed:
                yield self._seen("claims", operation, record.at)


def _claimed(result: Raw) -> Iterator[str]:
    """The operations of everything in a result that has the form of a receipt."""
    if b'"operation"' not in bytes(result):
        return
    values: list[tuple[Any, int]] = [(msgspec.json.decode(result), 0)]
    while values:
        value, deep = values.pop()
        parts: Iterable[Any] = ()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            parts = fields.values()
            if fields.keys() >= _RECEIPT and isinstance(fields["operation"], str):
                yield fields["operation"]
        elif isinstance(value, list):
            parts = cast("Iterable[Any]", value)
        if deep < _DEEPEST:
            values += [(one, deep + 1) for one in parts]
