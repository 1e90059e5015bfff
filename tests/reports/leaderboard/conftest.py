import pytest

from retinabench.reports.leaderboard import board as boards
from retinabench.reports.leaderboard.board import baselines_of
from support.board_entries import NAME, noisy, submission

EVIL = "<script>alert(1)</script> {{ 7 * 7 }}"


@pytest.fixture(scope="session")
def entries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("submissions")
    submission(folder, *(noisy(1.5, seed) for seed in range(3)))
    submission(folder, noisy(0.1, 9), name="evil", title=EVIL)
    return boards.read_entries([folder])


@pytest.fixture(scope="session")
def board(entries):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boards, "baselines_of", lambda name: baselines_of(name)[:2])
        scores = "referral_accuracy_area", "auroc", "ood_auroc"
        (made,) = boards.make_boards(entries, [NAME], scores=scores, bootstrap=30)
    return made
