"""The trace of a run whose processes are really killed, at every point: no span twice, and every process is linked."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from beforehand.model import records as r
from tests.crash.desks import Case, killed

PROGRAM = "tests.crash.traced"


def spans(case: Case) -> list[dict[str, Any]]:
    """What all processes exported."""
    file = case.place / "desk.db.spans"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.deep
def test_a_kill_at_every_point_repeats_no_span_and_breaks_no_trace(fresh: Callable[[], Case]):
    for case in killed(fresh, "ann"):
        exported, sent, before = spans(case), len(case.effects()), case.records("trip-ann")
        assert case.says("ann") == "Oslo and Lima and Rome"
        found, records = spans(case), case.records("trip-ann")
        runs = [span for span in found if span["name"] == "invoke_agent desk"]
        attempts = [span for span in found if span["name"] == "execute_tool book"]
        assert len({span["trace"] for span in found}) <= 1

        # Each attempt has one span; that of a killed process is exported by the process that found it lost.
        told = Counter((span["beforehand.step"], span["beforehand.attempt"]) for span in attempts)
        assert max(told.values(), default=1) == 1
        began = {(one.step, one.number) for one in records if isinstance(one, r.AttemptStarted)}
        claims = [one for one in records if isinstance(one, r.Claimed)]
        second = records[records.index(claims[-1]) :] if len(claims) > 1 else []
        ended_later = {
            (one.step, one.number) for one in second if isinstance(one, (r.AttemptEnded, r.OperationSettled))
        }
        assert told.keys() <= began
        assert ended_later <= told.keys()

        # A process that is killed exports no span of its own. The next one is linked to it by what the journal remembers.
        contexts = [int(claim.trace.split("-")[2], 16) for claim in claims]
        if any(isinstance(one, r.RunCompleted) for one in before):  # and nothing is begun again
            assert found == exported
            continue
        assert [span["span"] for span in runs] == contexts[-1:]
        assert runs[0]["links"] == contexts[-2:-1]
        assert runs[0]["beforehand.run.status"] == "completed"

        # What the tools sent carries the trace, and the span of the attempt.
        carried = [effect.split()[-1].split("-") for effect in case.effects()]
        assert {int(one[1], 16) for one in carried} == {found[0]["trace"]}
        assert {int(one[2], 16) for one in carried[sent:]} <= {span["span"] for span in attempts}
