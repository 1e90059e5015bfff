"""Legal files that leave little to score: valid JSON, a reason at every null, never a traceback, never a warning."""

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.screening import clinic

N = 30
LABEL = np.arange(N) % 2
RANDOM = np.random.default_rng(0).random(N)
DOMAIN = np.array(["in_domain", "in_domain", "shifted"] * (N // 3))
SPLIT = np.array(["validation", "test", "test"] * (N // 3))


def table(label=LABEL, probs=RANDOM, **columns):
    return rb.Predictions([f"i{k}" for k in range(len(label))], label, probs, **columns)


FILES = {
    "all positive": table(np.ones(N)), "all negative": table(np.zeros(N)), "one row": table([1], [0.3]),
    "three rows": table([0, 1, 0], [0.3, 0.4, 0.9]), "all ties": table(probs=np.full(N, 0.5)),
    "two equal samples": table(probs=np.repeat(RANDOM[:, None], 2, axis=1)),
    "exactly 0 and 1": table(probs=(np.arange(N) // 2) % 2), "always right": table(probs=LABEL),
    "tiny probabilities": table(probs=np.where(LABEL, 5e-324, 1e-310)),
    "negative uncertainty": table(uncertainty=-RANDOM * 1e300),
    "far uncertainty": table(uncertainty=np.where(RANDOM > 0.5, 1e308, -1e308)),
    "constant uncertainty": table(uncertainty=np.full(N, -1e308)), "one patient": table(patient_id=["p"] * N),
    "only shifted": table(domain=["shifted"] * N), "one shifted": table(domain=["shifted"] + ["in_domain"] * (N - 1)),
    "one in domain": table(domain=["in_domain"] + ["shifted"] * (N - 1)),
    "all splits and domains": table(domain=DOMAIN, split=SPLIT),
    "all positive, all splits": table(np.ones(N), domain=DOMAIN, split=SPLIT),
    "ties, all splits": table(probs=np.full(N, 0.5), domain=DOMAIN, split=SPLIT),
    "far uncertainty, all splits": table(uncertainty=np.where(RANDOM > 0.5, 1e308, -1e308), domain=DOMAIN, split=SPLIT),
}  # fmt: skip


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.parametrize("rules", ["corrected", "published"])
@pytest.mark.parametrize(
    ("name", "uncertainty"),
    [*((name, "auto") for name in FILES), ("two equal samples", "epistemic"), ("all splits and domains", "epistemic")],
)
def test_score(name, rules, uncertainty, tmp_path, capsys):
    file, out = tmp_path / "p.parquet", tmp_path / "s.json"
    rb.write_predictions(FILES[name], file)
    options = ["--rules", rules, "--uncertainty", uncertainty, "--bootstrap", "9", "-q"]
    assert run(["score", str(file), *options, "--json", str(out)]) == 0
    for images in json.loads(out.read_text(), parse_constant=refuse)["sets"].values():
        for entry in images["scores"].values():
            assert entry.keys() >= {"value", "low", "high", "version"}
            if entry["value"] is None or (rules == "corrected" and entry["low"] is None):
                assert entry["why"]
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", FILES)
def test_compare_and_clinic(name):
    p = FILES[name]
    for rules in ("corrected", "published"):
        found = rb.compare(p, p, rules=rules, bootstrap=9).to_dict()
        json.dumps(found, allow_nan=False)
        for images in found["sets"].values():
            for entry in images["scores"].values():
                assert entry["difference"] == 0 or (entry["difference"] is None and entry["why"])
    json.dumps(clinic(p, 0.3, 0.2).to_dict(), allow_nan=False)


@pytest.mark.parametrize("target", ["accuracy", "selective_risk", "sensitivity", "referral_rate"])
@pytest.mark.parametrize("name", [name for name in FILES if "all splits" in name])
def test_transfer(name, target):
    for goal in (0, 0.3, 1):
        json.dumps(rb.transfer(FILES[name], target, goal, bootstrap=9).to_dict(), allow_nan=False)
    if target == "selective_risk":
        found = rb.transfer(FILES[name], target, 0.3, delta=0.1, bootstrap=9)
        json.dumps(found.to_dict(), allow_nan=False)
        assert found.certificate.granted or found.certificate.why


def test_only_validation_rows_are_refused_in_one_line(tmp_path, capsys):
    file = tmp_path / "p.csv"
    rb.write_predictions(table(split=["validation"] * N), file)
    for rules in ("corrected", "published"):
        assert run(["score", str(file), "--rules", rules, "-q"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "holds no gradable image of the test split" in line


@pytest.mark.parametrize("rules", ["corrected", "published"])
@pytest.mark.parametrize(
    ("label", "prob", "uncertainty"),
    [
        ([0, 1], [0.2, 0.3], [1, 2, 3]), ([0, 1, 1], [0.2, 0.3], [1, 2]), ([], [], []),
        ([0, 1], [0.2, np.nan], [1, 2]), ([0, 1], [0.2, 0.3], [1, np.inf]), ([0, 2], [0.2, 0.3], [1, 2]),
        ([0, 1], [-3.0, 4.0], [1, 2]), ([[0, 1]], [[0.2, 0.3]], [[1, 2]]),
    ],
)  # fmt: skip
def test_a_curve_of_wrong_arrays_is_refused(label, prob, uncertainty, rules):
    for metric in ("accuracy", "nll", "auroc", "auprc"):
        with pytest.raises(InputError):
            rb.referral_curve(label, prob, uncertainty, metric, rules=rules)
