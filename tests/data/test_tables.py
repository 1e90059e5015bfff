import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cli.test_main import one_line
from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.data.prepared import open_prepared
from retinabench.data.tables import encode
from retinabench.data.tasks import load_task

ROWS = 60


def patients(rows=ROWS, **columns):
    random = np.random.default_rng(0)
    age = random.normal(50, 20, rows).round(1)
    found = {
        "id": [f"p{k:03d}" for k in range(rows)],
        "outcome": (np.arange(rows) % 4 == 0).astype(int),
        "age": [None if k % 7 == 3 else value for k, value in enumerate(age.tolist())],
        "pulse": random.normal(80, 10, rows).round(1),
        "mechanism": [
            None if k % 11 == 5 else word for k, word in enumerate(random.choice(["fall", "car", "stab"], rows))
        ],
        "sex": random.choice(["f", "m"], rows),
    }
    return pa.table(found | columns)


def write(table, path):
    (pa.parquet.write_table if path.suffix == ".parquet" else pa.csv.write_csv)(table, path)
    return path


def prepare(source, out, *more):
    words = ["--source", str(source), "--label", "outcome", "--patient", "id", "--out", str(out)]
    return run(["prepare", "table", *words, *more])


def test_inputs_are_those_of_scikit_learn_fitted_on_the_training_rows():
    table, train = patients().drop(["id", "outcome"]), np.arange(0, ROWS, 2)
    frame = table.to_pandas().astype({"mechanism": object})
    frame["mechanism"] = frame["mechanism"].fillna(np.nan)
    numbers, words = ["age", "pulse"], ["mechanism", "sex"]
    oracle = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (
            make_pipeline(
                SimpleImputer(strategy="most_frequent"),
                OneHotEncoder(sparse_output=False, drop="if_binary", handle_unknown="ignore"),
            ),
            words,
        ),
    ).fit(frame.iloc[train])
    age, pulse, *mechanism, sex = oracle.transform(frame).T
    age_gone, mechanism_gone = (frame[name].isna().to_numpy() for name in ("age", "mechanism"))
    wanted = np.stack([age, age_gone, pulse, *mechanism, mechanism_gone, sex], axis=1)
    np.testing.assert_allclose(encode(table, train), wanted, atol=1e-6)


def test_a_fold_that_tests_has_no_part_in_the_inputs_of_the_others():
    train, test = np.arange(40), np.arange(40, ROWS)
    before = patients().drop(["id", "outcome"])
    ages, words = before["age"].to_pylist(), before["mechanism"].to_pylist()
    wild = patients(age=[*ages[:40], *[1e6] * 20], mechanism=[*words[:40], *["volcano"] * 20]).drop(["id", "outcome"])
    one, other = encode(before, train), encode(wild, train)
    assert one.shape == other.shape
    np.testing.assert_array_equal(one[train], other[train])
    assert (other[test, 3:6] == 0).all()  # a word that no training row has


def test_what_does_not_vary_in_the_training_rows_is_left_out():
    table = pa.table({"a": [1.0, 1.0, 5.0], "b": ["x", "x", "y"], "c": [None, None, 3.0], "d": [0.0, 2.0, 1.0]})
    np.testing.assert_allclose(encode(table, np.arange(2)), [[-1], [1], [0]])
    with pytest.raises(InputError, match="no feature varies"):
        encode(table.select(["a", "b", "c"]), np.arange(2))


def test_csv_and_parquet_are_the_same_table(tmp_path, capsys):
    for kind in ("csv", "parquet"):
        source = write(patients(split=["train"] * 40 + ["val"] * 8 + ["test"] * 12), tmp_path / f"patients.{kind}")
        assert prepare(source, tmp_path / kind, "--split", "split") == 0
    assert "60 rows of 4 features" in capsys.readouterr().out
    one, other = (open_prepared(tmp_path / kind) for kind in ("csv", "parquet"))
    assert one.table.equals(other.table)
    np.testing.assert_array_equal(one.label, patients()["outcome"])
    task = load_task(tmp_path / "csv", "in_domain")
    assert {name: len(rows) for name, rows in task.splits.items()} == {"train": 40, "validation": 8, "test": 12}
    assert task.image_id[0] == task.patient_id[0] == "p000"


def test_a_column_named_label_is_found_and_rows_without_patients_have_their_numbers(tmp_path, capsys):
    renamed = patients().rename_columns(["id", "label", "age", "pulse", "mechanism", "sex"])
    source = write(renamed.drop(["id"]), tmp_path / "t.csv")
    assert run(["prepare", "table", "--source", str(source), "--out", str(tmp_path / "out")]) == 0
    assert "every row counts as a patient of its own" in capsys.readouterr().err
    task = load_task(tmp_path / "out", "in_domain")
    assert (task.image_id[-1], task["test"].grade) == ("60", None)


def test_a_folder_is_the_same_command_again_or_refused(tmp_path, capsys):
    source = write(patients(), tmp_path / "patients.csv")
    assert [prepare(source, tmp_path / "out") for _ in range(2)] == [0, 0]
    write(patients(pulse=np.arange(ROWS)), source)
    assert prepare(source, tmp_path / "out") == 2
    assert "another label_table" in one_line(capsys)


