"""Shadow reviews: a share of what left without a person is put before one afterwards, who says whether that was right.

Each is a stream of the ledger: the first entry says what left, the next one what a person says. The run is not touched.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from holdfast.model.ids import stream

SHADOW: Final = "shadow/"
"""How an item begins that is a shadow review, and its stream; the name of the operation follows."""
SAID: Final = "said"
"""The key of the word that counts: the first one."""
Word = Literal["right", "wrong"]
_SHOWN: Final = 300


class Traits(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What an operation is grouped by. None is what nobody stated.

    `stratum` is what a sample was drawn from, and empty where nothing was drawn; `rule` is the rule that decided.
    """

    tool: str
    agent: str = ""
    confidence: float | None = None
    amount: float | None = None
    stratum: str = ""
    rule: str = ""


class Left(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operation that was drawn when it left: the call, and what it is grouped by."""

    run: str
    step: str
    asks: str
    traits: Traits


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person says about it afterwards. `via` is how their name is known."""

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
    """What a person is asked."""
    shown = arguments if len(arguments) <= _SHOWN else arguments[:_SHOWN] + "..."
    return f"was it right that {tool} {shown} left without a person?"
