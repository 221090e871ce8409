"""The command line as processes: killed, interrupted, worked through by a worker, read through a pipe."""

import asyncio
import base64
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from beforehand import Beforehand
from beforehand.cli.telemetry import health_pages
from beforehand.errors import JournalError
from tests import forked
from tests.cli.lab import Lab


def test_a_killed_run_goes_on_where_it_was_when_it_is_given_again(beforehand: Lab):
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    assert beforehand("ps", "--json").json["runs"][0]["status"] == "running"
    said = beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"))
    assert (said.status, said.out) == (0, '"r-1"\n')
    keys = {line.split()[2] for line in beforehand.world if line.startswith("refund")}
    assert len(keys) == 1, "sent again under the same key"
    assert beforehand.world.count("restock mug") == 1


def test_a_killed_plain_write_is_never_repeated(beforehand: Lab):
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="restock").status == -9
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1")).status == 3
    assert beforehand.apart("worker", "desk.py:desk", "--once").status == 0
    assert beforehand.world.count("restock mug") == 1


def test_a_worker_drives_what_was_abandoned(beforehand: Lab):
    for number in "12":
        beforehand.apart("run", "desk.py:desk", beforehand.ticket(number), DIE_AFTER="refund")
    said = beforehand.apart("worker", "desk.py:desk", "--once", "--json")
    assert said.status == 0
    assert sorted((one["run"], one["status"]) for one in said.json["driven"]) == [
        ("ticket-1", "completed"),
        ("ticket-2", "completed"),
    ]
    assert beforehand.apart("worker", "desk.py:desk", "--once").out == "0 runs driven.\n"


FAMILY = """
from beforehand import Run, agent

@agent
async def booking(run: Run, what: str) -> str:
    return what

@agent(run_id="trip-{name}")
async def trip(run: Run, name: str) -> list[str]:
    return [await run.join(await run.start(booking, what)) for what in ("flight", "hotel")]
"""


def test_a_worker_goes_on_once_with_a_parent_whose_child_it_has_completed(beforehand: Lab):
    beforehand.write("family.py", FAMILY)
    assert beforehand("submit", "family.py:trip", '"ann"').status == 0
    said = beforehand("worker", "family.py:trip", "family.py:booking", "--once")
    assert (said.status, said.out) == (0, "3 runs driven.\n"), "each run counts once, and by its last end"
    assert {one["status"] for one in beforehand("ps", "--children", "--json").json["runs"]} == {"completed"}


def test_a_worker_leaves_runs_of_agents_that_it_does_not_know(beforehand: Lab):
    beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund")
    beforehand.write(
        "other.py",
        "from beforehand import Run, agent\n@agent(run_id='a-{x}')\nasync def other(run: Run, x: int) -> None: ...\n",
    )
    said = beforehand.apart("worker", "other.py:other", "--once")
    assert (said.status, said.out) == (0, "0 runs driven.\n")
    assert "Runs of desk of the program desk wait too, and their code is not here" in said.err


def test_a_worker_without_agents_says_what_it_needs(beforehand: Lab):
    said = beforehand("worker")
    assert said.status == 2
    assert "a worker needs the code of the agents" in said.err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_worker_works_until_a_person_or_a_service_manager_ends_it(
    beforehand: Lab, number: signal.Signals, status: int
):
    beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund")
    worker = beforehand.start("worker", "desk.py:desk")
    assert worker.stderr is not None
    lines: list[str] = []
    for line in worker.stderr:
        lines.append(line)
        if "completed" in line:
            break
    worker.send_signal(number)
    assert worker.wait(timeout=30) == status
    worker.communicate()
    assert lines[0] == "Driving desk. Press Ctrl-C to end.\n"
    assert beforehand("ps", "--json").json["runs"][0]["status"] == "completed"


