"""Test-time augmentation: any method's predictions of S views of each image (Ayhan & Berens 2018).

**Idea.** An image may be mirrored, turned or moved a little without changing what it shows. The network is asked for
several such views, and where its predictions differ, the prediction is uncertain.

    p_s(y | x) = p(y | view_s(x)),      p(y | x) = 1/S Σ_s p_s(y | x)

View 0 is the image itself. The views are the same for every image, so that a prediction depends on the image and the
seed alone, and not on the images beside it. The member is any method that trains one network; it is trained as if
alone, and with the same seed view 0 is its own prediction to the last bit. A member that has several posterior
samples predicts every view with all of them. An ensemble of it is `ensemble` with `method.member.name=tta`.

**Settings.** `member`. `views`: `dihedral`, the four mirrorings and then the same after a quarter turn, exact to the
pixel; or `affine`, random rotations, shifts, zooms and mirrorings as in `optimizer.augment=affine`, interpolated.
`samples` 8: S.

**Cost.** The member's training, whose run is computed, or found done. A prediction is S times the member's.

**When it fails.** The spread says how much the network depends on where things are, not what the training images leave
undetermined. Views that were never trained on (`optimizer.augment`) lower the scores. Features that were computed once have no
views.

**Source.** Ayhan & Berens 2018, Test-time data augmentation for estimation of heteroscedastic aleatoric uncertainty
in deep neural networks; Wang et al. 2019, Aleatoric uncertainty estimation with test-time augmentation for medical
image segmentation with convolutional neural networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches, affine, affine_matrices
from retinabench.methods.base import as_config, is_composed
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import MethodConfig, TrainingRun, WithMember, member_run
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import Posterior, State, UncertaintyPosterior

DIHEDRAL = 8  # views of a square that keep its pixels
View = Callable[[Tensor], Tensor]


class Config(WithMember):
    """member: the method that predicts. views: `dihedral`, at most 8 of them, or `affine`. samples: S, the number of views."""

    without_target = "predictions of several views of an image, by the weights of its member"
    needs_images = True

    name: Literal["tta"] = "tta"
    samples: int = Field(8, ge=1)
    views: Literal["dihedral", "affine"] = "dihedral"

    @field_validator("member")
    @classmethod
    def _one_network(cls, member: MethodConfig) -> MethodConfig:
        if member.name == "tta" or is_composed(METHODS[member.name]):
            raise ValueError(
                f"'{member.name}' trains no network of its own. An ensemble of this method is method.name=ensemble "
                "method.member.name=tta"
            )
        return member

    @model_validator(mode="after")
    def _enough_dihedral_views(self) -> Config:
        if self.views == "dihedral" and self.samples > DIHEDRAL:
            raise ValueError(f"a square has {DIHEDRAL} dihedral views, not {self.samples}. Set views=affine")
        return self

    def describe(self, *, titles: bool = True) -> str:
        """Return the method in a few words, its member included."""
        return f"{self.member.describe(titles=titles)} {'with augmented views' if titles else 'tta'}"


@dataclass
class ViewsPosterior:
    """A member's posterior, which is asked for several views of each image."""

    member: Posterior
    member_samples: int
    views: str

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S * member samples, B, C), view by view, of images (B, 3, H, W)."""
        return torch.cat([
            self.member.predict(view(images), self.member_samples, generator)
            for view in make_views(self.views, samples, generator)
        ])  # fmt: skip

    def state(self) -> State:
        return self.member.state()

    def restore(self, state: State) -> None:
        self.member.restore(state)


class UncertainViewsPosterior(ViewsPosterior):
    """The same of a member with an uncertainty of its own."""

    member: UncertaintyPosterior

    def uncertainty(self, images: Tensor) -> Tensor:
        """Return the member's uncertainty (B,) of the images themselves: it is about them, not about their views."""
        return self.member.uncertainty(images)


def make_views(kind: str, count: int, generator: torch.Generator) -> list[View]:
    """Return functions of images (B, 3, H, W), the first of which changes nothing."""
    if kind == "dihedral":
        return [_dihedral(number) for number in range(min(count, DIHEDRAL))]
    stream = torch_generator("cpu", generator.initial_seed(), "views")  # the same on every device
    return [_dihedral(0), *(_affine(matrix) for matrix in affine_matrices(torch.rand(count - 1, 7, generator=stream)))]


def _dihedral(number: int) -> View:
    """0: as it is; 1: mirrored left-right; 2: upside-down; 3: both; 4 to 7: the same after a quarter turn."""
    axes = [axis for axis, bit in ((3, 1), (2, 2)) if number & bit]

    def view(images: Tensor) -> Tensor:
        turned = images.rot90(1, (2, 3)) if number & 4 else images
        return (turned.flip(axes) if axes else turned).contiguous(memory_format=torch.channels_last)

    return view if number else lambda images: images


def _affine(matrix: Tensor) -> View:
    return lambda images: affine(images, matrix.to(images.device).expand(len(images), 2, 3))


trained_by = member_run


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> ViewsPosterior:
    alone = member_run(run)
    return _of(METHODS[alone.method.name].build(model, alone, likelihood), run)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> ViewsPosterior:
    """Train the member as if alone and return the views of its posterior; where the runs are kept, `trained_by` saves this."""
    alone = member_run(run)
    return _of(METHODS[alone.method.name].fit(model, batches, alone, checkpoint, likelihood), run)


def _of(posterior: Posterior, run: TrainingRun) -> ViewsPosterior:
    options: Config = as_config(run, Config)
    kind = UncertainViewsPosterior if isinstance(posterior, UncertaintyPosterior) else ViewsPosterior
    return kind(posterior, options.member.samples, options.views)
