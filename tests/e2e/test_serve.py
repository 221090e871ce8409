"""`beforehand serve` as it is started: the link of the terminal, for one browser, on one's own machine."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests import forked
from tests.e2e.conftest import PATIENCE_MS
from tests.e2e.desk import AGENTS, refunds
from tests.e2e.served import Served


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    path = tmp_path / "desk.db"
    with Served(path, AGENTS) as served:
        served.begin(refunds, "anna")
    command = ["-P", "-m", "beforehand", "serve", "--journal", str(path), "--port", "0", "--by", "anna"]
    with forked.start(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        yield process
        process.terminate()
        process.wait(30)


def next_link(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+/enter\?token=\w+", line):
            return found[0]
    raise AssertionError("no link was shown")


def test_the_link_of_the_terminal_lets_one_browser_in(serving: subprocess.Popen[str], browser: Browser):
    link = next_link(serving)
    first, second = browser.new_context(), browser.new_context()
    for context in (first, second):
        context.set_default_timeout(PATIENCE_MS)
    page = first.new_page()
    page.goto(link)
    expect(page.get_by_role("link", name="refund-anna/refund#1")).to_be_visible()
    assert "token" not in page.url
    late = second.new_page()
    refused = late.goto(link)
    assert refused is not None
    assert refused.status == 401
    expect(late.get_by_role("alert")).to_contain_text("invalid or was already used")
    late.goto(next_link(serving))
    expect(late.get_by_role("heading", name="Inbox")).to_be_visible()
    first.close()
    second.close()
