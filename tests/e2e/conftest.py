"""One real browser for all tests, and for each test a server and pages of its own, under watch."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.e2e.desk import AGENTS, POLICY, SENT
from tests.e2e.served import PASSWORD, Served

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_MS = 15_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed with the module: while its driver lives, no other test of this process could run a loop of its own."""
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    assert program is not None, "these tests need a browser: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Served]:
    SENT.clear()
    with Served(tmp_path / "desk.db", AGENTS, POLICY) as served:
        yield served


class Watch:
    """What a page must not do: talk to anybody else, complain, open a dialog, or run what it was shown."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wrong: list[str] = []
        self.wanted: list[str] = []

    def over(self, context: BrowserContext) -> None:
        context.on("request", self._request)
        context.on("page", self._page)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(f"{self.address}/"):
            self.wrong.append(f"asked for {request.url}")

    def _page(self, page: Page) -> None:
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("pageerror", lambda error: self.wrong.append(f"failed: {error}"))
        page.on("dialog", lambda dialog: self.wrong.append(f"opened a dialog: {dialog.message}"))

    def _said(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not any(expected in text for expected in self.wanted):
            self.wrong.append(f"{kind}: {text}")


Enter = Callable[..., Page]


@pytest.fixture
def enter(browser: Browser, desk: Served) -> Iterator[Enter]:
    """A browser in which a user has signed in, on the inbox. Whatever it does wrong fails the test."""
    contexts: list[BrowserContext] = []
    watch = Watch(desk.address)
    known: set[str] = set()

    def enter(name: str = "bea", *, expected: str = "", **options: Any) -> Page:
        if name not in known:
            desk.person(name)
            known.add(name)
        context = browser.new_context(base_url=desk.address, **options)
        context.set_default_timeout(PATIENCE_MS)
        watch.over(context)
        watch.wanted += [expected] if expected else []
        contexts.append(context)
        page = context.new_page()
        page.goto("/")
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Inbox").wait_for()
        return page

    yield enter
    caught = [context.pages[0].evaluate("window.caught ?? 0") for context in contexts if context.pages]
    for context in contexts:
        context.close()
    assert watch.wrong == []
    assert set(caught) <= {0}
