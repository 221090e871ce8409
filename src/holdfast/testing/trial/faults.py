"""Faults on tools, without touching them: a timeout before or after the effect, a 500 after it, a late answer.

While `faulty` is open, the bodies of the tools are wrapped; afterwards they are what they were.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec

from holdfast.agent.tool import Tool
from holdfast.engine.current import current_operation
from holdfast.engine.seams import Threads
from holdfast.engine.tooling import Code
from holdfast.errors import Ambiguous
from holdfast.testing.trial.lives import Passing

AnyTool = Tool[Any, Any]
FaultKind = Literal["timeouts", "errors", "lag", "crashes"]
KINDS: Final[tuple[FaultKind, ...]] = ("timeouts", "errors", "lag", "crashes")
RATE: Final = 0.3
"""The share of calls that meet a fault, if any kind for calls is on."""

Plan = Literal["", "timeout before the effect", "timeout after the effect", "500 after the effect", "late answer"]
_PLANS: Final[dict[FaultKind, tuple[Plan, ...]]] = {
    "timeouts": ("timeout before the effect", "timeout after the effect"),
    "errors": ("500 after the effect",),
    "lag": ("late answer",),
    "crashes": (),
}


class Effect(msgspec.Struct, frozen=True):
    """One call of a write tool that came to its end: what the world was asked to do, whatever the caller heard.

    Calls with the same `operation` are attempts of one effect; a service that dedupes on the key did it once.
    """

    tool: str
    arguments: dict[str, Any]
    operation: str
    attempt: int


class Mischief:
    """What is done to the calls of one repeat, drawn from its seed; and what the world was made to do."""

    def __init__(self, chance: random.Random, kinds: Collection[FaultKind]) -> None:
        self._chance = chance
        self._plans: list[Plan] = [plan for kind in KINDS if kind in kinds for plan in _PLANS[kind]]
        self.done: list[str] = []
        self.effects: list[Effect] = []

    def plan(self, tool: str) -> Plan:
        """What happens to the next call."""
        if not self._plans or self._chance.random() >= RATE:
            return ""
        plan = self._chance.choice(self._plans)
        self.done.append(f"{tool}: {plan}")
        return plan

    def lag_s(self, timeout_ms: int) -> float:
        """How late an answer comes: at times later than anybody waits."""
        return self._chance.uniform(0.1, 1.5) * timeout_ms / 1000


@contextmanager
def faulty(tools: Iterable[AnyTool], mischief: Mischief, passing: Passing, threads: Threads) -> Generator[None]:
    """Let the calls of these tools meet the planned faults. Handlers are called as they are."""
    former = [(tool, tool.body, dict(tool.handlers)) for tool in tools]
    for tool, body, handlers in former:
        tool.body = Code(_met(tool, body, mischief, passing, threads), True, body.timeout_ms, body.parameters)
        tool.handlers.update({
            name: Code(_waited_for(code, passing, threads), True, code.timeout_ms, code.parameters)
            for name, code in handlers.items()
            if name in {"verify", "observe", "compensate"}
        })  # fmt: skip
    try:
        yield
    finally:
        for tool, body, handlers in former:
            tool.body = body
            tool.handlers.update(handlers)


def _met(tool: AnyTool, body: Code, mischief: Mischief, passing: Passing, threads: Threads) -> Callable[..., Any]:
    call, is_write = _waited_for(body, passing, threads), tool.contract.effect == "write"

    async def meet(**arguments: Any) -> Any:
        plan = mischief.plan(tool.name)
        if plan == "timeout before the effect":
            _ = current_operation().key  # the tool would have read it; what was not called must not look careless
            raise TimeoutError("planned by the trial: no answer")
        result = await call(**arguments)
        if is_write:
            at = current_operation()
            mischief.effects.append(Effect(tool.name, arguments, f"{at.run}/{at.step}", at.attempt))
        match plan:
            case "timeout after the effect":
                raise TimeoutError("planned by the trial: no answer")
            case "500 after the effect":
                raise Ambiguous("planned by the trial: the service answered 500")
            case "late answer":
                await asyncio.sleep(mischief.lag_s(body.timeout_ms))
            case _:
                pass
        return result

    return meet


def _waited_for(code: Code, passing: Passing, threads: Threads) -> Callable[..., Any]:
    """Call it in real time: it may speak to real services."""

    async def call(*first: Any, **arguments: Any) -> Any:
        with passing.working():
            if code.is_async:
                return await code.function(*first, **arguments)
            return await threads.call(lambda: code.function(*first, **arguments))

    return call
