"""Submissions to the fidelity benchmark: what they state and target, files of any origin, and what is refused."""

import contextlib
import io
import json
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions import submission
from retinabench.fidelity.submissions.entries import entry, entry_run
from retinabench.fidelity.submissions.submission import About, Submission, read_submission, write_submission
from retinabench.fidelity.targets.target import TARGETS
from support.fake_reference import softmax

N = 12
FUNDUS, ENERGY = TARGETS["fundus"], TARGETS["energy-gap"]
DATA = "ab" * 32


def meta(chosen):
    return {"task": chosen.name, "target": chosen.fingerprint(DATA), "data": DATA, "method": "m", "title": "M"}


@pytest.fixture
def probs():
    return softmax(np.random.default_rng(0).normal(size=(N, 5)))


@pytest.fixture
def draws():
    return np.random.default_rng(1).normal(size=(N, 1000))


def implied(name, *overrides):
    return submission.implied_by(entry_run(entry(name), FUNDUS, FUNDUS.train, 100, 0, overrides), FUNDUS.train)


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("sghmc", ("method.temperature=0.05", "optimizer.l2=0.5"), "temperature 0.05, not 1; prior variance 0.0001"),
        ("map", ("optimizer.augment=flip",), "augmentation (flip)"),
        ("map", ("optimizer.l2=0",), "prior variance none"),
        ("fsvi", (), "a prior over functions"),
    ],
)  # fmt: skip
def test_other_posteriors_are_refused_and_the_open_track_takes_them(name, overrides, words):
    found = implied(name, *overrides)
    with pytest.raises(InputError, match=r"--track open") as error:
        submission.check_track(found, FUNDUS, "stated")
    assert words in str(error.value)
    submission.check_track(found, FUNDUS, "open")


def test_a_counted_run_is_tied_to_its_arrays_and_budget(tmp_path, probs):
    counted = meta(FUNDUS) | {"budget": {"limit": 100, "used": 90.0}, "evidence": {"manifest": "0" * 64}}
    path = tmp_path / "s.npz"
    write_submission(path, Submission(probs, about=About(**counted)))
    back = read_submission(path, FUNDUS, N, DATA)
    assert back.about.counted
    with np.load(path) as saved:
        arrays = dict(saved)
    for change in ("budget", "probs"):
        stated = json.loads(str(arrays["meta"]))
        if change == "budget":
            stated["budget"]["used"] = 9.0
        values = probs[::-1] if change == "probs" else probs
        np.savez(tmp_path / f"{change}.npz", probs=values, meta=np.array(json.dumps(stated)))
        with pytest.raises(InputError, match="content hash"):
            read_submission(tmp_path / f"{change}.npz", FUNDUS, N, DATA)
    # Another title is no change of the run; a file without the hashes is declared.
    write_submission(path, Submission(probs, about=back.about.changed(title="Ours")))
    assert read_submission(path, FUNDUS, N, DATA).about.counted
    write_submission(path, Submission(probs, about=About(**meta(FUNDUS))))
    assert not read_submission(path, FUNDUS, N, DATA).about.counted


def test_draws_of_y_are_those_of_the_mixture():
    # Two components at -1 and 1 with std 0.5: mean 0, variance 1 + 0.25. Standard errors of 1,000 draws: 0.035 of
    # the mean, 0.05 of the variance; five of them.
    predicted = np.array([[[-1.0, 0.5]], [[1.0, 0.5]]], np.float32)
    draws = submission.y_draws(predicted, np.random.default_rng(0))
    assert draws.shape == (1, 1000)
    assert draws.mean() == pytest.approx(0, abs=0.17)
    assert draws.var() == pytest.approx(1.25, abs=0.25)
    assert (draws[0, :500] < 0).mean() > 0.9  # every component gives its share


def test_many_samples_are_thinned_and_their_mean_is_that_of_all():
    values = np.random.default_rng(0).dirichlet(np.ones(2), (300, 4)).astype(np.float32)
    found = submission.submission_of(values, TARGETS["logistic"], About(), 0)
    assert found.samples.shape == (submission.KEPT_SAMPLES, 4, 2)
    assert found.probs == pytest.approx(values.mean(axis=0), abs=1e-6)


