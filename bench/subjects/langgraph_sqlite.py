"""LangGraph with its SQLite checkpointer: a graph that loops over one node, or an entrypoint of @task steps.

The graph gathers its results in the state, as an agent gathers messages. Both ask for durability="sync"; note
that a task's result is all the same not waited for before the next task starts.
"""

import argparse
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from measure import Mark, payload, peak_mib, rates, report, settled_size

WARM_UP_STEPS = 5


class Gathered(TypedDict):
    index: int
    count: int
    results: Annotated[list[dict[str, object]], operator.add]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--api", choices=("graph", "task"), required=True)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    path = options.directory / "langgraph.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        work = graph(saver) if options.api == "graph" else tasks(saver)
        work("warm-up", WARM_UP_STEPS)
        start = Mark.now()
        work("timed", options.steps)
        end = Mark.now()
    size = settled_size(path)
    report(**rates(options.steps, start, end), bytes_per_step=size / options.steps, peak_mib=peak_mib())


def graph(saver: SqliteSaver) -> Callable[[str, int], object]:
    def node(state: Gathered) -> dict[str, object]:
        return {"index": state["index"] + 1, "results": [payload(state["index"])]}

    def onward(state: Gathered) -> str:
        return "step" if state["index"] < state["count"] else END

    builder = StateGraph(Gathered)
    builder.add_node("step", node)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", onward, ["step", END])
    compiled = builder.compile(checkpointer=saver)

    def work(thread: str, count: int) -> object:
        config = {"configurable": {"thread_id": thread}, "recursion_limit": count + 10}
        return compiled.invoke({"index": 0, "count": count, "results": []}, config, durability="sync")

    return work


def tasks(saver: SqliteSaver) -> Callable[[str, int], object]:
    @task
    def step(index: int) -> dict[str, object]:
        return payload(index)

    @entrypoint(checkpointer=saver)
    def flow(count: int) -> int:
        for index in range(count):
            step(index).result()
        return count

    def work(thread: str, count: int) -> object:
        return flow.invoke(count, {"configurable": {"thread_id": thread}}, durability="sync")

    return work


if __name__ == "__main__":
    main()
