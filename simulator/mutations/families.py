"""Planted bugs in child runs."""

from __future__ import annotations

from typing import Any, Final

from simulator.generator.families import FAMILIES
from simulator.mutations.mutation import Mutant, always


def left_go_on(_original: Any) -> Any:
    """A run that completes leaves the children that it has not joined as they are."""

    async def posts_to_left_children(_active: Any) -> tuple[Any, ...]:
        return ()

    return posts_to_left_children


def none_outlives(_original: Any) -> Any:
    """A run that completes cancels every child that it has not joined."""
    from beforehand.engine.relatives import cancel_posts  # noqa: PLC0415 - as it is while the bug is planted

    async def posts_to_left_children(active: Any) -> tuple[Any, ...]:
        children = active.history.children
        return () if children is None else cancel_posts(active.history, children.to_cancel(), "", "has ended")

    return posts_to_left_children


def own_time(original: Any) -> Any:
    """A child has the time of its agent, whatever is left to the run that started it."""

    def deadline_of(self: Any, history: Any) -> int | None:
        started = history.lifecycle.started
        if started is None or started.parent is None:
            until: int | None = original(self, history)
            return until
        agent = self.agents.get(started.agent)
        return None if agent is None or agent.deadline_ms is None else started.at + agent.deadline_ms

    return deadline_of


def uncounted_in_flight(original: Any) -> Any:
    """The tree of a run is not charged with the model calls that are in flight when its first child starts."""

    def join(self: Any, place: Any, _calls: Any) -> Any:
        return original(self, place, {})

    return join


FAMILY_BUGS: Final = (
    Mutant(
        "a budget of its own alone",
        "a child run uses up no budget of the runs above it",
        "beforehand.engine.tree_budgets:tree_budgets_of",
        always({}),
        from_seed=FAMILIES,
    ),
    Mutant(
        "in flight at the first child",
        "a tree of runs does not count the model calls that were in flight when it began",
        "beforehand.model.shared_use:SharedUse.join",
        uncounted_in_flight,
        from_seed=FAMILIES,
    ),
    Mutant(
        "time of its own",
        "a child goes on after the deadline of the run that started it",
        "beforehand.engine.process:Process.deadline_of",
        own_time,
        from_seed=FAMILIES,
    ),
    Mutant(
        "children go on",
        "the children of a run that is called off are not told",
        "beforehand.engine.relatives:cancel_posts",
        always(()),
        from_seed=FAMILIES,
    ),
    Mutant(
        "left children go on",
        "a child that its parent has not joined goes on after it",
        "beforehand.engine.run_driver:_posts_to_left_children",
        left_go_on,
        from_seed=FAMILIES,
    ),
    Mutant(
        "no child outlives its parent",
        "a child that may go on after its parent is cancelled with it",
        "beforehand.engine.run_driver:_posts_to_left_children",
        none_outlives,
        from_seed=FAMILIES,
    ),
    Mutant(
        "no word to the parent",
        "a run that waits for its child does not learn that it has ended",
        "beforehand.engine.relatives:end_posts",
        always(()),
        from_seed=FAMILIES,
    ),
)
