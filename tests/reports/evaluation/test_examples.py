"""Example images."""

import numpy as np

from retinabench.reports.evaluation.examples import SIDE, data_uri


def test_images_lose_their_black_border():
    image = np.zeros((400, 900, 3), np.uint8)
    image[50:350, 250:650] = 120
    uri, width, height = data_uri(image)
    assert uri.startswith("data:image/jpeg;base64,")
    assert (width, height) == (SIDE, SIDE * 3 // 4)
    assert data_uri(np.zeros((8, 8, 3), np.uint8))[1:] == (8, 8)
    assert data_uri(np.full((8, 8), 99, np.uint8))[1:] == (8, 8)
