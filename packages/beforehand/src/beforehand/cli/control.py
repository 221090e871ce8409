"""Commands that steer a run: `resolve`, `signal`, `tell`, `cancel`, `pause` and `unpause`."""

from __future__ import annotations

from typing import Final, Literal

import click
import msgspec

from beforehand.cli.apps import tools_at_hand
from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.inputs import any_json
from beforehand.cli.screen import Screen
from beforehand.control.command_ack import wait_until_applied
from beforehand.control.sending import OpenAttempt, open_attempts, switch_sending
from beforehand.control.service import ControlService
from beforehand.engine.breaker import ALL, dated, unpausing
from beforehand.engine.commands import Applied
from beforehand.errors import UsageError
from beforehand.inspect.reader import waits_of
from beforehand.inspect.text import ago, count, safe, sentence
from beforehand.journal.host import wall_ms
from beforehand.journal.port import RunRow
from beforehand.model.ids import split_operation_id
from beforehand.model.records import NOTHING, Raw
from beforehand.model.shell import to_type
from beforehand.people.answering import answer_idempotently
from beforehand.people.answers import Answer, name_of
from beforehand.people.loaded_item import is_contradicted
from beforehand.people.typed_answers import Typed, review_answer
from beforehand.queues.modes import Restriction

_OVER: Final = {"completed": "has completed", "undone": "is undone"}


@command(
    "resolve",
    examples=(
        "beforehand resolve ticket-17/restock#1 --happened --evidence 'it is there'",
        """beforehand resolve ticket-17/refund#1 --happened --result '{"id": "r-9"}'""",
        "beforehand resolve ticket-17/restock#1 --did-not-happen --retry --by anna",
        "beforehand resolve ticket-17/refund#1 --same-key",
    ),
)
@click.argument("operation")
@click.option("--happened", is_flag=True, help="It happened: the operation succeeded.")
@click.option(
    "--did-not-happen", "did_not", is_flag=True, help="It did not happen: the operation failed, unless --retry."
)
@click.option("--retry", is_flag=True, help="With --did-not-happen: send it once more.")
@click.option("--give-up", is_flag=True, help="With --did-not-happen: the operation failed (the default).")
@click.option("--same-key", is_flag=True, help="Send it once more with the same key; the service deduplicates on it.")
@click.option("--compensate", is_flag=True, help="Undo its open transaction, or the whole run once that has ended.")
@click.option("--abandon", is_flag=True, help="Stop asking: the run is cancelled, and the outcome stays unknown.")
@click.option("--result", metavar="JSON", help="With --happened: what the call would have returned.")
@click.option("--evidence", metavar="TEXT", default="", help="How you know; it is recorded.")
@click.option("--shown", default="", metavar="DIGEST", help="The digest of what you saw. A second order needs it.")
@by_option
async def resolve(
    call: CommandCall, operation: str, shown: str, by: str, result: str | None, **flags: bool | str
) -> None:
    """State what happened to OPERATION (RUN/STEP), whose outcome is unknown.

    Your statement is recorded with your name and is final. For the agent the call
    returns (--happened), fails (--did-not-happen), or is sent once more (--retry).
    A --result must be a value that the tool returns. It is checked at once if the
    tool's code is at hand, otherwise when the run continues; a result that does not fit
    changes nothing. Once a person has had it sent again, --shown names what you saw.
    """
    given = _review(flags, None if result is None else Raw(msgspec.json.encode(any_json(result))))
    run, _ = split_operation_id(operation)
    tools = {} if result is None else await tools_at_hand(call, run)
    async with call.serving(tools) as service:
        answered = await answer_idempotently(service, operation, given, by=by, shown=shown)
        applied = await wait_until_applied(service.engine, answered)
        _, state = await service.operation(operation)
    note = f"{operation} is now {state.phase}, decided by {by}." if applied.at_once else _recorded(applied)
    next_step = to_type("show" if flags["abandon"] else "resume", run)
    if is_contradicted(state):
        note, next_step = about_contradicted(operation, state.phase, name_of(given))
    _tell(call.screen, applied, note, next_step, operation=operation, phase=state.phase)


