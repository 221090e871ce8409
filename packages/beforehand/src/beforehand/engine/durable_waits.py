"""Durable time: sleeping, waiting for events, and time limits that end a body at the same point on replay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.scopes import Scope
from beforehand.engine.active_run.waiters import wake_all
from beforehand.engine.journaled import journaled, wait_until
from beforehand.engine.sealing import refuse, sealing, take_answer
from beforehand.engine.suspension import Pause, StreamWatch, ended_by
from beforehand.journal.entry_codec import read, written
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.ids import stream
from beforehand.model.questions import Answered, Question, Scalar, question_stream
from beforehand.model.records.run import Handoff
from beforehand.model.stop_reasons import TAKE_OVER
from beforehand.model.waits import then_of


@sealing
async def sleep(scope: Scope, ms: int, step: str | None = None) -> None:
    """Pause durably. A long pause holds no process."""
    await _timer(scope, scope.step("sleep", step), ms, None)


@sealing
async def wait_for_event(
    scope: Scope, event: str, key: str, ms: int | None, step: str | None = None
) -> r.EventReceived | None:
    """Return the next event of that name and key that this run has not taken yet; None when the time is over."""
    name = scope.step(f"wait_for:{event}", step)
    return await _timer(scope, name, ms, (event, key))


async def _timer(scope: Scope, name: str, ms: int | None, event: tuple[str, str] | None) -> r.EventReceived | None:
    active = scope.active

    async def ring(_: object) -> None:
        _set_timer(active, name, ms, event)
        news = None if event is None else active.process.ledger.over(event_stream(active.run, *event))
        with news or contextlib.nullcontext() as watch:  # a sleep waits for no event
            pause = _timer_pause(active.history.steps.timers[name], active.run, event)
            await wait_until(scope, pause, lambda: _rings(active, name, event, watch), watch)

    answer = await journaled(scope, name, (r.TimerFired, r.EventReceived), ring)
    return answer if isinstance(answer, r.EventReceived) else None


def _set_timer(active: ActiveRun, name: str, ms: int | None, event: tuple[str, str] | None) -> None:
    if name in active.history.steps.timers:
        active.replay.begun.discard(name)
        return
    stamp = active.log.stamp()
    until = stamp["at"] + ms if ms is not None else 0
    what, key = event or ("", "")
    active.log.buffer(r.TimerSet(step=name, until=until, event=what, key=key, **stamp))


async def _rings(active: ActiveRun, name: str, event: tuple[str, str] | None, watch: StreamWatch | None) -> bool:
    """Record the event that came, or the end of the time; return True if there was either."""
    if event is not None and watch is not None and watch.begin_read():
        for entry in await active.process.journal.entries(event_stream(active.run, *event)):
            if entry.id not in active.history.steps.events_taken:
                received = read(entry, r.EventReceived)
                await active.log.append(replace(received, step=name, entry=entry.id, **active.log.stamp()))
                return True
    until = active.history.steps.timers[name].until
    if until and active.process.wall_ms() >= until:
        await active.log.append(r.TimerFired(step=name, **active.log.stamp()))
        return True
    return False


def _timer_pause(timer: r.TimerSet, run: str, event: tuple[str, str] | None) -> Pause:
    named, key = event or ("", "")
    asks = f"run {run} waits for {named} {key}".rstrip() if event else f"run {run} sleeps"
    return Pause("event" if event else "timer", timer.step, timer.until or None, asks, tool=named, shown=key)


def event_stream(run: str, event: str, key: str) -> str:
    """The ledger stream of one kind of event for one run. Early events are kept there."""
    return stream("event", run, event, key)


class TimeLimit:
    """A journaled time limit around a body of agent code.

    Its end is recorded before anything else, and then comes in its turn, live as on replay: that cancels the body. What
    is delivered after it is held back until the cancellation has reached every branch of the body.
    """

    def __init__(self, scope: Scope, ms: int) -> None:
        self._scope = scope
        self.name: Final = scope.step("timeout")
        self._ms = ms
        self._timeout: asyncio.Timeout | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._inside = True  # until the body has ended
        self._counts = False
        self.outlived: list[asyncio.Future[None]] = []
        """Branches that its body began, and that go on when it is over, unless they are cancelled with it."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the body. Raises `TimeoutError` at the end of the time, which is on record then."""
        active = self._scope.active
        if active.closed:
            await refuse(self._scope)
        _set_timer(active, self.name, self._ms, None)
        with self._around():
            try:
                async with self._limited():
                    yield
            except TimeoutError:
                if not self.fired:
                    raise  # it is of the body itself
            except Exception:
                if self.cancelled or not self.fired or active.closed:
                    raise  # else the body was ended before it came to that
            if self.fired:
                if self.name in active.history.delivered.by_step:
                    await take_answer(self._scope, self.name)
                raise TimeoutError

    @contextlib.contextmanager
    def _around(self) -> Generator[None]:
        """Let the branch, and what decides whether the run is suspended, know of the limit."""
        active, name = self._scope.active, self.name
        self._scope.host.limits.append(self)
        if not self.fired:
            active.waiters.limits[name] = active.history.steps.timers[name].until
        try:
            yield
        finally:
            self._scope.host.limits.remove(self)
            active.waiters.limits.pop(name, None)
            active.replay.forgo(name)  # where something else cancelled the body meanwhile
            wake_all(self.outlived)

    @property
    def over(self) -> bool:
        """True if no step of its body may begin any more: it ended the body before, or ends it in a moment.

        A step asks this when it begins. One that begins once the body is cancelled is on the way out of it.
        """
        if self.cancelled:
            return False
        # A timer that counts ends the body by itself, also where the clock on the wall is set meanwhile.
        return self.fired or not (self._counts or self._scope.active.replay.catching_up or self._seconds())

    @property
    def fired(self) -> bool:
        """True if the record says that it ended its body."""
        return self.name in self._scope.active.history.steps.answers

    @property
    def cancelled(self) -> bool:
        """True once it has cancelled its body in this process."""
        return self._timeout is not None and self._timeout.expired()

    @contextlib.asynccontextmanager
    async def _limited(self) -> AsyncGenerator[None]:
        """Let the time count only beyond the record: what is on record came before the end, or after it.

        A recorded end comes in its turn. Without one, the time counts once the code has come back to everything, and to
        what followed from that: a body may have ended in time just after its last answer.
        """
        replay = self._scope.active.replay
        async with asyncio.timeout(None) as self._timeout:
            if self.fired:
                self._cancel_in_turn()
            elif (caught_up := replay.caught_up()).done():
                self._count()
            else:
                caught_up.add_done_callback(lambda _: self._count())
            try:
                yield
            finally:
                self._inside = False
                if self._timer is not None:
                    self._timer.cancel()

    def _count(self) -> None:
        """Set the timer to what is left of the time."""
        seconds = self._seconds()
        self._counts = seconds > 0
        if self._inside:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._fire)

    def _fire(self) -> None:
        """Record the end. Whatever the code does on its way out comes after that."""
        active = self._scope.active
        if not active.closed:
            active.log.buffer(r.TimerFired(step=self.name, **active.log.stamp()))
            self._cancel_in_turn()

    def _cancel_in_turn(self) -> None:
        """Cancel the body once everything that was delivered before the end has been taken, and has had its effect.

        A branch that another one has cancelled is on its way out then: two cancellations at once would be one.
        """
        active = self._scope.active
        active.replay.turn(self.name).add_done_callback(lambda _: active.waiters.once_settled(self._cancel))

    def _cancel(self) -> None:
        active = self._scope.active
        if self._timeout is not None and self._inside and not active.closed:
            self._timeout.reschedule(asyncio.get_running_loop().time())
            active.waiters.limits.pop(self.name, None)
            active.waiters.once_settled(self._go_on)

    def _go_on(self) -> None:
        """Let the next delivery come, and branches go on that the cancellation has not reached by now."""
        self._scope.active.replay.forgo(self.name)
        wake_all(self.outlived)

    def _seconds(self) -> float:
        """Seconds left."""
        active = self._scope.active
        left = active.history.steps.timers[self.name].until - active.process.wall_ms()
        return max(left, 0) / 1000


