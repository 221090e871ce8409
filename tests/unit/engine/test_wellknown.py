"""The rules of judging exceptions, beyond what the classes in the table say."""

import asyncio
import importlib
import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
import requests
import tenacity
import urllib3

from beforehand.engine.exceptions.classify import Classification, classify
from beforehand.engine.exceptions.table import BY_NAME, RETRYING_PACKAGES, TABLE, ExceptionRule
from scripts.exceptions_page import page
from tests.unit.engine.wellknown_loopback import loopback

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "exceptions.md"


def judged(call: Callable[[], object]) -> Classification:
    with pytest.raises(BaseException) as caught:
        call()
    return classify(caught.value)


def fail_with(error: BaseException) -> NoReturn:
    raise error


def refuse() -> None:
    """A real refused connection, as httpx reports it."""
    with loopback() as net:
        httpx.post(f"http://127.0.0.1:{net.refused()}/")


# -- the table ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_class_of_the_table_exists_under_its_own_name(row: ExceptionRule) -> None:
    module, _, name = row.name.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    assert issubclass(kind, BaseException)
    assert f"{kind.__module__}.{kind.__qualname__}" == row.name, "a row under an alias is never found"


@pytest.mark.parametrize("name", sorted({name for row in TABLE for name in row.covers}))
def test_every_covered_class_exists(name: str) -> None:
    module, _, last = name.rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), last), BaseException)


def test_no_class_has_two_rows() -> None:
    assert len(BY_NAME) == len(TABLE)


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m scripts.exceptions_page"


# -- classes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        TypeError("a programming error"),
        KeyError("after the send, perhaps"),
        RuntimeError("?"),
        TimeoutError(),
        asyncio.CancelledError(),
        ConnectionResetError(),
        BrokenPipeError(),
        OSError(113, "No route to host"),
        KeyboardInterrupt(),
        SystemExit(1),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_listed_as_unsent_is_ambiguous(error: BaseException) -> None:
    assert classify(error).kind == "ambiguous"


def test_the_rule_is_named() -> None:
    assert classify(ConnectionRefusedError()) == Classification(
        "not_sent", "no process listens there; no connection was made", "builtins.ConnectionRefusedError"
    )
    assert classify(TypeError()).rule == "unlisted"


def test_a_subclass_is_judged_by_its_nearest_row() -> None:
    class OurTimeout(httpx.ConnectTimeout):
        pass

    class OurReadTimeout(httpx.ReadTimeout):
        pass

    assert classify(OurTimeout("x")).rule == "httpx.ConnectTimeout"
    assert classify(OurReadTimeout("x")).rule == "httpx.HTTPError"


def test_a_class_of_the_same_name_elsewhere_is_not_meant() -> None:
    assert classify(type("ConnectError", (Exception,), {"__module__": "our.client"})()).kind == "ambiguous"


# -- chains -----------------------------------------------------------------------------------------


def test_refused_while_handling_a_refusal_is_not_sent() -> None:
    def call() -> None:
        try:
            refuse()
        except httpx.ConnectError:
            refuse()

    assert judged(call).kind == "not_sent"