def about_contradicted(operation: str, phase: str, word: str) -> tuple[str, str]:
    """The answer to a contradiction, in a sentence, and what to do next."""
    run, _ = split_operation_id(operation)
    note = f"Recorded: the contradiction of {operation} is answered. Its outcome stays {phase}."
    if word == "compensate":
        return f"{note} Its open transaction, or else the whole run, is being undone.", to_type("resume", run)
    wrong = word == ("happened" if phase != "succeeded" else "did_not_happen")
    return note, to_type("undo", run) if wrong else to_type("show", run)


def _recorded(applied: Applied) -> str:
    if applied.lacks:
        return f"Recorded. It is checked and applied where the code of {applied.lacks} is."
    return "Recorded."


def _review(flags: dict[str, bool | str], result: Raw | None) -> Answer:
    """The answer that the options give. Raises `UsageError` where they contradict each other."""
    words = [name for name in ("happened", "did_not", "same_key", "compensate", "abandon") if flags[name]]
    if len(words) != 1:
        raise UsageError("say whether it happened", next_step="--happened, or --did-not-happen [--retry | --give-up]")
    if words != ["did_not"] and (flags["retry"] or flags["give_up"]):
        raise UsageError("--happened excludes --retry and --give-up", next_step="leave out --retry and --give-up")
    if flags["retry"] and flags["give_up"]:
        raise UsageError("--retry and --give-up exclude each other", next_step="give one of them")
    if result is not None and words[0] not in {"happened", "compensate"}:
        raise UsageError(
            "--result needs --happened: it is what the call returned", next_step="add --happened, or leave out --result"
        )
    word = "retry" if flags["retry"] else words[0].replace("did_not", "did-not-happen").replace("_", "-")
    evidence = str(flags["evidence"])
    return review_answer(Typed(word, evidence, evidence=evidence, result=NOTHING if result is None else result))


@command(
    "signal",
    examples=(
        "beforehand signal ticket-17 approved",
        """beforehand signal order-9 payment --key INV-9 --payload '{"cents": 500}'""",
    ),
)
@click.argument("run")
@click.argument("event")
@click.option("--key", default="", metavar="TEXT", help="Which of several such events, as in run.wait_for(event, key).")
@click.option(
    "--payload", default="null", metavar="JSON", help="The value that the waiting code receives. [default: null]"
)
@click.option("--once", default="", metavar="ID", help="An id for this event: sending it again changes nothing.")
@by_option
async def signal(call: CommandCall, run: str, event: str, payload: str, **options: str) -> None:
    """Send RUN the EVENT that it waits for. An event that arrives early is kept.

    Who sends it cannot approve what the run does with it.
    """
    value, key, once = any_json(payload), options["key"], options["once"]
    async with call.serving() as service:
        row = await service.row(run) if once else await _still_under_way(service, run)
        entry = await service.signal(run, event, payload=value, **options)
    asked = ("event", event, key)
    early = row.status == "suspended" and asked not in {(one.kind, one.tool, one.shown) for one in waits_of(row)}
    note = f"The event {event} is recorded for {run}."
    if not entry.fresh:
        note = f"An event with the id {once} was recorded before; nothing was added."
    elif early:
        note += " The run does not wait for it now; the event is kept."
    next_step = "beforehand pending" if early else to_type("resume", run)
    _tell(call.screen, Applied(run, at_once=True), note, next_step, fresh=entry.fresh)


@command("cancel", examples=("beforehand cancel ticket-17 --why 'asked twice'",))
@click.argument("run")
@click.option("--why", default="", metavar="TEXT", help="The reason; it is recorded.")
@by_option
async def cancel(call: CommandCall, run: str, why: str, by: str) -> None:
    """Cancel RUN: nothing more is sent. What may have been sent is still verified."""
    async with call.serving() as service:
        before = await _still_under_way(service, run)
        applied = await wait_until_applied(service.engine, await service.cancel(run, by=by, why=why))
        stopped = (await service.history(run)).lifecycle.stopped
    note = f"{run} is cancelled: nothing more is sent." if applied.at_once else _recorded(applied)
    if before.status == "stopped" and stopped is not None and stopped.reason != "cancelled":
        note = f"{run} had stopped: nothing is sent until it is resumed."
    _tell(call.screen, applied, note, to_type("show", run))  # not `resume`: once it has ended that lets it go on


