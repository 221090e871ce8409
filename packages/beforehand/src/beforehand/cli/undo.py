"""Commands about units of work: `transaction` and `undo`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, cast

import click

from beforehand.cli.apps import agents_for, app_of
from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.exit_status import DONE, FAILED, WAITS
from beforehand.cli.screen import Screen, grid, phrase
from beforehand.control.undo import Preview, checked_finished, checked_undoable, tree_of, tree_preview
from beforehand.errors import UsageError
from beforehand.inspect.text import count
from beforehand.model.shell import to_type
from beforehand.people.answering import decide_transaction_idempotently

if TYPE_CHECKING:
    from rich.text import Text

    from beforehand.cli.apps import AnyAgent
    from beforehand.control.undo import Undone
    from beforehand.inspect.reader import JournalReader
    from beforehand.model.run_history import RunHistory

_CAN: Final = {
    "restore": ("ok", "restored by {by}"),
    "amend": ("asks", "compensated by {by}, which does not restore what was"),
    "stands": ("off", "stays: nothing undoes it"),
    "unknown": ("unknown", "its outcome is unknown: {why}"),
}


@command(
    "transaction",
    examples=(
        "beforehand transaction trip-17/book-trip --retry",
        "beforehand transaction trip-17/book-trip --retry --shown 3f9c2a1b04de",
        "beforehand transaction trip-17/book-trip --accept --why 'refunded by hand'",
        "beforehand transaction trip-17/book-trip --abort --why 'customer called'",
    ),
)
@click.argument("transaction")
@click.option("--retry", is_flag=True, help="Try the stuck operations again.")
@click.option("--accept", is_flag=True, help="Accept the stuck operations as they are, and finish without them.")
@click.option("--abort", is_flag=True, help="Abort a transaction that has not committed.")
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@click.option("--shown", default="", metavar="DIGEST", help="The digest of what you saw. A second decision needs it.")
@by_option
async def transaction(call: CommandCall, transaction: str, why: str, shown: str, by: str, **flags: bool) -> None:
    """Decide about TRANSACTION (RUN/NAME): retry or accept a parked one, or abort an open one.

    RUN alone names the undo of the whole run.

    One that is stuck again asks anew: `beforehand inbox --item` shows the question and its
    digest, which --shown names. Your decision is recorded with your name. It takes effect
    when the run is next driven, by a worker or by `beforehand resume`.
    """
    run, _, name = transaction.partition("/")  # no name: the undo of the whole run
    wanted = [word for word, given in flags.items() if given]
    if len(wanted) != 1:
        raise UsageError("no decision is given", next_step="add --retry, --accept or --abort")
    async with call.serving() as service:
        word = cast('Literal["retry", "accept", "abort"]', wanted[0])
        applied = await decide_transaction_idempotently(service, transaction, word, by=by, why=why, shown=shown)
        found = (await service.history(run)).boundaries.by_name[name]
    if call.screen.wrote_json({"run": run, "transaction": found, "applied": applied.at_once}):
        return
    call.screen.line(f"Recorded: {wanted[0]} {transaction}, decided by {by}, which is {found.phase}.")
    call.screen.next(to_type("resume", run))


@command(
    "undo",
    examples=("beforehand undo trip-17 --dry-run", "beforehand undo trip-17 --why 'customer withdrew' --by anna"),
)
@click.argument("run_id", metavar="RUN")
@click.option("--dry-run", is_flag=True, help="Show what would be done about each effect; send nothing.")
@click.option("--agent", "targets", multiple=True, metavar="TARGET", help="The location of its code, if it has moved.")
@click.option("--why", default="", metavar="TEXT", help="The reason; it is recorded.")
@by_option
async def undo(call: CommandCall, run_id: str, targets: tuple[str, ...], why: str, by: str, **flags: bool) -> int:
    """Undo the finished RUN and the runs below it: compensate what they did.

    The last effect of a run is undone first, and runs below it that are under way are
    cancelled before. Each compensation is an operation of its own, with its own key and outcome. It
    prints what became of each effect: undone, stands (nothing undoes it), asked (a
    person is asked), or waits. Where an effect stands, the run keeps its status, and
    the exit status is 1.
    """
    async with call.reader() as reader:
        tree = await tree_of(reader, run_id)
        ordered = not checked_finished(tree[0])
        if flags["dry_run"]:
            _show(call.screen, tree_preview(tree))
            return 0
        if not ordered:
            checked_undoable(tree)
        agents = await _agents_of(call, reader, tree, targets)
    async with app_of(call, agents) as app:
        undone = await app.undo(run_id, by=by, why=why)
    if not call.screen.wrote_json(undone):
        _tell(call.screen, undone)
    return WAITS if undone.waits else FAILED if _standing(undone) else DONE


async def _agents_of(
    call: CommandCall, reader: JournalReader, tree: list[RunHistory], targets: tuple[str, ...]
) -> list[AnyAgent]:
    """The code of all runs of a tree. A run below the top whose code is not found waits for another process."""
    found = {agent.name: agent for agent in await agents_for(call, reader, tree[0].run, targets)}
    for history in tree[1:]:
        started = history.lifecycle.started
        if started is not None and started.agent not in found:
            with suppress(UsageError):
                found |= {agent.name: agent for agent in await agents_for(call, reader, history.run, ())}
    return list(found.values())


def _standing(undone: Undone) -> int:
    """How many effects stand."""
    return sum(effect.state == "stands" for effect in undone.effects)


def _tell(screen: Screen, undone: Undone) -> None:
    for effect in undone.effects:
        screen.line(f"  {effect.state:8}  {effect.operation}")
    run, left = undone.run, _standing(undone)
    below = f", with {count(len(undone.below), 'run')} below it" if undone.below else ""
    if undone.waits:
        screen.line(f"{run} is being undone{below}, and waits: {undone.waits}")
        screen.next(to_type("undo", run))
    elif left:
        screen.line(f"{run} is not undone{below}: {count(left, 'effect')} {'stands' if left == 1 else 'stand'}.")
    else:
        screen.line(f"{run} is undone{below}.")


def _show(screen: Screen, found: Preview) -> None:
    if screen.wrote_json(found):
        return
    for run in found.cancels:
        screen.line(f"{run} is under way: it is cancelled first, and what it has done by then is undone.")
    if not found.effects:
        screen.line(f"{found.run} has no effect left that could be undone.")
        return
    rows: list[tuple[Text, ...]] = []
    for one in found.effects:
        mark, text = _CAN[one.can]
        line = text.format(by=one.by, why=to_type("why", one.operation))
        rows.append((screen.mark(mark), phrase((one.operation, "bold")), phrase(line)))
    screen.show(grid(rows, (1,)))
    screen.line("")
    screen.line("Nothing was sent.")
    refused = not found.cancels and all(one.can == "stands" for one in found.effects)  # as by `checked_undoable`
    screen.next(to_type("show" if refused else "undo", found.run))
