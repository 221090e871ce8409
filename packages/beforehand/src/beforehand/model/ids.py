"""Names: runs, steps, operations, idempotency keys and markers.

A key is a function of the journal's namespace and the operation's identity alone. It never holds a
timestamp, an attempt number, a model's tool-call id or a hash of arguments: those change when a
model is asked again, and a changed key is a second effect.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from beforehand.model.errors import UsageError
from beforehand.model.shell import is_placeholder

# Reserved: what a browser or a shell reads otherwise, and the name under which calls are reviewed (`model/shadow.py`).
RUN_ID: Final = re.compile(r"(?!-|(?:\.\.?|shadow)\Z)[A-Za-z0-9._:@+=,~-]{1,200}")
NAME_LIMIT: Final = 200
CHILD_MARK: Final = "~"
"""Separates, in the name of a child run, the name of its parent from its own."""
CHILD_FIELD: Final = b'"parent":{"run":'
"""Part of the first record of a child run, and of no other's: text in a record has its quotation marks escaped."""
MARKER_DOMAIN: Final = "beforehand.invalid"  # RFC 6761 reserves .invalid: a marker never names a real host


def checked_run_id(run: str, given: str = "", next_step: str = "give an id of these characters") -> str:
    """`run` if it can name a run; raises `UsageError` otherwise. `given` is the argument that it comes from."""
    if not isinstance(run, str) or RUN_ID.fullmatch(run) is None or is_placeholder(run):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
        raise UsageError(
            f"{given}{run!r} cannot name a run",
            known="a run id is 1 to 200 letters, digits or . _ : @ + = , ~ -, not . or .. or shadow, nor - in front"
            ", nor a placeholder of printed commands, as RUN",
            next_step=next_step,
        )
    return run


def can_name(name: str) -> bool:
    """True if `name` may be a part of a step: of a tool, a branch, or a step that code names itself.

    What separates the parts of a step is left out. A name that looked like one that the runtime gives
    (`refund#2`) would make two effects of one key, and the outside system would do only the first.
    """
    return 0 < len(name) <= NAME_LIMIT and name.isprintable() and not set(name) & set("/~#")


def operation_id(run: str, step: str) -> str:
    """The operation's name everywhere: in commands, logs and errors."""
    return f"{run}/{step}"


def approval_digest(namespace: str, operation: str, *parts: bytes) -> str:
    """The digest of an approval: this operation of this journal, its contract, its arguments, and what it relies on.

    Each part goes in with its length, so that no two lists of parts are one text.
    """
    whole = hashlib.sha256()
    for part in (namespace.encode(), operation.encode(), *parts):
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:32]


def split_operation_id(operation: str) -> tuple[str, str]:
    """The run and the step of an operation's name. Raises `UsageError` for any other text."""
    run, slash, step = operation.partition("/")
    if not (slash and run and step):
        raise UsageError(
            f"{operation!r} is not an operation id", next_step="name it as RUN/STEP, as `beforehand show RUN` does"
        )
    return run, step


def stream(*parts: str) -> str:
    """The name of a ledger stream. Parts may hold any text, and no two lists of parts have one name.

    The ledger reads a name that ends in `/` as all streams below it, so no name may end like that.
    """
    return "/".join(part.replace("%", "%25").replace("/", "%2F") or "%" for part in parts)


def parts_of(name: str) -> list[str]:
    """The parts of such a name."""
    return ["" if part == "%" else part.replace("%2F", "/").replace("%25", "%") for part in name.split("/")]


def idempotency_key(namespace: str, identity: str) -> str:
    """The stable outside name of one effect: 128 bits, safe in a header, a URL and a JSON string."""
    return "bh-" + hashlib.sha256(f"{namespace}\0{identity}".encode()).hexdigest()[:32]


def claim_identity(tool: str, business_key: str, generation: int) -> str:
    """The source of a key when the tool declares a business key (`claim=`)."""
    return f"claim\0{tool}\0{business_key}\0{generation}"


def marker(key: str) -> str:
    """The key in a form that can be planted in an effect: a Message-ID without its angle brackets."""
    return f"{key}@{MARKER_DOMAIN}"


def reuse_stream(operation: str) -> str:
    """The ledger stream of the operations that reused the outcome of this one."""
    return stream("reused", operation)
