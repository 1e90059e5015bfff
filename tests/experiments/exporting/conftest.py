import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.exporting.model import export_run
from retinabench.experiments.run import execute
from support.raw_images import prepared_from, raw_folder

SHORT = [
    "model.name=resnet18", "model.width=4", "model.stem=small", "task=in_domain", "optimizer.epochs=2",
    "optimizer.batch_size=16", "optimizer.select=last", "optimizer.lr=0.01",
]  # fmt: skip


@pytest.fixture(scope="package")
def raw(tmp_path_factory):
    return raw_folder(tmp_path_factory.mktemp("raw") / "images")


@pytest.fixture(scope="package")
def finished(raw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    data = prepared_from(raw, folder / "data")

    def run(*words, out=folder / "runs"):
        return execute(load_run(None, [*SHORT, *words], data=str(data)), out, Resources("cpu"))

    return run


@pytest.fixture(scope="package")
def model(finished, tmp_path_factory):
    """The exported model of MAP, which tests copy before they change it."""
    return export_run(finished(), tmp_path_factory.mktemp("exported") / "model")
