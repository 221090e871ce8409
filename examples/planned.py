"""A trip as a plan: a value that is checked, shown, and executed with its fallbacks, without asking a model again.

    beforehand plan schema examples/planned.py:planned_trip > schema.json
    beforehand run examples/planned.py:planned_trip '{"id": "17", "origin": "SFO", "city": "Lisbon", "nights": 3}'
    beforehand show planned-17

It uses the airline and the hotel of `trip.py`. A city that begins with "Full" has no room left, so that the fallback
of its step is taken; without a night the plan is called off before the flight is booked. `beforehand plan show` lists
which conditions are evaluated before a step, and which after it.
"""

from beforehand import Run, TransactionAborted, agent
from beforehand.plans import Call, Plan, PlanStep
from examples.trip import Trip, book_flight, book_hotel, send_itinerary


async def think(trip: Trip) -> Plan:
    """Stands for a model that is asked once, with the schema of plans as its structured output."""
    near = trip.city.removeprefix("Full ")
    return Plan(
        goal=f"{trip.nights} nights in {trip.city}",
        name="trip",
        steps=(
            PlanStep(
                id="flight",
                primary=Call("book_flight", {"origin": trip.origin, "city": trip.city}),
                abort_if=("input.nights < 1",),
            ),
            PlanStep(
                id="hotel",
                primary=Call("book_hotel", {"city": trip.city, "nights": trip.nights}),
                fallbacks=(Call("book_hotel", {"city": f"{near} nearby", "nights": trip.nights}),),
            ),
            PlanStep(
                id="mail",
                primary=Call("send_itinerary", {"to": "traveller@example.com", "text": {"$result": "flight.code"}}),
                after=("hotel",),
                hold=True,
            ),
        ),
    )


@agent(run_id="planned-{trip.id}", tools=[book_flight, book_hotel, send_itinerary])
async def planned_trip(run: Run, trip: Trip) -> str:
    """Ask for a plan once, then let code execute it."""
    plan = await run.decide(think, trip)
    try:
        done = await run.execute(plan, {"nights": trip.nights})
    except TransactionAborted as aborted:
        return f"Not booked: {aborted.reason}"
    return f"Booked {done.results['flight']['code']}, {done.results['hotel']['code']}"
