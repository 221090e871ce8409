"""Questions to people as data, and handing a run over to a person or to another agent. Pure.

An answer is checked where it is given, without the agent's code.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from beforehand.model.errors import UsageError
from beforehand.model.ids import stream

Scalar: TypeAlias = str | int | float | bool
Form = Literal["text", "whole", "number", "yes_no"]

FORMS: Final[dict[type[object], Form]] = {str: "text", int: "whole", float: "number", bool: "yes_no"}
_MEANT: Final = {"text": "a text", "whole": "a whole number", "number": "a number", "yes_no": "yes or no"}
_YES_NO: Final = {"yes": True, "true": True, "no": False, "false": False}


def question_stream(run: str, step: str) -> str:
    """The ledger stream that holds the answer to a question, once there is one."""
    return stream("question", run, step)


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question, and what counts as an answer: one of `choices`, or where there are none, any value of the form."""

    text: str
    form: Form = "text"
    choices: tuple[Scalar, ...] = ()

    @property
    def expected(self) -> str:
        """The accepted answers, in words."""
        return f"one of: {', '.join(map(_written, self.choices))}" if self.choices else _MEANT[self.form]

    def checked(self, value: object) -> Scalar:
        """`value` if it answers the question. Raises `UsageError` naming what would."""
        answer = _of_form(self.form, value)
        if answer is None or (self.choices and answer not in self.choices):
            raise UsageError(f"{value!r} does not answer {self.text!r}", known=f"an answer is {self.expected}")
        return answer

    def answer_of(self, value: Scalar) -> Scalar:
        """The answer that a value gives. Text is read as the type of the question. Raises `UsageError`."""
        return self.read(value) if isinstance(value, str) else self.checked(value)

    def read(self, text: str) -> Scalar:
        """The answer that a person wrote. Raises `UsageError` for any other text."""
        if self.form == "text":
            return self.checked(text)
        if self.form == "yes_no":
            return self.checked(_YES_NO.get(text.strip().lower(), text))
        try:
            return self.checked(msgspec.json.decode(text.strip()))
        except msgspec.DecodeError:
            return self.checked(text)


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first answer, which is final. `by` is empty where the deadline gave it; `late`: and had no default.

    `over`: nothing goes back to the code, for the person takes the run over, and says why in `note`. `via` and
    `proven_ms` are as in `Command`.
    """

    value: Scalar | None
    by: str = ""
    late: bool = False
    over: bool = False
    note: str = ""
    via: str = ""
    proven_ms: int = 0


def _of_form(form: Form, value: object) -> Scalar | None:
    match form, value:
        case ("text", str()):
            return value
        case ("yes_no", bool()):
            return value
        case ("whole", int()) if not isinstance(value, bool):
            return value
        case ("number", int() | float()) if not isinstance(value, bool):
            return float(value)
        case _:
            return None


def _written(value: Scalar) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


# --- handing a run over ---------------------------------------------------------------------------------------------


ANYBODY: Final = "person"
"""The name that hands over to any reviewer; any other name is a queue."""
DEEPEST: Final = 8
"""How many agents deep one run may be handed over."""


class Authority(msgspec.Struct, frozen=True):
    """The authority of code that a run was handed over to: the tools it may call, and its depth."""

    agent: str
    tools: frozenset[str]
    depth: int


def within(held: Authority | None, agent: str, tools: frozenset[str], run: str) -> Authority:
    """The authority of `agent`, which wants these tools: no more than the present holder has. Raises `UsageError`."""
    depth = 1 if held is None else held.depth + 1
    if depth > DEEPEST:
        raise UsageError(
            f"run {run} was handed over {DEEPEST} times, each time from inside the last",
            next_step="let agents return what they found, instead of handing over further",
        )
    return Authority(agent, tools if held is None else tools & held.tools, depth)
