"""Decisions that failed, and after which their branch recorded nothing: a reopened run asks the model again. Pure."""

from __future__ import annotations

from holdfast.model.records_run import DecisionRecorded


class Unanswered:
    """The failed decisions that can be asked again: no record of the run depends on their failure."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}

    def add(self, record: DecisionRecorded, index: int) -> None:
        """Note a decision that failed, and the number of its delivery."""
        if record.status == "failed":
            self.steps[record.step] = index

    def moved_on(self, step: str) -> None:
        """Drop the decisions of branches that went on: `step` is in the same branch, or in one above or below it."""
        at = _branch(step)
        for failed in [one for one in self.steps if one != step]:
            if at.startswith(_branch(failed)) or _branch(failed).startswith(at):
                del self.steps[failed]

    def take(self) -> dict[str, int]:
        """The steps to ask again, with the numbers of their deliveries; from here on there are none."""
        steps, self.steps = self.steps, {}
        return steps


def _branch(step: str) -> str:
    """The path of the branch in which a step is; empty for the first branch of the run."""
    return step[: step.rfind("/") + 1]
