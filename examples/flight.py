"""A flight: the city is missing, the airport guessed wrong, the airline slow, and the seat gone when it is wanted.

    beforehand run examples/flight.py:travel '{"id": "7", "text": "Book me a flight to NYC tomorrow"}'
    beforehand answer 'flight-7/round-1/ask#1' LaGuardia --by traveller
    beforehand tell flight-7 "I wanted LaGuardia" --fact airport=LGA --by traveller     (the same, unasked)

The airline is simulated: `AIRLINE` holds its seats, times out once, and sells the 8am seat to another traveller. The
model is scripted, unless OPENAI_API_KEY is set: then that of OPENAI_MODEL makes the plans.
"""

import json
import os
from dataclasses import dataclass

import msgspec

from beforehand import Key, Rejected, Run, agent, current_operation, tool
from beforehand.loop import ModelPlanner, ModelRequest, OpenAIChat
from beforehand.observation import Guess, Need, ProductionLoop, Stakes
from beforehand.plans import Call, Plan, PlanResult, PlanStep
from beforehand.testing.services import ScriptedModel

GONE = "409: seat no longer available"
AIRPORTS = {"LaGuardia": "LGA", "Kennedy": "JFK", "Newark": "EWR"}


class Airline:
    """Seats by airport and hour, with their fares; what was sold, by key."""

    def __init__(self) -> None:
        self.fares = {"JFK": {"7am": 290, "10am": 310}, "LGA": {"8am": 300, "9am": 312}, "EWR": {"6am": 250}}
        self.sold: dict[str, str] = {}
        self.searches = 0


AIRLINE = Airline()


@dataclass
class Request:
    id: str
    text: str


@tool(effect="read")
async def search(origin: str, airport: str) -> dict[str, int]:
    """The fares from `origin` to an airport, by hour. The first search gets no answer in time."""
    AIRLINE.searches += 1
    if AIRLINE.searches == 1:
        raise TimeoutError(f"no answer for {origin}-{airport}")
    return dict(AIRLINE.fares[airport])


@tool(idempotency=Key.forever(stores="all"))
async def book(airport: str, hour: str) -> str:
    """Buy a seat. While the traveller decided, another passenger bought the one at 8am."""
    key = current_operation().key
    AIRLINE.fares["LGA"].pop("8am", None)
    if hour not in AIRLINE.fares[airport]:
        raise Rejected(GONE, code="sold_out")
    AIRLINE.sold[key] = f"{airport} {hour}"
    return f"{airport} {hour} for ${AIRLINE.fares[airport][hour]}"


async def observe(run: Run, request: Request, trouble: list[str]) -> list[Need]:
    """NYC is said; from where, and to which of its airports, is not. The calendar and the history make guesses."""
    if trouble and GONE in trouble[-1]:
        return [await sold_out(run)]
    if run.facts.get("city") is None:
        await run.facts.learn("city", "NYC", source=request.text)
    calendar = Guess("SFO", 0.95, "meetings in San Francisco in the calendar")
    history = Guess("JFK", 0.7, "two earlier trips to JFK", inferred_from=("city",))
    return [
        Need("origin", "From which city?", calendar, Stakes(asking=1, error=10)),
        Need("airport", "Which airport?", history, Stakes(asking=1, error=3)),
    ]


async def sold_out(run: Run) -> Need:
    """The fares have changed, so the hour that was chosen from them is no longer known. Offer the next one."""
    facts = run.facts.values()
    wanted, before = facts["hour"], facts["fares"]
    fares = await search(facts["origin"], facts["airport"])
    await run.facts.learn("fares", fares, source="search", inferred_from=("airport", "origin"))
    hour = min(fares, key=lambda one: fares[one])
    more = fares[hour] - before[wanted]
    offer = f"The {wanted} flight just sold out. {hour} is available, ${more} more. Book it?"
    return Need("hour", offer, choices=(hour,))


RULES = """Make a plan of one step, with the same name as its tool, and together=false.
If the hour is known, book that seat. Else search for flights."""


def scripted(request: ModelRequest) -> str:
    """What the scripted model says: book what was chosen, else search."""
    goal, known, *_ = request.messages[0].text.removeprefix("Goal: ").split("\n\nWhat is known: ")
    facts = json.loads(known.partition("\n\n")[0])
    if "hour" in facts:
        call = Call("book", {"airport": facts["airport"], "hour": facts["hour"]})
    else:
        call = Call("search", {"origin": facts["origin"], "airport": facts["airport"]})
    plan = Plan(goal=goal, name=call.tool, steps=(PlanStep(id=call.tool, primary=call),), together=False)
    return msgspec.json.encode(plan).decode()


MODEL = (
    OpenAIChat(os.environ.get("OPENAI_MODEL", "gpt-5")) if os.environ.get("OPENAI_API_KEY") else ScriptedModel(scripted)
)


async def verify(run: Run, result: PlanResult) -> bool:
    """A booked seat ends it. Flights that were found are shown, and the traveller chooses, or corrects us."""
    if result.plan == "book":
        return True
    fares: dict[str, int] = result.results["search"]
    await run.facts.learn("fares", fares, source="search", inferred_from=("airport", "origin"))
    shown = ", ".join(f"{hour} ${fare}" for hour, fare in sorted(fares.items(), key=lambda one: one[1])[:3])
    said = await run.ask(f"{run.facts.values()['airport']}: {shown}. Which one?")
    if said in AIRPORTS:
        await run.facts.learn("airport", AIRPORTS[said], source="the traveller")
    else:
        await run.facts.learn("hour", said, source="the traveller", inferred_from=("fares",))
    return False


@agent(run_id="flight-{request.id}", tools=[search, book])
async def travel(run: Run, request: Request) -> str:
    """Book what was meant."""
    result = await ProductionLoop(observe, ModelPlanner(MODEL, [search, book], RULES), verify)(run, request)
    return str(result.results["book"])
