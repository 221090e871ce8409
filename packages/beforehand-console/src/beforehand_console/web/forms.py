"""The forms of the page: one for each kind of answer, and from their fields back to the answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from beforehand.control.input_checks import decode_json
from beforehand.errors import UsageError
from beforehand.inspect.text import LONGEST
from beforehand.people import answers as a
from beforehand.people.dossier import Dossier
from beforehand_console.web.rendering import visible_json
from beforehand_console.web.values import pretty

Input = Literal["line", "text", "json", "number", "choice", "moment", "fixed"]


class Field(msgspec.Struct, frozen=True):
    """One input. `choices` are (value, label); `value` is its initial content."""

    name: str
    label: str
    input: Input = "line"
    required: bool = False
    value: str = ""
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()


class Form(msgspec.Struct, frozen=True):
    """A form that gives one kind of answer. `title` opens it, `button` sends it; `tone` is how much it weighs."""

    tag: str
    title: str
    button: str
    says: str
    tone: Literal["yes", "no", "plain"] = "plain"
    fields: tuple[Field, ...] = ()


_EVIDENCE: Final = Field("evidence", "How do you know?", "text", hint="It is recorded with your name.")
_RESULT: Final = Field(
    "result", "What it returned, as JSON", "json", hint="Leave it empty if the agent does not need it."
)
_TO: Final = Field("to", "To whom", hint="A name; optional.")
_QUEUE: Final = Field("queue", "To which queue", hint="Optional.")
_WHY: Final = Field("why", "Why", hint="It is recorded with your name.")
_THEN: Final = (("give_up", "Give it up"), ("retry", "Send it once more"))
_GIVE_UP: Final = Field("then", "And now?", "fixed", True, "give_up")
_HOURS: Final = Field("hours", "Valid for how many hours", "number", required=True, value="24")

FORMS: Final = {
    one.tag: one
    for one in (
        Form("approve", "Approve", "Approve", "Exactly this is sent, once.", "yes", (_WHY, _HOURS)),
        Form(
            "edit", "Propose changes", "Propose this instead",
            "Nothing is sent yet: another person has to approve these arguments.",
            fields=(Field("arguments", "Arguments, as JSON", "json", required=True), _WHY),
        ),
        Form(
            "decline", "Decline", "Decline", "Nothing is sent, and the agent receives your reason.", "no",
            (Field("why", "Why not?", "text", hint="The agent reads it."),),
        ),
        Form(
            "ask_back", "Ask back", "Ask", "Nothing is sent. The agent reads your question and may propose anew.",
            fields=(Field("question", "What do you want to know?", "text", required=True),),
        ),
        Form(
            "stand_in", "Answer in its place", "Answer in its place",
            "Nothing is sent. The agent receives this as the result of the call.",
            fields=(Field("result", "What it returns, as JSON", "json", required=True), _WHY),
        ),
        Form("reply", "Answer", "Answer", "The agent continues with it. The first answer is final.", "yes"),
        Form(
            "resume", "Resume it", "Resume it",
            "A worker continues the run from its record. Fix the cause first, or it stops again.", "yes",
            (_WHY,),
        ),
        Form("happened", "It happened", "It happened", "The call counts as done.", "yes", (_EVIDENCE, _RESULT)),
        Form(
            "did_not_happen", "It did not happen", "It did not happen",
            "The call is made once more, or given up.", "no",
            (
                Field("then", "And now?", "choice", True, "give_up", "", _THEN),
                _EVIDENCE,
            ),
        ),
        Form(
            "happened_times", "Say how many were sent", "Say how many",
            "The first ones in the order of records count as sent. The others are made once more, or given up.",
            fields=(
                Field("times", "How many were sent?", "number", True), Field("then", "The others?", "choice", True,
                "give_up", "", _THEN), _EVIDENCE, _RESULT,
            ),
        ),
        Form(
            "retry_same_key", "Send it again under the same key", "Send it again",
            "Whether it happened or not: the other system does nothing twice under one key.", fields=(_EVIDENCE,),
        ),
        Form(
            "compensate", "Compensate it", "Compensate it",
            "It happened, and the transaction around it is aborted.", fields=(_EVIDENCE, _RESULT),
        ),
        Form(
            "abandon", "Leave it unresolved", "Leave it unresolved",
            "Beforehand stops asking. The run is cancelled; a transaction stays as it is.",
            fields=(Field("why", "Why?", "text"),),
        ),
        Form(
            "take_over", "Take it over", "Take it over",
            "The run ends, and you go on in its place: nothing more is sent for it.", "no", (_WHY,),
        ),
        Form(
            "delegate", "Delegate it", "Delegate", "Another person or queue gets the item. Nothing else changes.",
            fields=(_TO, _QUEUE, _WHY),
        ),
        Form(
            "snooze", "Not now", "Snooze it", "It comes back at that time. Its deadline does not change.",
            fields=(Field("until_ms", "Until when (UTC)", "moment", True), _WHY),
        ),
        Form("escalate", "Escalate it", "Escalate", "It goes to the top of the list.", fields=(_TO, _QUEUE, _WHY)),
    )
}  # fmt: skip
_ABOUT_CONTRADICTED: Final = {
    one.tag: one
    for one in (
        Form(
            "happened", "It happened", "It happened", "The outcome stays as recorded, with your answer beside it.",
            fields=(_EVIDENCE,),
        ),
        Form(
            "did_not_happen", "It did not happen", "It did not happen",
            "The outcome stays as recorded, with your answer beside it. Nothing is sent.",
            fields=(_GIVE_UP, _EVIDENCE),
        ),
        Form(
            "compensate", "Compensate", "Compensate",
            "The open transaction around it is aborted; a run that has ended is undone as a whole.", "no",
            (_EVIDENCE,),
        ),
    )
}  # fmt: skip
_ABOUT_TRANSACTION: Final = {
    one.tag: one
    for one in (
        Form(
            "did_not_happen", "Try it again", "Try it again", "The steps that are stuck are made once more.", "yes",
            (msgspec.structs.replace(_GIVE_UP, value="retry"), _EVIDENCE),
        ),
        Form(
            "compensate", "Abort it", "Abort it", "What it did is compensated, in reverse order.", "no", (_EVIDENCE,)
        ),
    )
}  # fmt: skip
ABOUT_DRAWN: Final = (
    Form("right", "It was right", "It was right", "Nothing changes: it was sent already.", "yes", (_WHY,)),
    Form(
        "wrong", "It was wrong", "It was wrong", "It is counted. The effect remains until its run is undone.", "no",
        (_WHY,),
    ),
)  # fmt: skip
"""The forms of a shadow review."""
_PLAIN: Final = ("approve", "decline")
HANDING: Final = ("delegate", "snooze", "escalate")


def forms_for(found: Dossier) -> list[Form]:
    """The forms of the answers that fit this item, the plain ones first. None where it is answered."""
    known = dict(FORMS)
    if found.contradicted:
        known |= _ABOUT_CONTRADICTED
    elif found.kind == "review" and not found.tool:
        known |= _ABOUT_TRANSACTION
    own = {"reply": _reply, "edit": _edit, "did_not_happen": _did_not_happen}
    if a.is_stopped_run(found.kind, found.item):
        own["abandon"] = _call_off
    words = [word for word in found.fits if word != "edit" or len(found.arguments) <= LONGEST]
    return [
        own[word](found) if word in own and known[word] is FORMS[word] else known[word]
        for word in sorted(words, key=lambda word: word not in _PLAIN)
    ]


def only_changed(given: a.Edit, found: Dossier) -> a.Edit:
    """Of edited arguments those that differ: the others keep their stored form. Raises `UsageError`."""
    before = msgspec.json.decode(found.arguments, type=dict[str, msgspec.Raw])
    plain = {name: msgspec.json.encode(msgspec.json.decode(value)) for name, value in before.items()}
    if gone := sorted(before.keys() - given.arguments.keys()):
        raise UsageError(
            f"{', '.join(gone)} is not in these arguments, and would be sent as it was",
            next_step="write what is to be sent in its place, such as null",
        )
    changed = {name: value for name, value in given.arguments.items() if msgspec.json.encode(value) != plain.get(name)}
    if not changed:
        raise UsageError(
            "nothing is different in these arguments", next_step="change them, or approve them as they are"
        )
    return msgspec.structs.replace(given, arguments=changed)


def _edit(found: Dossier) -> Form:
    """The arguments as they are, to be changed."""
    form = FORMS["edit"]
    field = msgspec.structs.replace(form.fields[0], value=visible_json(pretty(found.arguments)))
    return msgspec.structs.replace(form, fields=(field, *form.fields[1:]))


def _did_not_happen(found: Dossier) -> Form:
    """The form without another attempt where there can be none: it waits for an answer of another system."""
    form = FORMS["did_not_happen"]
    then = form.fields[0] if "retry" in found.words else _GIVE_UP
    return msgspec.structs.replace(form, fields=(then, *form.fields[1:]))


def _call_off(found: Dossier) -> Form:
    """A run that stopped anyway is called off: there is nothing to leave open."""
    del found
    says = "The run ends as cancelled, and Beforehand stops asking. What it did stays in effect."
    return msgspec.structs.replace(FORMS["abandon"], title="Cancel it", button="Cancel it", says=says, tone="no")


def _reply(found: Dossier) -> Form:
    """A question is answered by one of its choices, or by what it expects."""
    choices = tuple((_text_of(choice), _text_of(choice)) for choice in found.choices)
    if found.expected == "yes or no":
        choices = (("yes", "yes"), ("no", "no"))
    kind: Input = "choice" if choices else "text" if found.expected == "a text" else "line"
    hint = "" if choices else f"It is read as {found.expected}."
    field = Field("value", "Your answer", kind, True, "", hint, choices)
    return msgspec.structs.replace(FORMS["reply"], fields=(field,))


def _text_of(choice: object) -> str:
    return ("yes" if choice else "no") if isinstance(choice, bool) else str(choice)


def read(fields: Mapping[str, str]) -> tuple[a.Answer, str]:
    """The answer that a form gives, and the digest of what it was shown with. Raises `UsageError`."""
    form, shown = FORMS.get(fields.get("type", "")), fields.get("shown", "")
    if form is None:
        raise UsageError("this form gives no answer", next_step="open the item again")
    if not shown:
        raise UsageError("this form does not say what was shown", next_step="open the item again")
    known = form.fields if form.tag != "reply" else (Field("value", "", required=True),)
    answer: dict[str, Any] = {"type": form.tag}
    for field in known:
        text = fields.get(field.name, "").replace("\r\n", "\n").strip()
        if text:
            answer[field.name] = _value(field, text)
        elif field.required:
            raise UsageError(f"{field.label or 'the answer'} is missing", next_step="fill it in")
    try:
        return msgspec.convert(answer, a.Answer), shown
    except msgspec.ValidationError as error:
        raise UsageError(f"this answer does not fit: {error}") from error


def _value(field: Field, text: str) -> object:
    try:
        match field.input:
            case "json":
                return decode_json(text)
            case "number":
                return int(text) if text.strip().isdigit() else float(text)
            case "moment":
                return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
            case "line" | "text" | "choice" | "fixed":
                return text
    except (ValueError, msgspec.DecodeError) as error:
        raise UsageError(f"{field.label}: {text!r} cannot be read", next_step="write it as it is asked for") from error
