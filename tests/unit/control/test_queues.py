"""Submitting runs: stored once, started under the limits, refused with the reason."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.control.code_location import unknown_agents
from beforehand.control.queues import misspelled_tools, steer_queue
from beforehand.engine.process import newest_limits
from beforehand.engine.queueing import take_slots
from beforehand.errors import JournalUnavailable, ParameterMismatch, QueueDraining, QueueFull, RunQueued, UsageError
from beforehand.journal.port import Busy, Post, TakeRequest
from beforehand.queues.call_limits import CallLimit
from beforehand.queues.limits import (
    ConcurrencyLimit,
    Declaration,
    DeclaredLimits,
    LimitsError,
    QueueLimits,
    TenantLimits,
)
from beforehand.queues.modes import OPEN, QueueCommand, QueueMode, Restriction, command_key, with_command
from tests.commits import Commit, intercept

began: list[str] = []
most: list[int] = [0, 0]


@agent(run_id="ticket-{ticket[id]}")
async def desk(run: Run, ticket: dict[str, str]) -> str:
    began.append(ticket["id"])
    most[0] += 1
    most[1] = max(most)
    await asyncio.sleep(0)
    most[0] -= 1
    return ticket["id"].upper()


@agent(run_id="ticket-{ticket[id]}", name="clerk")
async def clerk(run: Run, ticket: dict[str, str]) -> str:
    await run.wait_for("the-answer")
    return ticket["id"]


ONE_AT_A_TIME = DeclaredLimits({"mail": QueueLimits(concurrency=1, key="order-{ticket.order}", capacity=3)})


@pytest.fixture(autouse=True)
def fresh():
    began.clear()
    most[:] = [0, 0]


def ticket(name: str, order: str = "A") -> dict[str, str]:
    return {"id": name, "order": order}


def in_a_loop(test):
    """Run an async test to its end."""

    @functools.wraps(test)
    def whole(**given):
        asyncio.run(test(**given))

    return whole


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, giving the app its turn, until it is true."""
    async with asyncio.timeout(60):
        while not await found():  # noqa: ASYNC110 - what is awaited is a state of the journal
            await asyncio.sleep(0.005)


async def reaches(app: Beforehand, run: str, status: str) -> None:
    async def found() -> bool:
        return (await app.engine.journal.runs(run=run))[0].status == status

    await until(found)


async def ended(app: Beforehand, count: int) -> None:
    async def found() -> bool:
        return (await app.engine.journal.counts()).get(("desk", "completed"), 0) >= count

    await until(found)


@pytest.mark.parametrize("address", ["memory:", "file"])
@in_a_loop
async def test_submitted_runs_start_under_the_limits_and_end(address, tmp_path):
    journal = str(tmp_path / "runs.db") if address == "file" else address
    async with Beforehand(journal, agents=[desk], queues=ONE_AT_A_TIME) as app:
        for name in "abc":
            assert (await app.submit(desk, ticket(name), queue="mail")).new
        assert await app.run(desk, ticket("c")) == "C"  # joins the queued run, and waits for its slot
        await ended(app, 3)
    assert sorted(began) == ["a", "b", "c"]
    assert most[1] == 1


@in_a_loop
async def test_the_same_submission_is_the_same_run(tmp_path):
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk], recover=False) as app:
        first = await app.submit(desk, ticket("a"), key="job-1")
        again = await app.submit(desk, ticket("a"), key="job-1")
        assert (first.run, first.new, again.run, again.new) == ("job-1", True, "job-1", False)
        with pytest.raises(ParameterMismatch, match="another input"):
            await app.submit(desk, ticket("b"), key="job-1")
        with pytest.raises(ParameterMismatch, match="belongs to the agent desk"):
            await app.submit(clerk, ticket("a"), key="job-1")
        (row,) = await app.engine.journal.runs()
        assert (row.status, row.reason, row.owner) == ("queued", "in the queue default", None)
        with pytest.raises(RunQueued, match="waits in the queue default"):
            await app.run(desk, ticket("a"), run_id="job-1")
        assert began == []
        again = await app.submit(desk, ticket("a"), key="job-1")
    assert not again.new


@in_a_loop
async def test_two_at_once_store_one_run(tmp_path):
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk], recover=False) as app:
        found = await asyncio.gather(*(app.submit(desk, ticket("a")) for _ in range(8)))
        assert sorted(one.new for one in found) == [False] * 7 + [True]
        (row,) = await app.engine.journal.runs()
        assert (row.status, row.owner) == ("queued", None)


