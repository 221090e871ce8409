"""The past that a policy judges by: what was bought in each shop, as the durable records tell it, over all runs.

As the checker, it reads the durable records, and a table of its own of what the policy says; it never asks the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from holdfast.model import records as r
from holdfast.model.ids import operation_id
from holdfast.model.policy import Facts, Past, Rule
from simulator.approval_checker import arguments_in

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


def rule_for(facts: Facts, *, newer: bool) -> Rule:
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

    def judged(self, name: str, record: r.Ruled, facts: Facts) -> None:
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
