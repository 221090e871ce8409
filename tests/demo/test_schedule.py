"""The schedule is a pure function of the seed, and every seed shows everything."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from beforehand.demo.scenario import (
    COMMITS_AT_ONCE,
    DECKS,
    REQUESTS,
    SERVICES,
    ScheduledFault,
    event_of,
    lane_of,
    make_requests,
    make_schedule,
    read_requests,
    write_requests,
)

SEEDS = st.integers(min_value=-(2**40), max_value=2**40)


@given(SEEDS)
def test_a_seed_repeats(seed):
    assert make_schedule(seed) == make_schedule(seed)
    assert make_requests(seed, 5) == make_requests(seed, 5)


def test_seeds_differ():
    assert make_schedule(7) != make_schedule(8)
    assert make_requests(7, 24) != make_requests(8, 24)


@given(SEEDS)
def test_every_seed_deals_whole_decks(seed):
    schedule = make_schedule(seed)
    for service in SERVICES:
        dealt = Counter(schedule.first[service, request] for request in range(1, REQUESTS + 1))
        del dealt[ScheduledFault.NONE]
        assert dealt == DECKS[service]


@given(SEEDS)
def test_refusals_are_final_outages_end_and_third_calls_are_served(seed):
    schedule = make_schedule(seed)
    for (service, request), first in schedule.first.items():
        faults = [schedule.fault(service, request, call) for call in range(1, 6)]
        match first:
            case ScheduledFault.REFUSED:
                assert set(faults) == {ScheduledFault.REFUSED}
            case ScheduledFault.OUTAGE:
                assert faults == [
                    ScheduledFault.SILENT,
                    ScheduledFault.LOST,
                    ScheduledFault.LOST,
                    ScheduledFault.LOST,
                    ScheduledFault.NONE,
                ]
            case _:
                assert faults[0] is first
                assert faults[1] is not ScheduledFault.REFUSED
                assert faults[2:] == [ScheduledFault.NONE] * 3


@given(SEEDS)
def test_kills_are_many_spread_and_possible(seed):
    schedule = make_schedule(seed)
    kills = schedule.kills
    assert len({kill.event for kill in kills}) == len(kills) == 9
    assert {kill.service for kill in kills} == set(SERVICES)
    assert Counter(lane_of(kill.request) for kill in kills) == {0: 3, 1: 3, 2: 3}
    for kill in kills:
        fault = schedule.first[kill.service, kill.request]
        assert kill.event == event_of(kill.request, kill.service)
        assert schedule.kill(kill.service, kill.request, kill.moment) is kill
        assert (
            fault in COMMITS_AT_ONCE
            if kill.moment == "commit"
            else fault not in {ScheduledFault.REFUSED, ScheduledFault.OUTAGE}
        )


def test_requests_survive_their_file(tmp_path):
    requests = make_requests(7, 24)
    write_requests(tmp_path / "requests.jsonl", requests)
    assert read_requests(tmp_path / "requests.jsonl") == requests
    assert all(request.email.endswith("@example.com") for request in requests)
