import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from retinabench.core.errors import OutOfMemoryError, Quiet
from retinabench.core.random_streams import numpy_generator
from retinabench.data import loader as module
from retinabench.data.loader import FILE, BatchLimits, affine_matrices, flip, is_out_of_memory, keep_limits, with_less
from retinabench.data.prepared import open_prepared
from support.helpers import make_prepared

CPU = torch.device("cpu")


@pytest.mark.parametrize("seed", range(4))
def test_a_view_equals_scipy_s_sampling_of_rotation_after_shift_after_zoom_after_mirroring(seed):
    uniform = torch.rand((1, 7), generator=torch.Generator().manual_seed(seed))
    u = 2 * uniform[0].double().numpy() - 1
    angle, shift, zoom = math.pi * u[0], 32 * 25 / 512 * u[1:3], 1 + 0.1 * u[3:5]
    mirror = np.where(u[5:7] < 0, -1, 1)
    rows, columns = np.mgrid[:32, :32] - 15.5  # from the middle
    x, y = zoom[0] * mirror[0] * columns + shift[0], zoom[1] * mirror[1] * rows + shift[1]
    x, y = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
    image = torch.rand((1, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    expected = map_coordinates(image[0, 0].double().numpy(), [y + 15.5, x + 15.5], order=1, mode="grid-constant")
    assert module.affine(image, affine_matrices(uniform))[0, 0].numpy() == pytest.approx(expected, abs=5e-5)


def test_random_views_fill_the_ranges_of_2019():
    n = 20_000
    matrices = affine_matrices(torch.rand((n, 7), generator=torch.Generator().manual_seed(0)))
    linear, shift = matrices[:, :, :2], matrices[:, :, 2]
    # R(θ) Z F has columns of the zooms' lengths, and R(θ)ᵀ undoes the turn of the shift.
    zoom = linear.norm(dim=1)
    mirrored = torch.det(linear) < 0
    angle = torch.atan2(linear[:, 1, 0], linear[:, 0, 0])
    for values, low, high in ((zoom[:, 0], 0.9, 1.1), (zoom[:, 1], 0.9, 1.1), (angle, -math.pi, math.pi)):
        assert low - 1e-6 <= float(values.min()) < low + 0.001 * (high - low)
        assert high - 0.001 * (high - low) < float(values.max()) <= high + 1e-6
        # Standard error of a uniform mean: (high - low) / sqrt(12 n) = 0.002 (high - low); four of them.
        assert abs(float(values.mean()) - (low + high) / 2) < 0.0082 * (high - low)
    # The shift is uniform on a square of half side 25/512 of a side, 2 long, before it turns with the image.
    assert float(shift.norm(dim=1).max()) <= math.sqrt(2) * 2 * 25 / 512 + 1e-6
    expected = 2 * (2 * 25 / 512) ** 2 / 3  # E |t|²; relative standard error 0.0045 at n = 20,000
    assert float(shift.square().sum(dim=1).mean()) == pytest.approx(expected, rel=0.018)
    # One axis mirrored, not both: probability 1/2, standard error 0.0035.
    assert abs(float(mirrored.float().mean()) - 0.5) < 0.0142


def test_flips_are_fair_and_whole():
    ramp = torch.arange(16.0).reshape(1, 1, 4, 4).repeat(4000, 3, 1, 1)
    out = flip(ramp, torch.Generator().manual_seed(0))
    corners = out[:, 0, 0, 0]
    for value in (0.0, 3.0, 12.0, 15.0):
        # Four equally likely mirrorings of 4,000: standard error 0.0068; four of them.
        assert abs((corners == value).float().mean() - 0.25) < 0.028
    assert torch.equal(out.sum(dim=(1, 2, 3)), ramp.sum(dim=(1, 2, 3)))


class Said(Quiet):
    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


class Card:
    """A card of so many bytes, on which a pass of n images holds `fixed + slope n`, and more than all raises."""

    def __init__(self, total, slope, fixed=0):
        self.total, self.slope, self.fixed, self.images, self.tried = total, slope, fixed, 0, []

    def compute(self, images):
        self.tried.append(images)
        self.images = images
        if self.held() > self.total:
            raise torch.OutOfMemoryError("CUDA out of memory")

    def held(self):
        return self.fixed + self.slope * self.images

    def free(self):
        return self.total

    def peak(self, work):
        work()
        return self.held()


@pytest.mark.parametrize(
    ("card", "size", "found"),
    [
        (Card(10_000, 10), 64, 64),  # all fit
        (Card(1_000, 10), 256, 90),  # nine tenths of the memory
        (Card(1_000, 10, fixed=500), 256, 40),
        (Card(1_000, 10, fixed=900), 256, 1),
        (Card(5, 10), 256, 1),  # not even one: the training itself will say so
        (Card(1_000, 0), 256, 256),
    ],
)
def test_a_probe_fills_the_free_memory(card, size, found):
    assert module.probe(card.compute, size, card) == found
    assert max(card.tried) <= max(found, 2)  # after two passes nothing is tried that is not expected to fit


def test_work_is_halved_until_it_fits_and_the_limit_stays(tmp_path):
    limits, said, card, begun = BatchLimits(), Said(), Card(100, 10), []
    keep_limits(limits, tmp_path, said, writes=True)

    def attempt(most):
        card.compute(most)
        return most

    assert with_less(attempt, lambda: begun.append(1), limits, "validation", 64, CPU) == 8
    assert card.tried == [64, 32, 16, 8]
    assert len(begun) == 3
    assert said.lines[-1] == "note: out of memory with 16 images on cpu: validation now takes 8 images at a time"
    assert json.loads((tmp_path / FILE).read_text())["validation"] == 8
    again = BatchLimits()
    keep_limits(again, tmp_path, Said(), writes=True)
    assert (again.training, again.validation, again.of("validation", 64), again.of("training", 64)) == (None, 8, 8, 64)
    assert again.history == limits.history


def test_other_errors_pass_and_one_image_too_many_is_one_line():
    def broken(most):
        raise ValueError("not that")

    with pytest.raises(ValueError, match="not that"):
        with_less(broken, lambda: None, BatchLimits(), "training", 4, CPU)
    with pytest.raises(OutOfMemoryError, match=r"cpu ran out of memory: training with 1 image at a time does not fit"):
        with_less(Card(1, 10).compute, lambda: None, BatchLimits(), "training", 4, CPU)
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not is_out_of_memory(RuntimeError("shape"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return open_prepared(make_prepared(tmp_path_factory.mktemp("loader") / "data"))


def batches(data, rows=64, size=16, seed=0, augment="none", workers=0, standardise=False):
    train, validation = np.arange(rows), np.arange(64, 88)
    source = module.ImageSource(data, torch.device("cpu"), train if standardise else None, workers)
    return module.Batches(source, train, validation, size, seed, augment)


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
    plain, mirrored = ([[*batches(data, augment=kind).epoch(0, k, 2)] for k in (0, 1)] for kind in ("none", "flip"))
    pairs = [zip(one, two, strict=True) for one, two in zip(plain, mirrored, strict=True)]
    columns = [[pair for (x, _), (y, _) in each for pair in zip(x, y, strict=True)] for each in pairs]
    changed = [[not torch.equal(a, b) for a, b in each] for each in columns]
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


def test_an_affine_view_does_not_depend_on_how_the_epoch_is_cut_into_batches(data):
    def epoch(size):
        train = replace(batches(data, augment="affine"), batch_size=size)
        return collect(train, 2)[0]

    # The same numbers reach the same image; sums of another vector length may round differently.
    assert torch.allclose(epoch(16), epoch(64), atol=1e-6)


def test_arrays_are_served_by_the_same_class_on_the_same_order(data):
    """All rows train, none is held out, and the order is that of a prepared folder with the same seed."""
    inputs = np.arange(130, dtype=np.float32).reshape(65, 2)
    classes = np.arange(65) % 3
    arrays = module.array_batches(inputs, classes, 16, 3, torch.device("cpu"))
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
