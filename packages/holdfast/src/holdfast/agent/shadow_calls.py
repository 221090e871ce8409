"""Shadow calls: ask a further model beside a decision, once, and record its answer in the ledger.

Nothing of a run waits for one, and none can fail a run. It is not asked again when the run is replayed or taken up by
another process: the entry that it was asked is stored before it is asked. A run that is stopped or lost ends its shadow
calls; one that completes or waits does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.agent.model_decisions import SEEN_LIMIT, class_of, usage_of_failure
from holdfast.engine.engine import LOG
from holdfast.engine.exceptions.call_end import describe, storable
from holdfast.errors import HoldfastError
from holdfast.journal.entry_codec import written
from holdfast.journal.port import Post
from holdfast.model.records.common import NOTHING, Raw
from holdfast.model.shadow_calls import ANSWERS, CALLS, ShadowAnswered, ShadowAsked
from holdfast.model.stop_reasons import STOP_REASONS
from holdfast.model.usage import usage_of
from holdfast.model.values import json_form

if TYPE_CHECKING:
    from holdfast.agent.decision_call import DecisionCall
    from holdfast.engine.suspension import Ending

_TOO_LONG: Final = "too_long_to_store"


def begin_shadow(decision: DecisionCall, model: str, ask: Callable[[], Awaitable[Any]]) -> asyncio.Task[None]:
    """Ask a model beside this decision, in the background, for no longer than the decision may take."""
    active = decision.active
    task = active.process.background(_recorded(decision, model, ask), f"holdfast-shadow-{decision.run}")

    def ended(ending: asyncio.Future[Ending]) -> None:
        if not ending.cancelled() and (ending.result().kind == "lost" or ending.result().kind in STOP_REASONS):
            task.cancel()

    active.ending.add_done_callback(ended)
    task.add_done_callback(lambda _: active.ending.remove_done_callback(ended))
    return task


async def _recorded(decision: DecisionCall, model: str, ask: Callable[[], Awaitable[Any]]) -> None:
    """Ask the model and record both, unless it was asked beside this decision before."""
    process, started = decision.active.process, decision.active.history.lifecycle.started
    agent = "" if started is None else started.agent
    asked = ShadowAsked(decision.run, decision.step, agent, model, process.worker.id)
    try:
        if (await process.journal.post(Post(CALLS, asked.key, written(asked)))).fresh:
            answered = await _asked(decision, asked, ask)
            await process.journal.post(Post(ANSWERS, asked.key, written(answered)))
    except HoldfastError as error:
        LOG.warning("run %s: a shadow call of %s could not be recorded: %s", decision.run, model, error)


async def _asked(decision: DecisionCall, asked: ShadowAsked, ask: Callable[[], Awaitable[Any]]) -> ShadowAnswered:
    log, masks = decision.active.log, decision.active.masks
    began = log.now().up
    try:
        async with asyncio.timeout(decision.limit_s):
            answer = await ask()
        stored = masks.own(Raw(msgspec.json.encode(answer, enc_hook=json_form)), None, frozenset())
    except Exception as error:  # noqa: BLE001 - any exception of a model's client is the end of a shadow call
        reason = masks.text(storable(describe(error)))
        usage = msgspec.structs.replace(usage_of_failure(error, None), model=asked.model)
        end = ShadowAnswered(
            asked.run,
            asked.step,
            asked.agent,
            asked.model,
            log.now().up - began,
            usage,
            NOTHING,
            reason,
            class_of(error),
        )
    else:
        usage = usage_of(answer)
        usage = msgspec.structs.replace(usage, model=usage.model or asked.model)
        kept = stored if len(bytes(stored)) <= SEEN_LIMIT else NOTHING
        code, reason = ("", "") if kept is stored else (_TOO_LONG, f"its answer has {len(bytes(stored)):,} bytes")
        end = ShadowAnswered(
            asked.run, asked.step, asked.agent, asked.model, log.now().up - began, usage, kept, reason, code
        )
    return end