@pytest.mark.parametrize(
    "first",
    [httpx.ReadTimeout("no answer"), TimeoutError(), ConnectionResetError(), KeyError("id"), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
def test_refused_while_handling_something_ambiguous_is_ambiguous(first: BaseException) -> None:
    def call() -> None:
        try:
            fail_with(first)
        except type(first):
            refuse()

    found = judged(call)
    assert (found.kind, found.rule) == ("ambiguous", "context")
    assert type(first).__name__ in found.why


def test_raise_from_none_hides_nothing() -> None:
    def call() -> None:
        try:
            fail_with(TimeoutError())
        except TimeoutError:
            raise ConnectionRefusedError from None

    assert judged(call).kind == "ambiguous"


@pytest.mark.parametrize("first", [TimeoutError(), ValueError("not JSON"), json.JSONDecodeError("x", "y", 0)])
def test_an_error_of_the_tool_is_not_taken_for_one_that_the_client_caught(first: Exception) -> None:
    """`InvalidURL` is raised while handling the client's own ValueError: the same classes, another origin."""

    def call() -> None:
        try:
            fail_with(first)
        except (TimeoutError, ValueError):
            httpx.post("http://127.0.0.1:port/")

    assert judged(lambda: httpx.post("http://127.0.0.1:port/")).kind == "not_sent"
    assert judged(call).kind == "ambiguous"


def test_a_lost_try_that_the_client_itself_caught_is_judged() -> None:
    """Only low-level errors are a part of the client's report; its own words are heard."""
    client = types.ModuleType("httpx.inner")
    exec("def again(first, second):\n try:\n  first()\n except Exception:\n  second()", vars(client))
    found = judged(lambda: client.again(lambda: fail_with(httpx.ReadTimeout("no answer")), refuse))
    assert (found.kind, found.rule) == ("ambiguous", "context")
    assert "httpx.ReadTimeout" in found.why


def test_a_cause_given_by_the_tool_is_judged_too() -> None:
    def call() -> None:
        raise ConnectionRefusedError from httpx.ReadTimeout("no answer")

    assert judged(call).kind == "ambiguous"


def test_the_tools_own_wrapper_is_not_looked_through() -> None:
    class PaymentsDown(Exception):
        pass

    def call() -> None:
        try:
            refuse()
        except httpx.ConnectError as error:
            raise PaymentsDown from error

    assert judged(call).rule == "unlisted"


def test_groups_are_ambiguous_even_when_all_their_members_are_not_sent() -> None:
    group = ExceptionGroup("both", [ConnectionRefusedError(), ConnectionRefusedError()])
    assert classify(group) == classify(BaseExceptionGroup("both", [ConnectionRefusedError()]))
    assert classify(group).kind == "ambiguous"


def test_a_task_group_whose_other_task_was_sending_is_ambiguous() -> None:
    """Why groups are ambiguous: the cancelled sibling had sent, and is not in the group."""
    sent = []

    async def send(gone: asyncio.Event) -> None:
        sent.append("effect")
        gone.set()
        await asyncio.Event().wait()

    async def fail(gone: asyncio.Event) -> None:
        await gone.wait()
        raise ConnectionRefusedError

    async def tool() -> None:
        gone = asyncio.Event()
        async with asyncio.TaskGroup() as both:
            both.create_task(send(gone))
            both.create_task(fail(gone))

    assert judged(lambda: asyncio.run(tool())).kind == "ambiguous"
    assert sent == ["effect"]


def test_wrappers_that_wrap_nothing_are_ambiguous() -> None:
    assert classify(requests.ConnectionError()).kind == "ambiguous"
    assert classify(requests.ConnectionError("refused")).kind == "ambiguous"


def test_wrappers_are_what_they_wrap() -> None:
    assert classify(requests.ConnectionError(ConnectionRefusedError())).kind == "not_sent"
    assert classify(requests.ConnectionError(ConnectionResetError())).kind == "ambiguous"
    assert classify(requests.ConnectionError(ConnectionRefusedError(), TimeoutError())).kind == "ambiguous"


def test_wrappers_in_a_circle_prove_nothing() -> None:
    outer, inner = requests.ConnectionError(), requests.ConnectionError()
    outer.__cause__, inner.__cause__ = inner, outer
    assert classify(outer).kind == "ambiguous"


def test_a_circle_of_unsent_ends() -> None:
    first, second = ConnectionRefusedError(), ConnectionRefusedError()
    first.__context__, second.__context__ = second, first
    assert classify(first).kind == "not_sent"


def test_an_endless_chain_is_ambiguous() -> None:
    error = newest = ConnectionRefusedError()
    for _ in range(5_000):
        newest.__cause__ = ConnectionRefusedError()
        newest = newest.__cause__
    assert classify(error).rule == "unreadable"


def test_an_exception_that_cannot_be_read_is_ambiguous() -> None:
    class Hostile(ConnectionRefusedError):
        @property
        def reason(self) -> object:
            raise RuntimeError("boom")

    assert classify(Hostile()) == Classification(
        "ambiguous", "reading it failed with builtins.RuntimeError", "unreadable"
    )


# -- helpers that try again ----------------------------------------------------------------------------


def test_below_tenacity_nothing_is_known_of_earlier_tries() -> None:
    @tenacity.retry(stop=tenacity.stop_after_attempt(2), reraise=True)
    def call() -> None:
        refuse()

    assert judged(call).rule == "earlier-send"


@pytest.mark.parametrize("package", sorted(RETRYING_PACKAGES))
def test_every_listed_retry_helper_is_recognised_by_its_frames(package: str) -> None:
    helper = types.ModuleType(f"{package}.inner")
    exec("def again(call):\n    return call()", vars(helper))  # a frame of a module by that name
    found = judged(lambda: helper.again(refuse))
    assert found.rule == "earlier-send"
    assert package in found.why


def test_a_loop_of_the_tool_itself_cannot_be_seen() -> None:
    """A known limit, said in the reference: the first try left no trace in the second one's exception."""

    def call() -> None:
        for error in (TimeoutError(), ConnectionRefusedError()):
            try:
                raise error
            except TimeoutError:
                continue

    assert judged(call).kind == "not_sent"


def test_urllib3_alone_is_judged_by_its_last_and_earlier_tries() -> None:
    with loopback() as net, urllib3.PoolManager(retries=2) as pool:
        assert judged(lambda: pool.request("GET", f"http://127.0.0.1:{net.refused()}/")).kind == "not_sent"
