"""`Route`: several models behind one, chosen by what a question needs, price, health, budget and the run's share.

`choose` is pure: the table of models and what is known of a question give a model and the reason, or the time to wait.
The reason is recorded with the answer, with the figures that decided, so a replay neither chooses nor asks again.
`route_table.py` has the models and what is declared of them, `model_health.py` their failures in this process.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from beforehand.agent.decision_call import DecisionCall
from beforehand.agent.model_decisions import class_of, seconds_until_retry
from beforehand.engine.environment import SystemClock
from beforehand.errors import ModelError, UsageError
from beforehand.loop.compaction import estimated_tokens
from beforehand.loop.model import Model, ModelReply, ModelRequest, OnText, answer_of, check_model, user
from beforehand.loop.model_health import ModelFailure, ModelHealth
from beforehand.loop.route_table import ANY_OUTAGE, Capability, RouteModel, check_prices, checked_table, wrong
from beforehand.model.run_budget import BudgetLeft
from beforehand.model.usage import CallCost, PriceSource, Usage

T = TypeVar("T")
_SHOWN: Final = 300


class RouteQuestion(msgspec.Struct, frozen=True):
    """All that a choice depends on: the question's needs, the run's share and budget, prices, and failures.

    `draw` is the run's number from 0 to 1, and None outside a run. `costs` holds the cost of the question and of its
    longest answer by model; it is empty where no prices decide. `left` is the least that remains of a budget. `paused`
    holds the last failure of each model whose breaker is open. `failures` are those of this question, in order.
    """

    needs: tuple[str, ...] = ()
    tokens: int = 0
    draw: float | None = None
    costs: Mapping[str, CallCost] = {}
    paused: Mapping[str, ModelFailure] = {}
    failures: tuple[ModelFailure, ...] = ()
    left: BudgetLeft | None = None


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
    """The model for a budget that is nearly spent, else that of the run's share, else the best one."""
    left = known.left
    saving = [one for one in able if left is not None and one.below is not None and left.share < one.below]
    if left is not None and saving:
        one = min(saving, key=lambda one: one.below or 0.0)
        remains = f"{left.share:.2g} of the {left.words} remains"
        return one, f"{one.shown} is asked first below {one.below:.4g} of a budget: {remains}"
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
    """The model that failed least often at this question; then one for all runs, and the cheapest."""
    failed = [failure.model for failure in known.failures]

    def rank(one: RouteModel) -> tuple[int, bool, Decimal]:
        cost = known.costs.get(one.shown)
        unknown = Decimal("Infinity") if known.costs else Decimal(0)
        return failed.count(one.shown), one.special, unknown if cost is None else cost.amount

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


class _Needs(msgspec.Struct, frozen=True):
    """The needs of one question: capabilities, its tokens, and the tokens of its longest answer."""

    capabilities: tuple[Capability, ...] = ()
    tokens: int = 0
    answer_tokens: int = 0


class _Tries:
    """The tries of one decision: the failures so far, and the model whose call was cancelled, if the last one was."""

    def __init__(self) -> None:
        self.failures: tuple[ModelFailure, ...] = ()
        self.cut = ""


