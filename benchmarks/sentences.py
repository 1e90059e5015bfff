"""How often is a first sentence of `score` or `clinic` wrong about the patients of the population?

    python benchmarks/sentences.py --population population.csv --studies 200 --out sentences.jsonl > docs/tables/sentences.csv

Studies are drawn from a table of patients (`interval_coverage.population`), as it is and with changes that put a sentence to the test: probabilities that
know nothing or little, uncertainties that know nothing, sites that do not differ. A sentence is wrong where the population says otherwise, whose values are those of
40,000 drawn patients. A study is one line of the file; a killed run is continued by the same command.
"""

import csv
import sys
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import numpy as np
from interval_coverage import population
from scipy.special import expit, logit
from toolkit import keep_lines, kept_lines, parse

import retinabench as rb
from retinabench.reports.clinic import answer_sets
from retinabench.reports.evaluation.terminal import worth_of_scores

CASES = {  # name -> variant of the population, and what is changed
    "usual": "usual", "accurate": "accurate", "rare": "rare", "weak model": "usual", "weak model, rare": "rare", "guesses": "usual",
    "no difference from calling none": "usual", "uncertainty that knows nothing": "usual", "noisy uncertainty": "usual",
    "sites that do not differ": "usual",
}  # fmt: skip
# What is so by construction, where 40,000 patients would only tell it nearly.
KNOWN = {
    "guesses": {"AUROC": 0.5, "beyond random": 0.0}, "no difference from calling none": {"net benefit": 0.0, "beyond random": 0.0},
    "uncertainty that knows nothing": {"beyond random": 0.0},
}  # fmt: skip
REPLICATES = 200


def study(path: Path, case: str, patients: int, number: int) -> rb.Predictions:
    """A study; what is changed is a function of the image alone, or drawn anew for each image."""
    rng = np.random.default_rng([patients, number, list(CASES).index(case)])
    given = population(path, CASES[case]).study(rng, patients)
    prob, noise = given.prob, rng.normal(size=len(given))
    further: dict[str, object] = {}
    if case.startswith("weak model"):
        prob = expit(0.25 * logit(np.clip(prob, 1e-6, 1 - 1e-6)) + 1.1 * noise - 0.8)
    elif case == "guesses":
        prob = rng.permutation(prob)
    elif case == "no difference from calling none":  # as many missed images as false alarms
        said = rng.random(len(given)) < np.where(given.label == 1, 0.4, 0.4 * 0.19658 / 0.80342)
        prob = np.where(said, 0.5 + 0.5 * rng.random(len(given)), 0.5 * rng.random(len(given)))
    elif case == "uncertainty that knows nothing":
        further["uncertainty"] = rng.random(len(given))
    elif case == "noisy uncertainty":
        further["uncertainty"] = -np.abs(logit(np.clip(prob, 1e-6, 1 - 1e-6))) + 2 * noise
    elif case == "sites that do not differ":
        of_patient = np.unique(given.patients, return_inverse=True)[1]
        further["subgroups"] = {"site": rng.choice(list("ABCDE"), patients)[of_patient]}
    return rb.Predictions(given.image_id, given.label, prob, patient_id=given.patient_id, **further)


def said(predictions: rb.Predictions, bootstrap: int) -> tuple[dict[str, str], dict[str, float]]:
    scores = rb.score(predictions, bootstrap=bootstrap)["in_domain"]
    worth = worth_of_scores("model", "in_domain", [scores])
    (answer,) = answer_sets(rb.clinic(predictions))
    one = answer.one
    numbers = {
        "net benefit": scores.baseline.net_benefit_gain.value, "Brier skill": scores.baseline.brier_skill.value,
        "AUROC": one.auroc.value, "beyond random": one.missed.caught.value - one.read, "beyond the simple rule": one.simple_rule.gain.value,
        "beyond no reader": one.missed.alone.value - answer.missed.value,
    }  # fmt: skip
    return {"score": worth.kind, "clinic": answer.kind, "groups": "named" if answer.failing else "none named"}, numbers


def wrong(sentence: tuple[str, str], truth: dict[str, float]) -> bool:
    """Whether the population contradicts a sentence; sentences that claim nothing are never wrong."""
    useful = truth["net benefit"] > 0 or truth["Brier skill"] > 0
    contradicted = {
        ("score", "useful"): truth["net benefit"] <= 0, ("score", "informative"): truth["Brier skill"] <= 0,
        ("score", "not useful"): useful, ("score", "probabilities"): useful, ("score", "inverted"): truth["AUROC"] >= 0.5,
        ("clinic", "inverted"): truth["AUROC"] >= 0.5, ("clinic", "worse"): truth["beyond random"] >= 0,
        ("clinic", "beaten"): truth["beyond the simple rule"] >= 0, ("clinic", "yes"): truth["beyond the simple rule"] <= 0,
        ("clinic", "reader"): truth["beyond no reader"] > 0, ("groups", "named"): True,
    }  # fmt: skip
    return contradicted.get(sentence, False)


def main() -> None:
    asked = parse(
        __doc__, population=Path("population.csv"), studies=200, patients=[100, 300, 1000], whole=40_000,
        out=Path("sentences.jsonl"),
    )  # fmt: skip
    lines = kept_lines(asked.out)
    done = {(one["case"], one["patients"], one["number"]) for one in lines}
    wanted = [(case, asked.whole, 0) for case in CASES]
    every = product(range(asked.studies), CASES, asked.patients)
    wanted += [(case, patients, number) for number, case, patients in every]
    for case, patients, number in wanted:
        if (case, patients, number) in done:
            continue
        drawn = study(asked.population, case, patients, number)
        sentences, numbers = said(drawn, 0 if patients == asked.whole else REPLICATES)
        lines.append({"case": case, "patients": patients, "number": number, "said": sentences, "numbers": numbers})
        keep_lines(asked.out, lines[-1])
    wholes = {one["case"]: one["numbers"] for one in lines if one["patients"] == asked.whole}
    truth = {case: numbers | KNOWN.get(case, {}) for case, numbers in wholes.items()}
    counts: dict[tuple[str, int, str, str], list[bool]] = defaultdict(list)
    for one in lines:
        if one["patients"] != asked.whole:
            for command, sentence in one["said"].items():
                if command != "groups" or one["case"] == "sites that do not differ":
                    key = one["case"], one["patients"], command, sentence
                    counts[key].append(wrong((command, sentence), truth[one["case"]]))
    studies = Counter((one["case"], one["patients"]) for one in lines)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["population", "patients", "command", "sentence", "said", "wrong"])
    for (case, patients, command, sentence), found in sorted(counts.items()):
        of = studies[case, patients]
        shares = f"{100 * len(found) / of:.0f} %", f"{100 * sum(found) / of:.1f} %"
        out.writerow([case, patients, command, sentence, *shares])


if __name__ == "__main__":
    main()
