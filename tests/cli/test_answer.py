"""`beforehand answer`: a person answers a question of a run, without the agent's code."""

from tests.cli.lab import Lab

ASKER = '''
from beforehand import Run, agent


@agent(run_id="trip-{name}")
async def trip(run: Run, name: str) -> str:
    """Ask where to."""
    seats = await run.ask("How many seats?", returns=int, step="seats")
    return f"{seats} to {await run.ask('Which city?', choices=('Paris', 'Rome'))}"
'''


def test_questions_are_listed_answered_once_and_shown(beforehand: Lab):
    beforehand.directory.joinpath("asker.py").write_text(ASKER)
    begun = beforehand("run", "asker.py:trip", '"17"')
    assert begun.status == 3
    assert "beforehand answer trip-17/seats VALUE --by NAME" in begun.err
    assert "How many seats?" in beforehand("ps").out
    assert "How many seats?" in beforehand("show", "trip-17").out
    refused = beforehand("answer", "trip-17/seats", "two")
    assert (refused.status, "a whole number" in refused.err) == (2, True)
    assert beforehand("answer", "trip-17/seats", "2", "--by", "bea", "--json").json == {
        "run": "trip-17", "question": "trip-17/seats", "answer": 2, "by": "bea", "next_step": "beforehand resume trip-17",
    }  # fmt: skip
    again = beforehand("answer", "trip-17/seats", "3")
    assert "already answered by bea" in again.err
    assert beforehand("resume", "trip-17").status == 3
    assert beforehand("answer", "trip-17/ask#1", "Rome", "--by", "bea").lines == [
        "trip-17/ask#1 is answered: Rome, decided by bea.",
        "Next: beforehand resume trip-17",
    ]
    assert beforehand("resume", "trip-17").out == '"2 to Rome"\n'
