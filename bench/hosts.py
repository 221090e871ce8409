"""Agents of frameworks with Holdfast, beside the same with what the framework offers: `make bench-hosts`.

Processor time alone, in pairs of processes that follow each other, so that a busy machine disturbs both. Then the
import of each adapter, memory, and the ready loop (`bench/loop.py`). Exit status 1 where a bound is missed.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PAIRS: Final = 3
IMPORTS: Final = 7
ADAPTERS: Final = {
    "pydantic_ai": "pydantic_ai, pydantic_ai.durable_exec, pydantic_ai.models.function",
    "langchain": "langchain.agents, langchain.agents.middleware",
    "openai_agents": "agents",
}
"""Each adapter, and what a user of its host imports without it."""
IMPORT: Final = """
import {host}, holdfast, time
from holdfast import Holdfast, Run, agent, tool
before = time.process_time()
import holdfast.hosts.{adapter}
print((time.process_time() - before) * 1000)
"""


def main() -> int:
    missed = [
        not shown("Pydantic AI, what a call adds, to what it adds with DBOS on SQLite", added_to_dbos(), 0.2),
        not shown(
            "LangGraph, a call with the middleware, to one with the synchronous checkpointer", to_checkpointer(), 1.3
        ),
        *(not shown(f"import of {adapter} beyond its host, ms", import_ms(adapter), 60.0) for adapter in ADAPTERS),
        *(
            not shown(f"memory after 1,000 calls, to 100: {kind}", growth(kind), 1.1)
            for kind in ("pydantic-holdfast", "langgraph-holdfast", "openai-holdfast")
        ),
    ]
    return int(any(missed)) | subprocess.call([sys.executable, HERE / "loop.py"])


def shown(what: str, figure: float, most: float) -> bool:
    print(f"{what}: {figure:.2f}, at most {most:g}{'' if figure <= most else ': missed'}", flush=True)
    return figure <= most


def added_to_dbos() -> float:
    def ratio() -> float:
        plain, ours, theirs = (subject(f"pydantic-{kind}")["call_ms"] for kind in ("plain", "holdfast", "dbos"))
        return (ours - plain) / (theirs - plain)

    return median_of(ratio)


def to_checkpointer() -> float:
    return median_of(lambda: subject("langgraph-holdfast")["call_ms"] / subject("langgraph-checkpointer")["call_ms"])


def median_of(ratio: Callable[[], float]) -> float:
    return statistics.median(ratio() for _ in range(PAIRS))


def import_ms(adapter: str) -> float:
    """The processor time of importing the adapter where its host and Holdfast are imported."""
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
