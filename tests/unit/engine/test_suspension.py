"""An effect that cannot be proven stops the run at that place, until evidence or a person settles it. Long: each word of a person has its test."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Ambiguous, CannotTell, Happened, Operation, Rejected, Run, Verdict, agent, tool
from beforehand.errors import OperationFailed, OutcomeUnknown, RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from tests.unit.engine.lab import Lab, virtual


def plain_desk(lab: Lab, **clauses: object):
    """A plain write whose first answer is lost, and a second write after it."""

    @tool(**clauses)
    async def send(to: str) -> str:
        lab.sent.append(f"mail {to}")
        if len(lab.sent) == 1:
            raise ConnectionResetError("the line went dead")
        return f"id-{len(lab.sent)}"

    @tool
    async def file(what: str) -> str:
        lab.sent.append(f"file {what}")
        return what

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        number = await send(name)
        return await file(number)

    return desk, send


@virtual
async def test_a_plain_write_without_an_answer_suspends_and_names_the_command(lab: Lab):
    desk, _ = plain_desk(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended) as suspended:
            await app.run(desk, "ann")
        assert "beforehand resolve r-ann/send#1 --happened --result JSON --evidence TEXT --by NAME\n" in str(
            suspended.value
        )
        (item,) = await items(app.service.reader)
        assert item.answers[-1] in str(suspended.value), "the inbox names the same command"
        assert item.answers[-1] == (await dossier(app.service, item.item)).answers[-1]
        assert "r-ann/send#1: an attempt may have landed (ConnectionResetError: the line" in str(suspended.value)
        assert "ConnectionResetError: the line went dead" in str(lab.records("r-ann"))
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        row = await app.service.row("r-ann")
    assert row.status == "suspended"
    assert b"r-ann/send#1" in row.waits
    assert lab.sent == ["mail ann"]


@pytest.mark.parametrize(
    ("word", "result", "sent"),
    [
        ("happened", "id-7", ["mail ann", "file id-7"]),
        ("retry", None, ["mail ann", "mail ann", "file id-2"]),
    ],
)
@virtual
async def test_a_person_settles_it_and_the_run_goes_on(lab: Lab, word: str, result: str | None, sent: list[str]):
    desk, _ = plain_desk(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        applied = await app.service.resolve("r-ann/send#1", word, by="eve", evidence="looked", result=result)
        assert applied.at_once
        await app.run(desk, "ann")
    assert lab.sent == sent
    resolved = lab.of("r-ann", r.Resolved)[0]
    assert (resolved.by, resolved.evidence) == ("eve", "looked")


@virtual
async def test_did_not_happen_fails_the_operation_on_that_persons_word(lab: Lab):
    desk, _ = plain_desk(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/send#1", "did_not_happen", by="eve")
        with pytest.raises(OperationFailed, match="eve says that it did not happen") as failed:
            await app.run(desk, "ann")
        assert failed.value.outcome is not None
        assert failed.value.outcome.basis is not None
        assert (failed.value.outcome.basis.by, failed.value.outcome.basis.name) == ("person", "eve")
    assert lab.sent == ["mail ann"]


@virtual
async def test_the_first_of_two_people_is_heard_and_the_second_is_told_so(lab: Lab):
    desk, _ = plain_desk(lab)
    async with lab.app(desk) as app, lab.app(desk) as other:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        words = await asyncio.gather(
            app.service.resolve("r-ann/send#1", "happened", by="eve", result="id-7"),
            other.service.resolve("r-ann/send#1", "did_not_happen", by="bob"),
            return_exceptions=True,
        )
        refused = [word for word in words if isinstance(word, UsageError)]
        assert len(refused) == 1
        assert "eve" in str(refused[0])
        await app.run(desk, "ann")
        with pytest.raises(UsageError, match="only one that waits for a person can be resolved"):
            await app.service.resolve("r-ann/send#1", "retry", by="bob")
    assert lab.sent == ["mail ann", "file id-7"]


@virtual
async def test_resolving_what_does_not_exist_is_refused(lab: Lab):
    desk, _ = plain_desk(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="has no operation send#9"):
            await app.service.resolve("r-ann/send#9", "happened", by="eve")
        with pytest.raises(UsageError, match="run nobody is not in this journal"):
            await app.service.resolve("nobody/send#1", "happened", by="eve")
        with pytest.raises(UsageError, match="is not an operation id"):
            await app.service.resolve("send#1", "happened", by="eve")


@virtual
async def test_a_word_given_while_the_run_is_driven_reaches_it_there(lab: Lab):
    desk, _ = plain_desk(lab)

    @agent(run_id="b-{name}")
    async def busy(run: Run, name: str) -> str:
        pause = asyncio.create_task(run.sleep(timedelta(seconds=20)))
        number = await desk.__wrapped__(run, name)
        await pause
        return number

    async with lab.app(busy, desk) as app:
        handle = app.start(busy, "ann")
        await lab.pass_time(seconds=5)
        applied = await app.service.resolve("b-ann/send#1", "happened", by="eve", result="id-9")
        assert applied.at_once
        assert await handle.result() == "id-9"
    assert lab.sent == ["mail ann", "file id-9"]


@virtual
async def test_other_writes_wait_while_one_is_unknown_and_reads_do_not(lab: Lab):
    _, send = plain_desk(lab)

    @tool
    async def file(what: str) -> str:
        lab.sent.append(f"file {what}")
        return what

    @tool(effect="read")
    async def look() -> int:
        lab.sent.append("look")
        return 1

    async def later(run: Run) -> str:
        await run.sleep(timedelta(seconds=2))
        await look()
        return await file("b")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return list(await run.gather(send(name), later(run)))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.sent == ["mail ann", "look"]
        await app.service.resolve("r-ann/~1/send#1", "happened", by="eve", result="id-7")
        assert await app.run(desk, "ann") == ["id-7", "b"]
    assert lab.sent == ["mail ann", "look", "file b"]


@virtual
async def test_on_unknown_raise_tells_the_code_once_and_replays_what_it_was_told(lab: Lab):
    told: list[str] = []
    _, send = plain_desk(lab, on_unknown="raise")

    @tool
    async def file(what: str) -> str:
        lab.sent.append(f"file {what}")
        return what

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            told.append(await send(name))
        except OutcomeUnknown as unknown:
            told.append(unknown.outcome.status if unknown.outcome else "nothing")
        await file("it is unclear")
        await run.sleep(timedelta(hours=1))
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/send#1", "happened", by="eve", result="id-7")
        await lab.pass_time(hours=1)
        assert await app.run(desk, "ann") == "done"
    assert told == ["unknown", "unknown"]
    assert lab.sent == ["mail ann", "file it is unclear"]
    assert [(d.step, d.told) for d in lab.of("r-ann", r.Delivered)] == [("send#1", "unknown")]


@virtual
async def test_an_unknown_that_was_raised_may_be_settled_before_the_agent_returns(lab: Lab):
    _, send = plain_desk(lab, on_unknown="raise")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        outcome = await send.outcome(name)
        return outcome.status

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/send#1", "happened", by="eve", result="id-7")
        assert await app.run(desk, "ann") == "unknown"
    assert lab.sent == ["mail ann"]


@virtual
async def test_evidence_settles_a_parked_operation_on_the_slow_schedule(lab: Lab):
    seen: list[str] = []

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        raise Ambiguous("no answer")

    @send.verify(deadline=timedelta(minutes=1))
    async def find(operation: Operation[str], to: str) -> Verdict[str]:
        return Happened(seen[0]) if seen else CannotTell("the folder is closed")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        seen.append("found")
        row = await app.service.row("r-ann")
        assert row.due_ms is not None
        await lab.pass_time(milliseconds=row.due_ms - lab.clock.wall_ms())
        assert await app.run(desk, "ann") == "found"
    assert lab.sent == ["ann"]


@virtual
async def test_a_refusal_after_an_unknown_one_does_not_hide_it(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        if len(lab.sent) == 1:
            raise Ambiguous("no answer")
        raise Rejected("duplicate")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/send#1", "retry", by="eve")
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert lab.sent == ["ann", "ann"]
    assert lab.of("r-ann", r.OperationSettled)[-1].status == "unknown"


@virtual
async def test_a_person_may_be_asked_again_about_the_same_operation(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        raise ConnectionResetError("dead")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    @agent(run_id="r-{name}", name="desk", tools=[])
    async def without(run: Run, name: str) -> str:
        return await run.wait_for("never")

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/send#1", "retry", by="eve")
    async with lab.app(without) as app:
        with pytest.raises(RunSuspended, match="the tool send is no longer in this app"):
            await app.run(without, "ann")
        shown = (await load_item(app.service.reader, "r-ann/send#1")).digest
        await app.service.resolve("r-ann/send#1", "retry", by="bob", shown=shown)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        shown = (await load_item(app.service.reader, "r-ann/send#1")).digest
        await app.service.resolve("r-ann/send#1", "happened", by="eve", result="yes", shown=shown)
        assert await app.run(desk, "ann") == "yes"
    assert lab.sent == ["ann", "ann"]
    assert [resolved.by for resolved in lab.of("r-ann", r.Resolved)] == ["eve", "bob", "eve"]
