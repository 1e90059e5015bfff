"""The memory of a training image of every method, counted on a CPU, and how many images at a time fit on cards of several sizes.

    python benchmarks/memory.py                                      the numbers of docs/tables/memory.csv, about three minutes
    python benchmarks/memory.py map --model resnet18 --size 256

It is arithmetic, not a measurement on a card. Bytes = beside + images * per image, where

- per image: what one more image adds to the tensors that the loss of the method keeps for its backward pass, counted by the hooks
  of PyTorch's saved tensors at a side of 128 pixels and multiplied by (side / 128)², since the maps of a convolutional network grow
  with the pixels;
- beside: what the loss keeps whatever the images, weights, gradients, and the optimiser's state after a step.

A tenth of a card is left for work buffers and fragments. `vogn` computes the gradients of single images by vmap, which the hooks do not
see: its activations are counted as MAP's, and a gradient of all weights for each image is added. Weights that a method collects
while it trains (SWAG, SGLD and the like) go to the disk and are not counted.
"""

import csv
import sys
from collections.abc import Callable, Sequence
from unittest import mock

import numpy as np
import torch
from toolkit import parse
from torch import Tensor, nn

from retinabench.data.loader import USABLE, Batches, array_batches
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.methods.registry import METHODS
from retinabench.methods.training import loop
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import describe_batch
from retinabench.models.build import build_model
from retinabench.models.stochastic.drawing import use_generator

CARDS = (24, 40, 80, 141)  # GB
COUNTED, FEW, MANY = 128, 12, 14  # side and numbers of the images that are counted; FSVI has fewer inducing inputs
CPU = torch.device("cpu")
COUNTABLE = (
    "map", "dropout", "mfvi", "radial", "rank1", "fsvi", "vbll", "ivon", "vogn", "gaussian_vi", "swag", "sgld", "sghmc",
    "csghmc", "anchored", "sngp", "batch_ensemble",
)  # fmt: skip


class BegunError(Exception):
    """The training would begin: objective, network, optimiser."""


def begun(run: Run, batches: Batches) -> tuple[Callable[..., dict[str, Tensor]], nn.Module, torch.optim.Optimizer]:
    def stop(*given: object) -> None:
        raise BegunError(*given[:3])

    with mock.patch.object(loop, "probe_limit", stop):
        try:
            METHODS[run.method.name].fit(build_model(run.model, 0), batches, run, Checkpoint(), LIKELIHOOD)
        except BegunError as found:
            objective, model, optimizer = found.args
            return objective, model, optimizer
    raise AssertionError(f"{run.method.name} did not train")


def kept_bytes(run: Run, images: int) -> tuple[int, int, int]:
    """Bytes that the loss of so many images keeps; of weights, gradients and optimiser; of the trained weights."""
    inputs = np.random.default_rng(0).random((images, 3, COUNTED, COUNTED), dtype=np.float32)
    batches = array_batches(inputs, (np.arange(images) % 2).astype(np.float32), images, 0, CPU)
    objective, model, optimizer = begun(run, batches)
    model.train()
    use_generator(model, torch.Generator().manual_seed(0))
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    some, labels = next(batches.epoch(0))
    some = some.contiguous(memory_format=torch.channels_last)
    batch = describe_batch(labels, 0, batches, "none")
    trained = [p for p in model.parameters() if p.requires_grad]
    weights = sum(p.nbytes for p in trained)
    if run.method.name == "vogn":
        return 0, 4 * weights, weights
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        terms = objective(some, labels, batch)  # bound, so that what it keeps is alive while it is counted
    torch.autograd.backward(sum(terms.values(), torch.zeros(())))
    optimizer.step()
    state = sum(v.nbytes for one in optimizer.state.values() for v in one.values() if isinstance(v, Tensor))
    return sum(kept.values()), sum(p.nbytes for p in model.parameters()) + weights + state, weights


def bytes_of(run: Run, size: int) -> tuple[float, float]:
    """Bytes of one more image of a training step, and bytes beside the images."""
    if run.method.name == "vogn":
        image, _ = bytes_of(run.model_copy(update={"method": load_run(None, ["method=map"], data="none").method}), size)
        _, beside, weights = kept_bytes(run, FEW)
        return image + weights, beside
    (few, fixed, _), (many, _, _) = kept_bytes(run, FEW), kept_bytes(run, MANY)
    each, scale = (many - few) / (MANY - FEW), (size / COUNTED) ** 2
    return each * scale, max(0.0, few - FEW * each) + fixed


def fits(card: float, image: float, beside: float) -> int:
    return max(0, int((USABLE * card * 1e9 - beside) // image))


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(__doc__, arguments, methods=COUNTABLE, model="resnet50", size=512)
    table = csv.writer(sys.stdout, lineterminator="\n")
    cards = [f"{card} GB" for card in CARDS]
    table.writerow([f"{options.model}, {options.size} px", "GB per image", "GB beside", *cards])
    for name in options.methods:
        for kind in ("float32", "bfloat16"):
            words = [
                f"model.name={options.model}", f"method={name}", f"optimizer.precision={kind}", "optimizer.l2_on=everything",
                "optimizer.reweight=none", "optimizer.augment=none", "optimizer.select=last", "optimizer.epochs=20",
            ]  # fmt: skip
            run = load_run(None, words, data="none")
            image, beside = bytes_of(run, options.size)
            counts = [fits(card, image, beside) for card in CARDS]
            table.writerow([f"{run.method.describe()}, {kind}", f"{image / 1e9:.3f}", f"{beside / 1e9:.2f}", *counts])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
