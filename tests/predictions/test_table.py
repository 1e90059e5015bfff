import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import expit
from scipy.special import softmax as reference

import retinabench as rb
from retinabench.core.errors import InputError

GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}


def test_defaults_and_types():
    predictions = rb.Predictions(**GOOD)
    assert (len(predictions), predictions.samples) == (3, 1)
    assert predictions.probs.shape == (3, 1)
    assert predictions.domain.tolist() == ["in_domain"] * 3
    assert predictions.split.tolist() == ["test"] * 3
    assert predictions.patient_id is None
    assert predictions.label.dtype == np.int8


def test_legal_oddities():
    assert len(rb.Predictions(["one"], [1], [1.0])) == 1
    assert rb.Predictions(["a", "b"], [0, 0], [0.0, 1.0]).label.tolist() == [0, 0]
    assert rb.Predictions(["a", "b"], ["0", "1"], ["0.25", "1e-3"]).prob.tolist() == [0.25, 1e-3]
    assert rb.Predictions([10, 11], [True, False], [1, 0]).image_id.tolist() == ["10", "11"]
    assert rb.Predictions(np.array([b"a", b"\xc3\xa9"]), [0, 1], [0, 1]).image_id.tolist() == ["a", "é"]
    objects = np.array([b"a", "b"], object)
    assert rb.Predictions(objects, [0, 1], np.array([0.5, 1], object)).image_id.tolist() == ["a", "b"]


def test_mean_over_samples():
    predictions = rb.Predictions(["a", "b"], [0, 1], [[0.1, 0.3], [0.5, 1.0]], metadata={"members": 2})
    np.testing.assert_allclose(predictions.prob, [0.2, 0.75])


def test_select_and_take():
    predictions = rb.Predictions(
        **GOOD, domain=["in_domain", "shifted", "in_domain"], split=["validation", "test", "test"], grade=[0, 3, 2],
        uncertainty=[1, 2, 3], subgroups={"camera": ["A", "B", "C"], "age": [1, 2, 3]},
    )  # fmt: skip
    assert predictions.select(domain="in_domain").subgroups["age"].tolist() == [1, 3]
    assert predictions.take([2, 0]).subgroups["camera"].tolist() == ["C", "A"]
    assert predictions.select(domain="in_domain").image_id.tolist() == ["a", "c"]
    assert predictions.select(domain="shifted", split="validation") is None
    taken = predictions.take([2, 0])
    assert taken.image_id.tolist() == ["c", "a"]
    assert taken.grade.tolist() == [2, 0]
    assert predictions.take([0, 1, 2]) is predictions


def test_images_without_a_label_are_selected_only_where_that_is_asked_for():
    found = rb.Predictions(["a", "b"], [1, 0], [0.9, 0.8], subgroups={"labelled": ["yes", "no"]})
    with pytest.raises(InputError, match=r"row 2, column 'label': is not known for 1 of 2 images"):
        rb.score(found, bootstrap=0)
    assert len(found.select(split="test", unlabelled=True)) == 2


def test_a_selection_of_a_selection_knows_the_rows_of_the_file():
    split = ["validation", "test", "test", "validation", "test"]
    whole = rb.Predictions(list("abcde"), [0, 1, 0, 1, 1], [0.5] * 5, split=split)
    part = whole.select(split="test")
    assert [whole.file_row(k) for k in range(5)] == [1, 2, 3, 4, 5]
    assert [part.file_row(k) for k in range(3)] == [2, 3, 5]
    assert [part.take([2, 0]).file_row(k) for k in range(2)] == [5, 2]


N = 40
RNG = np.random.default_rng(3)
GRADE = RNG.integers(0, 5, N)
LABEL = (GRADE >= 2).astype(int)
IDS = [f"i{k}" for k in range(N)]
LOGITS = RNG.normal(0, 2, (N, 5))


def test_softmax_sums_the_referable_classes():
    five, two = reference(LOGITS, axis=1), reference(LOGITS[:, :2], axis=1)
    found = rb.Predictions.from_softmax(five, IDS, grades=GRADE)
    np.testing.assert_allclose(found.prob, five[:, 2:].sum(axis=1), rtol=1e-14)
    assert found.label.tolist() == LABEL.tolist()
    assert found.grade.tolist() == GRADE.tolist()
    np.testing.assert_allclose(found.grade_prob, five, rtol=1e-14)
    assert found.records()[3]["grade_prob_4"] == found.take([3]).grade_prob[0, 4]
    np.testing.assert_allclose(rb.Predictions.from_softmax(two, IDS, LABEL).prob, two[:, 1], rtol=1e-14)
    three = reference(LOGITS[:, :3], axis=1)
    found = rb.Predictions.from_softmax(three, IDS, LABEL, referable_from=1, patient_id=IDS)
    np.testing.assert_allclose(found.prob, three[:, 1:].sum(axis=1), rtol=1e-14)
    assert rb.Predictions.from_softmax(five, IDS, LABEL, grades=True).grade is None


