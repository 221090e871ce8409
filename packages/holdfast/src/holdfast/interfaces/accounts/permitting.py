"""May this person give this answer? What every face asks before it takes one."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.errors import NotAllowed
from holdfast.interfaces.accounts.roles import NEEDS, Deed, Principal, may
from holdfast.model.names import is_among


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a deed is about, as far as permission depends on it: an item's name, its tool and its queue."""

    item: str
    tool: str = ""
    queue: str = ""


def checked_deed(principal: Principal, deed: Deed, about: About) -> None:
    """Refuse who may not. Raises `NotAllowed`, which names the role that is missing and never who has it."""
    if not may(principal, deed, about.tool, about.queue):
        where = "".join((f" for {about.tool}" if about.tool else "", f" in {about.queue}" if about.queue else ""))
        raise NotAllowed(
            f"{principal.name} may not {deed} {about.item}",
            known=f"that takes the role {NEEDS[deed]}{where}",
            next_step="ask an admin for it, or leave it to somebody who has it",
        )


def checked_answerer(principal: Principal, about: About, proposers: Iterable[str] = (), deed: Deed = "answer") -> None:
    """Refuse an answer of a person who may not give it, or who proposed what is to be approved. Raises `NotAllowed`.

    `proposers` are the people whose proposal the operation is: who started the run, and who edited its arguments. It
    holds for every role: an admin does not approve their own proposal either.
    """
    checked_deed(principal, deed, about)
    if is_among(principal.name, proposers):
        raise NotAllowed(
            f"{principal.name} proposed {about.item} and cannot approve it",
            known="who proposes does not approve",
            next_step="leave it to another person; if there is none, decline it and say what is wanted",
        )