# --- questions -----------------------------------------------------------------------------------------------------
# A run asks, holds no process while it waits, and takes the first answer. An answer and the end of the time are entries
# of one ledger stream under one key, so the first of them is final and the second writer knows it.


ANSWER: Final = "answer"
_FIRST: Final = "first"


class AnswerTerms(msgspec.Struct, frozen=True):
    """How long to wait for an answer, and its default. Without `ms` a setting applies."""

    ms: int | None = None
    default: Scalar | None = None


@sealing
async def ask(
    scope: Scope, question: Question, wanted: AnswerTerms, step: str | None = None, handoff: Handoff | None = None
) -> Answered:
    """Return the first answer, or the default at the deadline; the same on replay. Raises `Interrupted` on a message.

    If the run is handed over and a person takes it, it ends here.
    """
    active, name = scope.active, scope.step("ask" if handoff is None else "hand_off", step)
    asked = r.QuestionAsked(step=name, question=question, default=wanted.default, handoff=handoff)

    async def put(_: object) -> None:
        _put(active, name, asked, wanted)
        pause = _question_pause(active.history.steps.questions[name], active.run)
        with active.process.ledger.over(question_stream(active.run, name)) as watch:
            await wait_until(scope, pause, lambda: _answered(active, name, watch), watch)

    def same(_: r.EventReceived) -> str:
        recorded = active.history.steps.questions.get(name)
        same = recorded is not None and recorded.question == question
        return "" if same else "asks another question than the recorded one"

    answer = await journaled(scope, name, r.EventReceived, put, same)
    return msgspec.json.decode(answer.payload, type=Answered)


