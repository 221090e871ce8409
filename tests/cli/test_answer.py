"""`holdfast answer`: a person answers a question of a run, without the agent's code."""

from tests.cli.lab import Lab

ASKER = '''
from holdfast import Run, agent


@agent(run_id="trip-{name}")
async def trip(run: Run, name: str) -> str:
    """Ask where to."""
    seats = await run.ask("How many seats?", returns=int, step="seats")
    return f"{seats} to {await run.ask('Which city?', choices=('Paris', 'Rome'))}"
'''


def test_questions_are_listed_answered_once_and_shown(holdfast: Lab):
    holdfast.directory.joinpath("asker.py").write_text(ASKER)
    begun = holdfast("run", "asker.py:trip", '"17"')
    assert begun.status == 3
    assert "holdfast answer trip-17/seats VALUE --by NAME" in begun.err
    assert "How many seats?" in holdfast("ps").out
    assert "How many seats?" in holdfast("show", "trip-17").out
    refused = holdfast("answer", "trip-17/seats", "two")
    assert (refused.status, "a whole number" in refused.err) == (2, True)
    assert holdfast("answer", "trip-17/seats", "2", "--by", "bea", "--json").json == {
        "run": "trip-17", "question": "trip-17/seats", "answer": 2, "by": "bea", "next_step": "holdfast resume trip-17",
    }  # fmt: skip
    again = holdfast("answer", "trip-17/seats", "3")
    assert "already answered by bea" in again.err
    assert holdfast("resume", "trip-17").status == 3
    assert holdfast("answer", "trip-17/ask#1", "Rome", "--by", "bea").lines == [
        "trip-17/ask#1 is answered: Rome, decided by bea.",
        "Next: holdfast resume trip-17",
    ]
    assert holdfast("resume", "trip-17").out == '"2 to Rome"\n'
