import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import ndimage

from retinabench.concepts.banks.masks import drawn
from retinabench.concepts.occlusion import occlude as module
from retinabench.concepts.occlusion.effects import OccludedImage, Occlusion, effect_of
from retinabench.concepts.occlusion.occlude import Example, OcclusionOptions, occlude, write_page
from retinabench.data.preprocessing.preprocess import Recipe
from support.browsers import check_page

pytestmark = pytest.mark.usefixtures("legible")


def effect(concept, change, seed=0):
    random = np.random.default_rng(seed)
    answered = []
    for patient in range(12):
        before = np.array([0.8, 0.5, 0.1])
        after = before + np.array([change + random.normal(0, 0.01), 0.05, 0.01])
        answered.append(OccludedImage("i", str(patient), concept, 0.01, before, after, before[None] + 0.01, None))
    return effect_of(concept, answered, replicates=200, seed=0)


def test_falls_rises_and_open_questions_are_told_apart(tmp_path):
    effects = [effect("<u>falls</u>", -0.4), effect("same", 0.01), effect("all concepts", -0.5)]
    found = Occlusion(
        bank="<b>bank</b>", drawn=False, model="<i>model</i>", weights="0" * 64, size=64, samples=5, images=12,
        patients=12, controls=1, replicates=200, seed=0, reference={"images": 3, "probability": 0.1}, effects=effects, notes=["a note"],
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


class Spots:
    """P(referable) rises with the pixels that are brighter than the retina around them; two posterior samples."""

    recipe = Recipe(64)
    weights = "0" * 64
    run = SimpleNamespace(method=SimpleNamespace(samples=2, describe=lambda: "bright spots"))

    def predict(self, images):
        y, x = np.mgrid[-1:1:64j, -1:1:64j]
        spots = []
        for image in images:
            green = image[..., 1].astype(float)
            above = green - ndimage.median_filter(green, 11)
            spots.append(above[np.hypot(x, y) < 0.8].clip(8).mean() - 8)
        logit = 8 * np.array(spots) - 2
        return 1 / (1 + np.exp(-np.stack([logit - 0.2, logit + 0.2], axis=1)))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """20 drawn retinas of a seed that had no part in the making of these tests; two controls of each shape."""
    folder, asked = tmp_path_factory.mktemp("occlusion"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_model", lambda *given: Spots())
        effect_of = module.effect_of
        patch.setattr(
            module, "effect_of", lambda name, own, **given: asked.extend(own) or effect_of(name, own, **given)
        )
        bank = folder / "ill.toml"  # more lesions than in the population in domain
        bank.write_text('title = "ill"\n[synthetic]\npopulation = "shifted"\n')
        options = OcclusionOptions(images=20, replicates=50, seed=7)
        result = occlude(folder, str(bank), None, folder, options)
    return folder, result, asked


def null(asked, concept):
    """Four standard errors of the mean change of P(referable) of a concept's images, if nothing but chance changed it. The two
    controls of an image differ by chance alone: half of the square of their difference has the variance of one of them as its mean.
    It is averaged over all concepts and divided by the number of the concept's images."""
    pairs = [one.controls[:, 0] for one in asked if len(one.controls) == 2]
    images = sum(one.concept == concept and len(one.controls) > 0 for one in asked)
    return 4 * np.sqrt(np.mean([(a - b) ** 2 / 2 for a, b in pairs]) / images)


def test_the_model_is_found_to_depend_on_exudates_alone(found):
    """A model that is known to look at bright spots: every margin is what two controls differ by, `null`. Drawn without its
    haemorrhages, a retina is as bright as before; filling them is not tested so closely, since it carries bright texture of the
    surroundings into dark places, which the page states as the error of filling."""
    _, result, asked = found
    effects = {one.concept: one.probability for one in result.effects}
    exudates, margin = effects["hard_exudate"], null(asked, "hard_exudate")
    assert exudates["difference"].value < -margin
    assert exudates["rendered"].value < -margin
    assert abs(exudates["control"].value) < margin
    assert abs(exudates["error"].value) < margin
    assert abs(effects["haemorrhage"]["rendered"].value) < null(asked, "haemorrhage")
    assert effects["haemorrhage"]["difference"].value > exudates["difference"].value + margin
    assert effects["all concepts"]["occluded"].value < 0
    assert result.drawn
    assert result.reference["images"] == 20 - result.images


def test_everything_is_written_and_the_page_fits_a_phone(found, browser):
    folder, result, _ = found
    assert json.loads((folder / "occlusion.json").read_text()) == result.to_dict()
    with open(folder / "effects.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    own = [row for row in rows if row["concept"] == "hard_exudate" and row["control"]]
    mean = np.mean([float(row["occluded"]) - float(row["probability"]) for row in own])
    effect = next(one for one in result.effects if one.concept == "hard_exudate")
    assert effect.probability["occluded"].value == pytest.approx(mean)
    page = (folder / "index.html").read_text()
    for text in ("Do the lesions drive the referral?", "drawn without", "hard_exudate", "bright spots"):
        assert text in page
    check_page(browser, folder / "index.html")


def test_images_that_the_run_was_trained_on_are_known_by_their_content(tmp_path, monkeypatch):
    """Three of the 10 images, saved anew: the noise of a JPEG, other names."""
    images = drawn(10, seed=3, population="shifted")
    random = np.random.default_rng(0)
    shown = np.flatnonzero((images.truth == 1).any(axis=1))[:3]
    trained = np.stack([images.image(int(row), 64) for row in shown]) + random.integers(0, 3, (3, 64, 64, 3), np.uint8)
    task = SimpleNamespace(data=SimpleNamespace(images=lambda rows: trained[rows]), splits={"train": np.arange(3)})
    monkeypatch.setattr(module, "_model", lambda *given: Spots())
    monkeypatch.setattr(module, "finished_run", lambda *given: SimpleNamespace(training_data=lambda: task))
    bank = tmp_path / "ill.toml"
    bank.write_text('title = "ill"\n[synthetic]\npopulation = "shifted"\n')
    options = OcclusionOptions(images=10, replicates=20, seed=3)
    result = occlude(tmp_path, str(bank), None, tmp_path / "out", options)
    assert any("The run was trained on 3 of the images" in note for note in result.notes)
    assert "The run was trained on 3 of the images" in (tmp_path / "out" / "index.html").read_text()
