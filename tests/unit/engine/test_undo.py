"""Undoing a run: without a slot of its queue, with a word for each effect, and with the runs below it."""

import asyncio
import contextlib
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Deferred, Key, Natural, Operation, Run, RunSuspended, agent, current_operation, tool
from beforehand.control.undo import preview
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import RunStopped, TransactionAborted
from beforehand.model import records as r
from beforehand.people.answering import answer
from beforehand.people.answers import DidNotHappenAnswer, HappenedAnswer
from beforehand.queues.call_limits import CallLimit
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from tests.draws import spread
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt

ONE = {"desk": QueueLimits(concurrency=1)}
STEADY = Key.forever(stores="all")


class Desk:
    """An agent that pays or waits for an hour, and the tool that pays back."""

    def __init__(self, lab: Lab) -> None:
        @tool(idempotency=STEADY)
        async def pay(name: str) -> str:
            lab.sent.append(f"pay {name}")
            assert current_operation().key
            return name

        @pay.compensate(restores=True)
        @tool(idempotency=Natural(within=timedelta(hours=1), settle_window=timedelta(seconds=1)))
        async def refund(operation: Operation[str]) -> None:
            lab.sent.append(f"refund {operation.result}")

        @tool(effect="read", timeout=timedelta(hours=2))
        async def look() -> str:
            await asyncio.sleep(3600)
            return "seen"

        mail, book = others(lab)

        @agent(run_id="r-{name}", tools=[pay, look, mail, book])
        async def desk(run: Run, name: str) -> str:
            if name == "long":
                return await look()
            paid = await pay(name)
            if name == "mailed":
                await mail(name)
                raise ValueError("after the mail")
            if name == "booked":
                await book(name)
            return paid

        self.agent = desk


def others(lab: Lab) -> Any:
    """A tool that nothing compensates, and one whose outcome stays unknown."""

    @tool
    async def mail(name: str) -> None:
        lab.sent.append(f"mail {name}")

    @tool
    async def book(name: str) -> None:
        lab.sent.append(f"book {name}")
        raise TimeoutError("no answer")

    @book.compensate(restores=True)
    @tool(idempotency=Natural(within=timedelta(hours=1), settle_window=timedelta(seconds=1)))
    async def cancel(operation: Operation[None]) -> None:
        lab.sent.append("cancel")

    return mail, book


async def paid_beside_a_long_run(lab: Lab, app: Any, desk: Any) -> None:
    """A run of the queue has paid, and another one has the only slot."""
    await app.submit(desk, "ann", queue="desk")
    await lab.pass_time(seconds=20)
    await app.submit(desk, "long", queue="desk")
    await lab.pass_time(seconds=20)
    assert (lab.sent, (await app.service.row("r-long")).status) == (["pay ann"], "running")


@virtual
async def test_an_undo_needs_no_slot_of_the_queue(lab: Lab):
    desk = Desk(lab).agent
    async with lab.app(desk, recover=True, queues=DeclaredLimits(ONE)) as app:
        await paid_beside_a_long_run(lab, app, desk)
        async with asyncio.timeout(60):
            undone = await app.undo("r-ann", by="eve")
        assert (undone.waits, lab.sent) == ("", ["pay ann", "refund ann"])
        assert (await app.service.row("r-long")).status == "running"


@virtual
async def test_a_worker_without_a_free_slot_drives_an_undo_that_was_only_ordered(lab: Lab):
    desk = Desk(lab).agent
    async with lab.app(desk, recover=True, queues=DeclaredLimits(ONE)) as app:
        await paid_beside_a_long_run(lab, app, desk)
        await app.service.undo("r-ann", by="eve")
        await lab.pass_time(seconds=60)
        assert ((await app.service.row("r-ann")).status, lab.sent) == ("undone", ["pay ann", "refund ann"])


def states(undone: Any) -> dict[str, str]:
    return {effect.operation: effect.state for effect in undone.effects}


@virtual
async def test_a_stopped_run_of_which_an_effect_stands_stays_stopped_and_never_goes_on(lab: Lab):
    desk = Desk(lab).agent
    async with lab.app(desk) as app:
        with pytest.raises(ValueError, match="after the mail"):
            await app.run(desk, "mailed")
        for _ in range(2):
            undone = await app.undo("r-mailed", by="eve")
            assert states(undone) == {"r-mailed/mail#1": "stands", "r-mailed/pay#1": "undone"}
            row = await app.service.row("r-mailed")
            assert (row.status, row.reason, row.waits) == ("stopped", "undone by eve, but for 1 effect", b"[]")
            with pytest.raises(RunStopped) as stopped:
                await app.resume("r-mailed")
            assert stopped.value.reason == "undone"
    assert lab.sent == ["pay mailed", "mail mailed", "refund mailed"]


