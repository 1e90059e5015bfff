import re
from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import sha256
from retinabench.metrics.guarantees.triage import within
from retinabench.reports.guarantees import summary, write_certificate
from support.browsers import check_page
from support.reading_pages import printed

pytestmark = pytest.mark.usefixtures("legible")


def said(found):
    text = printed(summary(found))
    assert max(map(len, text.splitlines())) <= 80
    return text


def predictions_of(wrong, labels=None, wrong_of_test=None):
    """300 validation and 300 test images; the first ones of each are called wrongly, by a model that is sure of them."""
    label = np.arange(300) % 2 if labels is None else labels
    many = wrong, wrong_of_test or wrong
    probs = [np.where(np.arange(300) < k, 0.95 - 0.9 * label, 0.1 + 0.8 * label) for k in many]
    return rb.Predictions(
        [f"i{k}" for k in range(600)], [*label, *label], np.concatenate(probs), split=["validation"] * 300 + ["test"] * 300,
        grade=[*(3 * label), *(3 * label)],
    )  # fmt: skip


def test_a_certificate_says_claim_plain_choice_and_verdict():
    text = said(rb.transfer(predictions_of(3), "selective_risk", 0.1, delta=0.1, bootstrap=20))
    lines = text.splitlines()
    assert lines[0] == "Certified on validation: the model decides every image."
    assert lines[1].startswith("Claim, per image: error of the retained at most 0.1; with")
    assert "Plain choice, not certified: the expert reads above an uncertainty of" in text
    rows = [re.sub(r"\s{2,}", "|", line.strip()) for line in lines]
    for row in ("images|300|300", "called negative|149|149",
        "called positive|151|151", "read by the expert|0|0", "referable images missed|1 of 150|1 of 150",
                "grade 3-4 missed|1 of 150|1 of 150", "differs from validation|not found", "certificate|holds"):  # fmt: skip
        assert row in rows, row


def test_labels_that_refute_a_certificate_come_first():
    found = rb.transfer(predictions_of(3, wrong_of_test=90), "selective_risk", 0.1, delta=0.1, bootstrap=20)
    assert said(found).splitlines()[0] == "Broken: the labels of In-domain refute the certificate."
    zones = rb.triage(predictions_of(3, wrong_of_test=90), ["npv=.9"], bootstrap=20)
    first, second, *_ = said(zones).splitlines()
    assert first == "Broken: the labels of In-domain refute a goal."
    assert second.startswith("Frozen on validation, not certified: negative where")


def test_a_refusal_is_explained_once():
    found = rb.transfer(predictions_of(0), "selective_risk", 0.001, delta=0.1, bootstrap=20)
    lines = " ".join(said(found).split())
    assert lines.startswith("Refused: no threshold is certified. For error of the retained at most 0.001, the risk is")
    assert "validation patients like these, four of five studies are certified; there are 300." in lines
    assert "Goal, per image: " in lines
    assert "Claim" not in lines
    assert not any("guarantee" in note for note in found.notes)


def test_the_sensitivity_of_a_model_that_calls_all_negative_is_named():
    label = (np.arange(300) % 10 == 0).astype(int)
    blind = rb.Predictions(
        [f"i{k}" for k in range(600)], [*label, *label], np.linspace(0.01, 0.4, 600), split=["validation"] * 300 + ["test"] * 300
    )  # fmt: skip
    text = said(rb.transfer(blind, "accuracy", 0.5, bootstrap=20))
    first = "Sensitivity of the model alone: 0.00 [0.00, 0.12] on validation.\n"
    assert text.startswith(f"{first}Frozen on validation, not")
    assert "grade 3-4" not in text
    assert "\n certificate" not in text


def triaged(goals, delta=0.1):
    label = np.arange(400) % 2
    prob = np.where(label == 1, 0.9, 0.1)
    predictions = rb.Predictions(
        [f"i{k}" for k in range(800)], [*label, *label], [*prob, *prob], split=["validation"] * 400 + ["test"] * 400
    )  # fmt: skip
    found = rb.triage(predictions, goals, delta=delta, bootstrap=20)
    return found, said(found)


def test_both_zones_share_the_error():
    _, text = triaged(["npv=.9", "ppv=.9"])
    words = " ".join(text.split())
    ends = "negative where P(referable) <= 0.1, positive where P(referable) >= 0.9"
    assert words.startswith(f"Certified on validation: {ends}; the")
    claim = "NPV of the retained at least 0.9; PPV of the retained at least 0.9"
    assert f"Claim, per image: {claim}; with confidence 0.9 over" in words
    assert "patients, half of the error for each zone." in words
    rows = [re.sub(r"\s{2,}", "|", line.strip()) for line in text.splitlines()]
    assert "referable images missed|0 of 200|0 of 200" in rows
    assert "certificate|holds" in rows
    assert "called negative|0.50|0.50" in rows


def test_goals_of_a_refused_zone_are_not_claimed():
    found, text = triaged(["npv=.9", "ppv=.9999"])
    words = " ".join(text.split())
    why = "for PPV of the retained at least 0.9999, the risk is"
    assert words.startswith(f"Refused, no positive zone is certified: {why}")
    assert "Claim, per image: NPV of the retained at least 0.9; with confidence 0.9" in words
    assert not any("zone is empty" in note for note in found.notes)


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """Predictions, their file, a certificate of them, and its page."""
    given, folder = predictions_of(3), tmp_path_factory.mktemp("certificate")
    rb.write_predictions(given, folder / "p.csv")
    found = rb.transfer(given, goals=["selective_risk=.1", "sensitivity=.9"], delta=0.1, bootstrap=20)
    return given, folder / "p.csv", found, write_certificate(found, folder / "p.csv", folder / "a")


def test_the_page_fits_a_phone_and_is_accessible(signed, browser):
    check_page(browser, signed[-1])


def test_the_certificate_is_a_page_and_one_sheet_to_be_signed(signed, tmp_path, request):
    """Claim, assumptions, checksums and lines for signatures; the same bytes again; of groups, too many for the sheet."""
    given, source, found, path = signed
    page = path.read_text()
    for words in (
        "<h1>Certified on validation: the model decides every image</h1>", "Claim, per image: error of the retained at most 0.1",
        "Patients are independent draws of one population", sha256(source), sha256(path.parent / "transfer.json"), "Signature",
    ):  # fmt: skip
        assert words in page
    assert rb.apply(given, path.parent / "transfer.json").actions.tolist().count("expert reads") == 0
    sheet = (path.parent / "certificate.pdf").read_bytes()
    assert len(re.findall(rb"/Type /Page\b", sheet)) == 1
    write_certificate(found, source, tmp_path / "b")
    assert (tmp_path / "b" / "certificate.pdf").read_bytes() == sheet
    sites = replace(given, subgroups={"site": (np.arange(600) % 12).astype(str)})
    groups = within(sites, "site", None, lambda part, _: rb.transfer(part, "accuracy", 0.5, bootstrap=20))
    page = write_certificate(groups, source, tmp_path / "d").read_text()
    assert "<h1>Frozen, not certified, for 12 of 12 groups of site" in page
    assert "Nothing is guaranteed" in page
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "d" / "certificate.pdf").read_bytes())) == 1
    request.getfixturevalue("undrawn")  # its sheet is the one above
    refuted = rb.transfer(predictions_of(3, wrong_of_test=90), "selective_risk", 0.1, delta=0.1, bootstrap=20)
    page = write_certificate(refuted, source, tmp_path / "c").read_text()
    assert "<h1>Broken: the labels of In-domain refute the certificate</h1>" in page
