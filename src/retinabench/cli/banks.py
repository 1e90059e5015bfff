"""The images of a bank: the options of the verbs that ask about them, and the verb `occlude`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from retinabench.cli.application import argument, option, print_notes, progress_of, say, with_options
from retinabench.cli.options import MOST_REPLICATES, Device, Out, OwnModel, Readers, Seed, Silent
from retinabench.core.errors import InputError

if TYPE_CHECKING:
    from retinabench.concepts.trained_answers import NetworkOptions
    from retinabench.core.progress import Progress
    from retinabench.metrics.inference.interval import Interval

BANK, NETWORK = "Images and their truth", "What answers"
OF_BANK = ("source", "images")
OF_NETWORK = ("grid", "weights", "trained", "size", "epochs")

Source = Annotated[
    Path | None,
    option("--source", "PATH", "Folder or zip of the data set as downloaded.", rich_help_panel=BANK),
]
Images = Annotated[
    int | None, option("--images", "N", "Of drawn retinas: their number.", rich_help_panel=BANK)
]
Grid = Annotated[
    int,
    option("--grid", "N", "Ask about each of N x N regions of an image.", min=1, rich_help_panel=BANK),
]
Examinee = Annotated[
    str | None,
    option(
        "--examinee",
        "NAME",
        "A network to be trained on the other images: ours, timm:NAME or your own package.module:function; or a synthetic "
        "examinee: biased-1, biased-2, unbiased, overconfident, guessing, always-yes. Default: that of the bank, most often "
        "efficientnet_lite0 with weights of ImageNet.",
        rich_help_panel=NETWORK,
    ),
]
Weights = Annotated[
    str | None,
    option("--weights", "WEIGHTS", "imagenet, timm, hf-hub:NAME or a checkpoint.", rich_help_panel=NETWORK),
]
Trained = Annotated[
    str | None,
    option(
        "--trained",
        "PART",
        "head (on features that are computed once), all, a number of stages, or nothing: your own network answers as it is. "
        "Default: the head of a pretrained network.",
        rich_help_panel=NETWORK,
    ),
]
Size = Annotated[
    int | None,
    option("--size", "N", "Side of what the network sees, in pixels.", rich_help_panel=NETWORK),
]
Epochs = Annotated[
    int | None, option("--epochs", "N", "Epochs of the training.", min=1, rich_help_panel=NETWORK)
]


@dataclass(frozen=True)
class Asked:
    """What the options say: where the images are, and what answers."""

    source: Source = None
    images: Images = None
    grid: Grid = 1
    examinee: Examinee = None
    weights: Weights = None
    trained: Trained = None
    size: Size = None
    epochs: Epochs = None
    device: Device = "auto"
    readers: Readers = None

    def network(self, seed: int, progress: Progress) -> NetworkOptions:
        """Return the options of the network.

        Args:
            seed: Seed of everything random.
            progress: Where progress is shown.
        """
        from retinabench.concepts.trained_answers import NetworkOptions
        from retinabench.experiments.resources import Resources

        return NetworkOptions(
            self.examinee, self.weights, self.trained, self.size, self.grid, self.epochs, self.images, seed,
            Resources(self.device, self.readers, progress),
        )  # fmt: skip

    def refuse(self, names: Sequence[str], why: str) -> None:
        """Raise `InputError` for an option that has no part in what is asked.

        Args:
            names: The options, without their dashes.
            why: What they belong to.
        """
        for one in fields(self):
            if one.name in names and getattr(self, one.name) != one.default:
                raise InputError(f"--{one.name} {why}", hint="Leave it out.")


asks_about_images = with_options(Asked, "asked")
"""Gives a verb the options of `Asked`, which it gets as its argument `asked`."""


def occlude(
    folder: Annotated[Path, argument("RUN", "Folder of a finished run, or of an exported model.")],
    bank: Annotated[
        str,
        option("--bank", "NAME|FILE", "Images with outlined lesions: idrid, synthetic … or a TOML file."),
    ] = "idrid",
    source: Annotated[
        Path | None, option("--source", "PATH", "Folder or zip of the data set as downloaded.")
    ] = None,
    out: Out = Path("occlusion"),
    images: Annotated[
        int | None, option("--images", "N", "At most so many images; of drawn retinas, their number.", min=1)
    ] = None,
    controls: Annotated[
        int, option("--controls", "N", "Equal shapes filled elsewhere, per image and concept.", min=1)
    ] = 2,
    bootstrap: Annotated[
        int,
        option(
            "--bootstrap", "N", "Replicates for the intervals over patients.", min=100, max=MOST_REPLICATES
        ),
    ] = 2000,
    model: OwnModel = None,
    device: Device = "auto",
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Fill annotated lesions with the texture around them: does the model refer because of them?"""
    from retinabench.concepts.occlusion.occlude import OcclusionOptions
    from retinabench.concepts.occlusion.occlude import occlude as occlude_lesions

    options = OcclusionOptions(images, controls, bootstrap, seed, device, model, progress_of(quiet))
    found = occlude_lesions(folder, bank, source, out, options)
    for one in found.effects:
        say(f"{one.concept}: {_change(one.probability['difference'])} in {one.images} images")
    print_notes(found.notes)
    say(out / "index.html")


def _change(change: Interval) -> str:
    if not math.isfinite(change.value):
        return "unknown"
    ends = f" [{change.low:+.3f}, {change.high:+.3f}]" if math.isfinite(change.low) else ""
    return f"{change.value:+.3f}{ends} of P(referable) beyond the control"
