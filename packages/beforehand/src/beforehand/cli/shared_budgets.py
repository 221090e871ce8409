"""The budgets that runs share, as `beforehand budget` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.control.budgets import BudgetLine, budget_line
from beforehand.inspect.text import count, moment, safe
from beforehand.journal.cells import BudgetUse, budget_uses
from beforehand.journal.host import wall_ms
from beforehand.model.money import counter_currency
from beforehand.model.run_budget import words_of
from beforehand.model.shared_use import PREFIX, TREE
from beforehand.queues.zones import Period

if TYPE_CHECKING:
    from beforehand.cli.common import CommandCall
    from beforehand.inspect.reader import JournalReader
    from beforehand.journal.port import JournalReads
    from beforehand.model.run_history import RunHistory
    from beforehand.queues.limits import SharedBudget

_THEN: Final = {"wait": "runs wait", "stop": "agents get BudgetExceeded"}


class ListedBudget(msgspec.Struct, frozen=True):
    """One shared budget in its present period, which ends at `end_ms`. `waiting` runs are suspended until then."""

    budget: str
    agent: str
    tenant: str
    per: str
    zone: str
    then: str
    period: str
    end_ms: int
    limits: list[BudgetLine]
    waiting: int


def show_shared(call: CommandCall) -> None:
    """Show all shared budgets."""
    listed, remarks = call.read(_found)
    if call.screen.wrote_json({"budgets": listed}):
        return
    if not listed:
        call.screen.line("No budget is shared by runs.")
        call.screen.next("declare them under budgets in queues.yaml, or name a run: beforehand budget RUN")
        return
    for one in listed:
        period = Period(one.period, one.end_ms).words
        text = f"{_scope(one)}; {period} in {one.zone}, until {moment(one.end_ms)}; at a limit {_THEN[one.then]}"
        call.screen.line((safe(one.budget), "bold"), f"  {safe(text)}")
        call.screen.columns([*map(budget_cells, one.limits)])
        for line in one.limits:
            if line.over:
                call.screen.line(f"{over(line)} above the limit: calls were in flight.")
        if one.waiting:
            call.screen.line((f"{count(one.waiting, 'run')} waiting", "yellow"))
    for remark in remarks:
        call.screen.note((remark, "yellow"))


async def _found(reader: JournalReader) -> tuple[list[ListedBudget], list[str]]:
    from beforehand.control.code_location import unknown_agents  # noqa: PLC0415 - the budget of a run needs it not
    from beforehand.engine.process import newest_limits  # noqa: PLC0415 - as above
    from beforehand.engine.shared_budgets import period_of, uses_now, waiting_by_budget  # noqa: PLC0415 - as above

    newest, now = await newest_limits(reader.journal), wall_ms()
    if newest is None or not newest.limits.budgets:
        return [], []
    uses = await uses_now(reader.journal, newest.limits, now)
    waiting = await waiting_by_budget(reader.journal)
    listed: list[ListedBudget] = []
    for name, one in newest.limits.budgets.items():
        when = period_of(name, one, now)
        lines = [_line(one, use) for use in uses[name]]
        listed.append(
            ListedBudget(
                name, one.agent, one.tenant, one.per, one.zone, one.then, when.name, when.end_ms, lines, waiting[name]
            )
        )
    return listed, await unknown_agents(reader.journal, newest.limits.limited_agents())


async def tree_lines(journal: JournalReads, history: RunHistory) -> list[BudgetLine]:
    """The limits of a run that has children, and what its whole tree used of them; empty without children."""
    from beforehand.engine.tree_budgets import tree_budget  # noqa: PLC0415 - as above

    if history.budget is None or history.children is None:
        return []
    budget, name = tree_budget(history.budget.limits), PREFIX + history.run
    uses = {use.limit: use for use in await budget_uses(journal, {name: TREE})}
    return [_line(budget, uses.get(counter) or BudgetUse(name, TREE, counter)) for counter in budget.counters]


def _line(one: SharedBudget, use: BudgetUse) -> BudgetLine:
    currency = counter_currency(use.limit)
    name = use.limit.removesuffix(f" {currency}") if currency else use.limit
    return budget_line(name, one.most(use.limit), use.used, use.reserved, currency)


def _scope(one: ListedBudget) -> str:
    parts = [f"agent {one.agent}"] if one.agent else []
    parts += [f"tenant {one.tenant}"] if one.tenant else []
    return ", ".join(parts) or "all runs"


def budget_cells(line: BudgetLine) -> tuple[str, ...]:
    """One limit as a row of a table."""
    mark = "failed" if line.over else "asks" if line.used == line.most else "ok"
    unit = f" {line.currency}" if line.currency else ""
    reserved = f"{line.reserved:,} reserved" if line.reserved else ""
    return (
        mark,
        words_of(line.limit),
        f"{line.used:,} used",
        reserved,
        "no limit" if line.most is None else f"limit {line.most:,}{unit}",
    )


def over(line: BudgetLine) -> str:
    """The excess over a limit, in words."""
    return f"{line.over:,} {line.currency or words_of(line.limit)}"
