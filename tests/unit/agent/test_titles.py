"""Titles: checked when a tool is declared, rendered from what is stored, and part of nothing that is an identity."""

import html
import os
import string
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import (
    Key,
    Operation,
    Run,
    RunSuspended,
    Secret,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import ContractError
from beforehand.inspect.timeline import timeline
from beforehand.model import records as r
from beforehand.model.titles import LONGEST_TITLE, checked_title, title_from
from beforehand.people.dossier import dossier
from beforehand_console.notify.compose import line_of
from beforehand_console.notify.schedule import NotifiedItem
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual

KNOWN = ("cents", "customer", "to", "d")


def rendered(template: str, stored: str) -> str:
    return title_from(checked_title(template, "refund", KNOWN), stored.encode())


@pytest.mark.parametrize(
    ("template", "stored", "title"),
    [
        ("refund {cents} cents to {customer}", '{"cents":1250,"customer":"Ada"}', "refund 1250 cents to Ada"),
        ("mail to {to}", '{"to":["a@example.com","b@example.com"]}', "mail to a@example.com, b@example.com"),
        ("{cents:,}", '{"cents":1000}', "1,000"),
        ("{{literally}} {cents}", '{"cents":1}', "{literally} 1"),
        ("{cents} {customer}", '{"cents":true,"customer":null}', "yes none"),
        ("to {customer}", '{"customer":"a\\n\\n  b"}', "to a b"),
        ("{cents:.2f}", '{"cents":{"$decimal":"19.99"}}', "19.99"),
    ],
)
def test_a_template_reads_as_a_sentence(template: str, stored: str, title: str):
    assert rendered(template, stored) == title


@pytest.mark.parametrize(
    ("template", "stored"),
    [
        ("{cents}", "{}"),
        ("{cents:.2f}", '{"cents":"many"}'),
        ("{d}", '{"d":{"a":1}}'),
        ("{to}", '{"to":[{"a":1}]}'),
        ("{to}", '{"to":["first",{"$redacted":"x"}]}'),
        ("{cents}", '{"cents":{"$redacted":"x"}}'),
        ("{cents}", "no JSON"),
        ("{cents}", '{"cents":{"$int":"' + "9" * 5000 + '"}}'),
    ],
)
def test_a_template_that_does_not_fit_the_arguments_gives_no_title(template: str, stored: str):
    assert rendered(template, stored) == ""


def test_titles_are_short():
    assert rendered("to {customer}", msgspec.json.encode({"customer": "x" * 10_000}).decode()) == f"to {'x' * 79}…"
    assert len(rendered("{customer}" * 9, '{"customer":"' + "x" * 70 + '"}')) == LONGEST_TITLE


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{other}", "{other} is not a parameter"),
        ("{card}", "{card} is not a parameter whose value is stored"),
        ("{customer.__class__}", "{customer.__class__} is not a parameter"),
        ("{d[customer]}", "{d[customer]} is not a parameter"),
        ("{cents / 100:.2f}", "{cents / 100:.2f} is not a parameter"),
        ("{0}", "{0} is not a parameter"),
        ("{}", "{} is not a parameter"),
        ("{cents!r}", "{cents!r} is not a parameter"),
        ("{cents:{customer}}", "with at most a format"),
        ("{cents:1000000000}", "with at most a format"),
        ("{cents", "expected '}'"),
        ("", "is not a text"),
        ("x" * 501, "is not a text"),
    ],
)
def test_a_template_that_could_not_be_rendered_is_refused_when_the_tool_is_declared(template: str, says: str):
    def refund(cents: int, customer: str, to: list[str], d: dict[str, str], card: str) -> None: ...

    with pytest.raises(ContractError, match="title=") as refused:
        tool(title=template, redact=["card"])(refund)
    assert says in str(refused.value)


def test_a_read_takes_no_title():
    with pytest.raises(ContractError, match="price is a read"):

        @tool(effect="read", title="{sku}")
        def price(sku: str) -> int:
            return 1


def test_a_title_is_no_part_of_the_contract():
    def pay(cents: int) -> None: ...

    assert tool(title="pay {cents}")(pay).digest == tool(pay).digest


@tool(title="refund {cents} cents to {customer}", gate="cents > 5000", idempotency=Key.forever())
async def refund(customer: str, cents: int) -> int:
    _ = current_operation().key
    return cents


@agent(run_id="t-{cents}", tools=[refund])
async def desk(run: Run, cents: int) -> int:
    return await refund("Ada", cents)


