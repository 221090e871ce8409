"""`beforehand answer` and `beforehand hand`: a person's answers to items of the inbox."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from typing import Final

import click
import msgspec

from beforehand.cli.apps import AnyTool, tools_at_hand
from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.control import about_contradicted
from beforehand.cli.dossier import show_dossier
from beforehand.cli.inputs import any_json, any_object, read_moment
from beforehand.control.command_ack import wait_until_applied
from beforehand.control.service import ControlService
from beforehand.engine.commands import Applied
from beforehand.engine.environment import SystemClock
from beforehand.errors import UsageError
from beforehand.model import records as r
from beforehand.model.ids import split_operation_id
from beforehand.model.operation import OperationState
from beforehand.model.shell import to_type
from beforehand.model.waits import brief
from beforehand.model.wording import shows_whole
from beforehand.people import answers as a
from beforehand.people.answering import OneOf, answer_all_idempotently, answer_idempotently
from beforehand.people.answering import answer as answer_item
from beforehand.people.dossier import Dossier, dossier, read_dossier
from beforehand.people.items import ItemFilter, items
from beforehand.people.loaded_item import SHORTEST, LoadedItem, load_item, refresh_item, split_item
from beforehand.people.typed_answers import Typed, answer_from_words, says_yes

_ENDS: Final = {"take_over", "abandon"}
"""The answers after which nothing of the run goes on."""


class AnswerOutput(msgspec.Struct, frozen=True):
    """The result of `answer --json`."""

    run: str
    question: str
    answer: str | int | float | bool
    by: str
    next_step: str


class BulkAnswerOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of several. `note`: a remark for its giver, such as that it came too late."""

    item: str
    answer: a.Answer
    shown: str
    note: str = ""


class AnswerOptions(msgspec.Struct, frozen=True):
    """The typed options: an answer in words, or by an option."""

    why: str = ""
    hours: float = a.HOURS
    edit: str | None = None
    stand_in: str | None = None
    ask: str | None = None
    evidence: str = ""
    result: str | None = None
    sent: int | None = None

    @property
    def by_option(self) -> bool:
        """True if an option gives the answer, so that no word does."""
        return any(one is not None for one in (self.edit, self.stand_in, self.ask))


