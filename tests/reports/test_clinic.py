import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.reports import clinic
from retinabench.reports.clinic import answer_sets, checklist, counts_table, rates_table, render, ungradable_table
from retinabench.reports.toolkit.tables import macros
from support.reading_pages import printed, without_script
from support.screened import screened

pytestmark = pytest.mark.usefixtures("legible")


@pytest.fixture(scope="module")
def plain():
    found = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
    return {item["topic"]: item["answer"] for item in checklist(rb.clinic(found))}


def test_a_file_with_columns_answers_more(plain):
    report = rb.clinic(screened(60), "youden@validation", referral_rate=0.2)
    rich = {item["topic"]: item["answer"] for item in checklist(report)}
    questions = {
        "Variability and fairness: subgroups": ("age, camera", "no further columns"),
        "Indeterminate or missing results": ("counted as positive", "no ungradable images"),
        "Severity of the disease": ("grade 3 or 4", "no grades in the file"),
        "Uncertainty of the estimates": ("clustered by patient", "taken as independent"),
        "Model output and how its threshold was chosen": ("youden on the validation split", "given beforehand"),
    }
    for topic, (known, unknown) in questions.items():
        assert all(word in rich[topic] for word in known.split(", ")), topic
        assert unknown in plain[topic], topic
    assert "shifted set" in rich["Data from another source"]
    assert plain["Data from another source"] == clinic.AUTHORS


def test_the_cross_tabulation_is_counted_by_hand(plain):
    answer = plain["Cross tabulation against the reference"]
    assert answer.startswith("1 true positive, 1 false positive, 1 false negative, 1 true negative")
    assert plain["Failures, case by case"] == "1 missed images listed by id"


def images(**columns):
    """100 patients with two images: 40 referable ones, of which 10 are missed, and 160 others, of which 16 are called."""
    label = np.repeat(np.arange(100) < 20, 2)
    prob = np.where(label, 0.9, 0.1)
    prob[:10], prob[40:56] = 0.2, 0.8
    patient = np.repeat(np.arange(100), 2)
    return rb.Predictions([f"i{k}" for k in range(200)], label, prob, patient_id=patient, **columns)


@pytest.fixture(scope="module")
def screening():
    report = rb.clinic(images(grade=np.where(np.arange(200) < 40, 3, 0)))
    return report, answer_sets(report)[0]


def cells(table):
    return {row.label: [cell.content for cell in row.cells] for block in table.blocks for row in block.rows}


def test_the_model_alone_is_counted_by_images_patients_and_cases(screening):
    report, answer = screening
    found = cells(rates_table(answer, report))["Model alone, per image"]
    assert [found[0].value, found[1].value] == pytest.approx([30 / 40, 144 / 160])
    assert found[2] == "not met"
    per_patient = cells(rates_table(answer, report))["Model alone, per patient (any eye)"]
    assert [per_patient[0].value, per_patient[1].value] == pytest.approx([15 / 20, 72 / 80])
    assert cells(counts_table([screening[1]]))["In-domain"] == ["200", "100", "40 (20 %)", "40", "0"]
    plain = answer_sets(rb.clinic(rb.Predictions(["a", "b"], [0, 1], [0.2, 0.7])))
    assert cells(counts_table(plain))["In-domain"] == ["2", "not given", "1 (50 %)", "no grades", "0"]


def test_ungradable_images_change_the_rates_where_they_are_referred():
    assert ungradable_table(answer_sets(rb.clinic(images()))[0]) is None
    gradable = np.ones(200)
    gradable[:4] = 0  # four missed referable images
    found = answer_sets(rb.clinic(images(subgroups={"gradable": gradable})))[0]
    rates = cells(ungradable_table(found))
    assert rates["Ungradable images left out"][0].value == pytest.approx(30 / 36)
    assert rates["Ungradable images count as positive"][0].value == pytest.approx(34 / 40)


SAY = macros("say.html.j2", package="retinabench.reports")


def kind(predictions, **arguments):
    return answer_sets(rb.clinic(predictions, **arguments))[0].kind


def flat(label, prob, **columns):
    return rb.Predictions(np.arange(len(label)), label, prob, **columns)