def probed(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_worker_answers_probes_until_it_ends(beforehand: Lab):
    worker = beforehand.start("worker", "desk.py:desk", "--health", "127.0.0.1:0")
    assert worker.stderr is not None
    live, ready = next(line for line in worker.stderr if line.startswith("Health: ")).split()[1:]
    assert (probed(live), probed(ready)) == ((200, "ok\n"), (200, "ready\n"))
    assert probed(live.replace("healthz", "metrics")) == (404, "the pages are /healthz, /readyz\n")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=30)
    assert worker.returncode == 0


def test_a_worker_is_not_ready_while_a_task_fails_or_it_ends(beforehand: Lab):
    async def main() -> list[tuple[str, bytes]]:
        async def failing() -> None:
            raise JournalError("the disk is full")

        async with Beforehand(str(beforehand.journal), recover=False) as app:
            pages = health_pages(app)
            await app.engine.housekeeping.round("commands could not be taken", failing)
            answers = [await pages["/readyz"](), await pages["/healthz"]()]
            await app.engine.shut_down([])
            return [*answers, await pages["/readyz"]()]

    assert asyncio.run(main()) == [
        ("503 Service Unavailable", b"commands could not be taken\n"),
        ("200 OK", b"ok\n"),
        ("503 Service Unavailable", b"the worker is ending\n"),
    ]


def test_an_interrupted_run_ends_with_130_and_loses_nothing(beforehand: Lab):
    beforehand.change("    return reference", "    return reference")
    slow = (
        (beforehand.directory / "changed.py")
        .read_text()
        .replace(
            "    if ticket.mode ==",
            "    import asyncio, sys\n    print('waiting', file=sys.stderr, flush=True)\n    await asyncio.Event().wait()\n    if ticket.mode ==",
            1,
        )
    )
    beforehand.write("changed.py", slow)
    running = beforehand.start("run", "changed.py:desk", beforehand.ticket("1"))
    assert running.stderr is not None
    assert running.stderr.readline() == "waiting\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (130, "")
    assert "What was recorded is kept" in err
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1")).out == '"r-1"\n'
    assert len(beforehand.world) == 2


def test_a_second_process_joins_a_run_and_gets_the_same_result(beforehand: Lab):
    both = [beforehand.start("run", "desk.py:desk", beforehand.ticket("1")) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in both] == ['"r-1"\n', '"r-1"\n']
    assert len(beforehand.world) == 2


@pytest.mark.parametrize("arguments", [("show", "ticket-1", "--json"), ("inbox",)], ids=lambda given: given[0])
def test_who_stops_reading_hears_no_complaint(asking: Lab, arguments: tuple[str, ...]):
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait(timeout=30)
    assert reader.stdin is not None
    ended = subprocess.run(
        [sys.executable, *asking.command(*arguments)], cwd=asking.directory, env=asking.surroundings({}),
        stdout=reader.stdin, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    reader.stdin.close()


@pytest.mark.parametrize(
    "command", [("serve", "--port", "0"), ("serve-hooks", "--port", "0", "--sender", "bank=BANK:tool=transfer")]
)
def test_servers_limit_the_connections_of_one_address(beforehand: Lab, command: tuple[str, ...]):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    numbered = tuple(str(port) if one == "0" else one for one in command)
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1")).status == 0
    secret = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    server = forked.start(
        beforehand.command(*numbered, "--per-peer", "3"), cwd=beforehand.directory, stderr=subprocess.PIPE,
        env=beforehand.surroundings({"BANK": secret}),
    )  # fmt: skip
    try:
        assert server.stderr is not None
        while "http://" not in server.stderr.readline():
            assert server.poll() is None
        with ExitStack() as held:
            lines: list[socket.socket] = []
            while len(lines) < 4:
                try:
                    lines.append(held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)))
                except ConnectionRefusedError:  # it says where it will listen before it does
                    assert server.poll() is None
            assert lines[3].recv(100).startswith(b"HTTP/1.1 429 ")
    finally:
        server.kill()
        server.communicate()
