"""The record of a hand-off to another agent. One to a person is a `QuestionAsked` with what goes along."""

from __future__ import annotations

from holdfast.model.records_common import Raw, Stamped


class HandedOff(Stamped, frozen=True):
    """The run goes on in the code of another agent, with this input; until it returns its steps lie below `step`."""

    step: str
    agent: str
    why: str
    given: Raw
    digest: str
    version: str = ""
