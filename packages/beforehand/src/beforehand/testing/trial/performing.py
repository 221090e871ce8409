"""One repeat: a run of the agent in a fresh journal, through as many lives as it needs, and how it is judged."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from beforehand.app import Beforehand
from beforehand.engine.environment import DaemonThreads, Environment
from beforehand.errors import RunSuspended, UsageError
from beforehand.inspect.reader import waits_of
from beforehand.journal.port import Write
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.testing.clock import SeededRng
from beforehand.testing.faults import Effect
from beforehand.testing.loop import Actor, Died
from beforehand.testing.trial.faults import FaultKind, Mischief
from beforehand.testing.trial.figures import Arm, Repeat
from beforehand.testing.wire import between, tools_of
from beforehand.testing.world.stage import Before, InMemory, Stage, StageEnded, Task, worker_of

Check = Callable[..., Any]
CHECK_TAKES: Final = ("input", "result", "run", "effects", "status", "reason")
_RESUMES: Final = 50
"""The number of times a run is resumed after a wait before it counts as suspended."""

_LONGEST_S: Final = 3 * 3600.0
"""The time that may pass while a run is active. A run that waits for longer is suspended."""

_DECISIONS: Final = (b'{"kind":"DecisionStarted"', b'{"kind":"DecisionRecorded"')


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
    chance = random.Random(f"{seed}/{line}/{arm}")  # noqa: S311 - as above
    rng = SeededRng(chance.getrandbits(32))
    mischief = Mischief(chance, wanted.kinds if arm == "faults" else ())
    if wanted.before is not None:
        made = wanted.before()
        if inspect.iscoroutine(made):
            asyncio.run(made)
    run = f"line-{line}" if wanted.agent.template is None else wanted.agent.run_id_for(given)
    with between(tools_of(wanted.agent), mischief):
        stage = _TrialStage(Task(wanted.agent, given, run), mischief, deaths, f"trial-{line}-{seed}-{arm}", rng)
        ended = stage.perform()
    if ended.status == "stuck":
        ended.status = "stopped"
    reason = _judge(wanted.check, given, run, ended, mischief.effects)
    crashes = [f"crash {ended.boundaries[number - 1]}" for number in deaths if number <= len(ended.boundaries)]
    repeat = Repeat(
        line, run, seed, arm, not reason, ended.status, reason, [*mischief.done, *crashes],
        [effect.tool for effect in mischief.effects],
    )  # fmt: skip
    return repeat, len(ended.boundaries)


class _TrialStage(Stage):
    """A stage whose tools and models are real: time is real while one of them works, and jumps while the run is idle.

    A process leaves when its run waits, and comes back when the run is due.
    """

    outside_of_loop = "runs"
    look_s = 86_400.0

    def __init__(self, task: Task, mischief: Mischief, deaths: Sequence[int], namespace: str, rng: SeededRng) -> None:
        super().__init__(task, mischief, deaths, lambda stage: InMemory(stage, namespace), Before())
        self.store.stored = self._look_for_models
        self._environment = Environment(self, rng, DaemonThreads(), self)
        self._asked: set[str] = set()
        self._held = False
        self._finished = False

    def point(self, actor: Actor, label: str, about: str = "") -> bool:
        """A commit. It is no boundary, because the number of commits depends on how long real services take."""
        del label, about
        if not actor.alive:
            raise Died
        return False

    def reached(self, point: str) -> None:
        """A crash point of the runtime: see `Stage.point`."""
        if self._actor is not None:
            super().point(self._actor, point.replace("_", " "))

    def _start(self) -> None:
        if self._actor is not None:
            self.loop.bury(self._actor)  # gives back the connections and locks that the next process uses, too
        self._asked, self._held = set(), False
        super()._start()

    async def _at_rest(self) -> bool:
        return self._finished

    async def _live(self) -> None:
        """Drive the run until it ends or waits for a person or an event; see `Stage`."""
        for _ in range(_RESUMES):
            wait_s = await self._drive()
            if wait_s is None:
                break
            await asyncio.sleep(wait_s)
        else:
            self.ended.status, self.ended.reason = "suspended", f"it waits again and again: {self.ended.reason}"
        self._finished = True
        self._news.set()

    async def _drive(self) -> float | None:
        """Drive the run until it ends or waits. Returns the seconds after which it is due, if it waits for that."""
        assert self._actor is not None, "it lives in an actor"
        self._asked.clear()
        self._hold_for_models()
        ended, task, disk = self.ended, self._task, self._home.disk(self._actor)
        limit = asyncio.timeout(_LONGEST_S)
        app = Beforehand(disk, agents=[task.agent], environment=self._environment, worker=worker_of, recover=False)
        async with app:
            try:
                async with limit:
                    ended.result = await app.run(task.agent, task.given, run_id=self._run)
                ended.status, ended.reason = "completed", ""
            except RunSuspended as error:
                (row,) = await disk.runs(run=self._run)
                ended.status, ended.reason = "suspended", row.reason or error.message
                if row.due_ms is not None and not any(wait.kind == "person" for wait in waits_of(row)):
                    return max(0, row.due_ms - self.wall_ms()) / 1000
            except Exception as error:  # noqa: BLE001 - whatever agent code raised is how its run ended
                ended.status, ended.reason = "stopped", f"{type(error).__name__}: {error}"
                if limit.expired():
                    ended.reason = "three hours passed, and nothing arrived that the run waits for"
        return None

    # --- models: no wire is between them and the run, and only the records tell when one is asked ------------------

    def _look_for_models(self, write: Write) -> None:
        for row in write.rows:
            if self._actor is not None and row.body.startswith(_DECISIONS):
                record = decode(row.body)
                if isinstance(record, r.DecisionStarted):
                    self._asked.add(record.step)
                elif isinstance(record, r.DecisionRecorded):
                    self._asked.discard(record.step)
                self._hold_for_models()

    def _hold_for_models(self) -> None:
        assert self._actor is not None, "it asks them"
        if bool(self._asked) != self._held:
            self._held = not self._held
            self._actor.held += 1 if self._held else -1


def _judge(check: Check | None, given: object, run: str, ended: StageEnded, effects: list[Effect]) -> str:
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
