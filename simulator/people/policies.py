"""Policies of the simulated apps, the history they judge by, and the check that every write keeps its ruling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.outcome import REFUSED, Outcome
from beforehand.model.policy import Past, Policy, PolicyFacts, Rule, version_of
from simulator.checkers.approvals import arguments_in

if TYPE_CHECKING:
    from simulator.world import World


LIVE: Final = 9
TOOL: Final = "buy"
OFTEN: Final = 2
MUCH: Final = 1_500
READ_MS: Final = 1_000
"""Within that time the past is read and its ruling stamped, unless the process or the disk stands still meanwhile."""
HELD_UP_MS: Final = 150_000

SLOW: Final = timedelta(minutes=4)
RULES: Final[Mapping[bool, tuple[Rule, ...]]] = {
    newer: (
        Rule("refused before", f"tool == '{TOOL}' && history.declined > 0", "refuse"),
        Rule("a lot", f"tool == '{TOOL}' && history.amount + amount > {MUCH}.0", "two", within=SLOW),
        Rule("often", f"tool == '{TOOL}' && history.sent >= {OFTEN}", "auto" if newer else "ask", within=SLOW),
        Rule("approved before", f"tool == '{TOOL}' && history.approved > 0", "auto"),
        Rule("purchases", f"tool == '{TOOL}'", "ask", within=SLOW),
    )
    for newer in (False, True)
}
"""What older and newer code has to say about purchases, by what is known of the shop."""
AMOUNTS: Final = {TOOL: "double(arguments.cents)"}
SUBJECTS: Final = {TOOL: "arguments.thing"}


def rule_for(facts: PolicyFacts, *, newer: bool) -> Rule:
    """The rule that holds for a purchase, by what is on record as known about it."""
    past, amount = facts.history or Past(), facts.amount or 0.0
    holds = (past.declined > 0, past.amount + amount > MUCH, past.sent >= OFTEN, past.approved > 0, True)
    return next(rule for rule, held in zip(RULES[newer], holds, strict=True) if held)


class _Purchase:
    """One purchase, and who has said yes to it as it is asked about now."""

    def __init__(self, shop: str, cents: int) -> None:
        self.shop = shop
        self.cents = cents
        self.people = 1
        self.yes: set[str] = set()


class Pasts:
    """What is known of every shop of one simulation, and since when."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._purchases: dict[str, _Purchase] = {}
        self._pasts: defaultdict[str, list[tuple[int, Past]]] = defaultdict(lambda: [(-1, Past())])
        """By shop, each with the moment at which it came true."""

    def restored(self) -> None:
        """The records say less than they did."""
        self._purchases.clear()
        self._pasts.clear()

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        match record:
            case (
                r.OperationPlanned(intent=r.Intent(tool="buy") as intent)
                | r.ArgumentsEdited(intent=r.Intent(tool="buy") as intent)
            ):
                arguments = arguments_in(intent)
                purchase = _Purchase(arguments["thing"], int(arguments["cents"]))
                self._purchases[operation_id(run, record.step)] = purchase
            case r.OperationParked() | r.AttemptStarted() | r.ApprovalGranted() | r.ApprovalRefused():
                if (known := self._purchases.get(operation_id(run, record.step))) is not None:
                    self._done(known, record)
            case _:
                return

    def _done(self, known: _Purchase, record: r.Record) -> None:
        """Something happened that later purchases are judged by."""
        before = self._pasts[known.shop][-1][1]
        match record:
            case r.OperationParked(people=people):
                known.people, known.yes = people, set()
                return
            case r.AttemptStarted(number=1):
                after = replace(before, sent=before.sent + 1, amount=before.amount + known.cents)
            case r.ApprovalGranted(by=by):
                known.yes.add(by)
                after = replace(before, approved=before.approved + (len(known.yes) == known.people))
            case r.ApprovalRefused(code=""):
                after = replace(before, declined=before.declined + 1)
            case _:
                return
        self._pasts[known.shop].append((self._world.now_ms(), after))

    def judged(self, name: str, record: r.Ruled, facts: PolicyFacts) -> None:
        """A ruling is on record: what it knew of the past was so when it was made."""
        known = self._purchases[name]
        if (facts.subject, facts.amount) != (known.shop, known.cents):
            self._broken(LIVE, f"{name} is judged as {facts.amount} in {facts.subject}: {known.cents} in {known.shop}")
        stood_still = any(one.kind in {"pause", "slow"} for one in self._world.nemesis.struck)
        since = record.up - (HELD_UP_MS if stood_still else READ_MS)
        pasts = self._pasts[known.shop]
        ends = [*(at for at, _ in pasts[1:]), self._world.now_ms() + 1]
        possible = [past for (_, past), until in zip(pasts, ends, strict=True) if until > since]
        if facts.history not in possible:
            self._broken(LIVE, f"{name} is judged by {facts.history}, and what is on record is {possible}")
        self._world.reach.endings[f"past: {record.ruling.rule}"] += 1


# --- policies ---------------------------------------------------------------------------------------------------------


