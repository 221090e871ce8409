"""Planted bugs in what a policy decides, and in the history that it reads."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from beforehand.journal.port import Post
from beforehand.model.decision.moves import Settle
from beforehand.model.tool_history import HistoryEntry, history_entry, history_stream, past_of
from simulator.mutations.mutation import Mutant, always, replaced


def refused_in_vain(original: Any) -> Any:
    """What a policy refuses is sent all the same."""

    def ruled(case: Any) -> Any:
        move = original(case)
        return None if isinstance(move, Settle) else move

    return ruled


def one_is_enough(original: Any) -> Any:
    """How many people a policy wants to be asked is not looked at."""

    def terms(*args: Any, **named: Any) -> Any:
        return replace(original(*args, **named), people=1)

    return terms


def overruled(original: Any) -> Any:
    """What a policy lets leave is not asked about, whatever the tool itself says."""

    def gated(self: Any, contract: Any) -> bool:
        ruling = self.operation.judgement.ruling
        return bool(original(self, contract)) and (ruling is None or ruling.asks)

    return gated


def drawn_anew(_original: Any) -> Any:
    """Samples are drawn by luck: another time it is another one."""
    luck = count()

    def chance(_secret: bytes, _operation: str, _what: str) -> float:
        return next(luck) * 0.37 % 1

    return chance


def asked_in_vain(original: Any) -> Any:
    """What a policy asks about is not asked, unless the tool does."""

    def gate(case: Any) -> Any:
        return original(case) if case.situation.gate == "wanted" else None

    return gate


def counted_at_each_attempt(_original: Any) -> Any:
    """What is sent again counts again."""

    def posts(flight: Any, at: int) -> Any:
        operation = flight.operation
        entry = history_entry(operation.judgement.facts, "sent", flight.id, at)
        stream = (
            "" if entry is None else history_stream(operation.judgement.facts.tool, operation.judgement.facts.subject)
        )
        return () if entry is None else (Post(stream, "", msgspec.json.encode(entry)),)

    return posts


def of_the_same_run(_original: Any) -> Any:
    """The past of a subject is what this run knows of it."""

    async def past(driver: Any, subject: str, since_ms: int) -> Any:
        journal = driver.log.process.journal
        entries = await journal.entries(history_stream(driver.operation.intent.tool, subject))
        found = [msgspec.json.decode(entry.body, type=HistoryEntry) for entry in entries]
        own = [entry for entry in found if entry.operation.startswith(f"{driver.id.partition('/')[0]}/")]
        return past_of(own, since_ms)

    return past


def the_last_rule(original: Any) -> Any:
    """Of several rules that hold the last one decides."""

    def chosen(policy: Any, *more: Any) -> Any:
        return original(replace(policy, rules=policy.rules[::-1]), *more)

    return chosen


# --- the list ---------------------------------------------------------------------------------------------------------


POLICY: Final = (
    # What a policy says.
    Mutant(
        "nothing is judged",
        "writes are sent that no policy has judged",
        "beforehand.engine.situation:_policy",
        always(""),
    ),
    Mutant(
        "refused and sent",
        "what a policy refuses is sent",
        "beforehand.model.decision.send_rules:_BEFORE_FIRST",
        replaced("policy_ruling", refused_in_vain),
    ),
    Mutant(
        "ruled and not asked",
        "what a policy asks about is sent",
        "beforehand.model.decision.send_rules:_BEFORE_FIRST",
        replaced("_approval_wanted", asked_in_vain),
    ),
    Mutant("one is enough", "one person says yes where two have to", "beforehand.model.policy:terms", one_is_enough),
    Mutant(
        "a policy overrules a gate",
        "what a tool asks about is sent by a policy",
        "beforehand.engine.situation:_gate_wanted",
        overruled,
    ),
    Mutant(
        "drawn anew", "a sample is another one when it is drawn again", "beforehand.model.policy:chance", drawn_anew
    ),
    # What a policy knows of the past.
    Mutant("no history", "what was sent is not counted", "beforehand.engine.approvals:sent_posts", always(())),
    Mutant(
        "counted at each attempt",
        "what is sent again counts again",
        "beforehand.engine.approvals:sent_posts",
        counted_at_each_attempt,
    ),
    Mutant(
        "answers not counted",
        "the answers of people are not counted",
        "beforehand.engine.approvals:decision_posts",
        always(()),
    ),
    Mutant(
        "history of one run",
        "what other runs did is not counted",
        "beforehand.engine.approvals:_past",
        of_the_same_run,
    ),
    Mutant(
        "the last rule decides",
        "of several rules that hold the last one counts",
        "beforehand.model.policy:choose",
        the_last_rule,
    ),
)
"""By the promise that they break."""
