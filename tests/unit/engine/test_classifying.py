"""What users teach about the exceptions of their own client library: `@tool(classify=)` and the entry point."""

import http.server
import importlib.metadata
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Ambiguous, Key, NotSent, Operation, Rejected, Run, agent, current_operation, tool
from beforehand.engine.exceptions import call_end
from beforehand.errors import ContractError, KeyInProgress, OperationFailed
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual


class LedgerError(Exception):
    """The one exception of a client library that the table of well-known exceptions does not list."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def ledger_errors(error: Exception) -> NotSent | Rejected | Ambiguous | KeyInProgress | None:
    """What the exceptions of that library prove."""
    match error:
        case LedgerError(kind="no route"):
            return NotSent("no route to the ledger", retry_after=5)
        case LedgerError(kind="closed"):
            return Rejected("the account is closed", code="closed")
        case LedgerError(kind="working"):
            return KeyInProgress("it is working on the key", retry_after=1)
        case LedgerError(kind="unsure"):
            return Ambiguous("the ledger does not know")
        case _:
            return None


def posting(lab: Lab, *answers: Exception | None, **clauses: Any) -> Any:
    """An agent that posts once, with a tool whose calls end like this one after the other."""
    left = list(answers)

    @tool(**{"classify": ledger_errors} | clauses)
    async def post(cents: int) -> str:
        _ = current_operation().key
        lab.sent.append("call")
        if (answer := left.pop(0) if left else None) is not None:
            raise answer
        return "posted"

    @agent(run_id="r-{name}", tools=[post])
    async def desk(run: Run, name: str) -> str:
        return await post(5)

    return desk


def ends_of(lab: Lab) -> list[r.End]:
    """How its attempts ended, in order."""
    ended = [(one.number, one.end) for one in lab.of("r-ann", r.AttemptEnded)]
    settled = [(one.number, one.end) for one in lab.of("r-ann", r.OperationSettled) if one.end is not None]
    return [end for _, end in sorted(ended + settled, key=lambda one: one[0])]


@virtual
async def test_what_was_not_sent_is_sent_again_after_the_time_that_was_asked_for(lab: Lab):
    desk = posting(lab, LedgerError("no route"))
    async with lab.app(desk) as app:
        began = lab.loop.time()
        assert await app.run(desk, "ann") == "posted"
        assert lab.loop.time() - began >= 5
    first, _ = ends_of(lab)
    assert (first.kind, first.why) == ("not_sent", "no route to the ledger (LedgerError: no route)")


@virtual
async def test_a_refusal_is_final_and_has_its_code(lab: Lab):
    desk = posting(lab, LedgerError("closed"))
    async with lab.app(desk) as app:
        with pytest.raises(Rejected, match="the account is closed"):
            await app.run(desk, "ann")
    (end,) = ends_of(lab)
    assert (end.kind, end.code) == ("rejected", "closed")
    assert lab.sent == ["call"]


@virtual
async def test_a_key_in_progress_is_asked_for_again(lab: Lab):
    desk = posting(lab, LedgerError("working"), idempotency=Key.forever())
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "posted"
    assert [end.kind for end in ends_of(lab)] == ["key_in_progress", "returned"]


@pytest.mark.parametrize("kind", ["unsure", "never heard of"])
@virtual
async def test_what_is_ambiguous_or_not_recognized_is_not_sent_again(lab: Lab, kind: str):
    desk = posting(lab, LedgerError(kind))
    await lab.until_suspended(desk, "ann")
    assert [end.kind for end in ends_of(lab)] == ["ambiguous"]
    assert lab.sent == ["call"]


@virtual
async def test_it_is_asked_before_the_statuses_and_the_table(lab: Lab):
    """A refused connection is not sent by the table; a tool may know that it speaks to a proxy that had sent already."""
    desk = posting(lab, ConnectionRefusedError(), classify=lambda _: Ambiguous("the proxy may have sent it"))
    await lab.until_suspended(desk, "ann")
    assert lab.sent == ["call"]


@pytest.mark.parametrize(
    ("classify", "why"),
    [
        (lambda _: 1 / 0, "classify raised ZeroDivisionError"),
        (lambda _: "not_sent", "classify returned 'not_sent'"),
        (lambda _: True, "classify returned True"),
        (lambda _: NotSent, "classify returned <class"),
    ],
)
@virtual
async def test_a_classifier_that_fails_or_says_nothing_known_proves_nothing(lab: Lab, classify: Any, why: str):
    desk = posting(lab, ConnectionRefusedError(), classify=classify)
    await lab.until_suspended(desk, "ann")
    (end,) = ends_of(lab)
    assert (end.kind, why in end.why) == ("ambiguous", True), end.why
    assert lab.sent == ["call"]


@virtual
async def test_it_does_not_overrule_an_earlier_send_of_the_same_call(lab: Lab):
    @tool(idempotency=Key.forever(), classify=lambda _: NotSent("the second send"), retry=Retry(attempts=1))
    async def post(cents: int) -> str:
        current_operation().check_send()
        current_operation().check_send()
        raise LedgerError("no route")

    @agent(run_id="r-{name}", tools=[post])
    async def desk(run: Run, name: str) -> str:
        return await post(5)

    await lab.until_suspended(desk, "ann")
    assert [end.kind for end in ends_of(lab)] == ["ambiguous"]


@virtual
async def test_what_a_tool_raises_itself_is_not_classified(lab: Lab):
    desk = posting(lab, Rejected("no"), classify=lambda _: NotSent("never"))
    async with lab.app(desk) as app:
        with pytest.raises(Rejected, match="no"):
            await app.run(desk, "ann")
    assert lab.sent == ["call"]


@virtual
async def test_a_compensation_has_a_classifier_of_its_own(lab: Lab):
    @tool(idempotency=Key.forever(), classify=ledger_errors, retry=Retry(attempts=2, elapsed=timedelta(hours=1)))
    async def take_back(operation: Operation[str]) -> None:
        _ = current_operation().key
        lab.sent.append("back")
        if len(lab.sent) == 2:
            raise LedgerError("no route")

    @tool(idempotency=Key.forever())
    async def book(what: str) -> str:
        _ = current_operation().key
        lab.sent.append("book")
        return what

    book.compensate(restores=True)(take_back)

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> None:
        async with run.transaction("trip"):
            await book("room")
            raise OperationFailed("changed my mind")

    async with lab.app(desk) as app:
        with pytest.raises(Exception, match="changed my mind"):
            await app.run(desk, "ann")
    assert lab.sent == ["book", "back", "back"]


@pytest.mark.parametrize("wrong", ["not_sent", 5, Exception])
def test_what_is_no_function_is_refused_where_it_is_declared(wrong: Any):
    with pytest.raises(ContractError, match="classify="):
        tool(classify=wrong)(lambda: None)


# --- the entry point -------------------------------------------------------------------------------------------------


class Installed:
    """An entry point of an installed distribution."""

    def __init__(self, name: str, loaded: Any) -> None:
        self.name, self.loaded = name, loaded

    def load(self) -> Any:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Installed]]:
    found: list[Installed] = []
    real = importlib.metadata.entry_points

    def entry_points(**asked: str) -> Any:
        return found if asked == {"group": "beforehand.exceptions"} else real(**asked)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    call_end.installed_classifiers.cache_clear()
    yield found
    call_end.installed_classifiers.cache_clear()


@virtual
async def _sent_again(lab: Lab) -> None:
    desk = posting(lab, LedgerError("no route"), classify=None)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "posted"
    assert ends_of(lab)[0].kind == "not_sent"


def test_an_installed_classifier_is_asked_for_every_tool(installed: list[Installed]):
    installed.append(Installed("ledger", ledger_errors))
    _sent_again()


def test_a_broken_one_is_named_in_the_log_and_stops_no_other(
    installed: list[Installed], caplog: pytest.LogCaptureFixture
):
    installed += [Installed("a-broken", ImportError("no ledger here")), Installed("ledger", ledger_errors)]
    _sent_again()
    assert (
        "the entry point a-broken of beforehand.exceptions cannot be used: ImportError: no ledger here" in caplog.text
    )
    assert [one.levelno for one in caplog.records if "a-broken" in one.message] == [logging.WARNING]


@pytest.mark.parametrize("wrong", ["ledger", 7, LedgerError])
def test_one_that_is_no_function_does_not_make_every_exception_ambiguous(
    installed: list[Installed], caplog: pytest.LogCaptureFixture, wrong: Any
):
    installed += [Installed("a-wrong", wrong), Installed("ledger", ledger_errors)]
    _sent_again()
    assert "the entry point a-wrong of beforehand.exceptions cannot be used: TypeError" in caplog.text


# --- a real server ---------------------------------------------------------------------------------------------------


class Service(http.server.BaseHTTPRequestHandler):
    """Answers 418 first, which its client library turns into an exception of its own, and then 200."""

    answers = iter((418, 200))
    seen: list[str] = []

    def do_POST(self) -> None:
        Service.seen.append(self.headers["Idempotency-Key"])
        self.send_response(next(self.answers))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_client_library_of_ones_own_against_a_real_server(tmp_path: Any):
    import asyncio
    import urllib.error
    import urllib.request

    from beforehand import Beforehand

    class TeapotError(Exception):
        """What the client library makes of an answer that means: nothing was done, come again."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def client(key: str) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.server_port}/", method="POST", headers={"Idempotency-Key": key}
        )
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            error.close()
            raise TeapotError(error.code) from None

    @tool(
        idempotency=Key.forever(),
        classify=lambda error: NotSent("it asks to come again", retry_after=0) if type(error) is TeapotError else None,
    )
    def brew() -> str:
        client(current_operation().key)
        return "brewed"

    @agent(tools=[brew])
    async def desk(run: Run, cups: int) -> str:
        return await brew()

    async def main() -> str:
        async with Beforehand(tmp_path / "j.db", agents=[desk], recover=False) as app:
            return await app.run(desk, 1, run_id="one")

    try:
        assert asyncio.run(main()) == "brewed"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert len(Service.seen) == 2
    assert len(set(Service.seen)) == 1, "both sends carry one key"
