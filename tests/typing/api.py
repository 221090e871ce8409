"""What an editor knows about user code: exact types everywhere. Never executed; mypy and pyright check it, strict."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, assert_type

from beforehand import (
    Beforehand,
    CannotTell,
    Conflict,
    DidNotHappen,
    Happened,
    Key,
    Natural,
    Once,
    Operation,
    Outcome,
    Receipt,
    Rejected,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.agent.agent import Agent
from beforehand.app import RunHandle, RunResult
from beforehand.engine.current_operation import CurrentOperation
from beforehand.policies import Retry
from beforehand.sync import SyncBeforehand

T = TypeVar("T")
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Ticket:
    id: str
    order_id: str
    email: str


@dataclass(frozen=True)
class Ruling:
    cents: int


@dataclass(frozen=True)
class Refund:
    id: str


# --- tools keep their signature and their types ----------------------------------------------------------


@tool(idempotency=Key(ttl=DAY), claim="order_id")
async def refund(order_id: str, cents: int) -> Refund:
    assert_type(current_operation(), CurrentOperation)
    assert_type(current_operation().key, str)
    current_operation().report("refunds today", 3)
    current_operation().pending("the receipt by mail", within=DAY, key=f"mail-{order_id}", every=DAY)
    return Refund(order_id)


@tool(once=Once("to", "subject", within=timedelta(days=7)))
async def send_email(to: str, subject: str, body: str = "") -> str:
    return to


@tool
def restock(sku: str, count: int) -> None: ...


@tool(effect="read")
def price(sku: str) -> int:
    return 1


@tool(idempotency=Natural(within=DAY), timeout=DAY, retry=Retry(attempts=2), rejections={404}, redact={"ticket"})
async def close(ticket: str) -> list[str]:
    return [ticket]


# --- handlers keep their own types ---------------------------------------------------------------------------


@send_email.verify(settle_window=timedelta(seconds=90), check_first=True)
async def in_sent_mail(operation: Operation[str], to: str) -> Verdict[str]:
    assert_type(operation.result, str)
    assert_type(operation.marker, str)
    if operation.attempts > 2:
        return CannotTell("the folder could not be read")
    if operation.attempts > 1:
        return Conflict("somebody else's")
    return Happened(operation.marker) if to else DidNotHappen()


@refund.observe
async def order_state(operation: Operation[Refund], order_id: str) -> str:
    return order_id


@refund.compensate(restores=True)
async def charge_again(operation: Operation[Refund]) -> None:
    assert_type(operation.result, Refund)
    assert_type(operation.result.id, str)


@close.claim
def closes(ticket: str) -> str:
    return ticket


def handlers_are_given_back() -> None:
    verify: Callable[[Operation[str], str], Coroutine[Any, Any, Verdict[str]]] = in_sent_mail
    observe: Callable[[Operation[Refund], str], Coroutine[Any, Any, str]] = order_state
    compensate: Callable[[Operation[Refund]], Coroutine[Any, Any, None]] = charge_again
    computed: Callable[[str], str] = closes
    del verify, observe, compensate, computed


# --- calls -----------------------------------------------------------------------------------------------------


async def calls() -> None:
    one_call: Coroutine[object, object, Refund] = refund("o", 1)
    assert_type(await one_call, Refund)
    assert_type(await refund("o", cents=1), Refund)
    assert_type(await restock("sku", 1), None)
    assert_type(await price("sku"), int)
    assert_type(await close("id"), list[str])
    configured = refund.options(step="first", timeout=DAY)
    assert_type(await configured(order_id="o", cents=1), Refund)
    assert_type(await refund.options(retry=Retry(attempts=1))("o", 1), Refund)
    refund("o", "1")  # type: ignore[arg-type, unused-coroutine]  # pyright: ignore[reportArgumentType, reportUnusedCoroutine]  # wrong type, missing await
    refund("o")  # type: ignore[call-arg, unused-coroutine]  # pyright: ignore[reportCallIssue, reportUnusedCoroutine]  # missing argument, missing await


async def outcomes() -> None:
    outcome = await refund.outcome("o", 1)
    assert_type(outcome, Outcome[Refund])
    assert_type(outcome.result, Refund)
    assert_type(outcome.receipt, Receipt | None)
    assert_type(outcome.pending, tuple[str, ...])
    assert_type(outcome.reused, str)
    assert_type((await refund.options(step="x").outcome("o", 1)).result, Refund)
    try:
        await refund("o", 1)
    except Rejected as no:
        assert_type(no.code, str)
        assert_type(no.message, str)


# --- agents ----------------------------------------------------------------------------------------------------


async def rule(ticket: Ticket, tone: str = "kind") -> Ruling:
    return Ruling(len(ticket.id + tone))


@agent(run_id="ticket-{ticket.id}")
async def refund_desk(run: Run, ticket: Ticket) -> str:
    ruling = await run.decide(rule, ticket)
    assert_type(ruling, Ruling)
    assert_type(await run.decide(rule, ticket, tone="brief"), Ruling)
    assert_type(await run.options(step="again", timeout=DAY).decide(rule, ticket), Ruling)
    assert_type(await run.options(fresh={"fares": DAY}).decide(rule, ticket), Ruling)
    assert_type(await run.wait_pending(await refund.outcome("o", 1)), dict[str, Outcome[Any]])
    await run.decide(rule, 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # wrong type
    refunded = await refund(ticket.order_id, ruling.cents)
    assert_type(refunded, Refund)
    assert_type(await run.call("refund", {"order_id": "o"}), Outcome[Any])
    assert_type(await run.gather(refund("o", 1), price("sku")), tuple[Refund, int])
    assert_type(await run.gather(refund("o", 1), price("sku"), restock("s", 1)), tuple[Refund, int, None])
    assert_type(await run.gather(*(price(sku) for sku in "abc")), list[int])
    assert_type(await run.map(price, ["a", "b"], id=str), list[int])
    assert_type(await run.random(), float)
    async with run.timeout(DAY):
        await run.sleep(DAY)
    with run.branch("named"):
        pass
    async with run.task_group() as group:
        assert_type((await group.create_task(price("sku"))), int)
    return refunded.id


async def running(ticket: Ticket) -> None:
    assert_type(refund_desk, Agent[Ticket, str])
    async with Beforehand("desk.db", agents=[refund_desk]) as desk:
        assert_type(desk, Beforehand)
        assert_type(await desk.run(refund_desk, ticket), str)
        assert_type(desk.start(refund_desk, ticket), RunHandle[str])
        assert_type(await desk.start(refund_desk, ticket).result(), str)
        done = desk.map(refund_desk, [ticket], concurrency=20)
        async for one in done:
            assert_type(one, RunResult[Ticket, str])
            assert_type(one.result, str | None)
            assert_type(one.input, Ticket)
        await desk.run(refund_desk, "t")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]  # wrong type
    stream: AsyncIterator[RunResult[Ticket, str]] = done
    del stream


def running_without_async(ticket: Ticket) -> None:
    with Beforehand("desk.db", agents=[refund_desk]) as desk:
        assert_type(desk, SyncBeforehand)
        assert_type(desk.run(refund_desk, ticket), str)
        done: Iterator[RunResult[Ticket, str]] = desk.map(refund_desk, [ticket])
        assert_type([one.result for one in done], list[str | None])


# --- verdicts ----------------------------------------------------------------------------------------------------


def verdicts(verdict: Verdict[str]) -> str:
    match verdict:
        case Happened():
            return assert_type(verdict.result, str)
        case DidNotHappen() | CannotTell() | Conflict():
            return assert_type(verdict.evidence, str)
