"""Real processes: the workers are killed where the schedule says, and the referee counts at the services."""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field

import pytest

from beforehand.demo.contest import Contest, DemoError, Progress, count
from beforehand.demo.scenario import REQUESTS, make_requests, make_schedule, write_requests
from beforehand.demo.sides import WithoutBeforehand
from beforehand.demo.witness import KillNow, WitnessedEffect
from tests.demo.processes import running


@dataclass
class Stage:
    folder: object
    news: list = field(default_factory=list)

    def play(self, side, seed):
        requests = self.folder / "requests.jsonl"
        write_requests(requests, make_requests(seed, REQUESTS))
        contest = Contest(seed, requests, self.folder, [side(requests, self.folder)], self.news.append)
        return asyncio.run(contest.run())


@pytest.mark.deep
def test_without_beforehand_effects_happen_twice(tmp_path):
    """The story that the demo tells of today's practice: restarts and retries repeat effects."""
    stage = Stage(tmp_path)
    result = stage.play(WithoutBeforehand, seed=7)["without"]
    counts = count(range(1, REQUESTS + 1), result.effects, result.report)

    assert counts.requested == 96
    assert counts.twice >= 10
    assert counts.misreported > 0
    assert counts.never == counts.waiting == 0
    assert counts.requested == counts.once + counts.twice + counts.refused

    killed = [news.event for news in stage.news if isinstance(news, KillNow)]
    assert sorted(killed) == [kill.event for kill in make_schedule(7).kills]
    assert result.kills == len(killed) == 9
    assert sum(isinstance(news, WitnessedEffect) for news in stage.news) == result.effects.total()
    assert {news.request for news in stage.news if isinstance(news, Progress)} == set(range(1, REQUESTS + 1))


class BrokenSide:
    name = "broken"

    def __init__(self, requests, folder):
        self.folder = folder

    def command(self, lane):
        return ("timeit", "-n", "1", "-r", "1", "raise ValueError('out of order')")

    async def report(self):
        return {}


def test_a_worker_that_fails_by_itself_ends_the_demo(tmp_path):
    with pytest.raises(DemoError, match=r"worker broken-\d ended with status 1") as error:
        Stage(tmp_path).play(BrokenSide, seed=7)
    worker = str(error.value).split()[1]
    assert "out of order" in (tmp_path / f"{worker}.log").read_text()


def test_services_that_do_not_start_end_the_demo(tmp_path):
    contest = Contest(7, tmp_path / "missing.jsonl", tmp_path, [BrokenSide(None, tmp_path)], print)
    with pytest.raises(DemoError, match="services did not start"):
        asyncio.run(contest.run())


def test_services_that_end_early_end_the_demo(tmp_path):
    requests = tmp_path / "requests.jsonl"
    write_requests(requests, make_requests(7, REQUESTS))

    def shoot(_news):
        for witness in running(tmp_path, "witness"):
            with contextlib.suppress(
                ProcessLookupError
            ):  # it was shot at the news before, and has just been waited for
                os.kill(witness, signal.SIGKILL)

    contest = Contest(7, requests, tmp_path, [WithoutBeforehand(requests, tmp_path)], shoot)
    with pytest.raises(DemoError, match="services ended early"):
        asyncio.run(contest.run())
    assert not running(tmp_path, "without")