@command(
    "answer",
    examples=(
        "beforehand answer 'trip-17/ask#1' Paris --by anna",
        "beforehand answer 'refund-9/refund#1' yes --shown 3f9c2a1b04de --by anna",
        "beforehand answer 'refund-9/refund#1' no --by anna --why 'they kept it'",
        """beforehand answer 'refund-9/refund#1' --edit '{"cents": 4000}' --by anna""",
        "beforehand answer 'refund-9/refund#1' --ask 'why not a voucher?' --by anna",
        "beforehand answer ticket-17/restock#1 happened --evidence 'it is there'",
        "beforehand answer ticket-17 resume --by anna",
        "beforehand answer --all --queue refunds yes --by anna",
    ),
)
@click.argument("words", nargs=-1, required=True, metavar="ITEM... [WORD]")
@click.option("--why", default="", metavar="TEXT", help="The reason; the agent receives the reason of a no.")
@click.option(
    "--hours", type=click.FloatRange(min=0, min_open=True), default=24.0, metavar="N",
    help="How long a yes holds if nothing is sent meanwhile. Default: 24.",
)  # fmt: skip
@click.option(
    "--edit", metavar="JSON", help="Propose these arguments instead, as an object; another person approves them."
)
@click.option("--stand-in", metavar="JSON", help="Give the tool's result yourself; nothing is sent.")
@click.option("--ask", metavar="TEXT", help="Ask the agent something instead; it may propose anew.")
@click.option("--evidence", default="", metavar="TEXT", help="For a review: how you know; it is recorded.")
@click.option("--result", metavar="JSON", help="With happened: what the call would have returned.")
@click.option(
    "--sent", type=click.IntRange(0), metavar="NUMBER",
    help="How many were sent of several calls that are alike: the first ones count as sent.",
)  # fmt: skip
@click.option(
    "--shown", default="", metavar="DIGEST", help="The digest of what you saw. A yes or a second order needs it."
)
@click.option(
    "--all", "everything", is_flag=True, help="Answer every approval that is not snoozed with WORD, all or none."
)
@click.option("--mine", default="", metavar="NAME", help="With --all: only items delegated to this person.")
@click.option("--queue", default="", metavar="Q", help="With --all: only items in this queue.")
@click.option(
    "--sure", is_flag=True, help="With several items: do not ask for confirmation; an approval also needs --shown."
)
@by_option
async def answer(
    call: CommandCall, words: tuple[str, ...], by: str, everything: bool, sure: bool, **options: str | float | None
) -> None:
    """Answer each ITEM (RUN/STEP), as `beforehand inbox` lists it.

    WORD depends on the item, and `beforehand inbox --item ITEM` lists those that fit: yes
    or no for an approval; the value for a question, checked against its choices or type,
    or take-over where the run was handed over; happened, did-not-happen, retry, give-up,
    same-key, compensate or abandon for a review; accept, retry or compensate for a parked
    transaction; resume, take-over or cancel for a run that stopped.

    The first answer is final. A yes covers exactly what was shown: at a terminal you read
    it and confirm, elsewhere --shown names it. If it changes before it is sent, you are
    asked again.

    With several items, every payload is shown first, and either all answers are recorded or
    none.
    """
    wanted = ItemFilter(str(options.pop("mine")), str(options.pop("queue")))
    shown = str(options.pop("shown"))
    meant = msgspec.convert(options, AnswerOptions)
    named, value = (words, "") if meant.by_option else (words[:-1], words[-1])
    if not everything and not named and "/" in value:
        raise UsageError(
            f"what is the answer to {value}?", next_step=f"see what it takes: {to_type('inbox', '--item', value)}"
        )
    if everything == bool(named):
        raise UsageError("name the items, or --all", next_step="see what waits: beforehand inbox")
    if everything or len(named) > 1:
        await _several(call, named, wanted, agreed=(sure, shown), meant=(value, meant), by=by)
        return
    for item in named:
        await _one(call, (item, shown), value, meant, by)


async def _one(call: CommandCall, seen: tuple[str, str], value: str, meant: AnswerOptions, by: str) -> None:
    """One answer; `seen` is the item and the digest of what was shown of it."""
    item, shown = seen
    tools = await _tools(call, item, meant)
    async with call.serving(tools) as service:
        about: Dossier | None = None
        if shown or meant.by_option or not says_yes(value):
            now = await load_item(service.reader, item)
        else:  # a yes without --shown is to what is shown here
            about, now = await read_dossier(service, item)
        given = _answer_of(now, value, meant)
        if about is not None and isinstance(given, a.Approve):
            shown = _read(call, about, by)
            if not shown:
                call.screen.line("No answer was given.")
                return
            now = await refresh_item(service.reader, now)
        applied = await wait_until_applied(
            service.engine, await answer_idempotently(service, now, given, by=by, shown=shown)
        )
        note, next_step = await _after(service, now, given, applied.run)
    _tell(call, AnswerOutput(applied.run, item, _shown(given, value), by, next_step), applied, note)


async def _after(service: ControlService, now: LoadedItem, given: a.Answer, run: str) -> tuple[str, str]:
    """A sentence about the consequences, where there is one, and the next command."""
    word = a.name_of(given)
    if isinstance(given, a.HappenedAnswer | a.DidNotHappenAnswer | a.CompensateAnswer):
        now = await refresh_item(service.reader, now)
        if now.contradicted and isinstance(now.subject, OperationState):
            return about_contradicted(now.item, now.subject.phase, word)
    return "", to_type("show" if word in _ENDS else "resume", run)


