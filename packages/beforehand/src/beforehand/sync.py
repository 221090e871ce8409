"""The synchronous interface: the same app, its loop in a thread of its own. For scripts and notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from beforehand.agent.agent import Agent
from beforehand.control.queues import SubmitOptions, Submitted
from beforehand.errors import UsageError

if TYPE_CHECKING:
    from beforehand.app import Beforehand, RunResult
    from beforehand.control.service import ControlService
    from beforehand.inspect.stream import StreamEvent
    from beforehand.policies import RunBudget

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")


class SyncBeforehand:
    """`with Beforehand("desk.db", agents=[desk]) as app: app.run(desk, ticket)`."""

    def __init__(self, app: Beforehand) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="beforehand-loop", daemon=True)

    def open(self) -> SyncBeforehand:
        """Start the loop and open the app."""
        self._thread.start()
        try:
            self._wait(self._app.open())
        except BaseException:
            self._stop()
            raise
        return self

    def close(self) -> None:
        """Close the app and stop the loop. In a forked child, which has neither, do nothing."""
        if self._app.is_inherited:
            return
        try:
            self._wait(self._app.aclose())
        finally:
            self._stop()

    def run(
        self,
        agent: Agent[T, R],
        given: T,
        *,
        run_id: str | None = None,
        by: str = "",
        budget: RunBudget | None = None,
    ) -> R:
        """As `Beforehand.run`."""
        return self._wait(self._app.run(agent, given, run_id=run_id, by=by, budget=budget))

    def submit(self, agent: Agent[T, R], given: T, **options: Unpack[SubmitOptions]) -> Submitted:
        """As `Beforehand.submit`, with the same options."""
        return self._wait(self._app.submit(agent, given, **options))

    def resume(self, run_id: str, *, by: str = "operator") -> Any:
        """As `Beforehand.resume`."""
        return self._wait(self._app.resume(run_id, by=by))

    @property
    def service(self) -> ControlService:
        """The use cases: `app.wait(app.service.resolve(...))`."""
        return self._app.service

    def wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine of the app on its loop, and return its result."""
        return self._wait(coroutine)

    def map(self, agent: Agent[T, R], inputs: Iterable[T], *, concurrency: int = 20) -> Iterator[RunResult[T, R]]:
        """As `Beforehand.map`."""
        return self._each(self._app.map(agent, inputs, concurrency=concurrency))

    def stream(
        self,
        agent: Agent[T, R],
        given: T,
        *,
        run_id: str | None = None,
        after: int = 0,
        budget: RunBudget | None = None,
    ) -> Iterator[StreamEvent]:
        """As `Beforehand.stream`."""
        return self._each(self._app.stream(agent, given, run_id=run_id, after=after, budget=budget))

    def _each(self, values: AsyncGenerator[V]) -> Iterator[V]:
        try:
            while True:
                try:
                    yield self._wait(values.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self._wait(values.aclose())

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        if self._app.is_inherited or self._loop.is_closed():
            coroutine.close()
            _ = self._app.engine  # raises
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError(
                "code on the loop of the app would wait for itself",
                next_step="call it from another thread, or await the asynchronous app there",
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _turn(self) -> None:
        """Turn the loop until it is stopped.

        asyncio lets `SystemExit` and `KeyboardInterrupt` of a task end its loop. Here they can only come from code
        that raised them, never from Ctrl-C; the caller waiting for the task receives them too, and others wait on.
        """
        while True:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue
            return

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