@command(
    "pause",
    examples=(
        "beforehand pause ticket-17 --why 'waiting for legal'",
        "beforehand pause --tool send_email --why incident",
        "beforehand pause --all --why incident",
    ),
)
@click.argument("run", required=False)
@click.option("--tool", metavar="NAME", help="Pause a tool in all runs instead of one run.")
@click.option("--all", "everything", is_flag=True, help="Pause all sending, and list what is under way.")
@click.option("--why", default="", metavar="TEXT", help="The reason; it is recorded.")
@by_option
async def pause(call: CommandCall, run: str | None, tool: str | None, *, everything: bool, why: str, by: str) -> None:
    """Pause RUN before its next step, stop all runs from using a tool, or stop all sending.

    Running processes read the paused tools every 250 ms, unless set otherwise.

    With --all no process begins another attempt of any operation once this returns,
    undoing and notices to people included. The listed attempts were begun before, and
    their effects may still happen. While sending is paused, outcomes are recorded, effects
    are verified, people can answer and models are called. Runs continue after unpause --all.
    """
    name = _one_of(run, tool, everything)
    if everything:
        await switch(call, "pause", by=by, why=why)
        return
    async with call.serving() as service:
        if tool is not None:
            await service.pause_tool(tool, by=by, why=why)
            applied, note = Applied(tool, at_once=True), f"No run sends through {tool} until it is unpaused."
            if not await service.reader.has_used(tool):
                call.screen.note(
                    (f"No run in this journal has used a tool named {tool} so far. Check the name.", "yellow")
                )
        else:
            await _still_under_way(service, name)
            applied = await wait_until_applied(service.engine, await service.pause(name, by=by, why=why))
            note = f"{name} is paused." if applied.at_once else _recorded(applied)
    _tell(call.screen, applied, note, to_type("unpause", *(["--tool"] if tool else []), name), tool=tool)


@command(
    "unpause",
    examples=("beforehand unpause ticket-17", "beforehand unpause --tool send_email", "beforehand unpause --all"),
)
@click.argument("run", required=False)
@click.option("--tool", metavar="NAME", help="Unpause a tool.")
@click.option("--all", "everything", is_flag=True, help="Let all runs send again.")
@by_option
async def unpause(call: CommandCall, run: str | None, tool: str | None, *, everything: bool, by: str) -> None:
    """Continue a paused RUN or a paused tool, or with --all everything that waits since pause --all."""
    name = _one_of(run, tool, everything)
    if everything:
        await switch(call, "unpause", by=by)
        return
    async with call.serving() as service:
        if tool is not None:
            await service.unpause_tool(tool, by=by)
            applied = Applied(tool, at_once=True)
        else:
            await _still_under_way(service, name)
            applied = await wait_until_applied(service.engine, await service.unpause(name, by=by))
    next_step = "beforehand worker" if tool else to_type("resume", name)
    note = f"{name} is no longer paused." if applied.at_once else _recorded(applied)
    _tell(call.screen, applied, note, next_step, tool=tool)


class SwitchOutput(msgspec.Struct, frozen=True):
    """The result of `pause --all --json` and `unpause --all --json`. `open` is empty where sending is not paused."""

    paused: Restriction | None
    changed: bool
    open: list[OpenAttempt]
    unreadable: list[str]
    next_step: str


