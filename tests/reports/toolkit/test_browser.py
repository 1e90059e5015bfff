"""The pages in a browser: the sliders show the numbers of the JSON, tables are sorted, nothing overflows a phone, axe finds no
fault. One browser and one report serve all tests; each opens a page of its own."""

import json
from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.metrics.clinical.screening_table import policy_grid
from retinabench.reports.clinic import write_clinic
from retinabench.reports.evaluation.evaluation import EvaluationSettings
from retinabench.reports.evaluation.write import write_report
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.pages import ROWS
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table, to_html
from support.browsers import check_page, faults, screenshot
from support.fake_predictions import population, predictions
from support.reading_pages import round_image
from support.screened import screened


@pytest.fixture(scope="module")
def report(tmp_path_factory, browser):
    """Two methods, cameras, pictures of every second image."""
    found = {}
    for name in ("MAP", "MC dropout"):
        one = predictions(name, 0, population(60, 44))
        camera = np.where(np.arange(len(one)) % 4 < 2, "A", "B")
        found[name] = replace(one, subgroups={"camera": camera})
    return write_report(found, tmp_path_factory.mktemp("page"), EvaluationSettings(bootstrap=5), images=round_image)


@pytest.fixture(scope="module")
def clinic(tmp_path_factory, browser):
    one = screened(40, camera_drop=2.0)
    found = rb.clinic(one, 0.35, referral_rate=0.2)
    return write_clinic(found, tmp_path_factory.mktemp("clinic"), policy_grid(one, found.stated))


@pytest.fixture
def opened(browser, report):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda one: one.url.startswith(("file:", "data:")) or page.errors.append(one.url))
    page.goto(report.as_uri())
    yield page
    assert page.errors == []
    page.close()


def shown(page) -> dict[str, str]:
    """Return the column `here` of the sliders' table."""
    rows = page.locator("#explore-rows tr").all()
    return {one.locator("th").inner_text(): one.locator("td").first.inner_text() for one in rows}


def test_the_sliders_show_the_numbers_of_the_json(opened, report):
    entries = json.loads((report.parent / "policies.json").read_text())["entries"]
    opened.select_option("#explore-model", "1")
    opened.select_option("#explore-set", "1")
    opened.select_option("#explore-group", "1")
    opened.locator("#explore-referral").fill("2")
    opened.locator("#explore-threshold").fill("5")
    opened.locator("#explore-threshold").press("ArrowRight")
    shares = opened.locator("#explore-referral-text").inner_text()
    group = entries[1]["sets"]["shifted"]["camera: A"][6][2]
    assert shares.replace("\xa0", " ") == f"{100 * entries[1]['referrals'][2]['rate']:.0f} % of the images"
    found = shown(opened)
    assert list(found) == list(ROWS)
    for row, key in (
        ("Sensitivity", "sensitivity"),
        ("PPV, at the prevalence of these images", "ppv"),
        ("Referable images called healthy and not read", "missed"),
    ):
        value, low = (100 * group[key][part] for part in ("value", "low"))
        text = found[row].replace("\xa0", " ").split("(")[-1]
        assert float(text.split(" %")[0]) == pytest.approx(value, abs=0.51)
        assert float(text.split("[")[1].split(" %")[0]) == pytest.approx(low, abs=0.51)
    assert found["Referable images called healthy and not read"].startswith(f"{group['missed_images']} (")
    assert opened.locator("#explore-count").inner_text().endswith(f"camera: A: {group['missed_images']}")
    cards = opened.locator("#explore-cards li")
    assert cards.count() == min(6, group["missed_images"])
    assert cards.locator("img").count() > 0
    assert opened.evaluate("location.hash") == "#explore=1,1,1,6,2"
    screenshot(opened, "report-sliders-1280")
    opened.set_viewport_size({"width": 390, "height": 844})
    screenshot(opened, "report-sliders-390")
    opened.set_viewport_size({"width": 1280, "height": 900})
    opened.click("#explore-reset")
    rows = [one.locator("td").all_text_contents() for one in opened.locator("#explore-rows tr").all()]
    assert all(here == stated for here, stated in rows)
    assert opened.locator("#explore-rows td:visible").count() == len(rows)  # what is equal is shown once


def test_a_link_opens_its_pair_and_folded_parts(opened, report):
    opened.goto(report.as_uri() + "#explore=1,0,2,3,4")
    opened.reload()
    assert opened.locator("#explore-group").input_value() == "2"
    assert opened.locator("#explore-referral").input_value() == "4"
    assert opened.locator("#roc details").get_attribute("open") is None
    opened.click('nav a[href="#roc"]')
    assert opened.locator("#roc details").get_attribute("open") is not None


def test_tables_are_sorted_by_keyboard(opened):
    opened.click('nav a[href="#scores"]')
    table = opened.locator("#scores table").first
    header = table.locator("thead th").nth(1)
    rows = table.locator("tbody tr:not(.control)")
    assert header.get_attribute("aria-sort") == "none"
    button = header.get_by_role("button")
    for order, sign in (("descending", -1), ("ascending", 1)):
        button.press("Enter")
        assert header.get_attribute("aria-sort") == order
        values = [float(one.locator("td").first.inner_text().split()[0]) for one in rows.all()]
        assert values == sorted(values, key=lambda value: sign * value)
        assert table.locator("tbody tr").last.get_attribute("class") == "control"
    button.press("Enter")
    assert rows.first.locator("th").inner_text() == "MAP"


def test_long_tables_are_filtered_and_sorted_by_number_and_text(browser, tmp_path):
    values = [0.5, None, -2.25, 1e-9, 30.0, 4.0, 0.51, 7.0]
    rows = [Row(f"row-{k}", [Cell.number(one), Cell(f"1,{k}00 (3 %)")]) for k, one in enumerate(values)]
    table = to_html(Table.of("Numbers", [Column("Score", direction="lower"), Column("Count")], rows))
    empty = pages.render("base.html.j2", {"title": "Tables"})
    file = tmp_path / "tables.html"
    file.write_text(empty.replace("</main>", f"{table}</main>"))
    page = browser.new_page()
    page.goto(file.as_uri())

    def order() -> str:
        return "".join(one[-1] for one in page.locator("tbody th:visible").all_inner_texts())

    page.get_by_role("button", name="Score").click()
    assert order() == "23065741"  # ascending, because lower is better; the unknown one last
    page.get_by_role("button", name="Count").click()
    assert order() == "76543210"
    page.get_by_role("searchbox").fill("ROW-3")
    assert order() == "3"
    assert page.locator("output").inner_text() == "1 of 8"
    page.get_by_role("searchbox").fill("")
    assert order() == "76543210"
    page.close()


def test_the_pages_fit_a_phone_and_are_accessible(browser, report, clinic):
    check_page(browser, report)
    check_page(browser, clinic)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_is_accessible_and_has_contrast(browser, report, clinic, scheme):
    assert faults(browser, report, scheme) == faults(browser, clinic, scheme) == []


def test_print_shows_every_part_and_no_control(browser, report):
    page = browser.new_page()
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    for control in ("nav", "#explore", ".filter", ".unfold"):
        assert not page.locator(control).first.is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#repeat table").is_visible()
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => one.open)")
    page.close()


def test_without_scripts_the_page_is_whole(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert not page.locator("#explore").is_visible()
    assert page.locator("#lead-figure").is_visible()
    page.locator("#scores summary").click()
    assert page.locator("#scores table").first.is_visible()
    context.close()
