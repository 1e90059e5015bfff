import math

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from retinabench.data.augment import SHIFT, affine, affine_matrices, augmentation, flip

CPU = torch.device("cpu")
STILL = torch.full((1, 7), 0.5)
"""Half of every range: angle, two shifts, two zooms, two mirrors; the identity."""


def chosen(**numbers):
    """The matrix of one view with the given numbers: angle, shifts as a share of the side, zooms."""
    uniform = STILL.clone()
    uniform[0, 0] += numbers.get("angle", 0) / (2 * math.pi)
    for axis in (0, 1):
        uniform[0, 1 + axis] += numbers.get("shift", (0, 0))[axis] / (2 * SHIFT)
        uniform[0, 3 + axis] += (numbers.get("zoom", (1, 1))[axis] - 1) / 0.2
        uniform[0, 5 + axis] -= 0.1 * numbers.get("mirror", (0, 0))[axis]
    return affine_matrices(uniform)


def pictures(n=1, side=32, seed=0):
    return torch.rand((n, 3, side, side), generator=torch.Generator().manual_seed(seed))


def dot(row, column, side=64):
    image = torch.zeros(1, 3, side, side)
    image[:, :, row, column] = 1
    return image


def place(image):
    """Centre of mass (row, column) of the first channel."""
    mass = image[0, 0] / image[0, 0].sum()
    steps = torch.arange(float(len(mass)))
    return float(mass.sum(1) @ steps), float(mass.sum(0) @ steps)


# Coordinates are single precision, 6e-8 relative to 1: within 32 pixels a place errs by less than 1e-5 pixels.
EXACT = {"atol": 2e-5, "rtol": 0}


def test_half_of_every_range_is_the_identity():
    torch.testing.assert_close(affine(pictures(), chosen()), pictures(), **EXACT)


@pytest.mark.parametrize("turns", [1, 2, -1])
def test_quarter_turns_equal_rot90(turns):
    out = affine(pictures(), chosen(angle=turns * math.pi / 2))
    torch.testing.assert_close(out, torch.rot90(pictures(), turns, (2, 3)), **EXACT)


@pytest.mark.parametrize("mirror", [(1, 0), (0, 1), (1, 1)])
def test_mirrors_equal_flip(mirror):
    out = affine(pictures(), chosen(mirror=mirror))
    torch.testing.assert_close(out, pictures().flip([3 - axis for axis in (0, 1) if mirror[axis]]), **EXACT)


def test_a_shift_moves_a_dot_by_its_share_of_the_side():
    # The view looks 3 pixels further right and 2 further down: the dot appears as far left and up.
    out = affine(dot(40, 20), chosen(shift=(3 / 64, 2 / 64)))
    assert place(out) == pytest.approx((38, 17), abs=1e-4)
    assert float(out[0, 0, 38, 17]) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("axis", "zoom"), [(0, 1.1), (0, 0.9), (1, 1.1)])
def test_a_zoom_scales_distances_from_the_middle_along_its_axis(axis, zoom):
    zooms = [1.0, 1.0]
    zooms[axis] = zoom
    blob = torch.zeros(1, 3, 64, 64)
    blob[:, :, 46:50, 46:50] = 1  # centred 16 pixels from the middle, which lies at 31.5
    row, column = place(affine(blob, chosen(zoom=zooms)))
    # Bilinear sampling of a block of 4 pixels misplaces its centre by less than a tenth of a pixel.
    expected = [31.5 + 16, 31.5 + 16]
    expected[1 - axis] = 31.5 + 16 / zoom
    assert (row, column) == pytest.approx(expected, abs=0.1)


def test_what_lies_outside_the_picture_is_zero():
    out = affine(torch.ones(1, 3, 64, 64), chosen(shift=(4 / 64, 0)))
    assert torch.equal(out[..., -4:], torch.zeros(1, 3, 64, 4))
    torch.testing.assert_close(out[..., :-4], torch.ones(1, 3, 64, 60), **EXACT)


@pytest.mark.parametrize("seed", range(4))
def test_a_view_equals_scipy_s_sampling_of_rotation_after_shift_after_zoom_after_mirroring(seed):
    uniform = torch.rand((1, 7), generator=torch.Generator().manual_seed(seed))
    u = 2 * uniform[0].double().numpy() - 1
    angle, shift, zoom = math.pi * u[0], 32 * 25 / 512 * u[1:3], 1 + 0.1 * u[3:5]
    mirror = np.where(u[5:7] < 0, -1, 1)
    rows, columns = np.mgrid[:32, :32] - 15.5  # from the middle
    x, y = zoom[0] * mirror[0] * columns + shift[0], zoom[1] * mirror[1] * rows + shift[1]
    x, y = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
    image = pictures()
    expected = map_coordinates(
        image[0, 0].double().numpy(), [y + 15.5, x + 15.5], order=1, mode="grid-constant"
    )
    assert affine(image, affine_matrices(uniform))[0, 0].numpy() == pytest.approx(expected, abs=5e-5)


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


def test_the_same_seed_gives_the_same_bits_and_another_epoch_others():
    def views(seed, epoch):
        return augmentation("affine", 8, CPU, seed, epoch)[1](pictures(8))

    assert torch.equal(views(0, 1), views(0, 1))
    assert not torch.equal(views(0, 1), views(0, 2))
    assert not torch.equal(views(0, 1), views(1, 1))


def test_each_picture_of_a_batch_gets_its_own_view():
    out = augmentation("affine", 8, CPU, 0, 0)[1](pictures(1).expand(8, -1, -1, -1))
    assert all(not torch.equal(out[0], other) for other in out[1:])


def test_flips_are_fair_and_whole():
    ramp = torch.arange(16.0).reshape(1, 1, 4, 4).repeat(4000, 3, 1, 1)
    out = flip(ramp, torch.Generator().manual_seed(0))
    corners = out[:, 0, 0, 0]
    for value in (0.0, 3.0, 12.0, 15.0):
        # Four equally likely mirrorings of 4,000: standard error 0.0068; four of them.
        assert abs((corners == value).float().mean() - 0.25) < 0.028
    assert torch.equal(out.sum(dim=(1, 2, 3)), ramp.sum(dim=(1, 2, 3)))
