"""`beforehand run` and `beforehand resume`: one input, its result, its status, its errors."""

import json
import shlex
import sys
from types import ModuleType

import pytest

from beforehand.cli.apps import load_agents
from tests.cli.lab import Lab


def test_the_result_is_on_standard_output_and_the_rest_is_not(beforehand: Lab):
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    assert (said.status, said.out) == (0, '"r-1"\n')
    assert said.err == "ticket-1 completed\n"
    assert [line.split()[0] for line in beforehand.world] == ["refund", "restock"]


def test_the_same_input_is_the_same_run(beforehand: Lab):
    first = beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    again = beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    assert (again.status, again.out) == (first.status, first.out)
    assert len(beforehand.world) == 2


def test_json_is_one_document_and_nothing_else(beforehand: Lab):
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1"), "--json")
    assert said.json == {"run": "ticket-1", "status": "completed", "exit_status": 0, "result": "r-1"}
    assert said.err == ""


@pytest.mark.parametrize("how", ["@ticket.json", "-"])
def test_the_input_may_come_from_a_file_or_standard_input(beforehand: Lab, how: str):
    beforehand.write("ticket.json", beforehand.ticket("9"))
    assert beforehand("run", "desk.py:desk", how, given=beforehand.ticket("9")).out == '"r-9"\n'


def test_a_run_can_be_named(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1"), "--run-id", "mine").status == 0
    assert beforehand("ps", "--json").json["runs"][0]["run"] == "mine"


def test_a_run_that_waits_for_a_person_names_the_command_that_answers(beforehand: Lab):
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="lost"))
    assert (said.status, said.out) == (3, "")
    assert "beforehand resolve ticket-1/restock#1 --did-not-happen --retry --evidence TEXT --by NAME" in said.err
    again = beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="lost"), "--json")
    assert again.status == 3
    assert again.json["waits"][0]["kind"] == "person"
    assert again.json["waits"][0]["step"] == "restock#1"
    assert beforehand.world.count("restock lost") == 1


def test_an_event_that_is_missing_is_a_wait_too(beforehand: Lab):
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait"))
    assert said.status == 3
    assert "beforehand signal ticket-1 approved --key boss" in said.err


FAMILY = """
from beforehand import Run, agent
{part}

@agent(run_id="trip-{{name}}", tools=[])
async def trip(run: Run, name: str) -> str:
    return await run.join(await run.start({child}, name))
"""
PART = """
@agent(tools=[])
async def part(run: Run, name: str) -> str:
    return f"{name} is booked"
"""


@pytest.mark.parametrize("place", ["in its file", "in another file", "in the project"])
def test_a_parent_starts_its_children_and_a_worker_drives_them(beforehand: Lab, place: str):
    beforehand.write("parts.py", FAMILY.format(part=PART, child="part"))
    parts = {"in its file": PART, "in another file": "from parts import part", "in the project": "import parts"}
    child = "parts.part" if place == "in the project" else "part"
    beforehand.write("trips.py", FAMILY.format(part=parts[place], child=child))
    if place == "in the project":
        beforehand.write("pyproject.toml", '[tool.beforehand]\nagents = ["parts.py:part"]\n')
    said = beforehand("run", "trips.py:trip", '"ann"')
    assert (said.status, said.out) == (3, "")
    assert "waits for its child trip-ann~part.1" in said.err
    assert "a worker continues it when it is due: beforehand worker" in said.err
    file = "trips.py" if place == "in its file" else "parts.py"
    assert beforehand("worker", "trips.py:trip", f"{file}:part", "--once").status == 0
    assert beforehand("run", "trips.py:trip", '"ann"').out == '"ann is booked"\n'


def test_what_the_agent_raises_ends_the_run_with_the_line_of_its_code(beforehand: Lab):
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="boom"))
    assert (said.status, said.out) == (1, "")
    assert "ValueError: boom" in said.err
    assert "desk.py:" in said.err
    assert "Next:\n  beforehand show ticket-1\n" in said.err
    assert "beforehand resume ticket-1\n" in said.err


def test_a_refusal_ends_the_run_with_the_words_of_the_system(beforehand: Lab):
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1", cents=20_000), "--json")
    assert said.status == 1
    assert said.json["problem"]["error"] == "Rejected"
    assert said.json["problem"]["message"] == "over the limit"
    assert said.json["problem"]["next_step"] == "\n  beforehand show ticket-1\n  beforehand resume ticket-1"


