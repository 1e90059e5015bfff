"""Predictions that others published become references, and submissions are scored against them."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.leaderboard.board import make_board
from retinabench.fidelity.leaderboard.files import make_evaluator, score_files
from retinabench.fidelity.leaderboard.importing import import_reference
from retinabench.fidelity.leaderboard.page import page
from retinabench.fidelity.leaderboard.tables import task_table
from retinabench.fidelity.reference.reference_file import read_reference, write_reference
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS
from support.fake_reference import softmax

DERMA, UCI, CIFAR = (TARGETS[f"kit-{name}"] for name in ("medmnist", "uci", "cifar10"))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Generated files in the layouts of the competition: labels, references and a zip of a submission."""
    folder, random = tmp_path_factory.mktemp("kit"), np.random.default_rng(0)
    classes = random.integers(7, size=2000)
    logits = random.normal(size=(2000, 7)) + 2.0 * np.eye(7)[classes]
    np.savetxt(folder / "medmnist_probs.csv", softmax(logits))
    np.savetxt(folder / "labels.csv", classes, fmt="%d")
    np.savetxt(folder / "uci_samples.csv", random.normal(size=(1000, 256)), fmt="%.5g")  # draws by points
    np.savetxt(folder / "p.csv", softmax(logits + 0.3 * random.normal(size=logits.shape)), fmt="%.6f")
    np.savetxt(folder / "y.csv", random.normal(0.1, 1, size=(1000, 256)), fmt="%.5g")
    with zipfile.ZipFile(folder / "submission.zip", "w") as archive:
        archive.write(folder / "p.csv", "medmnist_probs.csv")
        archive.write(folder / "y.csv", "uci_samples.csv")
    return folder


def evaluator(target, file, folder, **more):
    write_reference(folder / "r.npz", import_reference(file, target, **more))
    return make_evaluator(target, None, folder / "r.npz", 50)


def test_labels_prove_the_order_and_give_usefulness(published, tmp_path):
    found = evaluator(DERMA, published / "medmnist_probs.csv", tmp_path, labels=published / "labels.csv")
    assert found.reference.judgement.verdict == "unverified"
    assert found.reference.about.accuracy > 0.5
    board = score_files([published / "submission.zip"], found, title="Ours")
    (entry,) = board.ranked
    assert (entry.rank.best, entry.rank.worst) == (1, 1)
    scores = board.scores(entry.title, "all")
    assert 0.8 < scores["agreement"].value < 1
    assert np.isfinite(scores["accuracy"].value)
    assert task_table(board).blocks[0].rows[0].label == "Ours"
    assert "Reference unverified" in page(make_board([board]))
    assert board.to_dict()["reference"] | {"passed": None, "verdict": "unverified"} == board.to_dict()["reference"]


def test_labels_that_do_not_fit_are_refused(published, tmp_path):
    turned = np.loadtxt(published / "labels.csv")[::-1]
    np.savetxt(tmp_path / "turned.csv", turned, fmt="%d")
    np.savetxt(tmp_path / "classes.csv", np.where(turned == 3, 9, turned), fmt="%d")
    np.save(tmp_path / "y.npy", np.zeros(2000))
    (tmp_path / "head.csv").write_text("label\n1\n")
    (tmp_path / "nan.csv").write_text("nan\n" * 2000)
    means, random = np.linspace(-2, 2, 256), np.random.default_rng(1)
    np.savetxt(tmp_path / "draws.csv", means + 0.3 * random.normal(size=(1000, 256)))
    np.savetxt(tmp_path / "means.csv", means)
    np.savetxt(tmp_path / "back.csv", means[::-1])
    assert import_reference(tmp_path / "draws.csv", UCI, tmp_path / "means.csv").labels == pytest.approx(means)
    probs = published / "medmnist_probs.csv"
    for predictions, target, name, said in (
        (probs, DERMA, "turned.csv", r"turned\.csv: does not fit the rows: the accuracy is 0\.1"),
        (probs, DERMA, "classes.csv", "9, which is not a class of 0 to 6"),
        (probs, DERMA, "y.npy", "is not a list of numbers.*Write one number a line"),
        (probs, DERMA, "head.csv", "'label'.*without a header"),
        (probs, DERMA, "none.csv", "it does not exist"),
        (probs, DERMA, "nan.csv", "2,000 finite ones"),
        (tmp_path / "draws.csv", UCI, "back.csv", "its correlation with the predicted means is"),
    ):
        with pytest.raises(InputError, match=said):
            import_reference(predictions, target, labels=tmp_path / name)


def test_the_zip_of_the_development_phase_is_read(tmp_path):
    random = np.random.default_rng(0)
    probs = softmax(random.normal(size=(10_000, 10)))
    np.savetxt(tmp_path / "probs.csv", probs, delimiter=",", fmt="%.5f")
    np.savetxt(tmp_path / "cifar10_probs.csv", probs[:, ::-1], fmt="%.5f")
    with zipfile.ZipFile(tmp_path / "submission.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "cifar10_probs.csv", "cifar10_probs.csv")
        archive.writestr("__MACOSX/cifar10_probs.csv", "of the packer")
    found = evaluator(CIFAR, tmp_path / "probs.csv", tmp_path)
    (entry,) = score_files([tmp_path / "submission.zip"], found).competitors
    assert entry.title == "submission"


def test_draws_are_scored_without_labels(published, tmp_path):
    found = evaluator(UCI, published / "uci_samples.csv", tmp_path)
    board = score_files([published / "submission.zip"], found)
    scores = board.scores(board.ranked[0].title, "all")
    assert 0.08 < scores["wasserstein"].value < 0.15  # a shift of 0.1, and two sets of 1,000 draws
    assert np.isnan(scores["rmse"].value)
    assert page(make_board([board])).count("<svg") >= 2


def test_what_does_not_fit_is_refused(published, tmp_path):
    probs, wide, fundus = published / "medmnist_probs.csv", tmp_path / "wide.csv", TARGETS["fundus"]
    np.savetxt(wide, np.full((2000, 10), 0.1), fmt="%.1f")
    made = import_reference(probs, DERMA)
    write_reference(tmp_path / "r.npz", made)
    # An imported reference cannot pose as one of a target with data.
    about = made.about.changed(task="fundus", data=fundus.sha256, target=fundus.fingerprint(fundus.sha256))
    write_reference(tmp_path / "posing.npz", replace(made, about=about))
    for call, said in (
        (lambda: import_reference(wide, CIFAR), "2000 rows; the task 'kit-cifar10' has 10000"),
        (lambda: import_reference(probs, fundus), "has data and a reference of its own"),
        (lambda: read_reference(DERMA, load(DERMA).sha256), "fidelity import FILE --task kit-medmnist"),
        (lambda: run_entry("map", DERMA, out=tmp_path), "no data to train on"),
        (
            lambda: read_reference(UCI, load(UCI).sha256, tmp_path / "r.npz"),
            "of the target 'kit-medmnist', not of 'kit-uci'",
        ),
        (
            lambda: read_reference(fundus, fundus.sha256, tmp_path / "posing.npz"),
            "was imported, and 'fundus' has data of its own",
        ),
    ):
        with pytest.raises(InputError, match=said):
            call()
