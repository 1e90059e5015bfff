import pytest

from retinabench.cli import fidelity
from retinabench.fidelity.targets import data as data_module
from support.small_targets import small_data


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Its file, which the command wrote, and its data."""
    folder = tmp_path_factory.mktemp("reference")
    small = small_data("energy-gap", 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_module, "load", lambda target, source: small)
        options = {"chains": 4, "burn_in": 25, "keep": 60, "step": 0.02, "seed": 1, "quiet": True}
        fidelity.reference("energy-gap", folder / "small.npz", **options)
    return folder / "small.npz", small
