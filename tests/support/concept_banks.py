"""Small banks with answers for the tests of the examination."""

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Answers

LESIONS = ("microaneurysm", "haemorrhage", "hard exudate", "soft exudate")


def make_bank(samples=60, seed=0, concepts=LESIONS, shares=(0.7, 0.5, 0.4, 0.1)):
    """A bank of independent concepts with ids; at least one positive and one negative each."""
    random = np.random.default_rng(seed)
    truth = (random.random((samples, len(concepts))) < shares[: len(concepts)]).astype(np.int8)
    truth[0], truth[1] = 0, 1
    return Bank([f"image{k}" for k in range(samples)], concepts, truth)


def make_answers(bank, seed=1, noise=0.25):
    """Answers that are right more often than not, with probabilities in every bin."""
    random = np.random.default_rng(seed)
    probs = np.clip(0.3 + 0.4 * (bank.truth == 1) + random.normal(0, noise, bank.truth.shape), 0, 1)
    return Answers(bank, probs)


class Lowest:
    """Stands for a generator that always draws the least value: ties and samples in their order."""

    def integers(self, low, high=None):
        return 0 if high is None else low


CONCEPTS = ("common", "twin", "rare", "absent")


def examinee(bank):
    """Knows `common` and its twin in 95 %, ranks `rare` without ever saying yes, guesses `absent`."""
    random = np.random.default_rng(1)
    said = np.where(random.random((120, 4)) < 0.95, bank.truth, 1 - bank.truth) * 0.8 + 0.1
    said[:, 2] = 0.1 + 0.3 * bank.truth[:, 2] + 0.05 * random.random(120)
    said[:, 3] = random.random(120)
    return lambda sample, concept: float(said[sample, bank.concepts.index(concept)])
