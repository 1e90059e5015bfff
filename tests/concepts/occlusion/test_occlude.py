"""Occlusion of drawn lesions, asked of a model that is known to look at bright spots alone."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import ndimage

from retinabench.cli import main as cli
from retinabench.concepts.occlusion import occlude as module
from retinabench.concepts.occlusion.occlude import OcclusionOptions, occlude
from retinabench.core.errors import InputError
from retinabench.data.preprocessing.preprocess import Recipe


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
    folder = tmp_path_factory.mktemp("occlusion")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_model", lambda *given: Spots())
        bank = folder / "ill.toml"  # more lesions than in the population in domain
        bank.write_text('title = "ill"\n[synthetic]\npopulation = "shifted"\n')
        options = OcclusionOptions(images=20, controls=1, replicates=100)
        result = occlude(folder, str(bank), None, folder, options)
    return folder, result


def test_the_model_is_found_to_depend_on_exudates_alone(found):
    _, result = found
    effects = {one["concept"]: one["probability"] for one in result["effects"]}
    exudates = effects["hard_exudate"]
    assert exudates["difference"]["value"] < -0.01
    assert exudates["difference"]["high"] < 0
    # Filling is nearly as good as drawing the retina without exudates, and a control changes nothing.
    assert exudates["occluded"]["value"] == pytest.approx(exudates["rendered"]["value"], abs=0.01)
    assert abs(exudates["control"]["value"]) < 0.005
    assert abs(effects["haemorrhage"]["rendered"]["value"]) < 0.005
    assert effects["all concepts"]["occluded"]["value"] < 0
    assert result["drawn"]
    assert result["reference"]["images"] == 20 - result["images"]


def test_everything_is_written(found):
    folder, result = found
    assert json.loads((folder / "occlusion.json").read_text())["effects"] == json.loads(
        json.dumps(result["effects"])
    )
    with open(folder / "effects.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    own = [row for row in rows if row["concept"] == "hard_exudate" and row["control"]]
    mean = np.mean([float(row["occluded"]) - float(row["probability"]) for row in own])
    effect = next(one for one in result["effects"] if one["concept"] == "hard_exudate")
    assert effect["probability"]["occluded"]["value"] == pytest.approx(mean)
    page = (folder / "index.html").read_text()
    for text in ("Do the lesions drive the referral?", "drawn without", "hard_exudate", "bright spots"):
        assert text in page


def test_wrong_options_are_one_line(tmp_path, capsys):
    (tmp_path / "labels.csv").write_text("image,x\na.png,1\n")
    (tmp_path / "a.png").write_bytes(b"")
    for words, message in (
        (["--bank", "folder", "--source", str(tmp_path)], "says what is in an image, not where"),
        (["--bank", "synthetic", "--images", "20"], "holds no exported model"),
        (["--bank", "idrid"], "Name it with --source DIR"),
        (["--bank", "retina"], "unknown bank 'retina'"),
    ):
        assert cli.run(["occlude", str(tmp_path), *words, "--out", str(tmp_path / "out"), "--quiet"]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    with pytest.raises(InputError, match="too few"):
        OcclusionOptions(controls=0)
