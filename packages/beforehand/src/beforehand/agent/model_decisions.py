"""`run.decide`: a model call as a journaled read with a decision record.

A question is stored as a digest and its *new* part only: a conversation that grows by one
message stores that message, not the whole history again.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import typing
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from beforehand.agent.decision_call import CALL, DecisionCall
from beforehand.agent.model_limits import LimitedModelCall
from beforehand.agent.model_prices import NamedModel, price_after, reservation_of
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.scopes import SCOPE, Scope
from beforehand.engine.active_run.waiters import BUDGET
from beforehand.engine.engine import LOG
from beforehand.engine.environment import Rng
from beforehand.engine.exceptions.call_end import describe, place_of_bug, storable
from beforehand.engine.exceptions.classify import classify
from beforehand.engine.exceptions.http import retry_after, status_code
from beforehand.engine.journaled import journaled
from beforehand.engine.sealing import sealing
from beforehand.engine.shared_budgets import budgets_of, reserve, wait_for_room
from beforehand.engine.suspension import BudgetRefusal, Pause
from beforehand.engine.tree_budgets import read_limits
from beforehand.errors import (
    BeforehandError,
    BudgetExceeded,
    ContractError,
    DecisionFailed,
    ModelError,
    UsageError,
)
from beforehand.model import records as r
from beforehand.model.canonical.encode import digest
from beforehand.model.outcome import EXCEEDED, UNPRICED, Outcome
from beforehand.model.usage import CallCost, Usage, finite, usage_of
from beforehand.model.values import codec_for, json_form
from beforehand.policies import DECISION_RETRY, Retry, milliseconds

R = TypeVar("R")
DEFAULT_TIMEOUT = timedelta(minutes=5)
LOGGED_PAUSE_MS = 5000  # from this pause on, a model that does not answer is logged
SEEN_LIMIT = 64 * 1024
SHOWN, SHOWN_BEFORE = 240, 40  # how much of a question a difference shows, and how much of it is alike


class DecisionSettings(msgspec.Struct, frozen=True):
    """Settings of one decision."""

    step: str | None = None
    timeout: timedelta | None = None
    retry: Retry | None = None
    seen: bytes | None = None  # what the model is shown, where that is not the arguments of the function
    noted: bool = False  # a question that differs from the recorded one is logged, and does not diverge
    models: tuple[NamedModel, ...] = ()  # those that may be asked, for budgets in a currency


class _NewPart(msgspec.Struct, frozen=True):
    """The stored form of a question whose beginning was stored before: `then` follows after `as_before` bytes."""

    as_before: int
    then: str


class ModelQuestion(msgspec.Struct, frozen=True):
    """One model call: the function, its arguments, and those as JSON."""

    step: str
    function: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    seen: bytes
    models: tuple[NamedModel, ...]

    @property
    def name(self) -> str:
        """The function's name."""
        return _named(self.function)


