"""`Route`: several models behind one, chosen by what a question needs, by price and health, and by the run's share.

`choose` is pure: the table of models and what is known of a question give a model and the reason, or the time to wait.
The reason is recorded with the answer, so a replay neither chooses nor asks again. The health of a model is a circuit
breaker in this process, as that of a tool; a new process starts with all models healthy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec.structs import replace

from holdfast.agent.model_decisions import class_of
from holdfast.agent.run import Run
from holdfast.agent.run_context import RunContext
from holdfast.engine.breaker import CLOSED, BreakerState, after_failure
from holdfast.engine.environment import SystemClock
from holdfast.errors import ModelError, UsageError
from holdfast.loop.compaction import estimated_tokens
from holdfast.loop.model import NOT_ASKED, Model, ModelReply, ModelRequest, OnText, answer_of, check_model, user
from holdfast.model.alike import nearest
from holdfast.model.usage import CallCost, PriceSource, Usage

ErrorClass = Literal["unavailable", "rate_limited", "unauthorized", "refused", "too_long", "malformed", "refusal"]
Capability = Literal["tools", "schema"]
ANY_OUTAGE: Final[tuple[ErrorClass, ...]] = ("unavailable", "rate_limited", "unauthorized")
LONGEST_PAUSE_MS: Final = 600_000
"""The longest time for which a model is not asked, whatever its service asks for."""
_ROUNDING: Final = 1e-9
_SHOWN: Final = 300


class RouteModel(msgspec.Struct, frozen=True):
    """One model of a route, and what is declared about it.

    `can` names what it can do: call `tools`, and answer by a JSON `schema`. `context` is the number of tokens that it
    can read; 0 declares nothing. `share` is the part of all runs that ask this model first, from 0 to 1. `after` names
    the classes of errors of another model after which this one is asked. `name` replaces the model's own.
    """

    model: Model
    can: tuple[Capability, ...] = get_args(Capability)
    context: int = 0
    share: float | None = None
    after: tuple[ErrorClass, ...] = ANY_OUTAGE
    name: str = ""

    @property
    def shown(self) -> str:
        """The name in reasons and records."""
        return self.name or self.model.name


class ModelFailure(msgspec.Struct, frozen=True):
    """A failure of a model: the class of the error, its text, and the time for which the model is not asked."""

    model: str
    code: str
    reason: str
    wait_ms: int = 0


class RouteQuestion(msgspec.Struct, frozen=True):
    """All that a choice depends on: the question's needs, the run's share, prices, health, and failures.

    `draw` is the run's number from 0 to 1, and None outside a run. `costs` holds the cost of the question and of its
    longest answer by model; it is empty where no prices decide. `paused` holds the last failure of each model whose
    breaker is open. `failures` are those of this question, in order.
    """

    needs: tuple[str, ...] = ()
    tokens: int = 0
    draw: float | None = None
    costs: Mapping[str, CallCost] = {}
    paused: Mapping[str, ModelFailure] = {}
    failures: tuple[ModelFailure, ...] = ()


class ModelChoice(msgspec.Struct, frozen=True):
    """The model to ask, and the reason. With `wait_ms` none can be asked now, and `why` says why."""

    chosen: RouteModel
    why: str
    wait_ms: int = 0


def choose(table: Sequence[RouteModel], known: RouteQuestion) -> ModelChoice:
    """Choose the model for a question. Raises `UsageError` if no model of the table can answer it."""
    able = [one for one in table if not list(_lacks(one, known))]
    if not able:
        missing = "; ".join(f"{one.shown} {' and '.join(_lacks(one, known))}" for one in table)
        raise UsageError(
            f"no model of the route can answer this question: {missing}",
            known="nothing was sent",
            next_step="add a model that can, or declare what these can: RouteModel(model, can=(...), context=...)",
        )
    if known.failures:
        last = known.failures[-1]
        why = f"{last.model} failed ({last.code or 'error'}): {last.reason}"
    else:
        first, why = _first(table, able, known)
        if first.shown not in known.paused:
            return ModelChoice(first, why)
        last = known.paused[first.shown]
        why = _paused(last)
    reachable = [one for one in able if one.shown == last.model or last.code in one.after] or able
    healthy = [one for one in reachable if one.shown not in known.paused]
    if not healthy:
        wait_ms, soonest = min((known.paused[one.shown].wait_ms, place) for place, one in enumerate(reachable))
        why = "; ".join(_paused(known.paused[one.shown]) for one in reachable)
        return ModelChoice(reachable[soonest], why, wait_ms)
    return ModelChoice(_best(healthy, known), why)


def _first(table: Sequence[RouteModel], able: Sequence[RouteModel], known: RouteQuestion) -> tuple[RouteModel, str]:
    """The model that the run's share selects, else the cheapest, else the first of the table."""
    end = 0.0
    for one in table if known.draw is not None else ():
        start, end = end, end + (one.share or 0.0)
        if start <= cast("float", known.draw) < end and one in able:
            return one, f"{one.shown} is asked first by {one.share:.4g} of all runs"
    best = _best(able, known)
    if (cost := known.costs.get(best.shown)) is not None:
        return best, f"{best.shown} is the cheapest that can answer: at most {cost.amount:.2g} {cost.currency}"
    return best, f"{best.shown} is the first that can answer"