@virtual
async def test_the_title_is_stored_with_the_intent_and_read_by_people(lab: Lab):
    async with lab.app(desk) as app:
        assert await app.run(desk, 100) == 100
        with pytest.raises(RunSuspended, match=r"refund#1: refund 9000 cents to Ada: may it be sent\? the contract"):
            await app.run(desk, 9000)
        found = await dossier(app.service, "t-9000/refund#1")
        assert found.title == "refund 9000 cents to Ada"
        assert b"9000" in bytes(found.arguments), "the exact arguments are shown beside the title"
        assert [one.title for one in timeline("t-9000", lab.records("t-9000")).entries if one.kind == "write"] == [
            found.title
        ]
    (intent,) = [one.intent for one in lab.of("t-100", r.AttemptStarted) if one.intent is not None]
    assert intent.title == "refund 100 cents to Ada"


@virtual
async def test_an_edit_renders_the_title_anew(lab: Lab):
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, 9000)
        await app.service.edit("t-9000/refund#1", {"cents": 8000}, by="ann")
        with pytest.raises(RunSuspended, match="refund 8000 cents to Ada: may it be sent"):
            await app.resume("t-9000")
        assert (await dossier(app.service, "t-9000/refund#1")).title == "refund 8000 cents to Ada"


@tool(title="sign in as {user} with {password}", idempotency=Key.forever())
async def sign_in(user: str, password: Secret) -> bool:
    _ = current_operation().key
    return True


@virtual
async def test_a_secret_gives_no_title_and_the_call_is_made(lab: Lab):
    @agent(run_id="s-{word}", tools=[sign_in])
    async def entering(run: Run, word: str) -> bool:
        return await sign_in("ann", Secret.of(os.urandom(8).hex(), name="password"))

    async with lab.app(entering) as app:
        assert await app.run(entering, "x")
    (intent,) = [one.intent for one in lab.of("s-x", r.AttemptStarted) if one.intent is not None]
    assert intent.title == ""


@virtual
async def test_what_makes_amends_has_its_own_title(lab: Lab):
    @tool(title="book {seat}")
    async def book(seat: str) -> str:
        return seat

    @book.compensate(restores=True)
    async def unbook(operation: Operation[str], seat: str) -> None: ...

    @agent(run_id="b-{seat}", tools=[book])
    async def booking(run: Run, seat: str) -> None:
        async with run.transaction("trip"):
            await book(seat)
            raise ValueError(seat)

    async with lab.app(booking) as app:
        with pytest.raises((ValueError, TransactionAborted)):
            await app.run(booking, "12A")
    assert [(one.intent.tool, one.intent.title) for one in lab.of("b-12A", r.OperationPlanned)] == [("unbook", "")]


@virtual
async def test_pages_the_api_and_mails_show_it(lab: Lab):
    @tool(title="refund {cents} cents to {customer}", gate="true")
    async def pay_back(customer: str, cents: int) -> int:
        return cents

    @agent(run_id="p-{name}", tools=[pay_back])
    async def paying(run: Run, name: str) -> int:
        return await pay_back("<b>Ada</b>", 9000)

    title = "refund 9000 cents to <b>Ada</b>"
    async with standing(lab, agents=[paying]) as stand, await stand.client("bea") as client:
        for path in ("/inbox", f"/inbox/{quote('p-ann/pay_back#1')}", "/runs/p-ann"):
            assert html.escape(title) in (await client.get(path)).text, path
        page = (await client.get(f"/inbox/{quote('p-ann/pay_back#1')}")).text
        assert f"<h1>{html.escape(title)}</h1>" in page, "the title is the headline"
        assert page.count(html.escape(title)) == 2, "there, and in the tab of the browser"
        (item,) = (await client.get("/api/v1/items")).json()["items"]
        assert item["asks"].startswith(f"{title}: may it be sent? ")
        reader, identity = stand.app.service.reader, "p-ann/pay_back#1@"
        asked_ms = (await reader.history("p-ann")).operations["pay_back#1"].approval.asked_at
        line = await line_of(reader, NotifiedItem(f"{identity}{asked_ms}", "new"))
        assert line is not None
        assert line.asks.startswith(f"{title}: may it be sent? ")
        assert dict(line.facts)["Arguments"] == '{"cents":9000,"customer":"<b>Ada</b>"}'


FIELDS = st.lists(st.sampled_from([*"{}[]().:!_+ 0", *KNOWN, "__class__", "format"]), max_size=8).map("".join)
ARGUMENTS = {"cents": 7, "customer": "Ada", "to": ["a", "b"], "d": {"name": "Bob", "__class__": "plain"}}


@given(FIELDS)
def test_a_template_reaches_nothing_but_arguments(field: str):
    try:
        template = checked_title("{" + field + "}", "refund", KNOWN)
    except ContractError:
        return
    fields = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    assert set(fields) <= set(KNOWN)
    assert "plain" not in title_from(template, msgspec.json.encode(ARGUMENTS)), "an object has no text"
