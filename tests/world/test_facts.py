"""Facts under crashes: what was inferred, relied on and corrected is the same whichever boundary a run died at."""

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.observation import Guess, Stakes
from beforehand.testing.world import World


@tool(idempotency=Key.forever())
async def book(airport: str) -> str:
    return f"{airport} {current_operation().key[:2]}"


@agent(run_id="trip-{name}", tools=[book])
async def trip(run: Run, name: str) -> list[object]:
    await run.facts.learn("city", "NYC", source="the request")
    history = Guess("JFK", 0.9, "history", inferred_from=("city",))
    airport = await run.facts.ask_or_infer("airport", "Which airport?", guess=history, stakes=Stakes(1, 3))
    run.facts.rely("book", "airport")
    await book(airport.value)
    run.facts.executed("book")
    corrected = await run.facts.learn("city", "Boston", source="the traveller")
    return [list(corrected.invalidated), list(corrected.executed), run.facts.get("airport")]


def test_a_crash_anywhere_changes_nothing_that_is_known(world: World) -> None:
    ran = world.run(trip, "1")
    assert (ran.effects, ran.result) == (["book"], [["airport"], ["book"], None])
    world.explore(trip, "1")
