import io
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions import columns
from retinabench.predictions import io as files
from retinabench.predictions.check import plain_id
from retinabench.predictions.io import find_files
from retinabench.predictions.table import method_names, notes_of_files
from support.prediction_bytes import NONE, npz, parquet, read_bytes, refused


def with_metadata(**metadata):
    return rb.Predictions(["a", "b"], [0, 1], [0.2, 0.7], metadata=metadata)


@pytest.mark.parametrize(
    ("files", "metadata", "names"),
    [
        pytest.param(["r0/p", "r1/p"], [("MAP", "x"), ("MAP", "x")], ["MAP", "MAP"], id="seeds of one setting"),
        pytest.param(["r0/p", "r1/p"], [("MAP", "x"), ("MAP", "y")], ["MAP (x)", "MAP (y)"], id="two settings"),
        pytest.param(["ours.csv", "theirs.csv"], [None, None], ["ours", "theirs"], id="no seeds without metadata"),
        pytest.param(["a/p.csv", "b/p.csv"], [None, None], ["a/p.csv", "b/p.csv"], id="nor of one file name"),
    ],
)
def test_the_names_of_files(files, metadata, names):
    about = [with_metadata() if one is None else with_metadata(title=one[0], setting=one[1]) for one in metadata]
    assert method_names([Path(file) for file in files], about) == names


def test_notes_name_the_files_that_they_are_about():
    notes = [["few"], ["few", "odd", "odd"], ["few", "odd"]]
    assert notes_of_files(["a", "b", "c"], notes) == ["few", "b, c: odd"]
    assert notes_of_files(["a"], [["few", "few"]]) == ["few"]


def test_a_run_folder_stands_for_its_predictions(tmp_path):
    rb.write_predictions(with_metadata(), tmp_path / "predictions.parquet")
    assert find_files([tmp_path]) == [tmp_path / "predictions.parquet"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"predictions\.parquet"):
        find_files([tmp_path / "empty"])


FORMATS = ("parquet", "csv", "npz")
COLUMNS = ("image_id", "label", "probs", *columns.OPTIONAL)


WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(plain_id)


PROBS = st.floats(0, 1)
# A CSV tells codes and numbers apart by their cells alone, so text begins with a letter.
CELLS = (WORDS.map(lambda word: f"x{word}"), st.floats(-1e300, 1e300))


@st.composite
def predictions(draw):
    n, samples = draw(st.integers(1, 6)), draw(st.integers(1, 3))

    def maybe(strategy):
        return draw(st.none() | st.lists(strategy, min_size=n, max_size=n))

    ids = draw(st.lists(WORDS, min_size=n, max_size=n, unique_by=plain_id))
    grade = maybe(st.none() | st.integers(0, 4))
    label = draw(hnp.arrays(np.int8, n, elements=st.integers(0, 1)))
    known = [] if grade is None else [k for k in range(n) if grade[k] is not None]
    label[known] = [grade[k] >= 2 for k in known]
    probs = draw(hnp.arrays(np.float64, (n, samples), elements=PROBS))
    assume(samples == 1 or np.abs(probs.sum(axis=1) - 1).max() > 0.1)  # a CSV of a softmax is refused
    shares = draw(st.none() | hnp.arrays(np.float64, (n, 5), elements=st.floats(0.01, 1)))
    if shares is not None:
        shares /= shares.sum(axis=1, keepdims=True)
        samples, probs = 1, shares[:, 2:].sum(axis=1)
    return rb.Predictions(
        ids,
        label,
        probs,
        grade=grade,
        patient_id=maybe(st.sampled_from(["p", "q", "Ü", "x y", ""])),
        domain=maybe(st.sampled_from(["in_domain", "shifted"])),
        split=maybe(st.sampled_from(["validation", "test"])),
        fold=maybe(st.integers(0, 20)),
        uncertainty=maybe(st.floats(-1e300, 1e300)),
        uncertainties={} if (values := maybe(st.floats(-1e300, 1e300))) is None else {draw(WORDS): values},
        grade_prob=shares,
        subgroups={
            f"group {draw(WORDS)} {k}": draw(st.lists(one, min_size=n, max_size=n))
            for k, one in enumerate(draw(st.lists(st.sampled_from(CELLS), max_size=3)))
        },
        metadata={"method": draw(WORDS), "seed": draw(st.integers(0, 9)), "members": samples},
    )


@pytest.mark.parametrize("kind", FORMATS)
@given(given_=predictions())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(kind, folder, given_):
    path = folder / f"round.{kind}"
    rb.write_predictions(given_, path)
    back = rb.read_predictions(path)
    for name in COLUMNS:
        before, after = getattr(given_, name), getattr(back, name)
        assert (before is None) == (after is None)
        if before is not None:
            assert before.dtype.kind == after.dtype.kind
            np.testing.assert_array_equal(after, before)
    both = [[one.tolist() for one in each.uncertainties.values()] for each in (back, given_)]
    assert both[0] == both[1]
    assert list(back.subgroups) == [name.strip() if kind == "csv" else name for name in given_.subgroups]
    for before, after in zip(given_.subgroups.values(), back.subgroups.values(), strict=True):
        np.testing.assert_array_equal(after, before)
    if kind != "csv":
        assert back.metadata["method"] == given_.metadata["method"]
        assert back.metadata["members"] == given_.samples


