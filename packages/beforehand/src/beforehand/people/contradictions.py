"""Contradicted outcomes: earlier answers, what relied on the outcome, and recording a person's answer."""

from __future__ import annotations

import msgspec

from beforehand.control.approvals import checked_statement
from beforehand.control.command_sink import CollectingSink, record_answer
from beforehand.control.service import ControlService
from beforehand.control.undo import ENDED, preview
from beforehand.engine.commands import Applied, command_post
from beforehand.errors import UsageError
from beforehand.inspect.contradictions import SHOWN
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post
from beforehand.model.commands import DELIVERIES, AnswerNotice
from beforehand.model.contradiction import ANSWERED, contradiction_stream
from beforehand.model.operation import OperationState
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import lines, to_type
from beforehand.model.transaction import around
from beforehand.model.waits import stored_contract
from beforehand.people import answers as a
from beforehand.people.loaded_item import LoadedItem


def undone_together(history: RunHistory, state: OperationState) -> tuple[str, ...]:
    """The scope of the answer `compensate`: the open transaction around the effect, else the whole ended run."""
    inside = _open_around(history, state)
    if not stored_contract(history, state).compensates or not (inside or history.lifecycle.status in ENDED):
        return ()
    what = f"the transaction {inside}" if inside else f"the whole run {history.run}"
    found = preview(history, inside).effects
    lines = [f"{one.operation}: {f'compensated by {one.by}' if one.by else one.can}" for one in found]
    hidden = len(lines) - SHOWN
    return (what, *lines) if hidden <= 0 else (what, *lines[:SHOWN], f"and {hidden} more")


def _open_around(history: RunHistory, state: OperationState) -> str:
    """The innermost open transaction around an operation of a run that has not ended; empty where there is none."""
    inside = [one for one in around(state.step, history.boundaries.by_name) if not one.over and one.name]
    return inside[-1].name if inside and history.lifecycle.status not in ENDED and not inside[-1].backward else ""


async def review_contradiction(service: ControlService, now: LoadedItem, answer: a.Answer, by: str) -> Applied:
    """Record the answer to the contradictions of an operation that were loaded. The outcome stays as recorded.

    `compensate` orders the compensation in the same commit. Raises `UsageError` for a second answer, and where no
    compensation exists.
    """
    if isinstance(answer, a.DidNotHappenAnswer) and answer.then == "retry":
        raise UsageError(
            f"{now.item} has a final outcome, and is not sent again",
            next_step="say what is true; a new call of the tool is a new operation",
        )
    assert isinstance(now.subject, OperationState), now.item
    word, evidence, shown = a.name_of(answer), str(getattr(answer, "evidence", "")), len(now.subject.links.contradicted)
    history, state = await service.operation(now.item)
    checked_statement(history, state, by, evidence, service.proof)
    words = CollectingSink(service.engine.wall_ms())
    if word == "compensate":
        draft = service.over(words)
        await _compensate(draft, history, state, by=by, why=evidence)
    given = service.stamped(a.command_of(answer, state, by))
    body = written(given)
    posts = [
        command_post(history.run, body, f"contradicted/{state.step}/{shown}"),
        Post(contradiction_stream(history.run, state.step), f"{ANSWERED}{shown}", body),
        # A process that dies before the run has the answer leaves it to the next one that looks.
        Post(DELIVERIES, "", written(AnswerNotice("", "", history.run))),
        *words.posts,
    ]
    applied, _ = await record_answer(service.sink, now.item, given, posts)
    return msgspec.structs.replace(applied, note=next_steps(history, word)) if applied.at_once else applied


def next_steps(history: RunHistory, word: str) -> str:
    """The command that goes on after an answer."""
    run = history.run
    if word == "compensate":
        what = "The whole run" if history.lifecycle.status in ENDED else "The transaction around it"
        return f"{what} is being undone. Next: {to_type('resume', run)}"
    if word == "happened" or history.lifecycle.status not in ENDED:
        return f"Next: {to_type('show', run)}"
    return f"What relied on it stays as it is. To undo the whole run: {to_type('undo', run)}"


async def _compensate(draft: ControlService, history: RunHistory, state: OperationState, *, by: str, why: str) -> None:
    """Order the compensation: of the transaction around it while that is open, else of the run once it has ended."""
    name = f"{history.run}/{state.step}"
    if not stored_contract(history, state).compensates:
        raise UsageError(
            f"{state.intent.tool} declares no compensation",
            next_step=lines(to_type("resolve", name, "--happened"), to_type("resolve", name, "--did-not-happen")),
        )
    reason = why or f"the outcome of {state.step} was contradicted"
    if history.lifecycle.status in ENDED:
        await draft.undo(history.run, by=by, why=reason)
    elif inside := _open_around(history, state):
        await draft.call_off(history.run, inside, by=by, why=reason)
    else:
        raise UsageError(
            f"run {history.run} is {history.lifecycle.status}, and {state.step} is in no open transaction",
            known="a run is compensated when it has ended",
            next_step=f"cancel it, and answer again: {to_type('cancel', history.run)}",
        )
