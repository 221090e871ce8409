"""A run with a budget whose process is killed while it reserves, while the model answers, and while it settles.

The model is outside the process, and counts. It never gets more requests than the limit permits, whatever is killed
when; what the journal says was used is never less than what the model was asked.
"""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from beforehand.inspect.reader import JournalReader
from beforehand.journal.backends import address_of
from beforehand.model.run_budget import BudgetState
from tests import forked
from tests.draws import pick

LIMIT = 5  # as in tests/crash/budgeting.py
CENT = 10_000_000  # in billionths
ROOT = Path(__file__).parents[2]


class Model:
    """A service that counts its requests, and kills the process that asks: before, or after it has answered."""

    def __init__(self, kill_at: tuple[str, int]) -> None:
        self.asked: list[str] = []
        self.kill_at = kill_at
        self.child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def reached(self, moment: str, number: int) -> None:
        if (moment, number) == self.kill_at and self.child is not None:
            os.kill(self.child.pid, signal.SIGKILL)

    @contextmanager
    def serving(self) -> Iterator[str]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with model._lock:
                    model.asked.append(self.path)
                    number = len(model.asked)
                model.reached("request", number)
                try:
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(f"answer {number}".encode())
                except (BrokenPipeError, ConnectionResetError):
                    return
                model.reached("answer", number)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def lived(journal: Path, model: Model, point: str, count: int, limit: str) -> tuple[int, str]:
    """One process to its end: its status, and what it printed."""
    with model.serving() as url:
        model.child = forked.start(
            ["-m", "tests.crash.budgeting", str(journal), url, point, str(count), limit],
            cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "NO_PROXY": "127.0.0.1"},
        )  # fmt: skip
        printed, _ = model.child.communicate(timeout=60)
        return model.child.returncode, printed


async def budget_of(journal: Path) -> BudgetState:
    opened = address_of(journal).reader()
    identity = await opened.open()
    try:
        budget = (await JournalReader(opened, identity).history("talk-x")).budget
    finally:
        await opened.close()
    assert budget is not None
    return budget


POINTS = [(kind, number) for kind in ("request", "answer", "before_flush", "after_flush") for number in range(1, 7)]
SOME = [("request", 2), ("request", 5), ("answer", 3), ("before_flush", 3), ("after_flush", 2), ("after_flush", 5)]


OF_COST = [("before_flush", 1), ("request", 2), ("answer", 3), ("after_flush", 4)]


@pytest.mark.deeper
@pytest.mark.parametrize(("limit", "some"), [("calls", SOME), pytest.param("cost", OF_COST, marks=pytest.mark.deep)])
def test_no_kill_lets_a_run_ask_more_often_than_its_budget_permits(
    tmp_path: Path, limit: str, some: list[tuple[str, int]]
):
    killed = 0
    for kind, number in pick(POINTS, some):
        journal, ours = tmp_path / f"{kind}-{number}.db", kind in {"request", "answer"}
        model = Model((kind, number))
        status, printed = lived(journal, model, "-" if ours else kind, number, limit)
        if status:
            assert status == -signal.SIGKILL, (kind, number)
            killed += 1
            status, printed = lived(journal, model, "-", 0, limit)
        budget = asyncio.run(budget_of(journal))
        assert status == 0, (kind, number)
        assert len(model.asked) <= LIMIT, (kind, number, model.asked)
        assert len(model.asked) <= budget.model_calls <= LIMIT, (kind, number)
        if limit == "cost":  # each call reserves what it costs: one cent
            assert budget.cost == budget.model_calls * CENT <= LIMIT * CENT, (kind, number)
            assert budget.assumed == budget.unpriced * CENT, (kind, number)
        assert budget.open == {}, (kind, number)
        assert 0 < int(printed) <= len(model.asked), (kind, number)
    assert killed >= len(some) - 1
