"""Titles: checked when a tool is declared, rendered from what is stored, and part of nothing that is an identity."""

import ast
import html
import os
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
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
from holdfast.agent.titles import LONGEST_TITLE, parsed_title
from holdfast.errors import ContractError
from holdfast.inspect.timeline import timeline
from holdfast.model import records as r
from holdfast.people.dossier import dossier
from holdfast_console.notify.compose import line_of
from holdfast_console.notify.schedule import NotifiedItem
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual

KNOWN = ("cents", "customer", "to", "d")


def rendered(template: str, stored: str) -> str:
    return parsed_title(template, "refund", KNOWN).of(stored.encode())


@pytest.mark.parametrize(
    ("template", "stored", "title"),
    [
        ("refund {cents / 100:.2f} EUR to {customer}", '{"cents":1250,"customer":"Ada"}', "refund 12.50 EUR to Ada"),
        ("to {customer.name}", '{"customer":{"name":"Ada"}}', "to Ada"),
        ("to {d['first name']}", '{"d":{"first name":"Ada"}}', "to Ada"),
        ("mail {to[0]}, last {to[-1]}", '{"to":["a","b","c"]}', "mail a, last c"),
        ("mail to {to}", '{"to":["a@example.com","b@example.com"]}', "mail to a@example.com, b@example.com"),
        ("{cents:,} and {-cents} and {cents * 2 + 1 - 4}", '{"cents":1000}', "1,000 and -1000 and 1997"),
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
        ("{cents / d}", '{"cents":1,"d":0}'),
        ("{cents}", "{}"),
        ("{cents:.2f}", '{"cents":"many"}'),
        ("{cents * 3}", '{"cents":"many"}'),
        ("{cents + 1}", '{"cents":true}'),
        ("{d}", '{"d":{"a":1}}'),
        ("{d.a.b}", '{"d":{"a":1}}'),
        ("{to[9]}", '{"to":[]}'),
        ("{to[0]}", '{"to":[{"$secret":"x"},"second"]}'),
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
        ("{other}", "other is not a parameter"),
        ("{card}", "card is not a parameter whose value is stored"),
        ("{print(cents)}", "is not an expression that a title takes"),
        ("{customer.upper()}", "is not an expression that a title takes"),
        ("{[c for c in customer]}", "is not an expression that a title takes"),
        ("{cents ** 9}", "is not an expression that a title takes"),
        ("{'text'}", "is not an expression that a title takes"),
        ("{True}", "is not an expression that a title takes"),
        ("{d[customer]}", "is not a constant text or whole number"),
        ("{to[1:2]}", "is not a constant text or whole number"),
        ("{cents!r}", "!r is not supported"),
        ("{cents:{customer}}", "is not a format that a title takes"),
        ("{cents:1000000000}", "is not a format that a title takes"),
        ("{cents", "expected '}'"),
        ("{}", "names no parameter"),
        ("{cents cents}", "is not an expression"),
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


@tool(title="refund {cents / 100:.2f} EUR to {customer}", gate="cents > 5000", idempotency=Key.forever())
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
        with pytest.raises(RunSuspended, match=r"refund 90\.00 EUR to Ada: may refund \{.*9000.*\} be sent\?"):
            await app.run(desk, 9000)
        found = await dossier(app.service, "t-9000/refund#1")
        assert found.title == "refund 90.00 EUR to Ada"
        assert b"9000" in bytes(found.arguments), "the exact arguments are shown beside the title"
        assert [one.title for one in timeline("t-9000", lab.records("t-9000")).entries if one.kind == "write"] == [
            found.title
        ]
    (intent,) = [one.intent for one in lab.of("t-100", r.AttemptStarted) if one.intent is not None]
    assert intent.title == "refund 1.00 EUR to Ada"


@virtual
async def test_an_edit_renders_the_title_anew(lab: Lab):
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, 9000)
        await app.service.edit("t-9000/refund#1", {"cents": 8000}, by="ann")
        with pytest.raises(RunSuspended, match=r"refund 80\.00 EUR to Ada: may refund \{.*8000"):
            await app.resume("t-9000")
        assert (await dossier(app.service, "t-9000/refund#1")).title == "refund 80.00 EUR to Ada"


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
    @tool(title="refund {cents / 100:.2f} EUR to {customer}", gate="true")
    async def pay_back(customer: str, cents: int) -> int:
        return cents

    @agent(run_id="p-{name}", tools=[pay_back])
    async def paying(run: Run, name: str) -> int:
        return await pay_back("<b>Ada</b>", 9000)

    title = "refund 90.00 EUR to <b>Ada</b>"
    async with standing(lab, agents=[paying]) as stand, await stand.client("bea") as client:
        for path in ("/inbox", f"/inbox/{quote('p-ann/pay_back#1')}", "/runs/p-ann"):
            assert html.escape(title) in (await client.get(path)).text, path
        (item,) = (await client.get("/api/v1/items")).json()["items"]
        assert item["asks"].startswith(f"{title}: may pay_back")
        reader, identity = stand.app.service.reader, "p-ann/pay_back#1@"
        asked_ms = (await reader.history("p-ann")).operations["pay_back#1"].approval.asked_at
        line = await line_of(reader, NotifiedItem(f"{identity}{asked_ms}", "new"))
        assert line is not None
        assert line.asks.startswith(f"{title}: may pay_back")
        assert dict(line.facts)["Arguments"] == '{"cents":9000,"customer":"<b>Ada</b>"}'


NAMES = st.sampled_from([*KNOWN, "print", "__builtins__", "self", "known"])
MEMBERS = st.sampled_from(["name", "__class__", "__globals__", "__init__", "mro", "format"])
EXPRESSIONS = st.recursive(
    NAMES | st.sampled_from(["1", "2.5", "'text'", "True", "None", "...", "lambda: 1", "(yield)", "[]", "{}", "f'{cents}'"]),
    lambda inner: st.one_of(
        st.builds("{0}.{1}".format, inner, MEMBERS),
        st.builds("{0}[{1}]".format, inner, inner | st.just("'name'") | st.just("-1")),
        st.builds("({0} {1} {2})".format, inner, st.sampled_from(["+", "-", "*", "/", "**", "%", "or", "if 1 else", "@"]), inner),
        st.builds("{0}({1})".format, inner, inner),
        st.builds("(x := {0})".format, inner),
        st.builds("[{0} for cents in {1}]".format, inner, inner),
        st.builds("-{0}".format, inner),
    ),
    max_leaves=8,
)  # fmt: skip
ARGUMENTS = {"cents": 7, "customer": "Ada", "to": ["a", "b"], "d": {"name": "Bob", "__class__": "plain"}}
SAFE = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.BinOp,
    ast.UnaryOp,
    ast.Constant,
    ast.Load,
    ast.operator,
    ast.unaryop,
)


@given(EXPRESSIONS)
def test_a_template_reaches_nothing_but_arguments(expression: str):
    try:
        title = parsed_title("{" + expression + "}", "refund", KNOWN)
    except ContractError:
        return
    for node in ast.walk(ast.parse(expression.strip(), mode="eval").body):
        assert isinstance(node, SAFE), expression
        assert not isinstance(node, ast.Name) or node.id in KNOWN, expression
    shown = title.of(msgspec.json.encode(ARGUMENTS))
    assert shown in {"", "7", "Ada", "a", "b", "a, b", "Bob", "plain"} or float(shown) is not None, (expression, shown)
