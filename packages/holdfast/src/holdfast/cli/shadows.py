"""`holdfast shadows`: how the answers of shadow models compare with those that were used."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli.common import CommandCall, command
from holdfast.cli.costs import money, prices_from
from holdfast.cli.inputs import read_past
from holdfast.inspect.costs import CostLine
from holdfast.inspect.prices import Prices
from holdfast.inspect.shadows import UNKNOWN, ShadowComparison, compare_shadows
from holdfast.inspect.text import count, duration, safe
from holdfast.journal.host import wall_ms
from holdfast.model.shadow_calls import NOT_ASKED, Agreement

_HOW: Final[dict[Agreement, tuple[str, str]]] = {
    "same": ("ok", "the same"),
    "words": ("open", "no call, other words"),
    "arguments": ("asks", "the same tools, other arguments"),
    "differ": ("failed", "other calls"),
}
"""The sign and the words for each way in which two answers agree."""


@command("shadows", examples=("holdfast shadows", "holdfast shadows --since 7d --json | jq '.shadows[].agreement'"))
@click.option("--since", default="", metavar="WHEN", help="Only calls begun since then: 2h, 7d, 2027-01-31.")
@click.option("--prices", default=None, metavar="FILE", help="Your prices; by default the project's prices.yaml.")
def shadows(call: CommandCall, since: str, prices: str | None) -> None:
    """Compare shadow calls with the answers that were used.

    A model with shadow= in a Route is asked beside decisions, and its answers are
    never used. This shows how often it chose the same calls, and its tokens, cost
    and time beside those of the model that answered.
    """
    since_ms = read_past(since, wall_ms()) if since else 0
    found = call.read(_found(call, prices_from(prices), since_ms))
    if call.screen.as_json:
        call.screen.document({"shadows": found})
        return
    if not found:
        call.screen.line(f"No model was asked as a shadow{' since then' if since else ' in this journal'}.")
        call.screen.next("declare one: Route([model, RouteModel(cheaper, shadow=0.1)])")
        return
    for one in found:
        _show(call, one)


async def _found(call: CommandCall, prices: Prices, since_ms: int) -> list[ShadowComparison]:
    async with call.reader() as reader:
        return await compare_shadows(reader, prices, since_ms)


def _show(call: CommandCall, one: ShadowComparison) -> None:
    model = "an unknown model" if one.model == UNKNOWN else safe(one.model)
    call.screen.line((safe(one.shadow_model), "bold"), f" beside {model}: {count(one.calls, 'shadow call')}")
    rows = [
        (sign, words, f"{number:,}", f"{number / one.compared:.0%}")
        for how, (sign, words) in _HOW.items()
        if (number := one.agreement.get(how))
    ]
    for code, number in sorted(one.failed.items()):
        rows.append(("off", f"{'not asked' if code in NOT_ASKED else 'failed'} ({safe(code)})", f"{number:,}", ""))
    if one.unanswered:
        rows.append(("off", "without an answer on record", f"{one.unanswered:,}", ""))
    call.screen.columns(rows)
    if one.compared:
        pair = (safe(one.shadow_model), one.shadow, one.shadow_ms), (model, one.used, one.used_ms)
        call.screen.columns([_figures(*figures) for figures in pair])
    for operation in one.differing[:1]:
        call.screen.next(f"one that differs: holdfast show {operation.partition('/')[0]}")


def _figures(name: str, line: CostLine, median_ms: float | None) -> tuple[str, ...]:
    """The tokens, the cost and the time of one of the two models."""
    cost = ", ".join(money(amount, currency) for currency, amount in sorted(line.cost.items())) or "-"
    unknown = f"{line.unknown:,} of unknown cost" if line.unknown else ""
    took = "-" if median_ms is None else f"median {duration(round(median_ms))}"
    return ("info", name, f"{line.tokens:,} tokens", cost, took, unknown)
