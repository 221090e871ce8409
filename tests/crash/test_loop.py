"""A ready loop whose process is killed: at every event, inside the stream of an answer, and around each effect.

The server of models and the witness of the effects live outside the process. No effect happens twice, no answer that
was given to the reader is paid for again, and the reader, who passes its position, receives each event once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand.loop import ModelCall
from tests import forked
from tests.draws import daily, pick
from tests.loop.model_server import ModelServer, Says, Status

EFFECTS = {"refund A": 1, "note A": 1, "refund B": 1}
KINDS = [
    "started", "turn_started", "answer", "tool_call", "tool_call", "outcome", "outcome", "turn_started", "answer",
    "tool_call", "outcome", "turn_started", "answer", "completed",
]  # fmt: skip
"""The finished events of a run that nothing disturbs."""


class Witness:
    """The services behind the tools: what landed at them, and a hook before and after each request lands."""

    def __init__(self) -> None:
        self.landed: list[str] = []
        self.by_key: dict[str, str] = {}
        self.on_request: Callable[[str, str], None] = lambda _moment, _path: None
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield
        await asyncio.sleep(0.05)  # answers under way to a process that is gone

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length:")[1].split("\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            path = head.split(" ")[1]
            self.on_request("before", path)
            said = json.dumps({"said": self._land(path, body)}).encode()
            self.on_request("after", path)
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(said) + said)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def _land(self, path: str, body: dict[str, str]) -> str:
        if path == "/find":
            return self.by_key.get(body["key"], "")
        if path == "/note" or body["key"] not in self.by_key:
            self.landed.append(body["what"])
            self.by_key[body["key"]] = f"done {body['what']}"
        return self.by_key[body["key"]]


class Case:
    """One run over as many processes as it takes, and where the first of them is killed."""

    def __init__(self, place: Path, client: str = "openai") -> None:
        place.mkdir(exist_ok=True)
        self.client = client
        self.journal = place / "run.db"
        self.witness = Witness()
        self.model = ModelServer(self._answer)
        self.turns: list[int] = []  # of each request to the model
        self.lives: list[list[dict[str, Any]]] = []
        self.child: subprocess.Popen[str] | None = None
        self.killed = False

    def _answer(self, body: dict[str, Any]) -> Says | Status:
        """Each time in other words, and with other ids: only a record keeps what was said before."""
        if body.get("model") == "down":
            return Status(503)
        turn = sum(one["role"] in {"assistant", "model"} for one in body.get("messages") or body["contents"])
        self.turns.append(turn)
        again = len(self.turns)
        order = json.dumps({"order": "A" if turn == 0 else "B"})
        calls = (ModelCall(f"r{again}", "refund", order), ModelCall(f"n{again}", "note", order))
        text = f"Let me see this, try {again}"
        return Says(text, (calls, calls[:1], ())[turn], pause=0.01)

    def kill(self) -> None:
        """Kill the process that lives, once."""
        if self.child is not None and not self.killed:
            self.killed = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child.pid, signal.SIGKILL)

    async def live(self, on_event: Callable[[int, dict[str, Any]], None]) -> bool:
        """One process to its end; true if the run was completed."""
        after = max((event["position"] for life in self.lives for event in life), default=0)
        arguments = (str(self.journal), self.model.url, self.witness.url, str(after), self.client)
        self.lives.append([])
        self.child = await asyncio.to_thread(
            forked.start, ["-m", "tests.crash.looping", *arguments],
            stdout=subprocess.PIPE, cwd=forked.ROOT, env={**os.environ, "NO_PROXY": "127.0.0.1"},
        )  # fmt: skip
        with self.child:
            while line := await asyncio.to_thread(self.child.stdout.readline):
                if line.endswith("\n"):
                    self.lives[-1].append(json.loads(line))
                    on_event(len(self.lives[-1]) - 1, self.lives[-1][-1])
        return bool(self.lives[-1]) and self.lives[-1][-1]["kind"] == "completed"

    async def whole(self, on_event: Callable[[int, dict[str, Any]], None] = lambda *_: None) -> None:
        async with self.model.running(), self.witness.running():
            for _ in range(5):
                if await asyncio.wait_for(self.live(on_event), 60):
                    return
        raise AssertionError(f"not completed: {self.lives}")

    def check(self) -> None:
        """What holds wherever it was killed."""
        assert Counter(self.witness.landed) == EFFECTS
        finished = [event for life in self.lives for event in life if event["kind"] != "text_delta"]
        positions = [event["position"] for event in finished]
        assert positions == sorted(set(positions)), "an event was given twice, or out of order"
        kinds = [event["kind"] for event in finished if event["kind"] != "turn_restarted"]
        assert Counter(kinds) == Counter(KINDS)
        answered = [event["step"] for event in finished if event["kind"] == "answer"]
        assert answered == ["turn/model#1", "turn#2/model#1", "turn#3/model#1"]
        self._check_paid()
        self._check_restarted()

    def _check_paid(self) -> None:
        """A turn is asked again only in the life after one that died before it gave the answer to the reader."""
        given = [sum(event["kind"] == "answer" for event in life) for life in self.lives]
        for turn, asked in Counter(self.turns).items():
            died_before = next(number for number in range(len(given)) if sum(given[: number + 1]) > turn)
            assert asked <= 1 + died_before, (turn, self.turns, given)

    def _check_restarted(self) -> None:
        """After deltas without an answer the next process says that the turn begins again."""
        for before, after in zip(self.lives, self.lives[1:], strict=False):
            if before and before[-1]["kind"] == "text_delta":
                assert after[0]["kind"] in {"turn_restarted", "answer"}, (before[-1], after[0])
                assert after[0]["step"] == before[-1]["step"]


def test_without_a_kill(tmp_path: Path):
    case = Case(tmp_path)
    asyncio.run(case.whole())
    case.check()
    (events,) = case.lives
    assert [event["kind"] for event in events if event["kind"] != "text_delta"] == KINDS
    assert sum(event["kind"] == "text_delta" for event in events) == 3 * 6
    assert case.turns == [0, 1, 2]


EVENTS = [(turn, event) for turn in range(3) for event in range(8)]


@pytest.mark.deeper
def test_killed_at_an_event(tmp_path: Path):
    for place in pick(range(33), (2, 13, 24)):
        case = Case(tmp_path / str(place))
        asyncio.run(case.whole(lambda number, _, place=place, case=case: case.kill() if number == place else None))
        case.check()


@pytest.mark.deeper
def test_killed_inside_the_stream_of_an_answer(tmp_path: Path):
    for place in pick(EVENTS, [(0, 3), (1, 0), (2, 7)]):
        case = Case(tmp_path / f"{place}")
        case.model.on_event = lambda *at, place=place, case=case: case.kill() if at == place else None
        asyncio.run(case.whole())
        case.check()
        assert case.killed


@pytest.mark.parametrize("moment", daily(["before", "after"]))
@pytest.mark.parametrize(("path", "which"), [("/note", 1), ("/refund", 2)])
def test_killed_around_an_effect(tmp_path: Path, moment: str, path: str, which: int):
    case, seen = Case(tmp_path), Counter[tuple[str, str]]()

    def on_request(now: str, at: str) -> None:
        seen[now, at] += 1
        if (now, at) == (moment, path) and seen[now, at] == which:
            case.kill()

    case.witness.on_request = on_request
    asyncio.run(case.whole())
    case.check()
    assert case.killed
    assert len(case.turns) == 3, "an answer whose effects began is never asked for again"


@pytest.mark.parametrize("client", daily(["anthropic", "google"]))
def test_each_client_survives_kills_in_a_stream_and_after_an_effect(tmp_path: Path, client: str):
    in_stream = Case(tmp_path / "stream", client)
    in_stream.model.on_event = lambda *at: in_stream.kill() if at == (1, 2) else None
    asyncio.run(in_stream.whole())
    in_stream.check()
    after = Case(tmp_path / "after", client)
    after.witness.on_request = lambda now, at: after.kill() if (now, at) == ("after", "/note") else None
    asyncio.run(after.whole())
    after.check()
    assert (in_stream.killed, after.killed, len(after.turns)) == (True, True, 3)


def test_a_route_that_fell_back_survives_kills_in_a_stream_and_after_an_effect(tmp_path: Path):
    """The answer of the second model is kept, and its turn is asked for again of neither."""
    in_stream = Case(tmp_path / "stream", "route")
    in_stream.model.on_event = lambda *_: in_stream.kill() if len(in_stream.turns) == 2 else None
    asyncio.run(in_stream.whole())
    after = Case(tmp_path / "after", "route")
    after.witness.on_request = lambda now, at: after.kill() if (now, at) == ("after", "/note") else None
    asyncio.run(after.whole())
    assert (in_stream.killed, after.killed, after.turns) == (True, True, [0, 1, 2])
    for case in (in_stream, after):
        case.check()
        assert len(case.model.requests) > len(case.turns), "the model that is down was asked, too"
        assert _reasons(case.journal) == [("gpt-test", _DOWN)] * 3


_DOWN = "down failed (unavailable): "


def _reasons(journal: Path) -> list[tuple[str, str]]:
    """The model of each decision and the beginning of its reason, read from the file without the runtime."""
    with contextlib.closing(sqlite3.connect(journal)) as file:
        bodies = [json.loads(body) for (body,) in file.execute("select body from record order by rowid")]
    return [
        (one["model"], one["why"][: len(_DOWN)]) for one in bodies if one.get("function") == "model" and "digest" in one
    ]
