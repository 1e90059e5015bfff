import gc
import json
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from retinabench.core.errors import InputError
from retinabench.data.dataset import make_records
from retinabench.data.easy_images import EASY_PARTS
from retinabench.data.prepared import PreparedSettings, fingerprint, mapped_shard, open_data, open_prepared, write_shard
from support.helpers import make_prepared

IMAGES = np.arange(3 * 4 * 4 * 3, dtype=np.uint8).reshape(3, 4, 4, 3)


def test_a_shard_is_the_array_that_was_written(tmp_path):
    path = tmp_path / "images-00000.npy"
    write_shard(path, list(IMAGES))
    np.testing.assert_array_equal(mapped_shard(path, 4), IMAGES)
    np.testing.assert_array_equal(np.load(path), IMAGES)
    with pytest.raises(ValueError, match="holds uint8 of shape"):
        mapped_shard(path, 8)
    with pytest.raises(ValueError, match="in a shard of"):
        write_shard(path, [IMAGES[0], IMAGES[0, :2]])
    with pytest.raises(ValueError, match="in a shard of"):
        write_shard(path, IMAGES.astype(np.int16))


def test_the_fingerprint_knows_every_pixel_and_record(tmp_path):
    path, records = tmp_path / "images-00000.npy", make_records("abc", [0] * 3, split="test")
    write_shard(path, IMAGES)
    first = fingerprint(records, [path])
    assert fingerprint(records.take([0, 1]), [path]) != first
    write_shard(path, IMAGES + np.uint8(1))
    assert fingerprint(records, [path]) != first


SETTINGS = {"dataset": "folder", "size": 64, "preprocess": "graham", "blur": 30, "published": False,
            "source": "images (ab)", "label_table": "cd", "columns": {"grade": "icdr"}}  # fmt: skip


def test_copies_with_damage_have_the_same_patients():
    whole = PreparedSettings.model_validate(SETTINGS)
    damaged = PreparedSettings.model_validate(SETTINGS | {"corrupt": "blur:3"})
    assert whole.same_source(damaged)
    assert not whole.same_source(whole)
    assert not whole.same_source(PreparedSettings.model_validate({"dataset": "folder", "corrupt": "blur:3"}))
    assert whole.other_pixels(damaged) == []
    assert whole.other_pixels(PreparedSettings()) == ["preprocess", "blur", "published"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        *(("shards", [name], "not a name in it") for name in ("../other/images-00000.npy", "/etc/hostname")),
        ("shards", ["link.npy"], "leads out of its folder"),
        *(("size", size, "is damaged") for size in (10**9, 16, "8")), ("name", "a\nb", "is damaged"),
        ("shards", 3, "is damaged"), ("shards", [None], "is damaged"), ("settings", {"columns": 1}, "is damaged"),
    ],
)  # fmt: skip
def test_a_manifest_that_leads_elsewhere_or_claims_what_is_not_there_is_one_line(tmp_path, key, value, says):
    folder = make_prepared(tmp_path / "data", size=8)
    make_prepared(tmp_path / "other", size=8)
    (folder / "link.npy").symlink_to(tmp_path / "other" / "images-00000.npy")
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    about = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").write_text(json.dumps({**about, key: value}))
    with pytest.raises(InputError, match=says):
        open_prepared(folder)


OURS = (("in_domain", "train", 64), ("in_domain", "validation", 24), ("in_domain", "test", 32))
THEIRS = (("in_domain", "validation", 20), ("in_domain", "test", 26), ("in_domain", "train", 10))


@pytest.fixture
def folders(tmp_path):
    ours = make_prepared(tmp_path / "ours", parts=OURS)
    theirs = make_prepared(tmp_path / "theirs", parts=THEIRS, seed=1)
    about = theirs / "dataset.json"
    about.write_text(about.read_text().replace('"patches"', '"theirs"'))
    return ours, theirs


