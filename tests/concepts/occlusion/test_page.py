"""The page of an occlusion states what the numbers show, and escapes every name."""

from __future__ import annotations

import numpy as np

from retinabench.concepts.occlusion.effects import ConceptFreeImages, OccludedImage, Occlusion, effect_of
from retinabench.concepts.occlusion.page import Example, write_page


def effect(concept, change, seed=0):
    random = np.random.default_rng(seed)
    answered = []
    for patient in range(12):
        before = np.array([0.8, 0.5, 0.1])
        after = before + np.array([change + random.normal(0, 0.01), 0.05, 0.01])
        answered.append(
            OccludedImage("i", str(patient), concept, 0.01, before, after, before[None] + 0.01, None)
        )
    return effect_of(concept, answered, replicates=200, seed=0)


def test_falls_rises_and_open_questions_are_told_apart(tmp_path):
    effects = [effect("<u>falls</u>", -0.4), effect("same", 0.01), effect("all concepts", -0.5)]
    found = Occlusion(
        bank="<b>bank</b>", drawn=False, model="<i>model</i>", weights="0" * 64, size=64, samples=5, images=12,
        patients=12, controls=1, replicates=200, seed=0, reference=ConceptFreeImages(3, 0.1), effects=effects, notes=["a note"],
    )  # fmt: skip
    image = np.full((20, 20, 3), 90, np.uint8)
    example = Example("<u>falls</u>", "<s>i</s>", -0.4, (("as it is", image, 0.8), ("filled", image, 0.4)))
    page = write_page(found, [example], tmp_path).read_text()
    for harmful in ("<u>falls", "<s>i", "<b>bank</b>", "<i>model</i>"):
        assert harmful not in page
    assert "&lt;u&gt;falls" in page
    assert "no effect beyond that of the control is shown" in page
    assert "goes from 0.800 to 0.3" in page
    assert "epistemic uncertainty, nats" in page
    assert "drawn again without the lesion" not in page
