"""`holdfast plant`: put known-bad cases among what people are asked, to see whether they look."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from holdfast.cli.common import CommandCall, command
from holdfast.errors import UsageError
from holdfast.inspect.text import count
from holdfast.model.seeded_cases import Case
from holdfast_console.reviews.seeding import KEPT_DAYS, RATE
from holdfast_console.reviews.seeding import plant as plant_cases


@command("plant", examples=("holdfast plant known-bad.jsonl", "holdfast plant known-bad.jsonl --rate 0.1 --json"))
@click.argument("cases", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="CASES")
@click.option(
    "--rate", type=click.FloatRange(min=0, max=1), default=RATE, show_default=True, metavar="R",
    help="Planted cases for each question to people.",
)  # fmt: skip
@click.option(
    "--keep-days", type=click.FloatRange(min=0, min_open=True), default=KEPT_DAYS, show_default=True, metavar="N",
    help="Withdraw what nobody answered in N days.",
)  # fmt: skip
async def plant(call: CommandCall, cases: Path, rate: float, keep_days: float) -> None:
    """Plant known-bad CASES (JSON lines) among what waits for people.

    They look like real questions about the same tool, and are never sent, whatever is
    answered; who answers one is told. `holdfast inbox --health` and `holdfast figures`
    count what was caught. Call it now and then: it plants what is missing to the rate,
    over the questions of the last week.
    """
    known_bad = _cases(cases)
    async with call.serving() as service:
        done = await plant_cases(service.engine, known_bad, rate, keep_days)
    if call.screen.as_json:
        call.screen.document(done)
        return
    withdrawn = f", {len(done.withdrawn)} withdrawn" if done.withdrawn else ""
    call.screen.line(f"{count(len(done.items), 'case')} planted{withdrawn}.")


def _cases(path: Path) -> list[Case]:
    """The cases of a file, one in each line. Raises `UsageError` naming the line."""
    found: list[Case] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Case))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise UsageError(
                f"{path}, line {number}: {error}",
                next_step='write each as: {"tool": "refund", "arguments": {"cents": 9}, "why": "wrong customer"}',
            ) from error
    return found