WORDS = [f"word {k}" for k in range(ROWS)]
BAD = {
    "a label that is neither 0 nor 1": ({"outcome": [2] + [0, 1] * 29 + [0]}, "row 1, column 'outcome': is 2, not 0 or 1"),
    "an empty label": ({"outcome": [None] + [0, 1] * 29 + [0]}, "row 1, column 'outcome': is empty"),
    "a label of words": ({"outcome": ["dead", *["yes", "no"] * 29, "no"]}, "is 'dead', not 0 or 1"),
    "one outcome only": ({"outcome": [0] * ROWS}, "'outcome': is 0 in every row"),
    "all different words": ({"mechanism": WORDS}, "'mechanism': holds 60 different words such as 'word 0', more than 50"),
    "a constant": ({"pulse": [7.0] * ROWS}, "column 'pulse': is '7.0' in every row"),
    "nothing": ({"pulse": [None] * ROWS}, "column 'pulse': is empty in every row"),
    "infinity": ({"pulse": [float("inf")] * ROWS}, "column 'pulse': holds an infinite number"),
    "a copy of the label": ({"pulse": patients()["outcome"]}, "column 'pulse': equals the label in every row"),
    "a patient twice": ({"id": ["p1", "p1", *WORDS[2:]]}, "row 2, column 'id': repeats 'p1' of row 1. Write one row per patient"),
    "a patient without id": ({"id": ["", *WORDS[1:]]}, "row 1, column 'id': is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_in_one_line(name, tmp_path, capsys):
    columns, message = BAD[name]
    # A CSV cannot tell infinity from a word, and Arrow writes an empty text as one that is there.
    source = write(patients(**columns), tmp_path / f"patients.{'parquet' if name == 'infinity' else 'csv'}")
    assert prepare(source, tmp_path / "out") == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--features", "age,outcome"], "column 'outcome': is the label, and cannot be a feature"),
        (["--features", "id"], "column 'id': is the patient, and cannot be a feature"),
        (["--features", "age,agee"], "column 'agee': is missing. Did you mean 'age'?"),
        (["--features", "age,age"], "column 'age': is named twice"),
        (["--split", "sex"], "row 1, column 'sex': is 'f'"), (["--column", "grade=age"], "unknown role 'grade'"),
        (["--label", "death"], "column 'death': is missing"),
        (["--images", "500"], "--images and --seed draw a table"), (["--corrupt", "dark:1"], "belong to images"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused_in_one_line(words, message, tmp_path, capsys):
    source = write(patients(), tmp_path / "patients.csv")
    assert prepare(source, tmp_path / "out", *words) == 2
    assert message in one_line(capsys)


def test_a_workbook_is_refused_and_categories_are_named(tmp_path, capsys):
    (tmp_path / "patients.xlsx").write_bytes(b"PK\x03\x04 and so on")
    assert prepare(tmp_path / "patients.xlsx", tmp_path / "out") == 2
    assert "is a zip archive, such as an Excel file. Save the table as 'CSV UTF-8'" in one_line(capsys)
    pulse = ["unknown" if k == 9 else str(60 + k % 30) for k in range(ROWS)]
    assert prepare(write(patients(pulse=pulse), tmp_path / "patients.csv"), tmp_path / "out") == 0
    assert "categories (number of different values): pulse (31), mechanism (4), sex (2)" in capsys.readouterr().err


def test_patients_with_several_rows_stay_together(tmp_path):
    source = write(patients(visit=WORDS, id=[f"p{k // 3}" for k in range(ROWS)]), tmp_path / "visits.csv")
    assert prepare(source, tmp_path / "out", "--column", "image=visit", "--features", "age,pulse") == 0
    task = load_task(tmp_path / "out", "in_domain").in_fold(5, 0, 0)
    parts = {name: set(task.patient_id[rows]) for name, rows in task.splits.items()}
    assert not parts["train"] & parts["test"]
    assert len(parts["test"]) == 4


def test_the_drawn_table_has_the_counts_of_the_poster_and_a_known_risk(tmp_path, capsys):
    out = tmp_path / "drawn"
    assert run(["prepare", "table", "--images", "20000", "--seed", "1", "--out", str(out)]) == 0
    data = open_prepared(out)
    risk, label = data.records.p_referable, data.label
    assert data.table.num_columns == 30
    assert risk.mean() == pytest.approx(0.04, abs=1e-9)
    # The outcome is drawn from the risk: in each tenth of it, within four standard errors.
    for rows in np.array_split(np.argsort(risk), 10):
        error = np.sqrt((risk[rows] * (1 - risk[rows])).sum()) / len(rows)
        assert label[rows].mean() == pytest.approx(risk[rows].mean(), abs=4 * error)
    missing = {name: data.table[name].null_count / 20000 for name in data.table.column_names}
    assert missing["lactate"] == pytest.approx(0.3, abs=0.02)
    assert sum(share > 0 for share in missing.values()) == 7
