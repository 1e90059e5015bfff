"""The built-in scores that have a function for many weightings at once, which bootstrap replicates use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.batched import areas, averages, ranked, selective
from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.batched.retained import number_at

BATCHED: dict[str, Callable[[Batch], NDArray[np.float64]]] = {
    "accuracy": averages.accuracy,
    "auroc": ranked.auroc,
    "auprc": ranked.auprc,
    "nll": averages.nll,
    "brier": averages.brier,
    "brier_skill": averages.brier_skill,
    "accuracy_gain": averages.accuracy_gain,
    "ece_top_label": averages.ece_top_label,
    "ece_positive_class": averages.ece_positive_class,
    "sensitivity": averages.sensitivity,
    "specificity": averages.specificity,
    "referral_accuracy_area": areas.accuracy_area,
    "referral_nll_area": areas.nll_area,
    "referral_auroc_area": areas.auroc_area,
    "rc_index": selective.rc_index,
    "aurc": selective.aurc,
    "e_aurc": selective.e_aurc,
    "augrc": selective.augrc,
    "failure_auroc": selective.failure_auroc,
    "prr": selective.prr,
    "sensitivity_at_specificity_80": partial(number_at, name="sensitivity_at_specificity_80"),
    "ood_auroc": ranked.ood_auroc,
    "ood_auprc": ranked.ood_auprc,
}
"""Name of a score -> (R,) values of its function for R weightings."""
