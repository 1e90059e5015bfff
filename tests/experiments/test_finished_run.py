"""The folder of a finished run: what it says of its data, whether they are still there or not."""

import json
import shutil

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.finished_run import finished_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from support.helpers import TINY, make_prepared


def test_a_run_knows_its_data_and_keeps_what_it_needs_of_them(tmp_path):
    data = make_prepared(tmp_path / "data")
    run = load_run(None, [*TINY, "task=in_domain", "optimizer.epochs=1"], data=str(data))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    found = finished_run(folder)
    assert found.run == run
    assert found.training_data().data.fingerprint == found.fingerprint
    assert found.described() == found.inputs
    assert found.inputs.images == 64
    other = run.model_copy(update={"seed": 7})
    assert found.member(run) == folder
    assert found.member(other) == folder.with_name(found.member(other).name) != folder
    shutil.rmtree(data)
    make_prepared(data, seed=5)  # other images in the same place
    assert finished_run(folder).training_data() is None
    (folder / "inputs.json").unlink()  # as an earlier version left it
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    with pytest.raises(InputError, match="was trained on other data than"):
        finished_run(folder).described()
    (folder / "done").unlink()
    with pytest.raises(InputError, match="holds no finished run"):
        finished_run(folder)
    assert json.loads((folder / "run.json").read_text())["fingerprint"] == found.fingerprint