def _best(models: Sequence[RouteModel], known: RouteQuestion) -> RouteModel:
    """The model that failed least often at this question; of several one without a share, then the cheapest."""
    failed = [failure.model for failure in known.failures]

    def rank(one: RouteModel) -> tuple[int, bool, Decimal]:
        cost = known.costs.get(one.shown)
        unknown = Decimal("Infinity") if known.costs else Decimal(0)
        return failed.count(one.shown), one.share is not None, unknown if cost is None else cost.amount

    return min(models, key=rank)


def _lacks(one: RouteModel, known: RouteQuestion) -> Iterator[str]:
    """The needs of the question that the model does not meet."""
    for need in known.needs:
        if need not in one.can:
            yield f"lacks {need!r}"
    if one.context and known.tokens > one.context:
        yield f"reads {one.context} tokens and the question has about {known.tokens}"


def _paused(last: ModelFailure) -> str:
    return f"{last.model} is not asked for {last.wait_ms / 1000:.3g} s ({last.code}): {last.reason}"


# --- the model that is several ----------------------------------------------------------------------------------------


class Route:
    """A `Model` that asks one of several: `ModelLoop(Route([big, small]))`.

    A question goes to the first model of the list that can answer it, with `prices` to the cheapest, and for the
    declared share of runs to the model with that share. A model that fails is followed by one whose `after` names the
    class of the error. Each call is a try of the same decision. Raises `UsageError` for models that contradict.
    """

    def __init__(self, models: Sequence[Model | RouteModel], *, prices: PriceSource | None = None) -> None:
        self._table = _checked(models)
        self._prices = prices
        self._health = _Health()
        self.name: Final = f"route of {', '.join(one.shown for one in self._table)}"
        if prices is not None:
            if not callable(getattr(prices, "cost", None)):
                raise _wrong(f"prices={prices!r} is not a list of prices", "give declared_prices({...}, 'my prices')")
            _check_prices(self._table, self._costs(1, 1, SystemClock().wall_ms()))

    def question(self, run: Run) -> Model:
        """The model for one decision of a run, which remembers the failures of its tries. Call it in the run's code."""
        return self._asked(_draw(run.id, self._table), RunContext.current().now_ms)

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Ask one model without a run: shares do not count, and no failure of an earlier try. Raises `ModelError`."""
        return await self._asked(None, SystemClock().wall_ms).answer(request, on_text)

    def effects(self) -> list[str]:
        """Always empty: asking a model changes nothing. With `reset`, a route can be given to `world.use`."""
        return []

    def reset(self) -> None:
        """Forget which models failed, as a new process does."""
        self._health.forget()

    def _asked(self, draw: float | None, now_ms: Callable[[], int]) -> _Asked:
        def next_of(request: ModelRequest, failures: tuple[ModelFailure, ...]) -> ModelChoice:
            now, tokens = now_ms(), _tokens(request)
            needs = tuple(name for name, part in (("tools", request.tools), ("schema", request.returns)) if part)
            costs = {} if self._prices is None else self._costs(tokens, request.max_tokens, now)
            return choose(self._table, RouteQuestion(needs, tokens, draw, costs, self._health.paused(now), failures))

        return _Asked(self.name, next_of, self._health, now_ms)

    def _costs(self, read: int, written: int, now_ms: int) -> dict[str, CallCost]:
        """The cost of a question and of its longest answer, by model, where a price is known."""
        assert self._prices is not None, "only prices give costs"
        found: dict[str, CallCost] = {}
        for one in self._table:
            service = str(getattr(one.model, "service", ""))
            used = Usage(input_tokens=read, output_tokens=written, model=one.model.name, service=service)
            if (cost := self._prices.cost(used, now_ms)) is not None:
                found[one.shown] = cost
        return found


class _Asked:
    """A route for one decision: each try asks one model, and the next try knows which ones failed."""

    def __init__(self, name: str, next_of: _NextOf, health: _Health, now_ms: Callable[[], int]) -> None:
        self.name = name
        self._next_of = next_of
        self._health = health
        self._now_ms = now_ms
        self._failures: tuple[ModelFailure, ...] = ()
        self._asking = ""

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Ask the model that is chosen now. Raises `ModelError`, and `UsageError` if no model can answer."""
        if self._asking:  # the time limit of the decision cancelled that call
            self._note(ModelFailure(self._asking, "unavailable", "it did not answer within the time limit"), None)
        choice = self._next_of(request, self._failures)
        if choice.wait_ms:
            raise _nothing_asked(choice)
        name = self._asking = choice.chosen.shown
        try:
            reply = await answer_of(choice.chosen.model, request, on_text)
        except Exception as error:
            failed = error if isinstance(error, ModelError) else None
            text = f"{type(error).__name__}: {error}" if failed is None else failed.message
            self._note(ModelFailure(name, class_of(error), text[:_SHOWN]), failed.retry_after if failed else None)
            if failed is None:
                raise
        else:
            self._asking = ""
            self._health.answered(name)
            if reply.stop != "refusal" or not self._refused(request, name):
                return replace(reply, why=choice.why)
            failed = ModelError(f"{name} refused: {reply.text}", code="refusal")
            failed.reply = reply
        raise self._with_wait(failed, request, name)

    def _note(self, failure: ModelFailure, retry_after: float | None) -> None:
        self._asking = ""
        self._failures = (*self._failures, failure)
        if failure.code in ANY_OUTAGE:
            self._health.failed(failure, retry_after, self._now_ms())

    def _refused(self, request: ModelRequest, name: str) -> bool:
        """True if another model is asked after this one refused; that is on record as its failure."""
        failures = (*self._failures, ModelFailure(name, "refusal", "it refused to answer"))
        other = self._next_of(request, failures)
        if other.wait_ms or other.chosen.shown in {one.model for one in failures}:
            return False
        self._failures = failures
        return True

    def _with_wait(self, failed: ModelError, request: ModelRequest, name: str) -> ModelError:
        """The error with the time until the next try, which is 0 if another model is asked then."""
        following = self._next_of(request, self._failures)
        same = failed.retry_after if following.chosen.shown == name else 0.0
        wait = following.wait_ms / 1000 if following.wait_ms else same
        error = ModelError(
            f"{name}: {failed.message}", code=failed.code, retry_after=wait, known=failed.known,
            next_step=failed.next_step,
        )  # fmt: skip
        error.reply, error.__cause__ = failed.reply, failed.__cause__  # both tell what the try used
        return error