@pytest.mark.parametrize(
    "content",
    [
        parquet(), parquet(label=[False, True], prob=np.array([0.25, 0.5], np.float32)),
        parquet(image_id=pa.array(["a", "b"]).dictionary_encode(), prob=["0.25", "0.5"]),
        parquet(prob=NONE, probs=[[0.0, 0.5], [0.5, 0.5]]),
        parquet(prob=NONE, probs=pa.array([[0.25], [0.5]], pa.list_(pa.float32(), 1))), npz(),
        npz(prob=np.array([[0.25], [0.5]], np.float16), label=np.array([False, True])),
        npz(image_id=np.array([b"a", b"b"]), note=np.array("foreign")),
    ],
)  # fmt: skip
def test_legal_variants(folder, content):
    found = read_bytes(folder, content)
    assert found.image_id.tolist() == ["a", "b"]
    np.testing.assert_array_equal(found.prob, [0.25, 0.5])


def test_files_that_are_too_large_are_refused_before_they_are_read(folder, monkeypatch):
    rows = "".join(f"i{k},{k % 2},0.5\n" for k in range(3000)).encode()
    monkeypatch.setattr(columns, "MAX_ROWS", 2000)
    monkeypatch.setattr(columns, "MAX_VALUES", 8000)
    monkeypatch.setattr(files.pa.csv, "read_csv", None)  # never called
    refused(folder, b"image_id,label,prob\n" + rows, "holds 3,001 rows of 1 samples, more than are scored at once")
    monkeypatch.setattr(files, "MAX_CSV_BYTES", 100)
    refused(folder, b"image_id,label,prob\n" + rows, "is larger than")
    ids = [f"i{k}" for k in range(3000)]
    sink = io.BytesIO()
    pq.write_table(pa.table({"image_id": ids, "label": [0] * 3000, "prob": [0.5] * 3000}), sink)
    refused(folder, sink.getvalue(), "holds 3,000 rows")
    refused(folder, npz(image_id=np.array(ids), label=np.zeros(3000), prob=np.zeros(3000)), "holds 3,000 rows")


def test_paths_that_are_no_files(tmp_path):
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "none.csv", "does not exist")):
        with pytest.raises(InputError, match=message):
            rb.read_predictions(path)
    with pytest.raises(InputError, match=r"cannot write '\.txt'"):
        rb.write_predictions(rb.Predictions(["a"], [0], [0.5]), tmp_path / "x.txt")


@pytest.mark.parametrize("kind", FORMATS)
def test_odd_metadata_and_ids(kind, tmp_path):
    path = tmp_path / f"x.{kind}"
    given_ = rb.Predictions(["a"], [0], [0.5], metadata={"seed": np.int64(3), "when": tmp_path})
    rb.write_predictions(given_, path)
    if kind != "csv":
        assert rb.read_predictions(path).metadata["seed"] == 3
    odd = rb.Predictions(["a\udcff"], [0], [0.5])
    with pytest.raises(InputError, match="Unicode"):
        rb.write_predictions(odd, path)


def test_labels_may_be_empty_only_where_it_is_said(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("image_id,label,prob,grade\na,1,0.1,\nb,,0.7,3\nc,,0.2,\n")
    with pytest.raises(InputError, match="row 2, column 'label': is empty"):
        rb.read_predictions(path)
    found = rb.read_predictions(path, unlabelled=True)
    assert found.label.tolist() == [1, 1, 0]  # a grade is a label
    assert found.subgroups["labelled"].tolist() == ["yes", "yes", "no"]
    path.write_text("image_id,label,prob\na,,0.1\nb,,0.7\n")
    assert rb.read_predictions(path, unlabelled=True).subgroups["labelled"].tolist() == ["no", "no"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_folds_and_named_uncertainties_are_kept(tmp_path, kind):
    # NFKC: a blank
    values = {"epistemic": [0.1, 1e-300, 3.0], "softmax": [-1.0, 0.25, 0.1 + 0.2], "¸": [0.5, 0.1, 0.2]}
    one = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.2, 0.7, 0.6], fold=[2, 0, 11], uncertainties=values)
    rb.write_predictions(one, tmp_path / f"p.{kind}")
    found = rb.read_predictions(tmp_path / f"p.{kind}")
    assert found.fold.tolist() == [2, 0, 11]
    assert {name: column.tolist() for name, column in found.uncertainties.items()} == values
    assert dict(found.subgroups) == {}
    part = found.take([2, 0])
    assert (part.fold.tolist(), part.uncertainties["softmax"].tolist()) == ([11, 2], [0.1 + 0.2, -1.0])
    assert part.records()[0]["uncertainty_epistemic"] == 3.0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("fold\n0\n1.5", "row 2, column 'fold': is 1.5. Folds are whole numbers from 0"),
        ("fold\n0\n", "row 2, column 'fold': is empty"),
        ("uncertainty_softmax\n0.1\nhigh", "row 2, column 'uncertainty_softmax': is 'high', not a number"),
        ("uncertainty_softmax\n0.1\n", "row 2, column 'uncertainty_softmax': is empty or nan"),
    ],
)
def test_folds_and_uncertainties_that_are_no_numbers_are_refused(tmp_path, columns, message):
    rows = zip(["image_id,label,prob", "a,0,0.2", "b,1,0.7"], columns.split("\n"), strict=True)
    (tmp_path / "p.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    with pytest.raises(InputError, match=re.escape(message)):
        rb.read_predictions(tmp_path / "p.csv")
