import numpy as np

CONCEPTS = ("common", "twin", "rare", "absent")


def examinee(bank):
    """Knows `common` and its twin in 95 %, ranks `rare` without ever saying yes, guesses `absent`."""
    random = np.random.default_rng(1)
    said = np.where(random.random((120, 4)) < 0.95, bank.truth, 1 - bank.truth) * 0.8 + 0.1
    said[:, 2] = 0.1 + 0.3 * bank.truth[:, 2] + 0.05 * random.random(120)
    said[:, 3] = random.random(120)
    return lambda sample, concept: float(said[sample, bank.concepts.index(concept)])