async def switch(call: CommandCall, word: Literal["pause", "unpause"], *, by: str, why: str = "") -> None:
    """Pause all sending, or let it go on; while it is paused, list the attempts that were begun before."""
    screen = call.screen
    async with call.serving() as service:
        paused, changed = await switch_sending(service.engine, word, by=by, why=why)
        next_step = "beforehand worker" if paused is None else unpausing(ALL)
        if not screen.as_json:  # first: what follows takes a while where there are many runs
            state = "sending is not paused" if paused is None else f"all sending is paused {dated(paused)}"
            done = "All runs send again" if paused is None else "No process begins another attempt until unpause --all"
            screen.line(safe(f"{done}." if changed else f"Nothing was changed: {state}."))
        attempts, unreadable = ([], []) if paused is None else await open_attempts(service.reader)
    if screen.wrote_json(SwitchOutput(paused, changed, attempts, unreadable, next_step)):
        return
    if paused is not None:
        begun = f"{count(len(attempts), 'attempt')} begun before, whose effect may still happen:"
        screen.line(begun if attempts else "No attempt is under way.")
        now = wall_ms()
        screen.columns([("open", one.operation, one.tool, f"begun {ago(one.since_ms, now)}") for one in attempts])
        for run in unreadable:
            screen.note((safe(f"Its attempts are not known, since it cannot be read: {run}"), "yellow"))
    screen.next(next_step)


async def _still_under_way(service: ControlService, run: str) -> RunRow:
    """Refuse a command to a run that is over: it must not be reported as effective, since it changes nothing."""
    row = await service.row(run)
    if row.status in _OVER:
        raise UsageError(f"run {run} {_OVER[row.status]} and takes no commands", next_step=to_type("show", run))
    return row


def _one_of(run: str | None, tool: str | None, everything: bool) -> str:
    if (run is not None) + (tool is not None) + everything != 1:
        raise UsageError("name a run, or a tool with --tool, or --all", next_step="see the runs: beforehand ps")
    return run or tool or ""


def _tell(screen: Screen, applied: Applied, note: str, next_step: str, **more: object) -> None:
    """Report the result of the command, and what to do next."""
    if screen.as_json:
        name = {} if more.get("tool") else {"run": applied.run}
        rest = {key: value for key, value in more.items() if value is not None}
        screen.document({**name, **rest, "applied": applied.at_once, "note": note, "next_step": next_step})
        return
    screen.line(note)
    if applied.elsewhere:
        screen.line(sentence(applied.note))
    else:
        screen.next(next_step)


class MessageOutput(msgspec.Struct, frozen=True):
    """The result of `tell --json`. `applied`: the run knows it already."""

    run: str
    text: str
    facts: dict[str, object]
    stop: bool
    by: str
    applied: bool
    next_step: str


@command(
    "tell",
    examples=(
        "beforehand tell trip-17 'I wanted LaGuardia' --fact airport=LGA",
        "beforehand tell trip-17 'use the other card' --fact card=visa-2 --by anna",
        "beforehand tell trip-17 'we are not going' --stop",
    ),
)
@click.argument("run")
@click.argument("text", default="")
@click.option(
    "--fact", "facts", multiple=True, metavar="NAME=VALUE", help="A fact, corrected; a VALUE that is not JSON is text."
)
@click.option("--stop", is_flag=True, help="Stop all new writes, whatever the code does.")
@click.option("--once", default="", metavar="ID", help="An id for this message: sending it again changes nothing.")
@by_option
async def tell(call: CommandCall, run: str, text: str, facts: tuple[str, ...], stop: bool, **options: str) -> None:
    """Send RUN a message. Its code receives TEXT before its next write.

    A fact corrects what the run knows: steps that rely on the old value are no longer
    sent. Calls that were sent already are finished first. To end a run regardless of its
    code, use `beforehand cancel`.
    """
    known = dict(map(_fact, facts))
    async with call.serving() as service:
        applied = await wait_until_applied(
            service.engine, await service.tell(run, text, facts=known, stop=stop, **options)
        )
    done = MessageOutput(run, text, known, stop, options["by"], applied.at_once, to_type("resume", run))
    if call.screen.wrote_json(done):
        return
    if applied.elsewhere:
        what = (
            f"{applied.note}: no new write begins before its code has received it" if applied.at_once else applied.note
        )
        call.screen.line(f"{safe(run)} has the message on record.")
        call.screen.line(sentence(what))
        return
    call.screen.line(f"{safe(run)} has the message on record. Its code receives it before its next write.")
    if applied.at_once:
        call.screen.next(done.next_step)


def _fact(given: str) -> tuple[str, object]:
    name, sign, value = given.partition("=")
    if not (name and sign):
        raise UsageError(f"{given!r} is not NAME=VALUE", next_step="write --fact NAME=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value