def written(path, values, kind, target):
    """Write probabilities or draws as others do; return the path."""
    name = "prob" if target == FUNDUS else "draw"
    columns = {f"{name}_{k}": values[:, k] for k in range(values.shape[1])}
    plain = io.StringIO()
    np.savetxt(plain, values.T if kind == "turned" or (kind == "zip" and target == ENERGY) else values)
    if kind == "npz":
        np.savez(path, **{f"{name}s": values})
    elif kind == "parquet":  # the columns in any order
        shuffled = {key: columns[key] for key in reversed(columns)}
        pa.parquet.write_table(pa.table({"point": np.arange(N), **shuffled}), path)
    elif kind == "zip":  # a regression of the competition is (1000, points)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("fundus_probs.csv" if target == FUNDUS else "submission/uci_samples.csv", plain.getvalue())
            archive.writestr("readme.txt", "hello")
    elif kind in ("savetxt", "turned"):
        path.write_text(plain.getvalue())
    else:
        delimiter = ";" if kind == "semicolons" else ","
        table = columns if kind == "no point" else {"point": np.arange(N), **columns}
        rows = np.column_stack(list(table.values()))
        np.savetxt(path, rows, delimiter=delimiter, header=delimiter.join(table), comments="", fmt="%.17g")
    return path


@pytest.mark.parametrize("kind", ["npz", "csv", "semicolons", "no point", "savetxt", "parquet", "zip"])
def test_anyone_s_probabilities_are_read(tmp_path, probs, kind):
    path = written(tmp_path / "theirs.npz", probs, kind, FUNDUS)
    assert read_submission(path, FUNDUS, N).probs == pytest.approx(probs, abs=1e-15)


@pytest.mark.parametrize("kind", ["npz", "csv", "savetxt", "turned", "parquet", "zip"])
def test_anyone_s_draws_are_read(tmp_path, draws, kind):
    path = written(tmp_path / "theirs.npz", draws, kind, ENERGY)
    assert read_submission(path, ENERGY, N).draws == pytest.approx(draws, abs=1e-15)


def changed(values, row, value):
    out = np.array(values)
    out[row - 1] = value
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: {"probs": p[:-2]}, "holds 10 rows; the task 'fundus' has 12 test points"),
        (lambda p: {"probs": p[:, :3]}, r"shape \(12, 3\).*12 test points and 5 classes"),
        (lambda p: {"probs": changed(p, 3, np.nan)}, "row 3: holds a value that is not finite"),
        (
            lambda p: {"probs": changed(p, 5, [2.5, -1, 0, 0, 1])},
            "row 5: holds 2.5, which is not a probability.*softmax",
        ),
        (lambda p: {"probs": changed(p, 7, [0.5, 0.2, 0, 0, 0])}, r"row 7: sums to 0.7.*\(1 of 12 rows"),
        (lambda p: {"probs": p.T[None]}, "shape"),
        (lambda p: {"probs": np.log(p)}, "which is not a probability. Are these logits"),
        (lambda p: {"probs": np.array([{"a": 1}], object)}, "never unpickled"),
        (lambda p: {"draws": p}, "holds no 'probs', which the task 'fundus' asks for"),
        (lambda p: {"probs": p, "samples": p[::-1][None]}, "contradicts 'probs'"),
        (lambda p: {"probs": p, "samples": p}, r"has shape \(12, 5\), needed is \(S, N, C\)"),
        (lambda p: {"probs": p, "samples": p[None][:0]}, "holds no sample"),
    ],
)
def test_arrays_that_cannot_be_scored_name_row_and_hint(tmp_path, probs, change, message):
    np.savez(tmp_path / "bad.npz", **change(probs))
    with pytest.raises(InputError, match=rf"bad\.npz.*{message}"):
        read_submission(tmp_path / "bad.npz", FUNDUS, N)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y[:, :100], "100 draws per test point, wanted are 1,000"),
        (lambda y: y.T, r"holds 1000 rows.*Turn it"),
        (lambda y: y[0], r"has shape \(1000,\), needed is \(12, 1000\)"),
    ],
)
def test_too_few_draws_and_means_instead_of_draws_are_refused(tmp_path, draws, change, message):
    np.savez(tmp_path / "bad.npz", draws=change(draws))
    with pytest.raises(InputError, match=message):
        read_submission(tmp_path / "bad.npz", ENERGY, N)


