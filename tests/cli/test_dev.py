"""`beforehand dev` as a person uses it: one process that drives, serves and reloads, and waits out a broken file."""

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from beforehand import Run, agent
from beforehand.cli import dev
from tests import forked
from tests.cli.lab import Lab

SECONDS = 60


class Screen:
    """The lines of a running `beforehand dev`."""

    def __init__(self, process: subprocess.Popen[str], file: Path) -> None:
        self.process = process
        self._file = file
        self._read = 0

    def until(self, text: str) -> str:
        """What was printed since the last call, once `text` is in it."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            new = self._file.read_text()[self._read :]
            if text in new:
                self._read += new.index(text) + len(text)
                return new
            assert self.process.poll() is None, new
            time.sleep(0.05)  # a real process prints when it does
        raise AssertionError(f"{text!r} is not in {self._file.read_text()!r}")


@contextmanager
def developing(lab: Lab, *arguments: str) -> Generator[Screen]:
    output = lab.directory / "screen.txt"
    with output.open("w") as file:
        process = forked.start(
            lab.command("dev", *arguments), cwd=lab.directory, env=lab.surroundings({}), stdout=file, stderr=subprocess.STDOUT
        )  # fmt: skip
    try:
        yield Screen(process, output)
    finally:
        process.kill()
        process.wait(SECONDS)


def test_it_drives_serves_and_reloads_in_one_process(beforehand: Lab):
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    with developing(beforehand, "desk.py:desk", "--port", "0") as screen:
        screen.until("ticket-1 completed")
        assert 'Next: in another terminal: beforehand run desk.py:desk \'{"id":"A-1"}\'' in (
            (beforehand.directory / "screen.txt").read_text()
        )
        address = re.search(r"http://127.0.0.1:\d+/", (beforehand.directory / "screen.txt").read_text())
        assert address is not None
        with urllib.request.urlopen(address[0] + "healthz", timeout=SECONDS) as answer:
            assert answer.status == 200
        desk = (beforehand.directory / "desk.py").read_text()
        (beforehand.directory / "desk.py").write_text(desk + "\n# changed\n")
        screen.until("Reloading: desk.py changed.")
        screen.until("Driving desk")
        assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("2"), DIE_AFTER="refund").status == -9
        screen.until("ticket-2 completed")
        screen.process.send_signal(signal.SIGINT)
        assert screen.process.wait(SECONDS) == 0
    keys = {line for line in beforehand.world if line.startswith("refund")}
    assert len(keys) == 2, beforehand.world


TWO = """
from beforehand import Run, agent

@agent(run_id="pay-{order}")
async def pay(run: Run, order: str) -> str:
    return order

@agent(run_id="mail-{order}")
async def mail(run: Run, order: str) -> str:
    return order