def test_every_picture_keeps_its_row_whatever_the_shards(folders):
    ours, theirs = map(open_prepared, folders)
    joined = open_data(*folders)
    n = len(ours.records)
    assert joined.name == "patches+theirs"
    assert np.array_equal(joined.images(np.arange(n)), ours.images(np.arange(n)))
    rows = [55, 0, 13]
    assert np.array_equal(joined.images([n + k for k in rows]), theirs.images(rows))
    assert np.array_equal(
        joined.images([n + 3, 2, n + 1]), np.stack([theirs.images([3])[0], ours.images([2])[0], theirs.images([1])[0]])
    )
    assert set(joined.records.domain[n:]) == {"shifted"}
    assert np.array_equal(joined.records.grade[n:], theirs.records.grade)


def test_it_travels_to_another_process_whole(folders):
    joined = replace(open_data(*folders), referable_from=1)
    sent = pickle.dumps(joined)
    assert len(sent) < 1000  # paths, not images
    again = pickle.loads(sent)
    assert again.fingerprint == joined.fingerprint
    assert np.array_equal(again.label, joined.label)
    rows = [0, 119, 120, 150]
    assert np.array_equal(again.images(rows), joined.images(rows))


def test_shared_ids_get_the_name_of_their_data_set(folders):
    ours, theirs = map(open_prepared, folders)
    joined = open_data(*folders).records
    n = len(ours.records)
    assert np.array_equal(joined.image_id[:n], ours.records.image_id)
    assert joined.image_id[n:].tolist() == [f"theirs:{name}" for name in theirs.records.image_id]
    assert not set(joined.patient_id[:n]) & set(joined.patient_id[n:])


def test_sets_that_do_not_fit_are_refused(folders, tmp_path):
    ours, theirs = folders
    with pytest.raises(InputError, match="the same data"):
        open_data(ours, ours)
    other = make_prepared(tmp_path / "other", size=24, parts=THEIRS)
    with pytest.raises(InputError, match=r"24 px, .* of 16 px.*--size 16"):
        open_data(ours, other)
    about = json.loads((theirs / "dataset.json").read_text())
    for setting, value in (("preprocess", "graham"), ("blur", 10), ("published", True)):
        settings = about.get("settings", {}) | {setting: value}
        (theirs / "dataset.json").write_text(json.dumps(about | {"settings": settings}))
        with pytest.raises(InputError, match=f"prepared with another {setting} than"):
            open_data(ours, theirs)
    with pytest.raises(InputError, match="not a folder"):
        open_data(ours, tmp_path / "nowhere")


@pytest.mark.parametrize(
    "damage", ["a shard that begins as an archive", "a shard with a header of Python 2", "image ids that repeat"]
)
def test_damage_that_no_checksum_tells_is_one_line_with_its_place(tmp_path, damage, recwarn):
    folder = make_prepared(tmp_path / "data", size=8)
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    shard = folder / "images-00000.npy"
    if damage.endswith("an archive"):
        shard.write_bytes(b"PK\x03\x04" + shard.read_bytes())
    elif damage.endswith("Python 2"):
        shard.write_bytes(shard.read_bytes().replace(b", 3), } ", b", 3L), }"))
    else:
        table = pa.parquet.read_table(folder / "records.parquet")
        names = pa.array(["same"] * len(table))
        pa.parquet.write_table(table.set_column(0, "image_id", names), folder / "records.parquet")
    with pytest.raises(InputError, match=f"^{folder}: is damaged"):
        open_prepared(folder)
    gc.collect()  # what were left open would be closed here, with a warning
    assert not recwarn


def test_referable_images_have_the_bright_patch(tmp_path):
    data = open_prepared(make_prepared(tmp_path / "easy"))
    for domain, split, count in EASY_PARTS:
        of_part = (data.records.domain == domain) & (data.records.split == split)
        assert of_part.sum() == count
        assert len(np.unique(data.records.patient_id[of_part])) == count // 2
    patch = data.images(np.arange(len(data.records)))[:, 4:9, 4:9].astype(int)
    assert ((patch.min(axis=(1, 2, 3)) >= 140) == data.label).all()
