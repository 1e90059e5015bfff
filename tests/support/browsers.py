"""Pages in a real browser: Chromium of the system, or the one that Playwright has installed."""

import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest


def chromium() -> Iterator[object]:
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


SCREENSHOTS = "SCREENSHOTS"
"""Environment variable: the folder in which screenshots are kept, as CI does; none are taken where it is not set."""
OPEN = "document.querySelectorAll('details').forEach((one) => one.open = true)"
_OUTSIDE = """[...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > 391
    && !one.closest(".scroll, .drawing")).map((one) => one.outerHTML.slice(0, 99))"""
_SIZES = """[12, ...[...document.querySelectorAll(".drawing text, .drawing tspan")].map((one) =>
    parseFloat(getComputedStyle(one).fontSize) * one.ownerSVGElement.getScreenCTM().a)]"""
_EMPTY = """document.querySelectorAll('svg > :not(title, desc)').forEach((one) => one.remove())"""  # what axe walks for nothing
_LEVELS = "[...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]))"


def screenshot(page: Any, name: str) -> None:
    """Keep a picture of a whole page where `SCREENSHOTS` names a folder."""
    if folder := os.environ.get(SCREENSHOTS):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def faults(browser: Any, address: Path, scheme: str = "light") -> list[tuple[str, str, list[str]]]:
    """Return what axe-core finds wrong in a page with all parts open, contrasts included."""
    page = browser.new_page(color_scheme=scheme)
    page.goto(address.as_uri())
    page.evaluate(OPEN)
    found = _violations(page, contrast=True)
    page.close()
    return found


def _violations(page: Any, contrast: bool) -> list[tuple[str, str, list[str]]]:
    """Return what axe-core finds wrong by WCAG 2 AA and best practice; contrasts take it most of its time."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    options: dict[str, Any] = {"resultTypes": ["violations"], "selectors": False}  # of all others, one node each
    if not contrast:
        options["rules"] = {"color-contrast": {"enabled": False}}
    page.evaluate(_EMPTY)
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.Axe().axe_script)
    run = "(options) => axe.run({exclude: [['svg']]}, options).then((found) => found.violations)"
    found = page.evaluate(run, options)
    return [(one["id"], one["help"], [node["html"][:150] for node in one["nodes"][:3]]) for one in found]


def check_page(browser: Any, address: Path) -> None:
    """Check a page with all parts open: it fits a phone, with readable figures, headings in order and no error of its script, and
    axe finds no fault at the width of a phone and of a desktop."""
    test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0].removeprefix("tests/")
    name = re.sub(r"\W+", "-", f"{test}-{address.parent.name}-{address.stem}")
    page = browser.new_page(viewport={"width": 390, "height": 844})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(address.as_uri())
    screenshot(page, f"{name}-390")
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate(_OUTSIDE) == []
    assert min(page.evaluate(_SIZES)) >= 12
    levels = page.evaluate(_LEVELS)
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    assert not errors, errors
    page.set_viewport_size({"width": 1280, "height": 900})
    screenshot(page, f"{name}-1280")
    assert not (found := _violations(page, contrast=False)), found
    page.set_viewport_size({"width": 390, "height": 844})
    assert not (found := _violations(page, contrast=False)), found
    page.close()