@in_a_loop
async def test_a_run_does_not_begin_before_its_moment(tmp_path):
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk]) as app:
        await app.submit(desk, ticket("later"), at=datetime.now(UTC) + timedelta(days=1))
        await app.submit(desk, ticket("now"), at=datetime.now(UTC) - timedelta(days=1))
        await ended(app, 1)
        assert began == ["now"]
        await app.service.cancel("ticket-later", by="ann")
        await reaches(app, "ticket-later", "stopped")
    assert began == ["now"]


@in_a_loop
async def test_the_moment_of_a_run_is_kept_to_the_millisecond(tmp_path):
    moment = datetime.now(UTC).replace(microsecond=987_000) + timedelta(days=1)
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk], recover=False) as app:
        await app.submit(desk, ticket("later"), at=moment)
        (row,) = await app.engine.journal.runs()
    assert row.due_ms is not None
    assert datetime.fromtimestamp(row.due_ms / 1000, UTC) == moment


@in_a_loop
async def test_a_run_that_waits_for_a_person_has_its_key_and_no_slot(tmp_path):
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk, clerk], queues=ONE_AT_A_TIME) as app:
        await app.submit(clerk, ticket("asks", "A"), queue="mail")
        await reaches(app, "ticket-asks", "suspended")
        await app.submit(desk, ticket("same", "A"), queue="mail")
        await app.submit(desk, ticket("other", "B"), queue="mail")
        await ended(app, 1)
        assert began == ["other"]
        await app.service.cancel("ticket-asks", by="ann")
        await ended(app, 2)
    assert began == ["other", "same"]


