"""`export`, and `replay_fixture` over what it wrote: real runs as tests."""

import json
import os
from pathlib import Path

import pytest

from beforehand.cli.apps import load_agent
from beforehand.errors import ReplayDiverged, UsageError
from beforehand.testing import replay_fixture
from tests.cli.lab import DESK, Lab
from tests.cli.terminal import Terminal
from tests.cli.test_history import CHANGES


@pytest.fixture
def fixture(beforehand: Lab) -> Path:
    """The file of one exported run that has completed."""
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1")).status == 0
    said = beforehand("export", "ticket-1", "-o", "run.json")
    assert said.status == 0
    assert "replay_fixture(desk, 'run.json')" in said.out
    return beforehand.directory / "run.json"


def test_the_same_code_agrees_and_touches_nothing(beforehand: Lab, fixture: Path):
    world = beforehand.world
    beforehand.journal.unlink()
    replayed = replay_fixture(load_agent("desk.py:desk"), fixture)
    assert (replayed.agrees, replayed.end, replayed.run) == (True, "completed", "ticket-1")
    assert beforehand.world == world
    assert not beforehand.journal.exists()


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_fails_with_a_difference_a_person_can_read(beforehand: Lab, fixture: Path, change: str):
    old, new, difference = CHANGES[change]
    with pytest.raises(ReplayDiverged) as raised:
        replay_fixture(load_agent(beforehand.change(old, new)), fixture)
    assert difference in str(raised.value), "pytest shows the text of the error"
    assert "ticket-1" in str(raised.value)


@pytest.mark.parametrize(("fields", "end"), [({"mode": "lost"}, "waits"), ({"mode": "boom"}, "stopped")])
def test_a_run_is_exported_as_far_as_it_got(beforehand: Lab, fields: dict[str, object], end: str):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", **fields))
    said = beforehand("export", "ticket-1", "-o", "run.json", "--json").json
    assert said["whole"] is (end == "stopped")
    assert replay_fixture(load_agent("desk.py:desk"), "run.json").end.startswith(end)


def test_a_run_that_was_killed_is_exported(beforehand: Lab):
    killed = beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund")
    assert killed.status == -9
    beforehand("export", "ticket-1", "-o", "run.json")
    replayed = replay_fixture(load_agent("desk.py:desk"), "run.json")
    assert (replayed.agrees, replayed.at) == (True, "refund#1")
    with pytest.raises(ReplayDiverged, match="refund"):
        replay_fixture(
            load_agent(beforehand.change("refund(ticket.id, ruling.cents)", "refund(ticket.id, 1)")), "run.json"
        )


SECRETIVE = DESK.replace("@tool(idempotency=", '@tool(redact=["order"], idempotency=')


def test_redacted_values_and_machines_stay_behind_and_it_still_replays(beforehand: Lab):
    hidden = os.urandom(8).hex()
    beforehand.write("desk.py", SECRETIVE.replace("refund(ticket.id,", 'refund(Path("hidden").read_text(),'))
    beforehand.write("hidden", hidden)
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    text = beforehand("export", "ticket-1").out
    assert '"order": {' in text or '"order": "' in text
    arguments = [r["intent"]["arguments"] for r in json.loads(text)["records"] if "intent" in r]
    assert hidden not in json.dumps(arguments)
    assert os.uname().nodename not in text
    claimed = [record for record in json.loads(text)["records"] if record["kind"] == "Claimed"]
    assert [(one["worker"], one["boot"]) for one in claimed] == [("worker-1", "boot-1")]
    assert not any(record.get("digest") for record in json.loads(text)["records"] if record["kind"] == "ReadRecorded")
    beforehand.write("run.json", text)
    assert replay_fixture(load_agent("desk.py:desk"), "run.json").agrees


CHAT = '''
from beforehand import Run, agent

async def think(messages: list[str]) -> str:
    """The model."""
    return f"said {len(messages)}"

@agent(run_id="chat-{topic}")
async def chat(run: Run, topic: str) -> str:
    messages = ["you are a desk that answers at length, in whole sentences, to whatever it is asked: ☂", topic]
    for _ in range(4):
        messages.append(await run.decide(think, messages))
    return messages[-1]
'''


