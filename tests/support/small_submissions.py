"""Two targets, twelve test points, and what submissions for them state."""

from retinabench.fidelity.targets.target import TARGETS

N = 12
FUNDUS, ENERGY = TARGETS["fundus"], TARGETS["energy-gap"]
DATA = "ab" * 32


def meta(chosen):
    return {"task": chosen.name, "target": chosen.fingerprint(DATA), "data": DATA, "method": "m", "title": "M"}
