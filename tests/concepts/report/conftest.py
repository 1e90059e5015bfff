import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.report.findings import ExaminationReport, together
from support.concept_banks import CONCEPTS, examinee

GOALS = {name: {"sensitivity": 0.85, "specificity": 0.8} for name in CONCEPTS}


@pytest.fixture(scope="package")
def bank():
    """120 samples: a common concept, its twin (one sample apart), one with 3 positives, one with none."""
    random = np.random.default_rng(0)
    truth = np.zeros((120, 4), np.int8)
    truth[:, 0] = random.random(120) < 0.4
    truth[:, 1] = truth[:, 0]
    truth[0, 1] = 1 - truth[0, 0]
    truth[[3, 50, 90], 2] = 1
    return Bank([f"s{k}" for k in range(120)], CONCEPTS, truth)


@pytest.fixture(scope="package")
def found(bank):
    about = ["sensitivity of common >= 0.5", "specificity of twin <= 0.5", "sensitivity of rare >= 0.9"]
    claims = [*about, "specificity of absent >= 0.5"]  # this one is not decided: the examinee guesses
    result = examine(bank, examinee(bank), strategy="precision", questions=200, claim=claims)
    return ExaminationReport(result, GOALS, together(bank))
