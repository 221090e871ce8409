"""Traces and metrics at a real collector: over a process that is killed, and where the collector never answers."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from beforehand.model import records as r
from beforehand.telemetry.conventions import SCHEMA_URL, TOKEN_USAGE
from tests import forked
from tests.crash.collector import Collected, collector
from tests.crash.stage import ROOT, Stored
from tests.docs.pages import blocks

PATIENCE_S = 120
DESK = f"{ROOT / 'tests' / 'crash' / 'collected.py'}:desk"
RUN = "order-1"


class Desk:
    """One journal, and the commands on it, whose SDK sends to one collector at once."""

    def __init__(self, place: Path, collector: str, **variables: str) -> None:
        self.place = place
        self.wish, self.password = secrets.token_hex(), secrets.token_hex()
        self._environment = {
            **os.environ,
            "PASSWORD": self.password,
            "OTEL_SERVICE_NAME": "desk",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
            "OTEL_BSP_SCHEDULE_DELAY": "20",
            "OTEL_METRIC_EXPORT_INTERVAL": "20",
            **variables,
        }
        self.beforehand("submit", DESK, json.dumps({"number": 1, "wish": self.wish}))

    def beforehand(self, *words: str) -> subprocess.CompletedProcess[str]:
        return forked.run(self._command(*words), cwd=self.place, env=self._environment)

    @contextmanager
    def worker(self, **variables: str) -> Generator[subprocess.Popen[str]]:
        with forked.start(
            self._command("worker", DESK, "--trace"),
            cwd=self.place, env={**self._environment, **variables},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            late = threading.Timer(PATIENCE_S, process.kill)
            late.start()
            try:
                yield process
            finally:
                late.cancel()
                process.kill()

    def answer(self) -> None:
        """The person's answer to what the run asks."""
        assert self.beforehand("answer", f"{RUN}/ask#1", self.wish, "--by", "ann").returncode == 0

    def records(self) -> list[r.Record]:
        return Stored.read(self.place / "runs.db").records(RUN)

    def result(self) -> str:
        (completed,) = (one for one in self.records() if isinstance(one, r.RunCompleted))
        return bytes(completed.result).decode()

    def _command(self, *words: str) -> list[str]:
        return ["-m", "beforehand", *words, "--journal", str(self.place / "runs.db")]


def read_until(process: subprocess.Popen[str], said: str) -> None:
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line)
        if said in line:
            return
    raise AssertionError(f"the worker did not say {said!r}: {seen}")


def test_a_collector_receives_one_trace_of_a_run_whose_process_is_killed(tmp_path: Path):
    with collector(tmp_path) as (address, back_end):
        desk = Desk(tmp_path, address)
        with desk.worker(HANGS="1") as first:
            read_until(first, "charging")
            back_end.until(lambda: len(back_end.spans("chat")) == 2)
            back_end.until(lambda: back_end.total(TOKEN_USAGE) == 2 * 42)
            first.kill()
            assert first.wait() == -signal.SIGKILL
        with desk.worker() as second:
            read_until(second, f"{RUN} suspended")
            desk.answer()
            read_until(second, f"{RUN} completed")
            second.terminate()
            assert second.wait() == 0
    spans, records = back_end.spans(), desk.records()
    check_attempts(spans)
    check_pieces(spans, [one.trace.split("-")[2] for one in records if isinstance(one, r.Claimed)])
    check_names(spans)

    # A replay measures no call again, and a process that is killed has sent what it measured.
    tokens = {kind: back_end.total(TOKEN_USAGE, **{"gen_ai.token.type": kind}) for kind in ("input", "output")}
    assert tokens == {"input": 3 * 40, "output": 3 * 2}

    # What was asked, said and answered went through the run, and not to the collector; nor did the secret.
    assert desk.result().count(desk.wish) == 2
    sent = b"".join(body for _, body in back_end.requests)
    assert b"charge#1" in sent
    assert [text for text in (desk.wish, desk.password) if text.encode() in sent] == []
    assert {one.message for one in spans} == {""}


def test_the_how_to_sends_its_spans_to_a_collector(tmp_path: Path):
    page = (ROOT / "docs" / "how-to" / "telemetry.md").read_text(encoding="utf-8")
    (program,) = (block.text for block in blocks(page) if "OTLPSpanExporter" in block.text)
    (tmp_path / "desk.py").write_text(program)
    with collector(tmp_path) as (address, back_end):
        for words in (["submit", "desk.py:desk", '"A-17"'], ["worker", "desk.py:desk", "--once", "--trace"]):
            forked.run(
                ["-m", "beforehand", *words, "--journal", "runs.db"],
                cwd=tmp_path, env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": address},
            ).check_returncode()  # fmt: skip
    assert sorted(span.name for span in back_end.spans()) == ["execute_tool refund", "invoke_agent desk"]


