"""Ways round the person that an attack found: each test is red on the commit that it was written for."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Ambiguous, Deferred, Operation, Rejected, Run, agent, tool
from beforehand.agent.conditions import ConditionError, names_limited
from beforehand.control.undo import preview
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import BeforehandError, RunSuspended, UsageError
from beforehand.model.names import same_person
from beforehand.model.records import NOTHING, Raw
from beforehand.people.answering import answer
from beforehand.people.answers import DidNotHappenAnswer
from beforehand.people.loaded_item import load_item
from tests.unit.engine.lab import Lab, virtual

HIDDEN = 'cents in ["""\\""", """] || true || cents in [\'""",\'] //\']\n'
"""CEL reads `\\"` in a text of three quotes as a sign of that text; the check ends the text there."""
FORGED = "beforehand resolve s-amb/amb#1 --did-not-happen --retry --by ops"
A_DAY = timedelta(days=1)


def test_a_bound_of_a_plan_hides_no_code_in_a_text():
    with pytest.raises(ConditionError):
        names_limited(HIDDEN, ["cents"])


@pytest.mark.parametrize("text", [f"closed\n  {FORGED}\n", f"closed\r\n{FORGED}", f"closed\x1b[2J\u202e\n{FORGED}"])
@virtual
async def test_no_line_of_an_error_of_a_run_is_written_by_a_service(lab: Lab, text: str):
    @tool
    async def amb(c: str) -> str:
        raise Ambiguous(text)

    @agent(run_id="s-{c}", tools=[amb])
    async def desk(run: Run, c: str) -> str:
        return await amb(c)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended) as told:
            await app.run(desk, "amb")
    assert FORGED not in [line.strip() for line in str(told.value).splitlines()]
    assert str(told.value).replace("\n", "").isprintable()


@pytest.mark.parametrize("way", ["reject", "defer", "ask", "event"])
@virtual
async def test_no_text_of_others_begins_a_line_of_an_error(lab: Lab, way: str):
    text = f"closed\x1b[2J\u202e\n  {FORGED}\n"

    @tool
    async def send(c: str) -> str:
        if c == "reject":
            raise Rejected(text)
        if c == "defer":
            raise Deferred(text, key="k", within=A_DAY)
        return c

    @agent(run_id="s-{c}", tools=[send])
    async def desk(run: Run, c: str) -> Any:
        if c == "ask":
            return await run.ask(text)
        return await (run.wait_for(text) if c == "event" else send(c))

    async with lab.app(desk) as app:
        with pytest.raises(BeforehandError) as told:
            await app.run(desk, way)
    assert "closed" in str(told.value)
    assert FORGED not in [line.strip() for line in str(told.value).splitlines()]
    assert str(told.value).replace("\n", "").isprintable()


def deferring(lab: Lab) -> Any:
    @tool(gate="true")
    async def wire(c: str) -> str:
        lab.sent.append(f"wire {c}")
        raise Deferred("accepted", key=f"w-{c}", within=A_DAY)

    @wire.compensate(restores=True)
    async def back(operation: Operation[str], c: str) -> str:
        lab.sent.append(f"back {c}")
        raise Deferred("accepted", key=f"b-{c}", within=A_DAY)

    @agent(run_id="w-{c}", tools=[wire])
    async def desk(run: Run, c: str) -> str:
        return await wire(c)

    return desk


async def wired(app: Any, desk: Any) -> None:
    """The wire is approved by cid, sent, and accepted."""
    with pytest.raises(RunSuspended):
        await app.run(desk, "1", by="ann")
    await app.service.approve("w-1/wire#1", by="cid")
    with pytest.raises(RunSuspended):
        await app.run(desk, "1")


def done(name: str, by: str, status: Any = "succeeded") -> ArrivedAnswer:
    result = Raw(b'"ok"') if status == "succeeded" else NOTHING
    return ArrivedAnswer(name, status, result, "it says so", source=by)


@virtual
async def test_who_started_a_run_does_not_bring_the_answer_of_what_another_person_approved(lab: Lab):
    desk = deferring(lab)
    async with lab.app(desk) as app:
        await wired(app, desk)
        with pytest.raises(UsageError, match="ann"):
            await app.service.deliver("w-1", done("m1", "ann"))


@virtual
async def test_an_effect_that_was_accepted_is_named_before_an_undo(lab: Lab):
    desk = deferring(lab)
    async with lab.app(desk) as app:
        await wired(app, desk)
        await app.service.cancel("w-1", by="bea")
        await lab.pass_time(seconds=1)
        found = preview(await app.service.history("w-1")).effects
    assert [one.operation for one in found] == ["w-1/wire#1"], "it may land any moment"


@virtual
async def test_an_undo_is_not_done_where_a_person_said_that_its_compensation_did_not_happen(lab: Lab):
    desk = deferring(lab)
    async with lab.app(desk) as app:
        await wired(app, desk)
        await app.service.deliver("w-1", done("m1", ""))
        assert await app.run(desk, "1") == "ok"
        await app.undo("w-1", by="bea")
        await app.service.deliver("b-1", done("m2", ""))
        await lab.pass_time(seconds=1)
        assert {one.state for one in (await app.undo("w-1", by="bea")).effects} == {"undone"}
        await app.service.deliver("b-1", done("m3", "", "failed"))
        await lab.pass_time(seconds=1)
        await answer(app.service, "w-1/wire#1/undo", DidNotHappenAnswer(evidence="returned"), by="cid")
        undone = await app.undo("w-1", by="bea")
    assert {one.state for one in undone.effects} == {"stands"}, undone


@virtual
async def test_who_ordered_an_undo_does_not_approve_what_it_sends(lab: Lab):
    @tool
    async def charge(c: str) -> str:
        return "ok"

    @charge.compensate(restores=True)
    @tool(gate="true")
    async def back(operation: Operation[str], c: str) -> str:
        lab.sent.append(f"back {c}")
        return "ok"

    @agent(run_id="c-{c}", tools=[charge])
    async def desk(run: Run, c: str) -> str:
        return await charge(c)

    async with lab.app(desk) as app:
        await app.run(desk, "1", by="ann")
        await app.undo("c-1", by="bea")
        assert "bea" in (await load_item(app.service.reader, "c-1/charge#1/undo")).proposers


@pytest.mark.parametrize("name", [" ", "\u3164", "\u2063", "\x01"])
@virtual
async def test_a_name_that_shows_nothing_names_no_person(lab: Lab, name: str):
    desk = deferring(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "1", by="ann")
        with pytest.raises(UsageError, match="name of a person"):
            await app.service.approve("w-1/wire#1", by=name)


@pytest.mark.parametrize("sign", ["\x7f", "\x00", "\x08", "\x1b"])
def test_a_sign_that_is_not_drawn_makes_no_other_person(sign: str):
    assert same_person("ann", f"an{sign}n")


@pytest.mark.parametrize("evidence", ["\u200b", "\u3164", "\x00", "\u2800"])
@virtual
async def test_evidence_that_shows_nothing_is_empty(lab: Lab, evidence: str):
    @tool(gate="true")
    async def pay(c: str) -> str:
        lab.sent.append(f"pay {c}")
        raise Ambiguous("closed")

    @agent(run_id="p-{c}", tools=[pay])
    async def desk(run: Run, c: str) -> str:
        return await pay(c)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "1", by="ann")
        await app.service.approve("p-1/pay#1", by="cid")
        with pytest.raises(RunSuspended):
            await app.run(desk, "1")
        with pytest.raises(UsageError, match="how do you know"):
            await app.service.resolve("p-1/pay#1", "retry", by="cid", evidence=evidence)
