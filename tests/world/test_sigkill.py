"""`explore` in real processes: what dies with them, what the test's own process keeps, and what cannot be kept."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec
import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import UsageError
from beforehand.testing.world import World, processes
from examples import naive_desk as desk

SEEN: set[str] = set()
LOOSE: list[str] = []
CLEANED: list[Path] = []


class Ledger:
    """A fake that knows which processes it was called from."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.callers: set[int] = set()

    def book(self, line: str) -> None:
        self.lines.append(line)
        self.callers.add(os.getpid())

    def effects(self) -> list[str]:
        return self.lines

    def reset(self) -> None:
        self.lines, self.callers = [], set()
        SEEN.clear()


class Elsewhere(Ledger):
    """A fake whose state is not its own."""

    def book(self, line: str) -> None:
        LOOSE.append(line)

    def effects(self) -> list[str]:
        return LOOSE

    def reset(self) -> None:
        LOOSE.clear()


class Holding(Ledger):
    """A fake that holds what cannot leave a process."""

    def reset(self) -> None:
        super().reset()
        self.read = lambda: self.lines


ledger = Ledger()
elsewhere = Elsewhere()
holding = Holding()


@tool(idempotency=Key.forever())
async def refund(order: str) -> str:
    return f"refund {order} {current_operation().key[:2]}"


@tool(idempotency=Key.forever())
async def quits(order: str) -> str:
    os._exit(7 if current_operation().key else 0)


@agent(run_id="remembers-{order}", tools=[refund])
async def remembers(run: Run, order: str) -> str:
    """It keeps in memory that it has booked, and memory dies with the process."""
    if order not in SEEN:
        SEEN.add(order)
        ledger.book(f"booked {order}")
    return await refund(order)


@agent(run_id="tidies-{order}", tools=[refund])
async def tidies(run: Run, order: str) -> str:
    try:
        return await refund(order)
    finally:
        with CLEANED[0].open("a") as file:
            file.write("cleaned\n")


@agent(run_id="elsewhere-{order}", tools=[refund])
async def books_elsewhere(run: Run, order: str) -> str:
    elsewhere.book(order)
    return await refund(order)


@agent(run_id="quits-{order}", tools=[quits])
async def quitter(run: Run, order: str) -> str:
    return await quits(order)


@pytest.fixture
def killing() -> World:
    return World(sigkill=True)


def story(world: World, explored, given: str) -> str:
    with pytest.raises(AssertionError) as told:
        world.explore(explored, given)
    assert all(len(line) <= 80 for line in str(told.value).splitlines())
    return " ".join(str(told.value).split())


def test_the_mended_desk_survives_every_kill(killing: World):
    killing.use(desk.payments, desk.tickets)
    explored = killing.explore(desk.mended_desk, "ann")
    assert explored.boundaries > 20
    assert desk.payments.effects() == ["charge ann -500"]


@pytest.mark.deep
def test_what_is_found_is_told_as_it_is_in_process(killing: World):
    killing.use(desk.payments, desk.tickets)
    assert "Payments: charge ann -500 happens 2 times" in story(killing, desk.naive_desk, "ann")
    uncounted = World(sigkill=True)
    told = story(uncounted, desk.naive_desk, "ann")
    assert "`create_ticket` takes no key and declares no verify: a crash here leaves it unknown" in told


def test_memory_dies_with_its_process(killing: World):
    here = World()
    for world in (here, killing):
        world.use(ledger)
    assert not here.explore(remembers, "17").findings, "in one process the memory of the dead is still there"
    assert "Ledger: booked 17 happens 2 times" in story(killing, remembers, "17")
    assert not SEEN, "the test's own process has run nothing"
    assert os.getpid() not in ledger.callers


def test_no_cleanup_code_runs(killing: World, tmp_path: Path):
    CLEANED[:] = [tmp_path / "cleaned"]
    boundaries = killing.explore(tidies, "17").boundaries
    cleaned = CLEANED[0].read_text().count("cleaned")
    assert cleaned > boundaries, "once in each life that came to its end"
    assert cleaned <= 2 * (boundaries + 1), "and never in one that was killed before"


def test_a_fake_that_keeps_its_state_elsewhere_is_refused(killing: World):
    killing.use(elsewhere)
    with pytest.raises(UsageError, match="Elsewhere keeps what it counts elsewhere"):
        killing.explore(books_elsewhere, "17")


def test_a_fake_that_cannot_leave_its_process_is_refused(killing: World):
    killing.use(holding)
    with pytest.raises(UsageError, match="Holding cannot outlive a killed process"):
        killing.explore(remembers, "17")


@pytest.mark.deep
def test_a_result_that_cannot_leave_its_process_is_no_hindrance(killing: World):
    class Here(msgspec.Struct):
        order: str

    @tool(idempotency=Key.forever())
    async def make(order: str) -> Here:
        return Here(order if current_operation().key else "")

    @agent(run_id="make-{order}", tools=[make])
    async def maker(run: Run, order: str) -> Here:
        return await make(order)

    assert not killing.explore(maker, "17").findings


def test_a_process_that_dies_by_itself_is_told(killing: World):
    with pytest.raises(AssertionError, match="died by itself: 7"):
        killing.explore(quitter, "17")


def test_a_process_that_hangs_is_killed(killing: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "PATIENCE_S", 0.0)
    with pytest.raises(AssertionError, match="says nothing for 0 s"):
        killing.explore(remembers, "17")


NAIVE = """
from beforehand import Run, agent, tool

@tool
async def create_ticket(title: str) -> str:
    return "T-1"

@agent(run_id="report-{title}", tools=[create_ticket])
async def reporter(run: Run, title: str) -> str:
    return await create_ticket(title)

def test_reporter(world):
    world.explore(reporter, "printer")
"""


@pytest.mark.deep
def test_the_option_of_the_plugin(tmp_path: Path):
    (tmp_path / "test_reporter.py").write_text(NAIVE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--beforehand-sigkill"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 1, ran.stdout
    assert "boundaries change what the world sees" in ran.stdout
    assert "each process killed with SIGKILL" in ran.stdout


class Shop(BaseHTTPRequestHandler):
    """A real server in the test's own process, that dedupes on the key."""

    def do_POST(self) -> None:
        self.server.sold.setdefault(self.headers["Idempotency-Key"], self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Sales:
    """What the server counts, as the world asks for it."""

    lives_outside = True

    def __init__(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
        self.reset()

    def effects(self) -> list[str]:
        return [f"sold {path}" for path in self.server.sold.values()]

    def reset(self) -> None:
        self.server.sold = {}


@pytest.mark.deep
def test_a_server_outside_is_a_witness_too(killing: World):
    sales = Sales()
    serving = threading.Thread(target=sales.server.serve_forever, daemon=True)
    serving.start()

    @tool(idempotency=Key.forever())
    def sell(order: str) -> None:
        key = {"Idempotency-Key": current_operation().key}
        urlopen(Request(f"http://127.0.0.1:{sales.server.server_port}/{order}", b"", key)).close()

    @agent(run_id="sell-{order}", tools=[sell])
    async def seller(run: Run, order: str) -> None:
        await sell(order)

    killing.use(sales)
    explored = killing.explore(seller, "17")
    sales.server.shutdown()
    serving.join()
    sales.server.server_close()
    assert explored.undisturbed == ["sell(order='17')", "Sales: sold /17"]
