"""The memory of a training image, counted on a CPU, and how many images at a time fit on cards of several sizes.

    python benchmarks/memory.py                                      the numbers of docs/tables/memory.csv, about two minutes
    python benchmarks/memory.py map --model resnet18 --size 256

What the backward pass needs is counted by the hooks of PyTorch's saved tensors: the bytes that one more image adds, of a
forward pass of one and of two images, and what does not depend on the images. Weights, their gradients and the momentum
of SGD are added, and a tenth of a card is left for work buffers and fragments. It is arithmetic, not a measurement on a card.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor

from retinabench.data.memory import USABLE
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.methods.registry import METHODS
from retinabench.methods.training.posterior import precision
from retinabench.models.build import build_model
from retinabench.models.stochastic.drawing import use_generator

CARDS = (24, 40, 80, 141)  # GB
COPIES = 3  # of every trained parameter: weight, gradient, momentum
CPU = torch.device("cpu")


def saved_bytes(run: Run, images: int, size: int) -> tuple[int, int]:
    """Bytes that a forward pass keeps for the backward pass, and bytes of all parameters."""
    posterior = METHODS[run.method.name].build(build_model(run.model, 0), run, LIKELIHOOD)
    model = posterior.model.train()
    use_generator(model, torch.Generator().manual_seed(0))
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    inputs = torch.rand(images, 3, size, size).contiguous(memory_format=torch.channels_last)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), precision(run, CPU):
        outputs = model(inputs)  # bound, so that what it keeps is alive while it is counted
    assert outputs.requires_grad
    return sum(kept.values()), sum(p.nbytes for p in model.parameters())


def per_image(run: Run, size: int) -> tuple[int, int]:
    """Bytes of one more image of a training step, and bytes beside the images."""
    one, parameters = saved_bytes(run, 1, size)
    two, _ = saved_bytes(run, 2, size)
    return two - one, 2 * one - two + COPIES * parameters


def fits(card: float, image: int, beside: int) -> int:
    """Images of a forward and backward pass that a card of so many GB takes."""
    return max(0, int((USABLE * card * 1e9 - beside) // image))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("methods", nargs="*", default=["map", "dropout", "mfvi", "radial", "rank1", "fsvi"])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--size", type=int, default=512)
    options = parser.parse_args(arguments)
    print(
        f"| {options.model}, {options.size} px | GB per image | beside |", *(f"{card} GB |" for card in CARDS)
    )
    print("|---|---|---|" + "---|" * len(CARDS))
    for name in options.methods:
        for kind in ("float32", "bfloat16"):
            words = [f"model.name={options.model}", f"method.name={name}", f"optimizer.precision={kind}"]
            image, beside = per_image(load_run(None, words, data="none"), options.size)
            cells = " | ".join(str(fits(card, image, beside)) for card in CARDS)
            print(f"| {name}, {kind} | {image / 1e9:.3f} | {beside / 1e9:.2f} GB | {cells} |", flush=True)


if __name__ == "__main__":
    main()
