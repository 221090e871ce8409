"""Planted bugs in transactions, deferred outcomes and plans."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from msgspec.structs import replace

from beforehand.control.service import DeliveryResult
from beforehand.errors import JournalError, UsageError
from beforehand.journal.port import Post
from beforehand.model.decision.evidence import EVIDENCE
from beforehand.model.decision.moves import Send, Settle
from beforehand.model.ids import stream
from simulator.generator.bodies import BODIES
from simulator.mutations.mutation import Mutant, always, never_mind, replaced


def settles_nothing_first(original: Any) -> Any:
    """What is on its way, or unknown, is taken for a success."""

    def back(boundary: Any, members: Any) -> Any:
        sure = [
            replace(member, operation=replace(member.operation, phase="succeeded"))
            if member.operation.attempts and member.operation.phase not in {"failed", "cancelled"}
            else member
            for member in members
        ]
        return original(boundary, [member for member in sure if member.operation.phase != "held"])

    return back


def any_order(original: Any) -> Any:
    """Nothing is known about what started after what."""

    def member(*args: Any) -> Any:
        return replace(original(*args), begun=0, ended=0)

    return member


def nothing_compensable(original: Any) -> Any:
    """No operation seems to have a compensation."""

    def member(*args: Any) -> Any:
        found = original(*args)
        return replace(found, contract=replace(found.contract, compensates=False))

    return member


def refusal_at_once(original: Any) -> Any:
    """One refused confirmation calls everything off, whatever the others do."""

    def confirm(boundary: Any, members: Any, **named: Any) -> Any:
        refused = [one for one in members if one.confirmation is not None and one.confirmation.phase == "failed"]
        return original(boundary, refused or members, **named)

    return confirm


def unknown_is_refused(original: Any) -> Any:
    """An unknown outcome is taken for a refusal on the way forward."""

    def forward(boundary: Any, members: Any) -> Any:
        sure = [
            replace(member, operation=replace(member.operation, phase="failed", reason="unknown"))
            if member.held and member.operation.phase == "unknown"
            else member
            for member in members
        ]
        return original(boundary, sure)

    return forward


def open_after_a_cancel(original: Any) -> Any:
    """The way back goes on by itself, also once a person has ended the run."""

    def way_back(operation: Any, inputs: Any) -> Any:
        return original(operation, inputs) and "open"

    return way_back


# --- deferred outcomes ------------------------------------------------------------------------------------------------


def counted_each_time(original: Any) -> Any:
    """The order that follows from a message has no name of its own."""

    def order(owner: Any, key: str, entry: Any) -> Any:
        post = original(owner, key, entry)
        return post if post is None else Post(post.stream, "", post.body)

    return order


def answers_mixed_up(_original: Any) -> Any:
    """Everything that comes is kept in one place, whatever it is about."""

    def arrived_stream(_key: str) -> str:
        return stream("arrived", "all")

    return arrived_stream


def key_of_another_taken(_original: Any) -> Any:
    """A key that another operation waits under serves this one as well."""

    def with_the_key(record: Any, _operation: str, _taken: Any) -> Any:
        return record

    return with_the_key


def acknowledged_unstored(original: Any) -> Any:
    """What the journal did not take is acknowledged all the same."""

    async def deliver(self: Any, key: str, arrival: Any) -> Any:
        try:
            return await original(self, key, arrival)
        except JournalError:
            return DeliveryResult(key, fresh=True)

    return deliver


def other_words_taken(original: Any) -> Any:
    """Other words under a known id are taken as well."""

    async def deliver(self: Any, key: str, arrival: Any) -> Any:
        try:
            return await original(self, key, arrival)
        except UsageError:
            return await original(self, key, replace(arrival, id=f"{arrival.id} again"))

    return deliver


def pending_is_final(original: Any) -> Any:
    """A word about progress is taken for a success."""

    def order(owner: Any, key: str, entry: Any) -> Any:
        body = entry.body.replace(b'"status":"pending"', b'"status":"succeeded","result":"half done"')
        return original(owner, key, replace(entry, body=body))

    return order


def sent_again(_original: Any) -> Any:
    """What was accepted is sent again while its answer is awaited."""

    def awaiting(case: Any) -> Any:
        return Send("no answer yet") if case.operation.phase == "awaiting" else None

    return awaiting


def failed_by_time(original: Any) -> Any:
    """An answer that does not come in time is taken for a refusal."""

    def awaiting(case: Any) -> Any:
        move = original(case)
        if isinstance(move, Settle) and move.status == "unknown":
            return Settle("given up", "failed", EVIDENCE, "no answer came")
        return move

    return awaiting


def refusal_is_success(original: Any) -> Any:
    """Whatever answer comes, it is a success."""

    def order(owner: Any, key: str, entry: Any) -> Any:
        body = entry.body.replace(b'"status":"failed"', b'"status":"succeeded","result":"so it seems"')
        return original(owner, key, replace(entry, body=body))

    return order


def about_anything(original: Any) -> Any:
    """What is pending is kept in one place for a tool, whatever it is about."""

    def thing_stream(tool: str, _about: str) -> Any:
        return original(tool, "anything")

    return thing_stream


def never_released(_original: Any) -> Any:
    """The outcome of what was pending releases nothing."""

    def releasing_posts(_operation: str, _settled: Any) -> tuple[Any, ...]:
        return ()

    return releasing_posts


# --- plans ------------------------------------------------------------------------------------------------------------


def chosen_in_memory_only(_original: Any) -> Any:
    """What is chosen, and why, goes into no record."""

    async def chose(self: Any, chosen: Any) -> None:
        self._chosen[chosen.step] = chosen

    return chose


def next_one_unless_it_succeeded(_original: Any) -> Any:
    """Whatever a call came to, the next one is tried."""

    async def after_failure(*_args: Any) -> None:
        return

    return after_failure


def never_called_off(original: Any) -> Any:
    """No condition calls a plan off."""

    def holds(self: Any, step: Any, condition: str, *, after: bool = False) -> Any:
        return False if after else original(self, step, condition)

    return holds


def not_waiting(_original: Any) -> Any:
    """Steps wait for nothing but what they refer to."""

    def waits_for(self: Any, step: Any) -> tuple[str, ...]:
        del self, step
        return ()

    return waits_for


# --- the list ---------------------------------------------------------------------------------------------------------


TOGETHER: Final = (
    # Transactions.
    Mutant("held effect sent at once", "a held effect does not wait", "beforehand.engine.steps:_holder_of", always("")),
    Mutant(
        "compensated too early",
        "what is on its way or unknown is compensated",
        "beforehand.model.saga:_back",
        settles_nothing_first,
    ),
    Mutant(
        "compensations in any order",
        "compensations do not wait for later ones",
        "beforehand.engine.transactions:Members._member",
        any_order,
    ),
    Mutant("never confirmed", "reservations are not confirmed", "beforehand.model.saga:_confirm", always(None)),
    Mutant(
        "nothing undone",
        "what landed is not compensated",
        "beforehand.engine.transactions:Members._member",
        nothing_compensable,
    ),
    Mutant(
        "called off and sent",
        "what is called off is still sent",
        "beforehand.model.run_history:Boundaries.called_off",
        always(None),
    ),
    Mutant(
        "body decides again",
        "after a crash the body's own end decides, not the record",
        "beforehand.engine.transactions:resume_closing",
        always(None),
    ),
    Mutant(
        "turned back at once",
        "a commit turns back while another confirmation is on its way",
        "beforehand.model.saga:_confirm",
        refusal_at_once,
    ),
    Mutant(
        "unknown is refused",
        "a commit turns back while it is unknown whether a held effect was sent",
        "beforehand.model.saga:_forward",
        unknown_is_refused,
    ),
    Mutant(
        "held and forgotten",
        "what is released or cancelled at the end of a transaction has no driver",
        "beforehand.engine.transactions:_drive_held",
        always(None),
    ),
    Mutant(
        "left to a person",
        "a call of an aborted transaction is not sent again under its key",
        "beforehand.model.decision.decide:_settled_under_key",
        always(False),
        from_seed=BODIES,
    ),
    Mutant(
        "sent again after a cancel",
        "a call of an aborted transaction is sent again though a person has ended the run",
        "beforehand.engine.situation:_way_back",
        open_after_a_cancel,
        from_seed=BODIES,
    ),
    Mutant(
        "the caller of an end is not noted",
        "a caller that leaves a transaction while it is closed has its end before it on replay",
        "beforehand.engine.transactions:_leaving",
        always(contextlib.nullcontext()),
        from_seed=BODIES,
    ),
    # Outcomes that come later.
    Mutant(
        "answers mixed up",
        "any answer counts for any operation",
        "beforehand.engine.deferred:arrived_stream",
        answers_mixed_up,
    ),
    Mutant(
        "an answer counted each time",
        "a message that comes again is a new one",
        "beforehand.engine.deferred:_answer_command",
        counted_each_time,
    ),
    Mutant(
        "early answers forgotten",
        "what came before it was awaited is not read",
        "beforehand.engine.executor:collect_answers",
        never_mind,
    ),
    Mutant(
        "number of another taken",
        "two operations wait under one number",
        "beforehand.engine.deferred:_without_the_key",
        key_of_another_taken,
    ),
    Mutant(
        "acknowledged unstored",
        "a webhook is acknowledged that the journal did not take",
        "beforehand.control.service:ControlService.deliver",
        acknowledged_unstored,
    ),
    Mutant(
        "changed message accepted",
        "a known message may arrive again with another text",
        "beforehand.control.service:ControlService.deliver",
        other_words_taken,
    ),
    Mutant(
        "progress is success",
        "a report of progress counts as the answer",
        "beforehand.engine.deferred:_answer_command",
        pending_is_final,
    ),
    Mutant(
        "refusal is success",
        "an answer that says no counts as yes",
        "beforehand.engine.deferred:_answer_command",
        refusal_is_success,
    ),
    Mutant(
        "accepted and sent again",
        "what is pending is sent again",
        "beforehand.model.decision.decide:_OPEN",
        replaced("_awaiting", sent_again),
    ),
    Mutant(
        "failed by time alone",
        "no answer in time counts as a refusal",
        "beforehand.model.decision.decide:_OPEN",
        replaced("_awaiting", failed_by_time),
    ),
    Mutant(
        "deadline ignored",
        "an answer is awaited for ever",
        "beforehand.model.decision.decide:answer_left_ms",
        always(60_000),
    ),
    Mutant(
        "pending asked for again",
        "a further call about what is only accepted is sent",
        "beforehand.engine.conflicts:find_pending",
        never_mind,
    ),
    Mutant(
        "pending about anything",
        "whatever is pending holds back every call of its tool",
        "beforehand.engine.conflicts:thing_stream",
        about_anything,
    ),
    Mutant(
        "pending never released",
        "the outcome of a pending thing does not release the calls that it holds back",
        "beforehand.engine.conflicts:releasing_posts",
        never_released,
    ),
    # Restored journals.
    Mutant(
        "restored and trusted",
        "a restored journal sends before a person has confirmed it",
        "beforehand.model.decision.send_rules:_OBSTACLES_AT_FIRST",
        replaced("_journal_distrusted", always(None)),
    ),
    Mutant(
        "restore forgotten",
        "what is missing in an old journal is sent again unread",
        "beforehand.model.decision.send_rules:_BEFORE_FIRST",
        replaced("_check_first", always(None)),
    ),
    Mutant(
        "old journal believed",
        "what is missing in an old journal counts as unsent",
        "beforehand.model.decision.decide:look_for_forgotten",
        always(Settle("sending ended, nothing landed", "failed")),
    ),
    # Plans.
    Mutant(
        "fallback on unknown",
        "a fallback is tried while the primary is unknown",
        "beforehand.planning.executor:PlanExecution._after_failure",
        next_one_unless_it_succeeded,
    ),
    Mutant(
        "a choice not journaled",
        "what was chosen, and why, is in no record",
        "beforehand.planning.executor:PlanExecution._chose",
        chosen_in_memory_only,
    ),
    Mutant(
        "plan never called off",
        "conditions that end a plan are not evaluated",
        "beforehand.planning.executor:PlanExecution._holds",
        never_called_off,
    ),
    Mutant(
        "steps do not wait",
        "a step of a plan begins before what it waits for is over",
        "beforehand.model.plan:Plan.waits_for",
        not_waiting,
    ),
)
"""By the promise that they break."""
