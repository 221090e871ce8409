"""Shadow calls: ask a further model beside a decision, once, and record its answer in the ledger.

Nothing of a run waits for one, and none can fail a run. It is not asked again when the run is replayed or taken up by
another process: the entry that it was asked is stored before it is asked. A run that is stopped or lost ends its shadow
calls; one that completes or waits does not.

A budget that covers the run covers them, too: each reserves in a record of the run, as the call of a decision does, and
is skipped where there is no room. A call that ends after its run, or whose process dies, is charged what it reserved.
Limits of models cover them, and none waits for a permit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.agent.model_decisions import SEEN_LIMIT, class_of, seconds_until_retry, settle_call, usage_of_failure
from holdfast.agent.model_limits import LimitedModelCall
from holdfast.agent.model_prices import NamedModel, named_model, price_after, reservation_of
from holdfast.engine.engine import LOG
from holdfast.engine.exceptions.call_end import describe, storable
from holdfast.engine.shared_budgets import budgets_of, reserve
from holdfast.errors import HoldfastError, Sealed
from holdfast.journal.entry_codec import written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.outcome import EXCEEDED, UNPRICED
from holdfast.model.records.common import NOTHING, Raw
from holdfast.model.shadow_calls import ANSWERS, CALLS, ENDED, LIMITED, ShadowAnswered, ShadowAsked
from holdfast.model.stop_reasons import STOP_REASONS
from holdfast.model.usage import Usage, own_name, usage_of
from holdfast.model.values import json_form

if TYPE_CHECKING:
    from holdfast.agent.decision_call import DecisionCall
    from holdfast.engine.suspension import Ending

_TOO_LONG: Final = "too_long_to_store"


def begin_shadow(
    decision: DecisionCall, name: str, model: object, ask: Callable[[], Awaitable[Any]]
) -> asyncio.Task[None]:
    """Ask a model beside this decision, in the background, for no longer than the decision may take.

    `name` is that in records; `model` states the one by which it has a price, if it has one.
    """
    active = decision.active
    task = active.process.background(_recorded(decision, name, model, ask), f"holdfast-shadow-{decision.run}")

    def cancel(ending: asyncio.Future[Ending]) -> None:
        if not ending.cancelled() and (ending.result().kind == "lost" or ending.result().kind in STOP_REASONS):
            task.cancel()

    def ended(_: object) -> None:
        active.ending.remove_done_callback(cancel)
        active.waiters.shadows.discard(task)
        active.waiters.consider_rest()  # a call may have waited for what this one had reserved

    active.ending.add_done_callback(cancel)
    active.waiters.shadows.add(task)
    task.add_done_callback(ended)
    return task


async def _recorded(decision: DecisionCall, name: str, model: object, ask: Callable[[], Awaitable[Any]]) -> None:
    """Ask the model and record both, unless it was asked beside this decision before."""
    process, started = decision.active.process, decision.active.history.lifecycle.started
    agent = "" if started is None else started.agent
    asked = ShadowAsked(decision.run, decision.step, agent, name, process.worker.id)
    named = (named_model(model),) if own_name(model) else ()
    try:
        if (answered := await _under_budgets(decision, asked, named, ask)) is not None:
            await process.journal.post(Post(ANSWERS, asked.key, written(answered)))
    except HoldfastError as error:
        LOG.warning("run %s: a shadow call of %s could not be recorded: %s", decision.run, name, error)


async def _under_budgets(
    decision: DecisionCall, asked: ShadowAsked, named: tuple[NamedModel, ...], ask: Callable[[], Awaitable[Any]]
) -> ShadowAnswered | None:
    """The end of a call that reserves before it, and settles after it; None if it was asked before."""
    active, used, price = decision.active, Usage(refused=True), None
    names = [one.name for one in named] or [asked.model]
    limited = LimitedModelCall(decision.scope, asked.call, names, decision.size)
    try:
        try:
            limit = await limited.take_now()
            refused = (LIMITED, f"the limit of {limit} is reached") if limit else None
            refused = refused or await _reserved(decision, asked.call, named)
        except Sealed:
            refused = ENDED, "its run ended before anything could be reserved"
        if not (await active.process.journal.post(Post(CALLS, asked.key, written(asked)))).fresh:
            return None
        if refused is not None:
            code, why = refused
            return ShadowAnswered(asked.run, asked.step, asked.agent, asked.model, 0, used, NOTHING, why, code)
        used, limited.made = Usage(), True  # a call that is cancelled may have been made
        answered = await _asked(decision, asked, ask, limited)
        used = limited.used = answered.usage
        price = price_after(active, asked.call, used, named)
        return msgspec.structs.replace(answered, price=price)
    finally:
        limited.give_back()
        settle_call(active, asked.call, used, price)


async def _reserved(decision: DecisionCall, call: str, named: tuple[NamedModel, ...]) -> tuple[str, str] | None:
    """Reserve what the call may use of the budgets that cover the run; or why it is not made, after the class of that.

    A shadow call never waits for room, and no person is asked to give it some. Raises `Sealed` after the run.
    """
    active = decision.active
    while True:
        own, shared = active.history.budget, budgets_of(active)
        if own is None and not shared:
            return None
        active.check()
        if own is not None and (why := own.refusal(call, Usage())):
            return EXCEEDED, why
        tokens, price, why = reservation_of(active, shared, named, decision.size)
        if why:
            return UNPRICED, why
        started = r.ShadowStarted(step=call, reserved=tokens, price=price, **active.log.stamp())
        if not shared:
            active.log.buffer(started)
            await active.log.flush()
            return None
        if (spent := await reserve(active, started, None)) is not None:
            return (EXCEEDED, spent) if spent else None


async def _asked(
    decision: DecisionCall, asked: ShadowAsked, ask: Callable[[], Awaitable[Any]], limited: LimitedModelCall
) -> ShadowAnswered:
    log, masks = decision.active.log, decision.active.masks
    began, answer, reason, code = log.now().up, NOTHING, "", ""
    try:
        async with asyncio.timeout(decision.limit_s):
            found = await ask()
        stored = masks.own(Raw(msgspec.json.encode(found, enc_hook=json_form)), None, frozenset())
    except Exception as error:  # noqa: BLE001 - any exception of a model's client is the end of a shadow call
        usage, reason, code = usage_of_failure(error, None), masks.text(storable(describe(error))), class_of(error)
        await limited.slow(seconds_until_retry(error))
    else:
        usage = usage_of(found)
        if len(bytes(stored)) <= SEEN_LIMIT:
            answer = stored
        else:
            reason, code = f"its answer has {len(bytes(stored)):,} bytes", _TOO_LONG
    usage, took = msgspec.structs.replace(usage, model=usage.model or asked.model), log.now().up - began
    return ShadowAnswered(asked.run, asked.step, asked.agent, asked.model, took, usage, answer, reason, code)
