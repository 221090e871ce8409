"""`ps`, `show` and `why`: what a person reads, at 80 columns, and what a program reads."""

import re
import shlex
import time
from collections.abc import Iterator

import click
import pytest

from beforehand.cli.main import main
from tests.cli.lab import DESK, Lab

LOOKING = [
    ("ps",),
    ("show", "ticket-1"),
    ("show", "ticket-1", "--at", "refund#1"),
    ("why", "ticket-1/restock#1"),
    ("verify",),
    ("doctor",),
]

SLOW = """
import asyncio
from pathlib import Path
from beforehand import Run, agent, tool

@tool
async def pay(cents: int) -> None:
    Path(__file__).with_name("world.txt").write_text("paying")
    await asyncio.sleep(600)  # until the test kills it

@agent(run_id="slow-{name}")
async def desk(run: Run, name: str) -> None:
    await pay(900)
"""


def test_ps_lists_runs_with_what_they_wait_for(asking: Lab):
    asking("run", "desk.py:desk", asking.ticket("2"))
    said = asking("ps")
    assert said.status == 0
    assert "restock#1: an attempt may have" in said.words
    assert [line.split()[1:4] for line in said.lines[:-1]] == [
        ["ticket-2", "desk", "completed"],
        ["ticket-1", "desk", "suspended"],
    ]
    assert said.lines[-1] == "2 runs: 1 suspended, 1 completed"
    assert [line for line in said.lines if len(line) > 80] == []


def test_ps_can_be_narrowed_and_paged(asking: Lab):
    asking("run", "desk.py:desk", asking.ticket("2"))
    assert [run["run"] for run in asking("ps", "--status", "completed", "--json").json["runs"]] == ["ticket-2"]
    page = asking("ps", "--limit", "1", "--json").json
    assert ([run["run"] for run in page["runs"]], page["more"]) == (["ticket-2"], True)
    page = asking("ps", "--limit", "1", "--after", "ticket-2", "--json").json
    assert ([run["run"] for run in page["runs"]], page["more"]) == (["ticket-1"], False)
    assert asking("ps", "--status", "stopped").out == "0 of 2 runs: 1 suspended, 1 completed\n"
    assert "Next: beforehand ps --limit 1 --after ticket-2" in asking("ps", "--limit", "1").out


@pytest.mark.parametrize(
    ("option", "found"),
    [
        (("--agent", "desk"), ["ticket-2", "ticket-1"]),
        (("--agent", "other"), []),
        (("--since", "1h"), ["ticket-2", "ticket-1"]),
        (("--since", "2999-01-01"), []),
        (("--search", "TICKET-2"), ["ticket-2"]),
        (("--search", "may have landed"), ["ticket-1"]),
    ],
    ids=" ".join,
)
def test_ps_finds_runs_by_agent_time_and_text(asking: Lab, option: tuple[str, ...], found: list[str]):
    asking("run", "desk.py:desk", asking.ticket("2"))
    assert [run["run"] for run in asking("ps", *option, "--json").json["runs"]] == found


def test_ps_pages_through_everything_once(asking: Lab):
    for number in range(2, 7):
        asking("run", "desk.py:desk", asking.ticket(str(number)))
    seen, after, more = list[str](), "", True
    while more:
        page = asking("ps", "--limit", "4", "--after", after, "--search", "ticket", "--json").json
        seen += [run["run"] for run in page["runs"]]
        after, more = seen[-1], page["more"]
    assert seen == [f"ticket-{number}" for number in range(6, 0, -1)]


def test_an_approved_run_is_shown_as_ready_and_names_the_worker(asking: Lab):
    asking("resolve", "ticket-1/restock#1", "--happened")
    said = asking("ps")
    assert "ready to continue, waits for a worker" in said.words
    assert said.lines[-1] == "Next: beforehand worker"
    assert asking("worker", "--once").status == 0
    assert "ready" not in asking("ps").out


