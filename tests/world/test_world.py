"""The `world` of a user's tests, against agents of every kind of carelessness."""

from datetime import timedelta

import pytest

from beforehand import (
    DidNotHappen,
    Happened,
    Key,
    Operation,
    Rejected,
    Run,
    TransactionAborted,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.testing.world import World


@tool(idempotency=Key.forever())
async def refund(order: str) -> str:
    return f"refund {order} {current_operation().key[:2]}"


@tool
async def ship(order: str) -> str:
    return f"parcel {order}"


class Mailbox:
    """A fake mail server that forgets everything between two runs."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def effects(self) -> list[str]:
        return self.sent

    def reset(self) -> None:
        self.sent = []


MAILBOX = Mailbox()


@tool
async def mail(to: str) -> str:
    MAILBOX.sent.append(current_operation().marker)
    return "sent"


@mail.verify(settle_window=timedelta(seconds=60))
async def in_sent(operation: Operation[str]) -> Verdict[str]:
    return Happened("sent") if operation.marker in MAILBOX.sent else DidNotHappen()


@tool(effect="read")
def price(order: str) -> int:
    return len(order)


@agent(run_id="careful-{order}", tools=[refund, mail, price])
async def careful(run: Run, order: str) -> str:
    await price(order)
    money = await refund(order)
    await run.sleep(timedelta(days=3))
    await mail(order)
    return money


@agent(run_id="careless-{order}", tools=[ship])
async def careless(run: Run, order: str) -> str:
    return await ship(order)


@pytest.fixture(autouse=True)
def with_mailbox(world: World) -> None:
    world.use(MAILBOX)


def test_a_run_says_what_happened(world: World):
    ran = world.run(careful, "17")
    assert (ran.status, ran.effects) == ("completed", ["refund", "mail"])
    assert ran.result is not None
    assert ran.result.startswith("refund 17")
    assert ran.calls[:2] == ["refund(order='17')", "mail(to='17')"]


def test_a_stub_answers_instead(world: World):
    world.stub(refund, returns="stubbed")
    assert world.run(careful, "17").result == "stubbed"


def test_a_refusal_reaches_the_agent(world: World):
    world.stub(refund, raises=Rejected("no money"))
    ran = world.run(careful, "17")
    assert isinstance(ran.error, Rejected)
    assert (ran.status, ran.effects) == ("stopped", [])


@pytest.mark.parametrize("fault", ["lose_reply", "lose_request", "fail_after", "deliver_twice"])
def test_a_fault_on_the_way_changes_nothing_for_careful_tools(world: World, fault: str):
    getattr(world, fault)(refund)
    getattr(world, fault)(mail) if fault != "deliver_twice" else None
    ran = world.run(careful, "17")
    assert (ran.status, ran.effects) == ("completed", ["refund", "mail"])


def test_what_lands_late_is_not_sent_again(world: World):
    world.land_late(mail, timedelta(seconds=30))
    ran = world.run(careful, "17")
    assert (ran.status, ran.effects) == ("completed", ["refund", "mail"])


def test_a_lost_reply_of_a_plain_write_asks_a_person(world: World):
    world.lose_reply(ship)
    ran = world.run(careless, "17")
    assert (ran.status, ran.effects) == ("suspended", ["ship"])
    assert "ship#1" in ran.asks


def test_exploring_a_careful_agent_finds_nothing(world: World):
    explored = world.explore(careful, "17")
    assert explored.boundaries > 20
    assert not explored.findings


def test_exploring_a_careless_agent_names_the_field_that_is_missing(world: World):
    with pytest.raises(AssertionError, match="takes no key and declares no verify") as caught:
        world.explore(careless, "17")
    assert "ship#1 is left unknown, and a person is asked" in str(caught.value)
    assert all(len(line) <= 80 for line in str(caught.value).splitlines())
    assert world.explore(careless, "17", allow_unknown=True).boundaries > 5


@agent(run_id="named-{order}", tools=[ship])
async def by_step(run: Run, order: str) -> str:
    return await ship.options(step="send")(order)


@tool(idempotency=Key.forever())
async def book(order: str) -> str:
    return f"booked {order} {current_operation().key[:2]}"


@book.compensate(restores=True)
async def unbook(operation: Operation[str], order: str) -> None:
    MAILBOX.sent.append(f"unbooked {order}")


@agent(run_id="undoing-{order}", tools=[book])
async def undoing(run: Run, order: str) -> str:
    try:
        async with run.transaction("trip") as trip:
            booked = await book(order)
            trip.abort(f"no hotel for {booked}")
    except TransactionAborted as aborted:
        return aborted.reason


def test_what_is_named_is_the_tool_that_was_called_not_the_step(world: World):
    with pytest.raises(AssertionError, match="send is left unknown") as caught:
        world.explore(by_step, "17")
    assert "`ship` takes no key and declares no verify" in " ".join(str(caught.value).split())
    with pytest.raises(AssertionError, match="book#1/undo is left unknown") as caught:
        world.explore(undoing, "17")
    assert "`unbook` takes no key and declares no verify" in " ".join(str(caught.value).split())


def test_an_effect_outside_of_tools_is_found(world: World):
    class Ledger:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def effects(self) -> list[str]:
            return self.lines

        def reset(self) -> None:
            self.lines = []

    ledger = Ledger()

    @agent(run_id="naive-{order}", tools=[refund])
    async def naive(run: Run, order: str) -> str:
        ledger.lines.append(f"booked {order}")
        return await refund(order)

    world.use(ledger)
    with pytest.raises(AssertionError, match="happens 2 times") as caught:
        world.explore(naive, "17")
    assert "made outside tools" in str(caught.value)


@pytest.fixture
def fickle_story(world: World) -> str:
    """What is told of an agent whose arguments are others each time its code is run."""
    asked: list[str] = []

    @agent(run_id="fickle-{order}", tools=[refund])
    async def fickle(run: Run, order: str) -> str:
        asked.append(order)
        return await refund(f"{order}, wording {len(asked)}")

    with pytest.raises(AssertionError) as caught:
        world.explore(fickle, "17")
    lines = str(caught.value).splitlines()
    assert 70 < max(map(len, lines)) <= 80
    return " ".join(str(caught.value).split())


def test_divergence_is_told_as_divergence(fickle_story: str):
    assert "the run stops as diverged" in fickle_story
    assert "is another call than the recorded one" in fickle_story
    assert "never happens" not in fickle_story


def test_changed_arguments_are_told_as_such_and_not_as_a_duplicate(fickle_story: str):
    assert "wording 2') happens instead of refund(order='17, wording 1')" in fickle_story
    assert "happens 1 times" not in fickle_story
