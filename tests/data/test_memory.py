"""Limits, their file, and the probe, with a memory that a formula stands for."""

import json

import pytest
import torch

from retinabench.core.errors import InputError, OutOfMemoryError
from retinabench.core.progress import Quiet
from retinabench.data.memory import FILE, BatchLimits, is_out_of_memory, keep_limits, probe, with_less

CPU = torch.device("cpu")


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
    assert probe(card.compute, size, card) == found
    assert max(card.tried) <= max(found, 2)  # after two passes nothing is tried that is not expected to fit


def test_a_probe_leaves_room_for_the_state_of_the_optimiser():
    card = Card(1_000, 10)
    assert probe(card.compute, 256, card, reserved=450) == 45


def test_work_is_halved_until_it_fits_and_the_limit_stays(tmp_path):
    limits, said, card, begun = BatchLimits(), Said(), Card(100, 10), []
    keep_limits(limits, tmp_path, said, writes=True)

    def attempt(most):
        card.compute(most)
        return most

    assert with_less(attempt, lambda: begun.append(1), limits, "validation", 64, CPU) == 8
    assert card.tried == [64, 32, 16, 8]
    assert len(begun) == 3
    assert (
        said.lines[-1] == "note: out of memory with 16 images on cpu: validation now takes 8 images at a time"
    )
    assert json.loads((tmp_path / FILE).read_text())["validation"] == 8
    again = BatchLimits()
    keep_limits(again, tmp_path, Said(), writes=True)
    assert (again.training, again.validation, again.of("validation", 64), again.of("training", 64)) == (
        None,
        8,
        8,
        64,
    )
    assert again.history == limits.history


def test_other_errors_pass_and_one_image_too_many_is_one_line():
    def broken(most):
        raise ValueError("not that")

    with pytest.raises(ValueError, match="not that"):
        with_less(broken, lambda: None, BatchLimits(), "training", 4, CPU)
    with pytest.raises(
        OutOfMemoryError, match=r"cpu ran out of memory: training with 1 image at a time does not fit\. End"
    ):
        with_less(Card(1, 10).compute, lambda: None, BatchLimits(), "training", 4, CPU)
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not is_out_of_memory(RuntimeError("shape"))


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"training": 0, "validation": 1, "prediction": 1, "probed": true, "history": []}']
)
def test_a_damaged_record_is_named(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InputError, match=r"memory\.json: is damaged .* Delete it"):
        keep_limits(BatchLimits(), tmp_path, Quiet(), writes=True)