def test_a_part_of_the_samples_has_a_mean_of_its_own(tmp_path, probs):
    whole = softmax(np.log(probs) + np.random.default_rng(8).normal(size=(600, N, 5)))
    np.savez(tmp_path / "p.npz", probs=whole.mean(axis=0), samples=whole[::12])
    assert len(read_submission(tmp_path / "p.npz", FUNDUS, N).samples) == 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"), (pickle.dumps([1, 2]), "pickles are never loaded"),
        (b"prob_0,prob_1,prob_2,prob_3,prob_4\n1,0,0,0,0\n1,0,x,0,0\n", "row 2.*'x'"),
        (b"1,0,0,0,0\n1,0,0\n", "number of columns"), (b"a,b\n1,2\n", "not a table of numbers"),
        (b"prob_0,prob_2\n1,0\n", "column 'prob_1': is missing"),
        (b"prob_0,prob_0\n1,0\n", "column 'prob_0': appears twice"),
        (b"point,prob_0\n11,1\n", "row 1, column 'point': is 11 where point 0 is due"),
        (b"\xff\xfe1 2 3", "UTF-8|not a table"), (b"PK\x03\x04 torn", "not a whole archive"),
        (b"PAR1 torn", "cannot be read"),
    ],
)  # fmt: skip
def test_broken_files_are_one_line(tmp_path, content, message):
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"broken.*({message})"):
        read_submission(path, FUNDUS, N)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"budget": "much"}, "has unreadable metadata: budget: "),
        ({"seed": "x"}, "has unreadable metadata: seed: "),
        ({"budget": {"used": "?"}}, "has unreadable metadata: budget.used: "),
        ({"run": 3}, "has unreadable metadata: run: "),
        # The `samples` of a reference would be read as a submission.
        ({"schema": "retinabench.fidelity-reference/1"}, "is not a submission: its schema is 'retinabench.fidelity-reference/1'"),
        ({"schema": 3}, "is not a submission: its schema is '3'"),
        ({"task": "idrid"}, "is for the task 'idrid', not 'fundus'"),
        ({"data": "cd" * 32}, "is for other data"),
        ({"target": "0" * 12}, "is for another definition of 'fundus'"),
        ({"content": "0" * 64}, "was changed after it was written: its content hash differs"),
        ({"schema": "retinabench.fidelity-answers/1"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_metadata_that_say_something_else_are_refused(tmp_path, probs, stated, message):
    np.savez(tmp_path / "s.npz", samples=probs[None], meta=np.array(json.dumps(meta(FUNDUS) | stated)))
    with contextlib.nullcontext() if message is None else pytest.raises(InputError, match=rf"s\.npz: {message}"):
        assert read_submission(tmp_path / "s.npz", FUNDUS, N, DATA).samples is not None


def test_ours_comes_back(tmp_path, probs, draws):
    samples = np.stack([probs, probs[::-1]])
    write_submission(tmp_path / "c.npz", Submission(probs, samples, about=About(**meta(FUNDUS))))
    back = read_submission(tmp_path / "c.npz", FUNDUS, N, DATA)
    assert (back.probs == probs).all()
    assert back.samples == pytest.approx(samples, abs=1e-3)  # half precision
    assert back.title == "M"
    write_submission(tmp_path / "r.npz", Submission(draws=draws, about=About(**meta(ENERGY))))
    assert read_submission(tmp_path / "r.npz", ENERGY, N, DATA).draws == pytest.approx(draws, abs=1e-6)


def test_damaged_bytes_raise_no_other_error(tmp_path, probs):
    path = tmp_path / "s.npz"
    np.savez_compressed(path, probs=probs, meta=np.array('{"seed": 1}'))
    content = path.read_bytes()
    for place in range(0, len(content), 4):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        with contextlib.suppress(InputError):
            read_submission(path, FUNDUS, N)