def test_what_agent_code_does_wrong_with_its_tools_is_its_own_failure(beforehand: Lab):
    target = beforehand.change('await stock("mug")', "await stock(float('nan'))")
    said = beforehand("run", target, beforehand.ticket("1"), "--json")
    assert (said.status, said.json["status"], said.json["problem"]["error"]) == (1, "stopped", "ArgumentError")
    assert beforehand("ps", "--json").json["runs"][0]["status"] == "stopped"


def test_a_stopped_run_is_reported_and_not_begun_again(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="boom"))
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="boom"))
    assert said.status == 1
    assert "RunStopped: run ticket-1 stopped (error): ValueError: boom" in said.err
    assert "Next:\n  beforehand show ticket-1\n" in said.err
    assert "beforehand resume ticket-1\n" in said.err
    assert len(beforehand.world) == 2
    other = beforehand("run", "desk.py:desk", beforehand.ticket("1"), "--json")
    assert (other.status, other.json["status"]) == (2, "refused")


def test_a_run_id_with_another_input_is_an_error(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1")).status == 0
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1", cents=1))
    assert said.status == 2
    assert "exists with another input" in said.err
    assert "$object" not in said.err, "it is shown as a person wrote it"
    assert '"cents":1' in said.err.partition("now: ")[2]
    assert len(beforehand.world) == 2


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{", "does not fit the agent desk: Input data was truncated"),
        ('{"cents": 1}', "missing required field `id`"),
        ('{"id": "1", "cents": "x"}', "Expected `int`, got `str` - at `$.cents`"),
        ("@nowhere.json", "nowhere.json cannot be read"),
    ],
)
def test_an_input_that_does_not_fit_is_an_error_before_anything_is_recorded(beforehand: Lab, given: str, problem: str):
    said = beforehand("run", "desk.py:desk", given)
    assert said.status == 2
    assert problem in said.err
    assert not beforehand.journal.exists()


@pytest.mark.parametrize(("name", "how"), [("many.jsonl", "--inputs many.jsonl"), ("one.json", "@one.json")])
def test_a_file_that_is_given_as_an_input_is_told_how_it_is_given(beforehand: Lab, name: str, how: str):
    beforehand.write(name, beforehand.ticket("1"))
    said = beforehand("run", "desk.py:desk", name)
    assert said.status == 2
    assert f"there is a file of that name: {name}" in said.err
    assert f"Next: {how}" in said.err


@pytest.mark.parametrize("given", ["17", "anna", "O'Neil"])
def test_a_text_that_is_not_quoted_for_json_is_told_how(beforehand: Lab, given: str):
    beforehand.write(
        "clerk.py",
        'from beforehand import Run, agent\n\n\n@agent(run_id="c-{name}")\nasync def clerk(run: Run, name: str) -> str:\n'
        "    return name\n",
    )
    said = beforehand("run", "clerk.py:clerk", given)
    assert said.status == 2
    quoted = said.err.partition("Next: it takes text, quoted for JSON and for the shell: ")[2].strip()
    assert shlex.split(quoted) == [f'"{given}"']
    assert beforehand("run", "clerk.py:clerk", f'"{given}"', "--run-id", "c").out == f'"{given}"\n'


def test_changed_code_diverges_with_a_difference(asking: Lab):
    target = asking.change("await refund(ticket.id, ruling.cents)", "await refund(ticket.id, ruling.cents + 1)")
    said = asking("run", target, asking.ticket("1", mode="lost"))
    assert said.status == 4
    assert '- recorded: refund {"cents":500,"order":"1"}' in said.err
    assert '+ now:      refund {"cents":501,"order":"1"}' in said.err


TARGETS = {
    "desk.py:nobody": "desk.py has no 'nobody'",
    "nowhere.py:desk": "the file nowhere.py does not exist",
    "no_such_module:desk": "the module no_such_module does not exist",
    "desk.py:refund": "desk.py:refund is not an agent but a Tool",
    "desk": "'desk' names no agent",
    "broken.py:desk": "broken.py could not be loaded: SyntaxError",
    "raising.py:desk": "raising.py could not be loaded: ZeroDivisionError: division by zero",
    "plain.py:desk": "the agent desk is not async",
    "missing.py:desk": "missing.py could not be loaded: ModuleNotFoundError: No module named 'not_installed'",
    "twice.py:desk": "two tools of this app are named 'send'",
}


