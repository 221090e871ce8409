"""Agents of frameworks with Beforehand, beside the same with what the framework offers: `make bench-hosts`.

Processor time alone, in processes that follow each other in turn, so that a busy machine disturbs all. Then the
import of each adapter, memory, and the ready loop (`bench/loop.py`). Exit status 1 where a bound is missed.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
ROUNDS: Final = 3
MORE_CALLS: Final = 10
"""What the longer turns of `subjects/hosted.py` have more than the shorter ones."""
IMPORTS: Final = 7
ADAPTERS: Final = {
    "pydantic_ai": "import pydantic_ai.models.function; from pydantic_ai.durable_exec import *",
    "langchain": "import langchain.agents, langchain.agents.middleware",
    "openai_agents": "import agents",
}
"""Each adapter, and what is imported of its host without it: Pydantic AI loads `durable_exec` where a name is taken."""
IMPORT: Final = """
{host}
import beforehand, gc, time
from beforehand import Beforehand, Run, agent, tool
gc.disable()  # one collection of all that the host made costs more than the adapter, wherever it falls
before = time.process_time()
import beforehand.hosts.{adapter}
print((time.process_time() - before) * 1000)
"""


def main() -> int:
    missed = [
        not shown("Pydantic AI, what a call adds, to what it adds with DBOS on SQLite", added_to_dbos(), 0.2),
        not to_checkpointer(),
        *(not shown(f"import of {adapter} beyond its host, ms", import_ms(adapter), 60.0) for adapter in ADAPTERS),
        *(
            not shown(f"memory after 1,000 calls, to 100: {kind}", growth(kind), 1.1)
            for kind in ("pydantic-beforehand", "langgraph-beforehand", "openai-beforehand")
        ),
    ]
    return int(any(missed)) | subprocess.call([sys.executable, HERE / "loop.py"])


def shown(what: str, figure: float, most: float) -> bool:
    print(f"{what}: {figure:.2f}, at most {most:g}{'' if figure <= most else ': missed'}", flush=True)
    return figure <= most


def added_to_dbos() -> float:
    plain, ours, theirs = lowest_ms("pydantic-plain", "pydantic-beforehand", "pydantic-dbos")
    return (ours.call - plain.call) / (theirs.call - plain.call)


def to_checkpointer() -> bool:
    ours, theirs = lowest_ms("langgraph-beforehand", "langgraph-checkpointer")
    call = shown(
        "LangGraph, a call with the middleware, to one with the synchronous checkpointer", ours.call / theirs.call, 1.3
    )
    turn = shown(
        "LangGraph, a whole turn with one call, to the same with its checkpointer", ours.turn / theirs.turn, 1.5
    )
    return call and turn


class Cost(NamedTuple):
    """Milliseconds of processor time: of a whole turn with one tool call, and of what another call adds."""

    turn: float
    call: float


def lowest_ms(*kinds: str) -> list[Cost]:
    """The cost for each of these, from the lowest times of all rounds: other work only adds to them.

    The difference of two times within one round can be too low as well, where the shorter turn was disturbed.
    """
    found = {kind: list[dict[str, float]]() for kind in kinds}
    for _ in range(ROUNDS):
        for kind in kinds:
            found[kind].append(subject(kind))
    lowest = [
        (min(one["few_ms"] for one in all_of), min(one["many_ms"] for one in all_of)) for all_of in found.values()
    ]
    return [Cost(few, (many - few) / MORE_CALLS) for few, many in lowest]


def import_ms(adapter: str) -> float:
    """The processor time of importing the adapter where its host and Beforehand are imported."""
    program = IMPORT.format(host=ADAPTERS[adapter], adapter=adapter)
    return statistics.median(float(printed_by("-c", program)) for _ in range(IMPORTS))


def growth(kind: str) -> float:
    found = subject(kind, "--memory")
    return found["many_mib"] / found["few_mib"]


def subject(*arguments: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(printed_by(str(HERE / "subjects" / "hosted.py"), *arguments))
    return found


def printed_by(*arguments: str) -> str:
    """The last line that this interpreter prints."""
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
