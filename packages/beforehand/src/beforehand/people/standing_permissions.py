"""Standing permissions: given, listed with what is spent of them, and revoked. The ledger holds all of it."""

from __future__ import annotations

from math import isfinite
from typing import Final

import msgspec

from beforehand.agent.conditions import ConditionError, checked, holds
from beforehand.control.input_checks import checked_by
from beforehand.engine.approvals import permission_usage, standing_permissions, use_post
from beforehand.engine.engine import Engine
from beforehand.engine.tool_protocol import ToolCode
from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post
from beforehand.model.names import same_person
from beforehand.model.shell import to_type
from beforehand.model.standing_permission import GIVEN, Spent, StandingPermission, Use, why_not

_REPEAT_MS: Final = 600_000  # `--until 7d` names another moment each time that it is typed
_TRIES: Final = 1000  # of taking the next number, while others take it: each of them got further meanwhile


class ListedPermission(msgspec.Struct, frozen=True):
    """A permission and its use. `ended` says why it covers nothing any more; empty while it does."""

    standing: StandingPermission
    spent: Spent
    ended: str = ""


async def add_standing(engine: Engine, wanted: StandingPermission) -> StandingPermission:
    """Give a permission under a new id; durable on return. Raises `UsageError` for one that could never be used.

    The same one again, unused and from the same person within ten minutes, is a repeat of the command: see `_repeated`.
    """
    now_ms = engine.wall_ms()
    _check(engine, wanted, now_ms)
    for one in await list_standing(JournalReader(engine.journal, engine.identity), now_ms, wanted.tool):
        if _repeated(one, wanted):
            return one.standing
    named = msgspec.structs.replace(wanted, id=f"s-{engine.environment.rng.token()[:8]}")
    entry = await engine.journal.commit(Post(GIVEN, named.id, written(named)))
    return named if entry.fresh else await add_standing(engine, wanted)


def _repeated(one: ListedPermission, wanted: StandingPermission) -> bool:
    """True if this permission exists already and is unused, as when the command is repeated after a crash."""
    before = one.standing
    alike = msgspec.structs.replace(before, id=wanted.id, until_ms=wanted.until_ms) == wanted
    soon = abs(before.until_ms - wanted.until_ms) <= _REPEAT_MS
    return alike and soon and not one.ended and not one.spent.times


def _check(engine: Engine, wanted: StandingPermission, now_ms: int) -> None:
    checked_by(wanted.by, "a standing permission")
    if wanted.until_ms <= now_ms + engine.settings.clock_error_ms:
        raise UsageError("the end of the permission is in the past", next_step="choose a time in the future")
    if wanted.times < 0 or wanted.total < 0:
        raise UsageError("a limit cannot be negative", next_step="leave it out for no limit")
    if not isfinite(wanted.total):
        raise UsageError(f"{wanted.total} is not a limit", next_step="give a positive number, or leave it out")
    if wanted.total and not wanted.amount:
        raise UsageError(f"a total of {wanted.total:g}, of what?", next_step="name the parameter: --amount cents")
    tool = engine.tools.get(wanted.tool)
    if tool is None:
        _parsed(wanted.where)
    else:
        _fits(tool, wanted)


def _fits(tool: ToolCode, wanted: StandingPermission) -> None:
    """Check its parameters, if the tool's code is at hand: a permission that names another one covers no call."""
    known = sorted(tool.spec.judged)
    try:
        checked(wanted.where, known)
    except ConditionError as error:
        raise UsageError(f"where={wanted.where!r}: {error.message}", next_step="name parameters of the tool") from error
    if wanted.amount and wanted.amount not in known:
        raise UsageError(f"{wanted.tool} has no parameter {wanted.amount}", known=f"it has: {', '.join(known)}")


def _parsed(condition: str) -> None:
    """The tool's code need not be here, so its parameters are not known; but it has to be a condition."""
    try:
        holds(condition, {})
    except ConditionError as error:
        if "cannot be evaluated here" not in error.message:
            raise


async def list_standing(reader: JournalReader, now_ms: int, tool: str = "") -> list[ListedPermission]:
    """Every permission that was ever given (for `tool`, where one is named), the oldest first."""
    found: list[ListedPermission] = []
    for standing in await standing_permissions(reader.journal):
        if tool and standing.tool != tool:
            continue
        spent = await permission_usage(reader.journal, standing.id)
        found.append(ListedPermission(standing, spent, why_not(standing, spent, 0, now_ms)))
    return found


async def revoke_standing(engine: Engine, permission: str, *, by: str, why: str = "") -> Spent:
    """End a permission: no further call is sent under it. Returns its last state. Raises `UsageError`.

    The end takes the next number of its uses, so nothing is sent under it after this returned.
    """
    known = {one.id: one for one in await standing_permissions(engine.journal)}
    if permission not in known:
        names = ", ".join(known) or "none"
        raise UsageError(f"standing permission {permission} does not exist", known=f"permissions: {names}")
    for _ in range(_TRIES):
        spent = await permission_usage(engine.journal, permission)
        if spent.revoked_by and same_person(spent.revoked_by, by):
            return spent  # given again, as after a crash
        if spent.revoked_by:
            raise UsageError(f"{permission} was revoked by {spent.revoked_by} already")
        end = use_post(permission, spent, Use(sum=spent.sum, revoked_by=checked_by(by), note=why))
        if (await engine.journal.commit(end)).fresh:
            return spent
    raise UsageError(
        f"{permission} is used too fast to be revoked",
        next_step=f"pause its tool, and try again: {to_type('pause', '--tool', known[permission].tool)}",
    )
