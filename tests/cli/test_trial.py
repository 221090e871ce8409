"""`trial`: real agents under faults and crashes, and figures that can be repeated."""

import json
import re
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from beforehand.testing.faults import WORDS
from beforehand.testing.trial.faults import KINDS, FaultKind
from tests.cli.lab import DESK, Lab

# A service that dedupes on the key, kept in memory so that each run can begin with an empty one.
SHOP = '''
import asyncio
from datetime import timedelta

from beforehand import Key, Run, agent, current_operation, tool

BOOKS: dict[str, str] = {}
FLAKY = []


def empty() -> None:
    BOOKS.clear()


@tool(idempotency=Key.forever())
async def pay(order: str) -> str:
    """Deduped by the service."""
    await asyncio.sleep(0)
    return BOOKS.setdefault(current_operation().key, f"paid {order}")


@tool(idempotency=Key.forever())
def ship(order: str) -> str:
    """Synchronous, in a thread."""
    return BOOKS.setdefault(current_operation().key, f"shipped {order}")


@tool
async def tell(order: str) -> None:
    """A plain write: no evidence can settle it."""


@agent(run_id="order-{order}", tools=[pay, ship])
async def shop(run: Run, order: str) -> str:
    paid = await pay(order)
    await run.sleep(timedelta(days=2))
    return f"{paid}, {await ship(order)}"


@agent(run_id="order-{order}", tools=[pay, tell])
async def careless(run: Run, order: str) -> str:
    await tell(order)
    return await pay(order)


@agent(run_id="order-{order}", tools=[pay])
async def waits(run: Run, order: str) -> str:
    await run.wait_for("approved")
    return ""


@agent(run_id="order-{order}", tools=[pay])
async def flaky(run: Run, order: str) -> str:
    FLAKY.append(order)
    if len(FLAKY) % 2:
        raise ValueError("a bad day")
    return await pay(order)


def one_payment(result: str, effects: list, input: str) -> None:
    assert len(BOOKS) == 2, f"{len(BOOKS)} entries"
    assert {effect.operation for effect in effects} == {f"order-{input}/pay#1", f"order-{input}/ship#1"}
    assert effects[0].arguments == {"order": input}
    assert result == f"paid {input}, shipped {input}"


def one_entry_each() -> bool:
    return len(BOOKS) == 2


def says_no() -> bool:
    return False


def says_why(status: str, reason: str) -> str:
    return f"{status} because {reason}" if status != "completed" else ""


def asks_too_much(moon: str) -> bool:
    return True
'''


# Tools and a model over a real server that takes its time.
WIRED = '''
import asyncio
from datetime import timedelta
from urllib.request import urlopen

from beforehand import Key, Run, agent, current_operation, tool


async def ask(what: str) -> str:
    """Over a socket, as a client of a model service does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(f"GET /{what} HTTP/1.0\\r\\n\\r\\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode().rpartition("\\r\\n\\r\\n")[2]


@tool(idempotency=Key.forever(), timeout=timedelta(seconds=30))
async def pay(order: str) -> str:
    return await ask(f"pay?key={current_operation().key}")


@tool(idempotency=Key.forever(), timeout=timedelta(seconds=30))
def ship(order: str) -> str:
    with urlopen(f"http://127.0.0.1:PORT/ship?key={current_operation().key}") as answer:
        return answer.read().decode()


quick = ship.options(timeout=timedelta(seconds=20))


@agent(run_id="order-{order}", tools=[pay, ship])
async def shop(run: Run, order: str) -> str:
    ruling = await run.decide(ask, f"rule-{order}")
    paid = await pay(order)
    await run.sleep(timedelta(hours=1))
    return f"{ruling}, {paid}, {await quick(order)}"


@agent(run_id="order-{order}", tools=[pay])
async def stuck(run: Run, order: str) -> None:
    await asyncio.Event().wait()


def nothing_changed(result: str) -> bool:
    return result == "slow answer, slow answer, slow answer"
'''