@sealing
async def decide(
    scope: Scope,
    settings: DecisionSettings,
    function: Callable[..., Awaitable[R]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> R:
    """Ask the model, record the answer and return it; on replay return the recorded one."""
    instance = scope.active
    name, codec = _named(function), codec_for(_returns(function))
    step = scope.step(name, settings.step)
    seen = _seen(args, kwargs) if settings.seen is None else settings.seen
    question = ModelQuestion(step, function, args, kwargs, seen, settings.models)
    seen_digest = digest(instance.process.identity.secret, question.seen)

    async def ask(_: object) -> None:
        instance.log.buffer(await _ask_model(scope, question, settings))
        if instance.history.budget is not None:
            instance.waiters.settled(BUDGET)  # it may have used less than it had reserved

    recorded = await journaled(scope, step, object, ask)
    # An exported run keeps no digest of a question that was too long to be stored whole.
    same = isinstance(recorded, r.DecisionRecorded) and recorded.digest in ("", seen_digest)
    if not same and settings.noted and isinstance(recorded, r.DecisionRecorded):
        text = "run %s: %s was asked something else when it was recorded; the recorded answer counts"
        LOG.warning(text, instance.run, step)
    elif not isinstance(recorded, r.DecisionRecorded) or not same:
        _asked_otherwise(instance, recorded, question, settings)
    scope.host.sure = _share(recorded.confidence)
    if recorded.status == "failed":
        raise _failed(instance.run, recorded)
    return codec.decode(bytes(recorded.result))  # type: ignore[return-value]  # decoded by R's own annotation


def _failed(run: str, recorded: r.DecisionRecorded) -> DecisionFailed | BudgetExceeded:
    """The error for a decision that is on record as failed."""
    step, name, reason = recorded.step, recorded.function, recorded.reason
    outcome: Outcome[object] = Outcome("failed", f"{run}/{step}", name, reason=reason, code=recorded.code)
    if recorded.code == EXCEEDED:
        return BudgetExceeded(f"{name} ({run}/{step}) was not asked: {reason}", run=run, outcome=outcome)
    return DecisionFailed(f"{name} ({run}/{step}) failed: {reason}", run=run, step=step, outcome=outcome)


def _share(confidence: float | None) -> float | None:
    """A confidence that can be compared; None for a value outside 0 to 1."""
    return confidence if confidence is not None and 0 <= confidence <= 1 else None


async def _ask_model(scope: Scope, question: ModelQuestion, settings: DecisionSettings) -> r.DecisionRecorded:
    """Call the model under its time limit, again while it fails and the retry budget lasts. Each try is recorded."""
    instance, step = scope.active, question.step
    limit = milliseconds(settings.timeout or DEFAULT_TIMEOUT)
    began = instance.log.now().up
    instance.replay.begun.discard(step)
    patience = RetryBudget(settings.retry, instance.history.steps.decisions_begun.get(step, 0), limit)
    call = DecisionCall(instance, step, limit / 1000)
    while patience.tries_left:
        patience.tries += 1
        instance.check()
        async with LimitedModelCall(scope, step, [one.name for one in question.models], len(question.seen)) as limited:
            if not await _begun(scope, question, patience, limited):
                break
            limited.made = True
            tried = instance.log.now().up
            value, call.model = None, ""
            try:
                value = await _limited(question, call)
                stored, _ = codec_for(_returns(question.function)).round_trip(value)
                limited.used = usage_of(value)
                return _record(question, call, began, stored=stored, value=value)
            except asyncio.CancelledError:
                _settle_call(instance, step, Usage())  # what it used will not be known
                raise
            except Exception as error:  # noqa: BLE001 - any exception of a model client is a failed try
                patience.failed(error, describe(error), instance.log.now().up - tried)
                limited.used = used = _usage_of_failure(error, value)
                patience.price = price_after(instance, step, used, question.models)
                patience.usage = used if isinstance(error, UsageError) else _named_usage(used, question, call)
                await limited.slow(seconds_until_retry(error))
        if not await _waited(scope, question, patience):
            break
    failed = _record(question, call, began, failed=patience)
    if patience.bug is not None:  # code that asks another model, or goes on without an answer, would hide it
        instance.log.buffer(failed)
        raise instance.break_off(patience.bug)
    return failed


async def _begun(scope: Scope, question: ModelQuestion, patience: RetryBudget, limited: LimitedModelCall) -> bool:
    """Record that the model is called; False if a limit of the run's budget does not permit it.

    Under a budget the call reserves what it may use; the record is durable before the model is called if the budget
    limits model calls. With `then="ask"` this waits for a call in flight that uses less than it reserved, or for
    a person to raise the limit. While it waits, other runs may call the model.
    """
    active, step = scope.active, question.step
    await read_limits(active)
    budget = active.history.budget
    if not await _is_in_time_and_budget(scope, step, patience, limited):
        return False
    shared = budgets_of(active)  # after the wait: another branch may have started the first child meanwhile
    reserved, price, why = reservation_of(active, shared, question.models, len(question.seen))
    if why:
        patience.why, patience.code = why, UNPRICED
        return False
    started = r.DecisionStarted(
        step=step, function=question.name, number=patience.tries, before=patience.usage, reserved=reserved,
        price=price, **active.log.stamp(),
    )  # fmt: skip
    if shared:

        async def wait(spent: BudgetRefusal) -> None:
            async with limited.put_down():
                await wait_for_room(scope, step, spent)

        refusal = await reserve(active, started, wait)
        if refusal is None:
            return await _begun(scope, question, patience, limited)
        if refusal:
            patience.why, patience.code = refusal, EXCEEDED
        return not refusal
    active.log.buffer(started)
    if budget is not None and budget.limits_models:
        await active.log.flush()
        active.check()
    return True


async def _is_in_time_and_budget(scope: Scope, step: str, patience: RetryBudget, limited: LimitedModelCall) -> bool:
    """False if the deadline of the run has passed, or its own budget does not permit the call; it may wait for that."""
    active = scope.active
    budget, until = active.history.budget, active.process.deadline_of(active.history)
    while until is None or active.process.wall_ms() < until:
        why = "" if budget is None else budget.refusal(step, patience.usage, patience.price)
        if budget is None or not why:
            return True
        if budget.limits.then == "stop":
            patience.why, patience.code = why, EXCEEDED
            return False
        watchers = active.waiters.watchers.setdefault(BUDGET, [])
        async with limited.put_down():
            await active.waiters.wait(scope, watchers, Pause("budget", step, asks=f"{active.run}/{step}: {why}"))
    patience.why, patience.code = "the deadline passed", ""
    return False


async def _waited(scope: Scope, question: ModelQuestion, patience: RetryBudget) -> bool:
    """Wait until the next try; False if there is none."""
    instance, environment = scope.active, scope.active.process.environment
    pause = patience.pause_ms(environment.rng)
    if pause is None:
        return False
    if pause >= LOGGED_PAUSE_MS and not patience.logged:
        patience.logged = True
        minutes = milliseconds(patience.retry.elapsed) / 60_000
        text = "run %s: %s failed %d times, and is tried for up to %g minutes: %s"
        LOG.warning(text, instance.run, question.step, patience.tries, minutes, patience.why)
    _settle_call(instance, question.step, patience.usage, patience.price)
    before = instance.log.now().up
    await environment.clock.sleep(pause / 1000)
    patience.paused(pause, instance.log.now().up - before)
    return True


def _settle_call(active: ActiveRun, step: str, usage: Usage, price: CallCost | None = None) -> None:
    """Settle what a call reserved whose answer is not used, so that other calls need not wait for its next try."""
    if active.sealed is None:
        active.log.settle_reservation(step, usage, price)
        active.waiters.settled(BUDGET)


async def _limited(question: ModelQuestion, call: DecisionCall) -> Any:
    token = SCOPE.set(None)  # tasks that a model client starts are not branches of the run
    asking = CALL.set(call)
    limit = asyncio.timeout(call.limit_s)
    try:
        async with limit:
            return await question.function(*question.args, **question.kwargs)
    except TimeoutError as error:
        if not limit.expired():
            raise  # of the model's client: its own limit
        raise TimeoutError(f"no answer within {call.limit_s:g} s (timeout=)") from error
    finally:
        CALL.reset(asking)
        SCOPE.reset(token)


def _record(
    question: ModelQuestion, call: DecisionCall, began: int, *, stored: bytes = b"null", value: object = None,
    failed: RetryBudget | None = None,
) -> r.DecisionRecorded:  # fmt: skip
    instance = call.active
    tried = failed is not None and bool(failed.why)  # false also where the last call was that of a process that died
    usage = failed.usage if failed is not None and tried else _named_usage(usage_of(value), question, call)
    confidence = getattr(value, "confidence", None)
    return r.DecisionRecorded(
        step=question.step,
        function=question.name,
        digest=digest(instance.process.identity.secret, question.seen),
        seen=r.Raw(_new_part(instance.facts.seen_by_models, question.function, question.seen)),
        status="succeeded" if failed is None else "failed",
        reason="" if failed is None else failed.why or "no tries are left",
        code="" if failed is None else failed.code,
        result=r.Raw(stored),
        why=storable(str(getattr(value, "why", "") or call.why)),
        confidence=finite(confidence),
        **msgspec.structs.asdict(usage),
        price=price_after(instance, question.step, usage, question.models) if failed is None else failed.price,
        ms=instance.log.now().up - began,
        **instance.log.stamp(),
    )


def _named_usage(usage: Usage, question: ModelQuestion, call: DecisionCall) -> Usage:
    """The usage of a call that was made, with the name of its model also where neither answer nor error states it."""
    only = question.models[0].name if len(question.models) == 1 else ""
    return msgspec.structs.replace(usage, model=usage.model or call.model or only)


def _asked_otherwise(
    active: ActiveRun, recorded: object, question: ModelQuestion, settings: DecisionSettings
) -> NoReturn:
    """End the run as diverged, with both questions if the record holds the old one."""
    why, difference = f"{question.step} was asked something else when it was recorded", ""
    if isinstance(recorded, r.DecisionRecorded):
        if settings.seen is not None:  # of a framework: its prompts may hold the time of day, or ids of this process
            why += ' (differs="note" of its adapter accepts that)'
        old, new = _where_they_part(bytes(recorded.seen).decode(), question.seen.decode("utf-8", "replace"))
        difference = f"- recorded: {recorded.function} {old}\n+ now:      {question.name} {new}"
    active.replay.diverge(why, difference)


def _where_they_part(old: str, new: str) -> tuple[str, str]:
    """Both texts from shortly before their first difference, shortened to what a person reads.

    A question that was stored as its new part is compared with the new part of today's.
    """
    if old.startswith('{"as_before"'):
        part = msgspec.json.decode(old, type=_NewPart)
        old, new = part.then, new.encode()[part.as_before :].decode("utf-8", "replace")
    apart = (n for n, (ours, theirs) in enumerate(zip(old, new, strict=False)) if ours != theirs)
    start = max(0, next(apart, min(len(old), len(new))) - SHOWN_BEFORE)
    return _cut(old, start), _cut(new, start)


def _cut(text: str, start: int) -> str:
    return f"{'…' if start else ''}{text[start : start + SHOWN]}{'…' if len(text) > start + SHOWN else ''}"


def _usage_of_failure(error: Exception, answer: object) -> Usage:
    """The usage of a call whose answer was not used: of that answer, or as far as the error states it."""
    used = usage_of(getattr(error, "reply", None) if answer is None else answer)
    if used.known:
        return used
    status = _status(error)
    refused = status is not None and 400 <= status < 500 and status not in _MAY_BE_USED
    refused = refused or isinstance(error, UsageError) or (isinstance(error, ModelError) and error.code in _REFUSALS)
    cause = error.__cause__ if isinstance(error, ModelError) and error.__cause__ is not None else error
    return Usage(refused=refused or classify(cause).kind == "not_sent")


def _seen(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """The model's arguments as JSON. Objects without a JSON form appear as their text."""
    return msgspec.json.encode([args, dict(kwargs)], order="deterministic", enc_hook=json_form)


def _new_part(before: dict[str, bytes], function: Callable[..., Any], seen: bytes) -> bytes:
    """The part that was not shown to the same function before: the rest is in earlier records."""
    name = _named(function)
    previous = before.get(name, b"")
    before[name] = seen
    same = same_start(seen, previous)
    new = seen[same:] if same > 64 else seen
    if len(new) > SEEN_LIMIT:
        return msgspec.json.encode({"cut": len(new), "start": new[:1000].decode("utf-8", "replace")})
    if same > 64:
        return msgspec.json.encode({"as_before": same, "then": new.decode("utf-8", "replace")})
    return seen


def same_start(one: bytes, other: bytes) -> int:
    """How many bytes both begin with. By halves: a long conversation is compared at each of its turns."""
    same, most = 0, min(len(one), len(other))
    while same < most:
        middle = (same + most + 1) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            most = middle - 1
    return same


def _named(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise ContractError(
            "run.decide takes a named function", next_step="write it as: async def rule(ticket) -> Ruling"
        )
    return name


def _returns(function: Callable[..., Any]) -> Any:
    annotations = inspect.get_annotations(inspect.unwrap(function))
    if "return" not in annotations:
        raise ContractError(
            f"{_named(function)} has no return annotation, so its recorded answer could not be read back",
            next_step=f"write: async def {_named(function)}(...) -> Ruling",
        )
    try:
        return typing.get_type_hints(function)["return"]
    except NameError:
        return Any


# --- retries of a model -----------------------------------------------------------------------------------------------


REFUSALS: Final = 5
"""The number of tries of a question that fails for a reason other than an outage, if code sets no `retry`."""
_RETRY_STATUSES: Final = frozenset({408, 409, 425, 429})
_MAY_BE_USED: Final = frozenset({408, 409, 425})
"""Statuses with which a service may have counted a request that it did not answer; with others of 4xx it refuses."""
_UNAUTHORIZED: Final = frozenset({401, 403})
_REFUSALS: Final = frozenset({"unauthorized", "rate_limited", "refused", "too_long"})
_BUGS: Final = (
    ArithmeticError, AssertionError, AttributeError, BeforehandError, ImportError, LookupError, NameError,
    NotImplementedError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that a mistake in code raises: asking again after a while does not help, as it does after an outage."""


class RetryBudget:
    """The tries of one decision. `tries` counts those of earlier processes too; time is counted in this one."""

    def __init__(self, wanted: Retry | None, tries: int, limit_ms: int) -> None:
        self.retry: Final = wanted or DECISION_RETRY
        self.tries = tries
        self.why = ""
        self.code = ""
        self.bug: Exception | None = None
        self.usage = Usage()
        self.price: CallCost | None = None
        self.logged = False
        self._limit_ms = limit_ms
        self._refusals = 0
        self._most_refusals = REFUSALS if wanted is None else self.retry.attempts
        self._spent_ms = 0.0
        self._asked_ms = 0.0

    @property
    def tries_left(self) -> bool:
        """True if one more try is allowed."""
        return self.tries < self.retry.attempts

    def failed(self, error: Exception, why: str, took_ms: int) -> None:
        """Count a try that failed."""
        self.why = why
        self.code = class_of(error)
        self._spent_ms += min(took_ms, self._limit_ms)
        if place := place_of_bug(error):
            self.bug, self.why = error, f"{why}, at {place}"
        wrong = self.bug is not None or isinstance(error, UsageError)  # only other code helps
        self._refusals += self._most_refusals if wrong else 0 if is_outage(error) else 1
        self._asked_ms = seconds_until_retry(error) * 1000

    def pause_ms(self, rng: Rng) -> float | None:
        """The time to wait before the next try; None if there is none."""
        left = milliseconds(self.retry.elapsed) - self._spent_ms
        if not self.tries_left or self._refusals >= self._most_refusals or left <= 0:
            return None
        if self._asked_ms > left:
            self.why += f" (it asks to be tried again in {self._asked_ms / 1000:.0f} s)"
            return None
        drawn = rng.uniform(0, self.retry.ceiling_ms(max(0, self.tries - 1)))
        if self._asked_ms:  # jitter, so that clients do not all retry at the same moment
            return self._asked_ms + min(drawn, milliseconds(self.retry.base))
        return min(drawn, left)

    def paused(self, meant_ms: float, took_ms: int) -> None:
        """Count a pause."""
        self._spent_ms += min(meant_ms, took_ms)


def seconds_until_retry(error: BaseException) -> float:
    """The retry delay in seconds that the service asks for in the error or its cause; 0 if it asks for none."""
    at: BaseException | None = error
    for _ in range(4):
        if at is None:
            break
        named: object = getattr(at, "retry_after", None)
        asked = retry_after(at) if not isinstance(named, (int, float)) else float(named)
        if asked is not None and math.isfinite(asked):
            return max(0.0, asked)
        at = at.__cause__ or at.__context__
    return 0.0


def class_of(error: Exception) -> str:
    """The class of a model's error, as it is recorded; empty for one without a class, such as a bug."""
    if isinstance(error, ModelError):
        return error.code
    status = _status(error)
    if is_outage(error):
        return "rate_limited" if status == 429 else "unavailable"
    return "" if status is None else "unauthorized" if status in _UNAUTHORIZED else "refused"


def is_outage(error: Exception) -> bool:
    """True if asking again may help by itself. An answer that does not fit, a refusal and a bug are not outages."""
    if isinstance(error, ModelError):
        return error.is_outage
    if isinstance(error, _BUGS) and not isinstance(error, OSError):
        return False
    status = _status(error)
    return not (status is not None and 400 <= status < 500 and status not in _RETRY_STATUSES)


def _status(error: Exception) -> int | None:
    """The status that the service answered with, if the error names one."""
    status = status_code(error)
    named: object = getattr(error, "status_code", None) if status is None else status
    return named if isinstance(named, int) else None
