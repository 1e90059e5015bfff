import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.exporting.export import export_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from support.raw_images import prepared_from, raw_folder

HERE = "support.own_network:"
WORDS = [
    "model.name=resnet18", "model.width=4", "model.stem=small", "task=in_domain", "optimizer.epochs=1",
    "optimizer.batch_size=16", "optimizer.select=last",
]  # fmt: skip


def test_only_a_finished_run_is_exported_into_an_empty_folder(tmp_path):
    with pytest.raises(InputError, match="holds no finished run"):
        export_run(tmp_path, tmp_path / "model")
    data = prepared_from(raw_folder(tmp_path / "raw"), tmp_path / "data")
    run = execute(load_run(None, WORDS, data=str(data)), tmp_path / "runs", Resources("cpu"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no model"):
        export_run(run, tmp_path / "model")
    assert (tmp_path / "model" / "thesis.txt").read_text() == "mine"
    export_run(run, tmp_path / "other")
    (tmp_path / "other" / "model.json").unlink()  # as after a kill before the end
    export_run(run, tmp_path / "other")


def test_a_method_that_is_fitted_to_predictions_says_what_to_export(tmp_path):
    data = prepared_from(raw_folder(tmp_path / "raw"), tmp_path / "data")
    run = load_run(None, [*WORDS, "method=temperature"], data=str(data))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    with pytest.raises(InputError, match="Export the run that it is fitted to"):
        export_run(folder, tmp_path / "model")


def test_a_network_of_another_shape_leaves_no_folder(tmp_path):
    data = prepared_from(raw_folder(tmp_path / "raw"), tmp_path / "data")
    words = [f"model.name={HERE}Pooled", "task=in_domain", "optimizer.epochs=1", "optimizer.select=last"]
    run = execute(load_run(None, words, data=str(data)), tmp_path / "runs", Resources("cpu"))
    for wrong, says in [("absent", "has no function 'absent'"), ("two_logits", "another network")]:
        with pytest.raises(InputError, match=says):
            export_run(run, tmp_path / "model", HERE + wrong)
        assert not (tmp_path / "model").exists()
    export_run(run, tmp_path / "model", HERE + "Pooled")
