"""What a run learns about what it has called off, or cannot tell yet: news that raises a boundary again."""

from __future__ import annotations

import pytest

from beforehand.model import records as r
from beforehand.model.outcome import Basis
from beforehand.model.run_history import RunHistory

CHARGE, PART, AMENDS = "trip/charge#1", "trip/charge#1/part#1", "trip/charge#1/undo"
INTENT = r.Intent("charge", r.Raw(b"{}"), "digest", "contract")
OF_IT = r.Intent("charge", r.Raw(b"{}"), "digest", "contract", completes=CHARGE, item="row 2")


def planned(step: str, intent: r.Intent = INTENT) -> r.OperationPlanned:
    return r.OperationPlanned(step=step, intent=intent)


def settled(step: str, status="succeeded") -> r.OperationSettled:
    return r.OperationSettled(step=step, status=status, basis=Basis("returned"))


def called_off(*records: r.Record, amended: bool) -> RunHistory:
    """A boundary with a charge of which one part was refused is called off; its amends are made where that is said."""
    history = RunHistory("desk")
    opened = (r.TransactionOpened(transaction="trip"), planned(CHARGE), settled(CHARGE))
    part = (planned(PART, OF_IT), settled(PART, "failed"))
    aborting = r.TransactionAborting(transaction="trip", reason="no flight")
    linked = (r.CompensationLinked(step=CHARGE, by=AMENDS),) if amended else ()
    for record in (*opened, *part, aborting, *linked, *records):
        history.add(record)
    return history


NEWS = r.Contradicted(step=PART, evidence="it came after all")


def test_a_part_that_lands_after_its_amends_were_begun_overtakes_them_and_raises_the_boundary():
    history = called_off(NEWS, amended=True)
    assert history.operations[CHARGE].links.overtaken == AMENDS
    assert history.boundaries.raised == {CHARGE}


def test_a_part_that_lands_before_any_amends_is_met_by_them():
    history = called_off(NEWS, amended=False)
    assert history.operations[CHARGE].links.overtaken == ""
    assert history.boundaries.raised == set()


@pytest.mark.parametrize(
    ("over", "raised"),
    [
        (r.TransactionAbortedRecord(transaction="trip", undone=(CHARGE,)), {CHARGE}),
        (r.TransactionAbortedRecord(transaction="trip", still_standing=(CHARGE,)), set()),
    ],
    ids=["said to be undone", "said to stand"],
)
def test_only_an_end_that_tells_truly_what_became_of_it_settles_the_news(over, raised):
    assert called_off(NEWS, over, amended=True).boundaries.raised == raised


def test_amends_that_were_made_again_settle_the_news():
    history = called_off(r.Contradicted(step=CHARGE, evidence="it came twice"), amended=True)
    assert (history.operations[CHARGE].links.overtaken, history.boundaries.raised) == (AMENDS, {CHARGE})
    history.add(r.CompensationLinked(step=CHARGE, by=f"{AMENDS}#2"))
    history.add(r.TransactionAbortedRecord(transaction="trip", undone=(CHARGE,)))
    assert history.boundaries.raised == set()


def test_news_about_what_still_stands_raises_nothing():
    history = RunHistory("desk")
    for record in (r.TransactionOpened(transaction="trip"), planned(CHARGE), settled(CHARGE)):
        history.add(record)
    history.add(r.Contradicted(step=CHARGE, evidence="it failed"))
    assert history.boundaries.raised == set()


def test_news_about_amends_raises_nothing():
    """The process that closes the boundary looks at its compensations anyway."""
    undo = r.Intent("refund", r.Raw(b"{}"), "digest", "contract", compensates=CHARGE)
    news = r.Contradicted(step=AMENDS, evidence="it failed")
    history = called_off(planned(AMENDS, undo), settled(AMENDS), news, amended=True)
    assert history.boundaries.raised == set()


def test_what_is_found_after_its_amends_is_news_although_a_person_ordered_an_attempt_in_between():
    started = r.AttemptStarted(step=CHARGE, number=1, token=1, send_by=1, intent=INTENT)
    history = RunHistory("desk")
    for record in (
        r.TransactionOpened(transaction="trip"),
        started,
        r.AttemptEnded(step=CHARGE, number=1, end=r.End("ambiguous")),
        settled(CHARGE, "unknown"),
        r.TransactionAborting(transaction="trip", reason="no flight"),
        r.CompensationLinked(step=CHARGE, by=AMENDS),
        r.TransactionAbortedRecord(transaction="trip", undone=(CHARGE,)),
        r.Resolved(step=CHARGE, word="retry", by="ann", attempts=1),
        r.Verified(step=CHARGE, verdict="happened"),
    ):
        history.add(record)
    assert history.boundaries.raised == set()
    history.add(settled(CHARGE))
    assert (history.operations[CHARGE].links.overtaken, history.boundaries.raised) == (AMENDS, {CHARGE})
    history.add(r.TransactionParked(transaction="trip", why="news came"))
    history.add(r.CompensationLinked(step=CHARGE, by=f"{AMENDS}#2"))
    history.add(r.TransactionAbortedRecord(transaction="trip", undone=(CHARGE,)))
    history.add(r.LateReport(step=CHARGE, number=1, end=r.End("returned")))
    assert history.boundaries.raised == set(), "what was amended again is no news once more"