def _read(call: CommandCall, about: Dossier, by: str) -> str:
    """The digest of what a person at the terminal has just read and agreed to; empty where they did not.

    Raises `UsageError` without a terminal: a command that was printed earlier may be about something else.
    """
    item = about.item
    if about.open and not _at_terminal(call):
        raise UsageError(
            f"approving {item} needs the digest of what was shown",
            known=f"it asks: {about.asks}",
            next_step=to_type("answer", item, "yes", "--shown", brief(about.digest), "--by", by)
            if shows_whole(about.asks, about.tool, bytes(about.arguments))
            else f"see the rest, and the digest to give as --shown: {to_type('inbox', '--item', item)}",
        )
    show_dossier(call.screen, about)
    return about.digest if not about.open or click.confirm(f"Approve {item}, as shown?") else ""


def _at_terminal(call: CommandCall) -> bool:
    return not call.screen.as_json and sys.stdin.isatty() and sys.stdout.isatty()


async def _tools(call: CommandCall, item: str, meant: AnswerOptions) -> dict[str, AnyTool]:
    """The code that checks the typed input at once, where it can be found."""
    if meant.edit is None and meant.stand_in is None and meant.result is None:
        return {}
    return await tools_at_hand(call, split_operation_id(item)[0])


def _answer_of(now: LoadedItem, value: str, meant: AnswerOptions) -> a.Answer:
    """The answer that was meant: by an option, or by a word."""
    if meant.edit is not None:
        return a.Edit(any_object(meant.edit), meant.why)
    if meant.stand_in is not None:
        return a.StandIn(any_json(meant.stand_in), meant.why)
    if meant.ask is not None:
        return a.AskBack(meant.ask)
    result = r.NOTHING if meant.result is None else r.Raw(msgspec.json.encode(any_json(meant.result)))
    return answer_from_words(now, Typed(value, meant.why, meant.hours, meant.evidence, result, meant.sent))


def _shown(given: a.Answer, value: str) -> str | int | float | bool:
    match given:
        case a.ReplyAnswer():
            return given.value
        case a.Approve() | a.Decline():
            return isinstance(given, a.Approve)
        case _:
            return value.strip().lower() or a.name_of(given)


def _tell(call: CommandCall, done: AnswerOutput, applied: Applied, note: str) -> None:
    if call.screen.wrote_json(done):
        return
    if applied.lacks:
        call.screen.line(f"Recorded. It is checked and applied where the code of {applied.lacks} is.")
    else:
        shown = ("yes" if done.answer else "no") if isinstance(done.answer, bool) else done.answer
        call.screen.line(note or f"{done.question} is answered: {shown}, decided by {done.by}.")
    if applied.at_once and applied.note:
        call.screen.line(applied.note)
    else:
        call.screen.next(done.next_step)


# --- several at once -----------------------------------------------------------------------------------


async def _several(
    call: CommandCall,
    named: tuple[str, ...],
    wanted: ItemFilter,
    *,
    agreed: tuple[bool, str],
    meant: tuple[str, AnswerOptions],
    by: str,
) -> None:
    """Show every payload, ask once more, and give all answers or none.

    `agreed`: true to skip the question, and the digest of all that was shown before.
    """
    sure, shown = agreed
    if call.screen.as_json and not (sure or shown):
        raise UsageError("with --json no confirmation can be asked for", next_step="add --sure, or --shown for a yes")
    tools = {name: tool for item in named for name, tool in (await _tools(call, item, meant[1])).items()}
    async with call.serving(tools) as service:
        found = await items(service.reader, wanted, now_ms=SystemClock().wall_ms())
        chosen = named or tuple(one.item for one in found if one.kind == "approval" and not one.rests_ms)
        if not chosen:
            call.screen.line("No approval is waiting.")
            return
        words: list[OneOf] = []
        for item in chosen:
            about, now = await read_dossier(service, item)
            if not call.screen.as_json:
                show_dossier(call.screen, about)
            words.append(OneOf(item, _answer_of(now, *meant), about.digest, now))
        if not _agreed(call, words, sure=sure, shown=shown):
            call.screen.line("No answer was given.")
            return
        words = [await _refreshed(service, one) for one in words]
        notes = {one.run: one.note for one in await answer_all_idempotently(service, words, by=by) if one.alert}
    if call.screen.wrote_json(
        [BulkAnswerOutput(one.item, one.answer, one.shown, notes.get(split_item(one.item)[0], "")) for one in words]
    ):
        return
    subject = f"{len(words)} items are" if len(words) > 1 else f"{words[0].item} is"
    call.screen.line(f"{subject} answered, decided by {by}.")
    for run, note in notes.items():
        call.screen.line((f"{run}: {note}", "yellow"))
    call.screen.next("beforehand worker")


