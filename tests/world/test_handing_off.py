"""A crash at every boundary of a run that another agent goes on in: nothing is done twice, whichever agent's code does it."""

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.testing.world import World


@tool(idempotency=Key.forever())
async def book(city: str) -> str:
    return f"booked {city} under {current_operation().key[:0]}"


@agent(tools=[book])
async def specialist(run: Run, city: str) -> str:
    return (await run.gather(book(city), book(f"{city} hotel")))[0]


@agent(run_id="trip-{name}", tools=[book])
async def front(run: Run, name: str) -> str:
    await book("Rome")
    found = await run.hand_off(specialist, why="far", state="Lima")
    return f"{found}, {await book('home')}"


def test_a_crash_at_every_boundary_of_a_hand_off(world: World):
    world.stub(book, returns="booked")
    assert world.run(front, "ann").effects == ["book"] * 4
    world.explore(front, "ann")