@in_a_loop
async def test_bad_input_is_refused_and_nothing_is_stored(tmp_path):
    declared = DeclaredLimits(ONE_AT_A_TIME.queues, tenants={"acme": TenantLimits(2)})
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk], queues=declared, recover=False) as app:
        for given, text in (
            ({"queue": "mial"}, "queue 'mial' does not exist.*\n?.*did you mean mail"),
            ({"tenant": "acne"}, "tenant 'acne' does not exist"),
            ({"priority": 10}, "priority=10 is not from -9 to 9"),
            ({"priority": "high"}, "priority='high' is not accepted"),
            ({"at": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is what is refused
            ({"key": ""}, "run id"),
        ):
            with pytest.raises(UsageError, match=text):
                await app.submit(desk, ticket("a"), **given)
        with pytest.raises(UsageError, match="the key of queue mail"):
            await app.submit(desk, {"id": "a"}, queue="mail")
        assert await app.engine.journal.runs() == []
        for name in "abc":
            await app.submit(desk, ticket(name), queue="mail")
        with pytest.raises(QueueFull, match="the queue mail is full: 3 runs wait"):
            await app.submit(desk, ticket("d"), queue="mail")


FAULTS = {
    "queues: {mail: {concurency: 2}}": "queues.mail.concurency: unknown field; did you mean concurrency?",
    "queue: {}": "queue: unknown field; did you mean queues?",
    "queues: {mail: {concurrency: 0}}": "queues.mail.concurrency=0: it is at least 1",
    "queues: {mail: {concurrency: 2, per_tenant: 3}}": "queues.mail.per_tenant=3 is above concurrency=2",
    "queues: {mail: {per_key: 3}}": "queues.mail.per_key=3 without key",
    "queues: {mail: {ageing: soon}}": "queues.mail.ageing: write a duration such as 30s, 5m or 1h",
    "queues: {mail: {ageing: 0s}}": "queues.mail.ageing: it is longer than zero",
    "queues: {mail: {concurrency: many}}": "queues.mail: Expected `int | null`, got `str`",
    "queues: {a/b: {}}": "queues.'a/b' cannot be a name",
    "agents: {desk: {concurrency: -1}}": "agents.desk.concurrency=-1: it is at least 1",
    "tools: {charge: {at_once: 0}}": "tools.charge.at_once=0: it is at least 1; to stop a tool: beforehand pause --tool NAME",
    "tools: {charge: {rate: 100}}": "tools.charge.rate='100': write a rate such as 10/second",
    "tools: {charge: {rate: 0/minute}}": "tools.charge.rate='0/minute' permits no call",
    "tools: {charge: {rate: 2000/second}}": "it is at most 1000/second",
    "tools: {charge: {rate: -1/second}}": "write a rate such as",
    "tools: {charge: {burst: 5}}": "tools.charge.burst=5 without rate",
    "tools: {charge: {burst: 0}}": "tools.charge.burst=0: it is at least 1",
    "tools: {charge: {at_once: 2, burst: 5, rate: 9/day}}": "tools.charge.burst=5 is above at_once=2",
    "tools: {charge: {at_ones: 2}}": "tools.charge.at_ones: unknown field; did you mean at_once?",
    "tools: {a/b: {}}": "tools.'a/b' cannot be a name",
    "services: {bank: {at_once: 1}}": "services.bank.tools: name the tools that reach it",
    "services: {bank: {tools: [pay, pay]}}": "services.bank.tools names 'pay' twice",
    "services: {bank: {tools: [pay], rate: 0/day}}": "services.bank.rate='0/day' permits no call",
    "services: {bank: {tools: [pay], at_ones: 1}}": "services.bank.at_ones: unknown field; did you mean at_once?",
    "tenants: {acme: {services: {bank: {}}}}": "tenants.acme.services.bank: the service does not exist; declare it",
    "{services: {bank: {tools: [pay]}}, tenants: {acme: {services: {bnk: {}}}}}": "did you mean bank?",
    "tenants: {acme: {tools: {pay: {at_once: 0}}}}": "tenants.acme.tools.pay.at_once=0: it is at least 1",
    "tenants: {acme: {tools: {pay: {rate: 5}}}}": "tenants.acme.tools.pay.rate='5': write a rate",
    "tenants: {acme: {tools: [pay]}}": "tenants.acme.tools: it is a mapping of names",
    "models: {gpt: {tokens: 500}}": "models.gpt.tokens='500': write a rate of at least one token",
    "models: {gpt: {tokens: 0/day}}": "models.gpt.tokens='0/day': write a rate of at least one token",
    "models: {gpt: {tokens: 2000000/second}}": "it is at most 1000000/second",
    "models: {gpt: {token_burst: 5}}": "models.gpt.token_burst=5: it is at least 1, beside tokens",
    "models: {acme/gpt~1: {}}": "models.'acme/gpt~1' cannot be a name",
    "tenants: {acme: {models: {gpt: {tokens: 5}}}}": "tenants.acme.models.gpt.tokens='5': write a rate",
    "tenants: {acme: {tool: {}}}": "tenants.acme.tool: unknown field; did you mean tools?",
    "tenants: [acme]": "tenants: it is a mapping of names",
    "[1, 2]": "it holds no mapping",
    "": "it holds no mapping",
    "# nothing but a comment": "it holds no mapping",
    "queues:": "queues: it is a mapping of names; leave it out if it has none",
    "queues: []": "queues: it is a mapping of names",
    "queues: {a: {concurrency: 1}, a: {concurrency: 2}}": "'a' is there twice",
    "queues: {a: {key: 'o-{name'}}": "queues.a.key='o-{name' cannot be read: expected '}'",
    "queues: {a: {key: '{name:d}'}}": "queues.a.key='{name:d}' cannot be read: Unknown format code 'd'",
    "queues: {mail: {": "it is not YAML",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_file_of_limits_that_cannot_hold_is_refused(text, tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(text)
    with pytest.raises(LimitsError) as refused:
        Beforehand("memory:", queues=file)
    assert FAULTS[text] in str(refused.value)
    assert refused.value.next_step == f"correct {file}"


def test_all_faults_of_a_file_are_named_at_once(tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text("queues: {mail: {concurrency: 0, per_tenant: 0, ageing: 5m}}")
    with pytest.raises(LimitsError, match="has 2 faults"):
        Beforehand("memory:", queues=file)


@in_a_loop
async def test_limits_that_a_declaration_removes_are_said(tmp_path, caplog):
    journal, some = str(tmp_path / "runs.db"), DeclaredLimits({"mail": QueueLimits(), "post": QueueLimits()})
    for limits in (some, some, DeclaredLimits({"mail": QueueLimits(1)})):
        assert "removed" not in caplog.text
        async with Beforehand(journal, agents=[desk], queues=limits, recover=False):
            pass
    assert "limits that were declared before are removed: queues post" in caplog.text


@in_a_loop
async def test_the_newest_declaration_holds_for_every_process(tmp_path):
    journal, two = str(tmp_path / "runs.db"), DeclaredLimits({"mail": QueueLimits(concurrency=2)})
    async with Beforehand(journal, agents=[desk], queues=ONE_AT_A_TIME) as first:
        async with Beforehand(journal, agents=[desk], queues=two, recover=False) as second:
            assert second.engine.queues.limits == two

        async def heard() -> bool:
            return first.engine.queues.limits == two

        await until(heard)
        assert len(await first.engine.journal.entries("queues")) == 2
    async with Beforehand(journal, agents=[desk], queues=two) as third:
        assert len(await third.engine.journal.entries("queues")) == 2


@in_a_loop
async def test_limits_that_another_process_declares_hold_for_the_next_submission(tmp_path):
    """This process has not read them yet. Its submission has their key and capacity, and does not replace them."""
    journal = str(tmp_path / "runs.db")
    async with Beforehand(journal, agents=[desk], recover=False) as before:
        async with Beforehand(journal, agents=[desk], queues=ONE_AT_A_TIME, recover=False):
            pass
        for name in "abc":
            await before.submit(desk, ticket(name), queue="mail")
        with pytest.raises(QueueFull):
            await before.submit(desk, ticket("d"), queue="mail")
        stricter = DeclaredLimits({"post": QueueLimits(concurrency=1)})
        async with Beforehand(journal, agents=[desk], queues=stricter, recover=False):
            pass
        await before.submit(desk, ticket("d"), queue="post")
        with pytest.raises(UsageError, match="queue 'mail' does not exist"):
            await before.submit(desk, ticket("e"), queue="mail")


@in_a_loop
async def test_a_first_submission_replaces_no_limits_that_come_at_the_same_time(tmp_path):
    journal = str(tmp_path / "runs.db")
    async with Beforehand(journal, agents=[desk], recover=False) as first:
        await first.submit(desk, ticket("a"))
        async with Beforehand(journal, agents=[desk], queues=ONE_AT_A_TIME, recover=False) as second:
            await second.engine.journal.commit(Post("queues", "late", b"{}"))
            assert await newest_limits(second.engine.journal) == Declaration(ONE_AT_A_TIME, 3)


@pytest.mark.parametrize("begun", [False, True], ids=["of new runs", "of runs that go on"])
@in_a_loop
async def test_slots_that_a_failed_look_has_taken_are_given_back(
    begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with Beforehand(tmp_path / "j.db", agents=[desk, clerk], queues=ONE_AT_A_TIME, recover=True) as app:
        journal, failed = app.engine.journal, 0
        if begun:
            await app.submit(clerk, ticket("asks", order="0"), queue="mail")
            await reaches(app, "ticket-asks", "suspended")

        async def taking(request: Any, commit: Commit) -> Any:
            nonlocal failed
            granted = await commit(request)
            if granted and not failed:
                failed += 1
                raise JournalUnavailable("the answer was lost")
            return granted

        intercept(journal, TakeRequest, taking)
        if begun:
            await app.service.signal("ticket-asks", "the-answer", payload="yes")
            await reaches(app, "ticket-asks", "completed")
        for name in ("1", "2", "3"):
            await app.submit(desk, ticket(name, order=name), queue="mail")
        await ended(app, 3)
    assert failed == 1
    assert sorted(began) == ["1", "2", "3"]


@in_a_loop
async def test_a_limit_of_an_agent_that_no_app_has_is_said(tmp_path, caplog):
    limits = DeclaredLimits(agents={"dsk": ConcurrencyLimit(2), "clerk": ConcurrencyLimit(1)})
    journal = str(tmp_path / "runs.db")
    async with Beforehand(journal, agents=[desk], queues=limits, recover=False) as app:
        assert "the limit of agent dsk concerns no run" in caplog.text
        assert "did you mean desk?" in caplog.text
        assert len(await unknown_agents(app.engine.journal, limits.limited_agents())) == 2
    caplog.clear()
    async with Beforehand(journal, agents=[clerk], queues=limits, recover=False):
        assert "clerk" not in caplog.text


@in_a_loop
async def test_a_run_that_is_called_off_while_it_waits_keeps_its_age(tmp_path):
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk], recover=False) as app:
        await app.submit(desk, ticket("a"))
        (before,) = await app.engine.journal.runs()
        await app.submit(desk, ticket("b"), at=datetime.now(UTC) + timedelta(days=1))
        for run in ("ticket-a", "ticket-b"):
            await app.service.cancel(run, by="ann")
        first, later = await app.engine.journal.runs()
        assert first.due_ms == before.due_ms
        assert later.due_ms is not None
        assert later.due_ms < before.due_ms + 3_600_000  # at once, for it only ends


@in_a_loop
async def test_a_claim_takes_no_slot_back_that_a_look_under_way_was_given(tmp_path, monkeypatch):
    """The look has its slot in the journal, and this process is not told of it yet."""
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk], recover=False) as app:
        await app.submit(desk, ticket("a"))
        engine = app.engine

        async def taking(request: Any, commit: Commit) -> Any:
            granted = await commit(request)
            assert isinstance(await engine.leases.claim("ticket-a"), Busy)
            return granted

        intercept(engine.journal, TakeRequest, taking)
        assert len(await take_slots(engine, 1, ())) == 1
        assert (await app.drive("ticket-a")).status == "completed"


@in_a_loop
async def test_who_drives_a_run_waits_for_no_slot_of_it(tmp_path):
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk, clerk], queues=ONE_AT_A_TIME) as app:
        await app.submit(clerk, ticket("asks", "A"), queue="mail")
        await reaches(app, "ticket-asks", "suspended")
        await app.submit(desk, ticket("same", "A"), queue="mail")
        with pytest.raises(RunQueued):
            await app.drive("ticket-same")


