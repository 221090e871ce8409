"""Permissions and roles: one table of who may do what, and where, and the pure functions that read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

import msgspec

from beforehand.errors import NotAllowed
from beforehand.model.names import is_among
from beforehand.webhooks.access_log import Via

Role = Literal["submitter", "viewer", "answerer", "operator", "admin"]
"""From less to more: each role has the permissions of those before it. Viewers and answerers may not submit, though."""

Permission = Literal["look", "answer", "hand", "resolve", "stand", "order", "tell", "submit", "tune", "administer"]
"""A permission of a person or program. The names mean:

look: see items, runs and figures · answer: approve, decline, answer a question · hand: delegate, snooze, escalate ·
resolve: say what happened to an effect · stand: give or revoke a standing permission · order: cancel, pause, undo,
let a run that stopped go on · tell: interrupt a run · submit: submit a run to a queue ·
tune: change a policy or a threshold · administer: accounts, tokens, the record of access.
"""

ROLES: Final[tuple[Role, ...]] = get_args(Role)

REQUIRED_ROLES: Final[dict[Permission, Role]] = {
    "look": "viewer",
    "answer": "answerer",
    "hand": "answerer",
    "resolve": "operator",
    "stand": "operator",
    "order": "operator",
    "tell": "operator",
    "submit": "operator",
    "tune": "admin",
    "administer": "admin",
}


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A role, and where it holds.

    `tools` and `queues` narrow it: with both, an item has to be of one of the tools *and* in one of the queues. Empty
    means everywhere. An item without a tool (a question) is outside a grant that names tools.
    """

    role: Role
    tools: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()

    def is_enough(self, permission: Permission) -> bool:
        """True if the role has the permission, wherever it holds. A submitter may submit, and nothing else."""
        if self.role == "submitter":
            return permission == "submit"
        return ROLES.index(self.role) >= ROLES.index(REQUIRED_ROLES[permission])

    def allows(self, permission: Permission, tool: str, queue: str) -> bool:
        """True if it covers this permission at this place."""
        here = (not self.tools or tool in self.tools) and (not self.queues or queue in self.queues)
        return here and self.is_enough(permission)

    def __str__(self) -> str:
        tools = f" of {', '.join(self.tools)}" if self.tools else ""
        queues = f" in {', '.join(self.queues)}" if self.queues else ""
        return self.role + tools + queues


class Principal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person or program, as one request knows it.

    `grants` are those of the account, as they are now. `limits` are those of the token that was shown: if there are
    any, both have to allow it; with `tenants`, it submits for no other. `proven_ms` is when a password was last proven
    (wall clock; 0: not in this session), `session` names the session in the record of access.
    """

    name: str
    grants: tuple[Grant, ...] = ()
    via: Via = "typed"
    limits: tuple[Grant, ...] = ()
    proven_ms: int = 0
    session: str = ""
    tenants: tuple[str, ...] = ()


def may(principal: Principal, permission: Permission, tool: str = "", queue: str = "") -> bool:
    """True if this permission is held for this tool in this queue; if neither is given, for everything."""
    return _covers(principal.grants, permission, tool, queue) and (
        not principal.limits or _covers(principal.limits, permission, tool, queue)
    )


def may_somewhere(principal: Principal, permission: Permission) -> bool:
    """True if this permission is held at some place; if not, no list is shown."""
    return _enough(principal.grants, permission) and (not principal.limits or _enough(principal.limits, permission))


def typed(name: str) -> Principal:
    """A user who types a name on the command line: not checked, as they can write the journal's file anyway."""
    return Principal(name, (Grant("admin"),))


def _covers(grants: tuple[Grant, ...], permission: Permission, tool: str, queue: str) -> bool:
    return any(grant.allows(permission, tool, queue) for grant in grants)


def _enough(grants: tuple[Grant, ...], permission: Permission) -> bool:
    return any(grant.is_enough(permission) for grant in grants)


# May this person give this answer? Checked before every answer.


class PermissionScope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target of a permission check: the name of an item, its tool and its queue."""

    item: str
    tool: str = ""
    queue: str = ""


def check_permission(principal: Principal, permission: Permission, about: PermissionScope) -> None:
    """Refuse a principal without permission. Raises `NotAllowed`, which names the missing role and never who has it."""
    if not may(principal, permission, about.tool, about.queue):
        where = "".join((f" for {about.tool}" if about.tool else "", f" in {about.queue}" if about.queue else ""))
        raise NotAllowed(
            f"{principal.name} lacks the permission {permission!r} for {about.item}",
            known=f"this requires the role {REQUIRED_ROLES[permission]}{where}",
            next_step="ask an admin for the role, or let a person who has it do this",
        )


def check_answerer(
    principal: Principal, about: PermissionScope, proposers: Iterable[str] = (), permission: Permission = "answer"
) -> None:
    """Refuse an answer of a person who may not give it, or who proposed what is to be approved. Raises `NotAllowed`.

    `proposers` are the people whose proposal the operation is: who started the run, and who edited its arguments. It
    holds for every role: an admin does not approve their own proposal either.
    """
    check_permission(principal, permission, about)
    if is_among(principal.name, proposers):
        raise NotAllowed(
            f"{principal.name} proposed {about.item} and cannot approve it",
            known="a person cannot approve their own proposal",
            next_step="another person has to approve it; if there is none, decline it and say what is wanted",
        )