def check_attempts(spans: list[Collected]) -> None:
    """Each attempt is one span. That of the killed process comes from the process that found it lost."""
    attempts = [one for one in spans if one.name.startswith("execute_tool")]
    ends = {
        (one.attributes["gen_ai.tool.call.id"], one.attributes["beforehand.attempt"]): (
            one.attributes["beforehand.attempt.end"], one.attributes.get("error.type", ""), one.failed
        )
        for one in attempts
    }  # fmt: skip
    assert ends == {
        (f"{RUN}/turn/c0/reserve#1", 1): ("not_sent", "not_sent", True),
        (f"{RUN}/turn/c0/reserve#1", 2): ("returned", "", False),
        (f"{RUN}/turn#2/c1/charge#1", 1): ("lost", "lost", True),
        (f"{RUN}/turn#2/c1/charge#1", 2): ("returned", "", False),
    }
    assert len(attempts) == len(ends)
    first, second = Counter(one.process for one in attempts).items()
    assert (first[1], second[1]) == (2, 2)
    assert [one.process for one in spans if one.name.startswith("chat")] == [first[0], first[0], second[0]]


def check_pieces(spans: list[Collected], claims: list[str]) -> None:
    """One trace. Each claim has one piece; the first one died with its process, and the next ones name it."""
    assert len({one.trace for one in spans}) == 1
    assert len({one.span for one in spans}) == len(spans)
    pieces = [one for one in spans if one.name == "invoke_agent desk"]
    assert [one.span for one in pieces] == claims[1:]
    assert [one.links for one in pieces] == [{"resumed": claims[0]}, {"resumed": claims[1]}]
    assert [one.attributes["beforehand.run.status"] for one in pieces] == ["suspended", "completed"]
    (root,) = {one.parent for one in pieces}
    assert {one.parent for one in spans} == {root, *claims[:2]}
    (asked,) = (one for one in spans if one.name == "ask_person")
    assert asked.start_ns <= pieces[0].end_ns <= pieces[1].start_ns <= asked.end_ns
    assert all(one.start_ns <= one.end_ns for one in spans)


def check_names(spans: list[Collected]) -> None:
    """What the conventions name has their names, and the counts of a call arrive as numbers."""
    names = {name for one in spans for name in one.attributes if name.startswith("gen_ai.")}
    assert names <= {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    chat = next(one for one in spans if one.name == "chat clerk-1")
    usage = {name: value for name, value in chat.attributes.items() if name.startswith("gen_ai.usage.")}
    assert usage == {
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 30,
    }
    assert {one.schema for one in spans} == {SCHEMA_URL}


@contextmanager
def useless(*, listens: bool) -> Generator[tuple[str, socket.socket]]:
    """The address of a collector that is down, or that accepts what comes and never answers."""
    with socket.socket() as port:
        port.settimeout(PATIENCE_S)
        port.bind(("127.0.0.1", 0))
        if listens:
            port.listen()
        yield f"http://127.0.0.1:{port.getsockname()[1]}", port


@pytest.mark.parametrize(("listens", "at_once"), [(False, ""), (True, ""), (True, "1")])
def test_a_run_does_not_wait_for_an_exporter(tmp_path: Path, listens: bool, at_once: str):
    """The exporter would wait for an hour, in a thread of the SDK or, at once, in the one that gives spans to it."""
    with useless(listens=listens) as (address, port):
        desk = Desk(tmp_path, address, OTEL_EXPORTER_OTLP_TIMEOUT="3600", AT_ONCE=at_once)
        with desk.worker() as worker:
            read_until(worker, f"{RUN} suspended")
            if listens:
                with port.accept()[0] as unanswered:
                    unanswered.settimeout(PATIENCE_S)
                    assert unanswered.recv(8) == b"POST /v1"
                    desk.answer()
                    read_until(worker, f"{RUN} completed")
            else:
                desk.answer()
                read_until(worker, f"{RUN} completed")
    assert desk.result().count(desk.wish) == 2


@pytest.mark.deep
@pytest.mark.parametrize("listens", [False, True])
def test_a_process_ends_with_the_status_of_its_runs_when_the_exporter_gives_up(tmp_path: Path, listens: bool):
    with useless(listens=listens) as (address, _):
        desk = Desk(tmp_path, address, OTEL_EXPORTER_OTLP_TIMEOUT="0.1")
        for status in (3, 0):
            ended = desk.beforehand("worker", DESK, "--once", "--trace")
            assert ended.returncode == status, ended.stderr
            assert "Failed to export spans batch" in ended.stderr
            if status == 3:
                desk.answer()
    assert desk.result().count(desk.wish) == 2