def answer_post(run: str, step: str, answer: Answered) -> Post:
    """The ledger entry of an answer; only the first one for a question is kept."""
    return Post(question_stream(run, step), _FIRST, written(answer))


def _put(active: ActiveRun, name: str, asked: r.QuestionAsked, wanted: AnswerTerms) -> None:
    if name in active.history.steps.questions:
        active.replay.begun.discard(name)
        return
    stamp = active.log.stamp()
    by = active.process.settings.answer_by(stamp["at"]) if wanted.ms is None else stamp["at"] + wanted.ms
    active.log.buffer(replace(asked, until=by, **stamp))


async def _answered(active: ActiveRun, name: str, watch: StreamWatch) -> bool:
    """Record the answer, or the default at the deadline; return True if there was either."""
    journal, asked, first = active.process.journal, active.history.steps.questions[name], None
    if watch.begin_read():
        first = next(iter(await journal.entries(question_stream(active.run, name))), None)
    if first is None and asked.until and active.process.wall_ms() >= asked.until:
        # The question is on record first: a process that was paused would end the question of the next owner otherwise.
        await active.log.flush()
        first = await journal.commit(answer_post(active.run, name, _late(asked)))
    if first is None:
        return False
    answer = read(first, Answered)
    if answer.over:
        await _end(active, answer)
        return False
    if answer.by:
        asked.question.checked(answer.value)
    await active.log.append(
        r.EventReceived(
            step=name, event=ANSWER, key=name, payload=r.Raw(first.body), entry=first.id, **active.log.stamp()
        )
    )
    return True


async def _end(active: ActiveRun, answer: Answered) -> None:
    """End a run that a person took over: nothing goes back to its code."""
    async with active.log.command_lock, active.log.between_attempts():
        if active.history.lifecycle.cancelled is None:
            taken = r.CommandApplied(command=TAKE_OVER, by=answer.by, entry=0, note=answer.note, **active.log.stamp())
            await active.log.append(taken)
    assert active.history.lifecycle.cancelled is not None, "that record says so"
    active.end(ended_by(active.history.lifecycle.cancelled))


def _late(asked: r.QuestionAsked) -> Answered:
    return Answered(asked.default, late=asked.default is None)


def _question_pause(asked: r.QuestionAsked, run: str) -> Pause:
    kind = "question" if asked.handoff is None else "handoff"
    verb = "asks" if asked.handoff is None else "is handed over"
    otherwise = "" if asked.default is None else f"; without an answer: {asked.default}"
    asks = f"run {run} {verb}: {asked.question.text} ({asked.question.expected}{otherwise})"
    queue, then = "" if asked.handoff is None else asked.handoff.queue, then_of(asked.default)
    due = asked.until or None
    return Pause(kind, asked.step, due, asks, at=asked.at, queue=queue, until=asked.until, then=then)