@pytest.mark.parametrize("address", ["memory:", "file"])
@in_a_loop
async def test_a_paused_queue_starts_nothing_new_and_a_run_that_waited_for_its_answer_continues(address, tmp_path):
    journal = str(tmp_path / "runs.db") if address == "file" else address
    async with Beforehand(journal, agents=[desk, clerk], queues=ONE_AT_A_TIME) as app:
        await app.submit(clerk, ticket("asks", "A"), queue="mail")
        await reaches(app, "ticket-asks", "suspended")
        mode, changed = await steer_queue(app.engine, "mail", "pause", by="ann", why="the bank is closed")
        assert (str(mode), changed) == ("paused by ann: the bank is closed", True)
        await app.submit(desk, ticket("new", "B"), queue="mail")
        await app.submit(desk, ticket("elsewhere"))
        await ended(app, 1)
        await app.service.signal("ticket-asks", "the-answer", payload="yes")
        await reaches(app, "ticket-asks", "completed")
        assert began == ["elsewhere"]
        with pytest.raises(RunQueued, match="waits in the queue mail") as refused:
            await app.drive("ticket-new")
        assert "the queue is paused by ann: the bank is closed" in refused.value.known
        assert (await steer_queue(app.engine, "mail", "resume", by="bob"))[0] == OPEN
        await ended(app, 2)
    assert began == ["elsewhere", "new"]


