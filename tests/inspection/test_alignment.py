"""Alignment against known transformations of drawn retinas."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from retinabench.data.preprocessing.preprocess import Recipe, preprocess
from retinabench.data.synthetic.fundus import draw
from retinabench.inspection.alignment import align, best_rotation, detail_of, magnitudes, spectrum
from retinabench.inspection.duplicates import CORRELATED, EVENLY

N, SIDE = 12, 128


@pytest.fixture(scope="module")
def images():
    return [Image.fromarray(draw(k, size=256, masks=False).image) for k in range(N)]


def prepared(image, preprocess_as="crop"):
    return preprocess(image, Recipe(SIDE, preprocess_as))


def saved(image, quality):
    sink = io.BytesIO()
    image.save(sink, "JPEG", quality=quality)
    return Image.open(sink).convert("RGB")


def compared(one, other, whole=False):
    first, second = (detail_of(image, whole=whole) for image in (one, other))
    _, [mirrored], [degrees] = best_rotation(spectrum(first)[None], spectrum(second)[None])
    return align(first, second, bool(mirrored), float(degrees))


CHANGES = {
    "turned": (lambda image: image.rotate(37, Image.Resampling.BICUBIC), False, 37),
    "mirrored": (ImageOps.mirror, True, 0),
    "saved again, half as large": (lambda image: saved(image.resize((128, 128)), 50), False, 0),
    "darker, turned": (lambda image: image.rotate(-90).point(lambda value: round(0.6 * value)), False, -90),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_is_recognised_and_how_it_was_changed(images, change):
    make, mirrored, degrees = CHANGES[change]
    for image in images[:4]:
        found = compared(prepared(image), prepared(make(image)))
        assert found.correlation > CORRELATED
        assert found.quarter > EVENLY
        assert found.mirrored == mirrored
        # The copy is turned back: clockwise by what it was turned counter-clockwise; steps of 0.7 degrees.
        assert found.degrees == pytest.approx(degrees, abs=2)
        assert found.scale == pytest.approx(1, abs=0.031)


def test_other_retinas_are_no_copies(images):
    details = [detail_of(prepared(image)) for image in images]
    spectra = np.stack([spectrum(detail) for detail in details])
    i, j = np.triu_indices(N, 1)
    at, mirrored, degrees = best_rotation(spectra[i], spectra[j])
    for k in np.argsort(-at)[:10]:  # the likeliest of 66
        found = align(details[i[k]], details[j[k]], bool(mirrored[k]), float(degrees[k]))
        assert found.quarter < EVENLY


def test_graham_s_images_fill_the_square(images):
    one, other = prepared(images[0], "graham"), prepared(images[0].rotate(90), "graham")
    found = compared(one, other, whole=True)
    assert (found.quarter > 0.8, found.degrees) == (True, pytest.approx(90, abs=1))
    assert compared(one, prepared(images[1], "graham"), whole=True).quarter < EVENLY


def test_best_rotation_equals_brute_force():
    random = np.random.default_rng(0)
    rings = random.normal(size=(2, 20, 128))
    spectra = np.fft.rfft(rings, axis=2)[:, :, 1:33] / 30
    [at], [flip], [degrees] = best_rotation(spectra[:1], spectra[1:])
    low = np.zeros((2, 20, 65), complex)
    low[:, :, 1:33] = spectra
    one, other = np.fft.irfft(low, n=128, axis=2)
    turned = [(float((one * np.roll(other, k, axis=1)).sum()), False, k * 360 / 128) for k in range(128)]
    back = np.roll(other[:, ::-1], 1, axis=1)  # the ring run through backwards
    turned += [(float((one * np.roll(back, k, axis=1)).sum()), True, k * 360 / 128 - 180) for k in range(128)]
    assert (at, bool(flip), degrees) == pytest.approx(max(turned), rel=1e-4)


def test_magnitudes_do_not_change_with_a_rotation(images):
    spectra = np.stack([spectrum(detail_of(prepared(image))) for image in images])
    phase = np.exp(2j * np.pi * 0.3 * np.arange(1, 33)).astype(np.complex64)
    unit = magnitudes(np.concatenate([spectra, spectra[:1] * phase]))
    assert unit[0] @ unit[-1] == pytest.approx(1, abs=1e-5)


def test_an_image_without_a_retina_has_no_detail():
    black = detail_of(np.zeros((64, 64, 3), np.uint8))
    assert not black.any()
    assert not spectrum(black).any()
    assert align(black, black, False, 0.0).correlation == 0
