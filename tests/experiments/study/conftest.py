import pytest

from retinabench.experiments.study import study as runner
from retinabench.experiments.study.prediction_files import label_predictions
from retinabench.experiments.study.study import compute
from retinabench.experiments.study.summary import summarise
from support.helpers import make_prepared
from support.studies import Serial, study


@pytest.fixture(autouse=True, scope="package")
def _no_figures():
    """Figures take longer than these studies; `test_benchmark_verb.py` has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "write_figure", lambda *_: None)
        yield


@pytest.fixture(scope="package")
def finished(tmp_path_factory):
    """The finished tiny study, as it was left, and the engine that computed it."""
    root = tmp_path_factory.mktemp("study")
    data = make_prepared(root / "data")
    engine, definition = Serial(), study(root, data)
    chosen = compute(definition, root / "out", engine)
    entries = label_predictions(definition, root / "out", chosen)
    summary = summarise(definition, root / "out", chosen, entries).to_dict()
    return root, definition, engine, summary
