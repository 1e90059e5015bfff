"""The pieces: colours, drawings, the console table, curves and the rules of bold and of words."""

from __future__ import annotations

import io
import re
from importlib.resources import files

import numpy as np
import pytest
from rich.console import Console

from retinabench.metrics.selective import half_referred
from retinabench.metrics.selective.referral_curves import referral_curve
from retinabench.reports.evaluation import evidence as ev
from retinabench.reports.evaluation.console import console_table
from retinabench.reports.evaluation.evidence import Estimate, SetCase
from retinabench.reports.evaluation.examples import SIDE, data_uri
from retinabench.reports.evaluation.study import Entry, gather
from retinabench.reports.evaluation.verdict import verdict
from retinabench.reports.toolkit.figures import canvas, to_svg
from retinabench.reports.toolkit.number_format import percent, plain
from retinabench.reports.toolkit.style import HUES, INK, MUTED, PAPER, mark
from support.fake_predictions import population, predictions


def luminance(color: str) -> float:
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def palettes() -> list[dict[str, str]]:
    css = (files("retinabench.reports.toolkit") / "templates" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in blocks[:2]]


def test_light_and_dark_are_readable():
    for palette in palettes():
        for name in ("ink", "muted", "good", "bad", "pass", *(f"c{i}" for i in range(len(HUES)))):
            assert contrast(palette[name], palette["paper"]) >= 4.5, (name, palette[name])


def test_the_style_sheet_has_the_colours_of_the_figures():
    light = palettes()[0]
    assert [light[f"c{i}"] for i in range(len(HUES))] == list(HUES)
    assert (light["ink"], light["muted"], light["paper"]) == (INK, MUTED, PAPER)


def test_marks_differ():
    assert len({mark(i) for i in range(24)}) == 24
    assert all(mark(i).hue != mark(i + 1).hue and mark(i).dash != mark(i + 1).dash for i in range(11))


def test_a_drawing_can_stand_beside_another():
    def drawing(name: str) -> str:
        figure, [[axes]] = canvas(200, 100)
        axes.plot([0, 1], [0, 1], color=INK, clip_on=True)
        return str(to_svg(figure, name, title="a < b", description="c & d"))

    one, two = drawing("one"), drawing("two")
    ids = [set(re.findall(r'id="([^"]+)"', svg)) for svg in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert one == drawing("one")
    assert "a &lt; b" in one
    assert "c &amp; d" in one
    assert f"var(--ink, {INK})" in one
    assert not re.search(r"http|font-family|<style|<metadata", one)


@pytest.mark.parametrize(
    ("value", "options", "text"),
    [
        (0.125, {}, "0.12"),
        (-0.004, {}, "0.00"),
        (-0.04, {"signed": True}, "−0.04"),
        (0.04, {"signed": True}, "+0.04"),
        (0.0, {"signed": True}, "0.00"),
        (np.nan, {}, "undefined"),
    ],
)
def test_numbers_as_text(value, options, text):
    assert plain(value, **options) == text


def test_percent():
    assert percent(0.501) == "50 %"
    assert percent(np.nan) == "undefined"


def test_a_claim_needs_an_interval_on_one_side():
    assert Estimate(0.1, 0.05, 0.15).sign() == 1
    assert Estimate(-0.1, -0.15, -0.05).sign() == -1
    assert Estimate(0.1, -0.05, 0.25).sign() == 0
    assert Estimate(0.1, 0.0, 0.2).sign() == 0
    assert Estimate(0.1).sign() == 0


@pytest.mark.parametrize("metric", ev.METRICS)
def test_curves_are_those_of_the_scores(metric):
    case = SetCase.of(predictions("MC dropout", 0, population(400, 200)), "joint")
    assert case is not None
    curve = referral_curve(case.label, case.prob, case.uncertainty, metric)
    mine = ev.referral(case.cases.weighted(), metric)
    for share in (0.0, 0.25, 0.5, 0.75):
        assert mine[round(100 * share)] == pytest.approx(curve.at(share), abs=1e-12)


def test_numbers_at_half_by_hand():
    case = SetCase.of(predictions("MC dropout", 0, population(400, 200)), "joint")
    assert case is not None
    found = dict(zip(half_referred.NAMES, half_referred.numbers(case.cases.weighted()), strict=True))
    kept = np.argsort(case.uncertainty)[:300]
    label, said = case.label[kept], case.prob[kept] > 0.5
    assert found["accuracy_at_50"] == pytest.approx(np.mean(label == said))
    assert found["gain_at_50"] == pytest.approx(np.mean(label == said) - case.correct.mean())
    assert found["sensitivity_at_50"] == pytest.approx(said[label].mean())
    assert found["specificity_at_50"] == pytest.approx((~said[~label]).mean())
    assert found["prevalence_at_50"] == pytest.approx(label.mean())
    assert found["missed_at_50"] == pytest.approx((label & ~said).sum() / case.label.sum())
    assert found["perfect_accuracy_at_50"] == 1.0


def test_a_method_is_never_better_than_itself():
    found = predictions("MC dropout", 0, population(200, 100))
    study = gather([Entry.of("a", found), Entry.of("b", found)], rules="corrected", bootstrap=20, seed=0)
    gap = study.difference(0, 1, "joint", "auroc")
    assert (gap.value, gap.low, gap.high, gap.sign()) == (0.0, 0.0, 0.0, 0)
    assert study.best("joint", "auroc") is None
    assert "These pictures cannot tell a from b" in str([f.text for f in verdict(study).findings])


def test_a_clearly_better_method_is_bold():
    people = population(400, 200)
    good = predictions("MC dropout", 0, people)
    noise = np.random.default_rng(0).uniform(size=len(good))
    poor = type(good)(good.image_id, good.label, noise, patient_id=good.patient_id, domain=good.domain)
    study = gather([Entry.of("poor", poor), Entry.of("good", good)], rules="corrected", bootstrap=40, seed=0)
    assert study.best("joint", "auroc") == 1
    assert study.best("joint", "nll") == 1
    assert study.leader == 1


def test_pictures_lose_their_black_border():
    picture = np.zeros((400, 900, 3), np.uint8)
    picture[50:350, 250:650] = 120
    uri, width, height = data_uri(picture)
    assert uri.startswith("data:image/jpeg;base64,")
    assert (width, height) == (SIDE, SIDE * 3 // 4)
    assert data_uri(np.zeros((8, 8, 3), np.uint8))[1:] == (8, 8)
    assert data_uri(np.full((8, 8), 99, np.uint8))[1:] == (8, 8)


def test_console_table(written):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(console_table(written.records))
    console.print(console_table([{**written.records[0], "entry": "[red]x[/red]"}]))
    text = console.export_text()
    auroc = written.records[0]["sets"]["shifted"]["scores"]["auroc"]
    assert f"{auroc['value']:.3f}" in text
    assert f"{auroc['low']:.3f}–{auroc['high']:.3f}" in text
    assert "…" not in text
    assert "±" in text
    assert "oracle referral" in text
    assert "[red]x[/red]" in text
