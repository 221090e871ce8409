"""The tools of the simulated agents: one for each kind of promise that an outside system can make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Protocol

from beforehand.agent.tool import Tool, tool
from beforehand.engine.current_operation import current_operation
from beforehand.errors import KeyInProgress, NotSent, Rejected
from beforehand.model.contract import Key, Natural
from beforehand.model.outcome import Conflict, DidNotHappen, Happened, Verdict
from beforehand.model.secret import Secret
from beforehand.model.view import Operation
from beforehand.policies import Retry
from simulator.services.deferred import Application
from simulator.services.service import Effect, Reply, Request

TIMEOUT: Final = timedelta(seconds=10)
REFUSED: Final = frozenset({402, 422})
BUSY: Final = frozenset({429})
PATIENT: Final = Retry(attempts=5, elapsed=timedelta(minutes=30))
ANSWERS: Final[dict[str, Any]] = {"rejections": REFUSED, "not_sent": BUSY, "timeout": TIMEOUT, "retry": PATIENT}
"""What every tool here declares about its service."""


class Network(Protocol):
    """How a tool reaches the services of its world."""

    async def send(self, request: Request) -> Reply:
        """A write. Raises `ConnectionRefusedError` before the first byte, `TimeoutError` where no answer comes."""
        ...

    async def find(self, service: str, *, marker: str = "", key: str = "") -> Effect | None:
        """Read back by name."""
        ...

    async def state(self, service: str, thing: str) -> str:
        """Read the state of one thing."""
        ...

    async def application(self, service: str, marker: str) -> Application | None:
        """Read what became of a request that was only accepted."""
        ...


NETWORK: Final[ContextVar[Network]] = ContextVar("beforehand_simulated_network")


async def write(service: str, *, keyed: bool = False, marked: bool = False, **arguments: str) -> str:
    """Send one write as a careful tool does, and translate the answer."""
    return result_of(await send(service, keyed=keyed, marked=marked, **arguments))


async def send(service: str, *, keyed: bool = False, marked: bool = False, **arguments: str) -> Reply:
    """Send one write, with what makes it this operation's."""
    at = current_operation()
    key = at.key if keyed else ""
    marker = at.marker if marked else ""
    at.check_send()
    return await NETWORK.get().send(Request(service, at.id, at.attempt, key, marker, arguments))


def result_of(reply: Reply) -> str:
    """What an answer says. Raises what it means where it is no success."""
    match reply.status:
        case 200:
            return reply.body
        case 409:
            raise KeyInProgress("in progress")
        case 429:
            raise NotSent("busy", retry_after=reply.retry_after)
        case status if status in REFUSED:
            raise Rejected(reply.body, code=str(status))
        case status:
            raise RuntimeError(f"the service answered {status}")


def verdict(found: Effect | None) -> Verdict[str]:
    """What reading one effect back proves."""
    return DidNotHappen() if found is None else Happened(found.value)


def standard_tools(*, newer: bool = False) -> Mapping[str, Tool[Any, Any]]:
    """All tools. With `newer` as a deployment changed them: shorter promises."""
    from simulator.agents.deferred import answer_tools  # noqa: PLC0415 - made with what stands here
    from simulator.agents.people import gate_tools  # noqa: PLC0415 - as above
    from simulator.agents.plans import proposal_tools  # noqa: PLC0415 - as above
    from simulator.agents.timing_and_processes import process_tools, timing_tools  # noqa: PLC0415 - as above
    from simulator.agents.transactions import trip_tools  # noqa: PLC0415 - as above

    made = (
        *_keyed(newer), *_verified(newer), *_natural(), *_others(), *trip_tools(), *answer_tools(), *proposal_tools(),
        *gate_tools(newer=newer), *timing_tools(), *process_tools(),
    )  # fmt: skip
    return {one.name: one for one in made}