class Route:
    """A `Model` that asks one of several: `ModelLoop(Route([big, small]))`.

    A question goes to the first model of the list that can answer it: with `prices` to the cheapest, and for the
    declared share of runs to the model with that share. A model that fails is followed by one whose `after` names the
    class of the error. Each call is a try of the same decision. Raises `UsageError` for models that contradict.
    """

    def __init__(self, models: Sequence[Model | RouteModel | Any], *, prices: PriceSource | None = None) -> None:
        self._table = checked_table(models)
        self._prices = prices
        self._saves = any(one.below is not None for one in self._table)
        self._health = ModelHealth()
        self.name: Final = f"route of {', '.join(one.shown for one in self._table)}"
        if prices is not None:
            if not callable(getattr(prices, "cost", None)):
                raise wrong(f"prices={prices!r} is not a list of prices", "give declared_prices({...}, 'my prices')")
            check_prices(self._table, self._costs(_Needs((), 1, 1), SystemClock().wall_ms()))

    @property
    def models(self) -> tuple[Any, ...]:
        """The models in the order of the list."""
        return tuple(one.model for one in self._table)

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Ask one model. Raises `ModelError`, and `UsageError` if no model can answer.

        In a decision of a run this is one of its tries: the run's share counts, and what failed before.
        """
        tools: tuple[Capability, ...] = ("tools",) if request.tools else ()
        schema: tuple[Capability, ...] = ("schema",) if request.returns else ()
        needs = _Needs((*tools, *schema), _tokens(request), request.max_tokens)
        reply, why = await self._ask(needs, lambda model: answer_of(model, request, on_text))
        return replace(reply, why=why)

    async def call(
        self,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        needs: tuple[Capability, ...] = (),
        tokens: int = 0,
        **kwargs: Any,
    ) -> T:
        """Ask one model by any async function: `await function(model, *args, **kwargs)`.

        In a function for `run.decide` this is one try of the decision, and the next one asks another model where the
        class of the error permits. `needs` are the capabilities that the question needs, `tokens` its length.
        """

        def ask(model: Any) -> Awaitable[T]:
            return function(model, *args, **kwargs)

        answer, _ = await self._ask(_Needs(needs, tokens), ask)
        return answer

    def check_models(self) -> None:
        """Raise `UsageError` unless each of the route is a `Model`, and not a value for `call`."""
        for one in self._table:
            check_model(one.model)

    def effects(self) -> list[str]:
        """Always empty: asking a model changes nothing. With `reset`, a route can be given to `world.use`."""
        return []

    def reset(self) -> None:
        """Forget which models failed, as a new process does."""
        self._health.forget()

    async def _ask(self, needs: _Needs, ask: Callable[[Any], Awaitable[T]]) -> tuple[T, str]:
        """The answer of the model that is chosen now, and the reason of the choice."""
        decision = DecisionCall.current()
        tries: _Tries = _Tries() if decision is None else decision.memory.setdefault(self, _Tries())
        left = await decision.budget_left() if decision is not None and self._saves else None

        def following() -> ModelChoice:
            return choose(self._table, self._known(needs, decision, tries.failures, left))

        if tries.cut:  # by the time limit of the decision
            late = ModelFailure(tries.cut, "unavailable", "it did not answer within the time limit")
            tries.cut = ""
            self._note(tries, late, None, decision)
        choice = following()
        if choice.wait_ms:  # all breakers are open
            nothing_asked = ModelError(
                f"no model of the route is asked now: {choice.why}", code="unavailable",
                retry_after=choice.wait_ms / 1000, known="nothing was sent", next_step="it is asked again then",
            )  # fmt: skip
            nothing_asked.reply = ModelReply(usage=Usage(refused=True))  # nothing was used, and that is known
            raise nothing_asked
        name = choice.chosen.shown
        if decision is not None:
            decision.why, decision.model = choice.why, choice.chosen.own_name
        failed: ModelError | None = None
        try:
            answer = await ask(choice.chosen.model)
        except asyncio.CancelledError:
            tries.cut = name
            raise
        except Exception as error:
            failed = _failure(error)
            text = f"{type(error).__name__}: {error}" if failed is None else failed.message
            failure = ModelFailure(name, class_of(error), text[:_SHOWN])
            self._note(tries, failure, failed.retry_after if failed else None, decision)
            if failed is None:
                raise
        else:
            self._health.answered(name)
            failed = _refusal(name, answer)
            if failed is None or not _asks_another(tries, name, following):
                return answer, choice.why
        raise _with_wait(failed, following(), name)

    def _note(
        self, tries: _Tries, failure: ModelFailure, retry_after: float | None, decision: DecisionCall | None
    ) -> None:
        tries.failures = (*tries.failures, failure)
        if failure.code in ANY_OUTAGE:
            self._health.failed(failure, retry_after, _wall_ms(decision))

    def _known(
        self, needs: _Needs, decision: DecisionCall | None, failures: tuple[ModelFailure, ...], left: BudgetLeft | None
    ) -> RouteQuestion:
        now = _wall_ms(decision)
        return RouteQuestion(
            needs=needs.capabilities,
            tokens=needs.tokens,
            draw=None if decision is None else _draw(decision.run, self._table),
            costs={} if self._prices is None else self._costs(needs, now),
            paused=self._health.paused(now),
            failures=failures,
            left=left,
        )

    def _costs(self, needs: _Needs, now_ms: int) -> dict[str, CallCost]:
        """The cost of a question and of its longest answer, by model, where a price is known."""
        assert self._prices is not None, "only prices give costs"
        found: dict[str, CallCost] = {}
        for one in self._table:
            service = str(getattr(one.model, "service", ""))
            used = Usage(
                input_tokens=needs.tokens, output_tokens=needs.answer_tokens, model=one.own_name, service=service
            )
            if (cost := self._prices.cost(used, now_ms)) is not None:
                found[one.shown] = cost
        return found


def _wall_ms(decision: DecisionCall | None) -> int:
    return SystemClock().wall_ms() if decision is None else decision.now_ms()


def _refusal(name: str, answer: object) -> ModelError | None:
    """The error for an answer that declines; None for any other answer."""
    if not isinstance(answer, ModelReply) or answer.stop != "refusal":
        return None
    refused = ModelError(f"{name} refused: {answer.text}", code="refusal")
    refused.reply = answer
    return refused


def _asks_another(tries: _Tries, name: str, following: Callable[[], ModelChoice]) -> bool:
    """True if another model is asked after this one refused; that is on record as its failure."""
    before = tries.failures
    tries.failures = (*before, ModelFailure(name, "refusal", "it refused to answer"))
    other = following()
    if other.wait_ms or other.chosen.shown in {one.model for one in tries.failures}:
        tries.failures = before
        return False
    return True


def _failure(error: Exception) -> ModelError | None:
    """The error of any client as one with a class; None where it has none, such as a bug."""
    code = class_of(error)
    if isinstance(error, ModelError) or not code:
        return error if isinstance(error, ModelError) else None
    made = ModelError(f"{type(error).__name__}: {error}", code=code, retry_after=seconds_until_retry(error) or None)
    made.__cause__ = error
    return made


def _with_wait(failed: ModelError, following: ModelChoice, name: str) -> ModelError:
    """The error with the time until the next try, which is 0 if another model is asked then."""
    same = failed.retry_after if following.chosen.shown == name else 0.0
    wait = following.wait_ms / 1000 if following.wait_ms else same
    error = ModelError(
        f"{name}: {failed.message}", code=failed.code, retry_after=wait, known=failed.known, next_step=failed.next_step
    )
    error.reply, error.__cause__ = failed.reply, failed.__cause__  # both tell what the try used
    return error


def _tokens(request: ModelRequest) -> int:
    """The tokens of a question, estimated by its characters, with its tools and instructions."""
    tools = msgspec.json.encode(request.tools).decode() if request.tools else ""
    return estimated_tokens([*request.messages, user(request.instructions + tools)])


def _draw(run: str, table: Sequence[RouteModel]) -> float:
    """The run's number from 0 to 1: the same on every machine, and for every size of the shares."""
    shared = ", ".join(one.shown for one in table if one.share is not None)
    drawn = hashlib.sha256(f"{shared}\n{run}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(drawn[:6]) / 2**48