@virtual
async def test_a_person_is_asked_about_an_effect_whose_outcome_is_unknown(lab: Lab):
    desk = Desk(lab).agent
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "booked")
        await app.service.cancel("r-booked", by="bea")
        with pytest.raises(RunStopped):
            await app.run(desk, "booked")
        undone = await app.undo("r-booked", by="eve")
        assert states(undone) == {"r-booked/book#1": "asked", "r-booked/pay#1": "undone"}
        assert "it is not known whether book#1 happened" in undone.waits
        await app.service.resolve_transaction("r-booked", "", "accept", by="eve")
        assert states(await app.undo("r-booked", by="eve")) == {"r-booked/book#1": "stands", "r-booked/pay#1": "undone"}
    assert lab.sent == ["pay booked", "book booked", "refund booked"]


@virtual
async def test_an_undo_keeps_the_limits_of_its_tools(lab: Lab):
    """The refund waits for its rate, which another run has used up: not for a slot, and not sent before."""
    desk = Desk(lab).agent
    limits = DeclaredLimits(ONE, tools={"refund": CallLimit(rate="1/hour")})
    async with lab.app(desk, recover=True, queues=limits) as app:
        for name in ("ann", "bob"):
            await app.submit(desk, name, queue="desk")
        await lab.pass_time(seconds=30)
        assert (await app.undo("r-bob", by="eve")).waits == ""
        later = await app.undo("r-ann", by="eve")
        assert "the limit of tool refund is reached" in later.waits
        assert lab.sent[2:] == ["refund bob"]
        await lab.pass_time(minutes=61)
        assert lab.sent[2:] == ["refund bob", "refund ann"]


# --- the runs below a run --------------------------------------------------------------------------------------------


class Tree:
    """A trip whose parts are child runs; each books once, and so does the trip. `wait` and `mail` go further."""

    def __init__(self, lab: Lab, **starts: Any) -> None:
        self.lab, self.keys = lab, dict[str, str]()
        self.starts = starts

        @tool(idempotency=STEADY)
        async def book(what: str) -> str:
            return self.sent(f"book {what}")

        @book.compensate(restores=True)
        @tool(idempotency=STEADY)
        async def cancel(operation: Operation[str], what: str) -> str:
            return self.sent(f"cancel {what}")

        @agent(tools=[book])
        async def part(run: Run, what: str) -> str:
            booked = await book(what)
            if what == "deep":
                await run.join(await run.start(part, "below"))
            if what == "waits":
                await run.ask("Go on?")
                await book("never")
            return booked

        @agent(run_id="trip-{parts}", tools=[book])
        async def trip(run: Run, parts: str) -> str:
            for what in parts.split("+"):
                child = await run.start(part, what, **self.starts)
                if what != "waits":
                    await run.join(child)
            await book("trip")
            if "waits" in parts:
                raise ValueError("no")
            return "done"

        self.agents = trip, part
        self.trip = trip

    def sent(self, what: str) -> str:
        """The effect of one key, once: the outside system honors it."""
        key = current_operation().key
        if key not in self.keys:
            self.keys[key] = what
            self.lab.sent.append(what)
        return what


async def statuses(app: Any) -> dict[str, str]:
    return {row.run: row.status for row in await app.service.runs()}


@virtual
async def test_an_undo_covers_the_runs_below(lab: Lab):
    tree = Tree(lab)
    async with lab.app(*tree.agents, recover=True) as app:
        await app.run(tree.trip, "air+deep")
        assert lab.sent == ["book air", "book deep", "book below", "book trip"]
    async with lab.app(*tree.agents) as app:  # nothing else drives the runs
        undone = await app.undo("trip-air+deep", by="eve", why="withdrawn")
        assert list(states(undone).values()) == ["undone"] * 4
        assert [name.removeprefix("trip-air+deep") for name in undone.below] == ["~part.1", "~part.2", "~part.2~part.1"]
        assert set((await statuses(app)).values()) == {"undone"}
        assert lab.sent[4:] == ["cancel trip", "cancel air", "cancel deep", "cancel below"]
        assert await app.undo("trip-air+deep", by="eve") == undone
    assert len(lab.sent) == 8
    (told,) = [one for one in lab.of("trip-air+deep~part.1", r.CommandApplied) if one.command == "undo"]
    assert (told.by, told.note) == ("eve", "the run trip-air+deep that started it is undone: withdrawn")


