"""Scores of every validation of a Lightning training."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from retinabench.core.errors import InputError
from support.raw_outputs import NAMES, expected_scores, output_batches


@pytest.fixture
def batches():
    return output_batches()


@pytest.mark.filterwarnings("ignore")  # Lightning's own, of the numbers of workers and of PyTorch's trees
def test_lightning_logs_the_scores_of_every_validation(batches, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    from retinabench.integrations.lightning import ScoreCallback

    class Module(lightning.LightningModule):
        def __init__(self, returns):
            super().__init__()
            self.returns = returns

        def validation_step(self, batch, _):
            logits, label = batch
            return {"logits": logits, "label": label} if self.returns else logits

    def validate(returns):
        trainer = lightning.Trainer(
            logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
            default_root_dir=tmp_path, callbacks=[ScoreCallback(NAMES)],
        )  # fmt: skip
        for some in (batches[:2], batches):  # of the second validation nothing of the first may be left
            (found,) = trainer.validate(Module(returns), DataLoader(some, batch_size=None), verbose=False)
        return found

    found = validate(returns=True)
    assert found == pytest.approx(
        {f"validation/{name}": value for name, value in expected_scores(batches).items()}
    )
    with pytest.raises(InputError, match="returns no logits and label"):
        validate(returns=False)
