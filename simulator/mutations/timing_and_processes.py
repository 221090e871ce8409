"""Planted bugs in time limits, outages of other systems, other programs, and processes that are stopped or die."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec.structs import replace

from simulator.generator.bodies import BODIES
from simulator.mutations.mutation import Mutant, always, replaced


def since_the_first_attempt(_original: Any) -> Any:
    """All time since the first attempt counts, whether a process was there or not."""

    def elapsed_ms(operation: Any, _situation: Any, now: Any) -> int:
        if not operation.attempts:
            return 0
        first = operation.attempts[0]
        since: int = now.up - first.up if first.boot == now.boot else now.wall - first.at
        return max(0, since)

    return elapsed_ms


def window_from_the_start(original: Any) -> Any:
    """A window counts from the moment at which an attempt began."""

    def landing_ms(attempts: Any, window_ms: int, situation: Any, now: Any) -> int | None:
        begun = tuple(
            replace(one, over_up=one.up, over_at=one.at, over_boot=one.boot) if one.over_up is not None else one
            for one in attempts
        )
        found: int | None = original(begun, window_ms, situation, now)
        return found

    return landing_ms


def strangers_take_places(original: Any) -> Any:
    """What is due of other programs takes places among the first, and is left out afterwards."""

    async def due(self: Any, agents: Any, limit: int, skip: Any = frozenset()) -> Any:
        everybody = {(row.agent, row.program) for row in await self.runs(limit=10_000)} | {*agents}
        rows = await original(self, everybody, limit, skip)
        return [row for row in rows if (row.agent, row.program) in agents]

    return due


def busy_costs_an_attempt(original: Any) -> Any:
    """An attempt at whose end the system was working on the key counts as any other."""

    def init(self: Any, operation: Any, situation: Any, now: Any) -> None:
        original(self, operation, situation, now)
        self.spent += sum(attempt.in_progress for attempt in operation.attempts)

    return init


def done_already(_original: Any) -> Any:
    """What is to be waited for is said to be over."""

    def done(*_args: object) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    return done


def pauses_by_the_clock(_original: Any) -> Any:
    """A pause counts for as long as the clock says, and a question whose time is over by then is not asked again."""

    async def waited(scope: Any, _question: Any, patience: Any) -> bool:
        instance, environment = scope.active, scope.active.process.environment
        pause = patience.pause_ms(environment.rng)
        if pause is None:
            return False
        before = instance.log.now().up
        await environment.clock.sleep(pause / 1000)
        took_ms = instance.log.now().up - before
        patience.paused(took_ms, took_ms)
        return patience.pause_ms(environment.rng) is not None

    return waited


def keyed_success(_original: Any) -> Any:
    """A success counts at once, whatever may still land."""

    def once_landed(_case: Any, move: Any) -> Any:
        return move

    return once_landed


def journal_wait_is_rest(original: Any) -> Any:
    """A step that waits until its answer is durable counts as resting."""

    async def journaled(scope: Any, *args: Any, **named: Any) -> Any:
        scope.host.working -= 1
        try:
            return await original(scope, *args, **named)
        finally:
            scope.host.working += 1

    return journaled


# --- processes --------------------------------------------------------------------------------------------------------


def crowded(original: Any) -> Any:
    """However many processes died of them, runs and attempts go beside all others."""

    class Crowded(original):  # type: ignore[misc]  # the class is known only when the bug is planted
        def _blocked(self, _run: str) -> bool:
            return False

        async def _until_alone(self, one: Any) -> None:
            one.granted = True
            self.alone.append(one)

    return Crowded


def absolved_at_progress(original: Any) -> Any:
    """Only deaths since the last record of the run's own are counted."""

    async def number(active: Any) -> Any:
        ownership = active.history.ownership
        unended, ownership.unended = ownership.unended, ownership.fruitless
        try:
            return await original(active)
        finally:
            ownership.unended = unended

    return number


def in_turn_alone(_original: Any) -> Any:
    """An answer is received once its turn has come, whether or not code has come to rest before it."""

    def is_open(order: Any, index: int) -> bool:
        return bool(index <= order.at)

    return is_open


# --- the lists --------------------------------------------------------------------------------------------------------