@pytest.mark.parametrize(("target", "problem"), TARGETS.items())
def test_a_target_that_cannot_be_used_says_why(beforehand: Lab, target: str, problem: str):
    beforehand.write("broken.py", "def :\n")
    beforehand.write("raising.py", "1 / 0\n")
    beforehand.write("missing.py", "import not_installed\n")
    beforehand.write("plain.py", "from beforehand import agent\n@agent(run_id='a-{x}')\ndef desk(run, x: int): ...\n")
    beforehand.write(
        "twice.py",
        "from beforehand import Run, agent, tool\n"
        "def make(where: str):\n    @tool(name='send')\n    def one(x: int) -> None: ...\n    one.__wrapped__.__qualname__ = where\n    return one\n"
        "a, b = make('a'), make('b')\n"
        "@agent(run_id='a-{x}')\nasync def desk(run: Run, x: int) -> None: ...\n",
    )
    said = beforehand("run", target, "1")
    assert said.status == 2, said.err
    assert problem in said.err
    assert "Next: " in said.err or "Known: " in said.err


def test_a_file_with_one_agent_needs_no_name(beforehand: Lab):
    assert beforehand("run", "desk.py", beforehand.ticket("1")).out == '"r-1"\n'


def test_a_module_is_found_from_the_directory_of_the_call(beforehand: Lab):
    assert beforehand("run", "desk:desk", beforehand.ticket("1")).out == '"r-1"\n'


def test_resume_finds_the_code_where_run_found_it(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="boom"))
    beforehand.write(
        "desk.py", (beforehand.directory / "desk.py").read_text().replace('raise ValueError("boom")', "pass")
    )
    said = beforehand.apart("resume", "ticket-1")
    assert (said.status, said.out) == (0, '"r-1"\n')
    assert "desk.py:desk, where desk was found the last time" in said.err
    assert len(beforehand.world) == 2


def test_resume_takes_the_code_that_it_is_told(asking: Lab):
    (asking.directory / "desk.py").rename(asking.directory / "moved.py")
    asking("resolve", "ticket-1/restock#1", "--happened")
    assert asking("resume", "ticket-1", "--agent", "moved.py:desk").out == '"r-1"\n'


def test_resume_takes_the_code_that_the_project_names(asking: Lab):
    (asking.directory / "desk.py").rename(asking.directory / "moved.py")
    asking.write("pyproject.toml", '[tool.beforehand]\nagents = ["moved.py:desk"]\n')
    asking("resolve", "ticket-1/restock#1", "--happened")
    assert asking("resume", "ticket-1").out == '"r-1"\n'


def test_resume_of_another_agents_run_is_refused(asking: Lab):
    asking.write(
        "other.py",
        "from beforehand import Run, agent\n@agent(run_id='a-{x}')\nasync def other(run: Run, x: int) -> None: ...\n",
    )
    said = asking("resume", "ticket-1", "--agent", "other.py:other")
    assert said.status == 2
    assert "run ticket-1 belongs to the agent 'desk'" in said.err


def test_resume_of_an_unknown_run(asking: Lab):
    said = asking("resume", "ticket-2")
    assert said.status == 2
    assert said.err == "UnknownRun: run ticket-2 is not in this journal\nNext: see the runs: beforehand ps\n"


def test_an_error_is_json_where_json_was_asked_for(beforehand: Lab):
    said = beforehand("run", "desk.py:nobody", "1", "--json")
    assert said.status == 2
    assert json.loads(said.out)["error"]["error"] == "UsageError"
    assert said.json["error"]["exit_status"] == 2
    assert "desk.py has no 'nobody'" in said.err


def test_a_file_whose_name_another_module_has_is_loaded_once(beforehand: Lab, monkeypatch: pytest.MonkeyPatch):
    """Two targets of one file are one module: an agent that starts the other one has to name the same agent."""
    monkeypatch.setitem(sys.modules, "twins", ModuleType("twins"))
    beforehand.write("twins.py", (beforehand.directory / "desk.py").read_text() + "\nother = desk\n")
    one, other = load_agents(["twins.py:desk", "twins.py:other"])
    assert one is other


@pytest.mark.parametrize(
    "other", ["import nothing_such\n", "@tool\nasync def restock(other: str) -> str:\n    return other\n"],
    ids=["broken", "names clash"],
)  # fmt: skip
def test_an_agent_runs_whatever_the_other_code_of_its_project_is(beforehand: Lab, other: str):
    text = "from beforehand import Run, agent, tool\n" + other
    text += "@agent()\nasync def other(run: Run, given: str) -> str:\n    return given\n"
    beforehand.write("elsewhere.py", text)
    beforehand.write("pyproject.toml", '[tool.beforehand]\nagents = ["desk.py:desk", "elsewhere.py:other"]\n')
    said = beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"))
    assert (said.status, said.out) == (0, '"r-1"\n'), said.err
