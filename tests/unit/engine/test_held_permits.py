"""Runs that wait for a permit whose holder stands still: they hold no slot, and in the end a person is asked."""

from beforehand.inspect.reader import JournalReader
from beforehand.journal.port import Permit, PermitRequest, ReleaseRequest, Worker
from beforehand.model import records as r
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.queues.call_limits import AppliedLimit, CallLimit
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_call_limits import Service, charging, known_to_all, limit
from tests.unit.engine.test_model_limits import ModelServer, asking, limited


@virtual
async def test_a_person_is_told_which_process_stands_still_with_a_permit_and_the_call_goes_on_after_its_end(lab: Lab):
    service, stopped = Service(lab), Worker("stopped", machine="here", pid=4711)
    desk = charging(service)
    async with lab.app(desk, pause_bound_ms=60_000, hold_ms=10**9) as app:
        reader = JournalReader(lab.journal, lab.journal.identity)
        await limit(app, at_once=1)
        await lab.journal.beat(stopped, 10_000)
        one = AppliedLimit("tool charge", CallLimit(at_once=1))
        held = PermitRequest(Permit("stopped", 1), (one.cell,), app.engine.queues.newest.entry)
        assert (await lab.journal.commit(held)).granted
        waits = app.start(desk, "ann")
        await lab.pass_time(seconds=60)
        assert await items(reader) == []
        await lab.pass_time(seconds=3_600)
        assert service.began == []
        (item,) = await items(reader)
        assert (item.kind, item.item, item.tool) == ("review", "r-ann/charge#1", "charge")
        assert item.asks == (
            "the limit of tool charge is reached: process 4711 on this machine holds a permit, still lives, and stands"
            " still in its call: continue it (kill -CONT 4711), or end it (kill -9 4711), and the permit is free"
        )
        assert (item.due_ms, item.answers) == (None, ())
        assert (await dossier(reader, item.item)).asks == item.asks
        lab.journal.kill("stopped")
        assert await waits.result() == "charged ann"
        assert await items(reader) == []


@virtual
async def test_a_run_that_waits_for_a_permit_of_a_stopped_process_is_suspended_and_continues_by_itself(lab: Lab):
    service = Service(lab)
    desk = charging(service)
    async with lab.app(desk, recover=True, pause_bound_ms=600_000, hold_ms=30_000) as app:
        reader = JournalReader(lab.journal, lab.journal.identity)
        await limit(app, at_once=1)
        await lab.journal.beat(Worker("stopped", machine="here", pid=4711), 10_000)
        one = AppliedLimit("tool charge", CallLimit(at_once=1))
        held = PermitRequest(Permit("stopped", 1), (one.cell,), app.engine.queues.newest.entry)
        assert (await lab.journal.commit(held)).granted
        app.start(desk, "ann")
        suspended = []
        for _ in range(6):
            await lab.pass_time(seconds=9)
            (line,) = await lab.journal.runs(run="r-ann")
            suspended.append((line.status, line.owner))
        assert suspended[:2] == [("running", app.engine.worker.id)] * 2, "so far its process may only be slow"
        assert suspended[3:] == [("suspended", None)] * 3, (
            "its lease was over after 10 s, and its silence is held for 30 s at most"
        )
        assert b"the limit of tool charge is reached" in line.waits
        assert lab.clock.wall_ms() < line.due_ms <= lab.clock.wall_ms() + 60_000
        assert await items(reader) == [], "a person is asked only after the pause bound"
        await lab.pass_time(minutes=11)
        (item,) = await items(reader)
        assert "process 4711" in item.asks
        assert len(lab.of("r-ann", r.Claimed)) < 15, "in the end it looks again once a minute"
        await lab.journal.beat(Worker("stopped", machine="here", pid=4711), 10_000)  # it was continued
        await lab.journal.commit(ReleaseRequest(held.permit, {one.cell.name: None}))
        await lab.pass_time(minutes=2)
        assert len(service.began) == 1
        assert (await lab.journal.runs(run="r-ann"))[0].status == "completed"
        assert await items(reader) == []


@virtual
async def test_a_run_of_a_stopped_process_gets_the_slot_of_one_that_waits_for_its_permit(lab: Lab):
    """The one that waited kept the only slot of the queue for as long as the process was stopped."""
    service = Service(lab)
    desk = charging(service)
    declared = DeclaredLimits({"desks": QueueLimits(1)}, tools={"charge": CallLimit(at_once=1)})
    async with lab.app(desk, queues=declared, recover=True) as one:
        stopped = lab.processes[-1]
        async with lab.app(desk, recover=True) as two:
            await one.submit(desk, "ann", queue="desks")
            await lab.until(lambda: bool(service.began))
            stopped.awake.clear()
            await lab.journal.beat(Worker(stopped.worker, machine="test", pid=4711), 15_000)  # its last one
            await two.submit(desk, "bob", queue="desks", priority=9)
            await lab.pass_time(minutes=5)
            assert [claim.worker for claim in lab.of("r-ann", r.Claimed)][:2] == ["w1", "w2"]
            await lab.pass_time(minutes=20)
            asked = await items(JournalReader(lab.journal, lab.journal.identity))
            assert {one.run for one in asked} == {"r-ann", "r-bob"}
            assert len(service.began) == 1
            stopped.awake.set()
            await lab.pass_time(minutes=30)
            assert {(await lab.journal.runs(run=run))[0].status for run in ("r-ann", "r-bob")} == {"completed"}
            assert service.most == 1


@virtual
async def test_a_run_that_waits_to_ask_a_model_of_a_stopped_process_is_suspended_too(lab: Lab):
    server = ModelServer(lab)
    desk = asking(server)
    async with lab.app(desk, queues=limited(at_once=1)) as one:
        stopped = lab.processes[-1]
        async with lab.app(desk, recover=True) as two:
            one.start(desk, "ann")
            await lab.until(lambda: bool(server.began))
            stopped.awake.clear()
            await known_to_all(two)
            two.start(desk, "bob")
            await lab.pass_time(minutes=1)
            assert (await lab.journal.runs(run="r-bob"))[0].status == "suspended"
            lab.journal.kill(stopped.worker)
            await lab.pass_time(minutes=2)
            assert (await lab.journal.runs(run="r-bob"))[0].status == "completed"
            stopped.awake.set()


@virtual
async def test_a_call_of_a_model_behind_a_process_that_stands_still_is_no_question_to_a_person(lab: Lab):
    """An item of the inbox is about an operation, and a call of a model is none: no command would answer it."""
    server, stopped = ModelServer(lab), Worker("stopped", machine="here", pid=4711)
    desk = asking(server)
    async with lab.app(desk, queues=limited(at_once=1), recover=True, pause_bound_ms=60_000) as app:
        await lab.journal.beat(stopped, 10_000)
        one = AppliedLimit("model acme/big", CallLimit(at_once=1))
        held = PermitRequest(Permit("stopped", 1), (one.cell,), app.engine.queues.newest.entry)
        assert (await lab.journal.commit(held)).granted
        app.start(desk, "ann")
        await lab.pass_time(hours=1)
        (line,) = await lab.journal.runs(run="r-ann")
        assert line.status == "suspended"
        assert b"process 4711 on this machine holds a permit" in line.waits, "the listing says why it waits"
        assert await items(JournalReader(lab.journal, lab.journal.identity)) == []
        lab.journal.kill("stopped")
        await lab.pass_time(minutes=2)
        assert (await lab.journal.runs(run="r-ann"))[0].status == "completed"