def test_samples_of_softmax_and_printed_digits_that_are_divided_by_their_sum():
    logits = RNG.normal(0, 2, (N, 7, 5))
    found = rb.Predictions.from_softmax(reference(logits, axis=2), IDS, LABEL)
    np.testing.assert_allclose(found.probs, reference(logits, axis=2)[..., 2:].sum(axis=2), rtol=1e-13)
    np.testing.assert_allclose(found.grade_prob, reference(logits, axis=2).mean(axis=1), rtol=1e-13)
    five = reference(LOGITS, axis=1).round(2)
    found = rb.Predictions.from_softmax(five, IDS, LABEL)
    np.testing.assert_allclose(found.prob, five[:, 2:].sum(axis=1) / five.sum(axis=1), rtol=1e-14)


def test_another_lowest_grade_makes_the_label_and_is_kept(tmp_path):
    found = rb.Predictions.from_softmax(reference(LOGITS, axis=1), IDS, grades=GRADE, referable_from=3)
    assert found.label.tolist() == (GRADE >= 3).tolist()
    rb.write_predictions(found, tmp_path / "p.parquet")
    assert rb.read_predictions(tmp_path / "p.parquet").label.tolist() == found.label.tolist()


def test_without_ids_the_images_are_named_by_their_row():
    found = rb.Predictions.from_softmax([[0.9, 0.1], [0.2, 0.8]], label=[0, 1])
    assert found.image_id.tolist() == ["1", "2"]
    assert "named by their row" in found.notes[0]


def test_logits():
    one = LOGITS[:, 0]
    for shaped in (one, one[:, None]):
        np.testing.assert_allclose(rb.Predictions.from_logits(shaped, IDS, LABEL).prob, expit(one), rtol=1e-12)
    np.testing.assert_allclose(
        rb.Predictions.from_logits(LOGITS, IDS, LABEL).prob, reference(LOGITS, axis=1)[:, 2:].sum(axis=1), rtol=1e-12
    )
    samples = RNG.normal(0, 2, (N, 3, 1))
    found = rb.Predictions.from_logits(samples, IDS, LABEL)
    np.testing.assert_allclose(found.probs, expit(samples[..., 0]), rtol=1e-12)
    assert rb.Predictions.from_logits([-800.0, 800.0], ["a", "b"], [0, 1]).prob.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("probs", "more", "message"),
    [
        ([[0.9, 0.2], [0.2, 0.8]], {"label": [0, 1]}, "row 1, column 'probs': sums to 1.1 over the classes"),
        ([[2.0, -1.0], [0.2, 3]], {"label": [0, 1]}, "Are they logits"),
        ([[0.2, 0.3, 0.5]], {"label": [0]}, "has 3 classes, and it is not said which are referable"),
        ([[0.2, 0.8]], {"label": [0], "referable_from": 2}, "has 2 classes: none is below"),
        ([[0.2, 0.8]], {"label": [0], "referable_from": 0}, "none is below, or none from, class 0 on"),
        ([[0.2, 0.8]], {}, "column 'label': is missing"),
        ([0.2, 0.8], {"label": [0, 1]}, "column 'probs': has shape (2,)"),
        ([[0.2, 0.8]], {"label": [0], "grades": True}, "there are five grades"),
        (np.zeros((1, 0)), {"label": [0]}, "has 0 classes"),
    ],
)
def test_what_is_no_softmax_is_refused(probs, more, message):
    with pytest.raises(InputError) as caught:
        rb.Predictions.from_softmax(probs, **more)
    assert message in str(caught.value)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    logits = torch.tensor(LOGITS, dtype=torch.float32, requires_grad=True)
    probs = torch.softmax(logits, 1)
    want = reference(np.float32(LOGITS), axis=1)[:, 2:].sum(axis=1)
    label = torch.tensor(LABEL)
    for found in (
        rb.Predictions.from_torch(IDS, label, logits=logits),
        rb.Predictions.from_torch(IDS, label, softmax=probs),
        rb.Predictions.from_torch(IDS, label, probs=probs[:, 2:].sum(1)),
        rb.Predictions(IDS, label, probs[:, 2:].sum(1), grade=torch.tensor(GRADE)),
        rb.Predictions(IDS, list(label), list(probs[:, 2:].sum(1))),
    ):
        assert found.probs.dtype == np.float64
        np.testing.assert_allclose(found.prob, want, atol=1e-6)  # single precision
        assert found.label.tolist() == LABEL.tolist()
    half = rb.Predictions.from_torch(IDS, label, logits=logits.bfloat16())
    np.testing.assert_allclose(half.prob, want, atol=0.02)  # 8 bits of mantissa on logits up to 6
    for kinds in ({}, {"probs": probs, "logits": logits}):
        with pytest.raises(InputError, match="exactly one"):
            rb.Predictions.from_torch(IDS, label, **kinds)


