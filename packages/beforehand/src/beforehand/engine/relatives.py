"""The notices between a run and its child runs: what each stores for the other in the commit that makes it true.

A child tells its parent that it has ended; a run tells its children that they are cancelled, or undone. All of them
are commands in the ledger, announced as an interrupted delivery is: house-keeping brings them if this process dies
before it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.children import CHILD_ENDED, ChildState
from beforehand.model.commands import DELIVERIES, AnswerNotice, Command, command_stream
from beforehand.model.run_history import RunHistory
from beforehand.model.stop_reasons import reason_of
from beforehand.model.transaction import WHOLE_RUN


def end_posts(history: RunHistory) -> tuple[Post, ...]:
    """The notice of a run that ends for the run that started it, if one did."""
    started = history.lifecycle.started
    if started is None or started.parent is None:
        return ()
    return _posts(started.parent.run, Command(CHILD_ENDED, note=history.run))


def cancel_posts(history: RunHistory, children: Iterable[ChildState], by: str, why: str) -> tuple[Post, ...]:
    """The commands that cancel these children of a run, which was cancelled or has ended without having joined them."""
    note = f"the run {history.run} that started it {why}"
    return tuple(post for child in children for post in _posts(child.run, Command("cancel", by, note)))


def posts_of_command(
    history: RunHistory, command: r.CommandApplied | r.BudgetRaised | r.RunStoppedRecord
) -> tuple[Post, ...]:
    """The notices that go with a command to a run, or with the end that it gives a run that had stopped.

    One that ends the run cancels its children, one that undoes it cancels and undoes them, and a higher budget lets
    those continue that it had stopped.
    """
    if isinstance(command, r.RunStoppedRecord):
        return end_posts(history)
    if isinstance(command, r.BudgetRaised):
        raised = Command("budget", command.by, command.note, r.BudgetRaised(by=command.by, note=command.note))
        children = () if history.children is None else history.children.by_name.values()
        return tuple(post for child in children if not child.over for post in _posts(child.run, raised))
    if history.children is None or command.refused:
        return ()
    if command.command == "undo":
        return (
            *cancel_posts(history, history.children.to_cancel(), command.by, "is undone"),
            *_undo_posts(history.run, history.children.by_name, command),
        )
    if reason_of(command.command) is None:
        return ()
    why = "was cancelled" if command.command == "cancel" else "was taken over"
    return cancel_posts(history, history.children.to_cancel(), command.by, why)


def _undo_posts(run: str, children: Iterable[str], order: r.CommandApplied) -> Iterator[Post]:
    """The commands that undo these children of a run, behind those that cancel them."""
    note = f"the run {run} that started it is undone" + (f": {order.note}" if order.note else "")
    command = Command("undo", order.by, note, r.TransactionAborting(transaction=WHOLE_RUN, reason=note, by=order.by))
    for child in children:
        yield from _posts(child, command)


def _posts(run: str, command: Command) -> tuple[Post, ...]:
    notice = AnswerNotice("", "", run)
    return Post(command_stream(run), "", written(command)), Post(DELIVERIES, "", written(notice))


def receivers(posts: Iterable[Post]) -> list[str]:
    """The runs for which these posts are commands."""
    prefix = command_stream("")
    return list(dict.fromkeys(post.stream.removeprefix(prefix) for post in posts if post.stream.startswith(prefix)))
