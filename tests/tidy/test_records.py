"""Every kind of record changes the state of its run, and is shown to a person.

Both are `match` statements with a last case, so neither the type checker nor a reader notices a kind that they lack.
"""

import re
from pathlib import Path
from typing import get_args

import beforehand
from beforehand.model import records

PACKAGE = Path(beforehand.__file__).parent
KINDS = [kind.__name__ for kind in get_args(records.Record)]
FOLDED = ("model/run_history.py", "model/transitions.py", "model/transaction.py")
SHOWN = ("inspect/timeline.py", "inspect/render_records.py")
SHOWN_ELSEWHERE = {
    "RunStarted",  # the head of `beforehand show`
    "ContractStored",  # with the operations that are made under it
    "ReservationSettled",  # in the sums of `beforehand budget`
}


def not_named_in(files: tuple[str, ...]) -> set[str]:
    text = "\n".join((PACKAGE / one).read_text(encoding="utf-8") for one in files)
    return {kind for kind in KINDS if not re.search(rf"\b{kind}\b", text)}


def test_every_kind_of_record_changes_the_state():
    assert not not_named_in(FOLDED), f"give each its effect in one of {', '.join(FOLDED)}"


def test_every_kind_of_record_is_shown():
    assert not_named_in(SHOWN) == SHOWN_ELSEWHERE, f"give each its line in one of {', '.join(SHOWN)}"