async def failed_beside_a_waiting_part(lab: Lab, tree: Tree) -> str:
    """The trip has failed, and its part has booked and asks a person."""
    async with lab.app(*tree.agents, recover=True, queues=DeclaredLimits(ONE)) as app:
        failing = asyncio.ensure_future(app.run(tree.trip, "waits"))
        await lab.pass_time(seconds=60)
        with pytest.raises(ValueError, match="no"):
            await failing
        assert sorted(lab.sent) == ["book trip", "book waits"]
        assert await statuses(app) == {"trip-waits": "stopped", "trip-waits~part.1": "suspended"}
    return "trip-waits"


@pytest.mark.parametrize("queue", [None, "desk"])
@virtual
async def test_a_run_below_that_is_under_way_is_cancelled_first_without_a_slot(lab: Lab, queue: str | None):
    tree = Tree(lab, **({} if queue is None else {"queue": queue}))
    top = await failed_beside_a_waiting_part(lab, tree)
    async with lab.app(*tree.agents, queues=DeclaredLimits({"desk": QueueLimits(concurrency=1)})) as app:
        undone = await app.undo(top, by="eve")
        assert states(undone) == {f"{top}/book#1": "undone", f"{top}~part.1/book#1": "undone"}
        assert set((await statuses(app)).values()) == {"undone"}
    assert sorted(lab.sent[2:]) == ["cancel trip", "cancel waits"]
    ends = [type(one) for one in lab.records(f"{top}~part.1") if isinstance(one, (r.RunStoppedRecord, r.RunUndone))]
    assert ends == [r.RunStoppedRecord, r.RunUndone]


@virtual
async def test_a_run_below_that_another_process_drives_is_cancelled_and_undone_there(lab: Lab):
    tree = Tree(lab)
    top = await failed_beside_a_waiting_part(lab, tree)
    async with lab.app(*tree.agents, recover=True) as other:
        driving = asyncio.ensure_future(other.resume(f"{top}~part.1"))
        await lab.pass_time(seconds=1)
        async with lab.app(*tree.agents) as app:
            undone = await app.undo(top, by="eve")
        assert set(states(undone).values()) == {"undone"}
        await asyncio.gather(driving, return_exceptions=True)
        assert set((await statuses(other)).values()) == {"undone"}
    assert sorted(lab.sent[2:]) == ["cancel trip", "cancel waits"]


@virtual
async def test_a_run_below_whose_code_is_elsewhere_waits_and_is_named(lab: Lab):
    tree = Tree(lab)
    async with lab.app(*tree.agents, recover=True) as app:
        await app.run(tree.trip, "air")
    async with lab.app(tree.trip) as app:
        undone = await app.undo("trip-air", by="eve")
        assert states(undone) == {"trip-air/book#1": "undone", "trip-air~part.1/book#1": "waits"}
        assert undone.waits == "run trip-air~part.1 waits for a process with the code of the agent part"
        row = await app.service.row("trip-air")
        assert (row.status, row.reason) == ("suspended", "run trip-air waits for the undo of its child trip-air~part.1")
    async with lab.app(*tree.agents, recover=True) as app:
        await lab.pass_time(seconds=60)
        assert set((await statuses(app)).values()) == {"undone"}


@pytest.mark.parametrize("recover", [False, True])
@virtual
async def test_a_run_is_undone_after_the_runs_below_it_and_names_what_stands_there(lab: Lab, recover: bool):
    desk = Desk(lab).agent

    @agent(tools=[])
    async def middle(run: Run, name: str) -> None:
        await run.join(await run.start(desk, "mailed"))

    @agent(run_id="{name}", tools=[])
    async def top(run: Run, name: str) -> None:
        with contextlib.suppress(Exception):
            await run.join(await run.start(middle, name))

    agents = top, middle, desk
    async with lab.app(*agents, recover=True) as app:
        await app.run(top, "top")
    child, below = "top~middle.1", "top~middle.1~desk.1"
    async with lab.app(*agents, recover=recover) as app:
        for _ in range(2):
            undone = await app.undo("top", by="eve")
            assert (undone.phase, undone.waits, undone.still_standing) == ("aborted", "", (f"{below}/mail#1",))
            row = await app.service.row("top")
            assert (row.status, row.reason) == ("completed", "undone by eve, but for 1 effect")
    ends = [lab.of(run, r.RunUndone)[0] for run in (below, child, "top")]
    assert [(end.still_standing, end.below) for end in ends] == [
        (("mail#1",), ()), ((), (f"{below}/mail#1",)), ((), (f"{below}/mail#1",)),
    ]  # fmt: skip
    assert sorted(ends, key=lambda end: end.at) == ends


