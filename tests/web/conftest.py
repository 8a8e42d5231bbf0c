"""The browser of the tests of pages."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

EXPECT_MS = 180_000
"""Time limit of an expectation: a server may wait for the kernels that another process compiles."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian package chromium)")
    with sync_playwright() as playwright:
        expect.set_options(timeout=EXPECT_MS)
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