_NextOf: TypeAlias = Callable[[ModelRequest, tuple[ModelFailure, ...]], ModelChoice]


class _Health:
    """The circuit breakers of the models of a route, in this process."""

    def __init__(self) -> None:
        self._breakers: dict[str, tuple[BreakerState, ModelFailure]] = {}

    def paused(self, now_ms: int) -> dict[str, ModelFailure]:
        """The models that are not asked now. One that is paused for longer than is possible shows a changed clock."""
        failures = [replace(last, wait_ms=state.open_until_ms - now_ms) for state, last in self._breakers.values()]
        return {one.model: one for one in failures if 0 < one.wait_ms <= LONGEST_PAUSE_MS}

    def failed(self, failure: ModelFailure, retry_after: float | None, now_ms: int) -> None:
        """Count a failure of the service. It is not asked before the time that it asks for."""
        state = after_failure(self._breakers.get(failure.model, (CLOSED, failure))[0], now_ms)
        asked_ms = int(min(LONGEST_PAUSE_MS, (retry_after or 0) * 1000))
        until = max(state.open_until_ms, now_ms + asked_ms if asked_ms > 0 else 0)
        self._breakers[failure.model] = (replace(state, open_until_ms=until), failure)

    def answered(self, name: str) -> None:
        """Close the breaker."""
        self._breakers.pop(name, None)

    def forget(self) -> None:
        """Close all breakers."""
        self._breakers.clear()


