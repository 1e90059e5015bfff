import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from retinabench.core.random_streams import numpy_generator
from retinabench.data.loader import Batches, ImageSource, array_batches
from retinabench.data.prepared.folder import open_prepared
from support.helpers import make_prepared


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return open_prepared(make_prepared(tmp_path_factory.mktemp("loader") / "data"))


def batches(data, rows=64, size=16, seed=0, augment="none", workers=0, standardise=False):
    train, validation = np.arange(rows), np.arange(64, 88)
    source = ImageSource(data, torch.device("cpu"), train if standardise else None, workers)
    return Batches(source, train, validation, size, seed, augment)


def collect(loader, epoch):
    images, labels = zip(*loader.epoch(epoch), strict=True)
    return torch.cat(images), torch.cat(labels)


def test_an_epoch_shows_every_picture_once_as_it_is_stored(data):
    images, labels = collect(batches(data), 0)
    assert images.shape == (64, 3, 16, 16)
    stored = torch.from_numpy(data.images(np.arange(64))).permute(0, 3, 1, 2).float() / 255
    order = [int((stored == image).flatten(1).all(1).nonzero()) for image in images]
    assert sorted(order) == list(range(64))
    assert torch.equal(labels, torch.from_numpy(data.label[order].astype(np.float32)))


@pytest.mark.parametrize("augment", ["none", "flip", "affine"])
def test_order_and_augmentation_depend_on_seed_and_epoch_alone(data, augment):
    first = collect(batches(data, augment=augment), 3)[0]
    torch.manual_seed(int(np.random.default_rng().integers(1 << 30)))
    assert torch.equal(first, collect(batches(data, augment=augment), 3)[0])
    assert not torch.equal(first, collect(batches(data, augment=augment), 4)[0])
    assert not torch.equal(first, collect(batches(data, augment=augment, seed=1), 3)[0])


@pytest.mark.parametrize(("rows", "ranks"), [(64, 2), (40, 3), (34, 4)])
def test_processes_share_every_batch_of_the_one_order(data, rows, ranks):
    whole = list(batches(data, rows=rows).epoch(2))
    shares = [list(batches(data, rows=rows).epoch(2, rank, ranks)) for rank in range(ranks)]
    assert {len(share) for share in shares} == {len(whole)}
    for step, (images, labels) in enumerate(whole):
        assert torch.equal(torch.cat([share[step][0] for share in shares]), images)
        assert torch.equal(torch.cat([share[step][1] for share in shares]), labels)
    # Of a last batch of two, some of four processes get none.
    small = [len(list(batches(data, rows=18, size=16).epoch(0, rank, 4))[-1][1]) for rank in range(4)]
    assert small == [1, 1, 0, 0]


def test_processes_mirror_with_noise_of_their_own(data):
    plain, mirrored = (
        [list(batches(data, augment=kind).epoch(0, rank, 2)) for rank in (0, 1)] for kind in ("none", "flip")
    )
    changed = [
        [
            not torch.equal(a, b)
            for (x, _), (y, _) in zip(one, two, strict=True)
            for a, b in zip(x, y, strict=True)
        ]
        for one, two in zip(plain, mirrored, strict=True)
    ]
    # 32 images each, of which 3/4 are mirrored somehow: the same pattern twice by chance has probability 3e-7.
    assert changed[0] != changed[1]


def test_standardised_channels_have_mean_0_and_deviation_1_over_the_training_pictures(data):
    images, _ = collect(batches(data, standardise=True), 0)
    assert torch.allclose(images.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-4)
    assert torch.allclose(images.std(dim=(0, 2, 3)), torch.ones(3), atol=1e-3)


def test_workers_change_nothing_and_live_on(data):
    """The same pictures in the same order, also after a pass that was left, and in one within another."""
    alone, helped = (batches(data, augment="affine", workers=workers) for workers in (0, 1))
    assert torch.equal(collect(alone, 0)[0], collect(helped, 0)[0])
    reading = helped.source._kept.reader._iterator._workers[0].pid
    next(helped.epoch(2))  # as a probe does
    outer = helped.epoch(1)
    first = next(outer)[0]
    whole, inner = collect(alone, 1)[0], torch.cat([x for x, _ in helped.rows(np.arange(70, 75))])
    assert torch.equal(inner, torch.cat([x for x, _ in alone.rows(np.arange(70, 75))]))
    assert torch.equal(torch.cat([first, *(x for x, _ in outer)]), whole)
    assert helped.source._kept.reader._iterator._workers[0].pid == reading


def test_a_prepared_folder_travels_to_a_worker_as_a_path(data):
    parcel = pickle.dumps(data)
    assert len(parcel) < 1000
    again = pickle.loads(parcel)
    assert np.array_equal(again.images([87, 3]), data.images([87, 3]))


@pytest.mark.parametrize("augment", ["none", "flip", "affine"])
def test_pictures_stay_in_channels_last_layout(data, augment):
    images, _ = next(batches(data, augment=augment).epoch(0))
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_stored_pictures_travel_as_bytes(data):
    pictures, labels = next(batches(data).source.stored([np.arange(5)]))
    assert pictures.dtype == torch.uint8
    assert np.array_equal(pictures.numpy(), data.images(np.arange(5)))
    assert np.array_equal(labels.numpy(), data.label[:5])


def test_an_affine_view_does_not_depend_on_how_the_epoch_is_cut_into_batches(data):
    def epoch(size):
        train = replace(batches(data, augment="affine"), batch_size=size)
        return collect(train, 2)[0]

    # The same numbers reach the same image; sums of another vector length may round differently.
    assert torch.allclose(epoch(16), epoch(64), atol=1e-6)


@pytest.mark.parametrize(("rows", "sizes"), [(33, [16, 17]), (32, [16, 16]), (40, [16, 16, 8]), (1, [1])])
def test_no_batch_of_one_is_left_over(data, rows, sizes):
    loader = batches(data, rows=rows)
    assert [len(labels) for _, labels in loader.epoch(0)] == sizes
    assert loader.steps == len(sizes)


def test_arrays_are_served_by_the_same_class_on_the_same_order(data):
    """All rows train, none is held out, and the order is that of a prepared folder with the same seed."""
    inputs = np.arange(130, dtype=np.float32).reshape(65, 2)
    classes = np.arange(65) % 3
    arrays = array_batches(inputs, classes, 16, 3, torch.device("cpu"))
    assert arrays.steps == 4
    assert list(arrays.rows(arrays.validation)) == []
    seen = list(arrays.epoch(1))
    assert [len(labels) for _, labels in seen] == [16, 16, 16, 17]
    order = torch.cat([batch[:, 0] for batch, _ in seen]).numpy().astype(int) // 2
    assert np.array_equal(order, numpy_generator(3, "order", 1).permutation(65))
    assert torch.equal(torch.cat([labels for _, labels in seen]), torch.from_numpy(classes[order]))
    shares = [list(arrays.epoch(1, rank, 2)) for rank in (0, 1)]
    assert torch.equal(torch.cat([shares[0][0][0], shares[1][0][0]]), seen[0][0])
    assert arrays.targets(np.array([4, 1])).tolist() == [1, 1]
    (whole,) = arrays.rows(np.array([2, 0]))
    assert whole[0].tolist() == [[4.0, 5.0], [0.0, 1.0]]
