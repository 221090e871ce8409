"""Planted bugs in the fast path only: with `Settings.fast_path = False` nothing of them is left.

The fast path is one straight function, so a bug is an edit of its text. One that the text no longer contains fails its
test (`tests/simulation/test_differential.py`). Three conditions are not planted, because no seed of the simulator comes
by them: the lease is renewed before code that was paused goes on, no record of a first attempt is refused, and no
ordinary first attempt begins beside one that has to be alone.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from msgspec.structs import replace

from beforehand.engine.driven_operation import DrivenOperation
from beforehand.engine.executor import file_end
from beforehand.engine.invoke import CallResult
from beforehand.errors import NotSent
from simulator.mutations.mutation import Mutant, Twist

WHOLE: Final = "beforehand.engine.fast_path:attempt_at_once"
RETURN: Final = "beforehand.engine.fast_path:_record_return"
CONDITIONS: Final = "beforehand.engine.fast_path:_awaits_something"


def edited(old: str, new: str) -> Twist:
    """The same function, but with one piece of its text replaced."""

    def twist(original: Any) -> Any:
        text = inspect.getsource(original)
        assert text.count(old) == 1, f"{original.__name__} does not contain once: {old}"
        made: dict[str, Any] = {}
        helpers = {"forgotten": forgotten, "unsent": unsent, "file_riding": file_riding}
        exec(  # noqa: S102 - the text of the product, with a bug of ours
            "from __future__ import annotations\n" + text.replace(old, new), original.__globals__ | helpers, made
        )
        return made[original.__name__]

    return twist


def forgotten() -> CallResult:
    """The answer of a call that took too long, as if it were over: its end is never heard."""
    return CallResult(error=TimeoutError("no answer in time"))


def unsent(answer: CallResult) -> CallResult:
    """The answer with every error taken for a proof that nothing was sent."""
    return answer if answer.error is None else replace(answer, error=NotSent("it failed"))


async def file_riding(driver: DrivenOperation, number: int, answer: CallResult) -> None:
    """File the end of a call, but wait for no record of it."""
    log = driver.log
    append = log.append

    async def ride(*records: Any, **_named: Any) -> None:
        log.buffer(*records)

    log.append = ride  # type: ignore[method-assign]  # while this end is filed
    try:
        await file_end(driver, number, answer)
    finally:
        log.append = append  # type: ignore[method-assign]  # as above


_BUGS: Final = (
    Mutant("fast: not decided", "the fast path sends without asking what to do next", WHOLE,
           edited(" or type(next_move(driver, draft, now)) is not m.Send", "")),
    Mutant("fast: news not awaited", "the fast path looks for no message or command before it sends", CONDITIONS,
           edited("        or driver.log.may_have_news()\n", "")),
    Mutant("fast: claims not looked up", "the fast path looks for no other effect under the same business key",
           CONDITIONS, edited("        or may_conflict(driver, draft)\n", "")),
    Mutant("fast: attempt not durable", "the fast path calls the tool before the attempt is durable", WHOLE,
           edited("await log.append(*log.contract_record(tool), started)",
                  "log.buffer(*log.contract_record(tool), started)")),
    Mutant("fast: stale clock", "an attempt of the fast path is recorded with the time at which its run was claimed",
           WHOLE, edited("at=now.wall, up=now.up", "at=now.wall - now.up + log.claimed_up, up=log.claimed_up")),
    Mutant("fast: contract not recorded", "an attempt of the fast path is recorded without the contract of its tool",
           WHOLE, edited("*log.contract_record(tool), started", "started")),
    Mutant("fast: token not recorded", "an attempt of the fast path is recorded without its fencing token", WHOLE,
           edited("token=active.lease.token, ", "")),
    Mutant("fast: late call forgotten", "the fast path forgets a call that it has given up", WHOLE,
           edited("await give_up(driver, started, call)", "forgotten()")),
    Mutant("fast: another end", "the fast path takes every error for a proof that nothing was sent", WHOLE,
           edited("take_answer(driver, 1, call) if", "unsent(take_answer(driver, 1, call)) if")),
    Mutant("fast: delivered before the record", "the fast path answers before the outcome is durable", WHOLE,
           edited("await file_end(driver, 1, driver.answer)", "await file_riding(driver, 1, driver.answer)")),
    Mutant("fast: no time limit", "the fast path waits for an answer for a day", WHOLE,
           edited("timeouts.wait(over, timeout_ms / 1000)", "timeouts.wait(over, 86_400)")),
    Mutant("fast: not decided again", "the fast path calls the tool without asking again after the record", WHOLE,
           edited("if why := held_back(driver):", 'if why := "":')),
    Mutant("fast: plain outcome rides", "the outcome of a write without a key is not waited for in the fast path",
           RETURN, edited("if contract.rides:", "if True:")),
)  # fmt: skip
FAST_PATH: Final = tuple(replace(mutant, fast_only=True) for mutant in _BUGS)
"""The bugs. Comparing both sides of a seed finds each of them."""

_BREAKING: Final = ("not decided", "claims not looked up", "attempt not durable", "another end",
                    "delivered before the record")  # fmt: skip
BREAKING: Final = tuple(one for one in FAST_PATH if one.name.removeprefix("fast: ") in _BREAKING)
"""Those that break an invariant within a few seeds, so that the checker finds them without a comparison."""