_QUICK: Final = timedelta(seconds=30)
TABLES: Final[Mapping[bool, Mapping[str, Rule]]] = {
    newer: {
        "note": Rule("notes", "", "ask" if newer else "refuse"),
        "charge": Rule("charges", "", "auto" if newer else "ask", within=SLOW),
        "order": Rule("orders", "", "two", within=SLOW),
        "pay": Rule("payments", "", "sample", rate=0.6 if newer else 0.4),
        "mail": Rule("letters", "", "sample", rate=0.4, shadow=0.5, within=SLOW),
        "ship": Rule("goods", "", "ask", within=_QUICK, on_expiry="hold"),
        "ticket": Rule("bugs", "", "ask", within=_QUICK, on_expiry="escalate", escalates_to="others"),
        "switch": Rule("switches", "", "ask" if newer else "auto"),
    }
    for newer in (False, True)
}
"""The rule for each tool, without its condition, as older and newer code has it; nothing else is asked about."""


def policy_of(newer: bool) -> Policy:
    """The policy of one version of the code."""
    rules = [
        Rule(
            one.name, f"tool == '{tool}'", one.then, within=one.within, on_expiry=one.on_expiry,
            escalates_to=one.escalates_to, rate=one.rate, shadow=one.shadow,
        )
        for tool, one in TABLES[newer].items()
    ]  # fmt: skip
    return Policy("desk", (*rules, *RULES[newer]), default="auto", amounts=AMOUNTS, subjects=SUBJECTS)


POLICIES: Final = {newer: policy_of(newer) for newer in (False, True)}
_VERSIONS: Final = {version_of(policy): newer for newer, policy in POLICIES.items()}


class Rulings:
    """Every ruling of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._ruled: dict[str, r.Ruled] = {}
        self._intents: dict[str, r.Intent] = {}
        self._pasts: Final = Pasts(world, broken)
        self._drawn: dict[tuple[str, str], tuple[bool, bool]] = {}
        """Whether an operation was drawn for a look before and after it, by policy: whatever else is forgotten."""

    def restored(self) -> None:
        """The records say less than they did."""
        self._ruled.clear()
        self._intents.clear()
        self._pasts.restored()

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        if not self._world.plan.policy:
            return
        self._pasts.heard(run, record)
        match record:
            case r.OperationPlanned(step=step, intent=intent):
                self._intents[operation_id(run, step)] = intent
            case r.Ruled(step=step):
                self._judged(operation_id(run, step), record)
            case r.ArgumentsEdited(step=step):
                self._ruled.pop(operation_id(run, step), None)  # what is sent instead is judged anew
            case r.AttemptStarted(step=step, number=1, intent=intent):
                name = operation_id(run, step)
                self._started(name, intent or self._intents[name])
            case _:
                return

    def _judged(self, name: str, record: r.Ruled) -> None:
        before, ruling = self._ruled.get(name), record.ruling
        if before is not None and before.policy == record.policy:
            self._broken(LIVE, f"{name} was judged twice by {record.policy}")
        if record.policy not in _VERSIONS:
            self._broken(LIVE, f"{name} was judged by {record.policy}, which is not the policy of any process")
            return
        rule = self._rule_for(name, record)
        asked_before = bool(ruling.why) and ruling.word == "ask"
        if ruling.word != rule.then and not asked_before:
            self._broken(LIVE, f"{name} is ruled {ruling.word}, and {record.policy} says {rule.then}")
        if ruling.word == "sample":
            self._sampled(name, record)
        self._ruled[name] = record
        self._reached("asked as before" if asked_before else ruling.word)

    def _rule_for(self, name: str, record: r.Ruled) -> Rule:
        """The rule that holds, by what was known when it was judged."""
        newer, tool = _VERSIONS[record.policy], self._intents[name].tool
        if tool == TOOL and record.facts is not None:
            self._pasts.judged(name, record, record.facts)
            return rule_for(record.facts, newer=newer)
        return TABLES[newer].get(tool, Rule("none", "", "auto"))

    def _sampled(self, name: str, record: r.Ruled) -> None:
        now = record.ruling.sampled, record.ruling.shadow
        drawn = self._drawn.setdefault((name, record.policy), now)
        if drawn != now:
            self._broken(14, f"{name} was drawn {drawn} by {record.policy}, and now {now}")
        self._reached("drawn" if record.ruling.sampled else "not drawn")

    def _started(self, name: str, intent: r.Intent) -> None:
        """A write is about to leave: it has its ruling, and that lets it. Whether people said yes is another matter."""
        ruling = self._ruled.get(name)
        if ruling is None and not intent.serves:
            self._broken(LIVE, f"{name} leaves, and no policy has judged it")
        elif ruling is not None and ruling.ruling.word == "refuse":
            self._broken(LIVE, f"{name} leaves, and the rule {ruling.ruling.rule} refuses it")

    def told(self, outcome: Outcome[Any]) -> None:
        """Agent code heard an outcome: that a policy refused it has to be true."""
        ruling = self._ruled.get(outcome.operation)
        if outcome.code == REFUSED and (ruling is None or ruling.ruling.word != "refuse"):
            self._broken(12, f"the agent heard that {outcome.operation} is refused, and no policy says so")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"ruling: {what}"] += 1