def test_show_has_a_line_for_each_effect_and_what_happened_below(asking: Lab):
    said = asking("show", "ticket-1")
    lines = [line[8:].strip() for line in said.lines]
    assert said.lines[0] == "ticket-1  desk  suspended"
    assert said.lines[2] == 'input {"cents":500,"id":"1","mode":"lost"}'
    assert any(line.startswith("✓  rule#1") for line in lines)
    assert any(line.startswith("why") and line.endswith("within policy") for line in lines)
    assert any(line.startswith("model") and "confidence 0.9" in line for line in lines)
    assert any(re.fullmatch(r"✓  stock#1 +sku=mug → 7", line) for line in lines)
    assert any(re.fullmatch(r'✓  refund#1 +cents=500, order="1" → "r-1"  [\d.]+ m?s', line) for line in lines)
    assert any(line.startswith("?  restock#1") and "a person is asked" in line for line in lines)
    assert any(line.startswith("attempt 1") and "may have landed: TimeoutError: no answer" in line for line in lines)
    assert "beforehand why ticket-1/restock#1" in said.out
    assert "beforehand resolve ticket-1/restock#1 --happened --evidence TEXT --by NAME" in said.lines[-3]


def test_show_follows_a_run_until_it_has_ended(asking: Lab):
    following = asking.start("show", "ticket-1", "--follow")
    assert following.stdout is not None
    seen: list[str] = []
    while not any("suspended  " in line for line in seen[1:]):
        seen.append(following.stdout.readline())
    asking("resolve", "ticket-1/restock#1", "--happened", "--by", "bea")
    assert asking("resume", "ticket-1").status == 0
    rest, _ = following.communicate(timeout=30)
    assert following.returncode == 0
    assert "says that it happened" in rest
    assert "completed" in rest.splitlines()[-1]
    assert "stock#1" not in rest.replace("restock#1", "")
    assert asking("show", "ticket-1", "--follow", "--json").status == 2


def test_the_lines_of_show_are_in_order_of_time(asking: Lab):
    asking("resolve", "ticket-1/restock#1", "--happened", "--by", "bea")
    asking("resume", "ticket-1")
    entries = asking("show", "ticket-1", "--json").json["entries"]
    assert [entry["at"] for entry in entries] == sorted(entry["at"] for entry in entries)
    assert [entry["text"] for entry in entries if entry["step"] == "restock#1"][-1].startswith("done")


def test_show_tells_what_a_person_said(asking: Lab):
    asking("resolve", "ticket-1/restock#1", "--happened", "--by", "bea", "--evidence", "saw it")
    asking("resume", "ticket-1")
    said = asking("show", "ticket-1")
    assert "✓  restock#1" in said.out
    assert "done (bea said so: saw it)" in said.words
    assert "says that it happened: saw it" in said.words
    assert said.lines[0] == "ticket-1  desk  completed"


def test_show_in_json_is_the_whole_story(asking: Lab):
    story = asking("show", "ticket-1", "--json").json
    assert [entry["step"] for entry in story["entries"] if entry["kind"] != "run"] == [
        "rule#1", "stock#1", "refund#1", "restock#1",
    ]  # fmt: skip
    restock = story["entries"][3]
    assert (restock["kind"], restock["status"], restock["arguments"]) == ("write", "unknown", {"sku": "lost"})
    assert restock["notes"][0]["label"] == "attempt 1"


def test_show_at_a_step_is_the_state_of_that_moment(asking: Lab):
    state = asking("show", "ticket-1", "--at", "refund#1", "--json").json
    assert (state["step"], state["open"], state["not_yet"]) == ("refund#1", [], ["restock#1"])
    assert state["focus"]["result"] == "r-1"
    assert state["focus"]["arguments"] == {"cents": 500, "order": "1"}
    said = asking("show", "ticket-1", "--at", "restock#1")
    assert "Open then: restock#1" in said.out
    assert '{"sku":"lost"}' in said.out
    early = asking("show", "ticket-1", "--at", "1", "--json").json
    assert (early["record"], early["entries"]) == (1, [])


@pytest.mark.parametrize(("where", "problem"), [("refund#2", "has no step refund#2"), ("999", "has no record 999")])
def test_show_at_nowhere_says_where_it_could_be(asking: Lab, where: str, problem: str):
    said = asking("show", "ticket-1", "--at", where)
    assert said.status == 2
    assert problem in said.err
    assert "Known: it" in said.err


