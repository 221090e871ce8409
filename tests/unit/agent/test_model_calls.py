"""`run.call`: the door for calls that a model chose, and the guard against its repeats."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from beforehand import Ambiguous, Once, Outcome, Rejected, Run, agent, tool
from beforehand.errors import RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


@dataclass
class Line:
    sku: str
    count: int


def shop(lab: Lab, **clauses: object):
    """A mailer with a repeat guard, a stock tool and a read."""

    @tool(**({"once": Once("to", "subject", within=timedelta(days=7))} | clauses))
    async def send(to: str, subject: str, body: str = "") -> str:
        """Send an email.

        At once.
        """
        lab.sent.append(f"{to}: {subject}")
        if to == "broken":
            raise Rejected("no such mailbox", code="550")
        return f"message {len(lab.sent)}"

    @tool
    async def restock(lines: list[Line], note: str | None = None) -> int:
        lab.sent.append(f"restock {lines}")
        return sum(line.count for line in lines)

    @tool(effect="read")
    async def stock(sku: str) -> int:
        return 4

    return send, restock, stock


async def called(lab: Lab, tools: object, *calls: tuple[str, object]) -> list[Outcome[object]]:
    """The outcomes of these calls of a model, made one after another in one run."""
    outcomes: list[Outcome[object]] = []

    @agent(run_id="r-{name}", tools=tools)
    async def desk(run: Run, name: str) -> None:
        for name, arguments in calls:  # noqa: PLR1704 - the input is not needed
            outcomes.append(await run.call(name, arguments))

    async with lab.app(desk) as app:
        await app.run(desk, f"{len(lab.processes)}")
    return outcomes


@virtual
async def test_arguments_come_as_json_text_bytes_or_a_mapping_and_are_typed(lab: Lab):
    tools = shop(lab)
    lines = '{"lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": 3}]}'
    outcomes = await called(
        lab, tools, ("restock", lines), ("restock", lines.encode()), ("restock", {"lines": [], "note": "none"}),
        ("stock", {"sku": "a"}),
    )  # fmt: skip
    assert [(o.status, o.result) for o in outcomes] == [
        ("succeeded", 5), ("succeeded", 5), ("succeeded", 0), ("succeeded", 4),
    ]  # fmt: skip
    assert lab.sent[0] == "restock [Line(sku='a', count=2), Line(sku='b', count=3)]"
    assert [o.as_text() for o in outcomes] == ["5", "5", "0", "4"]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "says"),
    [
        ("nothing", "{}", "unknown_tool", "the tools are: restock, send, stock"),
        ("send", "{not json", "bad_arguments", ""),
        ("send", '"text"', "bad_arguments", ""),
        ("send", '{"to": "ann"}', "bad_arguments", "subject"),
        ("send", '{"to": "ann", "subject": "hi", "cc": "bob"}', "bad_arguments", "cc"),
        ("send", '{"to": 5, "subject": "hi"}', "bad_arguments", "to"),
        ("send", '{"to": "ann", "subject": "\\ud800"}', "bad_arguments", ""),
        ("restock", '{"lines": [{"sku": "a"}]}', "bad_arguments", "count"),
    ],
)
@virtual
async def test_what_the_model_got_wrong_is_an_outcome_and_nothing_is_sent(
    lab: Lab, name: str, arguments: str, code: str, says: str
):
    outcome = (await called(lab, shop(lab), (name, arguments)))[0]
    assert (outcome.status, outcome.code) == ("failed", code)
    assert says in outcome.reason
    assert outcome.as_text().startswith(f"Failed [{code}]")
    assert ".." not in outcome.as_text()
    assert lab.sent == []


@virtual
async def test_a_refusal_is_an_outcome_too(lab: Lab):
    outcome = (await called(lab, shop(lab), ("send", {"to": "broken", "subject": "hi"})))[0]
    assert (outcome.status, outcome.code, outcome.reason) == ("failed", "550", "no such mailbox")
    assert outcome.as_text() == "Failed [550]: no such mailbox. Nothing was changed."


HELLO = ("send", {"to": "ann", "subject": "hello", "body": "a"})


@virtual
async def test_a_repeat_is_answered_with_what_stands_already_and_says_so(lab: Lab):
    first, second = await called(lab, shop(lab), HELLO, HELLO)
    assert (first.reused, second.reused) == ("", "r-1/send#1")
    assert second.result == "message 1"
    assert second.as_text().startswith("Already done, not done again")
    assert lab.sent == ["ann: hello"]
    assert [reused.source for reused in lab.of("r-1", r.OutcomeReused)] == ["r-1/send#1"]


@virtual
async def test_a_repeat_meets_the_guard_across_runs_and_within_its_time_only(lab: Lab):
    tools = shop(lab)
    await called(lab, tools, HELLO)
    again = (await called(lab, tools, HELLO))[0]
    assert again.reused == "r-1/send#1"
    await lab.pass_time(days=6)
    assert (await called(lab, tools, HELLO))[0].reused == "r-1/send#1"
    lab.loop._until = float("inf")
    await lab.pass_time(days=2)
    assert (await called(lab, tools, HELLO))[0].reused == ""
    assert lab.sent == ["ann: hello", "ann: hello"]


@virtual
async def test_other_arguments_are_no_repeat_and_a_write_in_between_breaks_the_match(lab: Lab):
    other = ("send", {"to": "ann", "subject": "hello", "body": "something else"})
    outcomes = await called(lab, shop(lab), HELLO, other, HELLO)
    assert [outcome.reused for outcome in outcomes] == ["", "", ""]
    assert len(lab.sent) == 3


@virtual
async def test_a_repeat_of_what_failed_is_tried(lab: Lab):
    broken = ("send", {"to": "broken", "subject": "hi"})
    outcomes = await called(lab, shop(lab), broken, broken)
    assert [outcome.status for outcome in outcomes] == ["failed", "failed"]
    assert len(lab.sent) == 2


@virtual
async def test_block_refuses_a_repeat_and_allow_lets_it_pass(lab: Lab):
    blocked = await called(lab, shop(lab, once=Once("to", then="block")), HELLO, HELLO)
    assert (blocked[1].status, blocked[1].code) == ("failed", "repeat")
    assert len(lab.sent) == 1
    allowed = await called(lab, shop(lab, once=Once("to", then="allow")), HELLO, HELLO)
    assert [outcome.reused for outcome in allowed] == ["", ""]
    assert len(lab.sent) == 3


@virtual
async def test_ask_lets_a_person_decide_about_a_repeat(lab: Lab):
    send, *_ = shop(lab, once=Once("to", then="ask"))

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> list[str]:
        return [(await run.call(*HELLO)).status for _ in range(2)]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="repeat has to be approved"):
            await app.run(desk, "x")
        assert len(lab.sent) == 1
        await app.service.approve("r-x/send#2", by="eve")
        assert await app.run(desk, "x") == ["succeeded", "succeeded"]
    assert len(lab.sent) == 2


@virtual
async def test_a_repeat_of_what_is_still_pending_waits_for_it(lab: Lab):
    go: list[int] = []

    @tool(once=Once("to"))
    async def send(to: str) -> str:
        lab.sent.append(to)
        await lab.pass_time(seconds=5)
        go.append(1)
        return "done"

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> list[str]:
        both = await run.gather(run.call("send", {"to": "ann"}), run.call("send", {"to": "ann"}))
        return [outcome.reused for outcome in both]

    async with lab.app(desk) as app:
        reused = await app.run(desk, "x")
    assert sorted(reused) == ["", "r-x/~1/send#1"]
    assert lab.sent == ["ann"]


@virtual
async def test_calls_in_agent_code_are_deliberate_and_meet_no_guard(lab: Lab):
    send, *_ = shop(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        await send("ann", "hello")
        await send("ann", "hello")

    async with lab.app(desk) as app:
        await app.run(desk, "x")
    assert lab.sent == ["ann: hello", "ann: hello"]


@virtual
async def test_an_unknown_outcome_suspends_before_the_model_hears_of_it(lab: Lab):
    heard: list[str] = []

    @tool
    async def send(to: str) -> str:
        raise Ambiguous("no answer")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> None:
        heard.append((await run.call("send", {"to": "ann"})).as_text())

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        assert heard == []
        await app.service.resolve("r-x/send#1", "happened", by="eve", result="found")
        await app.run(desk, "x")
    assert heard == ["found"]


@virtual
async def test_on_unknown_raise_is_an_outcome_that_tells_the_model_not_to_repeat(lab: Lab):
    heard: list[str] = []

    @tool(on_unknown="raise")
    async def send(to: str) -> str:
        raise Ambiguous("no answer")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> None:
        heard.append((await run.call("send", {"to": "ann"})).as_text())

    await lab.until_suspended(desk, "x")
    assert "It is not known whether this happened" in heard[0]
    assert "Do not repeat it" in heard[0]


@virtual
async def test_tools_are_shown_in_the_shape_each_api_wants(lab: Lab):
    shown: dict[str, object] = {}
    tools = shop(lab)

    @agent(run_id="r-{name}", tools=tools)
    async def desk(run: Run, name: str) -> None:
        for style in ("openai", "anthropic", "json"):
            shown[style] = run.tools.schemas(style)[0]

    async with lab.app(desk) as app:
        await app.run(desk, "x")
    parameters = {
        "type": "object",
        "properties": {
            "to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"},
        },
        "required": ["to", "subject"],
        "additionalProperties": False,
    }  # fmt: skip
    about = "Send an email.\n\nAt once."
    assert shown["anthropic"] == {"name": "send", "description": about, "input_schema": parameters}
    assert shown["json"] == {"name": "send", "description": about, "parameters": parameters}
    assert shown["openai"] == {"type": "function", "function": shown["json"]}
