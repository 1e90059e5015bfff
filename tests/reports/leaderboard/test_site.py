import json
import re

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.image_sets import VARIABLE
from retinabench.predictions.io import read_predictions
from retinabench.reports.leaderboard import site as sites
from retinabench.reports.leaderboard.site import EACH, MANIFEST, curves_of, failures, write_site
from support.board_entries import NAME, noisy
from support.browsers import check_page

pytestmark = pytest.mark.usefixtures("legible")


def test_curves_are_means_over_seeds() -> None:
    seeds = [noisy(1.0, seed) for seed in (0, 1)]
    both = curves_of(seeds, "shifted")
    single = [curves_of([one], "shifted") for one in seeds]
    for curve in ("roc", "referral"):
        mean = np.mean([one[curve][1] for one in single], axis=0)
        np.testing.assert_allclose(both[curve][1], mean, equal_nan=True)
    accuracy = np.mean([np.mean((one.prob > 0.5) == one.label) for one in (p.select(domain="shifted") for p in seeds)])
    assert both["referral"][1][0] == pytest.approx(accuracy)


def test_failures_are_wrong_and_missed_disease_comes_first() -> None:
    predictions = noisy(0.3)
    found = failures(predictions, "in_domain", shown=True)
    row = {name: k for k, name in enumerate(predictions.image_id.tolist())}
    for one in found:
        k = row[one["image_id"]]
        assert (predictions.prob[k] > 0.5) != predictions.label[k]
    assert [one["truth"].startswith("Referable") for one in found] == [True] * EACH + [False] * EACH
    sure = [abs(predictions.prob[row[one["image_id"]]] - 0.5) for one in found[:EACH]]
    assert sure == sorted(sure, reverse=True)
    assert not failures(predictions.take(np.flatnonzero(predictions.domain == "shifted")), "in_domain", shown=True)


def test_a_method_s_page_shows_card_numbers_and_failures(board) -> None:
    key = next(key for key in board.entries if key.startswith("noise-"))
    name = board.benchmark.name
    text = sites.method_page(key, [board], {name: sites.failures_of(board, key, shown=False)})
    words = "A. Stranger", 'href="https://example.org/noise"', "Wrong with the least uncertainty", "seed 2", key
    for expected in words:
        assert expected in text
    assert "javascript:" not in text


def test_titles_say_what_is_resolved(board) -> None:
    """A method may be the best if no pair shows another one to be better."""
    (title,) = re.findall("<h1>(.*?)</h1>", sites.index_page([board]))
    single = False
    for name, label in (("in_domain", "in-domain"), ("shifted", "shifted")):
        ranked = board.sets[name]["referral_accuracy_area"]
        unbeaten = set(ranked.models) - {worse for _, worse in ranked.better()}
        single |= len(unbeaten) == 1
        best = f"{board.entries[ranked.order()[0]].title} is the best of 4 methods"
        assert f"{label}, {best if len(unbeaten) == 1 else f'{len(unbeaten)} of 4 methods may be the best'}" in title
    assert title in sites.benchmark_page(board)
    several = f"On 2 of 2 benchmarks some methods are shown to be better than others; a single best method is shown on {2 if single else 'none'}"
    assert f"<h1>{several}</h1>" in sites.index_page([board, board])


def content(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def image(image_id):
    return np.full((8, 8, 3), 90, np.uint8) if image_id.startswith("in_domain") else None


def build(board, out):
    return write_site([board], out, images={NAME: image})


@pytest.fixture(scope="module")
def built(board, tmp_path_factory):
    """A site; later ones read its curves."""
    out = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("cache")))
        build(board, out)
        patch.setattr(sites, "to_svg", None)
        yield out


def test_a_second_site_reads_its_curves(built, board, tmp_path) -> None:
    build(board, tmp_path / "second")
    assert content(tmp_path / "second") == content(built)


def test_every_link_of_every_page_leads_to_a_file(built) -> None:
    pages = list(built.rglob("*.html"))
    assert len(pages) == 3 - 1 + 1 + 7 + 4  # index, printed; benchmark; rankings; methods
    for page in pages:
        for target in re.findall(r'(?:href|src)="([^"#]+)', page.read_text("utf-8")):
            if not target.startswith("https://"):
                assert (page.parent / target).is_file() or "images/" in target, (page.name, target)


def test_the_site_fits_a_phone_and_is_accessible(built, browser) -> None:
    (first,) = list(built.glob("methods/evil*.html"))
    sets = built / NAME / "index.html", built / NAME / "in_domain-auroc.html"
    for page in (built / "index.html", *sets, first, built / "printed.html"):
        check_page(browser, page)


def test_what_a_submission_says_is_text(built) -> None:
    texts = [path.read_text("utf-8") for path in built.rglob("*.html")]
    assert not any("<script>alert" in text for text in texts)
    assert any("&lt;script&gt;alert(1)&lt;/script&gt; {{ 7 * 7 }}" in text for text in texts)
    assert {text.count("<script>") for text in texts} == {1}, "the script of all pages, named by its hash"


def test_predictions_are_there_to_download_with_the_score_s_digits(built, board) -> None:
    for key, entry in board.entries.items():
        for one in entry.seeds:
            read = read_predictions(built / "predictions" / key / NAME / f"seed-{one.metadata['seed']}.parquet")
            assert np.array_equal(read.prob, one.prob)


def test_json_holds_the_numbers_and_the_manifest_every_file(built, board) -> None:
    numbers = json.loads((built / "board.json").read_text())
    assert numbers["benchmarks"][0]["sets"]["shifted"]["scores"]["auroc"]["pairs"]
    listed = set(json.loads((built / MANIFEST).read_text())["files"])
    assert listed == set(content(built)) - {MANIFEST}


def test_a_build_that_was_stopped_is_completed_and_leftovers_are_deleted(built, board, tmp_path, monkeypatch) -> None:
    whole = content(built)
    out, count = tmp_path / "site", 0
    real = sites.write_bytes

    def stopping(path, data, **options):
        nonlocal count
        count += 1
        if count == 12:
            raise KeyboardInterrupt
        return real(path, data, **options)

    (out / "methods").mkdir(parents=True)
    (out / "methods" / "gone.html").write_text("old")
    (out / MANIFEST).write_text(json.dumps({"schema": "retinabench.site/1", "files": ["methods/gone.html"]}))
    monkeypatch.setattr(sites, "write_bytes", stopping)
    with pytest.raises(KeyboardInterrupt):
        build(board, out)
    monkeypatch.setattr(sites, "write_bytes", real)
    build(board, out)
    assert content(out) == whole


def test_a_folder_of_something_else_and_a_manifest_that_leads_out_are_refused(built, board, tmp_path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        build(board, tmp_path / "own")
    (tmp_path / "own" / MANIFEST).write_text(json.dumps({"files": ["../thesis.txt"]}))
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not in the site"):
        build(board, tmp_path / "own")
    assert (tmp_path / "thesis.txt").is_file()