class Slow(BaseHTTPRequestHandler):
    """Answers, but not at once."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        threading.Event().wait(0.02)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"slow answer")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def slow() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.asked = []
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture
def shop(beforehand: Lab) -> Lab:
    beforehand.write("shop.py", SHOP)
    beforehand.write("cases.jsonl", '"A-1"\n"A-2"\n')
    return beforehand


def test_a_careful_agent_passes_under_every_fault(shop: Lab):
    said = shop(
        "trial", "shop.py:shop", "--inputs", "cases.jsonl", "--faults", "all", "--repeat", "6",
        "--check", "shop.py:one_payment", "--before", "shop.py:empty", "--json",
    )  # fmt: skip
    found = said.json
    assert found["failures"] == []
    assert found["arms"]["plain"] == {"curve": [1.0] * 6, "passed": 12, "repeats": 12}
    assert found["arms"]["faults"]["curve"] == [1.0] * 6
    faults = {fault.partition(": ")[2] for run in found["runs"] for fault in run["faults"]} - {""}
    assert len(faults & set(WORDS.values())) >= 5
    assert sum("crash" in fault for run in found["runs"] for fault in run["faults"]) == 12, "one crash in each run"
    assert all(run["effects"] == ["pay", "ship"] for run in found["runs"] if run["arm"] == "plain")
    assert said.status == 0


READ_BACK = """
from beforehand import DidNotHappen, Happened, Operation, Verdict
SENT: list[str] = []


def forget() -> None:
    SENT.clear()


@tool
def send(order: str) -> str:
    SENT.append(current_operation().marker)
    return SENT[-1]


@send.verify(settle_window=timedelta(seconds=90))
def in_sent_mail(operation: Operation[str]) -> Verdict[str]:
    return Happened(operation.marker) if operation.marker in SENT else DidNotHappen()


@agent(run_id="mail-{order}", tools=[send])
async def mail(run: Run, order: str) -> str:
    return await send(order)


def once(result: str) -> None:
    assert SENT == [result], f"sent {len(SENT)} times"
"""


MAILED = ("mail.py:mail", "--inputs", "cases.jsonl", "--check", "mail.py:once", "--before", "mail.py:forget")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "duplicates"])
def test_a_tool_that_can_be_read_back_passes_under_each_fault_and_happens_once(shop: Lab, kind: FaultKind):
    shop.write("mail.py", SHOP + READ_BACK)
    found = shop("trial", *MAILED, "--repeat", "6", "--faults", kind, "--json").json
    assert found["failures"] == []
    done = {fault.partition(": ")[2] for run in found["runs"] for fault in run["faults"]}
    wanted = {WORDS[one] for one in KINDS[kind]} or {""}
    assert done <= wanted
    assert done


LOCKED = """
LOCK = asyncio.Lock()


@tool(idempotency=Key.forever(), timeout=timedelta(seconds=2))
async def locked(order: str) -> str:
    async with LOCK:
        await asyncio.sleep(0.05)
    return order


@agent(run_id="both-{order}", tools=[locked, pay])
async def both(run: Run, order: str) -> list[str]:
    return await asyncio.gather(locked(order), pay(order))
