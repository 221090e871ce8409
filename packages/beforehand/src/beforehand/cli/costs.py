"""`beforehand costs`: what all runs used and cost, by agent, model, tool, tenant, day or outcome."""

from __future__ import annotations

import os
import sys
from decimal import Decimal
from typing import Final, cast, get_args

import click

from beforehand.cli.common import CommandCall, command
from beforehand.cli.config import project_file
from beforehand.cli.inputs import read_past
from beforehand.inspect.costs import NO_NAME, CostReport, Grouping
from beforehand.inspect.costs import costs as costs_of
from beforehand.inspect.prices import Prices, price_list
from beforehand.inspect.text import count, short
from beforehand.installation import extra_command
from beforehand.journal.host import wall_ms

_WIDTHS: Final = (6, 7, 15, 7, 7, 15)
"""The columns behind the name: calls, tokens, cost, unknown, effects, and the cost of each effect."""
_NAME: Final = 80 - sum(_WIDTHS) - len(_WIDTHS)
_HEAD: Final = ("calls", "tokens", "cost", "unknown", "effects", "per effect")
_UNITS: Final = ((10**9, "G"), (10**6, "M"), (10**3, "k"))
_FINEST: Final = Decimal("0.0001")


@command(
    "costs",
    examples=(
        "beforehand costs --by model --since 7d",
        "beforehand costs --by tenant --prices prices.yaml",
        "beforehand costs --by day --json | jq '.lines[] | [.name, .cost.USD]'",
    ),
)
@click.option(
    "--by", default="agent", show_default=True, type=click.Choice(get_args(Grouping)), help="What the sums are of."
)
@click.option("--since", default="", metavar="WHEN", help="Only what was recorded since then: 2h, 7d, 2027-01-31.")
@click.option("--prices", default=None, metavar="FILE", help="Your prices; by default the project's prices.yaml.")
def costs(call: CommandCall, by: str, since: str, prices: str | None) -> None:
    """Sum up what the model calls of all runs used, and what they cost.

    Prices are those of your file, then those that the library genai-prices brings
    where it is installed. A call without a count of tokens, or without a price,
    is unknown: it is counted beside the sums, and is never zero.
    """
    since_ms = read_past(since, wall_ms()) if since else 0
    sources = prices_from(prices)
    found = call.read(lambda reader: costs_of(reader, sources, cast("Grouping", by), since_ms))
    if call.screen.wrote_json(found):
        return
    if not found.lines:
        call.screen.line(f"No run called a model or had an effect{' since then' if since else ' in this journal'}.")
    elif by == "tool":
        _by_tool(call, found)
    else:
        _table(call, found)
    _remarks(call, found, sources)


def prices_from(named: str | None) -> Prices:
    """The prices of the file that is named here or in the project, then the published ones. Raises `UsageError`."""
    return cast("Prices", price_list(project_file("prices") if named is None else named))


# --- for a person -----------------------------------------------------------------------------------------------------


def _table(call: CommandCall, found: CostReport) -> None:
    shown = [*found.lines, found.total] if len(found.lines) > 1 else found.lines
    _row(call, found.by, _HEAD, style="dim")
    for line in shown:
        amounts = sorted(line.cost.items()) or [("", Decimal(0))]
        for place, (currency, amount) in enumerate(amounts):
            cost = _money(amount, currency) if currency else "unknown" if line.unknown else "-"
            each = _money(line.per_effect[currency], currency) if currency in line.per_effect else "-"
            cells = (f"{line.calls:,}", _short(line.tokens), cost, _or_dash(line.unknown), _or_dash(line.effects), each)
            _row(call, line.name, cells) if not place else _row(call, "", ("", "", cost, "", "", each))


