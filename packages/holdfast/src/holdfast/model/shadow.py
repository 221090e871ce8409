"""Shadow reviews: a share of the calls sent unattended is reviewed by a person afterwards.

Each is a stream of the ledger: the first entry holds the call, the next one the judgement. The run is not touched.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from holdfast.model.ids import stream

SHADOW: Final = "shadow/"
"""How the item of a shadow review and its stream begin; the name of the operation follows."""
SAID: Final = "said"
"""The key of the judgement that counts: the first one."""
Word = Literal["right", "wrong"]
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


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person's judgement afterwards. `via` is how their name is known."""

    word: Word
    by: str
    note: str = ""
    via: str = ""


def shadow_stream(run: str, step: str) -> str:
    """The ledger stream of one shadow review."""
    return stream("shadow", run, step)


def shadow_item(run: str, step: str) -> str:
    """The name of the item."""
    return f"{SHADOW}{run}/{step}"


def asked_afterwards(tool: str, arguments: str) -> str:
    """The question to a person."""
    shown = arguments if len(arguments) <= _SHOWN else arguments[:_SHOWN] + "..."
    return f"was it right that {tool} {shown} was sent without a person?"
