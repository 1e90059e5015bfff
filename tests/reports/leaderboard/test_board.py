import json

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.frozen.definition import benchmark_names, frozen_benchmark, truth_of
from retinabench.metrics.scoring import score
from retinabench.predictions.io import write_predictions
from retinabench.reports.leaderboard import board as shipped
from retinabench.reports.leaderboard import tables
from retinabench.reports.leaderboard.board import baselines_of, entries_of_files, read_entries, write_baselines
from retinabench.reports.toolkit.tables import to_markdown
from support.board_entries import NAME, noisy

SHIPPED = [name for name in benchmark_names() if baselines_of(name)]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_baseline_holds_the_test_images_of_its_benchmark(name: str) -> None:
    truth, names = truth_of(name), set()
    for entry in baselines_of(name):
        names.add(entry.card.name)
        for one in entry.predictions[name]:
            test = one.select(split="test")
            assert test is not None
            assert np.array_equal(np.sort(test.image_id), truth.image_id[truth.test])
            assert np.array_equal(one.prob, one.prob.astype(np.float32))
    assert {"map", "dropout"} <= names


def test_the_board_shows_the_score_of_the_shipped_file(board) -> None:
    (key, entry) = next((key, entry) for key, entry in board.entries.items() if entry.kind == "baseline")
    values = [score(one, bootstrap=0)["in_domain"].auroc.value for one in entry.seeds]
    assert board.sets["in_domain"]["auroc"].models[key].value == pytest.approx(np.mean(values), abs=1e-12)


def test_written_baselines_are_read_back(tmp_path, monkeypatch) -> None:
    name = SHIPPED[0]
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path)
    first = baselines_of(name)[0]
    given = [(first.card, seed, one) for seed, one in enumerate(first.predictions[name])]
    file = write_baselines(frozen_benchmark(name), given)
    once = file.read_bytes()
    assert write_baselines(frozen_benchmark(name), given).read_bytes() == once
    (entry,) = baselines_of.__wrapped__(name)
    for ours, theirs in zip(entry.predictions[name], first.predictions[name], strict=True):
        assert np.array_equal(ours.image_id, theirs.image_id)
        assert np.array_equal(ours.prob, theirs.prob)


def test_entries_are_ranked_among_the_baselines(board) -> None:
    kinds = [entry.kind for entry in board.entries.values()]
    assert sorted(kinds) == ["baseline", "baseline", "submission", "submission"]
    assert board.sets["in_domain"]["auroc"].order()[0].startswith("noise-"), "it knows the label"
    assert set(board.sets) == {"in_domain", "shifted", "joint"}
    json.dumps(board.to_dict(), allow_nan=False)


def test_bare_files_of_one_method_are_its_seeds_and_find_their_benchmark(tmp_path) -> None:
    files = [tmp_path / f"{seed}.parquet" for seed in range(2)]
    for seed, file in enumerate(files):
        write_predictions(noisy(1.0, seed), file)
    (entry,) = entries_of_files(files)
    assert (entry.kind, len(entry.predictions[NAME])) == ("file", 2)
    with pytest.raises(InputError, match="is not an image"):
        entries_of_files(files[:1], "retinabench-idrid-1")
    write_predictions(noisy(1.0).take(range(10)), files[0])
    with pytest.raises(InputError, match="holds the test images of no benchmark"):
        read_entries(files[:1])


def test_the_matrix_is_antisymmetric_and_has_the_order_of_the_ranking(board) -> None:
    found = tables.pair_matrix(board, "in_domain", "auroc")
    assert [key for key, _, _ in found] == board.sets["in_domain"]["auroc"].order()
    opposite = {"better": "worse", "worse": "better", "tie": "tie", "self": "self"}
    for i, (_, _, cells) in enumerate(found):
        for j, cell in enumerate(cells):
            assert found[j][2][i][0] == opposite[cell[0]]
            assert (cell[0] == "self") == (i == j)


def test_printed_tables_have_their_printed_digits_and_our_rows_beside_them(board) -> None:
    first, *_, second, third = tables.printed_page_tables([board])
    text = "\n".join(map(to_markdown, (second, third))).replace("\N{NO-BREAK SPACE}", " ")
    assert "| HMC | 94.01 ± 0.25 | 0.074 ± 0.003 | 89.64 ± 0.25 |" in text
    assert "| Best of any team, evaluation | 91.6 | 78.7 |" in text
    rows = {row.label: row for row in first.blocks[0].rows}
    assert rows["MC dropout, printed"].cells[0].content == "87.8 ± 1.1"
    ours = [label for label in rows if label.endswith(board.benchmark.name)]
    assert len(ours) == 2, "of the baselines alone"
