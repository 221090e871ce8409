"""A frame of `beforehand top` as lines: what it says, and that it fits into the terminal whatever the journal holds."""

from decimal import Decimal
from unicodedata import category

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from beforehand.cli.queues import ListedQueue
from beforehand.cli.top_frame import AgentRuns, Attention, DrivingProcess, Line, RecentSpending, TopFrame, draw
from beforehand.queues.limits import QueueLimits
from beforehand.queues.modes import QueueMode, Restriction

NOW = 1_800_000_000_000
HOUR = 3_600_000
PAUSED = QueueMode(paused=Restriction("anna", NOW - HOUR, "the bank is closed"))

FRAME = TopFrame(
    NOW,
    "desk.db",
    {"queued": 12_345, "running": 3, "completed": 9_000},
    [AgentRuns("refund_desk", {"queued": 12_345, "running": 3, "completed": 9_000})],
    [
        ListedQueue("refunds", 12_000, 3, 192_000, QueueLimits(concurrency=10), QueueMode()),
        ListedQueue("night", 345, 0, None, QueueLimits(), PAUSED),
    ],
    [DrivingProcess("w-1", 4711, 3, gone=False), DrivingProcess("w-2", 0, 1, gone=True)],
    RecentSpending(NOW - HOUR, 1_200, 2, 4_500_000, {"USD": Decimal("12.3"), "EUR": Decimal(250)}),
    [Attention("2 runs ready to continue, and no process drives them", "beforehand worker")],
)


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_a_frame_at_80_columns():
    assert texts(draw(FRAME)) == [
        "beforehand top  desk.db                                  2027-01-15 08:00:00 UTC",
        "Runs   12,345 queued, 3 running, 9,000 completed",
        "Models 1,200 calls, 4,500,000 tokens, 250.00 EUR, 12.3000 USD, 2 of unknown cost",
        "       in the last 1 h",
        "",
        "! 2 runs ready to continue, and no process drives them",
        "  beforehand worker",
        "",
        "QUEUE                       waiting    running    at most     oldest",
        "refunds                      12,000          3         10    3.2 min",
        "night                           345          0          -          -     paused",
        "",
        "PROCESS                         pid       runs      state",
        "w-1                            4711          3      alive",
        "w-2                               -          1       gone",
        "",
        "AGENT                        queued    running  suspended    stopped",
        "refund_desk                  12,345          3          -          -",
    ]


def test_an_empty_journal_needs_nobody():
    empty = TopFrame(NOW, "desk.db", {}, [], [], [], RecentSpending(NOW - HOUR, 0, 0, 0, {}), [])
    assert texts(draw(empty))[1:] == ["Runs   none yet", "Models no call in the last 1 h", "", "Nothing needs you."]


def test_long_lists_are_counted():
    many = [Attention(f"tool t{number} is paused") for number in range(50)]
    agents = [AgentRuns(f"a{number}", {"running": 1}) for number in range(50)]
    frame = TopFrame(NOW, "desk.db", {}, agents, [], [], FRAME.spent, many)
    shown = texts(draw(frame, 80, 24))
    assert len(shown) <= 24
    assert "  and 46 more: --json lists them" in shown
    assert shown[-1] == "and 46 more"


NAMES = st.text(max_size=90)
NUMBERS = st.integers(0, 2**53)
STATUSES = st.dictionaries(st.sampled_from(["queued", "running", "stopped"]), NUMBERS)
QUEUES = st.builds(ListedQueue, NAMES, NUMBERS, NUMBERS, st.none() | NUMBERS, st.just(QueueLimits()), st.just(PAUSED))
COSTS = st.dictionaries(NAMES, st.decimals(0, 10**9), max_size=3)
FRAMES = st.builds(
    TopFrame, st.just(NOW), NAMES, STATUSES, st.lists(st.builds(AgentRuns, NAMES, STATUSES), max_size=5),
    st.lists(QUEUES, max_size=5),
    st.lists(st.builds(DrivingProcess, NAMES, NUMBERS, NUMBERS, st.booleans()), max_size=5),
    st.builds(RecentSpending, st.integers(0, NOW), NUMBERS, NUMBERS, NUMBERS, COSTS),
    st.lists(st.builds(Attention, NAMES, NAMES), max_size=5),
)  # fmt: skip


@given(FRAMES, st.integers(40, 120), st.integers(5, 60))
def test_any_frame_fits_its_terminal_and_obeys_no_text(frame: TopFrame, width: int, height: int):
    shown = texts(draw(frame, width, height))
    assert len(shown) <= height
    assert max(map(cell_len, shown)) <= width
    assert not any(category(sign) == "Cc" for line in shown for sign in line), "a control character would be obeyed"
