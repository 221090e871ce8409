"""The contract of a tool: what the runtime must know to decide about its effects.

The user-facing values (`Key`, `Natural`, `Once`) are small so that illegal combinations cannot be
written. A `Contract` is plain data: it is stored with each operation by digest, and attempts are
judged by the contract they were made under.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from beforehand.policies import OUTAGE_RETRY, READ_RETRY, WRITE_RETRY, Budget, Gate, Retry, milliseconds

Effect = Literal["read", "write"]
InProgress = Literal["rejects", "blocks", "runs_twice"]
Mismatch = Literal["error", "silent"]
Stores = Literal["success", "all"]
Repeat = Literal["replay", "ask", "block", "allow"]
OnUnknown = Literal["suspend", "raise"]


PATIENCE: Final = timedelta(minutes=5)


class Key(msgspec.Struct, frozen=True, omit_defaults=True, tag="key"):
    """A declaration that the system deduplicates on our idempotency key.

    `ttl` is how long the system remembers a key, counted from the first send that may have arrived. None means forever:
    write `Key.forever()`. `in_progress` is its reaction to a key whose first request is still running,
    `in_progress_statuses` the HTTP statuses of that reaction (409, with its `Retry-After`), and `in_progress_patience`
    how long the runtime waits for that request. `mismatch` is the system's reaction to a known key with other
    parameters. `stores` says which answers it returns again: only successes, or all, including refusals and errors.
    """

    ttl: timedelta | None
    in_progress: InProgress = "rejects"
    mismatch: Mismatch = "error"
    stores: Stores = "success"
    in_progress_patience: timedelta = PATIENCE
    in_progress_statuses: tuple[int, ...] = ()

    @classmethod
    def forever(
        cls,
        *,
        in_progress: InProgress = "rejects",
        mismatch: Mismatch = "error",
        stores: Stores = "success",
        in_progress_patience: timedelta = PATIENCE,
        in_progress_statuses: tuple[int, ...] = (),
    ) -> Key:
        """A key that the system never forgets."""
        return cls(None, in_progress, mismatch, stores, in_progress_patience, in_progress_statuses)

    def __post_init__(self) -> None:
        if milliseconds(self.in_progress_patience) < 0:
            raise ValueError(f"Key(in_progress_patience={self.in_progress_patience}) cannot be negative")
        if self.ttl is not None and milliseconds(self.ttl) <= 0:
            raise ValueError("Key(ttl=...) is the time for which the system remembers a key: more than zero")


class Natural(msgspec.Struct, frozen=True, omit_defaults=True, tag="natural"):
    """A declaration that repeating the effect changes nothing, unless another party acted in between.

    Without `observe`, the effect is repeated only `within` that time after its first attempt. `settle_window` is how
    long an attempt without an answer may still land after its call ended. Until then the operation is not settled, so
    that such an attempt never overwrites a later write.
    """

    within: timedelta = timedelta(minutes=10)
    settle_window: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        for name, span in (("within", self.within), ("settle_window", self.settle_window)):
            if milliseconds(span) < 0:
                raise ValueError(f"Natural({name}={span}) is a duration: it cannot be negative")


@dataclass(frozen=True, init=False)
class Once:
    """The rule for a call of a model that repeats an earlier one: when it does, for how long, and what happens then.

    A call is a repeat if all its arguments equal those of the newest call with the same `parameters`. With `reworded`,
    only the `parameters` are compared, because a model that asks again may reword the other arguments.
    """

    parameters: tuple[str, ...]
    within: timedelta | None
    then: Repeat
    reworded: bool = False

    def __init__(
        self, *parameters: str, within: timedelta | None = None, then: Repeat = "replay", reworded: bool = False
    ) -> None:
        if within is not None and milliseconds(within) <= 0:
            raise ValueError(f"Once(within={within}) is the time in which a repeat counts as one: more than zero")
        for name, value in (("parameters", parameters), ("within", within), ("then", then), ("reworded", reworded)):
            object.__setattr__(self, name, value)  # frozen: a dataclass with a variadic constructor


@dataclass(frozen=True, init=False)
class Pending:
    """The part of a success that is still pending, and its subject: `Pending("an answer", about="lead")`.

    While it is pending, no further call of the tool on the same subject is sent. `about` names the parameters that
    identify the subject. By default those of `claim` or `once` do, then those in the title, then all parameters; of
    the last two, those annotated `FreeText` do not count. To callers, `FreeText` is `str`. Without an `item`, only the
    tool's body declares what is pending.
    """

    item: str
    about: tuple[str, ...]
    within: timedelta

    def __init__(
        self, item: str = "", *, about: str | tuple[str, ...] = (), within: timedelta = timedelta(days=1)
    ) -> None:
        if milliseconds(within) <= 0:
            raise ValueError(f"Pending(within={within}) is how long it is waited for: more than zero")
        names = (about,) if isinstance(about, str) else tuple(about)
        for name, value in (("item", item), ("about", tuple(filter(None, names))), ("within", within)):
            object.__setattr__(self, name, value)  # frozen, and `about` takes one name as text


FreeText: TypeAlias = Annotated[str, msgspec.Meta(extra={"free_text": True})]
"""The annotation of a parameter that only words a call (a message, a reason), and does not identify its subject.

