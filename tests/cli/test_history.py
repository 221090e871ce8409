"""`replay` and `fork`: what a run has been, and what else it could have become."""

import pytest

from beforehand.inspect import replay
from tests.cli.lab import Lab


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({}, "completed"),
        ({"mode": "boom"}, "stopped: ValueError: boom"),
        ({"cents": 20_000}, "stopped: Rejected: over the limit."),
        ({"mode": "lost"}, "waits: ticket-1/restock#1: an attempt may have landed (TimeoutError: no answer)"),
    ],
)
def test_the_same_code_agrees_with_its_record_and_sends_nothing(beforehand: Lab, fields: dict[str, object], end: str):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", **fields))
    world = beforehand.world
    said = beforehand("replay", "ticket-1", "--json")
    assert (said.status, said.json["agrees"], said.json["end"]) == (0, True, end)
    assert beforehand.world == world
    assert beforehand("show", "ticket-1", "--json").json["records"] == said.json["records"], "a replay leaves no record"


def test_a_run_that_a_person_ended_while_it_waited_agrees_with_its_record(beforehand: Lab):
    target = beforehand.change("    return reference", "    return str(await run.ask('is it there?'))")
    beforehand("run", target, beforehand.ticket("1"))
    beforehand("cancel", "ticket-1")
    beforehand("resume", "ticket-1", "--agent", target)
    assert beforehand("ps", "--json").json["runs"][0]["status"] == "stopped"
    said = beforehand("replay", "ticket-1", "--agent", target, "--json")
    assert (said.status, said.json["agrees"]) == (0, True), said.json["difference"]


CHANGES = {
    "other arguments": (
        "await refund(ticket.id, ruling.cents)",
        "await refund(ticket.id, 1)",
        '- recorded: refund {"cents":500,"order":"1"}\n+ now:      refund {"cents":1,"order":"1"}',
    ),
    "a write less": ('    await restock(ticket.mode or "mug")\n', "", "- recorded, not reached: ticket-1/restock#1"),
    "a write more": (
        "    return reference",
        '    await restock("more")\n    return reference',
        '- recorded: completed with "r-1"\n+ now: restock#2',
    ),
    "a read in between": (
        "    reference =",
        '    await stock("cup")\n    reference =',
        (
            '- recorded, not reached: ticket-1/refund#1: refund {"cents":500,"order":"1"}\n'
            '- recorded, not reached: ticket-1/restock#1: restock {"sku":"mug"}\n+ now: stock#2'
        ),
    ),
    "another result": (
        "    return reference",
        "    return reference + '!'",
        '- recorded: completed with "r-1"\n+ now: completed with "r-1!"',
    ),
    "an error": (
        "    return reference",
        "    raise KeyError(1)",
        '- recorded: completed with "r-1"\n+ now: stopped: KeyError: 1',
    ),
    "a question asked otherwise": (
        "run.decide(rule, ticket)",
        "run.decide(rule, Ticket('2'))",
        '- recorded: rule [[{"id":"1","cents":500,"mode":""}],{}]\n+ now:      rule [[{"id":"2","cents":500,"mode":""}],{}]',
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_diverges_and_the_difference_says_where(beforehand: Lab, change: str):
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    old, new, difference = CHANGES[change]
    target, world = beforehand.change(old, new), beforehand.world
    found = beforehand("replay", "ticket-1", "--agent", target, "--json")
    assert (found.status, found.json["agrees"]) == (4, False)
    assert difference in found.json["difference"]
    said = beforehand("replay", "ticket-1", "--agent", target)
    assert said.lines[0].startswith("ticket-1 diverged")
    assert difference in said.out
    assert beforehand.world == world


def test_a_fix_goes_past_the_record_and_is_named(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="boom"))
    target, world = beforehand.change('raise ValueError("boom")', 'await restock("fixed")'), beforehand.world
    found = beforehand("replay", "ticket-1", "--agent", target, "--json").json
    assert (found["agrees"], found["end"], found["at"]) == (True, "a new step", "restock#2")
    assert "in desk" in found["where"]
    assert beforehand.world == world


def test_an_open_keyed_write_is_not_sent_by_a_replay(beforehand: Lab):
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    world = beforehand.world
    found = beforehand("replay", "ticket-1", "--agent", "desk.py:desk", "--json")
    assert found.status == 0
    assert beforehand.world == world


def test_nothing_is_verified_or_observed_by_a_replay(beforehand: Lab):
    target = beforehand.change(
        "@agent(",
        "@restock.verify(settle_window=timedelta(hours=1))\n"
        "async def on_the_shelf(operation: Operation[None]) -> Verdict[None]:\n    happened('looked')\n    return DidNotHappen()\n\n\n"
        "@refund.observe\nasync def balance(operation: Operation[str]) -> int:\n    happened('observed')\n    return 1\n\n\n@agent(",
    )
    beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="lost"))
    world = beforehand.world
    assert beforehand("replay", "ticket-1", "--agent", target).status == 0
    assert beforehand.world == world


