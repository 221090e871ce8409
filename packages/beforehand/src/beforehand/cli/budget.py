"""`beforehand budget`: what a run may use and has used, raising its limits, and the budgets that runs share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click
import msgspec

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.shared_budgets import budget_cells, over, show_shared, tree_lines
from beforehand.control.budgets import BudgetLine, budget_lines, written_amounts, written_budget
from beforehand.errors import UsageError
from beforehand.inspect.text import count, safe
from beforehand.model.run_budget import words_of
from beforehand.model.shell import to_type

if TYPE_CHECKING:
    from beforehand.cli.screen import Screen
    from beforehand.inspect.reader import JournalReader
    from beforehand.model.run_history import RunHistory
    from beforehand.policies import RunBudget


class BudgetReport(msgspec.Struct, frozen=True):
    """The budget of one run; without a budget it has no `limits`. Those of a run with children are of its whole tree.

    `own` is then what the run itself used; `above` is a run above it whose budget covers it too. `unknown` calls of its
    own did not state their usage, and the cost of `unpriced` ones is not known.
    """

    run: str
    status: str
    then: str
    limits: list[BudgetLine]
    unknown: int
    unpriced: int
    stopped: bool
    next_step: str
    own: list[BudgetLine] = []
    above: str = ""


@command(
    "budget",
    examples=(
        "beforehand budget",
        "beforehand budget --json | jq '.budgets[] | select(.waiting > 0)'",
        "beforehand budget ticket-17",
        "beforehand budget ticket-17 --raise tokens=20000",
        "beforehand budget ticket-17 --raise tokens=20000,effects=1 --why 'long case'",
        "beforehand budget ticket-17 --raise cost=1.50EUR",
        "beforehand budget ticket-17 --json | jq '.limits[] | select(.over > 0)'",
    ),
)
@click.argument("run", default="")
@click.option(
    "--raise", "amounts", metavar="LIMIT=AMOUNT,...", help="Raise these limits: tokens, model_calls, effects, cost."
)
@click.option("--why", default="", metavar="TEXT", help="The reason; it is recorded.")
@by_option
def budget(call: CommandCall, run: str, amounts: str | None, why: str, by: str) -> Coroutine[Any, Any, None] | None:
    """Show what RUN may use and what it has used, or raise its limits.

    Without RUN it shows the budgets that runs share, as queues.yaml declares them:
    what is used and reserved of each in its day or hour, and how many runs wait for it.

    A model call reserves what it may use before it is sent. What a lost call used is
    not known, so its reservation counts as used. A run that its budget has stopped
    continues once the limit is raised.
    """
    if not run:
        if amounts is not None:
            raise UsageError(
                "--raise needs a run; the limits of shared budgets are declared",
                known="nothing was changed",
                next_step="beforehand budget RUN --raise LIMIT=AMOUNT, or a higher limit under budgets in queues.yaml",
            )
        show_shared(call)
        return None
    if amounts is not None:
        return _raise(call, run, written_amounts(amounts), by=by, why=why)
    _show(call, *call.read(lambda reader: _read_tree(reader, run)))
    return None


async def _read_tree(reader: JournalReader, run: str) -> tuple[RunHistory, list[BudgetLine]]:
    history = await reader.history(run)
    return history, await tree_lines(reader.journal, history)


async def _raise(call: CommandCall, run: str, amounts: dict[str, int | str], *, by: str, why: str) -> None:
    from beforehand.control.command_ack import wait_until_applied  # noqa: PLC0415 - looking needs no engine

    async with call.serving() as service:
        await wait_until_applied(service.engine, await service.raise_budget(run, amounts, by=by, why=why))
        history = await service.history(run)
        tree = await tree_lines(service.engine.journal, history)
    _show(call, history, tree)


def _show(call: CommandCall, history: RunHistory, tree: list[BudgetLine]) -> None:
    found, screen = _report(history, tree), call.screen
    if screen.wrote_json(found):
        return
    if not found.limits:
        screen.line(safe(f"{found.run} has no budget of its own."))
        _show_next(found, screen)
        return
    at_limit = "the run stops, and a person is asked" if found.then == "ask" else "the agent gets BudgetExceeded"
    whole = " with its children" if found.own else ""
    screen.line((safe(found.run), "bold"), f"{whole} {found.status}; at a limit {at_limit}")
    screen.columns([*map(budget_cells, found.limits)])
    if found.own:
        parts = [
            f"{one.used:,} {one.currency}" if one.currency else count(int(one.used), words_of(one.limit)[:-1])
            for one in found.own
            if one.used
        ]
        screen.line(f"The run itself used {', '.join(parts) or 'nothing'} of that.")
    if found.unknown:
        screen.line(f"{count(found.unknown, 'call')} did not state the usage: the reservation counts as used.")
    for line in found.limits:
        if line.assumed:
            amount = f"{line.assumed:,} {line.currency}"
            screen.line(f"{amount} of the cost are reservations of {count(found.unpriced, 'call')} of unknown cost.")
        if line.over:
            screen.line(f"{over(line)} above the limit: calls were in flight when it was reached.")
    _show_next(found, screen)


def _show_next(found: BudgetReport, screen: Screen) -> None:
    """End with the next step; for a run without a reached limit of its own that is a limit which runs share."""
    if found.stopped and found.next_step.startswith("beforehand resume"):
        screen.line("A limit that runs share stopped it. Raise it in queues.yaml; to see it: beforehand budget")
    elif found.above:
        screen.line(f"The budget of run {safe(found.above)}, of which it is a child, covers it too.")
    screen.next(found.next_step)


def _report(history: RunHistory, tree: list[BudgetLine]) -> BudgetReport:
    run, lifecycle, state = history.run, history.lifecycle, history.budget
    stopped = lifecycle.status == "stopped" and lifecycle.stopped is not None and lifecycle.stopped.reason == "budget"
    started = lifecycle.started
    above = started.parent.budgets[-1] if started is not None and started.parent and started.parent.budgets else ""
    if state is None:
        step = to_type("budget", above) if above else to_type("resume", run) if stopped else "beforehand budget"
        return BudgetReport(run, lifecycle.status, "", [], 0, 0, stopped, step, above=above)
    own = budget_lines(state)
    reached = [one.limit for one in tree or own if one.most is not None and one.used >= one.most]
    step = to_type("show", run)
    if stopped:  # unless a limit of its own is reached, by one that runs share
        step = to_type("budget", above) if above else to_type("resume", run)
    if lifecycle.status == "running":
        step = f"a worker continues it; by hand: {to_type('resume', run)}"
    if reached and (stopped or (tree and lifecycle.status in {"running", "suspended"})):
        money = state.limits.money if reached[0] == "cost" else None
        more = f"{reached[0]}=AMOUNT" if money is None else f"cost=AMOUNT {money.currency}"
        step = to_type("budget", run, "--raise", more)
    return BudgetReport(
        run, lifecycle.status, state.limits.then, tree or own, state.unknown, state.unpriced, stopped, step,
        own if tree else [], above,
    )  # fmt: skip


def budget_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--budget LIMITS`: the limits of the run, in place of those of its agent."""
    return click.option(
        "--budget",
        metavar="LIMITS",
        callback=_read,
        help="Its limits: tokens=50000,model_calls=20,effects=3,cost=2.50EUR,then=stop.",
    )(function)


def _read(_context: click.Context, _parameter: click.Parameter, text: str | None) -> RunBudget | None:
    return None if text is None else written_budget(text)
