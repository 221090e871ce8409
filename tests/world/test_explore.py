"""`explore`: pairs of crashes, and what counts as the same effect."""

import gc

import pytest

from beforehand import Key, Once, Run, agent, current_operation, tool
from beforehand.loop import ModelRequest, user
from beforehand.testing.services import ScriptedModel
from beforehand.testing.world import World
from beforehand.testing.world.story import WIDTH, wrapped


class Forgetful:
    """A system that dedupes on a key, once: it takes the third request for a new one."""

    def __init__(self) -> None:
        self.reset()

    def send(self, key: str) -> None:
        repeats = self.repeats[key] = self.repeats.get(key, -1) + 1
        if repeats != 1:
            self.lines.append("sent")

    def effects(self) -> list[str]:
        return self.lines

    def reset(self) -> None:
        self.repeats: dict[str, int] = {}
        self.lines: list[str] = []


forgetful = Forgetful()
model = ScriptedModel(["Dear Ann", "Hello Ann"])


@tool(idempotency=Key.forever())
async def send(to: str) -> None:
    forgetful.send(current_operation().key)


@tool(idempotency=Key.forever(), claim="to")
async def claimed(to: str, text: str) -> str:
    return f"{text} {current_operation().key[:0]}"


@tool(idempotency=Key.forever(), once=Once("to"))
async def unrepeated(to: str, text: str) -> str:
    return f"{text} {current_operation().key[:0]}"


@tool(idempotency=Key.forever())
async def written(to: str, text: str) -> str:
    return f"{text} {current_operation().key[:0]}"


@tool
async def plain(to: str) -> None:
    """A plain write."""


async def word(prompt: str) -> str:
    return (await model.answer(ModelRequest(messages=(user(prompt),)))).text


@agent(run_id="send-{to}", tools=[send])
async def sender(run: Run, to: str) -> None:
    await send(to)


@agent(run_id="plain-{to}", tools=[plain])
async def careless(run: Run, to: str) -> None:
    await plain(to)


def writer(how):
    @agent(run_id="write-{to}", tools=[how], name=f"writer-{how.name}")
    async def writes(run: Run, to: str) -> str:
        return await how(to, await run.decide(word, "a greeting"))

    return writes


def story(world: World, explored, given: str = "ann", **how) -> str:
    with pytest.raises(AssertionError) as told:
        world.explore(explored, given, **how)
    assert all(len(line) <= WIDTH for line in str(told.value).splitlines())
    return " ".join(str(told.value).split())


class Remembering(Forgetful):
    """A fake that forgets what happened, and not under which keys."""

    known: set[str] = set()

    def send(self, key: str) -> None:
        self.lines += [] if key in self.known else ["sent"]
        self.known.add(key)


def test_a_fake_that_keeps_its_keys_is_named_and_not_the_agent(world: World):
    fake = Remembering()

    @tool(idempotency=Key.forever())
    async def post(to: str) -> None:
        fake.send(current_operation().key)

    @agent(run_id="post-{to}", tools=[post])
    async def poster(run: Run, to: str) -> None:
        await post(to)

    world.use(fake)
    told = story(world, poster)
    assert "nothing was explored: a second run without any crash does not do" in told
    assert "reset() has to forget keys, too" in told
    assert "journaled" not in told


# --- pairs --------------------------------------------------------------------------------------------------------


def test_what_two_crashes_do_and_one_does_not(world: World):
    world.use(forgetful)
    assert "a crash at each" in str(world.explore(sender, "ann"))
    told = story(world, sender, crashes=2)
    assert "pairs of crashes change what the world sees; no single crash does" in told
    assert "and again at boundary" in told
    assert "Forgetful: sent happens 2 times" in told
    assert "All" in told


def test_the_limit_of_pairs_is_said(world: World):
    world.most_pairs = 7
    explored = world.explore(sender, "ann", crashes=2)
    assert explored.pairs == 7
    assert explored.pairs_in_all > 50
    assert f"7 of {explored.pairs_in_all} pairs of crashes were tried, evenly spread" in str(explored)


def test_no_pair_is_tried_while_single_crashes_matter(world: World):
    assert "No pair of crashes was tried: mend these first" in story(world, careless, crashes=2)


@pytest.mark.deep
def test_all_pairs_of_a_sound_agent(world: World):
    explored = world.explore(sender, "ann", crashes=2)
    assert explored.pairs == explored.pairs_in_all > explored.boundaries
    assert f"All {explored.pairs} pairs" in str(explored)


@pytest.mark.deep
def test_pairs_of_real_kills(world: World):
    killing = World(sigkill=True)
    killing.use(forgetful)
    killing.most_pairs = 24
    told = story(killing, sender, crashes=2)
    assert "Forgetful: sent happens 2 times" in told


# --- what is the same ----------------------------------------------------------------------------------------------


def test_other_words_are_told_as_such(world: World):
    world.use(model)
    told = story(world, writer(written))
    assert "text='Hello Ann') happens instead of written(to='ann', text='Dear Ann')" in told
    assert "explore(..., same=...)" in told


@pytest.mark.parametrize(("how", "clause"), [(claimed, "claim"), (unrepeated, "once")])
def test_the_contract_says_what_is_the_same(world: World, how, clause: str):
    world.use(model)
    explored = world.explore(writer(how), "ann")
    (reworded,) = explored.reworded
    assert reworded.endswith(f"the same, says the {clause} of {how.name}")
    assert "In other words" in str(explored)


def test_the_caller_says_what_is_the_same(world: World):
    world.use(model)
    explored = world.explore(writer(written), "ann", same=lambda effect: (effect.tool, effect.arguments.get("to")))
    (reworded,) = explored.reworded
    assert reworded.endswith("the same, says the caller")
    assert "happens instead of" in story(world, writer(claimed), same=str), "every word counts, the claim does not"


def test_a_duplicate_stays_one_whatever_its_words(world: World):
    world.use(forgetful)
    assert "happens 2 times" in story(world, sender, crashes=2, same=lambda effect: effect.tool)


def test_a_word_that_is_too_long_is_broken():
    lines = wrapped("x" * 200, "    ", title=16).splitlines()
    assert [len(line) for line in lines] == [WIDTH - 16, WIDTH, WIDTH, 200 - (WIDTH - 20) - 2 * (WIDTH - 4) + 4]


def test_a_sign_that_is_as_wide_as_two_is_counted_as_two():
    lines = wrapped("請求書" * 30, "  ").splitlines()
    assert [len(line) for line in lines] == [2 + 35, 2 + 35, 2 + 20]


def test_what_crashed_processes_left_has_ended_when_explore_returns(world: World):
    """A host's generators log about their end: in a test that is over, its user would see that on the terminal."""
    began, ended = list[int](), list[int]()

    class Left:
        def __init__(self) -> None:
            self.itself = self  # only the collector ends it
            began.append(1)

        def __del__(self) -> None:
            ended.append(1)

    @agent(run_id="leaving-{name}", tools=[plain])
    async def leaving(run: Run, name: str) -> None:
        left = Left()
        await plain(name)
        assert left.itself is left

    gc.disable()
    try:
        world.explore(leaving, "ann", allow_unknown=True)
    finally:
        gc.enable()
    assert len(began) > 1
    assert len(ended) == len(began)