TIMING: Final = (
    Mutant(
        "gaps count as attempts",
        "time without a process is taken for time for attempts",
        "beforehand.model.decision.evidence:elapsed_ms",
        since_the_first_attempt,
    ),
    Mutant(
        "overtaken by itself",
        "a natural write is settled while an attempt of it may land",
        "beforehand.model.decision.decide:_once_landed",
        keyed_success,
    ),
    Mutant(
        "landing counted from the start",
        "the window of a natural write begins with its attempt",
        "beforehand.model.decision.evidence:landing_ms",
        window_from_the_start,
    ),
    Mutant(
        "busy costs an attempt",
        "an attempt counts although the system works on its key",
        "beforehand.model.decision.evidence:AttemptEvidence.__init__",
        busy_costs_an_attempt,
    ),
    Mutant(
        "an outage is an answer",
        "a model that is down is asked as often as one that refuses",
        "beforehand.agent.model_decisions:is_outage",
        always(False),
    ),
    Mutant(
        "failed untried",
        "a decision fails after a clock jump between two checks, without being asked again",
        "beforehand.agent.model_decisions:_waited",
        pauses_by_the_clock,
    ),
    Mutant(
        "time counts on the way back",
        "a limit ends a body that had kept it, as its time is over when the run is replayed",
        "beforehand.engine.active_run.replay:Replay.caught_up",
        done_already,
        test="tests/unit/engine/test_time_limits.py",
    ),
    Mutant(
        "an end out of its turn",
        "a recorded end of a time limit does not wait for what was delivered before it",
        "beforehand.engine.active_run.replay:Replay.turn",
        done_already,
    ),
    Mutant(
        "left and not recorded",
        "code that was cancelled before it took an answer takes it on replay",
        "beforehand.engine.active_run.run:ActiveRun.leave_answer",
        always(None),
    ),
    Mutant(
        "a wait for the journal is rest",
        "a body that waits for the journal beside its tasks stops as diverged",
        "beforehand.engine.journaled:journaled",
        journal_wait_is_rest,
        from_seed=BODIES,
    ),
    Mutant(
        "answers received together",
        "an answer is received while the failure that comes before it on replay has its effect",
        "beforehand.engine.active_run.replay:DeliveryOrder.is_open",
        in_turn_alone,
        test="tests/unit/engine/test_steps_beside_each_other.py",
    ),
    Mutant(
        "joins off the record",
        "a replay cannot know whether a time limit ended its body before or after a join",
        "beforehand.engine.active_run.scopes:Scope.limited",
        always(False),
        test="tests/unit/engine/test_joins_under_limits.py",
    ),
    Mutant(
        "forgotten under a business key",
        "after a restore an operation is sent again whose business key another one may have had since",
        "beforehand.model.decision.send_rules:_may_have_passed_on",
        always(False),
        from_seed=18_200,  # it hides: one seed of twenty thousand shows it
    ),
    Mutant(
        "foreign runs counted",
        "runs of other programs are counted among those to recover",
        "beforehand.testing.world.disk:FaultyJournal.due",
        strangers_take_places,
    ),
    Mutant(
        "contradictions ignored",
        "evidence against an outcome opens no review",
        "beforehand.engine.commands:by_report",
        always(()),
    ),
)


PROCESSES: Final = (
    Mutant(
        "no question about a stopped owner",
        "a call whose process hangs is waited for without asking a person",
        "beforehand.model.decision.verify_rules:hung_too_long",
        always(False),
    ),
    Mutant(
        "asked and forgotten",
        "a process that a person was asked about is not checked again",
        "beforehand.model.decision.verify_rules:_looks_apart_ms",
        always(30 * 86_400_000),
    ),
    Mutant(
        "neighbours are charged",
        "runs and attempts that only run beside poison are counted with its deaths",
        "beforehand.engine.crash_isolation:IsolationGate",
        crowded,
    ),
    Mutant(
        "absolved at progress",
        "a run that kills each process after it has recorded a step is never set aside",
        "beforehand.engine.run_start:number_of_claim",
        absolved_at_progress,
    ),
    Mutant(
        "poison is driven for ever",
        "deaths during its attempts set no operation aside",
        "beforehand.model.decision.send_rules:_OBSTACLES",
        replaced("_poison", always(None)),
    ),
)
"""By what comes to harm."""