@virtual
async def test_a_run_is_not_undone_while_a_person_is_asked_about_a_run_below_it(lab: Lab):
    desk = Desk(lab).agent

    @agent(run_id="{name}", tools=[])
    async def top(run: Run, name: str) -> None:
        await run.start(desk, "booked")
        raise ValueError("no")

    async with lab.app(top, desk, recover=True) as app:
        with pytest.raises(ValueError, match="no"):
            await app.run(top, "top")
        await lab.pass_time(seconds=60)
        async with asyncio.timeout(60):
            undone = await app.undo("top", by="eve")
        assert states(undone)["top~desk.1/book#1"] == "asked"
        assert (undone.phase, lab.of("top", r.RunUndone)) == ("aborted", [])
        await app.service.resolve_transaction("top~desk.1", "", "accept", by="eve")
        await lab.pass_time(seconds=60)  # the child wakes the run above it
        assert (await statuses(app)) == {"top": "stopped", "top~desk.1": "stopped"}
        assert lab.of("top", r.RunUndone)[0].below == ("top~desk.1/book#1",)


class Counts:
    """Counts how often each crash point is reached."""

    def __init__(self) -> None:
        self.points = Counter[str]()

    def reached(self, point: str) -> None:
        self.points[point] += 1


async def undo_in(lab: Lab, tree: Tree, top: str, crash: Any) -> None:
    """Undo the tree in a process that may die."""
    app = lab.make(*tree.agents, crash=crash)
    process = crash.process = lab.processes[-1]
    await app.open()
    undoing = asyncio.ensure_future(app.undo(top, by="eve"))
    waits = {undoing, crash.over} if isinstance(crash, DiesAt) else {undoing}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if process.dead:
        await lab.bury(app, process)
        await asyncio.gather(undoing, return_exceptions=True)
    else:
        await undoing
        await app.aclose()


async def ready(lab: Lab, name: str) -> tuple[Tree, str]:
    tree = Tree(lab)
    if name == "waits":
        return tree, await failed_beside_a_waiting_part(lab, tree)
    async with lab.app(*tree.agents, recover=True) as app:
        await app.run(tree.trip, name)
    return tree, f"trip-{name}"


@pytest.mark.deeper
@pytest.mark.parametrize("again", [True, False], ids=["undone again", "left to a worker"])
@pytest.mark.parametrize("name", ["air+deep", "waits"])
def test_whatever_dies_when_each_effect_of_the_tree_is_compensated_once(name: str, again: bool):
    points, expected = Counter[str](), list[str]()

    @virtual
    async def undisturbed(lab: Lab) -> None:
        tree, top = await ready(lab, name)
        counts = Counts()
        await undo_in(lab, tree, top, counts)
        points.update(counts.points)
        expected.extend(sorted(lab.sent))

    @virtual
    async def dies(lab: Lab, point: str, number: int) -> None:
        tree, top = await ready(lab, name)
        await undo_in(lab, tree, top, DiesAt(point, number))
        async with lab.app(*tree.agents, recover=not again) as app:
            if again:
                await app.undo(top, by="eve")
            elif not (await app.service.history(top)).undo_state:
                return  # it died before the undo was on record
            await lab.pass_time(minutes=5)
            assert set((await statuses(app)).values()) == {"undone"}, (point, number)
        assert sorted(lab.sent) == expected, (point, number)

    undisturbed()
    assert len(points) >= 5
    for point, number in spread((point, n) for point, times in sorted(points.items()) for n in range(1, times + 1)):
        dies(point=point, number=number)


