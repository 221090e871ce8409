"""A contradicted success from the outside: a review wherever the outcome is shown, and its answers."""

import pytest

from tests.cli.lab import Lab

BANK = """
from datetime import timedelta

from beforehand import Deferred, Key, Operation, Run, agent, current_operation, tool


@tool(idempotency=Key.forever())
async def pay(name: str) -> str:
    assert current_operation().key
    raise Deferred("accepted by the bank", within=timedelta(hours=24), key=f"P-{name}")


@pay.compensate
async def take_back(operation: Operation[str], name: str) -> None:
    with open("world", "a") as world:
        world.write(f"take back {name}\\n")


@tool
async def write(name: str) -> str:
    return "written"


@agent(run_id="pay-{name}", tools=[pay, write])
async def desk(run: Run, name: str) -> str:
    done = await pay(name)
    await write(name)
    return done
"""
NAME = "pay-ann/pay#1"


@pytest.fixture
def bounced(beforehand: Lab) -> Lab:
    beforehand.write("bank.py", BANK)
    assert beforehand("run", "bank.py:desk", '"ann"').status == 3
    beforehand("deliver", "P-ann", "--id", "m1", "--result", '"R-1"')
    assert beforehand("resume", "pay-ann").out == '"R-1"\n'
    assert beforehand("inbox").lines[0].startswith("Nothing needs you")
    beforehand("deliver", "P-ann", "--id", "m2", "--status", "failed", "--why", "bounced")
    return beforehand


def test_it_is_in_the_inbox_and_wherever_the_outcome_is_shown(bounced: Lab):
    (item,) = bounced("inbox", "--json").json
    assert (item["kind"], item["item"]) == ("review", NAME)
    assert "bounced" in item["asks"]

    (listed,) = bounced("ps", "--json").json["runs"]
    assert listed["contradicted"] == ["pay#1"]
    line, _, next_step = bounced("ps").lines
    assert not line.startswith("✓")
    assert "contradicted: pay#1" in line
    assert next_step == f"Next: beforehand why {NAME}"

    shown = bounced("show", "pay-ann")
    assert "contradicted: attempt 1 reported late: rejected bounced" in shown.words
    assert f"beforehand why {NAME}" in shown.out
    entries = [one for one in bounced("show", "pay-ann", "--json").json["entries"] if one["step"] == "pay#1"]
    assert entries[-1]["mark"] == "asks"
    notes = [f"{note['label']}: {note.get('text', '')}" for entry in entries for note in entry.get("notes", ())]
    assert notes[0] == "attempt 1: accepted"
    assert [one for one in notes if one.startswith("answered")] == [
        "answered: succeeded: the answer m1 came (by anna)", "answered: failed: bounced (by anna)",
    ]  # fmt: skip

    why = bounced("why", NAME, "--json").json
    assert why["proven"]["answer"] == why["landed"]["answer"] == "disputed"
    assert "bounced" in why["proven"]["because"]
    assert why["status"] == "succeeded"
    assert "accepted, and answered later" in why["attempts"][0]
    assert "returned" not in why["attempts"][0]
    assert why["relied"] == ["write#1 (succeeded) began after it", "run pay-ann completed with its result"]
    text = " ".join(bounced("why", NAME).out.split())
    assert "contradicted: attempt 1 reported late: rejected bounced" in text
    assert "relied on it: write#1 (succeeded) began after it" in text

    about = bounced("inbox", "--item", NAME, "--json").json
    assert about["relied"] == why["relied"]
    assert "relied on" in bounced("inbox", "--item", NAME).out
    assert bounced("verify").status == 0


def test_every_printed_next_step_works_and_one_answer_closes_it(bounced: Lab):
    steps = bounced("why", NAME, "--json").json["next_step"]
    assert steps[0] == f"beforehand inbox --item {NAME}"
    assert bounced(*steps[0].split()[1:]).status == 0
    assert f"beforehand resolve {NAME} --did-not-happen --evidence TEXT --by NAME" in steps
    said = bounced("resolve", NAME, "--did-not-happen", "--by", "bea", "--evidence", "no money came")
    assert said.status == 0
    assert said.lines[0] == f"Recorded: the contradiction of {NAME} is answered. Its outcome stays succeeded."
    assert said.lines[-1] == "Next: beforehand undo pay-ann"
    assert bounced("inbox").lines[0].startswith("Nothing needs you")
    assert bounced("ps").lines[0].startswith("✓")
    second = bounced("resolve", NAME, "--happened", "--by", "cid")
    assert second.status == 2
    assert "already answered by bea" in second.err
    why = bounced("why", NAME).out
    assert "bea answered the contradiction: pay#1: it did not happen (no money came)" in " ".join(why.split())
    assert "by bea: pay#1: it did not happen (no money came)" in " ".join(bounced("show", "pay-ann").out.split())


def test_compensation_undoes_the_run(bounced: Lab):
    shown = " ".join(bounced("inbox", "--item", NAME).out.split())
    assert "undoes the whole run pay-ann" in shown
    said = bounced("resolve", NAME, "--compensate", "--by", "bea")
    assert said.lines[-1] == "Next: beforehand resume pay-ann"
    bounced("resume", "pay-ann")
    assert (bounced.directory / "world").read_text() == "take back ann\n"
    (listed,) = bounced("ps", "--json").json["runs"]
    assert (listed["status"], listed["contradicted"]) == ("completed", []), "what was written stands"


def test_a_word_that_sends_it_again_is_refused(bounced: Lab):
    refused = bounced("resolve", NAME, "--did-not-happen", "--retry", "--by", "bea")
    assert refused.status == 2
    assert "is not sent again" in refused.err
    refused = bounced("resolve", NAME, "--same-key", "--by", "bea")
    assert refused.status == 2
    assert "happened, did_not_happen, compensate" in refused.err


def test_one_line_leads_to_all_contradictions(bounced: Lab):
    for name in ("bob", "cid"):
        assert bounced("run", "bank.py:desk", f'"{name}"').status == 3
        bounced("deliver", f"P-{name}", "--id", f"{name}-1", "--result", '"R"')
        assert bounced("resume", f"pay-{name}").status == 0
        bounced("deliver", f"P-{name}", "--id", f"{name}-2", "--status", "failed", "--why", "bounced")
    said = bounced("ps")
    assert [line for line in said.lines if line.startswith("Next:")] == ["Next: beforehand inbox"]
    assert all(f"pay-{name}/pay#1" in bounced("inbox").out for name in ("ann", "bob", "cid"))


def test_long_evidence_is_cut_wherever_it_is_shown_as_text(bounced: Lab):
    bounced("deliver", "P-ann", "--id", "m3", "--status", "failed", "--why", "x" * 100_000)
    for command in (("why", NAME), ("show", "pay-ann")):
        shown = bounced(*command).out
        assert "more characters: --json has all of it)" in " ".join(shown.split())
        assert len(shown) < 60_000
