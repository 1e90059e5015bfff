"""Scores as a torchmetrics metric, in one process and over two."""

import socket

import pytest
import torch
from torch import multiprocessing
from torch.utils.data import DataLoader

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.scoring import score
from retinabench.predictions.table import Predictions

NAMES = ("auroc", "failure_auroc", "referral_accuracy_area")


@pytest.fixture
def batches():
    """Return 60 pairs of logits with their labels, in batches of 16 and a rest."""
    label = torch.arange(60) % 2
    noise = torch.randn(60, generator=torch.Generator().manual_seed(0))
    logits = torch.stack([torch.zeros(60), 2.0 * label - 1 + noise], dim=1)
    return list(zip(logits.split(16), label.split(16), strict=True))


def expected_scores(batches):
    logits, label = (torch.cat(parts) for parts in zip(*batches, strict=True))
    (found,) = rb.score(rb.Predictions.from_logits(logits, label=label), bootstrap=0).sets.values()
    return {name: found.scores[name].value for name in NAMES}


def test_torchmetrics_alone_and_in_a_collection(batches):
    torchmetrics = pytest.importorskip("torchmetrics")
    from retinabench.integrations.torchmetrics import ReferralScores

    metric = ReferralScores(NAMES)
    together = torchmetrics.MetricCollection([metric])
    for _ in range(2):  # after a reset nothing of the first time is left
        together.reset()
        for logits, label in batches:
            together.update(logits, label)
        found = together.compute()
        assert {name: float(value) for name, value in found.items()} == pytest.approx(expected_scores(batches))
    with pytest.raises(InputError, match=r"unknown score 'aurocc'.*'auroc'"):
        ReferralScores(("aurocc",))


@pytest.mark.parametrize("sample_dim", [0, 1])
def test_the_axis_of_posterior_samples_is_named(sample_dim):
    """Of samples the probabilities are averaged; five samples of one logit are not five grades, nor two two classes."""
    pytest.importorskip("torchmetrics")
    from retinabench.integrations.torchmetrics import ReferralScores

    generator = torch.Generator().manual_seed(0)
    label = torch.arange(40) % 2
    for samples, classes in ((5, 1), (2, 1), (3, 2)):
        logits = torch.randn(40, samples, classes, generator=generator) + label[:, None, None] * torch.arange(classes)
        probs = (logits.softmax(2)[..., 1] if classes == 2 else logits.sigmoid()[..., 0]).numpy()
        expected = score(Predictions([str(k) for k in range(40)], label.numpy(), probs), bootstrap=0)["in_domain"]
        metric = ReferralScores(NAMES, sample_dim=sample_dim)
        metric.update(logits.movedim(1, sample_dim), label)
        assert {name: float(value) for name, value in metric.compute().items()} == pytest.approx(
            {name: expected.scores[name].value for name in NAMES}
        )
        with pytest.raises(InputError, match=r"40 images have the shape .* sample_dim=1"):
            ReferralScores(NAMES).update(logits, label)
    if sample_dim == 1:  # (B, S)
        metric.reset()
        metric.update(logits[..., 0], label)
        assert set(metric.compute()) == set(NAMES)


def test_outputs_of_a_sanity_check_end_no_training():
    """A network that is not trained yet may give outputs between 0 and 1, or see labels 0 and 1 of five grades alone."""
    pytest.importorskip("torchmetrics")
    from retinabench.integrations.torchmetrics import ReferralScores

    for columns in (1, 5):
        metric = ReferralScores(NAMES)
        metric.update(torch.linspace(0.1, 0.9, 40)[:, None].repeat(1, columns), torch.arange(40) % 2)
        assert set(metric.compute()) == set(NAMES)


def shares(rank, folder, port):
    """Process `rank` of two sees every second batch; what it computes is written."""
    from retinabench.integrations.torchmetrics import ReferralScores

    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    metric = ReferralScores(NAMES)
    for logits, label in torch.load(folder / "batches.pt")[rank::2]:
        metric.update(logits, label)
    torch.save(metric.compute(), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_torchmetrics_over_two_processes(batches, tmp_path):
    """Every process gets the scores of all images; the parts differ in size (32 and 28 images)."""
    pytest.importorskip("torchmetrics")
    torch.save(batches, tmp_path / "batches.pt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.start_processes(shares, (tmp_path, port), nprocs=2, start_method="fork")
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert {name: float(value) for name, value in found.items()} == pytest.approx(expected_scores(batches))


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

        test_step = validation_step

    def validate(returns):
        trainer = lightning.Trainer(
            logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
            default_root_dir=tmp_path, callbacks=[ScoreCallback(NAMES)],
        )  # fmt: skip
        for some in (batches[:2], batches):  # of the second validation nothing of the first may be left
            (found,) = trainer.validate(Module(returns), DataLoader(some, batch_size=None), verbose=False)
        loader = DataLoader(batches, batch_size=None)
        return found | trainer.test(Module(returns), loader, verbose=False)[0]

    expected = expected_scores(batches).items()
    assert validate(returns=True) == pytest.approx(
        {f"{stage}/{name}": value for stage in ("validation", "test") for name, value in expected}
    )
    with pytest.raises(InputError, match="returns no logits and label"):
        validate(returns=False)
