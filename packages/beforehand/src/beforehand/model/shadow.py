"""Calls that a policy sends without a person, and draws for a shadow review: a person looks at them afterwards.

Each is a stream of the ledger, whose first entry goes with the ruling and holds the call. The reviews themselves are of
the console. The run is not touched.
"""

from __future__ import annotations

from typing import Final

import msgspec

from beforehand.model.ids import stream

SHADOW: Final = "shadow/"
"""The ledger streams of these calls: the name of the operation follows."""
_SHOWN: Final = 300


class Traits(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The traits by which an operation is grouped. None: not stated.

    `stratum` is what a sample was drawn from, and empty where nothing was drawn; `rule` is the rule that decided.
    """

    tool: str
    agent: str = ""
    confidence: float | None = None
    amount: float | None = None
    stratum: str = ""
    rule: str = ""


class Left(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operation that was drawn when it was sent: the call, and its traits."""

    run: str
    step: str
    asks: str
    traits: Traits


def shadow_stream(run: str, step: str) -> str:
    """The ledger stream of one such call."""
    return stream("shadow", run, step)


def asked_afterwards(tool: str, arguments: str) -> str:
    """The question to a person."""
    shown = arguments if len(arguments) <= _SHOWN else arguments[:_SHOWN] + "..."
    return f"was it right that {tool} {shown} was sent without a person?"
