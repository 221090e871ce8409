"""The input of `decide` besides the operation itself: one frozen value of everything that was read."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from beforehand.model.contract import Contract, Repeat
from beforehand.model.outcome import EXCEEDED, UNPRICED, PendingEffect

Block = Literal["", "cancel", "deadline", "aborting", "corrected", "message", "cut_off", "stopped"]
BLOCKED: Final = {
    "cancel": "the run was cancelled",
    "deadline": "the deadline passed",
    "aborting": "the transaction was called off",
    "corrected": "what it relied on was corrected",
    "message": "a message came for the run",
    "cut_off": "the code that made it was cancelled",
    "stopped": "the run has stopped",
}
WayBack = Literal["", "open", "ended"]
Reading = Literal["unread", "same", "changed", "unreadable"]


class Now(msgspec.Struct, frozen=True, gc=False):
    """One moment in milliseconds: `up` on the clock of `boot`, at the earliest, and `wall`, both of the journal.

    A lease is judged by `latest`, the other end of what `up` may be.
    """

    boot: str
    up: int
    wall: int
    latest: int


class WatchedNow(msgspec.Struct, gc=False):
    """A moment that notes whether a clock of it was read."""

    now: Now
    was_read: bool = False

    @property
    def boot(self) -> str:
        """The boot whose clock `up` is read on."""
        self.was_read = True
        return self.now.boot

    @property
    def up(self) -> int:
        """Milliseconds on the clock of the boot."""
        self.was_read = True
        return self.now.up

    @property
    def wall(self) -> int:
        """Milliseconds on the wall clock."""
        self.was_read = True
        return self.now.wall


Moment: TypeAlias = Now | WatchedNow


class OtherEffect(msgspec.Struct, frozen=True, gc=False):
    """An effect of another operation: the same business key, a repeat, what a fork would repeat, a pending thing.

    `waited_out` is set when the time for waiting on a pending one is over, `deferred` where its system has
    accepted it and answers later. `mismatch`: it has other arguments under the same business key. `pending_effect` is
    what is pending about the same thing.
    """

    by: Literal["claim", "guard", "fork", "pending"]
    state: Literal["pending", "succeeded"]
    source: str
    then: Repeat = "replay"
    waited_out: bool = False
    deferred: bool = False
    mismatch: bool = False
    pending_effect: PendingEffect | None = None


class LimitWait(msgspec.Struct, frozen=True, gc=False):
    """A limit of calls under which no further call may begin for so long.

    `hung` is the number of a process that is seen to live, stands still, and holds a permit of it; 0 for none.
    `silent_ms` is for how long a process that holds one has not renewed its lease.
    """

    name: str
    ms: int
    hung: int = 0
    silent_ms: int = 0

    @property
    def reason(self) -> str:
        """The reason why the call waits, in words, and what ends the wait where nothing else does."""
        reached = f"the limit of {self.name} is reached"
        if not self.hung:
            return reached
        return (
            f"{reached}: process {self.hung} on this machine holds a permit, still lives, and stands still in its call:"
            f" continue it (kill -CONT {self.hung}), or end it (kill -9 {self.hung}), and the permit is free"
        )


class SpentBudget(msgspec.Struct, frozen=True, gc=False):
    """A limit of the run that is reached, in words, and what then happens to a new effect. `code` is its outcome's."""

    reason: str
    then: Literal["ask", "stop"] = "ask"
    code: str = EXCEEDED

    @classmethod
    def of_another_currency(cls, tool: str, price: str, budget: str, currency: str) -> SpentBudget:
        """A tool is not called under a budget in another currency than that in which it states what a call costs."""
        known = f"{tool} declares that a call costs {price}, and {budget} is in {currency}"
        return cls(f"{known}: amounts are not converted", "stop", UNPRICED)


class Situation(msgspec.Struct, frozen=True, gc=False):
    """Everything read for one decision.

    `blocked` is why no new attempt may begin. `way_back`: the transaction around it is being called off, and not
    over; `ended` if a person or the deadline ended the run. `contract` is the stricter of the stored and the present
    one.
    `claimed_up` is when the run was first taken on `Now.boot`: what was recorded on another boot is measured from
    then on. `live` are the attempts whose call still runs in this process. `breaker_ms` is how long an open breaker
    lasts, and `limit` a limit that permits no call now. `reading` is the last reading of the
    preconditions since the last attempt. `key_age_ms` is the age of a key that another operation used first.
    `other` is an effect of another operation that this one would repeat. `began_doubtful`: the run existed before a
    restore, so even a first attempt may be a second one. `asks` is the digest of exactly what a person would be
    asked to approve now. `policy` is the version of the policy by which it is to be judged; empty where none is.
    `permitted`: a standing permission covers it, so no question is asked. `at_hand`: the agent's code came with the
    arguments; without it only what the intent stores can be sent. `misfit` is why these arguments cannot be given
    to the tool as it is now. `hung` names a process that is seen to live and may still run a call that was given
    up; after `hung_owner_ms` a person is asked.
    `budget` is the limit of the run that permits no further effect; an operation that counts as an effect already
    is not stopped by it.
    """

    contract: Contract
    claimed_up: int = 0
    tool: Literal["present", "gone"] = "present"
    distrusted: str = ""
    began_doubtful: bool = False
    blocked: Block = ""
    gate: Literal["", "wanted"] = ""
    policy: str = ""
    permitted: bool = False
    asks: str = ""
    hold: str = ""
    paused: str = ""
    breaker_ms: int = 0
    limit: LimitWait | None = None
    other: OtherEffect | None = None
    at_hand: bool = False
    misfit: str = ""
    live: frozenset[int] = frozenset()
    reading: Reading = "unread"
    key_age_ms: int = 0
    deaths_allowed: int = 5
    clock_error_ms: int = 60_000
    slow_verify_ms: int = 15 * 60_000
    hung: str = ""
    hung_owner_ms: int = 10 * 60_000
    budget: SpentBudget | None = None
    way_back: WayBack = ""