@in_a_loop
async def test_a_mode_holds_for_a_process_that_has_not_read_it(tmp_path):
    journal = str(tmp_path / "runs.db")
    async with (
        Beforehand(journal, agents=[desk], recover=False) as worker,
        Beforehand(journal, agents=[desk], recover=False) as other,
    ):
        await worker.submit(desk, ticket("a"))
        for word in ("pause", "drain"):
            await steer_queue(other.engine, "default", word, by="ann")
        assert worker.engine.queues.newest.mode("default") == OPEN
        assert await take_slots(worker.engine, 9, ()) == []
        worker.engine.queues.newest = Declaration(entry=1)  # again as it was before both
        with pytest.raises(QueueDraining, match="the queue default is drained"):
            await worker.submit(desk, ticket("b"))
        assert not (await worker.submit(desk, ticket("a"))).new  # it exists: nothing is submitted
        await steer_queue(other.engine, "default", "resume", by="ann")
        assert (await worker.submit(desk, ticket("b"))).new
        assert len(await take_slots(worker.engine, 9, ())) == 2


@in_a_loop
async def test_a_restriction_outlives_the_process_and_other_limits_and_has_its_first_giver(tmp_path):
    journal = str(tmp_path / "runs.db")
    async with Beforehand(journal, agents=[desk], queues=ONE_AT_A_TIME, recover=False) as app:
        await steer_queue(app.engine, "mail", "pause", by="ann")
        await steer_queue(app.engine, "mail", "drain", by="bob", why="we move")
        for word in ("pause", "drain"):
            assert not (await steer_queue(app.engine, "mail", word, by="eve"))[1]
        with pytest.raises(UsageError, match=r"queue 'mial' does not exist.*\n?.*nothing was changed"):
            await steer_queue(app.engine, "mial", "pause", by="ann")
    two = DeclaredLimits({"mail": QueueLimits(concurrency=2)})
    async with Beforehand(journal, agents=[desk], queues=two, recover=False) as app:
        found = await newest_limits(app.engine.journal)
        assert found is not None
        assert found.limits == two
        assert str(found.mode("mail")) == "paused by ann, draining by bob: we move"
    async with Beforehand(journal, agents=[desk], queues=DeclaredLimits(), recover=False) as app:
        mode, changed = await steer_queue(app.engine, "mail", "resume", by="ann")  # though it is no longer declared
        assert (mode, changed) == (OPEN, True)


