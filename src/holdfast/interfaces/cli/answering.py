"""`holdfast answer`: a person's answer to a question that a run asks."""

from __future__ import annotations

import click

from holdfast.interfaces.cli.common import Call, by_option, command
from holdfast.model.ids import split_operation_id


@command(
    "answer",
    examples=("holdfast answer 'trip-17/ask#1' Paris --by anna", "holdfast answer 'order-9/how-many' 3"),
)
@click.argument("question")
@click.argument("value")
@by_option
async def answer(call: Call, question: str, value: str, by: str) -> None:
    """Answer QUESTION (RUN/STEP), as `holdfast ps` and `holdfast show` list it.

    The first answer is final. It is checked against the question's choices or type
    when it is given, and refused where the deadline or another person came first.
    """
    async with call.serving() as service:
        given = await service.answer(question, value, by=by)
    run, _ = split_operation_id(question)
    if call.screen.as_json:
        call.screen.document(
            {"run": run, "question": question, "answer": given, "by": by, "next_step": f"holdfast resume {run}"}
        )
        return
    call.screen.line(f"{question} is answered: {given}, on the word of {by}.")
    call.screen.line(("Next: ", "dim"), f"holdfast resume {run}")