def _nothing_asked(choice: ModelChoice) -> ModelError:
    """The error of a try that asked no model, because all breakers are open."""
    error = ModelError(
        f"no model of the route is asked now: {choice.why}", code="unavailable", retry_after=choice.wait_ms / 1000,
        known="nothing was sent", next_step="it is asked again then",
    )  # fmt: skip
    error.reply = ModelReply(usage=Usage(refused=True))  # nothing was used, and that is known
    return error


def _tokens(request: ModelRequest) -> int:
    """The tokens of a question, estimated by its characters, with its tools and instructions."""
    tools = msgspec.json.encode(request.tools).decode() if request.tools else ""
    return estimated_tokens([*request.messages, user(request.instructions + tools)])


def _draw(run: str, table: Sequence[RouteModel]) -> float:
    """The run's number from 0 to 1: the same on every machine, and for every size of the shares."""
    salt = ", ".join(one.shown for one in table if one.share is not None)
    drawn = hashlib.sha256(f"{salt}\n{run}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(drawn[:6]) / 2**48


# --- what a caller passes ---------------------------------------------------------------------------------------------


def _checked(models: object) -> tuple[RouteModel, ...]:
    """The table of a route. Raises `UsageError` for one that cannot be used."""
    if isinstance(models, str) or not isinstance(models, Sequence) or not models:
        raise _wrong(f"Route({models!r}) has no list of models", "give at least one, such as Route([big, small])")
    given = cast("Sequence[Model | RouteModel]", models)
    table = tuple(one if isinstance(one, RouteModel) else RouteModel(one) for one in given)
    seen: set[str] = set()
    for one in table:
        check_model(one.model)
        if not isinstance(cast("object", one.shown), str) or not one.shown:
            raise _wrong(f"the name {one.shown!r} of a model is not text", "give it one: RouteModel(model, name='eu')")
        if one.shown in seen:
            raise _wrong(
                f"the route names the model {one.shown!r} twice",
                "remove one, or name the place of each: RouteModel(model, name='eu')",
            )
        seen.add(one.shown)
        _check_words(one.shown, "can", one.can, get_args(Capability))
        _check_words(one.shown, "after", one.after, get_args(ErrorClass))
        if type(one.context) is not int or one.context < 0:
            raise _wrong(f"{one.shown}: context={one.context!r} is not a number of tokens", "give 0 if it is unknown")
        if one.share is not None and (type(one.share) not in (int, float) or not 0 < one.share <= 1):
            raise _wrong(f"{one.shown}: share={one.share!r} is not a part of all runs", "give a number such as 0.05")
    shares = [one.share for one in table if one.share is not None]
    total, partial = math.fsum(shares), len(shares) < len(table)
    if shares and (total > 1 + _ROUNDING or (total < 1 - _ROUNDING and not partial)):
        raise _wrong(
            f"the shares of the route add up to {total:.6g}",
            "give shares that add up to 1, or no share to the model that is asked by the other runs",
        )
    return table


def _check_words(model: str, field: str, given: object, known: Sequence[str]) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise _wrong(f"{model}: {field}={given!r} is not a tuple", f"write {field}=({known[0]!r},)")
    for word in cast("Sequence[object]", given):
        if word not in known:
            near = nearest(str(word), known)
            raise _wrong(
                f"{model}: {field} names {word!r}, which does not exist",
                f"did you mean {near!r}?" if near else f"choose from: {', '.join(known)}",
            )


def _check_prices(table: Sequence[RouteModel], costs: Mapping[str, CallCost]) -> None:
    """Raise `UsageError` unless every model has a price, all in one currency."""
    if missing := [one.shown for one in table if one.shown not in costs]:
        raise _wrong(
            f"the route chooses by price, and no price is known of: {', '.join(missing)}",
            "add them to the prices (a free model is 0), or leave out prices=",
        )
    if len(currencies := sorted({cost.currency for cost in costs.values()})) > 1:
        raise _wrong(f"the prices of the route are in {' and '.join(currencies)}", "give prices in one currency")


def _wrong(message: str, next_step: str) -> UsageError:
    return UsageError(message, known=NOT_ASKED, next_step=next_step)