To callers and type checkers it is `str`. What is pending is compared without it: see `Pending`.
"""


class Rejection(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer that proves that nothing landed: `not_sent` may be tried again, `rejected` is final."""

    status: int
    means: Literal["rejected", "not_sent"]


CLAUSES: Final[Mapping[str, tuple[type, ...]]] = {
    "idempotency": (Key, Natural), "once": (Once,), "pending": (Pending,), "retry": (Retry,), "budget": (Budget,),
    "gate": (Gate,),
}  # fmt: skip
"""The kinds of value that a clause takes. Type hints are not checked at run time."""


class Contract(msgspec.Struct, frozen=True, omit_defaults=True):
    """The declared properties of one tool. Durations are milliseconds; `settle_ms` None means unknown."""

    tool: str
    effect: Effect = "write"
    idempotency: Key | Natural | None = None
    observes: bool = False
    expects: bool = False
    verifies: bool = False
    check_first: bool = False
    settle_ms: int | None = None
    verify_deadline_ms: int = 15 * 60_000
    verify_every_ms: int = 5_000
    compensates: bool = False
    restores: bool = False
    absent_safe: bool = False
    amends: str = ""  # the tool that compensates it
    confirms: str = ""  # the tool that completes the reservation it makes
    lapses_ms: int | None = None  # how long that reservation holds
    timeout_ms: int = 60_000
    retry: Retry | None = None  # None: the default for such a tool
    budget: Budget = Budget()
    on_unknown: OnUnknown = "suspend"
    rejections: tuple[Rejection, ...] = ()
    claim: tuple[str, ...] = ()
    once: Once | None = None
    gate: Gate | None = None
    pending: Pending | None = None
    may_be_null: bool = True  # whether null is a result that its return annotation can read
    was_natural: Natural | None = None  # the clause of earlier attempts, where `stricter` takes it away

    @property
    def key(self) -> Key | None:
        """The key clause, if the system dedupes on our key."""
        return self.idempotency if isinstance(self.idempotency, Key) else None

    @property
    def retries(self) -> Retry:
        """The limits of its retries: the declared ones, else the default for what the contract promises by now."""
        if self.retry is not None:
            return self.retry
        if self.effect == "read":
            return READ_RETRY
        return OUTAGE_RETRY if self.safe_again else WRITE_RETRY

    @property
    def safe_again(self) -> bool:
        """True for a write with a promise or a verifier, by which it can be sent again without a guess."""
        return self.effect == "write" and (self.idempotency is not None or self.verifies)

    @property
    def patience_ms(self) -> int:
        """How long the answer that our key is in progress is waited for, besides what `retry` allows."""
        key = self.key
        return milliseconds(PATIENCE if key is None else key.in_progress_patience)

    @property
    def natural(self) -> Natural | None:
        """The clause that says that repeating changes nothing, if declared."""
        return self.idempotency if isinstance(self.idempotency, Natural) else None

    @property
    def overtaken_ms(self) -> int | None:
        """How long after its call an attempt may still undo a later write; None: it never may, or it is unknown."""
        natural = self.natural or self.was_natural
        return milliseconds(natural.settle_window) if natural is not None and self.effect == "write" else None

    @property
    def irreversible(self) -> bool:
        """True if its effect cannot be reverted: inside a transaction it waits for the commit."""
        return self.effect == "write" and not self.restores

    @property
    def rides(self) -> bool:
        """True if a success may be committed with the next thing that waits.

        Losing it must cost no more than asking the system again: a key, or a verifier.
        """
        return not self.expects and (self.key is not None or self.verifies)


