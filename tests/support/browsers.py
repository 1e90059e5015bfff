"""Pages in a real browser: Chromium of the system, or the one that Playwright has installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest


def chromium() -> Iterator[object]:
    """Start a browser, or skip with a reason where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"needs Chromium: {error.message.splitlines()[0]}")
        yield browser
        browser.close()
