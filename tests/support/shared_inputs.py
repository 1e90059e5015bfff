"""Inputs that several tests use: those of `shared/golden/evaluation`, and small sets with every kind of tie."""

import json

import numpy as np
from hypothesis import strategies as st

from conftest import shared_path


def table(name):
    path = shared_path("golden", "evaluation", f"inputs_{name}.csv")
    return np.genfromtxt(path, delimiter=",", names=True)


def answers(name):
    return json.loads(shared_path("golden", "evaluation", f"{name}.json").read_text())


def cases_of(name):
    """(label, prob, uncertainty) of n400, n400_tied or tiny10."""
    if name == "tiny10":
        t = table("tiny10")
        return t["y"], t["p"], t["uncertainty"]
    t = table("n400")
    return (t["y"], t["p"], t["entropy_nats"]) if name == "n400" else (t["y"], t["p_tied"], t["entropy_tied_nats"])


@st.composite
def images(draw, most=30):
    """Small sets with every kind of tie, weight and order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, most))
    y = rng.integers(0, 2, n)
    p = rng.integers(0, 9, n) / 8 if draw(st.booleans()) else rng.random(n)
    kind = draw(st.sampled_from(["entropy", "coarse entropy", "free", "few", "constant"]))
    u = {
        "entropy": -np.abs(p - 0.5), "coarse entropy": -np.round(np.abs(p - 0.5), 1), "free": rng.random(n),
        "few": rng.integers(0, 4, n).astype(float), "constant": np.zeros(n),
    }[kind]  # fmt: skip
    w = {"unit": np.ones(n), "whole": rng.integers(0, 4, n).astype(float), "any": rng.random(n) * 3}[
        draw(st.sampled_from(["unit", "whole", "any"]))
    ]
    if w.sum() == 0:
        w = np.ones(n)
    return y, p, u, w


def big(n, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.19).astype(int)
    p = 1 / (1 + np.exp(-rng.normal(2 * y - 2, 1.5)))
    return y, p, rng


def most_uncertain(data, share):
    """The golden file refers the last of a stable sort by entropy."""
    sent = np.zeros(400, bool)
    sent[np.argsort(data["entropy_nats"], kind="stable")[round(400 * share) :]] = True
    return sent


CONTRACT = [
    "accuracy", "auroc", "auprc", "nll", "brier", "ece_top_label", "ece_positive_class", "sensitivity", "specificity",
    "referral_accuracy_area", "referral_nll_area", "referral_auroc_area", "referral_auprc_area", "rc_index", "aurc",
    "e_aurc", "augrc", "failure_auroc", "prr",
]  # fmt: skip
