"""Reading submissions of any origin."""

from __future__ import annotations

import contextlib
import io
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.submission import About, Submission, read_submission, write_submission
from retinabench.fidelity.targets.target import TARGETS
from support.fake_reference import softmax
from support.small_submissions import DATA, ENERGY, FUNDUS, N, meta


def spoilt(values, **changes):
    out = np.array(values)
    for row, value in changes.items():
        out[int(row[3:]) - 1] = value
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p[:-2], "holds 10 rows; the task 'fundus' has 12 test points"),
        (lambda p: p[:, :3], r"shape \(12, 3\).*12 test points and 5 classes"),
        (lambda p: spoilt(p, row3=np.nan), "row 3: holds a value that is not finite"),
        (lambda p: spoilt(p, row5=[2.5, -1, 0, 0, 1]), "row 5: holds 2.5, which is no probability.*softmax"),
        (lambda p: spoilt(p, row7=[0.5, 0.2, 0, 0, 0]), r"row 7: sums to 0.7.*\(1 of 12 rows"),
        (lambda p: p.T[None], "shape"),
        (lambda p: np.log(p), "which is no probability. Are these logits"),
    ],
)
def test_bad_probabilities_name_row_and_hint(tmp_path, probs, change, message):
    np.savez(tmp_path / "bad.npz", probs=change(probs))
    with pytest.raises(InputError, match=rf"bad\.npz.*{message}"):
        read_submission(tmp_path / "bad.npz", FUNDUS, N)


def test_too_few_draws_and_means_instead_of_draws_are_refused(tmp_path, draws):
    np.savez(tmp_path / "few.npz", draws=draws[:, :100])
    with pytest.raises(InputError, match="100 draws per test point, wanted are 1,000"):
        read_submission(tmp_path / "few.npz", ENERGY, N)
    np.savez(tmp_path / "turned.npz", draws=draws.T)
    with pytest.raises(InputError, match=r"holds 1000 rows.*Turn it"):
        read_submission(tmp_path / "turned.npz", ENERGY, N)


def test_samples_that_contradict_the_probabilities_are_refused(tmp_path, probs):
    other = softmax(np.random.default_rng(7).normal(size=(50, N, 5)))
    write_submission(tmp_path / "s.npz", Submission(probs, other, about=About(**meta(FUNDUS))))
    with pytest.raises(InputError, match=r"contradicts 'probs'"):
        read_submission(tmp_path / "s.npz", FUNDUS, N, DATA)
    # A part of the samples, whose mean has its error, is what runs keep.
    whole = softmax(np.log(probs) + np.random.default_rng(8).normal(size=(600, N, 5)))
    part = Submission(whole.mean(axis=0), whole[::12], about=About(**meta(FUNDUS)))
    write_submission(tmp_path / "p.npz", part)
    assert len(read_submission(tmp_path / "p.npz", FUNDUS, N, DATA).samples) == 50


SUBMISSION_FILES_FUNDUS, SUBMISSION_FILES_ENERGY = TARGETS["fundus"], TARGETS["energy-gap"]


def table(path, values, kind, header=True, point=True, delimiter=","):
    names = [*(["point"] if point else []), *(f"{kind}_{k}" for k in range(values.shape[1]))]
    rows = np.column_stack([np.arange(len(values)), values]) if point else values
    text = delimiter.join(names) if header else ""
    np.savetxt(path, rows, delimiter=delimiter, header=text, comments="", fmt="%.17g")
    return path


@pytest.mark.parametrize("kind", ["npz", "csv", "semicolons", "no point", "savetxt", "parquet", "zip"])
def test_anyone_s_probabilities_are_read(tmp_path, probs, kind):
    path = tmp_path / "theirs"
    if kind == "npz":
        np.savez(path, probs=probs)
        path = tmp_path / "theirs.npz"
    elif kind == "parquet":
        columns = {f"prob_{k}": probs[:, k] for k in (3, 1, 0, 2, 4)}  # in any order
        pa.parquet.write_table(pa.table({"point": np.arange(N), **columns}), path)
    elif kind == "zip":
        sink = io.StringIO()
        np.savetxt(sink, probs)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("fundus_probs.csv", sink.getvalue())
            archive.writestr("readme.txt", "hello")
    elif kind == "savetxt":
        np.savetxt(path, probs)
    else:
        delimiter = ";" if kind == "semicolons" else ","
        table(path, probs, "prob", point=kind != "no point", delimiter=delimiter)
    assert read_submission(path, SUBMISSION_FILES_FUNDUS, N).probs == pytest.approx(probs, abs=1e-15)


@pytest.mark.parametrize("kind", ["csv", "savetxt", "turned", "zip", "parquet", "npz"])
def test_anyone_s_draws_are_read(tmp_path, draws, kind):
    path = tmp_path / "theirs"
    if kind == "csv":
        table(path, draws, "draw")
    elif kind == "parquet":
        pa.parquet.write_table(pa.table({f"draw_{k}": draws[:, k] for k in range(1000)}), path)
    elif kind == "npz":
        np.savez(tmp_path / "theirs.npz", draws=draws)
        path = tmp_path / "theirs.npz"
    elif kind == "zip":  # the competition's name and order: (1000, points)
        sink = io.StringIO()
        np.savetxt(sink, draws.T)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("submission/uci_samples.csv", sink.getvalue())
    else:
        np.savetxt(path, draws.T if kind == "turned" else draws)
    assert read_submission(path, SUBMISSION_FILES_ENERGY, N).draws == pytest.approx(draws, abs=1e-15)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (pickle.dumps([1, 2]), "no pickle is ever loaded"),
        (b"prob_0,prob_1,prob_2,prob_3,prob_4\n1,0,0,0,0\n1,0,x,0,0\n", "row 2.*'x'"),
        (b"1,0,0,0,0\n1,0,0\n", "number of columns"),
        (b"a,b\n1,2\n", "no table of numbers"),
        (b"prob_0,prob_2\n1,0\n", "column 'prob_1': is missing"),
        (b"prob_0,prob_0\n1,0\n", "column 'prob_0': stands twice"),
        (b"\xff\xfe1 2 3", "UTF-8|no table"),
        (b"PK\x03\x04 torn", "not a whole archive"),
        (b"PAR1 torn", "cannot be read"),
    ],
)
def test_broken_files_are_one_line(tmp_path, content, message):
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"broken.*({message})"):
        read_submission(path, SUBMISSION_FILES_FUNDUS, N)


def test_objects_in_an_npz_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "o.npz", probs=np.array([{"a": 1}], object))
    with pytest.raises(InputError, match="never unpickled"):
        read_submission(tmp_path / "o.npz", SUBMISSION_FILES_FUNDUS, N)


def test_damaged_bytes_raise_no_other_error(tmp_path, probs):
    path = tmp_path / "s.npz"
    np.savez_compressed(path, probs=probs, meta=np.array('{"seed": 1}'))
    content = path.read_bytes()
    for place in range(0, len(content), 4):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        with contextlib.suppress(InputError):
            read_submission(path, SUBMISSION_FILES_FUNDUS, N)


@pytest.mark.parametrize("kind", ["npz", "zip"])
@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused(tmp_path, probs, kind, method):
    sink = io.BytesIO()
    np.save(sink, probs)
    name, content = ("probs.npy", sink.getvalue()) if kind == "npz" else ("fundus_probs.csv", b"0.2 0.8")
    with zipfile.ZipFile(tmp_path / "x", "w", method) as archive:
        archive.writestr(name, content)
    with pytest.raises(InputError, match="is compressed in a way"):
        read_submission(tmp_path / "x", SUBMISSION_FILES_FUNDUS, N)
