"""The records of a message: that one came for a run, and where its code heard it."""

from __future__ import annotations

from typing import TypeAlias

from holdfast.model.records_common import Stamped
from holdfast.model.records_operation import Reported


class MessageReceived(Stamped, frozen=True):
    """Somebody told the run something: no new write begins until its code has heard it. `stop`: none begins at all.

    `facts` are what is so, other than the run believed. `entry` is the ledger entry that the message is.
    """

    text: str
    by: str
    facts: tuple[Reported, ...] = ()
    stop: bool = False
    entry: int = 0


class MessageHeard(Stamped, frozen=True):
    """The code was told these messages at this step, by their ledger entries; replay tells it the same there."""

    step: str
    messages: tuple[int, ...] = ()


MessageRecord: TypeAlias = MessageReceived | MessageHeard
