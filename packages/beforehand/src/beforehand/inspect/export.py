"""A run as a file: what a test replays later, long after its journal is gone.

Only stored forms are exported. The keyed digests of arguments stay behind with the secret they were keyed
with: a model's input is digested anew under a public key, and the rest is compared by its
stored form. Names of machines and processes stay behind as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from beforehand.errors import JournalError, UsageError
from beforehand.inspect.model_text import WholeInput
from beforehand.inspect.reader import JournalReader
from beforehand.journal.port import Identity
from beforehand.journal.record_codec import decode_all, encode
from beforehand.model import records as r
from beforehand.model.canonical.encode import digest

FORMAT: Final = 1
OPEN_KEY: Final = b"beforehand fixture"
"""Key of the digests in a fixture. It protects nothing: the digested values are in the fixture too."""

_AGAIN: Final = "export the run again: beforehand export RUN -o FILE"


class Exported(msgspec.Struct, frozen=True):
    """One run as a fixture holds it. `whole` says that the run had ended when it was exported."""

    beforehand_fixture: int
    run: str
    agent: str
    namespace: str
    whole: bool
    checksum: str
    records: list[msgspec.Raw]

    @property
    def identity(self) -> Identity:
        """The journal that the run seems to come from."""
        return Identity(namespace=self.namespace, secret=OPEN_KEY, incarnation="1")

    def decoded(self) -> list[r.Record]:
        """The records. Raises `UsageError` where this version cannot read them."""
        try:
            return decode_all(map(bytes, self.records))
        except JournalError as error:
            raise UsageError(
                f"the fixture of run {self.run} cannot be read: {error.message}",
                next_step=f"use the version of beforehand that wrote it, or {_AGAIN}",
            ) from error


async def export(reader: JournalReader, run: str) -> tuple[Exported, bytes]:
    """A run, whether it has ended or not, as a fixture and its text.

    Raises `UnknownRun`, and `JournalError` where nothing is recorded yet.
    """
    records = [record for _, record in await reader.all_records(run)]
    started = next((record for record in records if isinstance(record, r.RunStarted)), None)
    if started is None:
        raise JournalError(
            f"run {run} does not begin with its start, so it cannot be replayed", next_step="beforehand verify"
        )
    bodies = [encode(record) for record in _shareable(records)]
    ended = any(isinstance(record, r.RunCompleted | r.RunStoppedRecord) for record in records[-2:])
    raws = [msgspec.Raw(body) for body in bodies]
    found = Exported(FORMAT, run, started.agent, reader.identity.namespace, ended, _checksum(bodies), raws)
    return found, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def read_export(text: bytes, name: str) -> Exported:
    """A fixture from its text; `name` is what errors call it. Raises `UsageError` saying what is wrong with it."""
    try:
        version = msgspec.json.decode(text, type=_Version).beforehand_fixture
        if version > FORMAT:
            raise UsageError(
                f"{name} was written by a newer version of beforehand",
                known=f"its format is {version}; this version reads up to {FORMAT}",
                next_step=f"upgrade beforehand, or {_AGAIN}",
            )
        found = msgspec.json.decode(msgspec.json.format(text, indent=-1), type=Exported)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(f"{name} is not a fixture: {error}", next_step=_AGAIN) from error
    if _checksum([bytes(record) for record in found.records]) != found.checksum:
        raise UsageError(
            f"{name} was changed or damaged after it was exported",
            known="its records do not have the checksum they were written with, so they prove nothing",
            next_step=f"restore it, or {_AGAIN}",
        )
    return found


class _Version(msgspec.Struct, frozen=True):
    beforehand_fixture: int


def _checksum(bodies: Sequence[bytes]) -> str:
    """Checksum that detects accidents and edits; it is not a signature."""
    return sha256(b"\n".join(bodies)).hexdigest()[:32]


# --- what is exported -----------------------------------------------------------------------------------


def _shareable(records: Iterable[r.Record]) -> Iterator[r.Record]:
    """The same records without digests, machines and processes."""
    replace = msgspec.structs.replace
    names: dict[str, dict[str, str]] = {"worker": {}, "boot": {}}

    def stand_in(kind: str, name: str) -> str:
        """`worker-1`, `boot-1`: in the order in which the names first occur."""
        return names[kind].setdefault(name, f"{kind}-{len(names[kind]) + 1}")

    shown = WholeInput()
    for record in records:
        match record:
            case r.RunStarted():
                yield replace(record, digest="")
            case r.Claimed():
                shown.forget()
                worker, boot = stand_in("worker", record.worker), stand_in("boot", record.boot)
                yield replace(record, worker=worker, boot=boot)
            case r.ReadRecorded():
                yield replace(record, digest="")
            case r.DecisionRecorded():
                whole = shown.of(record)
                ours = whole is not None and whole.startswith(b"[")  # the input of a host is not compared
                yield replace(record, digest=digest(OPEN_KEY, whole) if ours and whole else "")
            case r.OperationPlanned() | r.AttemptStarted() | r.OutcomeReused() if record.intent is not None:
                yield replace(record, intent=replace(record.intent, digest="", words=""))
            case _:
                yield record
