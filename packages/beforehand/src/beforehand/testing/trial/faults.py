"""The faults of the calls of one repeat: drawn from its seed, on calls that are otherwise real."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Literal

from beforehand.engine.environment import DaemonThreads
from beforehand.engine.tool_protocol import Code
from beforehand.testing.clock import virtual_loop
from beforehand.testing.faults import ON_READS, WORDS, AnyTool, Effect, Fault, Kind, Request, half_of, ignore_boundary
from beforehand.testing.wire import Lag, Underway

FaultKind = Literal["timeouts", "errors", "lag", "late", "duplicates", "partial", "crashes"]
KINDS: Final[dict[FaultKind, tuple[Kind, ...]]] = {
    "timeouts": ("lose_request", "lose_reply"),
    "errors": ("fail_after",),
    "lag": ("answer_late",),
    "late": ("land_late",),
    "duplicates": ("deliver_twice",),
    "partial": ("half_lands", "cut_reply"),
    "crashes": (),
}
"""The kinds of faults that can be requested, and their effects on a call. Crashes affect the process."""

RATE: Final = 0.3
"""The share of calls with a fault, if any kind for calls is on."""

MOST: Final = 2
"""The maximum number of faults of one operation: no policy retries for ever."""

_LATEST: Final = 1.5
"""The maximum delay of an answer or an effect, in time limits of the tool: some are later than the caller waits."""


class Mischief:
    """A wire with the faults of its seed. `done` are the faults of calls, `effects` the resulting effects.

    Handlers are called as they are; under `lag` a verifier does not see an effect before its settle window is over.
    """

    def __init__(self, chance: random.Random, kinds: Collection[FaultKind]) -> None:
        self.done: list[str] = []
        self.effects: list[Effect] = []
        self.bodies: dict[str, Code] = {}
        self.reached: Callable[[str], None] = ignore_boundary
        self.underway: Final = Underway(lambda request: self.perform(request, request.arguments))
        self._kinds: list[Kind] = [kind for name, does in KINDS.items() if name in kinds for kind in does]
        self._lag: Final = Lag() if "lag" in kinds else None
        self._met: Counter[str] = Counter()
        self._chance = chance
        self._threads = DaemonThreads()

    # --- the wire: see `HandlerWire` --------------------------------------------------------------------------------

    def fault(self, request: Request) -> Fault | None:
        tool, at = request.tool, request.at
        kinds: list[Kind] = [one for one in self._kinds if tool.contract.effect == "write" or one in ON_READS]
        if not kinds or self._met[at.id] >= MOST or self._chance.random() >= RATE:
            return None
        self._met[at.id] += 1
        kind = self._chance.choice(kinds)
        if kind == "half_lands" and half_of(request.arguments) is None:
            kind = "cut_reply"
        self.done.append(f"{tool.name}: {WORDS[kind]}")
        return Fault(kind, after_s=self._after_s(tool, kind))

    def _after_s(self, tool: AnyTool, kind: Kind) -> float:
        """A random delay; a late effect stays within the settle window that the tool's contract declares."""
        contract = tool.contract
        if kind == "land_late" and contract.verifies:
            return self._chance.uniform(0.1, 0.9) * (contract.settle_ms or 0) / 1000
        return self._chance.uniform(0.1, _LATEST) * contract.timeout_ms / 1000

    async def perform(self, request: Request, arguments: Mapping[str, Any]) -> Any:
        """See `Wire.perform`: a real call, against the caller's sandbox."""
        tool = request.tool
        result = await self._waited_for(self.bodies[tool.name])(*request.served, **arguments)
        if tool.contract.effect == "write":
            self.effects.append(request.effect(arguments))
            if self._lag is not None:
                self._lag.note(request)
        return result

    def send_later(self, request: Request, after_s: float) -> None:
        self.underway.add(request, after_s)

    def handler(self, tool: AnyTool, name: str, code: Code) -> Code:
        if name not in {"verify", "observe", "compensate"}:
            return code
        call = self._waited_for(code)
        if name == "verify" and self._lag is not None:
            self._lag.by[tool.name] = (tool.contract.settle_ms or 0) / 1000
            call = self._lag.before(tool, call)
        return Code(call, True, code.timeout_ms, code.parameters)

    def _waited_for(self, code: Code) -> Callable[..., Awaitable[Any]]:
        """Call it in real time: it may call real services."""

        async def call(*first: Any, **arguments: Any) -> Any:
            with virtual_loop().held():
                if code.is_async:
                    return await code.function(*first, **arguments)
                return await self._threads.call(lambda: code.function(*first, **arguments))

        return call
