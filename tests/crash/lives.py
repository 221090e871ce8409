"""A run that dies as planned and is always started again, with every promise checked after every death.

A plan is written `point:occurrence,point:occurrence`, each a death in a life of its own; `@7` behind it draws small
delays from the seed 7. The first life dies at the first, the next at the second, and the lives after that end by
themselves. What the person is asked about a plain write they answer as the witness has it.
"""

import os
from dataclasses import dataclass

from tests.crash.checks import asked, check, decisions
from tests.crash.program import RUN
from tests.crash.stage import Case

STEPS = {"put#1", "charge#1", "~1/charge#1", "~2/mail#1", "~2/put#1", "mail#1", "restock#1", "charge#2"}
PLAIN = "restock#1"
MOST_LIVES = 12
PATIENT = {"deaths_allowed": MOST_LIVES, "claims_allowed": MOST_LIVES}  # a plan may hit one step every time


@dataclass(frozen=True)
class Plan:
    """Where each life dies."""

    deaths: tuple[tuple[str, int], ...]
    delays: int | None = None

    def __str__(self):
        places = ",".join(f"{point}:{number}" for point, number in self.deaths)
        return places if self.delays is None else f"{places}@{self.delays}"

    @classmethod
    def parse(cls, text):
        places, _, delays = text.partition("@")
        deaths = tuple((place.rpartition(":")[0], int(place.rpartition(":")[2])) for place in places.split(","))
        return cls(deaths, int(delays) if delays else None)


@dataclass
class Told:
    """What a plan came to: how many kills were really made, and the last answer."""

    kills: int
    result: list[str]


def survive(case: Case, plan: Plan) -> Told:
    """Live through the plan. Every failure names the command that repeats it."""
    try:
        return _Lives(case, plan).through()
    except AssertionError as error:
        command = f"BEFOREHAND_CRASH='{plan}' python -m pytest tests/crash/test_kills.py -k one_plan"
        raise AssertionError(f"{error}\nplan {plan}; to repeat it: {command}\n{_story(case)}") from error


def plans_from_environment(default: str) -> Plan:
    return Plan.parse(os.environ.get("BEFOREHAND_CRASH", default))


class _Lives:
    def __init__(self, case, plan):
        self.case = case
        self.plan = plan
        self.kills = 0
        self.asked_once_decided = None
        self.word = None

    def through(self):
        deaths = list(self.plan.deaths)
        for _ in range(MOST_LIVES):
            kill = deaths.pop(0) if deaths else None
            words = [self.word] if self.word else []
            ended = self.case.work(kill=kill, delays=self.plan.delays, words=words, settings=PATIENT)
            assert ended.status is not None, f"a worker hung\n{ended.log}"
            if ended.killed:
                assert kill is not None, "a worker died that was not killed"
                self.kills += 1
                self._look()
                continue
            assert ended.status == 0, ended.log
            if (result := self._answered(ended.answer)) is not None:
                self._end(result)
                return Told(self.kills, result)
        raise AssertionError("the run does not come to an end")

    def _answered(self, answer):
        """The result; None where the run goes on after a person's word."""
        history, testimony = self._look()
        if answer["status"] == "completed":
            return answer["result"]
        assert answer["status"] == "suspended", f"{answer['status']}: {answer['why']}"
        unknown = [step for step, operation in history.operations.items() if operation.phase == "unknown"]
        assert unknown == [PLAIN], f"{unknown} are unknown: {answer['why']}"
        name = f"{RUN}/{PLAIN}"
        happened = testimony.effects(name) > 0
        word = {"word": "happened", "result": "plain-sku-1"} if happened else {"word": "retry"}
        self.word = {"operation": name, **word}
        return None

    def _look(self):
        """Check what stands after a life."""
        stored, world = self.case.stored(), self.case.world()
        history, testimony = check(stored, world, RUN)
        plain = history.operations.get(PLAIN)
        if plain is not None and self.word is None:
            assert len(plain.attempts) <= 1, "a plain write was attempted again without an order"
        if self.asked_once_decided is None and decisions(stored, RUN):
            self.asked_once_decided = asked(world)
        if self.asked_once_decided is not None:
            assert asked(world) == self.asked_once_decided, "a model was asked again for a recorded decision"
        return history, testimony

    def _end(self, result):
        """Nothing is lost, nothing is open, and a finished run answers without asking the world."""
        history, testimony = self._look()
        assert history.lifecycle.status == "completed", history.lifecycle.status
        assert set(history.operations) == STEPS
        for step, operation in history.operations.items():
            assert operation.phase == "succeeded", f"{step} is {operation.phase}: {operation.reason}"
        _end_state(testimony.world, result)
        requests = len(testimony.world["requests"])
        again = self.case.work()
        assert again.answer.get("result") == result, f"asked again: {again.answer} {again.log}"
        assert len(self.case.world()["requests"]) == requests, "a finished run asked the world"


def _end_state(world, result):
    """The world as one undisturbed pass would have left it, each step fed by the one before."""
    seen, choice, door, receipt, left, charged, right, put, letter, stocked, last = result
    assert choice.startswith(f"model-{seen}-"), choice
    assert door == choice, "the write used another decision than the recorded one"
    assert world["state"] == {"door": choice, "right": receipt}
    assert sorted(world["receipts"].values()) == sorted([receipt, charged, last])
    assert world["counts"]["plain:sku"] == 1
    assert (left[:10], right, put, letter, stocked) == ("read-left-", "mail-right", receipt, "mail-last", "plain-sku-1")


def _story(case):
    """The records, for the reader of the failure."""
    rows = case.stored().rows.get(RUN, [])
    requests = [
        f"  {request['kind']} {request.get('operation', '')} attempt {request.get('attempt', '')}"
        for request in case.world()["requests"]
    ]
    return "\n".join(["records:", *(f"  {row.seq} {row.body.decode()}" for row in rows), "at the witness:", *requests])
