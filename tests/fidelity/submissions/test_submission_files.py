"""Reading submissions of any origin: formats, and what is refused."""

from __future__ import annotations

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
from retinabench.fidelity.submissions.submission import About, Submission, read_submission, write_submission
from support.fake_reference import softmax
from support.small_submissions import DATA, ENERGY, FUNDUS, N, meta


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
        (b"", "is empty"),
        (pickle.dumps([1, 2]), "pickles are never loaded"),
        (b"prob_0,prob_1,prob_2,prob_3,prob_4\n1,0,0,0,0\n1,0,x,0,0\n", "row 2.*'x'"),
        (b"1,0,0,0,0\n1,0,0\n", "number of columns"),
        (b"a,b\n1,2\n", "not a table of numbers"),
        (b"prob_0,prob_2\n1,0\n", "column 'prob_1': is missing"),
        (b"prob_0,prob_0\n1,0\n", "column 'prob_0': appears twice"),
        (b"point,prob_0\n11,1\n", "row 1, column 'point': is 11 where point 0 is due"),
        (b"\xff\xfe1 2 3", "UTF-8|not a table"),
        (b"PK\x03\x04 torn", "not a whole archive"),
        (b"PAR1 torn", "cannot be read"),
    ],
)
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