def test_a_fork_inherits_outcomes_as_references(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    said = beforehand("fork", "ticket-1", "--at", "restock#1", "--as", "second")
    assert said.status == 0
    assert said.lines[0] == "second begins like ticket-1 before restock#1: 3 inherited steps."
    assert "ticket-1/restock#1" in said.out
    assert said.lines[-1] == "Next: beforehand resume second"
    assert len(beforehand.world) == 2, "nothing is sent by forking"
    assert beforehand("ps", "--status", "suspended", "--json").json["runs"][0]["run"] == "second"
    asked = beforehand("resume", "second")
    assert asked.status == 3
    assert "ticket-1/restock#1 did the same" in asked.remarks
    assert len(beforehand.world) == 2, "what the parent did is asked about, and not sent"
    assert (
        beforehand("answer", "second/restock#1", "yes", "--by", "bea", *beforehand.seen("second/restock#1")).status == 0
    )
    assert beforehand("resume", "second").out == '"r-1"\n'
    assert [line.split()[0] for line in beforehand.world] == ["refund", "restock", "restock"]
    story = beforehand("show", "second", "--json").json
    refund = next(entry for entry in story["entries"] if entry["step"] == "refund#1")
    assert "from ticket-1/refund#1; nothing was sent" in refund["text"]
    assert any(
        entry["step"] == "fork" and "of ticket-1 before restock#1" in entry["text"] for entry in story["entries"]
    )
    assert beforehand("verify").status == 0
    assert beforehand("replay", "second").status == 0


def test_a_fork_does_by_itself_what_its_parent_never_did(beforehand: Lab):
    """Before the guard: other arguments at another step, and a write that is proven never to have landed."""
    target = beforehand.change(
        '    await restock(ticket.mode or "mug")\n',
        "    try:\n        await refund(ticket.id, 20_000)\n    except Rejected:\n        pass\n"
        "    if ticket.mode == 'more':\n        await restock('cup')\n",
    )
    assert beforehand("run", target, beforehand.ticket("1")).status == 0
    beforehand("fork", "ticket-1", "--at", "refund#2", "--as", "second")
    assert beforehand("resume", "second").out == '"r-1"\n', "its parent's second refund was refused"


def test_a_fork_is_asked_about_what_its_parent_did_otherwise_at_the_same_step_or_does_meanwhile(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait")).status == 3
    beforehand("fork", "ticket-1", "--at", "stock#1", "--as", "second")
    text = (beforehand.directory / "desk.py").read_text()
    beforehand.write("desk.py", text.replace("await refund(ticket.id, ruling.cents)", "await refund(ticket.id, 7)"))
    asked = beforehand("resume", "second")
    assert asked.status == 3
    assert "ticket-1/refund#1 did the same" in asked.remarks
    assert len(beforehand.world) == 2
    assert beforehand("answer", "second/refund#1", "no").status == 0
    assert beforehand("resume", "second").status == 1
    assert len(beforehand.world) == 2


def test_what_a_fork_has_inherited_is_no_repeat(beforehand: Lab):
    """The same call once more, after the one that was inherited: its parent never made it."""
    target = beforehand.change("    return reference", "    await restock('wait')\n    return reference")
    text = (beforehand.directory / "changed.py").read_text()
    beforehand.write("desk.py", text)
    beforehand.write("changed.py", text.replace("    await restock('wait')\n    return", "    return"))
    assert beforehand("run", target, beforehand.ticket("1", mode="wait")).status == 3
    beforehand("fork", "ticket-1", "--at", "wait_for:approved#1", "--as", "second")
    beforehand.write("more.py", text.replace('if ticket.mode == "wait":', "if False:"))
    assert beforehand("resume", "second", "--agent", "more.py:desk").out == '"r-1"\n'
    assert [line.split()[0] for line in beforehand.world] == ["refund", "restock", "restock"]


def test_a_fork_of_a_fork_is_asked_about_what_either_did(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    beforehand("fork", "ticket-1", "--at", "restock#1", "--as", "second")
    beforehand("fork", "second", "--at", "refund#1", "--as", "third")
    asked = beforehand("resume", "third")
    assert asked.status == 3
    assert "ticket-1/refund#1 did the same" in asked.remarks
    assert len(beforehand.world) == 2


def test_a_fork_is_not_woken_by_a_worker(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    beforehand("fork", "ticket-1", "--at", "refund#1", "--as", "second")
    assert beforehand("worker", "desk.py:desk", "--once").out == "0 runs driven.\n"
    assert len(beforehand.world) == 2


def test_a_fork_inherits_failures_too(beforehand: Lab):
    target = beforehand.change("    return reference", "    return reference")
    beforehand.write(
        "changed.py",
        (beforehand.directory / "changed.py")
        .read_text()
        .replace(
            "    reference = await refund(ticket.id, ruling.cents)",
            "    try:\n        reference = await refund(ticket.id, ruling.cents)\n    except Rejected as no:\n        reference = f'{no.message} {no.code}'",
        ),
    )
    beforehand("run", target, beforehand.ticket("1", cents=20_000))
    beforehand("fork", "ticket-1", "--at", "restock#1", "--as", "second")
    assert beforehand("resume", "second").status == 3
    beforehand("answer", "second/restock#1", "yes", "--by", "bea", *beforehand.seen("second/restock#1"))
    assert beforehand("resume", "second").out == '"over the limit limit"\n'


@pytest.mark.parametrize(
    ("step", "new", "problem"),
    [
        ("refund#9", "x", "run ticket-1 has no step refund#9"),
        ("refund#1", "ticket-1", "run ticket-1 exists already"),
        ("refund#1", "a b", "'a b' cannot name a run"),
    ],
)
def test_a_fork_that_cannot_be_says_why(asking: Lab, step: str, new: str, problem: str):
    said = asking("fork", "ticket-1", "--at", step, "--as", new)
    assert said.status == 2
    assert problem in said.err


def test_a_fork_never_leaves_where_an_operation_is_open(beforehand: Lab):
    target = beforehand.change(
        '    await restock(ticket.mode or "mug")', '    await run.gather(restock("lost"), stock("a"))'
    )
    beforehand("run", target, beforehand.ticket("1"))
    beforehand("resolve", "ticket-1/~1/restock#1", "--happened")
    beforehand("resume", "ticket-1")
    steps = [entry["step"] for entry in beforehand("show", "ticket-1", "--json").json["entries"]]
    assert "~2/stock#1" in steps
    said = beforehand("fork", "ticket-1", "--at", "~2/stock#1", "--as", "second")
    assert said.status == 2
    assert "an operation is open there" in said.err
    assert "open: ~1/restock#1" in said.err


CHANGED = """
import asyncio, os
from beforehand import Key, Run, agent, current_operation, tool

NOW = "CHANGED" in os.environ


@tool(idempotency=Key.forever())
async def pay(name: str, cents: int) -> str:
    return current_operation().key


@agent(run_id="gather-{n}")
async def gather(run: Run, n: int) -> list[str]:
    return await run.gather(pay("a", 100), pay("b", 999 if NOW else 200))


@agent(run_id="task-{n}")
async def task(run: Run, n: int) -> str:
    done = asyncio.Event()
    paying = asyncio.create_task(pay("a", 999 if NOW else 100))
    paying.add_done_callback(lambda ended: None if ended.cancelled() or ended.exception() else done.set())
    await done.wait()
    return paying.result()


@agent(run_id="outside-{n}")
async def outside(run: Run, n: int) -> str:
    await pay("a", 100)
    if NOW:
        await asyncio.Event().wait()
    return await pay("b", 200)


@agent(run_id="new-{n}")
async def new(run: Run, n: int) -> str:
    paid: asyncio.Queue[str] = asyncio.Queue()

    async def worker() -> None:
        await paid.put(await pay("c", 1))

    if NOW:
        working = asyncio.create_task(worker())
        await paid.get()
        working.result()
    return await pay("a", 100)
"""


@pytest.mark.parametrize(
    ("agent", "difference"),
    [
        ("gather", '- recorded: pay {"cents":200,"name":"b"}\n+ now:      pay {"cents":999,"name":"b"}'),
        ("task", '- recorded: pay {"cents":100,"name":"a"}\n+ now:      pay {"cents":999,"name":"a"}'),
        ("outside", "- recorded, not reached: pay#2\n+ now: waits for something that is not on record"),
        ("new", '- recorded, not reached: new-1/pay#1: pay {"cents":100,"name":"a"}'),
    ],
)
def test_replay_ends_and_shows_both_sides_in_child_tasks_too(
    beforehand: Lab, monkeypatch: pytest.MonkeyPatch, agent: str, difference: str
):
    monkeypatch.setattr(replay, "STUCK_AFTER_S", 0.2)
    beforehand.write("changed.py", CHANGED)
    assert beforehand("run", f"changed.py:{agent}", "1").status == 0
    assert beforehand("replay", f"{agent}-1").status == 0
    changed = beforehand.write("changed_now.py", CHANGED.replace('"CHANGED" in os.environ', "True"))
    said = beforehand("replay", f"{agent}-1", "--agent", f"{changed.name}:{agent}")
    assert said.status == 4
    assert difference in said.out
    assert "beforehand replay" not in said.out
