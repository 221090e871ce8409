"""One repeat: a run of the agent in a fresh journal, through as many lives as it needs, and how it is judged."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.agent.agent import Agent
from holdfast.app import Holdfast
from holdfast.engine.environment import DaemonThreads, Environment
from holdfast.errors import RunSuspended, UsageError
from holdfast.inspect.reader import waits_of
from holdfast.journal import host
from holdfast.testing.clock import EPOCH_MS, SeededRng
from holdfast.testing.faults import Effect
from holdfast.testing.trial.faults import FaultKind, Mischief
from holdfast.testing.trial.figures import Arm, Repeat
from holdfast.testing.trial.lives import Deaths, LifeJournal, LifeLoop, LifeTimedOut, Passing
from holdfast.testing.wire import Underway, between, tools_of

AnyAgent = Agent[Any, Any]
Check = Callable[..., Any]
CHECK_TAKES: Final = ("input", "result", "run", "effects", "status", "reason")
_LIVES: Final = 50
"""The number of times a run is resumed, after deaths and waits, before it counts as suspended."""


class TrialEnded(msgspec.Struct, frozen=True):
    """How one life of a run ended, before it is judged. One that `waits` goes on after `wait_s` seconds."""

    status: str
    reason: str = ""
    result: Any = None
    wait_s: float = 0


class Wanted(msgspec.Struct, frozen=True):
    """The settings that all repeats share. `before` is called before each one, to reset the world."""

    agent: Any
    kinds: tuple[FaultKind, ...]
    check: Check | None = None
    before: Callable[[], Any] | None = None


def perform_both(wanted: Wanted, line: int, given: object, seed: int) -> tuple[Repeat, ...]:
    """A repeat without faults, and one with them; the first shows where the second may crash."""
    plain, boundaries = _perform(wanted, (line, given, seed), "plain", ())
    if not wanted.kinds:
        return (plain,)
    chance = random.Random(f"{seed}/{line}/crash")  # noqa: S311 - not used for secrets
    deaths = (1 + int(chance.random() * boundaries),) if "crashes" in wanted.kinds and boundaries else ()
    tried, _ = _perform(wanted, (line, given, seed), "faults", deaths)
    return plain, tried


def check_parameters(check: Check) -> None:
    """Refuse a check with parameters that do not exist. Raises `UsageError`."""
    unknown = [name for name in inspect.signature(check).parameters if name not in CHECK_TAKES]
    if unknown:
        raise UsageError(
            f"the check asks for {unknown[0]!r}",
            known=f"it may take any of: {', '.join(CHECK_TAKES)}",
            next_step="def end_state(result, effects) -> bool: ...",
        )


def _perform(wanted: Wanted, case: tuple[int, object, int], arm: Arm, deaths: tuple[int, ...]) -> tuple[Repeat, int]:
    line, given, seed = case
    passing = Passing()
    journal = LifeJournal(passing, f"trial-{line}-{seed}-{arm}")
    fate = Deaths(journal, deaths)
    chance = random.Random(f"{seed}/{line}/{arm}")  # noqa: S311 - as above
    environment = Environment(_Wall(passing), SeededRng(chance.getrandbits(32)), DaemonThreads(), fate)
    mischief = Mischief(chance, wanted.kinds if arm == "faults" else (), passing, environment.threads)
    _prepare(wanted)
    run = f"line-{line}" if wanted.agent.template is None else wanted.agent.run_id_for(given)
    with between(tools_of(wanted.agent), mischief):
        ended = _live(_Life(wanted.agent, given, run, mischief.underway), journal, environment, fate)
    reason = _judge(wanted.check, given, run, ended, mischief.effects)
    repeat = Repeat(
        line, run, seed, arm, not reason, ended.status, reason, [*mischief.done, *fate.places],
        [effect.tool for effect in mischief.effects],
    )  # fmt: skip
    return repeat, fate.count


class _Life(msgspec.Struct, frozen=True):
    agent: Any
    given: object
    run: str
    underway: Underway


def _live(life: _Life, journal: LifeJournal, environment: Environment, fate: Deaths) -> TrialEnded:
    """Live until the run ends, beginning again after each death and after each long wait."""
    passing, ended = journal.passing, TrialEnded("suspended", "it never ended")
    for _ in range(_LIVES):
        passing.begin(ended.wait_s)
        journal.dead = False
        with asyncio.Runner(loop_factory=lambda: LifeLoop(passing)) as runner:
            runner.get_loop().set_exception_handler(_say_nothing)
            try:
                life.underway.resume(runner.get_loop())
                ended = runner.run(_one_life(life, journal, environment, fate))
            except LifeTimedOut as error:
                return TrialEnded("stopped", str(error))
        if ended.status not in ("died", "waits"):
            return ended
    return TrialEnded("suspended", f"it waits again and again: {ended.reason}")


async def _one_life(life: _Life, journal: LifeJournal, environment: Environment, fate: Deaths) -> TrialEnded:
    """Drive the run until it ends, waits or dies."""
    loop = asyncio.get_running_loop()
    fate.died = loop.create_future()
    app = Holdfast(journal, agents=[life.agent], environment=environment, worker=host.this_process, recover=False)
    await app.open()
    worker = app.engine.worker.id
    driving = loop.create_task(_drive(app, life))
    watched: set[asyncio.Future[Any]] = {driving, fate.died}
    await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
    if journal.dead:
        driving.cancel()
        journal.kill(worker)
        return TrialEnded("died")
    ended = await driving
    await app.aclose()
    if ended.status != "waits":
        await life.underway.landed()  # the check has to see the final state of the world
    return ended


async def _drive(app: Holdfast, life: _Life) -> TrialEnded:
    try:
        return TrialEnded("completed", result=await app.run(life.agent, life.given, run_id=life.run))
    except RunSuspended as error:
        (row,) = await app.engine.journal.runs(run=life.run)
        reason = row.reason or error.message
        if row.due_ms is None or any(wait.kind == "person" for wait in waits_of(row)):
            return TrialEnded("suspended", reason)
        return TrialEnded("waits", reason, wait_s=max(0, row.due_ms - app.engine.environment.clock.wall_ms()) / 1000)
    except Exception as error:  # noqa: BLE001 - whatever agent code raised is how its run ended
        return TrialEnded("stopped", f"{type(error).__name__}: {error}")


def _judge(check: Check | None, given: object, run: str, ended: TrialEnded, effects: list[Effect]) -> str:
    """Why it does not pass; empty where it does."""
    names = set(inspect.signature(check).parameters) if check is not None else set[str]()
    if check is None or (ended.status != "completed" and "status" not in names):
        return "" if ended.status == "completed" else f"{ended.status}: {ended.reason}"
    known = {
        "input": given, "result": ended.result, "run": run, "effects": effects, "status": ended.status,
        "reason": ended.reason,
    }  # fmt: skip
    try:
        verdict = check(**{name: known[name] for name in names})
        if inspect.iscoroutine(verdict):
            verdict = asyncio.run(verdict)
    except AssertionError as error:
        return f"check: {str(error).splitlines()[0] if str(error) else 'its assertion does not hold'}"
    except Exception as error:  # noqa: BLE001 - a check that breaks does not pass
        return f"check: {type(error).__name__}: {error}"
    if isinstance(verdict, str):
        return f"check: {verdict}" if verdict else ""
    return "" if verdict is None or verdict else "check: it says no"


def _prepare(wanted: Wanted) -> None:
    if wanted.before is not None:
        made = wanted.before()
        if inspect.iscoroutine(made):
            asyncio.run(made)


class _Wall:
    """The wall clock of all lives."""

    def __init__(self, passing: Passing) -> None:
        self._passing = passing

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return EPOCH_MS + self._passing.ms

    async def sleep(self, seconds: float) -> None:
        """Pause this task."""
        await asyncio.sleep(seconds)


def _say_nothing(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """Ignore errors in the tasks of a dead process."""