def test_why_answers_every_question_and_names_the_rule(asking: Lab):
    found = asking("why", "ticket-1/restock#1", "--json").json
    answers = {
        name: found[name]["answer"] for name in ("attempted", "acknowledged", "proven", "landed", "retry", "amends")
    }
    assert answers == {
        "attempted": "yes", "acknowledged": "no", "proven": "no", "landed": "perhaps", "retry": "no", "amends": "none",
    }  # fmt: skip
    assert found["retry"]["because"] == "restock has no key and no verifier: nothing would notice a second effect"
    assert found["decided_by"] == "nothing can prove it"
    assert (found["move"], found["rule"]) == ("wait", "a person is asked")
    said = asking("why", "ticket-1/restock#1")
    assert "decided by: nothing can prove it" in said.out
    assert "beforehand resolve ticket-1/restock#1 --did-not-happen --retry" in said.out


def test_why_of_a_success_says_who_proved_it(asking: Lab):
    found = asking("why", "ticket-1/refund#1", "--json").json
    assert found["proven"] == {"answer": "yes", "because": "succeeded: the call returned"}
    assert found["landed"]["answer"] == "yes"
    assert found["retry"]["answer"] == "no"
    assert (found["move"], found["rule"]) == ("nothing", "the outcome is final")
    assert found["key"] == asking.world[0].split()[-1]


def test_why_of_a_refusal_says_that_a_retry_is_harmless(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", cents=20_000))
    found = beforehand("why", "ticket-1/refund#1", "--json").json
    assert found["acknowledged"]["because"] == "attempt 1 refused: over the limit [limit]"
    assert (found["landed"]["answer"], found["retry"]["answer"]) == ("no", "yes")


def test_why_of_a_call_that_another_process_makes_says_that_it_is_open(beforehand: Lab):
    beforehand.write("slow.py", SLOW)
    driving = beforehand.start("run", "slow.py:desk", '"17"')
    try:
        while not beforehand.world:
            assert driving.poll() is None
            time.sleep(0.05)  # until the tool is at work in that process
        said = beforehand("why", "slow-17/pay#1")
        assert (said.status, "next move: wait (a call is still open)" in said.words) == (0, True)
        assert said.lines[-1] == "  beforehand show slow-17 --follow"
    finally:
        driving.kill()
        driving.communicate()


def test_why_of_a_keyed_write_after_a_death_says_that_the_key_protects_it(beforehand: Lab):
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    found = beforehand("why", "ticket-1/refund#1", "--json").json
    assert found["attempts"][0].endswith("may have landed: its process died")
    assert found["landed"]["answer"] == "perhaps"
    assert found["retry"]["answer"] == "yes"
    assert found["retry"]["because"].startswith("the system dedupes on the same key, for another 14")
    assert found["move"] in {"wait", "send it"}
    assert found["next_step"] == ["beforehand resume ticket-1"]


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ("ticket-1", "'ticket-1' is not an operation id"),
        ("ticket-9/x#1", "run ticket-9 is not in this journal"),
        ("ticket-1/pay#1", "its operations: refund#1, restock#1"),
    ],
)
def test_why_of_nothing_says_what_there_is(asking: Lab, operation: str, problem: str):
    said = asking("why", operation)
    assert said.status == 2
    assert problem in said.err


@pytest.mark.parametrize(
    "arguments", [*LOOKING, ("resolve", "a/b#1", "--happened"), ("cancel", "a"), ("resume", "a")], ids=" ".join
)
def test_nothing_that_needs_a_journal_creates_one(beforehand: Lab, arguments: tuple[str, ...]):
    said = beforehand(*arguments)
    assert said.status == 2
    assert "the journal beforehand.db does not exist" in said.err
    assert "--journal PATH" in said.err
    assert not beforehand.journal.exists()


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_nothing_is_wider_than_80_columns_or_coloured_in_a_pipe(asking: Lab, arguments: tuple[str, ...]):
    said = asking(*arguments)
    assert said.out
    assert "\x1b" not in said.out
    copied = ("  beforehand ", "Note: ", "key ", "journal")  # commands and paths are never cut
    assert not [
        line
        for line in said.lines
        if len(line) > 80 and not line.lstrip().startswith(copied) and "beforehand " not in line
    ]


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_looking_needs_no_agents_code(asking: Lab, arguments: tuple[str, ...]):
    (asking.directory / "desk.py").write_text("raise SystemExit('this must not be loaded')")
    assert asking(*arguments).status == 0


