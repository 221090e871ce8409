"""Every fault of the `world`, on tools that are not touched: what the world sees, and what the run makes of it."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from beforehand import DidNotHappen, Happened, Key, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.errors import UsageError
from beforehand.testing.world import World

MINUTE = timedelta(minutes=1)


class Post:
    """A fake that counts letters, and finds them by their marker."""

    def __init__(self) -> None:
        self.reset()

    def send(self, to: list[str], marker: str) -> None:
        self.letters += [(one, marker) for one in to]

    def effects(self) -> list[str]:
        return [f"letter to {to}" for to, _ in self.letters]

    def reset(self) -> None:
        self.letters: list[tuple[str, str]] = []


post = Post()


@tool(idempotency=Key.forever())
async def invite(to: list[str], seats: int = 4) -> str:
    return f"invited under {current_operation().key[:4]}"


@tool
async def write(to: list[str]) -> str:
    post.send(to, current_operation().marker)
    return "written"


@write.verify(settle_window=MINUTE)
async def written(operation: Operation[str], to: list[str]) -> Verdict[str]:
    seen = [marker for _, marker in post.letters].count(operation.marker)
    return Happened("written") if seen == len(to) else DidNotHappen()


@tool(effect="read")
async def guests(party: str) -> list[str]:
    return ["ann", "bob", "cid", "dan"]


@tool(effect="read")
async def place(party: str) -> str:
    return "the garden"


@tool(idempotency=Key.forever())
async def deaf(to: str) -> str:
    return "its key is never read"


hurried = invite.options(timeout=timedelta(seconds=5))


@agent(run_id="{party}", tools=[invite, guests, place])
async def host(run: Run, party: str) -> list[str]:
    to = await guests(party)
    await invite([*to, await place(party)])
    return to


@agent(run_id="{party}", tools=[write])
async def author(run: Run, party: str) -> str:
    return await write(["ann", "bob"])


@agent(run_id="{party}", tools=[invite])
async def hasty(run: Run, party: str) -> str:
    return await hurried(["ann"])


@agent(run_id="{party}", tools=[deaf])
async def deafened(run: Run, party: str) -> str:
    return await deaf(party)


ORDERS: dict[str, Callable[[World], None]] = {
    "lose_request": lambda world: world.lose_request(invite),
    "lose_reply": lambda world: world.lose_reply(invite, times=2),
    "fail_after": lambda world: world.fail_after(invite),
    "answer_late": lambda world: world.answer_late(invite, 10 * MINUTE),
    "land_late": lambda world: world.land_late(invite, MINUTE),
    "deliver_twice": lambda world: world.deliver_twice(invite),
    "half_lands": lambda world: world.half_lands(invite),
    "cut_reply": lambda world: world.cut_reply(invite),
    "lose_reply of a read": lambda world: world.lose_reply(guests),
    "fail_after of a read": lambda world: world.fail_after(guests),
    "answer_late of a read": lambda world: world.answer_late(guests, MINUTE),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_keyed_tool_survives_every_fault(world: World, order: Callable[[World], None]):
    order(world)
    ran = world.run(host, "party")
    assert (ran.status, ran.effects, ran.result) == ("completed", ["invite"], ["ann", "bob", "cid", "dan"])
    assert ran.calls == ["invite(to=['ann', 'bob', 'cid', 'dan', 'the garden'], seats=4)"]


@pytest.mark.parametrize("order", [ORDERS["land_late"], ORDERS["half_lands"]], ids=["land_late", "half_lands"])
@pytest.mark.parametrize("sigkill", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_and_every_crash_besides(order: Callable[[World], None], sigkill: bool):
    world = World(sigkill=sigkill)
    order(world)
    assert not world.explore(host, "party").findings


def test_half_of_a_list_is_done(world: World):
    world.use(post)
    world.half_lands(write)
    ran = world.run(author, "party")
    assert ran.calls[:2] == ["write(to=['ann'])", "write(to=['ann', 'bob'])"]
    assert post.effects() == ["letter to ann", "letter to ann", "letter to bob"], "its verify does not know half"


def test_half_of_what_is_named_is_done(world: World):
    @agent(run_id="{party}", tools=[invite])
    async def gives_up(run: Run, party: str) -> str:
        return (await invite.options(on_unknown="raise").outcome(["ann"], 7)).status

    world.stub(invite, returns="x")
    world.half_lands(invite, "seats", times=99)
    assert world.run(gives_up, "party").calls[0] == "invite(to=['ann'], seats=3)"


def test_what_has_no_halves_is_done_and_its_reply_breaks_off(world: World):
    @agent(run_id="{party}", tools=[invite])
    async def told(run: Run, party: str) -> str:
        return (await invite(["ann"]))[:7]

    world.half_lands(invite)
    ran = world.run(told, "party")
    assert (ran.effects, ran.result) == (["invite"], "invited")


def test_half_of_a_reply_comes_back(world: World):
    world.cut_reply(guests)
    assert world.run(host, "party").result == ["ann", "bob"]


def test_a_reply_without_halves_breaks_off_and_is_asked_for_again(world: World):
    world.cut_reply(place)
    ran = world.run(host, "party")
    assert ran.status == "completed"
    assert "'the garden'" in ran.calls[0]


def test_what_lands_late_lands_although_its_sender_is_dead(world: World):
    world.use(post)
    world.land_late(write, timedelta(seconds=50))
    assert not world.explore(author, "party").findings
    world.land_late(write, 2 * MINUTE)
    with pytest.raises(AssertionError) as told:
        world.explore(author, "party")
    story = " ".join(str(told.value).split())
    assert "happens 2 times" in story, "it lands after its settle window, and was sent again meanwhile"
    assert "does it find what happened, within its settle_window?" in story


def test_what_is_seen_late_is_not_sent_again_within_the_settle_window(world: World):
    world.use(post)
    world.lose_reply(write)
    world.lag(write, timedelta(seconds=50))
    assert world.run(author, "party").effects == ["write"]
    world.lag(write, 2 * MINUTE)
    assert world.run(author, "party").effects == ["write", "write"]


def test_what_options_made_is_counted_too(world: World):
    world.lose_reply(invite)
    assert world.run(hasty, "party").effects == ["invite"]


def test_what_undoes_an_effect_meets_faults_too(world: World):
    @tool(idempotency=Key.forever())
    async def reserve(party: str) -> str:
        return current_operation().key

    @reserve.compensate(restores=True)
    @tool(idempotency=Key.forever())
    async def release(operation: Operation[str]) -> None:
        assert current_operation().key

    @agent(run_id="{party}", tools=[reserve])
    async def undecided(run: Run, party: str) -> None:
        async with run.transaction("party") as reservation:
            await reserve(party)
            reservation.abort("rain")

    world.lose_reply(reserve.compensate)
    ran = world.run(undecided, "party")
    assert (ran.effects, ran.unmet) == (["reserve", "release"], [])
    assert not world.explore(undecided, "party").findings


def test_a_key_that_is_never_read_dedupes_nothing(world: World):
    with pytest.raises(AssertionError) as told:
        world.explore(deafened, "party")
    assert "`deaf` declares a key and never reads it" in " ".join(str(told.value).split())


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (lambda world: world.deliver_twice(guests), "guests is a read"),
        (lambda world: world.lose_reply(post.send), "is not a tool"),
        (lambda world: world.half_lands(invite, "chairs"), "invite has no parameter 'chairs'"),
        (lambda world: world.lag(invite, MINUTE), "invite declares no verify"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(world: World, order: Callable[[World], None], said: str):
    with pytest.raises(UsageError, match=said):
        order(world)
