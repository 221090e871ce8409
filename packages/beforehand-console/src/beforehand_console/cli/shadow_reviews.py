"""`beforehand shadow-reviews`: the sent calls that wait for a review, and the reviews of people."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.errors import UsageError
from beforehand.inspect.text import count, marked, moment, safe
from beforehand.model.shell import NAME, lines, to_type
from beforehand_console.reviews.shadow_reviews import ReviewWord, ShadowReview, drawn_call, open_reviews, review

LISTED: Final = 50


@command(
    "shadow-reviews",
    examples=(
        "beforehand shadow-reviews",
        "beforehand shadow-reviews 'refund-9/refund#1' right --by anna",
        "beforehand shadow-reviews 'refund-9/refund#1' wrong --why 'twice' --by anna",
    ),
)
@click.argument("operation", default="", metavar="[RUN/STEP]")
@click.argument("word", type=click.Choice(["right", "wrong"]), required=False)
@click.option("--why", default="", metavar="TEXT", help="The reason; it is recorded.")
@by_option
async def shadow_reviews(call: CommandCall, operation: str, word: ReviewWord | None, why: str, by: str) -> None:
    """List the calls that a policy sent without a person and drew for a review, or review one.

    A rule with a `shadow` share draws them. Say whether it was right that RUN/STEP was
    sent: the first review counts, and no run waits for it. A wrong effect stays until its
    run is undone.
    """
    if not operation:
        await _list(call)
        return
    if word is None:
        raise UsageError(
            f"was it right that {operation} was sent?",
            next_step=lines(*_verdicts(operation)),
        )
    async with call.serving() as service:
        journal = service.engine.journal
        given = ShadowReview(word, by, why, service.via)
        undo = await review(journal, await drawn_call(journal, operation), given)
    if call.screen.wrote_json({"operation": operation, "review": msgspec.to_builtins(given), "next_step": undo}):
        return
    call.screen.line(f"{operation} is reviewed: {word}, by {by}.")
    if undo:
        call.screen.line(f"It stays in effect until it is undone: {undo}")


async def _list(call: CommandCall) -> None:
    async with call.reader() as reader:
        found = await open_reviews(reader.journal)
    if call.screen.wrote_json(found):
        return
    for one in found[:LISTED]:
        call.screen.line((one.operation, "cyan"), (f"  sent {moment(one.at_ms)} by the rule {safe(one.rule)!r}", "dim"))
        call.screen.line(f"  {marked(safe(one.asks))}")
        call.screen.commands(to_type("why", one.operation), *_verdicts(one.operation))
    if len(found) > LISTED:
        call.screen.line(f"... and {len(found) - LISTED:,} more: --json has all")
    call.screen.line(f"{count(len(found), 'call')} to review." if found else "No call waits for a review.")


def _verdicts(operation: str) -> list[str]:
    return [to_type("shadow-reviews", operation, word, "--by", NAME) for word in ("right", "wrong")]
