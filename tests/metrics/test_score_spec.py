"""What a score says of itself."""

from __future__ import annotations

from retinabench.metrics.registry import SCORES
from retinabench.metrics.sorted_images import Cases


def test_a_heading_has_unit_and_arrow():
    assert SCORES["nll"].heading == "NLL, nats\u00a0↓"
    assert SCORES["auroc"].heading == "AUROC\u00a0↑"
    assert SCORES["prevalence_at_50"].heading == "Referable share, 50 % referred"
    assert [SCORES[name].sign for name in ("auroc", "nll", "prevalence_at_50")] == [1, -1, 0]


def test_it_says_why_it_is_undefined_with_the_counts():
    w = Cases([1, 1, 1], [0.2, 0.6, 0.7]).weighted()
    assert (
        SCORES["auroc"].why_undefined(w) == "needs both classes; the set has 3 positive and 0 negative images"
    )
    assert (
        SCORES["prr"].why_undefined(w)
        == "needs correct and wrong predictions; the set has 2 correct and 1 wrong"
    )
    assert SCORES["nll"].why_undefined(w) == "undefined on this set"


def test_scores_on_request_are_available_and_not_given():
    auroc, ood, kept = (SCORES[name] for name in ("auroc", "ood_auroc", "accuracy_at_50"))
    assert [spec.given_for("in_domain") for spec in (auroc, ood, kept)] == [True, False, False]
    assert [spec.available_for("in_domain") for spec in (auroc, ood, kept)] == [True, False, True]
