"""`plan` and `clinic` as a user runs them: tables, files, exit codes."""

import contextlib
import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run
from support.follow_ups import certificate, follow_up, predictions_of

pytestmark = pytest.mark.usefixtures("undrawn")


def table(tmp_path, name="predictions.csv", n=120, **columns):
    rng = np.random.default_rng(0)
    label = np.repeat(rng.random(n) < 0.3, 2)
    prob = 1 / (1 + np.exp(-(4 * label - 2 + rng.normal(size=2 * n))))
    path = tmp_path / name
    ids = [f"image-{k}" for k in range(2 * n)]
    given = rb.Predictions(ids, label, prob, patient_id=np.repeat(np.arange(n), 2), **columns)
    rb.write_predictions(given, path)
    return path


def test_a_plan_from_stated_expectations(tmp_path, capsys):
    out = tmp_path / "plan.json"
    assert run(["plan", "--prevalence", "0.1", "--above-sensitivity", "0.85", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "patients answer every question" in shown
    assert max(map(len, shown.splitlines())) <= 80
    found = json.loads(out.read_text())
    assert found["schema"] == "retinabench.plan/1"
    assert f"{found['patients']:,} patients" in shown
    assert found["requirements"]["sensitivity_above"]["patients"] > 0


def test_a_plan_from_a_pilot(tmp_path, capsys):
    out = tmp_path / "plan.json"
    assert run(["plan", str(table(tmp_path)), "--json", str(out)]) == 0
    found = json.loads(out.read_text())["assumptions"]
    assert found["images_per_patient"] == 2
    assert found["origin"] == "pilot of 240 images"
    assert "assumptions from a pilot" in capsys.readouterr().err


def test_the_clinic_as_a_user_runs_it(tmp_path, capsys):
    out, page = tmp_path / "clinic.json", tmp_path / "page"
    camera = np.where(np.arange(240) % 4 < 2, "A", "B")
    path = table(tmp_path, subgroups={"camera": camera})
    arguments = ["--prevalence", "0.1", "--cost", "0.01", "--reader", "0.8/0.9", "--images-per-hour", "30"]
    assert run(["clinic", str(path), *arguments, "--json", str(out), "--out", str(page), "--quiet"]) == 0
    shown = capsys.readouterr()
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "camera: A" in shown.out
    found = json.loads(out.read_text())
    assert found == json.loads((page / "clinic.json").read_text())
    assert found["reader"] == {"sensitivity": 0.8, "specificity": 0.9}
    assert list(found["sets"]["in_domain"]["predictive_values"]) == ["0.1"]
    assert abs(found["sets"]["in_domain"]["workload"]["images"]["value"] - 0.2) < 0.01
    assert (page / "index.html").is_file()


def test_the_clinic_speaks_of_new_sites_of_readers_and_of_the_risks(tmp_path, capsys):
    n, rng = 2400, np.random.default_rng(4)
    label, site = (np.arange(n) % 8 < 2).astype(int), rng.choice(list("ABCDEF"), n)
    x = np.where(label, 2.0, -2.0) + 1.4 * rng.normal(size=n) + np.where(site == "F", -1.5, 0.0)
    readers = {f"reader_{k}": (x + rng.normal(1, 1, n) > 0).astype(float) for k in range(3)}
    path = tmp_path / "predictions.csv"
    patient = np.char.add("p", (np.arange(n) // 2).astype(str))
    ids = np.char.add("i", np.arange(n).astype(str))
    prob = 1 / (1 + np.exp(-2 * x))
    made = rb.Predictions(ids, label, prob, patient_id=patient, subgroups={"site": site, **readers})
    rb.write_predictions(made, path)
    assert run(["clinic", str(path), "--json", str(tmp_path / "out.json"), "--quiet"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "At a site that is not in the study, expect a sensitivity between" in said
    readers = "the mean of 3 readers over the 600 images that all of them read, with readers as random"
    assert f"of {readers}; the model's is lower" in said
    assert "Predicted and observed risk are 0.0" in said
    one = json.loads((tmp_path / "out.json").read_text())["sets"]["in_domain"]
    gaps = {found["rate"]: found for found in one["subgroups"]["between"]}
    assert gaps["sensitivity"]["lowest"] == "site: F"
    assert gaps["sensitivity"]["gap"]["low"] > 0.03
    new = gaps["sensitivity"]["new_site"]["new_site"]
    assert new["low"] < min(group["sensitivity"]["value"] for group in one["subgroups"]["groups"])
    assert set(one["subgroups"]["worst"].values()) <= {f"site: {name}" for name in "ABCDEF"}  # readers are no groups
    assert one["readers"]["specificity"]["model_minus_mean"]["low"] > 0
    assert one["smooth_calibration"]["ici"] > one["smooth_calibration"]["calibrated_ici"]


def test_the_calibration_of_sharp_probabilities_is_not_compared_with_a_curve_of_few_errors(tmp_path, capsys):
    def overconfident(site, label, prob):
        return {"prob": 1 / (1 + (1 / prob - 1) ** 30)}

    assert run(["clinic", realistic(tmp_path, overconfident), "-q"]) == 0
    assert "with these probabilities would call only about" in " ".join(capsys.readouterr().out.split())


def test_wrong_options_of_the_clinic(tmp_path, capsys):
    path = str(table(tmp_path))
    for option, value, message in [
        ("--reader", "good", "SENSITIVITY/SPECIFICITY"), ("--reader", "0.9/1.5", "[0, 1]"), ("--referral", "2", "referral rate"),
        ("--prevalence", "0", "prevalence"), ("--cost", "-1", "price"), ("--images-per-hour", "0", "per hour"),
        ("--subgroup", "camera", "no column 'camera'"), ("--goal", "0.9", "--goal 0.9 is not"), ("--goal", "2/0.5", "goal"),
        ("--threshold", "high", "unknown threshold"),
    ]:  # fmt: skip
        assert run(["clinic", path, option, value]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error


@pytest.fixture
def file(tmp_path):
    """300 validation and 300 test images; of each so many are called wrongly by a model that is sure of them."""

    def write(wrong, of_test):
        label = np.arange(300) % 2
        probs = [np.where(np.arange(300) < k, 0.95 - 0.9 * label, 0.1 + 0.8 * label) for k in (wrong, of_test)]
        ids, split = [f"i{k}" for k in range(600)], ["validation"] * 300 + ["test"] * 300
        predictions = rb.Predictions(ids, [*label, *label], np.concatenate(probs), split=split)
        rb.write_predictions(predictions, tmp_path / "p.csv")
        return str(tmp_path / "p.csv")

    return write


GOAL = ["--goal", "selective_risk=.1", "--confidence", ".9", "--bootstrap", "20", "-q"]


@pytest.mark.parametrize(("wrong", "of_test", "code"), [(3, 3, 0), (60, 60, 3), (3, 90, 4)])
def test_the_exit_code_says_what_became_of_the_certificate(wrong, of_test, code, file, tmp_path):
    out = tmp_path / "t.json"
    assert run(["transfer", file(wrong, of_test), *GOAL, "--json", str(out)]) == code
    found = json.loads(out.read_text())
    assert (found["threshold"] is None) == (code == 3)


def test_three_zones_have_the_same_codes(file, capsys):
    words = ["--zones", "--goal", "npv=.9", "--goal", "ppv=.9", "--confidence", ".9", "--bootstrap", "20", "-q"]
    assert run(["transfer", file(3, 3), *words]) == 0
    assert run(["transfer", file(60, 60), *words, "--attach", "none"]) == 3
    assert "nothing is attached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--confidence", "1"], "--confidence 1 is not between 0 and 1"),
        (["--zones", "--threshold", ".3"], "--zones takes no --threshold"),
        (["--goal", "nonsense=.1"], "nonsense"),
        (["--goal", ".8"], "a goal of .8 alone would allow that share of errors. Say accuracy=.8"),
    ],
)
def test_wrong_options_are_one_line(words, says, file, capsys):
    assert run(["transfer", file(3, 3), *words, "-q"]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "Traceback" not in told


def changed(folder, name, change):
    """A copy of a CSV of predictions with other cells: `change` maps a row, a dictionary, to what differs."""
    with open(folder / f"{name}.csv", newline="") as handle:
        rows = [row | change(row) for row in csv.DictReader(handle)]
    with open(folder / "changed.csv", "w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    return folder / "changed.csv"


def test_test_images_without_labels_are_refused_with_what_to_do(file, tmp_path, capsys):
    file(3, 3)
    path = changed(tmp_path, "p", lambda row: {"label": row["label"] * (row["split"] == "validation")})
    assert run(["transfer", str(path), *GOAL]) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("Refused: the in-domain test images have no labels")
    assert "`retinabench plan` says how many" in line


@pytest.fixture
def folder(tmp_path):
    """Validation, a follow-up that holds, one that breaks the certificate, and the certificate."""
    rng = np.random.default_rng(0)
    tables = {
        "validation": predictions_of(follow_up(rng, 200, name="v"), "validation"),
        "holds": predictions_of(follow_up(rng, 200)),
        "broken": predictions_of(follow_up(rng, 700, sure_errors=0.3, change=50)),
    }
    for name, table in tables.items():
        rb.write_predictions(table, tmp_path / f"{name}.csv")
    (tmp_path / "transfer.json").write_text(json.dumps(certificate()))
    return tmp_path


def watch(folder, *arguments):
    return run(["monitor", *map(str, arguments), "--certificate", str(folder / "transfer.json"), "--quiet"])


def test_no_alarm_is_0_and_an_alarm_is_4(folder, capsys):
    assert watch(folder, folder / "holds.csv", folder / "validation.csv") == 0
    assert capsys.readouterr().out.startswith("No alarm")
    out, numbers = folder / "page", folder / "monitor.json"
    assert watch(folder, folder / "broken.csv", folder / "validation.csv", "--out", out, "--json", numbers) == 4
    assert capsys.readouterr().out.startswith("Alarm: the labels refute")
    assert "<!doctype html>" in (out / "index.html").read_text()
    content = json.loads(numbers.read_text())
    assert content["alarm"]
    assert content["drift"]["reference_patients"] == 200


def test_labels_of_the_uncertain_images_alone_judge_nothing(folder, capsys):
    """Nothing is wrong with this follow-up, but the answered images that have a label are the least certain ones."""
    read = changed(folder, "holds", lambda row: {"label": row["label"] if 0.12 < float(row["prob"]) < 0.88 else ""})
    assert watch(folder, read, "--out", folder / "page") == 3
    said = capsys.readouterr().out.replace(" \n", " ")
    assert said.startswith(
        "The labels cannot judge the certificate, because they were given to the more uncertain images"
    )
    assert "labels cannot judge" in (folder / "page/index.html").read_text()
    half = changed(folder, "holds", lambda row: {"label": row["label"] * (int(row["image_id"][-2:], 36) % 3 > 0)})
    assert watch(folder, half) == 0
    assert capsys.readouterr().out.startswith("No alarm")


@pytest.mark.parametrize("unread", [True, False])
def test_labels_that_are_the_calls_of_the_model_are_named(tmp_path, unread, capsys):
    """2,000 patients with two eyes, whose labels are drawn from the model's probabilities, or from them only between .1 and .9."""
    rng = np.random.default_rng(8)
    patient = np.repeat(np.arange(2000), 2)
    prob = 1 / (1 + np.exp(-rng.normal(-1.5, 1.6, 2000)[patient] - rng.normal(0, 0.5, 4000)))
    label = rng.random(4000) < prob
    label = np.where(np.abs(prob - 0.5) > 0.4, prob > 0.5, label) if unread else label
    split = ["validation"] * 2000 + ["test"] * 2000
    rb.write_predictions(rb.Predictions(range(4000), label, prob, patient_id=patient, split=split), tmp_path / "p.csv")
    for verb, *words in ["score"], ["clinic"], ["transfer", *GOAL], ["transfer", "--zones", "--goal", "npv=.8"]:
        with contextlib.redirect_stderr(sys.stdout):
            assert run([verb, str(tmp_path / "p.csv"), *words, "-q"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("note: WARNING") is unread  # before any verdict
        assert said.count("surest images are the model's own calls") == unread * (1 + (verb == "transfer"))


def test_inverted_labels_and_confidences_are_named(file, tmp_path, capsys):
    file(3, 3)
    assert run(["transfer", str(changed(tmp_path, "p", lambda row: {"label": 1 - int(row["label"])})), *GOAL]) == 3
    assert "look inverted: Validation AUROC" in capsys.readouterr().err
    sure = changed(tmp_path, "p", lambda row: {"prob": max(float(row["prob"]), 1 - float(row["prob"]))})
    assert run(["clinic", str(sure), "-q"]) == 0
    assert "Is 'prob' the confidence in the call?" in capsys.readouterr().err


def test_disease_missed_at_second_visits_is_no_longer_no_alarm(folder, capsys):
    """The patients of the first year return, and the model calls all of them healthy."""
    first = follow_up(np.random.default_rng(2), 400)
    names = np.array([f"{one}-again" for one in first.image_id])
    again = replace(first, image_id=names, day=first.day + 366, prob=np.full(len(first), 0.01))
    rb.write_predictions(predictions_of(type(first).together([first, again])), folder / "years.csv")
    assert watch(folder, folder / "years.csv", "--json", folder / "monitor.json") == 4
    assert capsys.readouterr().out.startswith("Alarm: the labels refute the certificate")
    assert json.loads((folder / "monitor.json").read_text())["combined"]["alarm"] > "2027"


ZONES = {"schema": "retinabench.triage/1", "zones": {"negative": {"threshold": 0.2}, "positive": {"threshold": 0.8}}}


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Zones with the values of 300 validation patients, and predictions of two days without labels."""
    monkeypatch.chdir(tmp_path)
    known = follow_up(np.random.default_rng(0), 300, name="v").prob
    (tmp_path / "zones.json").write_text(json.dumps(ZONES | {"reference": {"prob": sorted(known.tolist())}}))
    for day in ("monday", "tuesday"):
        one = follow_up(np.random.default_rng(len(day)), 40, name=day)
        rows = [f"{i},{p},{x}" for i, p, x in zip(one.image_id, one.patient, one.prob, strict=True)]
        (tmp_path / f"{day}.csv").write_text("\n".join(["image_id,patient_id,prob", *rows]) + "\n")
    return tmp_path


def apply_zones(*files):
    return run(["apply", *files, "--certificate", "zones.json", "--out", "lists", "--json", "found.json"])


def test_a_day_is_applied_once_and_its_list_says_what_becomes_of_every_patient(service, capsys):
    assert apply_zones("monday.csv") == 0
    shown = " ".join(capsys.readouterr().out.split())
    counts = json.loads((service / "found.json").read_text())["files"][0]["patients"]
    hospital, expert, nothing = counts.values()
    read = f"the expert reads the images of {expert}, and {nothing} need no referral."
    assert shown.startswith(f"Of 40 patients, {hospital} are referred to the hospital, {read}")
    with open("lists/monday-actions.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row in rows:
        p = float(row["prob"])
        expected = "no referral" if p <= 0.2 else "refer to hospital" if p >= 0.8 else "expert reads"
        assert (row["action"], row["read_by_expert"]) == (expected, "yes" if expected == "expert reads" else "no")
    by_patient = {row["patient_id"]: row["patient_action"] for row in rows}
    assert list(by_patient.values()).count("refer to hospital") == hospital
    before = {path.name: path.read_bytes() for path in Path("lists").iterdir()}
    assert apply_zones("monday.csv") == 0
    assert "was applied at" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path("lists").iterdir()} == before
    assert apply_zones("tuesday.csv") == 0
    assert len(Path("lists/log.jsonl").read_text().splitlines()) == 2


def test_a_list_that_was_worked_through_is_not_replaced(service, capsys):
    assert apply_zones("monday.csv") == 0
    (service / "monday.csv").write_bytes((service / "tuesday.csv").read_bytes())
    capsys.readouterr()
    assert apply_zones("monday.csv") == 2
    assert "monday.csv: was applied with another content at " in capsys.readouterr().err
    (service / "zones.json").write_text(json.dumps(ZONES))
    assert apply_zones("tuesday.csv") == 0
    assert "drift is not watched" in " ".join(capsys.readouterr().err.split())


def test_a_day_without_a_gradable_image_goes_to_the_expert_and_a_lost_list_is_said(service, capsys):
    changed(service, "monday", lambda _: {"prob": "", "gradable": 0}).rename("dark.csv")
    assert apply_zones("dark.csv") == 0
    assert "the expert reads the images of 40," in " ".join(capsys.readouterr().out.split())
    assert apply_zones("tuesday.csv") == 0
    (service / "lists" / "dark-actions.csv").unlink()
    capsys.readouterr()
    assert apply_zones("tuesday.csv") == 2
    assert "dark-actions.csv: is missing. Restore it from a copy" in " ".join(capsys.readouterr().err.split())


def test_images_of_another_kind_raise_an_alarm_and_the_list_is_written(service, capsys):
    changed(service, "tuesday", lambda _: {"prob": 0.5}).rename("dark.csv")
    assert apply_zones("monday.csv") == 0
    capsys.readouterr()
    assert apply_zones("dark.csv") == 4
    assert capsys.readouterr().out.startswith("Alarm: since dark.csv the images differ from those of the certificate.")
    assert "expert reads" in Path("lists/dark-actions.csv").read_text()


def test_a_certificate_that_is_refuted_or_of_another_uncertainty_is_not_applied(service, capsys):
    (service / "zones.json").write_text(json.dumps(ZONES | {"sets": {"shifted": {"guarantee": "broken"}}}))
    assert apply_zones("monday.csv") == 2
    assert "zones.json: may not be applied: the labels of shifted refute it" in capsys.readouterr().err
    (service / "zones.json").write_text(json.dumps(certificate() | {"threshold": 0.1, "uncertainty": "own"}))
    assert apply_zones("monday.csv") == 2
    assert "monday.csv, column 'uncertainty': the threshold is one of the model's own" in capsys.readouterr().err
    assert not Path("lists/log.jsonl").exists()


def test_files_without_new_images_are_refused(folder, capsys):
    assert watch(folder, folder / "validation.csv") == 2
    assert "no file holds images of the test split" in capsys.readouterr().err
    assert watch(folder, folder / "holds.csv", "--date-column", "day") == 2
    assert "column 'day': is missing. Did you mean 'date'" in capsys.readouterr().err
    assert watch(folder, folder / "holds.csv", folder / "holds.csv") == 2
    assert "holds.csv and 1 more, column 'image_id': image " in (said := capsys.readouterr().err)
    assert "is in two files" in said
    holds = rb.read_predictions(folder / "holds.csv")
    rb.write_predictions(replace(holds, split=["validation"] * len(holds)), folder / "known.csv")
    assert watch(folder, folder / "known.csv", folder / "holds.csv") == 2
    assert "known.csv and 1 more: every patient is in the validation split" in capsys.readouterr().err


def test_labels_of_new_images_may_be_empty(folder):
    new = changed(folder, "holds", lambda row: {"label": row["label"] * (row["image_id"] < "f000200")})
    assert watch(folder, new, folder / "validation.csv", "--json", folder / "monitor.json") == 0
    content = json.loads((folder / "monitor.json").read_text())
    assert (content["images"], content["labelled"]) == (400, 200)


@pytest.mark.parametrize(
    ("file", "change"),
    [("index.html", Path.unlink), ("policies.json", lambda path: path.write_bytes(path.read_bytes()[:-9]))],
)
def test_a_page_that_is_not_whole_at_the_end_is_no_success(file, change, tmp_path, capsys, monkeypatch):
    """Another program deletes or cuts a file between its writing and the end of the command."""
    monkeypatch.setattr("retinabench.cli.main.print_path", lambda path, _: change(path.parent / file))
    assert run(["clinic", str(table(tmp_path, n=40)), "--out", str(tmp_path / "page")]) == 1
    assert f"{file}: is {'missing' if change is Path.unlink else 'damaged'}" in capsys.readouterr().err


def test_patients_of_which_only_some_are_known_are_refused(folder, capsys):
    """One filled cell among empty ones is no reason to call 399 images independent."""
    some = changed(folder, "holds", lambda row: {"patient_id": row["patient_id"] * (row["image_id"] == "f000007")})
    assert watch(folder, some, folder / "validation.csv") == 2
    assert "column 'patient_id': is empty for 399 of 400 images: no guarantee holds" in capsys.readouterr().err
    none = changed(folder, "holds", lambda row: {"patient_id": "", "image_id": f"n{row['image_id']}"})
    none = none.rename(folder / "none.csv")
    assert watch(folder, none, folder / "validation.csv") == 2
    assert "column 'patient_id': is missing" in capsys.readouterr().err
    assert watch(folder, none, folder / "broken.csv") == 2
    assert "is empty for 400 of 1,800 images" in capsys.readouterr().err
    known = changed(folder, "validation", lambda row: {"patient_id": row["patient_id"] * (row["image_id"] > "v000003")})
    assert watch(folder, folder / "holds.csv", known) == 2
    assert "is empty for 4 of 400 validation images" in capsys.readouterr().err


def test_a_certificate_needs_the_patient_of_every_image_or_of_none(file, capsys):
    rows = Path(file(3, 3)).read_text().splitlines()
    for patients, code in ((["p"] + [""] * 599, 2), ([""] * 600, 0)):
        path = Path(file(3, 3))
        path.write_text("\n".join(map(",".join, zip(rows, ["patient_id", *patients], strict=True))) + "\n")
        assert run(["transfer", str(path), "-q"]) == 0  # chooses, and guarantees nothing
        for zones in ([], ["--zones", "--goal", "npv=.9"]):
            assert run(["transfer", str(path), *(zones or GOAL[:2]), *GOAL[2:]]) == code
            assert ("no guarantee holds" in capsys.readouterr().err) is (code == 2)


@pytest.mark.parametrize(
    ("written", "code"),
    [
        (lambda one: f" {one} ", 2),  # every patient is in the validation split, however written
        (lambda one: f"{one[:3]}\u200b{one[3:]}", 2),
        (str.upper, 2),
        (lambda one: f"{int(one[2:])}.0", 0),
    ],
    ids=["blanks", "zero width", "case", "float"],
)
def test_patients_of_validation_are_known_however_they_are_written(written, code, folder, capsys):
    again = changed(folder, "validation", lambda row: {"split": "test", "image_id": f"n{row['image_id']}", "patient_id": written(row["patient_id"])})  # fmt: skip
    assert watch(folder, again, folder / "validation.csv") == code
    said = capsys.readouterr().err
    words = "every patient is in the validation split", "which looks like"
    assert any(one in said for one in words) is (code == 2)


def realistic(tmp_path, sites):
    """2,000 patients of two eyes, half of them for validation; `sites` changes the probabilities of some, by the site."""
    rng = np.random.default_rng(3)
    patient = np.arange(4000) // 2
    label = np.repeat(rng.random(2000) < 0.2, 2)
    z = 3.4 * label - 2.2 + np.repeat(rng.normal(0, 0.8, 2000), 2) + rng.normal(0, 0.6, 4000)
    site, prob = np.where(patient % 12 == 0, "B", "A"), 1 / (1 + np.exp(-z))
    columns = sites(site, label, prob)
    rb.write_predictions(
        rb.Predictions(
            [f"i{k}" for k in range(4000)], label, columns.pop("prob"), patient_id=patient,
            split=np.where(patient < 1000, "validation", "test"), **columns,
        ),
        tmp_path / "p.csv",
    )  # fmt: skip
    return str(tmp_path / "p.csv")


def failing(site, label, prob):
    return {"prob": np.where((site == "B") & label, 0.002, prob), "subgroups": {"site": site}}


def first_line(capsys):
    return " ".join(capsys.readouterr().out.partition("\n\n")[0].split())


def test_the_first_line_of_the_clinic_names_the_site_that_fails_after_reading(tmp_path, capsys):
    assert run(["clinic", realistic(tmp_path, failing), "-q"]) == 0
    said = first_line(capsys)
    yes = "Yes, but two thresholds of the probability do the same"
    assert said.startswith(f"{yes}, and not for “site: B” (sensitivity 0.00, AUROC 0.")
    assert "the expert's own misses included" in said


def test_the_first_lines_say_where_another_camera_sends_most_images_to_the_expert(tmp_path, capsys):
    def second_camera(site, label, prob):
        new = (site == "B") & (np.arange(4000) >= 2000)
        return {"prob": np.where(new, prob**0.3, prob), "domain": np.where(new, "shifted", "in_domain")}

    assert run(["clinic", realistic(tmp_path, second_camera), "-q"]) == 0
    assert "No longer at the stated work: " in (said := first_line(capsys))
    assert said.index("Yes, but two thresholds") < said.index("of the shifted images are read instead of 20.0 %")


def test_transfer_names_the_site_that_misses_the_goal(tmp_path, capsys):
    words = ["transfer", realistic(tmp_path, failing), "--goal", "sensitivity=.7", "--confidence", ".9", "-q"]
    assert run(words) == 0
    said = first_line(capsys)
    assert said.startswith("Not for “site: B” of the in-domain images (sensitivity >= 0.7: 0.000 [")


def test_images_that_look_like_two_eyes_are_no_independent_patients(tmp_path, capsys):
    rows = [f"{k // 2}_{'left' if k % 2 else 'right'},{k // 2 % 3 == 0:d},{0.1 + 0.8 * (k // 2 % 3 == 0)},{'validation' if k < 200 else 'test'}" for k in range(400)]  # fmt: skip
    (tmp_path / "p.csv").write_text("\n".join(["image_id,label,prob,split", *rows]) + "\n")
    assert run(["transfer", str(tmp_path / "p.csv"), "--goal", ".2", "--confidence", ".9"]) == 2
    assert "is missing, and '0_left' and '0_right' look like the eyes of one patient" in capsys.readouterr().err
    assert run(["score", str(tmp_path / "p.csv"), "--bootstrap", "0"]) == 0
    assert "look like the eyes of one patient" in " ".join(capsys.readouterr().err.split())


def test_the_status_follows_a_certificate_from_its_making_to_its_alarm(service, capsys):
    def status():
        code = run(["status", str(service), "--json", "status.txt"])
        [found] = json.loads(Path("status.txt").read_text())
        return code, found["state"], found["lists"]

    assert run(["status", str(service / "none")]) == 2
    assert "holds no certificate" in capsys.readouterr().err
    assert status() == (0, "made, not yet applied", 0)
    assert apply_zones("monday.csv") == 0
    assert status() == (0, "in use", 1)
    changed(service, "tuesday", lambda _: {"prob": 0.5}).rename("dark.csv")
    assert apply_zones("dark.csv") == 4
    assert status() == (4, "alarm: the images have drifted since dark.csv", 2)
    newer = ZONES | {"zones": {"negative": {"threshold": 0.1}}}
    (service / "newer.json").write_text(json.dumps(newer))
    assert run(["apply", "tuesday.csv", "--certificate", "newer.json", "--out", "lists"]) == 0
    assert run(["status", str(service), "--json", "status.txt"]) == 0
    states = {one["file"]: one["state"] for one in json.loads(Path("status.txt").read_text())}
    assert states["newer.json"] == "in use"
    assert states["zones.json"] == "replaced by newer.json after alarm: the images have drifted since dark.csv"
    (service / "newer.json").unlink()
    (service / "zones.json").write_text(json.dumps(ZONES | {"sets": {"in_domain": {"guarantee": "broken"}}}))
    assert status()[:2] == (4, "refuted by the labels of in-domain")


@pytest.mark.parametrize(
    "line",
    ["[]", "{}", '{"file": 1}', '{"file": "a", "sha256": "", "certificate": "", "list": "../x", "time": ""}', "no"],
)
def test_a_log_that_somebody_else_wrote_is_one_line(service, line, capsys):
    (service / "lists").mkdir()
    (service / "lists" / "log.jsonl").write_text(line + "\n")
    assert apply_zones("monday.csv") == 2
    assert (error := capsys.readouterr().err).count("\n") == 1
    assert "log.jsonl: is damaged" in error


def test_the_goal_is_stated_and_judged_per_patient_first(tmp_path, capsys):
    path = str(table(tmp_path))
    for goal, expected in (("0.5/0.5", {"met,", "with", "bounds"}), ("0.999/0.999", {"not", "met"})):
        assert run(["clinic", path, "--goal", goal, "-q"]) == 0
        shown = capsys.readouterr().out
        assert shown.index("Model alone, per patient") < shown.index("Model alone, per image")
        row = shown[shown.index("Model alone, per patient") : shown.index("Images that nobody")]
        assert set(row.split()) & {"not", "met", "met,", "with", "bounds"} == expected
        assert f"Goal: sensitivity {goal.split('/')[0]} at specificity" in " ".join(shown.split())


def test_a_certificate_per_patient_is_of_the_actions_of_patients(tmp_path, capsys, monkeypatch):
    """What the table says of the test patients is what `apply` does with them; `score --per patient` counts them, too."""
    monkeypatch.chdir(tmp_path)
    path = realistic(tmp_path, lambda site, label, prob: {"prob": prob})
    words = ["--goal", ".1", "--confidence", ".9", "--per", "patient", "-q", "--json", "t.json"]
    assert run(["transfer", path, *words]) == 0
    assert "error of the retained at most 0.1; with confidence 0.9" in " ".join(capsys.readouterr().out.split())
    found = json.loads(Path("t.json").read_text())
    assert (found["per"], found["certificate"]["most_images"]) == ("patient", 1)
    table = found["sets"]["in_domain"]
    test = rb.read_predictions(path).select(split="test")
    assert table["images"] == len(set(test.patient_id))
    rb.write_predictions(test, tmp_path / "today.csv")
    assert run(["apply", "today.csv", "--certificate", "t.json", "--out", "lists", "--json", "a.json"]) == 0
    done = json.loads(Path("a.json").read_text())["files"][0]["patients"]
    counts = table["called"]["positive"], table["read_by_expert"], table["called"]["negative"]
    assert tuple(done[name] for name in ("refer to hospital", "expert reads", "no referral")) == counts
    assert run(["score", path, "--per", "patient", "--bootstrap", "0", "--json", "s.json"]) == 0
    scored = json.loads(Path("s.json").read_text())["sets"]["in_domain"]
    assert (scored["images"], scored["patients"]) == (table["images"], table["images"])
    assert "one row per patient" in " ".join(capsys.readouterr().err.split())


def test_a_stated_population_is_a_study_with_so_many_healthy_patients(tmp_path, capsys):
    """Every healthy patient three times over, as a patient of their own, gives the values that the weights give to the study."""
    rng = np.random.default_rng(9)
    label = rng.random(300) < 0.4
    prob = 1 / (1 + np.exp(-(3 * label - 1.5 + rng.normal(size=300)).round(3)))
    times = np.where(label, 1, 3)
    ids = [f"p{k}-{copy}" for k in range(300) for copy in range(times[k])]
    few = rb.Predictions([f"p{k}" for k in range(300)], label, prob, patient_id=[f"p{k}" for k in range(300)])
    many = rb.Predictions(ids, label.repeat(times), prob.repeat(times), patient_id=ids)
    own = 0.5 - abs(prob - 0.5) + 0.1 * rng.random(300)  # not the order of the probability
    few, many = replace(few, uncertainty=own), replace(many, uncertainty=own.repeat(times))
    cut = float(np.quantile(own, 0.8))
    population = label.sum() / times.sum()
    stated = {"referral_threshold": cut, "uncertainty": "own", "harm": 4.0}
    weighed = rb.clinic(few, population=population, **stated)["in_domain"]
    counted = rb.clinic(many, **stated)["in_domain"]
    for of in ("workload.images", "workload.found", "simple_rule.gain", "images.rates.ppv", "pathway.rates.npv"):
        found, expected = weighed, counted
        for name in of.split("."):
            found, expected = (one[name] if isinstance(one, dict) else getattr(one, name) for one in (found, expected))
        assert found.value == pytest.approx(expected.value, abs=1e-9), of
    assert weighed.decision_curve.model == pytest.approx(counted.decision_curve.model)
    assert (weighed.simple_rule.price, weighed.simple_rule.same) == (0.25, False)
    rb.write_predictions(few, tmp_path / "p.csv")
    assert run(["clinic", str(tmp_path / "p.csv"), "--population", "0.05", "--harm", "4", "-q"]) == 0
    shown = capsys.readouterr()
    assert "a false alarm counts 0.25 of a missed image" in " ".join(shown.out.split())
    assert "those of a population with 5 % referable images; the study has" in " ".join(shown.err.split())
