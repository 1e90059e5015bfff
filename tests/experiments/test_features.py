import json
import shutil

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.data.prepared import open_data, open_prepared
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.features import Extractor, cached_features, feature_scale, feature_source
from retinabench.experiments.predict import predict_on
from retinabench.experiments.run import execute
from retinabench.models.build import build_model
from retinabench.models.last_layer import SplitNetwork, split_last_layer
from retinabench.models.settings import ModelConfig
from retinabench.predictions.io import read_predictions
from support.helpers import make_prepared

NET = {"name": "resnet18", "width": 4, "stem": "small"}
CPU = Resources("cpu")


@pytest.fixture
def weights(tmp_path):
    torch.save(build_model(ModelConfig(**NET), seed=7).state_dict(), tmp_path / "w.pt")
    return tmp_path / "w.pt"


def frozen(weights, data, *more):
    words = [
        "model.name=resnet18", "model.width=4", "model.stem=small", f"model.weights={weights}", "model.trained=head",
        "optimizer.augment=none", "optimizer.epochs=3", "optimizer.batch_size=16", "optimizer.select=last",
    ]  # fmt: skip
    return load_run(None, [*words, *more], data=str(data))


def test_features_are_the_trunks_standardised_over_the_training_images(tmp_path, weights):
    task = load_task(make_prepared(tmp_path / "data"))
    run = frozen(weights, task.data.folder, "model.inputs=unit")
    train = task.splits["train"]
    source, *_ = feature_source(run.model, task.data, train, torch.device("cpu"))
    network = build_model(ModelConfig(**NET), seed=7).eval()
    images = torch.from_numpy(task.data.images(np.arange(len(task)))).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        features = split_last_layer(network).features(images).numpy()
    expected = (features - features[train].mean(0)) / feature_scale(features[train])[1]
    # A standardised feature divides the rounding of the batches by its spread over the images, which may be small.
    assert np.allclose(source.inputs.numpy(), expected, atol=1e-2)
    assert np.array_equal(source.labels.numpy(), task.data.label)


def test_features_are_computed_with_fewer_images_at_a_time_where_memory_runs_out(weights, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    config = ModelConfig(**NET, weights=str(weights), trained="head", inputs="unit")
    whole = Extractor(config, torch.device("cpu"))(images)
    features = SplitNetwork.features

    def short(self, images):
        if len(images) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return features(self, images)

    monkeypatch.setattr(SplitNetwork, "features", short)
    extract = Extractor(config, torch.device("cpu"))
    assert np.allclose(extract(images), whole, rtol=1e-4, atol=1e-5)  # convolutions round by the size of the batch
    assert extract.limits.prediction == 2


def test_weights_whose_features_overflow_are_named_and_nothing_is_stored(tmp_path, weights):
    state = torch.load(weights, weights_only=True)
    name = next(key for key in state if key.endswith("running_var"))
    torch.save({**state, name: -torch.ones_like(state[name])}, weights)  # finite, with a root that is not
    data = make_prepared(tmp_path / "data")
    with pytest.raises(InputError, match=r"w\.pt: the weights give features.*not finite.*another checkpoint"):
        execute(frozen(weights, data), tmp_path / "runs", CPU)
    assert not list(data.glob("features-*/*.npy"))


def test_a_feature_that_is_constant_over_the_training_images_explodes_in_no_other():
    """The last two features are those of rectifiers that are (nearly) always off."""
    features = np.zeros((100, 4), np.float32)
    features[::2, 0], features[::2, 1], features[0, 2] = 1, -1, 1e-3
    mean, std = feature_scale(features)
    assert mean.dtype == std.dtype == np.float32
    assert np.allclose(mean, features.mean(axis=0))
    assert np.allclose(std[:2], 0.5)
    assert np.allclose(std[2:], 0.1 * features.std(axis=0).mean())
    assert np.array_equal(feature_scale(np.zeros((5, 2), np.float32))[1], np.full(2, 1e-6, np.float32))


def test_a_finished_head_predicts_other_images_without_the_file_of_the_weights(tmp_path, weights):
    data, other = (make_prepared(tmp_path / name, seed=seed) for seed, name in enumerate(("data", "other")))
    run = frozen(weights, data)
    folder = execute(run, tmp_path / "runs", CPU)
    own = read_predictions(folder / "predictions.parquet")
    predictions = read_predictions(predict_on(folder, other, tmp_path / "p.parquet", CPU))
    assert set(predictions.domain) == {"in_domain", "shifted"}
    kept = dict(zip(own.image_id, own.prob, strict=True))
    mine = predictions.select(domain="in_domain", split="test")
    assert np.array_equal(mine.prob, [kept[name] for name in mine.image_id])
    weights.unlink()  # its features are in the cache
    assert execute(run, tmp_path / "runs", CPU) == folder
    assert json.loads((folder / "run.json").read_text())["run"]["model"]["weights_sha256"]


def test_the_hash_of_a_run_holds_the_content_of_the_weights_not_their_path(tmp_path, weights):
    moved = tmp_path / "moved.pt"
    moved.write_bytes(weights.read_bytes())
    other = tmp_path / "other.pt"
    torch.save(build_model(ModelConfig(**NET), seed=8).state_dict(), other)
    hashes = [frozen(path, "data").hash("f") for path in (weights, moved, other)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["method=lora_ensemble"], "'lora_ensemble' needs images"),
        (["method=tta"], "'tta' needs images, and the inputs are features.*train more than the head"),
        (["optimizer.augment=flip"], "these are features or rows of a table.*augment=none"),
        (["model.inputs=standardised"], "fixed scale"),
        (["model.weights=no/such.pt"], "no/such.pt: No such file"),
    ],
)
def test_what_a_head_cannot_do_is_said(tmp_path, weights, words, says):
    with pytest.raises(InputError, match=says):
        execute(frozen(weights, make_prepared(tmp_path / "data"), *words), tmp_path / "runs", CPU)


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


@pytest.mark.parametrize("name", ["00000.npy", "SHA256SUMS"])
def test_a_flipped_bit_is_found(tmp_path, name):
    data = open_prepared(make_prepared(tmp_path / "data"))
    cached_features(data, {"name": "means"}, means)
    (path,) = data.folder.glob(f"features-*/{name}")
    content = bytearray(path.read_bytes())
    content[-4 if name == "00000.npy" else 4] ^= 1  # the values stay finite; in the list, a digit of the first checksum
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged.*[Dd]elete"):
        cached_features(data, {"name": "means"}, means)