@lru_cache(maxsize=4096)
def contract_digest(contract: Contract) -> str:
    """Eight characters (48 bits) that name these exact clauses."""
    named = hashlib.sha256(msgspec.json.encode(contract, order="deterministic")).digest()[:6]
    return base64.urlsafe_b64encode(named).decode()


@lru_cache(maxsize=4096)
def stricter(old: Contract, new: Contract) -> Contract:
    """The clauses for a new attempt of an operation that was begun under `old` and continues under `new`.

    What a handler does (observe, verify, compensate) is judged by the code that is there now; what is
    *promised* about the outside system holds only where both contracts promise it.
    """
    if old == new:
        return new
    return msgspec.structs.replace(
        new,
        effect="read" if old.effect == new.effect == "read" else "write",
        idempotency=_weaker(old.idempotency, new.idempotency),
        was_natural=old.natural if new.natural is None else None,
        expects=old.expects or new.expects,
        check_first=(old.check_first or new.check_first) and new.verifies,
        settle_ms=None if old.settle_ms is None or new.settle_ms is None else max(old.settle_ms, new.settle_ms),
        retry=None if old.retry is None and new.retry is None else _fewer(old.retries, new.retries),
        budget=Budget(min(old.budget.cost, new.budget.cost), new.budget.call),
        rejections=tuple(answer for answer in new.rejections if answer in old.rejections),
        gate=old.gate.with_other(new.gate) if old.gate and new.gate else new.gate or old.gate,
        **_amends(old, new),
        **_confirms(old, new),
    )


def _amends(old: Contract, new: Contract) -> dict[str, bool | str]:
    """The compensation is the one declared when the operation began: a call may have named its own."""
    if not old.compensates:
        return {}
    return {
        "compensates": True,
        "amends": old.amends,
        "restores": old.restores,
        "absent_safe": old.absent_safe and (new.absent_safe or new.amends != old.amends),
    }


def _confirms(old: Contract, new: Contract) -> dict[str, str | int | None]:
    """A reservation stays one, for no longer than either contract says."""
    if not old.confirms:
        return {}
    lives = [lapses_ms for lapses_ms in (old.lapses_ms, new.lapses_ms) if lapses_ms is not None]
    return {"confirms": old.confirms, "lapses_ms": min(lives, default=None)}


def _weaker(old: Key | Natural | None, new: Key | Natural | None) -> Key | Natural | None:
    match old, new:
        case Key(), Key():
            lives = [ttl for ttl in (old.ttl, new.ttl) if ttl is not None]
            progress: InProgress = "runs_twice" if old.in_progress == "runs_twice" else new.in_progress
            mismatch: Mismatch = "silent" if old.mismatch == "silent" else new.mismatch
            stores: Stores = "all" if old.stores == new.stores == "all" else "success"
            patience = min(old.in_progress_patience, new.in_progress_patience)
            says = tuple(status for status in new.in_progress_statuses if status in old.in_progress_statuses)
            return Key(min(lives, default=None), progress, mismatch, stores, patience, says)
        case Natural(), Natural():
            return Natural(min(old.within, new.within), max(old.settle_window, new.settle_window))
        case _:
            return None


def _fewer(old: Retry, new: Retry) -> Retry:
    return Retry(
        min(old.attempts, new.attempts), min(old.elapsed, new.elapsed), max(old.base, new.base), max(old.cap, new.cap)
    )


def remembered_until_ms(key: Key, timeout_ms: int, clock_error_ms: int) -> int | None:
    """The age in milliseconds up to which a key is trusted to be remembered; None means for ever.

    It closes early by one call's timeout (the retry must *arrive* in time) and by the clock error.
    """
    return None if key.ttl is None else milliseconds(key.ttl) - timeout_ms - clock_error_ms
