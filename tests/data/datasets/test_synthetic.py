import numpy as np
import pytest
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.data.datasets import synthetic
from retinabench.data.preprocessing.preprocess import Recipe, preprocess
from retinabench.data.synthetic.fundus import draw, truth


def test_splits_are_shares_of_the_training_images_and_hold_whole_patients():
    records = synthetic.records(None, images=32, seed=3)
    sizes = {}
    for domain, split, _ in synthetic.PARTS:
        of_part = (records.domain == domain) & (records.split == split)
        sizes[domain, split] = int(of_part.sum())
        inside = set(records.patient_id[of_part].tolist())
        assert not inside & set(records.patient_id[~of_part].tolist())
        assert len(inside) == of_part.sum() / 2
    assert list(sizes.values()) == [32, 8, 12, 4, 8]
    of_row = truth(5, seed=3)
    row = int(np.flatnonzero(records.image_id == "in_domain-000005")[0])
    assert (records.grade[row], records.p_referable[row]) == (of_row.reported_grade, of_row.p_referable)


def test_a_source_leads_to_its_image():
    drawn = draw(2, size=24, seed=1, population="shifted", masks=False).image
    np.testing.assert_array_equal(synthetic.read("1:shifted:2", None, Recipe(24)), drawn)
    graham = Recipe(24, preprocess="graham")
    expected = preprocess(Image.fromarray(drawn), graham)
    np.testing.assert_array_equal(synthetic.read("1:shifted:2", None, graham), expected)


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(InputError, match="1,000,001 training images are more than are drawn"):
        synthetic.records(None, 1_000_001)
    with pytest.raises(InputError, match="cannot fill the splits"):
        synthetic.records(None, images=31)
    with pytest.raises(InputError, match="drawn, not read"):
        synthetic.records(tmp_path)
