"""A model behind a real server that is out for a while: the run waits, and a person lets it ask again."""

import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.cli.lab import Lab

AGENT = """
import asyncio
import os
import urllib.request

from beforehand import Run, agent
from beforehand.policies import Retry


async def rule(ticket: str) -> int:
    def ask() -> int:
        with urllib.request.urlopen(os.environ["MODEL"], timeout=5) as answer:
            return int(answer.read())

    return await asyncio.to_thread(ask)


@agent(run_id="r-{ticket}")
async def desk(run: Run, ticket: str) -> int:
    return await run.decide(rule, ticket)


@agent(run_id="s-{ticket}")
async def hasty(run: Run, ticket: str) -> int:
    return await run.options(retry=Retry(attempts=1)).decide(rule, ticket)
"""


class Model(ThreadingHTTPServer):
    """Answers 503 as often as `out` says, and asks to be tried again in a second; then it answers 7."""

    out = 0
    asked = 0


class Answers(BaseHTTPRequestHandler):
    """What the model says."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Model)
        self.server.asked += 1
        if self.server.out > 0:
            self.server.out -= 1
            self.send_response(503)
            self.send_header("Retry-After", "1")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"7")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server names it
        """Nothing: the test counts by itself."""


@contextmanager
def model(out: int) -> Generator[tuple[Model, str]]:
    with Model(("127.0.0.1", 0), Answers) as server:
        server.out = out
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_an_outage_of_seconds_is_waited_out(beforehand: Lab):
    beforehand.write("model.py", AGENT)
    with model(out=2) as (server, address):
        said = beforehand.apart("run", "model.py:desk", '"ann"', MODEL=address)
    assert (said.status, said.out.strip()) == (0, "7"), said.err
    assert server.asked == 3


def test_after_a_longer_one_the_printed_command_asks_again(beforehand: Lab):
    beforehand.write("model.py", AGENT)
    with model(out=1) as (server, address):
        said = beforehand.apart("run", "model.py:hasty", '"ann"', MODEL=address)
        assert said.status == 1
        assert "DecisionFailed" in said.err
        assert "asks the model again" in said.remarks
        again = re.search(r"^Next: beforehand (resume s-ann)$", said.err, re.MULTILINE)
        assert again is not None, said.err
        resumed = beforehand.apart(*again[1].split(), MODEL=address)
        assert (resumed.status, resumed.out.strip()) == (0, "7"), resumed.err
        assert server.asked == 2
        assert beforehand.apart("run", "model.py:hasty", '"ann"', MODEL=address).status == 0
        assert server.asked == 2, "the answer is on record"
