"""`current_operation()`: what a tool can learn about the operation it performs."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, cast

import msgspec

from beforehand.engine.exceptions.call_end import clean
from beforehand.errors import ArgumentError, OutsideRun, SendByPassed
from beforehand.model import records as r
from beforehand.model.ids import marker, operation_id
from beforehand.model.outcome import PARTS_AT_MOST
from beforehand.policies import milliseconds

DAY: Final = timedelta(days=1)
INFINITE: Final = float("inf")


class CurrentOperation:
    """The operation that the running tool performs.

    Reading `key` or `marker` is recorded. If a keyed tool never reads its key, the system could not deduplicate the
    call, and the operation is treated as a plain write from then on.
    """

    __slots__ = (
        "_key",
        "_left_ms",
        "attempt",
        "cost",
        "expected",
        "key_read",
        "observed",
        "reported",
        "request",
        "run",
        "sends",
        "step",
        "tool",
        "writes",
    )

    def __init__(
        self, run: str, step: str, tool: str, attempt: int, left_ms: Callable[[], int], key: Callable[[], str]
    ) -> None:
        self.run = run
        self.step = step
        self.tool = tool
        self.attempt = attempt
        self.observed: Any = None
        self.expected: Any = None
        self.key_read = False
        self.sends = 0
        self.cost: float | None = None
        self.reported: CallReport | None = None
        self.writes = True
        self.request: tuple[object, ...] | None = None
        """The HTTP request of this attempt that has its key (`beforehand.hosts.http`)."""
        self._key = key
        self._left_ms = left_ms

    @property
    def id(self) -> str:
        """The operation's full name."""
        return operation_id(self.run, self.step)

    @property
    def key(self) -> str:
        """The idempotency key. It is the same for every attempt of this operation, and unique to the operation."""
        self.key_read = True
        return self._key()

    @property
    def marker(self) -> str:
        """The key in a form that can be planted in the effect, so that `verify` finds it again."""
        self.key_read = True
        return marker(self._key())

    @property
    def seconds_left(self) -> float:
        """Seconds until the send-by deadline of this attempt; negative once it has passed."""
        return self._left_ms() / 1000

    def spend(self, cost: float) -> None:
        """Report the cost of this attempt so far, in the unit of the tool's `Budget`.

        The cost is recorded with the attempt's end and counts over all attempts, across crashes. Raises `ArgumentError`
        for a negative or non-finite number.
        """
        spent = self.cost or 0.0
        if not isinstance(cost, (int, float)) or not 0 <= cost < INFINITE or spent + cost == INFINITE:  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
            raise ArgumentError(
                f"{self.id} cannot spend {cost!r}",
                parameter="cost",
                next_step="give a cost as a finite number of zero or more",
            )
        self.cost = spent + cost

    def report(self, fact: str, value: Any) -> None:
        """Report a fact that this call found or changed: `report("stock of A-1", 3)`.

        The fact is recorded with the end of the call, whatever its outcome. From then on it is in the run's `facts`,
        with this tool and operation as its source. The newest value of a name counts. The method never raises, because
        the effect may already have happened: a value without a JSON form is stored as text.
        """
        self.reported = self.reported or CallReport()
        self.reported.report(fact, value)

    def pending(self, item: str, *, within: timedelta = DAY, key: str = "", every: timedelta | None = None,
        about: str | tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Declare that a part of this effect is accepted and ends later, for example if 2 of 5 mails are queued.

        Return from the tool what is done. The rest is awaited under `key` (by default made of the operation's own key
        and the item), like a deferred outcome. `beforehand deliver`, a webhook, `verify` or finally a person settles
        it. `verify` is called at the deadline, and before it at the interval `every`; it names the missing parts in
        `Happened(missing=...)`.

        While the part is pending, no further call of the tool on the same subject is sent. `about` names the parameters
        that identify the subject, or gives the subject itself; by default it is what the tool declares. The method
        never raises, because the effect may already have happened.
        """
        self.reported = self.reported or CallReport()
        self.reported.await_item(item, within, key, every, about)

    def check_send(self) -> None:
        """Check the attempt's send-by deadline. Call it right before sending. Raises `SendByPassed` after the deadline.

        A process that was paused may continue hours later in the middle of a tool, when another attempt may already
        have been made. Retries inside a client library count as sends.
        """
        left = self._left_ms()
        self.sends += 1
        if left <= 0:
            raise SendByPassed(
                f"{self.id}, attempt {self.attempt}: the send-by deadline passed {-left / 1000:.1f} s ago",
                next_step="nothing to do: the runtime decides what happens to the operation",
            )


AT: Final[ContextVar[CurrentOperation | None]] = ContextVar("beforehand_operation", default=None)


def current_operation() -> CurrentOperation:
    """The operation that the calling tool performs. Raises `OutsideRun` outside a tool."""
    operation = AT.get()
    if operation is None:
        raise OutsideRun(
            "current_operation() was called where no tool is being performed",
            next_step="call it inside a @tool function; in a unit test use beforehand.testing.operation(key=...)",
        )
    return operation


DAY_MS = 86_400_000


class CallReport:
    """The reports of one call so far. Total: no report of a tool after its effect may make the effect doubtful."""

    __slots__ = ("_facts", "_items")

    def __init__(self) -> None:
        self._facts: dict[str, r.Raw] = {}
        self._items: dict[str, r.PendingItem] = {}

    def report(self, fact: str, value: Any) -> None:
        """Keep a fact; the newest value of a name counts."""
        self._facts[clean(fact)] = _stored(value)

    def await_item(self, item: str, within: timedelta, key: str, every: timedelta | None, about: object = ()) -> None:
        """Keep a part whose end comes later; of several reports of it the newest counts."""
        name = clean(item) or "the rest"
        if name in self._items or len(self._items) < PARTS_AT_MOST:
            self._items[name] = r.PendingItem(
                name, clean(key), _milliseconds_of(within, DAY_MS), _milliseconds_of(every, 0), _named(about)
            )

    @property
    def facts(self) -> tuple[r.Reported, ...]:
        """The facts as they are recorded."""
        return tuple(r.Reported(name, value) for name, value in self._facts.items())

    def added_to(self, end: r.End) -> r.End:
        """The end of the call with its reports. Only a call that returned has parts that are still to come."""
        items = tuple(self._items.values()) if end.kind == "returned" else ()
        return msgspec.structs.replace(end, facts=self.facts, pending=items)


def _milliseconds_of(span: object, otherwise: int) -> int:
    """A duration as milliseconds; `otherwise` if the value is not a duration."""
    return max(0, milliseconds(span)) if isinstance(span, timedelta) else otherwise


def _named(about: object) -> tuple[str, ...]:
    """The thing that a part is about: names of parameters, or one text that is the thing itself."""
    parts = cast("tuple[object, ...]", about) if isinstance(about, (tuple, list)) else (about,)
    return tuple(name for name in (clean(part) for part in parts if isinstance(part, str)) if name)


def _stored(value: Any) -> r.Raw:
    try:
        return r.Raw(msgspec.json.encode(value, enc_hook=str))
    except Exception:  # noqa: BLE001 - formatting it runs foreign code; the effect is done all the same
        return r.Raw(msgspec.json.encode(clean(value)))