def _keyed(newer: bool) -> Iterable[Tool[Any, Any]]:
    """The service dedupes on the key: for a while, for ever, with a business key, with a webhook afterwards."""

    @tool(idempotency=Key(ttl=timedelta(seconds=150 if newer else 180), stores="all"), **ANSWERS)
    async def charge(thing: str) -> str:
        return await write("charge", keyed=True, thing=thing)

    @tool(idempotency=Key.forever(in_progress="blocks"), **ANSWERS)
    async def pay(thing: str) -> str:
        return await write("pay", keyed=True, thing=thing)

    @tool(idempotency=Key(ttl=timedelta(hours=24), mismatch="silent"), claim="thing", **ANSWERS)
    async def book(thing: str) -> str:
        return await write("book", keyed=True, thing=thing)

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def transfer(thing: str) -> str:
        return await write("transfer", keyed=True, thing=thing)

    return charge, pay, book, transfer


def _verified(newer: bool) -> Iterable[Tool[Any, Any]]:
    """The effect can be found again, after a while: by a marker, checked first, or always read back."""

    @tool(**ANSWERS)
    async def mail(thing: str) -> str:
        return await write("mail", marked=True, thing=thing)

    @mail.verify(settle_window=timedelta(seconds=90), every=timedelta(seconds=15))
    async def in_sent_folder(operation: Operation[str]) -> Verdict[str]:
        return verdict(await NETWORK.get().find("mail", marker=operation.marker))

    @tool(**ANSWERS)
    async def ticket(thing: str) -> str:
        return await write("ticket", marked=True, thing=thing)

    @ticket.verify(settle_window=timedelta(seconds=25 if newer else 30), every=timedelta(seconds=5), check_first=True)
    async def in_tracker(operation: Operation[str]) -> Verdict[str]:
        return verdict(await NETWORK.get().find("ticket", marker=operation.marker))

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def order(thing: str) -> str:
        return await write("order", keyed=True, thing=thing)

    @order.expect
    def ordered(thing: str) -> dict[str, str]:
        return {"order of": thing}

    @order.verify(settle_window=timedelta(seconds=20), every=timedelta(seconds=5))
    async def in_orders(operation: Operation[str]) -> Verdict[str]:
        return verdict(await NETWORK.get().find("order", key=operation.key))

    del in_sent_folder, in_tracker, ordered, in_orders
    return mail, ticket, order


def _natural() -> Iterable[Tool[Any, Any]]:
    """Repeating changes nothing: where the state is observed and another party may set it too, and without."""

    @tool(idempotency=Natural(), **ANSWERS)
    async def switch(thing: str) -> str:
        return await write("switch", thing=thing, value=f"set by {current_operation().id}")

    @switch.observe
    async def switch_is(_operation: Operation[str], thing: str) -> str:
        return await NETWORK.get().state("switch", thing)

    @switch.verify(settle_window=timedelta(seconds=30))
    async def switched(operation: Operation[str], thing: str) -> Verdict[str]:
        state = await NETWORK.get().state("switch", thing)
        if state == f"set by {operation.id}":
            return Happened(state)
        return DidNotHappen() if state == (operation.observed or "") else Conflict(evidence=state)

    @tool(idempotency=Natural(within=timedelta(minutes=5)), **ANSWERS)
    async def note(thing: str) -> str:
        return await write("note", thing=thing, value=f"noted by {current_operation().id}")

    del switch_is, switched
    return switch, note


def _others() -> Iterable[Tool[Any, Any]]:
    """A plain write, about which nothing is promised, a read, and a write that needs a secret."""

    @tool(**ANSWERS)
    async def ship(thing: str) -> str:
        return await write("ship", thing=thing)

    @tool(effect="read", timeout=TIMEOUT)
    async def look(thing: str) -> str:
        return await NETWORK.get().state("switch", thing)

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def sign(thing: str, password: Secret) -> str:
        return await write("sign", keyed=True, thing=thing, password=password.reveal())

    return ship, look, sign
