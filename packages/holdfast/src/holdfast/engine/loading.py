"""The history of a run from its records, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.errors import ChainBroken
from holdfast.journal.record_codec import decode_all
from holdfast.journal.run_log import genesis, verify_chain
from holdfast.model.run_history import RunHistory

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

PAGE: Final = 1000


async def load(engine: Engine, run: str, *, whole: bool = False) -> RunHistory:
    """The history of a run, read page by page so that memory holds no more than the fold.

    `whole` keeps the order of its operations as well, for whoever looks back over all of it.

    Raises `ChainBroken` where records were changed or taken out: what is not on record is done again. A run is stored
    together with its first records, so one without any has lost them.
    """
    history = RunHistory(run, whole=whole)
    after, head = 0, genesis(engine.identity.namespace, run)
    while rows := await engine.journal.read(run, after, PAGE):
        bad = verify_chain(rows, head, after + 1)
        if bad is not None:
            raise ChainBroken(
                f"run {run}: record {bad} was changed, removed or moved after it was written",
                known="nothing was sent for this run",
                next_step="keep a copy of the file, look with holdfast verify, and compare it with a backup",
            )
        for record in decode_all([row.body for row in rows]):
            history.add(record)
        after, head = rows[-1].seq, rows[-1].hash
        if len(rows) < PAGE:
            break
    if not after:
        raise ChainBroken(
            f"run {run}: its records are missing",
            known="a run is stored together with its first records, so they were removed; nothing was sent for it",
            next_step="keep a copy of the file, look with holdfast verify, and compare it with a backup",
        )
    return history