"""


def test_a_crash_gives_back_the_locks_that_the_next_process_uses_too(shop: Lab):
    shop.write("locked.py", SHOP + LOCKED)
    found = shop("trial", "locked.py:both", *MAILED[1:3], "--repeat", "4", "--faults", "crashes", "--json").json
    assert found["failures"] == []
    assert sum(run["effects"] == ["pay", "locked"] for run in found["runs"] if run["faults"]) > 0


def test_a_request_that_is_delivered_twice_needs_a_system_that_dedupes(shop: Lab):
    shop.write("mail.py", SHOP + READ_BACK)
    mailed = shop("trial", *MAILED, "--faults", "duplicates", "--json").json
    assert [group["reason"] for group in mailed["failures"]] == ["check: sent 2 times"]
    paid = shop("trial", "shop.py:shop", *MAILED[1:3], "--check", "shop.py:one_entry_each", "--before", "shop.py:empty",
                "--faults", "duplicates", "--json").json  # fmt: skip
    assert paid["failures"] == []
    assert any(len(run["effects"]) > 2 for run in paid["runs"]), "it was called more often than it was done"


def test_a_careless_one_is_found_out_and_the_command_repeats_it(shop: Lab):
    arguments = ("trial", "shop.py:careless", "--inputs", "cases.jsonl", "--repeat", "8", "--seed", "5")
    found = shop(*arguments, "--json").json
    plain, faults = found["arms"]["plain"], found["arms"]["faults"]
    assert plain["curve"][0] == 1 > faults["curve"][0] > faults["curve"][-1]
    (group, *_) = found["failures"]
    assert "tell#1" in group["reason"]
    again = shop(*group["command"].removeprefix("beforehand ").split(), "--json")
    assert again.status == 1
    (repeated,) = again.json["failures"]
    assert (repeated["reason"], repeated["faults"]) == (group["reason"], group["faults"])
    assert shop(*arguments, "--json").json == found, "the same seed, the same trial"


def test_the_table_the_reasons_and_the_page(shop: Lab):
    said = shop("trial", "shop.py:careless", "--inputs", "cases.jsonl", "--repeat", "4", "--html", "trial.html")
    assert said.status == 1
    assert re.search(r"^ +pass\^1 +pass\^2 +pass\^3 +pass\^4 +runs passed$", said.out, re.MULTILINE)
    assert re.search(r"^without faults +100% +100% +100% +100% +8 of 8$", said.out, re.MULTILINE)
    assert "again: beforehand trial shop.py:careless" in said.out
    assert all(len(line) <= 80 for line in said.out.splitlines())
    again = re.search(r"again: ((?:.*\\\n)*.*)", said.out)
    assert again is not None
    assert shop(*shlex.split(again[1].replace("\\\n", ""))[1:]).status == 1, "it is copied as it is shown"
    page = (shop.directory / "trial.html").read_text()
    assert page.count("<svg") == 1 + 2, "one chart, and one row of squares for each case"
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"<script|https?://|src=|@import|url\(", page), "nothing is fetched"


def test_what_is_shown_on_the_page_is_text(shop: Lab):
    shop.write("cases.jsonl", '"<b>x</b>"\n')
    shop("trial", "shop.py:flaky", "--inputs", "cases.jsonl", "--repeat", "1", "--html", "trial.html")
    page = (shop.directory / "trial.html").read_text()
    assert "<b>x" not in page
    assert "&lt;b&gt;x" in page


def test_lines_that_do_not_fit_are_reported_and_the_rest_runs(shop: Lab):
    shop.write("cases.jsonl", '"A-1"\noops\n7\n"A-2"\n')
    said = shop("trial", "shop.py:shop", "--inputs", "cases.jsonl", "--repeat", "1", "--faults", "none", "--json")
    assert said.status == 1
    assert [one["line"] for one in said.json["refused"]] == [2, 3]
    assert [one["line"] for one in said.json["figures"]] == [1, 4]
    assert set(said.json["arms"]) == {"plain"}


def test_a_run_that_waits_for_somebody_does_not_pass(shop: Lab):
    found = shop(
        "trial", "shop.py:waits", "--inputs", "cases.jsonl", "--repeat", "1", "--faults", "none", "--json"
    ).json
    (group,) = found["failures"]
    assert group["reason"].startswith("suspended:")
    assert group["lines"] == [1, 2]


def test_half_of_the_runs_fail_and_the_estimate_says_so(shop: Lab):
    said = shop("trial", "shop.py:flaky", "--inputs", "cases.jsonl", "--repeat", "4", "--faults", "none", "--json")
    assert said.json["arms"]["plain"]["curve"] == pytest.approx([1 / 2, 1 / 6, 0, 0])
    assert said.status == 1
    relaxed = shop(
        "trial", "shop.py:flaky", "--inputs", "cases.jsonl", "--repeat", "4", "--faults", "none", "--at-least", "0.5"
    )
    assert relaxed.status == 0


@pytest.mark.parametrize(
    ("check", "agent", "reason"),
    [
        ("says_no", "shop", "check: it says no"),
        ("says_why", "flaky", "check: stopped because ValueError: a bad day"),
        ("one_payment", "careless", "check: 1 entries"),
        ("empty", "shop", ""),
    ],
)
def test_what_a_check_may_say(shop: Lab, check: str, agent: str, reason: str):
    arguments = (
        "--inputs",
        "cases.jsonl",
        "--repeat",
        "1",
        "--faults",
        "none",
        "--line",
        "1",
        "--before",
        "shop.py:empty",
    )
    found = shop("trial", f"shop.py:{agent}", *arguments, "--check", f"shop.py:{check}", "--json").json
    assert [group["reason"] for group in found["failures"]] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--faults", "locusts"], "unknown fault"),
        (["--check", "shop.py:asks_too_much"], "the check asks for 'moon'"),
        (["--check", "shop.py:nothing"], "is not a function"),
        (["--line", "9"], "no case in line 9"),
        (["--html", "no/such/place.html", "--repeat", "1"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_said(shop: Lab, arguments: list[str], said: str):
    refused = shop("trial", "shop.py:shop", "--inputs", "cases.jsonl", *arguments)
    assert (refused.status, said in refused.err) == (2, True), refused.err


def test_real_services_are_waited_for_and_long_waits_are_not(shop: Lab, slow: ThreadingHTTPServer):
    shop.write("wired.py", WIRED.replace("PORT", str(slow.server_port)))
    found = shop(
        "trial", "wired.py:shop", "--inputs", "cases.jsonl", "--repeat", "3", "--faults", "timeouts,crashes",
        "--check", "wired.py:nothing_changed", "--json",
    ).json  # fmt: skip
    assert found["failures"] == []
    assert [run["effects"] for run in found["runs"] if run["arm"] == "plain"] == [["pay", "ship"]] * 6
    assert any(fault.startswith("ship") for run in found["runs"] for fault in run["faults"]), "options are met too"
    assert len({path for path in slow.asked if "key=" in path}) == 2 * 2 * 2 * 3, "each run has keys of its own"


def test_code_that_waits_for_what_never_comes_ends(shop: Lab, slow: ThreadingHTTPServer):
    shop.write("wired.py", WIRED.replace("PORT", str(slow.server_port)))
    found = shop("trial", "wired.py:stuck", "--inputs", "cases.jsonl", "--repeat", "1", "--line", "1", "--json").json
    assert {group["reason"].partition(":")[0] for group in found["failures"]} == {"stopped"}


def test_a_line_that_names_no_run_does_not_fit(shop: Lab):
    shop.write("desk.py", DESK)
    shop.write("cases.jsonl", '{"id": "1"}\n{"id": "not a name"}\n')
    found = shop("trial", "desk.py:desk", "--inputs", "cases.jsonl", "--repeat", "1", "--faults", "none", "--json").json
    assert [one["line"] for one in found["refused"]] == [2]
    assert [one["line"] for one in found["figures"]] == [1]


def test_tools_are_as_they_were_afterwards(shop: Lab):
    shop.write("desk.py", DESK)
    shop.write("cases.jsonl", json.dumps({"id": "1"}))
    shop("trial", "desk.py:desk", "--inputs", "cases.jsonl", "--repeat", "2")
    tried = len(shop.world)
    assert shop("run", "desk.py:desk", shop.ticket("9")).status == 0
    assert len(shop.world) == tried + 2