def _by_tool(call: CommandCall, found: CostReport) -> None:
    """The costs of tools, declared or reported: a call of a model is of no single tool."""
    _row(call, "tool", ("", "", "reported", "", "effects", "per effect"), style="dim")
    for line in found.lines:
        own = line.reported and line.effects and f"{line.reported / line.effects:,.4f}"
        each, reported = _amounts(line.per_effect, own), _amounts(line.cost, line.reported and f"{line.reported:,f}")
        _row(call, line.name, ("", "", reported, "", _or_dash(line.effects), each))


def _amounts(costs: dict[str, Decimal], own: object) -> str:
    """Amounts in currencies, and one in a unit of code's own, if there is one."""
    amounts = [_money(amount, currency) for currency, amount in sorted(costs.items())]
    return ", ".join([*amounts, *([str(own)] if own else [])]) or "-"


def _row(call: CommandCall, name: str, cells: tuple[str, ...], style: str = "") -> None:
    whole = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    first = name if whole else short(name, _NAME)
    rest = "".join(f" {cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    call.screen.line((f"{first:<{_NAME}}", style or "bold"), (rest.rstrip(), style))


def _remarks(call: CommandCall, found: CostReport, prices: Prices) -> None:
    total = found.total
    if unknown := _unknown(found):
        call.screen.line(("Unknown: ", "yellow"), f"{unknown}. The sums are of the others.")
    if total.saved_calls:
        saved = _used("answer", total.saved_calls, total.saved_tokens, total.saved_cost)
        call.screen.line(f"Replay saved {saved}: they were not asked for again.")
    if total.wasted_calls:
        wasted = _used("call", total.wasted_calls, total.wasted_tokens, total.wasted_cost)
        call.screen.line(f"Without a usable answer: {wasted}. The sums include them.")
    if total.reported and found.by != "tool":
        call.screen.line(f"Code reported {total.reported:,f}, in a unit of its own; it is in no sum above.")
    if found.bases:
        call.screen.line(f"Prices: {', '.join(found.bases)}.")
    for run in found.unreadable:
        call.screen.note(("Not counted", "yellow"), f": {run} cannot be read. Next: beforehand verify")
    unnamed = found.unpriced_models.get(NO_NAME, 0)
    if unnamed:
        call.screen.next("name the model where it is asked: run.options(model=...).decide(...)")
    if total.unpriced > unnamed and not any(one.basis.startswith("genai-prices ") for one in prices.sources):
        call.screen.next(f"{extra_command('prices')} for published prices, or name your own: --prices FILE")
    elif total.unpriced > unnamed:
        call.screen.next("declare the prices of these models: --prices FILE")


def _unknown(found: CostReport) -> str:
    """The calls whose cost is unknown, by reason."""
    total, unnamed = found.total, found.unpriced_models.get(NO_NAME, 0)
    models = short(", ".join(sorted(found.unpriced_models.keys() - {NO_NAME})), 200)
    reasons = (
        (total.uncounted, "without a count of tokens"),
        (unnamed, "without the name of a model"),
        (total.unpriced - unnamed, f"of models without a price ({models})"),
        (total.contradictory, "with counts of tokens that contradict"),
    )
    return ", ".join(f"{count(number, 'call')} {why}" for number, why in reasons if number)


def _used(thing: str, number: int, tokens: int, costs: dict[str, Decimal]) -> str:
    return ", ".join([count(number, thing), f"{tokens:,} tokens", *(_money(costs[one], one) for one in sorted(costs))])


def _money(amount: Decimal, currency: str) -> str:
    if 0 < amount < _FINEST:
        return f"<{_FINEST} {currency}"
    return f"{amount:,.{2 if amount >= 100 else 4}f} {currency}"


def _short(number: int) -> str:
    """A large number in few digits."""
    for unit, name in _UNITS:
        if number >= 10 * unit or (number >= unit > 1000):
            return f"{number / unit:.3g}{name}" if number < 100 * unit else f"{number / unit:,.0f}{name}"
    return f"{number:,}" if number else "-"


def _or_dash(number: int) -> str:
    return f"{number:,}" if number else "-"