def test_every_kind_of_answer():
    rng = np.random.default_rng(0)
    label = rng.random(2000) < 0.2
    good = 1 / (1 + np.exp(-(3.2 * (label - 0.5) + rng.normal(size=2000))))
    assert kind(flat(np.zeros(50, int), rng.random(50)), referral_rate=0.2) == "one class"
    assert kind(flat(label, 0.3 * rng.random(2000)), referral_rate=0.2) == "never"
    assert kind(flat(label, rng.random(2000)), referral_rate=0.2) == "blind"
    assert kind(flat(~label, good)) == "inverted"
    assert "labels or probabilities look inverted" in " ".join(rb.clinic(flat(~label, good)).notes)
    old = np.arange(2000) < 400
    notes = rb.clinic(flat(label ^ old, good, subgroups={"camera": np.where(old, "old", "new")})).notes
    assert [note for note in notes if "look inverted: In-domain, camera old: AUROC 0." in note]
    assert not [note for note in notes if "camera new" in note]
    assert kind(flat(label, good), referral_rate=0) == "no referral"
    assert kind(flat(label, np.where(label, 0.8, 0.2) + 0.1 * rng.random(2000)), referral_rate=0.2) == "nothing missed"
    assert kind(flat(label, good), referral_rate=0.1) == "same"
    wrong = label != (good > 0.5)
    assert kind(flat(label, good, uncertainty=wrong + rng.normal(0, 0.3, 2000)), referral_rate=0.2) == "yes"
    noisy = -np.abs(good - 0.5) + rng.normal(0, 0.3, 2000)
    assert kind(flat(label, good, uncertainty=noisy), referral_rate=0.2) == "beaten"
    # An uncertainty that is certain about the missed: the probability's distance from one half, turned round.
    turned = np.abs(good - 0.5)
    assert kind(flat(label, good, uncertainty=turned), referral_rate=0.3) == "worse"
    chance = rng.random(2000)
    assert kind(flat(label, good, uncertainty=chance), referral_rate=0.3) == "beaten"
    assert kind(flat(label[:60], good[:60], uncertainty=chance[:60]), referral_rate=0.3) == "unclear"


@pytest.mark.parametrize("columns", [True, False])
def test_useful_thresholds_are_those_of_the_intervals(columns):
    found = answer_sets(rb.clinic(screened(columns=columns), referral_rate=0.2))[0]
    curve = found.one.decision_curve
    better = (curve.low > 0) & (curve.over_all_low > 0)
    inside = (curve.threshold >= found.useful[0]) & (curve.threshold <= found.useful[1])
    assert better[inside].all()
    assert bool(found.one.subgroups and found.one.subgroups.worst("sensitivity")) == columns


def test_nothing_is_cut_and_the_page_stands_alone_and_leads_with_missed_disease(tmp_path):
    people = screened(100, camera_drop=2.5)
    report = rb.clinic(people, "sensitivity=.85@validation", referral_rate=0.2, referral_cost=0.01)
    for width in (80, 60):
        shown = printed(clinic.clinic_summary(report), width)
        assert max(map(len, shown.splitlines())) <= width
        assert "…" not in shown.replace(" … ", "")
        for image in report["in_domain"].missed.images[:10]:
            assert image.image_id in shown
        assert "camera: B" in shown
        assert "prevalences, per image" in " ".join(shown.split())
    path = clinic.write_clinic(report, tmp_path / "clinic")
    page = path.read_text()
    assert "<script" not in without_script(page)
    assert "http:" not in without_script(page)
    assert "https:" not in page
    heads = "What is missed", "At which threshold", "What it costs", "For whom it fails"
    places = [page.index(text) for text in heads]
    assert places == sorted(places)
    for image in report["in_domain"].missed.images:
        assert image.image_id in page
    found = json.loads((tmp_path / "clinic" / "clinic.json").read_text())
    assert found["schema"] == "retinabench.clinic/2"
    assert set(found["answers"]) == {"in_domain", "shifted"}
    assert len(found["checklist"]) > 15


@pytest.mark.parametrize("label", [[0, 0, 0, 0], [0, 1, 0, 1]])
def test_tiny_files_have_a_page(label):
    report = rb.clinic(rb.Predictions(list("abcd"), label, [0.1, 0.9, 0.2, 0.4]), referral_rate=0.25)
    assert "These images cannot show it" in render(report) or "not shown" in render(report)
    assert json.dumps(clinic.clinic_json(report), allow_nan=False)


def test_a_reader_who_misses_more_than_the_model_is_no_yes():
    rng = np.random.default_rng(0)
    label = rng.random(3000) < 0.3
    good = 1 / (1 + np.exp(-(9 * (label - 0.5) + rng.normal(0, 1.8, 3000))))
    report = rb.clinic(flat(label, good), referral_rate=0.2, reader=(0.3, 0.95))
    [answer] = answer_sets(report)
    said = SAY.answer(answer, report, False)
    assert answer.kind == "reader"
    assert "No: more disease is missed with the stated reader" in said
    assert "raises the missed share" in " ".join(said.split())