def test_what_a_model_was_shown_before_is_compared_too(beforehand: Lab):
    beforehand.write("chat.py", CHAT)
    assert beforehand("run", "chat.py:chat", '"cake"').status == 0
    text = beforehand("export", "chat-cake").out
    assert text.count("as_before") == 3
    assert '"digest": ""' not in [line.strip() for line in text.split("DecisionRecorded")[1:]]
    beforehand.write("run.json", text)
    assert replay_fixture(load_agent("chat.py:chat"), "run.json").agrees
    beforehand.write(
        "other.py",
        CHAT.replace("messages.append(await", "messages.append('by the way') if _ == 3 else 0; messages.append(await"),
    )
    with pytest.raises(ReplayDiverged) as raised:
        replay_fixture(load_agent("other.py:chat"), "run.json")
    assert "by the way" in raised.value.difference
    assert len(raised.value.difference) < 400, "what was alike before is left out"


DAMAGE = {
    "not JSON": (lambda text: text[: len(text) // 2], "is not a fixture"),
    "something else": (lambda text: "{}", "is not a fixture"),
    "an edited amount": (lambda text: text.replace("500", "400"), "changed or damaged"),
    "a newer version": (
        lambda text: text.replace('"beforehand_fixture": 1', '"beforehand_fixture": 9'),
        "newer version",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_fixture_that_proves_nothing_is_refused(fixture: Path, damage: str):
    spoil, said = DAMAGE[damage]
    text = fixture.read_text()
    assert spoil(text) != text
    fixture.write_text(spoil(text))
    with pytest.raises(UsageError, match=said):
        replay_fixture(load_agent("desk.py:desk"), fixture)


def test_a_fixture_of_somebody_else_or_of_nobody(beforehand: Lab, fixture: Path):
    beforehand.write("chat.py", CHAT)
    with pytest.raises(UsageError, match="a run of the agent 'desk', not of 'chat'"):
        replay_fixture(load_agent("chat.py:chat"), fixture)
    with pytest.raises(UsageError, match="beforehand export RUN -o"):
        replay_fixture(load_agent("desk.py:desk"), "nothing.json")


def test_a_reformatted_fixture_is_the_same_fixture(fixture: Path):
    fixture.write_text(json.dumps(json.loads(fixture.read_text()), ensure_ascii=False, indent=4))
    assert replay_fixture(load_agent("desk.py:desk"), fixture).agrees


def test_the_same_run_gives_the_same_file(beforehand: Lab, fixture: Path):
    assert beforehand("export", "ticket-1").out == fixture.read_text()


def test_unknown_runs_and_places(beforehand: Lab, fixture: Path):
    assert "run ticket-9 is not in this journal" in beforehand("export", "ticket-9").err
    said = beforehand("export", "ticket-1", "-o", "no/such/place.json")
    assert (said.status, "cannot be written" in said.err) == (2, True)


DRAWS = """
from beforehand import Run, agent

@agent(run_id="draws-{text}")
async def desk(run: Run, text: str) -> str:
    return "\\x9b2J\\x1b[2J\\u202eok"
"""


def test_a_terminal_is_shown_escapes_and_a_file_what_is_stored(beforehand: Lab):
    beforehand.write("draws.py", DRAWS)
    assert beforehand("run", "draws.py:desk", '"x"').status == 0
    with Terminal(beforehand, "export", "draws-x") as terminal:
        terminal.see("\\u009b2J\\u001b[2J\\u202eok")
        assert terminal.end() == 0
    assert not set(terminal.drawn) & set("\x9b\x1b\u202e")
    text = beforehand("export", "draws-x").out
    assert "\x9b2J" in text
    beforehand.write("run.json", text)
    assert replay_fixture(load_agent("draws.py:desk"), "run.json").agrees
