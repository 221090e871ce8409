"""The names of what a verifier misses: one part each, and a part has no parts."""

from datetime import timedelta

import msgspec
import pytest

from beforehand import Ambiguous, Happened, Operation, Run, Verdict, agent, tool
from beforehand.errors import RunSuspended
from beforehand.model import records as r
from beforehand.model.outcome import PARTS_AT_MOST
from tests.unit.engine.lab import Lab, virtual


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (("",), "empty"),
        (("  ",), "empty"),
        (("seat", "seat"), "'seat' twice"),
        ("seat", "a tuple of names"),
        ((7,), "a tuple of names"),
        (None, "a tuple of names"),
        (tuple(map(str, range(PARTS_AT_MOST + 1))), f"at most {PARTS_AT_MOST:,}"),
    ],
)
def test_a_verdict_refuses_names_that_name_nothing(missing: object, says: str):
    with pytest.raises(ValueError, match=says):
        Happened("x", missing=missing)  # type: ignore[arg-type]  # what a verifier may pass by mistake


def test_a_verdict_takes_a_list_of_names():
    assert Happened("x", missing=["seat", "meal"]).missing == ("seat", "meal")  # type: ignore[arg-type]  # as code does


def selling(lab: Lab, *missing: str, refused: bool = False):
    @tool
    async def sell(name: str) -> str:
        lab.sent.append(name)
        raise Ambiguous("no answer")

    @sell.verify(settle_window=timedelta(0), every=timedelta(minutes=1), deadline=timedelta(minutes=10))
    async def look(operation: Operation[str], name: str) -> Verdict[str]:
        if refused:
            return Happened("sold", missing=missing)
        verdict = Happened("sold")
        msgspec.structs.force_setattr(verdict, "missing", missing)  # names that were not checked
        return verdict

    @agent(run_id="s-{name}", tools=[sell])
    async def desk(run: Run, name: str) -> str:
        return (await sell.outcome(name)).status

    return desk


@virtual
async def test_a_verdict_with_an_empty_name_proves_nothing_and_says_why(lab: Lab):
    desk = selling(lab, "", refused=True)
    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        await lab.pass_time(minutes=20)
    verdicts = lab.of("s-a", r.Verified)
    assert verdicts
    assert all(one.verdict == "cannot_tell" and "empty" in one.evidence for one in verdicts)
    assert not [one for one in lab.of("s-a", r.AttemptStarted) if "/part#" in one.step]


@pytest.mark.parametrize("missing", [("",), ("seat",), ("", "seat")])
@virtual
async def test_a_part_has_no_parts_of_its_own(lab: Lab, missing: tuple[str, ...]):
    desk = selling(lab, *missing)
    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        await lab.pass_time(hours=2)
    steps = {one.step for one in lab.of("s-a", r.AttemptStarted)}
    assert {"sell#1/part#1"} <= steps
    assert not [step for step in steps if step.count("/part#") > 1]