async def _refreshed(service: ControlService, one: OneOf) -> OneOf:
    """The same answer, with what its run recorded while a person read."""
    assert one.loaded is not None, one.item
    return msgspec.structs.replace(one, loaded=await refresh_item(service.reader, one.loaded))


def _agreed(call: CommandCall, words: Sequence[OneOf], *, sure: bool, shown: str) -> bool:
    """True if these answers are to be given. They approve the text shown, here or before under the digest of all."""
    together = hashlib.sha256("\n".join(sorted(f"{one.item} {one.shown}" for one in words)).encode()).hexdigest()
    if shown:
        if len(shown) < SHORTEST or not together.startswith(shown):
            raise UsageError(
                "these items have changed since they were shown, and none of the answers was recorded",
                next_step="give the same command without --shown, and read them again",
            )
        return True
    if any(_names_digest(one) for one in words) and (sure or not _at_terminal(call)):
        raise UsageError(
            "approving several items needs --shown, as a second order does, and none of the answers was recorded",
            next_step="read them with `beforehand inbox`" if call.screen.as_json
            else f"read them above, and give the same command with --shown {brief(together)}, without --sure",
        )  # fmt: skip
    ask = f"Give these {len(words)} answers?" if len(words) > 1 else "Give this answer?"
    return sure or click.confirm(ask)


def _names_digest(one: OneOf) -> bool:
    """True if what was shown has to be named: for a yes, a count, and what a person has had sent again."""
    subject = None if one.loaded is None else one.loaded.subject
    again = isinstance(subject, OperationState) and subject.approval.question_changed and not subject.wants_approval
    return again or isinstance(one.answer, a.Approve | a.HappenedTimes)


# --- handing over --------------------------------------------------------------------------------------


@command(
    "hand",
    examples=(
        "beforehand hand 'refund-9/refund#1' --to bea --why 'you know them'",
        "beforehand hand 'refund-9/refund#1' --queue fraud --urgent",
        "beforehand hand 'refund-9/refund#1' --until 2h",
    ),
)
@click.argument("item")
@click.option("--to", default="", metavar="NAME", help="Delegate it to this person.")
@click.option("--queue", default="", metavar="Q", help="Move it to this queue.")
@click.option("--until", default="", metavar="TIME", help="Snooze it: 2h, 1d, or a time in UTC.")
@click.option("--urgent", is_flag=True, help="Escalate it: it is listed first.")
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@by_option
async def hand(call: CommandCall, item: str, to: str, queue: str, until: str, **options: str | bool) -> None:
    """Delegate, snooze or escalate ITEM. Its run is not changed."""
    why, by = str(options["why"]), str(options["by"])
    if until and (to or queue or options["urgent"]):
        raise UsageError(
            "a snoozed item cannot be delegated or escalated in the same command", next_step="leave out --until"
        )
    given: a.Answer = a.Escalate(to, queue, why) if options["urgent"] else a.Delegate(to, queue, why)
    if until:
        given = a.Snooze(read_moment(until, SystemClock().wall_ms()), why)
    async with call.serving() as service:
        await answer_item(service, item, given, by=by)
        now = (await dossier(service, item)).handed
    if call.screen.wrote_json(now):
        return
    call.screen.line(f"{item}: {now.said[-1]}")
