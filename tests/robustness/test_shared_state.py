"""Predictions own their arrays, threads do not disturb each other, and no call leaves a trace in the process."""

import copy
import functools
import locale
import os
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import retinabench as rb
from retinabench.metrics.actions import FrozenRule
from retinabench.metrics.arrays import Arrays
from retinabench.metrics.guarantees.goals import Goal


def drawn(seed=0, n=120, **more):
    rng = np.random.default_rng(seed)
    label = (np.arange(n) // 2 % 3 == 0).astype(int)
    prob = 1 / (1 + np.exp(-rng.normal(2 * label - 1, 1.2)))
    ids = np.array([f"i{k}" for k in range(n)])
    patients = np.array([f"p{k // 2}" for k in range(n)])
    return rb.Predictions(ids, label, prob, patient_id=patients, **more)


def test_predictions_own_every_array():
    n = 40
    given = {
        "image_id": np.array([f"i{k}" for k in range(n)]), "label": np.arange(n) % 2,
        "probs": np.linspace(0.1, 0.9, 2 * n).reshape(n, 2), "patient_id": np.array([f"p{k // 2}" for k in range(n)]),
        "uncertainty": np.linspace(0, 1, n),
    }  # fmt: skip
    subgroups = {"site": np.array(["A", "B"] * (n // 2)), "age": np.linspace(30, 80, n)}
    made = rb.Predictions(**given, subgroups=subgroups)
    before = rb.score(made, bootstrap=0).to_dict(), made.subgroups["site"].tolist(), made.subgroups["age"].tolist()
    for values in (*given.values(), *subgroups.values()):
        values[:] = values[::-1].copy()
    after = rb.score(made, bootstrap=0).to_dict(), *(made.subgroups[k].tolist() for k in ("site", "age"))
    assert after == before
    for values in (made.probs, made.label, made.subgroups["site"], made.uncertainty):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = values[1]


def test_a_loader_may_refill_its_batch():
    torch = pytest.importorskip("torch")
    images, labels = torch.linspace(-2, 2, 40).reshape(4, 10, 1), (torch.arange(40) % 2).reshape(4, 10)

    class Refilled:
        def __iter__(self):
            x, y = torch.empty(10, 1), torch.empty(10, dtype=torch.long)
            for image, label in zip(images, labels, strict=True):
                x.copy_(image), y.copy_(label)
                yield x, y
            y.zero_()

    model = torch.nn.Linear(1, 1)
    torch.nn.init.ones_(model.weight)  # outputs on both sides of 0, which no one takes for probabilities
    made = rb.predict_torch(model, Refilled())
    assert made.label.tolist() == labels.ravel().tolist()


SMALL = drawn()
SPLIT = replace(SMALL, split=["validation"] * 60 + ["test"] * 60)


def believed(images):
    """An estimator: the mean of an image, and how near it is to one half."""
    mean = images.mean(axis=(1, 2, 3))
    return mean, 0.5 - np.abs(mean - 0.5)


@functools.cache
def network():
    """A network with dropout, which draws; made once, since its weights are drawn from the generator of the process, too."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(3, 1))
    model.load_state_dict({"1.weight": torch.tensor([[1.0, -2.0, 3.0]]), "1.bias": torch.zeros(1)})
    return model


def of_torch(function, **options):
    """Call a function of the network on images made of the probabilities."""
    model, torch = copy.deepcopy(network()), pytest.importorskip("torch")
    x = torch.from_numpy(np.stack([SMALL.prob, SMALL.prob**2, 1 - SMALL.prob], 1).astype(np.float32))
    return function(model, zip(x.split(40), torch.tensor(SMALL.label.tolist()).split(40), strict=True), **options)


def saved(predictions):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.csv"
        rb.write_predictions(predictions, path)
        return rb.read_predictions(path).prob.tolist(), path.read_bytes()


CALLS = {
    "score": lambda: rb.score(SMALL, bootstrap=30).to_dict(),
    "compare": lambda: rb.compare(SMALL, drawn(1), bootstrap=30).to_dict(),
    "clinic": lambda: rb.clinic(SMALL, referral_rate=0.2).to_dict(),
    "apply": lambda: rb.apply(SPLIT, FrozenRule(negative=0.2, positive=0.8)).to_csv(),
    "evaluate": lambda: rb.evaluate(
        believed, Arrays(np.tile(SMALL.prob[:, None, None, None], (1, 2, 2, 3)), SMALL.label), bootstrap=30
    ).to_dict(),
    "evaluate_torch": lambda: of_torch(rb.evaluate_torch, samples=3, bootstrap=30).to_dict(),
    "predict_torch": lambda: of_torch(rb.predict_torch, samples=3).probs.tolist(),
    "rank": lambda: rb.rank({"a": SMALL, "b": drawn(1), "c": drawn(2)}, bootstrap=30).to_dict(),
    "monitor": lambda: rb.monitor(
        drawn(subgroups={"date": np.repeat(["2027-01-01", "2027-02-01"], 60)}),
        FrozenRule(negative=0.2, positive=0.8, goals=(Goal("npv", 0.6),), most_images=2),
    ).to_dict(),
    "plan": lambda: rb.plan(SMALL).to_dict(),
    "recalibrate": lambda: rb.recalibrate(SPLIT, "isotonic").prob.tolist(),
    "read and write": lambda: saved(SMALL),
    "transfer": lambda: rb.transfer(SPLIT, goals=["sensitivity=.6"], delta=0.1, bootstrap=200).to_dict(),
    "triage": lambda: rb.triage(SPLIT, ["npv=.6", "ppv=.6"], delta=0.1, bootstrap=200).to_dict(),
    "curve": lambda: rb.referral_curve(SMALL.label, SMALL.prob, SMALL.prob * (1 - SMALL.prob), "auroc").value.tolist(),
}


def state():
    """What a call must leave as it was."""
    drawn_next = repr(np.random.get_state())  # noqa: NPY002, the global one is what must not move
    return (
        dict(mpl.rcParams), np.geterr(), drawn_next, list(warnings.filters), locale.setlocale(locale.LC_ALL),
        os.getcwd(), dict(os.environ),
    )  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_four_threads_give_what_one_gives_and_leave_no_trace(name):
    if name.endswith("torch"):
        network()  # the import of PyTorch itself sets filters of warnings
    before = state()
    alone = CALLS[name]()
    assert state() == before
    with ThreadPoolExecutor(4) as pool:
        together = [one.result() for one in [pool.submit(CALLS[name]) for _ in range(4)]]
    assert all(repr(one) == repr(alone) for one in together)
    assert state() == before


def test_reports_of_two_threads_are_those_of_one(tmp_path):
    """Figures take settings of the whole process: pages of one thread once had the text sizes of another."""

    def page(folder):
        return rb.report({"model": SMALL}, tmp_path / folder, bootstrap=5).read_bytes()

    before = dict(mpl.rcParams)
    alone = page("alone")
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(page, ["first", "second"])) == [alone, alone]
    assert dict(mpl.rcParams) == before
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 30}):
        assert page("loud") == alone


def test_output_that_is_not_utf_8_is_written_all_the_same(tmp_path):
    file = tmp_path / "p.csv"
    rows = "".join(f"é{k},{k % 2},{0.1 + 0.02 * k}\n" for k in range(40))
    file.write_text(f"image_id,label,prob\n{rows}", encoding="utf-8")
    words = [
        sys.executable, "-m", "retinabench", "score", str(file), "--bootstrap", "0", "--referral-list",
        str(tmp_path / "list.csv"),
    ]  # fmt: skip
    done = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "list.csv").is_file()
