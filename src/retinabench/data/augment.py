"""Augmentation: new views of training images, drawn and applied in batches on the device.

`flip` mirrors. `affine` adds the rotation, shift and zoom of Leibig et al. 2017, which the diabetic-retinopathy
benchmark of Filos et al. 2019 took over.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from retinabench.core.random_streams import torch_generator

ROTATION = math.pi  # to either side: every angle
SHIFT = 25 / 512  # of the side, along each axis
ZOOM = 0.10  # to either side of 1, each axis on its own

Augment = Callable[[Tensor], Tensor]


def unchanged(images: Tensor) -> Tensor:
    """Return the images as they are."""
    return images


def augmentation(
    kind: str, count: int, device: torch.device, seed: int, epoch: int, rank: int = 0
) -> tuple[Augment, Augment]:
    """Return the augmentations of one epoch: of the stored bytes, and of the network inputs.

    The first acts on the stored bytes (B, 3, H, W), a quarter of the traffic; the second on the network's inputs. For
    `affine` the k-th image of the epoch gets the k-th row of numbers drawn on the CPU: the same view on every device,
    however the epoch is cut into batches.
    """
    own = (rank,) * (rank > 0)
    if kind == "none":
        return unchanged, unchanged
    if kind == "flip":
        noise = torch_generator(device, seed, "augment", epoch, *own)
        return lambda images: flip(images, noise), unchanged
    uniform = torch.rand((count, 7), generator=torch_generator("cpu", seed, "augment", epoch, *own))
    matrices, seen = affine_matrices(uniform).to(device), 0

    def view(images: Tensor) -> Tensor:
        nonlocal seen
        seen += len(images)
        return affine(images, matrices[seen - len(images) : seen])

    return unchanged, view


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image (B, 3, H, W) left-right and upside-down, each with probability 1/2.

    Left and right eyes mirror each other, and retinopathy has no upright: both keep the label true.
    """
    for axis in (2, 3):
        chosen = torch.rand(len(images), generator=generator, device=images.device) < 0.5
        images = torch.where(chosen[:, None, None, None], images.flip(axis), images)
    return images


def affine_matrices(uniform: Tensor) -> Tensor:
    """Turn uniform numbers (B, 7) in [0, 1) into the matrices (B, 2, 3) of random views.

    A point p of the view shows the point R(θ) (Z F p + t) of the image, coordinates from -1 to 1: mirrored (F, each
    axis with probability 1/2), zoomed (Z, each axis in 1 ± 0.1), shifted (t, each axis by ± 25/512 of the side), then
    rotated about the middle (θ in ± π). This is the order of the Keras generator that the 2019 code configures; its
    centre is one pixel off the middle, here it is the middle.
    """
    signed = 2 * uniform - 1
    angle = ROTATION * signed[:, 0]
    shift = 2 * SHIFT * signed[:, 1:3, None]  # a side is 2 long in these coordinates
    zoom = 1 + ZOOM * signed[:, 3:5]
    mirror = torch.where(uniform[:, 5:7] < 0.5, -1.0, 1.0)
    cos, sin = torch.cos(angle), torch.sin(angle)
    rotation = torch.stack([torch.stack([cos, -sin], dim=1), torch.stack([sin, cos], dim=1)], dim=1)
    return rotation @ torch.cat([torch.diag_embed(zoom * mirror), shift], dim=2)


def affine(images: Tensor, matrices: Tensor) -> Tensor:
    """View each image (B, 3, H, W), H = W, through its matrix (B, 2, 3): bilinear, 0 outside the image.

    As in the 2019 code, 0 is that of the network's inputs: black in the unit interval, the mean colour of the
    training images where channels are standardised.
    """
    grid = affine_grid(matrices, list(images.shape), align_corners=False).to(images.dtype)
    views = grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return views.contiguous(memory_format=torch.channels_last)
