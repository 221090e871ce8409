"""Standing permissions: what people allow in advance and take back, and the check that no more leaves on it than that.

As the checker, it reads what people said, the durable records, and the ledger; it never asks the product.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.control.service import ControlService
from beforehand.model import records as r
from beforehand.model.standing_permission import GIVEN, StandingPermission, Use, uses_stream
from beforehand.people.standing_permissions import add_standing, revoke_standing
from beforehand.testing.clock import EPOCH_MS
from beforehand.testing.loop import Actor
from simulator.checkers.approvals import arguments_in
from simulator.people.approvers import HARDLY_MS, Errand
from simulator.plan import Permit

if TYPE_CHECKING:
    from simulator.world import World

LIVE: Final = 9
AGAIN_MS: Final = 1_000
EARLY_MS: Final = HARDLY_MS // 2
"""As for approvals: a permission closes early by the error of the clocks; half of that is for the way to the record."""


class _Used(msgspec.Struct, frozen=True):
    """An attempt that left on a permission."""

    operation: str
    tool: str
    cents: int
    at: int


class Permits:
    """Everything that is allowed in advance in one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._terms: list[StandingPermission] = []
        """What people gave, by its terms: each may be on record several times, for who is not heard says it again."""
        self._used: defaultdict[str, list[_Used]] = defaultdict(list)
        self._revoked: set[str] = set()
        """Those whose end was acknowledged."""

    def restored(self) -> None:
        """What was spent since is forgotten, and so may be what was taken back."""
        self._used.clear()
        self._revoked.clear()

    # --- people ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let people give what the plan has for them."""
        for permit in self._world.plan.permits:
            self._world.later(permit.given_ms, functools.partial(self._give, permit))

    def _give(self, permit: Permit) -> None:
        until = EPOCH_MS + self._world.now_ms() + self._world.skew_ms + permit.lasts_ms
        where = f"cents <= {permit.most}" if permit.most else "true"
        amount = "cents" if permit.total else ""
        terms = StandingPermission("", permit.tool, permit.by, until, where, permit.times, permit.total, amount)
        self._terms.append(terms)

        async def given(service: ControlService) -> None:
            named = await add_standing(service.engine, terms)
            if permit.revoked_ms:
                self._revoke(named, permit.revoked_ms)

        Errand(self._world, f"{permit.by} allow {permit.tool}", given, self._told("given"), again_ms=AGAIN_MS).begin(0)

    def _revoke(self, named: StandingPermission, after_ms: int) -> None:
        async def taken_back(service: ControlService) -> None:
            await revoke_standing(service.engine, named.id, by=named.by)
            self._revoked.add(named.id)

        what = f"{named.by} take back {named.id}"
        Errand(self._world, what, taken_back, self._told("revoked"), again_ms=AGAIN_MS).begin(after_ms)

    def _told(self, what: str) -> Callable[[Actor, bool], None]:
        def told(_actor: Actor, refused: bool) -> None:
            if not refused:
                self._reached(what)

        return told

    # --- events ----------------------------------------------------------------------------------------------

    def used(self, name: str, record: r.AttemptStarted, intent: r.Intent | None) -> None:
        """An attempt that leaves on a permission is on record."""
        assert intent is not None, name
        cents = arguments_in(intent).get("cents", "0")
        if record.standing in self._revoked:
            self._broken(LIVE, f"{name} leaves on {record.standing}, and that was revoked before")
        self._used[record.standing].append(_Used(name, intent.tool, int(cents), record.at))
        self._reached("used")

    # --- at the end of time ----------------------------------------------------------------------------------

    async def at_the_end(self) -> None:
        """Each permission was given by a person, and covers all calls that were sent under it."""
        journal = self._world.journal
        given = {
            one.id: one
            for one in [msgspec.json.decode(e.body, type=StandingPermission) for e in await journal.entries(GIVEN)]
        }
        for permission, uses in self._used.items():
            standing = given.get(permission)
            if standing is None or msgspec.structs.replace(standing, id="") not in self._terms:
                self._broken(LIVE, f"{uses[0].operation} was sent under {permission}, which was never given")
                continue
            self._within(standing, uses)
            counted = [msgspec.json.decode(e.body, type=Use) for e in await journal.entries(uses_stream(permission))]
            if sorted(one.operation for one in uses) != sorted(one.operation for one in counted if one.operation):
                self._broken(LIVE, f"{permission} counts other uses than there were: {counted}")

    def _within(self, standing: StandingPermission, uses: list[_Used]) -> None:
        most = int(standing.where.rpartition(" ")[2]) if standing.where != "true" else None
        for use in uses:
            if use.tool != standing.tool or (most is not None and use.cents > most):
                self._broken(LIVE, f"{use.operation} spends {use.cents}, and {standing.id} is for {standing.where}")
            if use.at >= standing.until_ms - EARLY_MS:
                self._broken(LIVE, f"{use.operation} left on {standing.id} after its end")
        if standing.times and len(uses) > standing.times:
            self._broken(LIVE, f"{standing.id} was used {len(uses)} times, and {standing.times} are allowed")
        spent = sum(use.cents for use in uses)
        if standing.total and spent > standing.total:
            self._broken(LIVE, f"{spent} left on {standing.id}, and {standing.total:g} are allowed")
        if len(uses) == standing.times or (standing.total and spent > standing.total // 2):
            self._reached("used up")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"permission: {what}"] += 1