@in_a_loop
async def test_of_two_commands_at_once_none_is_lost(tmp_path):
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk], recover=False) as app:
        steered = [steer_queue(app.engine, "default", word, by=by) for word in ("pause", "drain") for by in "abc"]
        found = await asyncio.gather(*steered)
        assert [changed for _, changed in found].count(True) == 2
        newest = await newest_limits(app.engine.journal)
        assert newest is not None
        mode = newest.mode("default")
        assert mode.paused is not None
        assert mode.draining is not None


@in_a_loop
async def test_a_command_that_cannot_be_read_pauses_its_queue_alone(tmp_path):
    async with Beforehand(str(tmp_path / "runs.db"), agents=[desk], recover=False) as app:
        await app.submit(desk, ticket("a"))
        entry = await app.engine.journal.commit(Post("queues", command_key("mail", 1), b"{"))
        newest = await app.engine.queues.begin(app.engine.journal)
        assert newest.paused == {"mail"}
        assert str(newest.mode("mail")) == f"paused by ledger entry {entry.id}: it cannot be read"
        await steer_queue(app.engine, "mail", "resume", by="ann")
        assert (await app.engine.queues.begin(app.engine.journal)).paused == frozenset()


def test_commands_make_the_mode_of_their_queue():
    modes: dict[str, QueueMode] = {}
    for number, (word, by) in enumerate([("pause", "a"), ("pause", "b"), ("drain", "c")], 1):
        command = QueueCommand(word, "mail", by)
        modes = dict(with_command(modes, number, command_key("mail", 0), number, command))
    assert modes == {"mail": QueueMode(Restriction("a", 1), Restriction("c", 3))}
    assert not with_command(modes, 4, "mail/3", 4, QueueCommand("resume", "mail"))["mail"]


def test_a_limit_of_a_tool_that_is_spelled_like_another_one_is_named():
    limits = DeclaredLimits(tools={"charge_cart": CallLimit(), "charge_card": CallLimit(), "elsewhere": CallLimit()})
    assert misspelled_tools(limits, ["charge_card", "mail"]) == [
        "the limit of tool charge_cart concerns no tool of this app; did you mean charge_card?"
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"default": {"concurrency": 1}}, "queues= has a fault: default: "),
        ({"queues": {"mail": {"concurency": 1}}}, "did you mean concurrency"),
        ({"queues": 3}, "queues= has a fault: queues: "),
        (5, "queues= has a fault: it holds no mapping with queues, agents"),
        (b"queues.yaml", "queues= has a fault: it holds no mapping"),
        (
            DeclaredLimits(queues={"mail": 3}),
            r"queues=.* is not accepted: Expected `object`, got `int` - at `\$.queues",
        ),
    ],
    ids=str,
)
def test_limits_of_a_wrong_shape_are_refused_with_their_faults(tmp_path: Path, given: Any, message: str):
    with pytest.raises(UsageError, match=message) as refused:
        Beforehand(tmp_path / "runs.db", queues=given)
    assert refused.value.next_step


@in_a_loop
async def test_the_contents_of_a_file_of_queues_may_be_given_as_they_are(tmp_path: Path):
    contents = {"queues": {"mail": {"concurrency": 2}}, "tenants": {"acme": {"concurrency": 1}}}
    async with Beforehand(tmp_path / "runs.db", agents=[desk], queues=contents) as app:
        newest = app.engine.queues.newest
        assert newest is not None
        assert newest.limits == DeclaredLimits({"mail": QueueLimits(2)}, tenants={"acme": TenantLimits(1)})