COLUMNS = {
    "filename": IDS, "y_true": LABEL.tolist(), "y_score": RNG.random(N).tolist(),
    "Patient_ID": [f"P{k // 2}" if k else None for k in range(N)], "camera": ["A", "B"] * (N // 2),
    "age": [40.0 + k if k else None for k in range(N)],
}  # fmt: skip


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS), pl.LazyFrame(COLUMNS), pa.table(COLUMNS)],
    ids=["pandas", "polars", "lazy polars", "Arrow"],
)
def test_data_frames(frame):
    found = rb.Predictions.from_dataframe(frame)
    assert found.image_id.tolist() == IDS
    assert found.prob.tolist() == COLUMNS["y_score"]
    assert found.patient_id.tolist() == ["image i0", *COLUMNS["Patient_ID"][1:]]
    assert found.subgroups["camera"].tolist() == COLUMNS["camera"]
    np.testing.assert_array_equal(found.subgroups["age"], [np.nan, *COLUMNS["age"][1:]])
    assert found.notes[0].startswith("read 'filename' as image_id, 'y_true' as label, 'y_score' as prob")


def test_data_frames_with_options_and_types():
    probs = {f"prob_{k}": v for k, v in enumerate(reference(LOGITS, axis=1).T)}
    frame = pd.DataFrame({"id": IDS, "level": GRADE, **probs})
    frame["site"] = pd.Categorical(["x", "y"] * (N // 2))
    frame["seen"] = pd.Timestamp("2026-03-01")
    found = rb.Predictions.from_dataframe(frame, columns={"grade": "level"}, grades=True, method="Ours", seed=4)
    assert found.label.tolist() == LABEL.tolist()
    assert (found.metadata["title"], found.metadata["seed"]) == ("Ours", 4)
    assert found.subgroups["site"].tolist() == ["x", "y"] * (N // 2)
    assert found.subgroups["seen"][0] == "2026-03-01"
    for wrong in ([1, 2], {"a": 1}, None):
        with pytest.raises(InputError, match="cannot be read as a table"):
            rb.Predictions.from_dataframe(wrong)
    with pytest.raises(InputError, match=r"row 1, column 'y \(label\)': is 3"):
        rb.Predictions.from_dataframe(pd.DataFrame({"id": ["a"], "y": [3.0], "p": [0.2]}))


def test_an_index_with_a_name_and_lists_of_samples():
    frame = pd.DataFrame({"label": [0, 1], "prob": [0.1, 0.8]}, index=pd.Index(["a", "b"], name="image_id"))
    assert rb.Predictions.from_dataframe(frame).image_id.tolist() == ["a", "b"]
    frame.index = pd.RangeIndex(5, 7, name="image_id")
    assert rb.Predictions.from_dataframe(frame).image_id.tolist() == ["5", "6"]
    samples = {"image_id": ["a", "b"], "label": [0, 1], "probs": [[0.1, 0.2], [0.8, 0.7]]}
    for made in (pd.DataFrame(samples), pl.DataFrame(samples)):
        assert rb.Predictions.from_dataframe(made).probs.tolist() == samples["probs"]
    with pytest.raises(InputError, match="class probabilities"):
        rb.Predictions.from_dataframe(pl.DataFrame({**samples, "probs": [[0.1, 0.9], [0.8, 0.2]]}))


def test_columns_of_pandas_are_arrays():
    frame = pd.DataFrame({"id": ["a", "b"], "y": [0, 1], "p": [0.1, 0.8], "site": pd.Categorical(["x", "y"])})
    patient = pd.Series([1, None], dtype="Int64")
    found = rb.Predictions(frame.id, frame.y, frame.p, patient_id=patient, subgroups={"site": frame.site})
    assert found.patient_id.tolist() == ["1", "image b"]
    assert found.subgroups["site"].tolist() == ["x", "y"]


def test_a_frame_reads_as_the_same_table_written_as_csv(tmp_path):
    words = ["True", "False"] * (N // 2)
    frame = pd.DataFrame({"image_id": IDS, "label": words, "prob": np.linspace(0, 1, N)})
    frame["grade"] = ["NA", "0"] * (N // 2)
    frame.to_csv(tmp_path / "p.csv", index=False)
    want = rb.read_predictions(tmp_path / "p.csv")
    categories = frame.astype({"label": "category", "grade": "category", "prob": "category"})
    numbers = frame.assign(label=(frame.label == "True").astype(int)).astype({"label": "category"})
    for one in (frame, categories, numbers, pl.DataFrame(frame.to_dict("list"))):
        found = rb.Predictions.from_dataframe(one)
        assert found.label.tolist() == want.label.tolist()
        assert found.prob.tolist() == want.prob.tolist()
        assert found.grade.tolist() == want.grade.tolist()


def test_long_ids_that_a_missing_cell_made_floats_are_refused_and_as_text_are_kept():
    ids = 10**17 + np.arange(N) // 2
    frame = pd.DataFrame({"image_id": IDS, "label": LABEL, "prob": np.linspace(0, 1, N), "patient_id": ids})
    whole = frame.astype({"patient_id": "Int64"})
    whole.loc[3, "patient_id"] = pd.NA
    assert len(set(rb.Predictions.from_dataframe(whole).patient_id)) == N // 2 + 1
    for kind in ("float64", "float32"):
        with pytest.raises(InputError, match=r"row 1, column 'patient_id': is the floating-point number .*as text"):
            rb.Predictions.from_dataframe(whole.astype({"patient_id": kind}))
