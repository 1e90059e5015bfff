import pytest

from retinabench.metrics.guarantees import sequence


@pytest.fixture(autouse=True, scope="module")
def few_orders():
    """Eight orders of the patients, as of many patients: what is certified holds with any number of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence, "ORDERS", (8, 8))
        yield