"""


def test_a_file_with_two_agents_is_driven_whole(beforehand: Lab):
    beforehand.write("ops.py", TWO)
    for name in ("pay", "mail"):
        assert beforehand("submit", f"ops.py:{name}", '"1"').status == 0
    assert beforehand("worker", "ops.py", "ops.py:pay", "--once").out == "2 runs driven.\n"
    with developing(beforehand, "ops.py", "--no-inbox") as screen:
        screen.until("Driving pay, mail.")
        screen.until("beforehand run ops.py:pay")
        screen.until("beforehand run ops.py:mail")
    assert "say which: ops.py:name" in beforehand("run", "ops.py", '"1"').err


def test_a_file_that_cannot_be_loaded_is_waited_for(beforehand: Lab):
    desk = (beforehand.directory / "desk.py").read_text()
    (beforehand.directory / "desk.py").write_text("async deff desk():\n")
    with developing(beforehand, "desk.py:desk", "--no-inbox") as screen:
        said = screen.until("Waiting for a file to change")
        assert "SyntaxError" in said
        assert "line 1 of" in said
        (beforehand.directory / "desk.py").write_text(desk)
        screen.until("Reloading: desk.py changed.")
        screen.until("Driving desk")
        screen.process.send_signal(signal.SIGTERM)
        assert screen.process.wait(SECONDS) == 0


@pytest.mark.deep
def test_code_that_never_ends_at_module_level_is_named_and_can_be_corrected_or_ended(beforehand: Lab):
    desk = (beforehand.directory / "desk.py").read_text()
    (beforehand.directory / "desk.py").write_text(desk + "\nwhile True:\n    pass\n")
    with developing(beforehand, "desk.py:desk", "--no-inbox") as screen:
        screen.until("Still loading desk.py:desk")
        (beforehand.directory / "desk.py").write_text(desk + "\nimport time\ntime.sleep(600)\n")
        screen.until("Reloading: desk.py changed.")
        screen.until("Still loading desk.py:desk")
        screen.process.send_signal(signal.SIGINT)
        assert screen.process.wait(SECONDS) == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(("desk.py", "import newmod\n"), "No module named 'newmod'", marks=pytest.mark.deep),
        (("pyproject.toml", "[[["), "pyproject.toml cannot be read"),
        pytest.param(
            ("desk.py", "raise SystemExit('bye')\n"),
            "ends the process when it is loaded: sys.exit('bye')",
            marks=pytest.mark.deep,
        ),
    ],
    ids=["a new module", "settings", "an exit"],
)
def test_nothing_in_the_program_ends_it_and_a_new_file_is_seen(beforehand: Lab, change: tuple[str, str], says: str):
    name, text = change
    beforehand.write("pyproject.toml", "")
    before = (beforehand.directory / name).read_text()
    with developing(beforehand, "desk.py:desk", "--no-inbox") as screen:
        screen.until("Driving desk")
        (beforehand.directory / name).write_text(text + before)
        assert says in screen.until("Waiting for a file to change")
        if "newmod" in text:
            beforehand.write("newmod.py", "")
        else:
            (beforehand.directory / name).write_text(before)
        screen.until("Reloading")
        screen.until("Driving desk")


@pytest.mark.parametrize(
    ("file", "broken", "mended", "options"),
    [
        ("desk.yaml", "rules: [", "rules: []\n", ("--policy", "desk.yaml")),
        ("pyproject.toml", "[tool.beforehand]\nmonitors = 3\n", "[tool.beforehand.monitors]\n", ()),
    ],
    ids=["the policy", "the monitors"],
)
def test_what_cannot_be_read_after_the_code_has_loaded_is_waited_for(
    beforehand: Lab, file: str, broken: str, mended: str, options: tuple[str, ...]
):
    """Whatever is read once more after the code has loaded can break at that moment, as the settings did."""
    beforehand.write(file, broken)
    with developing(beforehand, "desk.py:desk", "--no-inbox", *options) as screen:
        assert file in screen.until("Waiting for a file to change")
        beforehand.write(file, mended)
        screen.until(f"Reloading: {file} changed.")
        screen.until("Driving desk")


def test_a_question_is_shown_once_with_the_commands_that_answer_it(asking: Lab):
    with developing(asking, "desk.py:desk", "--no-inbox") as screen:
        said = screen.until("--did-not-happen")
        assert "ticket-1/restock#1" in said
        assert "beforehand resolve ticket-1/restock#1" in said


def test_without_agents_it_says_what_it_needs(beforehand: Lab):
    said = beforehand("dev")
    assert (said.status, "dev needs the agents to drive" in said.err) == (2, True)


def test_a_port_that_is_taken_ends_it(beforehand: Lab):
    with developing(beforehand, "desk.py:desk", "--port", "0") as screen:
        screen.until("/enter")
        port = re.search(r"127.0.0.1:(\d+)/", (beforehand.directory / "screen.txt").read_text())
        assert port is not None
        said = beforehand.apart("dev", "desk.py:desk", "--port", port[1])
        assert said.status == 2
        assert f"cannot listen on 127.0.0.1, port {port[1]}" in said.err


class Line(msgspec.Struct):
    sku: str
    count: int
    note: str = ""


class Order(msgspec.Struct):
    id: str
    lines: list[Line]
    first: Line
    paid: bool
    kind: str | None


@pytest.mark.parametrize("kind", [Order, Line, str, int, dict[str, int], list[Line], Order | None, object])
def test_the_sample_input_fits_the_agent(kind: object):
    @agent(run_id="r-{given}")
    async def it(run: Run, given: kind) -> None: ...  # type: ignore[valid-type]  # each kind in turn

    given = json.dumps(dev.sample(it)).encode()
    it.parse_input(given)
