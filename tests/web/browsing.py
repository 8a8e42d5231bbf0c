"""The browser of the tests of pages, and what every page must fulfil."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

PHONE = {"width": 390, "height": 844}
TIMEOUT_MS = 300_000
"""Time limit of waits: a server may wait for the kernels that another process compiles."""
EXPECTED = ("status of 400", "status of 404", "ERR_FAILED")
"""Requests that a test lets fail; the browser reports them."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian package chromium)")
    with sync_playwright() as playwright:
        expect.set_options(timeout=TIMEOUT_MS)
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@contextlib.contextmanager
def new_tab(browser: Browser, **options: Any) -> Iterator[Page]:
    """A tab whose scripts must not fail and must not break the policy; `options` are those of its context."""
    context = browser.new_context(**options)
    context.set_default_timeout(TIMEOUT_MS)
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield tab
    context.close()
    assert [error for error in errors if not any(text in error for text in EXPECTED)] == []


def assert_accessible(page: Page) -> None:
    """Asserts that axe-core finds nothing serious."""
    found = Axe().run(page).response["violations"]
    serious = [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]
    assert serious == []


def assert_fits(page: Page) -> None:
    """Asserts that the page does not scroll sideways."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