def test_what_a_model_or_tool_wrote_cannot_draw_on_the_terminal(beforehand: Lab):
    hostile = "\\x1b[2J\\u202egnp\\x07\\u2066 \\x9b31m"
    beforehand.write("desk.py", DESK.replace('"within policy"', f'"{hostile}"').replace('"no answer"', f'"{hostile}"'))
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="lost")).status == 3
    texts = [beforehand(*arguments).out for arguments in LOOKING]
    texts += [beforehand(*arguments, "--json").out for arguments in LOOKING]
    assert any("\\x1b[2J\\u202egnp\\x07" in text for text in texts)
    for sign in "\x1b\u202e\x07\u2066\x9b":
        assert not [text for text in texts if sign in text]


def test_a_terminal_without_our_signs_gets_plain_ones(asking: Lab):
    said = asking.apart("show", "ticket-1", PYTHONIOENCODING="ascii")
    assert said.status == 0
    assert "+  refund#1" in said.out
    assert "✓" not in said.out


def test_colours_are_for_terminals_that_want_them(asking: Lab):
    assert "\x1b[" in asking("ps", FORCE_COLOR="1").out
    assert "\x1b[3" not in asking("ps", FORCE_COLOR="1", NO_COLOR="1").out


def below(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """Every command that does something, by its words."""
    if not isinstance(command, click.Group):
        yield names
        return
    with click.Context(command) as context:
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from below(found, *names, name)


@pytest.mark.parametrize("words", list(below(main)), ids=" ".join)
def test_help_shows_examples_and_fits(beforehand: Lab, words: tuple[str, ...]):
    said = beforehand(*words, "--help")
    assert said.status == 0
    assert f"  beforehand {' '.join(words)}" in said.out
    assert "--json" in said.out
    assert not [line for line in said.lines if len(line) > 88], "lines of examples may be a little longer"


def test_a_run_whose_process_died_is_listed_as_abandoned(beforehand: Lab):
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    (run,) = beforehand("ps", "--json").json["runs"]
    assert (run["status"], run["abandoned"], run["driven"]) == ("running", True, False)
    said = beforehand("ps").out
    assert "abandoned" in said
    assert "its process ended, waits for a wor" in said
    assert said.endswith("Next: beforehand worker\n")


def test_why_says_what_it_relied_on_and_which_evidence_was_expected(beforehand: Lab):
    beforehand.write(
        "limits.py",
        "from datetime import timedelta\n\n"
        "from beforehand import Happened, Operation, Run, Verdict, agent, tool\n\n\n"
        "@tool\nasync def set_limit(account: str, cents: int) -> None: ...\n\n\n"
        "@set_limit.observe\ndef before(operation: Operation[None], account: str) -> int:\n    return 300\n\n\n"
        "@set_limit.expect\ndef after(cents: int) -> dict[str, int]:\n    return {'limit': cents}\n\n\n"
        "@set_limit.verify(settle_window=timedelta(seconds=1))\n"
        "def there(operation: Operation[None]) -> Verdict[None]:\n    return Happened(None)\n\n\n"
        "@agent(run_id='limit-{account}')\nasync def desk(run: Run, account: str) -> None:\n"
        "    await set_limit(account, 500)\n",
    )
    assert beforehand("run", "limits.py:desk", '"a"').status == 0
    found = beforehand("why", "limit-a/set_limit#1", "--json").json
    assert (found["relied_on"], found["expected"]) == (300, {"limit": 500})
    said = beforehand("why", "limit-a/set_limit#1")
    assert "relied on 300" in said.words
    assert 'expected as evidence {"limit":500}' in said.words


def test_the_next_page_keeps_the_filters(beforehand: Lab):
    for number in range(6):
        mode = "lost" if number % 2 else "mug"
        assert beforehand("run", "desk.py:desk", beforehand.ticket(str(number), mode=mode)).status in {0, 3}
    filters = ["--all", "--status", "suspended", "--agent", "desk", "--since", "2h", "--search", "TICKET"]
    wanted = [line["run"] for line in beforehand("ps", *filters, "--json").json["runs"]]
    words, seen = ["ps", *filters, "--limit", "1"], list[str]()
    while True:
        page = beforehand(*words)
        seen += [line["run"] for line in beforehand(*words, "--json").json["runs"]]
        following = [line for line in page.lines if line.startswith("Next: beforehand ps ")]
        if not following:
            break
        words = shlex.split(following[0])[2:]
    assert (seen, len(seen)) == (wanted, 3)
