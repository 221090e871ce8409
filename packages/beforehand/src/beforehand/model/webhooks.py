"""Outgoing webhooks: endpoints, notices, and the wording of notices. Pure.

Endpoints are a fold of notes in the ledger; a notice is posted to the outbox in the commit that makes it true.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Literal, get_args

import msgspec

from beforehand.model.waits import answers_with

AGENT: Final = "beforehand:webhook"  # the agent of the runs that send notices; these runs cause no notices
TOOL: Final = "webhook:"
ENDPOINTS: Final = "webhook-endpoints"
OUTBOX: Final = "outbox"

Kind = Literal[
    "run.completed", "run.stopped", "run.undone", "run.waits_for_person", "finding.raised", "finding.ended",
    "journal.head",
]  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
ABOUT_RUNS: Final[tuple[Kind, ...]] = tuple(kind for kind in KINDS if kind.startswith("run."))
"""The notices for an endpoint that names no kinds: the others are sent only to an endpoint that asks for them."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of an endpoint. `add` carries everything; the others only say what became of it."""

    word: Literal["add", "enable", "disable", "remove"]
    name: str
    by: str
    why: str = ""
    url: str = ""
    secrets: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ABOUT_RUNS


class Endpoint(msgspec.Struct, frozen=True):
    """A webhook endpoint. `secrets` are names of secrets, newest first, never values.

    `since` is the ledger entry from which on notices are sent to it: nothing older is. `disabled` is why it is sent
    nothing, empty where it is enabled; `turned_on` is the entry that enabled it the last time.
    """

    name: str
    url: str
    secrets: tuple[str, ...]
    kinds: tuple[Kind, ...]
    since: int
    turned_on: int
    disabled: str = ""
    removed: bool = False

    @property
    def open(self) -> bool:
        """True if notices are sent to it."""
        return not self.disabled and not self.removed


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question to a person: which step, in words, until when (wall clock, milliseconds)."""

    kind: str
    step: str
    asks: str = ""
    due_ms: int | None = None
    times: int = 0  # how many attempts it had: asked again after another one is asked anew
    at_ms: int = 0  # when it was asked: an approval that ended is asked for anew
    shown: str = ""  # the digest of what an approval asks
    result: bool = False  # whether an answer that it happened has to bring what the call returned


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened to a run, as the outbox keeps it. `turn` distinguishes like notices of one run.

    `data` is the content of a notice that belongs to no run. In one about a finding, `run` is the finding's name.
    """

    kind: Kind
    run: str
    agent: str
    at_ms: int
    reason: str = ""
    waits: tuple[Waiting, ...] = ()
    turn: int = 0
    data: object = None

    @property
    def identity(self) -> str:
        """The idempotency key of a notification: suspending again on the same wait does not notify again."""
        asked = ",".join(sorted(f"{wait.kind} {wait.step} {wait.times} {wait.at_ms}" for wait in self.waits))
        return f"{self.run}\0{self.kind}\0{asked or self.turn}"


class WebhookMessage(msgspec.Struct, frozen=True):
    """One notice for one endpoint, worded once: every try sends these bytes."""

    endpoint: str
    body: str


def delivery_run(endpoint: str, notice: Notice) -> str:
    """The run that sends this notice to this endpoint; notices of one identity share it, and so the webhook-id."""
    return f"webhook-{endpoint}-{hashlib.sha256(notice.identity.encode()).hexdigest()[:24]}"


def worded(notice: Notice) -> str:
    """The body as Standard Webhooks recommends it: type, timestamp, data. Results may be secret, and are not in it."""
    waits = [_asked(notice.run, wait) for wait in notice.waits]
    data = notice.data or {"run": notice.run, "agent": notice.agent, "reason": notice.reason, "waits": waits}
    at = datetime.fromtimestamp(notice.at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return msgspec.json.encode({"type": notice.kind, "timestamp": at, "data": data}).decode()


def _asked(run: str, wait: Waiting) -> dict[str, object]:
    answer = answers_with(run, wait.kind, wait.step, sent=wait.times > 0, shown=wait.shown, result=wait.result)
    return {"step": wait.step, "kind": wait.kind, "asks": wait.asks, "due_ms": wait.due_ms, "answer_with": answer}


def endpoints(notes: Iterable[tuple[int, Note]]) -> dict[str, Endpoint]:
    """Every endpoint there ever was, by name, from the ledger entries in order: each an id and what it says."""
    found: dict[str, Endpoint] = {}
    for number, note in notes:
        known = found.get(note.name)
        if note.word == "add":
            found[note.name] = Endpoint(note.name, note.url, note.secrets, note.kinds, number, number)
        elif known is not None:
            found[note.name] = _after(known, note, number)
    return found


def _after(known: Endpoint, note: Note, number: int) -> Endpoint:
    match note.word:
        case "enable":
            return msgspec.structs.replace(known, disabled="", turned_on=number)
        case "disable":
            return msgspec.structs.replace(known, disabled=note.why or f"disabled by {note.by}")
        case _:
            return msgspec.structs.replace(known, removed=True)