@virtual
async def test_what_an_aborted_transaction_left_standing_stands_after_the_undo(lab: Lab):
    desk = Desk(lab)
    pay, _, mail, _ = desk.agent.tools

    @agent(name="trip", run_id="t-{name}", tools=[pay, mail])
    async def trip(run: Run, name: str) -> str:
        with contextlib.suppress(TransactionAborted):
            async with run.transaction("inner") as inner:
                await mail.options(hold=False)(name)
                inner.abort("no")
        return str(await pay(name))

    async with lab.app(trip) as app:
        assert await app.run(trip, "ann") == "ann"
        history = await app.service.history("t-ann")
        assert [(one.operation, one.can) for one in preview(history).effects] == [
            ("t-ann/pay#1", "restore"), ("t-ann/inner/mail#1", "stands"),
        ]  # fmt: skip
        undone = await app.undo("t-ann", by="eve")
        assert {one.operation: one.state for one in undone.effects} == {
            "t-ann/pay#1": "undone", "t-ann/inner/mail#1": "stands",
        }  # fmt: skip
        assert (await app.service.row("t-ann")).status == "completed"
    assert lab.sent == ["mail ann", "pay ann", "refund ann"]


def deferring(lab: Lab) -> Any:
    """An agent that books twice, in a transaction if the name begins with t; what cancels it is answered later."""

    @tool
    async def book(name: str, number: int) -> str:
        return "ok"

    @book.compensate(restores=True)
    async def unbook(operation: Operation[str], name: str, number: int) -> str:
        lab.sent.append(f"unbook {number}")
        raise Deferred("accepted", key=f"{name}-{number}", within=timedelta(days=9))

    @agent(run_id="d-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        if name.startswith("t"):
            with contextlib.suppress(TransactionAborted):
                async with run.transaction("trip"):
                    await book(name, 1)
                    raise ValueError("no")
            return "done"
        await book(name, 1)
        await book(name, 2)
        return "done"

    return desk


async def brought(app: Any, key: str, name: str, status: Any = "succeeded") -> None:
    result = r.Raw(b'"ok"') if status == "succeeded" else r.NOTHING
    await app.service.deliver(key, ArrivedAnswer(name, status, result, "it says so"))
    await asyncio.sleep(1)


@pytest.mark.parametrize("answered", ["", "happened", "did not"])
@virtual
async def test_an_undo_that_ends_in_doubt_about_a_compensation_is_not_done(lab: Lab, answered: str):
    desk = deferring(lab)
    async with lab.app(desk) as app:
        await app.run(desk, "a", by="ann")
        await app.undo("d-a", by="bea")
        await brought(app, "a-2", "m1")
        await app.undo("d-a", by="bea")
        await brought(app, "a-2", "m2", "failed")
        await app.undo("d-a", by="bea")
        if answered:
            given = HappenedAnswer() if answered == "happened" else DidNotHappenAnswer(evidence="returned")
            await answer(app.service, "d-a/book#2/undo", given, by="cid")
        await brought(app, "a-1", "m3")
        undone = await app.undo("d-a", by="bea")
        status, found = (await app.service.row("d-a")).status, preview(await app.service.history("d-a")).effects
    state = {"": "asked", "happened": "undone", "did not": "stands"}[answered]
    assert [(one.operation, one.state) for one in undone.effects] == [("d-a/book#2", state), ("d-a/book#1", "undone")]
    assert status == ("undone" if state == "undone" else "completed"), "what is in doubt is not undone"
    assert undone.still_standing == (() if state == "undone" else ("book#2",))
    assert undone.waits == ("a person is asked about d-a/book#2" if state == "asked" else "")
    assert [one.can for one in found] == {"asked": ["unknown"], "undone": [], "stands": ["stands"]}[state]


@pytest.mark.parametrize("answered", ["", "happened", "did not"])
@virtual
async def test_an_aborted_transaction_of_which_a_compensation_is_in_doubt_is_named(lab: Lab, answered: str):
    desk = deferring(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "t", by="ann")
        await brought(app, "t-1", "m1")
        await app.run(desk, "t")
        await brought(app, "t-1", "m2", "failed")
        if answered:
            given = HappenedAnswer() if answered == "happened" else DidNotHappenAnswer(evidence="returned")
            await answer(app.service, "d-t/trip/book#1/undo", given, by="cid")
        found = preview(await app.service.history("d-t")).effects
    assert [one.can for one in found] == {"": ["unknown"], "happened": [], "did not": ["stands"]}[answered]
