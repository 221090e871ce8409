"""Models: their limits hold over all processes, a route keeps to what it declares, and an answer stays as it was given.

The checker stands at the services of the models. It never asks the product what it chose, or why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.errors import ModelError
from beforehand.model import records as r
from beforehand.queues.call_limits import ModelLimit
from beforehand.queues.limits import TenantLimits
from beforehand.testing.loop import Actor
from simulator.agents.models import ROUTES, Answer
from simulator.plan import HOLDS_UP

if TYPE_CHECKING:
    from simulator.world import World

LIMITS: Final = 25
ROUTE: Final = 33
QUICK_MS: Final = 2_000
"""So long after its permit a call has begun, where nothing holds its process up; and so long after its end it is known
what it has used."""
HELD_UP_MS: Final = 150_000
"""The same where processes stand still, or the journal cannot be reached, for up to two minutes."""
TOLD_MS: Final = 300
"""So long after a service has asked not to be called, a call that had its permit before may still begin."""


class ModelCall(msgspec.Struct, eq=False):
    """One call of a model. `tokens` is what it used; while `fault` hides that, the product cannot know it."""

    actor: Actor
    run: str
    name: str
    model: str
    tenant: str
    at_ms: int
    task: object
    tokens: int = 0
    fault: str = ""
    ended_ms: int = -1
    failed: str = ""
    """The class of its error."""
    under: Collection[str] = ()
    """The limits that it began under. One that is declared while it is under way does not know it."""


class Alone(msgspec.Struct, frozen=True):
    """A service has asked a process not to be called until then."""

    actor: Actor
    said_ms: int
    until_ms: int
    boot: str


class Models:
    """Every call of a model in one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._calls: Final[list[ModelCall]] = []
        self._first: dict[tuple[str, str], str] = {}
        """The model that a run asks first by a route that is shared."""
        self._answers: dict[tuple[str, str], bytes] = {}
        self._alone: Final[dict[tuple[object, ...], Alone]] = {}
        """Until when a service has asked not to be called: every process, or those of one route in one process."""
        kinds = {one.kind for one in world.plan.faults}
        self._held_up = not kinds.isdisjoint(HOLDS_UP)
        self._late_ms = HELD_UP_MS if self._held_up else QUICK_MS
        self._jumps = "clock_jump" in kinds

    @contextmanager
    def calling(self, actor: Actor, run: str, name: str, model: str, route: str) -> Generator[ModelCall]:
        """A process calls a model."""
        tenant, now = self._world.checker.queues.tenant_of(run), self._world.now_ms()
        call = ModelCall(actor, run, name, model, tenant, now, asyncio.current_task())
        self._check_limits(call)
        self._check_alone(call, route)
        self._check_route(call, route)
        self._calls.append(call)
        self._world.tell(actor, f"asks {model} for {run}/{name}")
        try:
            yield call
        except ModelError as error:
            call.failed = error.code
            if error.retry_after:
                self._leave_alone(call, route, round(error.retry_after * 1000))
            raise
        except OSError:
            call.failed = "unavailable"
            raise
        except BaseException:
            call.failed = "cut"
            raise
        finally:
            call.ended_ms = self._world.now_ms()

    # --- limits ----------------------------------------------------------------------------------------------

    def _check_limits(self, call: ModelCall) -> None:
        for what, limit, others in self._limits_of(call):
            self._reached(f"a call under the limit of a {'tenant' if ' / ' in what else 'model'}")
            in_flight = sum(one.ended_ms < 0 and one.actor.alive for one in others)
            if limit.at_once is not None and in_flight >= limit.at_once:
                beside = f"{call.run}/{call.name} calls {call.model} beside {in_flight} other calls of {what}"
                self._broken(LIMITS, f"{beside}, and its limit is {limit.at_once}")
            if limit.rate:
                self._check_pace(call, what, limit.apart_ns, limit.burst, [(one.at_ms, 1) for one in others])
            if limit.tokens:
                known = [(one.at_ms, one.tokens) for one in others if self._counts(one, call.at_ms)]
                self._check_pace(call, f"tokens of {what}", limit.of_tokens.apart_ns, limit.token_burst, known)

    def _check_pace(self, call: ModelCall, what: str, apart_ns: int, burst: int, used: list[tuple[int, int]]) -> None:
        """What was used from any moment on is due at this one, but for the burst."""
        units = 0
        for at_ms, count in reversed(used):
            units += count
            has_passed_ms = call.at_ms - at_ms + self._late_ms
            if (units - (burst - 1)) * apart_ns / 1e6 > has_passed_ms:
                since = f"{units} were used in the {call.at_ms - at_ms} ms before it"
                self._broken(LIMITS, f"{call.run}/{call.name} calls {call.model}: {since}, too many for {what}")
                return

    def _counts(self, one: ModelCall, now_ms: int) -> bool:
        """Whether what it used is known by now: a process that died may not have come to say it."""
        return one.actor.alive and 0 <= one.ended_ms < now_ms - self._late_ms and one.fault != "unstated"

    def _limits_of(self, call: ModelCall) -> Iterator[tuple[str, ModelLimit, list[ModelCall]]]:
        """Each limit that the call is under, with the calls before it that are under it, too."""
        limits = self._world.checker.queues.limits
        own = limits.tenants.get(call.tenant) or limits.tenants.get("*") or TenantLimits()
        under = {call.model: limits.models.get(call.model), f"{call.model} / {call.tenant}": own.models.get(call.model)}
        call.under = [what for what, limit in under.items() if limit is not None]
        for what, limit in under.items():
            if limit is not None:
                yield what, limit, [one for one in self._calls if what in one.under]

    def _leave_alone(self, call: ModelCall, route: str, wait_ms: int) -> None:
        """A service asks not to be called. Of a model with a limit every process knows it; of a route, the route."""
        now = self._world.now_ms()
        alone = Alone(call.actor, now, now + wait_ms, self._world.boot)
        if len(ROUTES[route]) > 1:
            self._alone[call.actor, route, call.model] = alone
        elif list(self._limits_of(call)):
            self._alone[(call.model,)] = alone

    def _check_alone(self, call: ModelCall, route: str) -> None:
        by_all = self._alone.get((call.model,))
        if by_all is not None and list(self._limits_of(call)) and self._is_told(by_all):
            self._check_wait(call, by_all, TOLD_MS)
        by_route = self._alone.get((call.actor, route, call.model))
        if by_route is not None and not self._jumps and not self._answered_since(by_route, call.model):
            # a breaker is about the clock on the wall
            self._check_wait(call, by_route, 0)

    def _answered_since(self, alone: Alone, model: str) -> bool:
        """Whether the process was answered by the model since: asked without a route, or where no other was left."""
        return any(
            one.actor is alone.actor and one.model == model and one.ended_ms > alone.said_ms and not one.failed
            for one in self._calls
        )

    def _is_told(self, alone: Alone) -> bool:
        """Whether every process knows it: the one that heard it may have ended before it could tell the others."""
        return alone.actor.alive and not self._held_up and alone.boot == self._world.boot

    def _check_wait(self, call: ModelCall, alone: Alone, late_ms: int) -> None:
        self._reached("a service asked not to be called")
        if alone.said_ms + late_ms < call.at_ms < alone.until_ms - 1:
            asked = f"its service asked at {alone.said_ms} ms not to be called before {alone.until_ms} ms"
            self._broken(LIMITS, f"{call.run}/{call.name} calls {call.model}, and {asked}")

    # --- routes ----------------------------------------------------------------------------------------------

    def _check_route(self, call: ModelCall, route: str) -> None:
        models = ROUTES[route]
        table = {one.shown: one for one in models}
        if call.model not in table:
            self._broken(ROUTE, f"{call.run}/{call.name} asks {call.model}, which is not in its route {route}")
            return
        # A run that was suspended meanwhile asks in a new task, and its decision begins anew.
        tries = [one for one in self._calls if one.task is call.task and one.name == call.name]
        healthy = {name for name in table if not self._may_be_paused(call.actor, name)}
        if not tries and route == "shared" and len(healthy) == len(table):
            first = self._first.setdefault((call.run, route), call.model)
            self._reached(f"a share asks {call.model} first")
            if first != call.model:
                self._broken(ROUTE, f"{call.run}/{call.name} asks {call.model} first, and its run had asked {first}")
        if not tries and route in {"in order", "seldom"} and table[call.model] is not models[0]:
            if models[0].shown in healthy:
                self._broken(ROUTE, f"{call.run}/{call.name} asks {call.model} first, and the first model was healthy")
            self._reached("a model whose breaker is open is not asked")
        if tries and tries[-1].failed and tries[-1].failed != "cut":
            last, tried = tries[-1], {one.model for one in tries}
            others = {name for name in healthy - tried if last.failed in table[name].after}
            if call.model != last.model and last.failed not in table[call.model].after:
                self._broken(ROUTE, f"{call.run}/{call.name} asks {call.model} after {last.model} was {last.failed}")
            elif call.model == last.model and others:
                self._broken(ROUTE, f"{call.run}/{call.name} asks {call.model} again, and {others} was not asked")
            elif call.model != last.model:
                self._reached(f"another model after one was {last.failed}")

    def _may_be_paused(self, actor: Actor, model: str) -> bool:
        """Whether the process may know the model as failing: its last call there has not succeeded, or not yet."""
        calls = [one for one in self._calls if one.actor is actor and one.model == model]
        return any(one.ended_ms < 0 or one.failed for one in calls[-8:])

    # --- answers ---------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        if not isinstance(record, r.DecisionRecorded) or record.function != "ask_route":
            return
        if record.status != "succeeded":
            return
        answer, name = msgspec.json.decode(bytes(record.result), type=Answer), record.step.rpartition("/")[2]
        known = self._answers.setdefault((run, record.step), bytes(record.result))
        if known != bytes(record.result):
            self._broken(ROUTE, f"{run}/{record.step} has two answers on record")
        if record.model != answer.by:
            self._broken(ROUTE, f"{run}/{record.step} names {record.model}, and {answer.by} has answered")
        if not any((one.run, one.name, one.model, one.failed) == (run, name, answer.by, "") for one in self._calls):
            self._broken(ROUTE, f"{run}/{record.step} has an answer of {answer.by}, which was not asked")
        self._reached(f"{answer.by} answers")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"model: {what}"] += 1
