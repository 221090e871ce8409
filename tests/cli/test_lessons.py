"""`beforehand lessons`: from a review to what the next run is shown, by two people, and into the inbox meanwhile."""

from tests.cli.lab import Lab

PUPIL = '''
from beforehand import Run, agent, tool


@tool
def restock(sku: str) -> None:
    """Put it back on the shelf."""
    raise TimeoutError("no answer")


@agent(run_id="{name}")
async def pupil(run: Run, name: str) -> str:
    if name == "first":
        await restock(name)
    return await run.lessons().as_text() or "no lessons"
'''
TEXT = "look at the shelf before you restock"


def test_a_review_becomes_a_lesson_that_later_runs_are_shown(beforehand: Lab):
    beforehand.directory.joinpath("pupil.py").write_text(PUPIL)
    assert beforehand("run", "pupil.py:pupil", '"first"').status == 3
    assert beforehand("run", "pupil.py:pupil", '"early"').out == '"no lessons"\n'
    assert beforehand("lessons", "list").lines == ["No lesson is proposed or in effect."]

    said = beforehand("lessons", "propose", TEXT, "--kind", "check", "--of", "first/restock#1", "--by", "ann", "--json")
    name = said.json["id"]
    assert (said.json["agent"], said.json["state"]) == ("pupil", "proposed")
    inbox = beforehand("inbox").lines
    at = inbox.index("Proposed lessons  1")
    assert inbox[at + 1 : at + 3] == [f"{name}  pupil  proposed", f"  check: {TEXT}"]
    assert f"  beforehand lessons approve {name}" in inbox
    refused = beforehand("lessons", "approve", name, "--by", "ann")
    assert (refused.status, "another person approves it" in refused.remarks) == (2, True)
    assert beforehand("run", "pupil.py:pupil", '"still"').out == '"no lessons"\n'

    done = beforehand("lessons", "approve", name, "--by", "ben", "--why", "seen twice")
    assert done.lines == [f"{name} is in effect for runs of pupil that begin from now on."]
    assert "Proposed lessons" not in beforehand("inbox").out
    assert f"- Check first: {TEXT}" in beforehand("run", "pupil.py:pupil", '"later"').out
    assert f"lessons shown: {name}" in beforehand("show", "later").out
    listed = beforehand("lessons", "list", "--agent", "pupil").lines
    assert listed[:2] == [f"{name}  pupil  approved", f"  check: {TEXT}"]
    assert listed[2].startswith("    first/restock#1: restock is unknown; ")
    assert listed[-1] == "  proposed by ann, approved by ben: seen twice"

    assert beforehand("lessons", "retire", name, "--by", "cid").lines == [f"{name} is retired."]
    assert beforehand("run", "pupil.py:pupil", '"last"').out == '"no lessons"\n'
    assert beforehand("replay", "later", "--agent", "pupil.py:pupil").status == 0
    assert beforehand("lessons", "list").lines == [
        "No lesson is proposed or in effect. 1 earlier: beforehand lessons list --all"
    ]
    assert [one["state"] for one in beforehand("lessons", "list", "--all", "--json").json] == ["retired"]
    assert beforehand("doctor").status == 0
    assert beforehand("verify").status == 0


def test_what_does_not_exist_is_refused_with_the_next_step(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    for words in (
        ("propose", "x", "--kind", "check", "--of", "5d41c7a0"),
        ("propose", "x", "--kind", "check", "--of", "ticket-1/none#1"),
        ("propose", "x\n", "--kind", "fact", "--of", "ticket-1"),
        ("propose", "x\ny", "--kind", "avoid", "--of", "ticket-1"),
        ("approve", "l-1"),
        ("decline", "l-1"),
        ("retire", "l-1"),
    ):
        said = beforehand("lessons", *words)
        assert (said.status, said.out) == (2, ""), words
        assert said.remarks
    assert beforehand("lessons", "propose", "wait", "--kind", "avoid", "--of", "ticket-1").status == 0
    assert beforehand("lessons", "decline", beforehand("lessons", "list", "--json").json[0]["id"]).status == 0
