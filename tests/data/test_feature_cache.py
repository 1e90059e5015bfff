import json
import shutil

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.feature_cache import cached_features
from retinabench.data.prepared.folder import open_data, open_prepared
from support.helpers import make_prepared


def means(images):
    means.calls += 1
    return images.mean(axis=(1, 2), dtype=np.float64).astype(np.float32)


@pytest.fixture(autouse=True)
def _uncalled():
    means.calls = 0


def test_features_are_computed_once_and_in_the_order_of_the_images(tmp_path):
    data = open_prepared(make_prepared(tmp_path / "data"))
    found = cached_features(data, {"name": "means"}, means)
    assert np.array_equal(found, means(data.images(np.arange(len(data)))))
    calls = means.calls
    assert np.array_equal(cached_features(data, {"name": "means"}, means), found)
    assert means.calls == calls
    cached_features(data, {"name": "others"}, means)  # another network has a cache of its own
    assert means.calls > calls
    assert len(list(data.folder.glob("features-*"))) == 2


def test_a_killed_computation_continues(tmp_path):
    data = open_prepared(make_prepared(tmp_path / "data"))
    whole = cached_features(data, {"name": "means"}, means)
    (folder,) = data.folder.glob("features-*")
    (folder / "done").unlink()
    (last := sorted(folder.glob("*.npy"))[-1]).unlink()
    means.calls = 0
    assert np.array_equal(cached_features(data, {"name": "means"}, means), whole)
    assert means.calls == -(-len(data.shards[-1]) // 32)
    assert last.is_file()


def test_merged_folders_keep_their_own_caches(tmp_path):
    folders = [make_prepared(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    both = open_data(*folders)
    found = cached_features(both, {"name": "means"}, means)
    assert np.array_equal(found, means(both.images(np.arange(len(both)))))
    assert all(len(list(folder.glob("features-*"))) == 1 for folder in folders)


def test_the_cache_of_another_network_in_the_place_of_this_one_is_refused(tmp_path):
    data = open_prepared(make_prepared(tmp_path / "data"))
    cached_features(data, {"name": "means"}, means)
    (mine,) = data.folder.glob("features-*")
    cached_features(data, {"name": "others"}, lambda images: means(images) + 1)
    (other,) = set(data.folder.glob("features-*")) - {mine}
    shutil.rmtree(mine)
    other.rename(mine)
    with pytest.raises(InputError, match=r"holds features of another network\.name.*Delete the folder"):
        cached_features(data, {"name": "means"}, means)


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None])
def test_a_damaged_cache_is_named(tmp_path, damage):
    data = open_prepared(make_prepared(tmp_path / "data"))
    cached_features(data, {"name": "means"}, means)
    (path,) = data.folder.glob("features-*/00000.npy")
    if damage is None:
        np.save(path, np.zeros((1, 3), np.float32))
    else:
        path.write_bytes(damage)
    with pytest.raises(InputError, match=r"00000.npy: is damaged.*Delete"):
        cached_features(data, {"name": "means"}, means)


def test_the_manifest_states_what_the_features_are_of(tmp_path):
    data = open_prepared(make_prepared(tmp_path / "data"))
    cached_features(data, {"name": "means"}, means)
    (path,) = data.folder.glob("features-*/manifest.json")
    manifest = json.loads(path.read_text())
    assert manifest["network"] == {"name": "means"}
    assert manifest["images"] == data.fingerprint


@pytest.mark.parametrize("name", ["00000.npy", "SHA256SUMS"])
def test_a_flipped_bit_is_found(tmp_path, name):
    data = open_prepared(make_prepared(tmp_path / "data"))
    cached_features(data, {"name": "means"}, means)
    (path,) = data.folder.glob(f"features-*/{name}")
    content = bytearray(path.read_bytes())
    content[-4 if name == "00000.npy" else 4] ^= (
        1  # the values stay finite; in the list, a digit of the first checksum
    )
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged.*[Dd]elete"):
        cached_features(data, {"name": "means"}, means)


def test_features_that_are_not_finite_are_named(tmp_path):
    data = open_prepared(make_prepared(tmp_path / "data"))
    with pytest.raises(InputError, match=r"00000.npy: is damaged \(holds values that are not finite\)"):
        cached_features(data, {"name": "nan"}, lambda images: np.full((len(images), 2), np.nan, np.float32))
