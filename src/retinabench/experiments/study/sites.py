"""Leave one site out: every method trained on all sites but one, and tested on each site's test images.

The sites are prepared folders. For each of them `OUT/data/without-SITE` joins all of them, that site as the shifted domain, under ids that
begin with the name of the site; a site without validation or test images holds some out. A cell of the matrix is the score of the
runs without one site on the test images of a site, so that a column compares models on the same images: the diagonal has
not seen the site, the others have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from retinabench.core.errors import QUIET, InputError, Progress
from retinabench.core.files import write_bytes, write_json
from retinabench.core.results import JsonObject
from retinabench.core.seeds import derive
from retinabench.core.workspace import Workspace
from retinabench.data.dataset import Records, join
from retinabench.data.prepare import begin_folder
from retinabench.data.prepared import FORMAT, PIXEL_SETTINGS, Prepared, complete, open_prepared, prepared, write_shard
from retinabench.data.splits import in_domain
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.summary import StudySummary, score_column
from retinabench.metrics.comparison import rank_methods
from retinabench.metrics.registry import SCORES
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.claims import Claim, Judged, Models, Number, Statement, judge_claims
from retinabench.reports.toolkit.tables import Block, Cell, Column, Row, Table, p_value, to_markdown

SHOWN = ("auroc", "referral_accuracy_area")


def site_tasks(folders: Sequence[Path], out: Path, progress: Progress = QUIET) -> JsonObject:
    """Join the sites below `out`, once without each, and return the tasks of the study by the name of the site left out."""
    sites = [open_prepared(folder) for folder in folders]
    names = [folder.resolve().name for folder in folders]
    if len(sites) < 3 or len(set(names)) < len(names):
        hint = "Name each prepared folder once, by --data."
        raise InputError(f"{len(set(names))} sites of different names: leaving one out needs three or more", hint=hint)
    for name, site in zip(names[1:], sites[1:], strict=True):
        different = site.settings.other_pixels(sites[0].settings) + ["size"] * (site.size != sites[0].size)
        if different or site.table is not None:
            problem = f"was prepared with another {', '.join(different) or 'kind of data'} than {folders[0]}"
            raise InputError(problem, file=site.folder, hint="Prepare all sites in the same way.")
        if site.settings.meaning != sites[0].settings.meaning:
            progress.say(
                f"note: label 1 of '{name}' is {site.settings.meaning}, of '{names[0]}' {sites[0].settings.meaning}"
            )
    tasks = {}
    for left_out in names:
        folder = out / "data" / f"without-{left_out}"
        _join(dict(zip(names, sites, strict=True)), left_out, folder, progress)
        tasks[left_out] = {"task": "country_shift", "data": str(folder)}
    return tasks


def _join(sites: dict[str, Prepared], left_out: str, out: Path, progress: Progress) -> None:
    fingerprints, first = [one.fingerprint for one in sites.values()], next(iter(sites.values()))
    content: JsonObject = {"dataset": "sites", "left_out": left_out, "format": FORMAT, "sites": fingerprints}
    content |= {key: value for key in PIXEL_SETTINGS if (value := getattr(first.settings, key)) is not None}
    content |= {} if first.settings.graded else {"label": first.settings.meaning}
    workspace = Workspace(out, "joined data set", "prepare.json")
    begin_folder(workspace, content)
    with workspace.lock(wait=True, say=progress.say):
        if prepared(out):
            return
        shards: list[Path] = []
        for site in sites.values():
            for number, shard in enumerate(site.shards):
                site.check_shard(number)
                shards.append(out / f"images-{len(shards):05d}.npy")
                write_shard(shards[-1], shard)
        records = join([_of_site(site.records, name, shifted=name == left_out) for name, site in sites.items()])
        complete(out, records, shards, content, name=f"without-{left_out}", size=first.size, version=None)


def _of_site(records: Records, name: str, *, shifted: bool) -> Records:
    """Return the records of a site with its name before every id, and a split for validation and test."""
    split = np.full(len(records), "unused", "<U10")
    for part, rows in in_domain(replace(records, domain=np.full(len(records), "in_domain"))).items():
        split[rows] = part
    return replace(
        records,
        image_id=np.char.add(f"{name}:", records.image_id),
        patient_id=np.char.add(f"{name}:", records.patient_id),
        domain=np.full(len(records), "shifted" if shifted else "in_domain"),
        split=split,
    )


def site_tables(study: Study, summary: StudySummary, out: Path) -> list[Table]:
    """Write `sites.md` and `sites.json`, and return a table for every method and score: the worst unseen site first."""
    rows = [one.entry for table in summary.tables for one in table.entries if one.entry.files]
    sites = list(study.tasks)
    tables: list[Table] = []
    records = []
    for name in dict.fromkeys(row.name for row in rows):
        of_site = {
            row.task: ([read_predictions(file) for file in row.files], row.subsets) for row in rows if row.name == name
        }
        if len(of_site) < len(sites):
            continue
        columns: dict[str, Models] = {
            site: {one: ([_on_site(run, site) for run in runs], seeds) for one, (runs, seeds) in of_site.items()}
            for site in sites
        }
        for score in SHOWN:
            losses = _losses(columns, score, study)
            tables.append(_matrix(name, score, columns, losses, study))
            records += [{"method": name, "score": score, "site": one.label, **one.to_dict()} for one in losses]
    write_json(out / "sites.json", {"schema": "retinabench.sites/1", "unseen_minus_seen": records})
    write_bytes(out / "sites.md", "\n".join(["# Leave one site out", "", *map(to_markdown, tables)]).encode())
    return tables


def _on_site(run: Predictions, site: str) -> Predictions:
    """Return the test images of a site; seen or not, they are one domain."""
    own = np.flatnonzero(np.char.startswith(run.image_id, f"{site}:") & (run.split == "test"))
    mine = run.take(own)
    return replace(mine, domain=np.full(len(own), "in_domain"))


def _losses(columns: dict[str, Models], score: str, study: Study) -> list[Judged]:
    """Of every site: the models that have not seen it minus the mean of those that have."""
    claim = Claim(
        "", "", tuple(
            Statement(site, Number((site,), site, "in_domain", score, minus=tuple(one for one in columns if one != site)), 0.0)
            for site in columns
        ),
    )  # fmt: skip
    return list(judge_claims(columns, study.bootstrap, study.seed, [claim])[0].statements)


def _matrix(name: str, score: str, columns: dict[str, Models], losses: Sequence[Judged], study: Study) -> Table:
    spec, values = SCORES[score], {}
    for site, models in columns.items():
        found, _ = rank_methods(
            {one: list(runs) for one, (runs, _) in models.items()}, study.bootstrap, derive(study.seed, site), scores=[score],
            seeds={one: seeds for one, (_, seeds) in models.items()},
        )  # fmt: skip
        values[site] = found["in_domain"].scores[score].models
    unseen = {site: values[site][site].value for site in columns}
    order = sorted(columns, key=lambda site: (not np.isfinite(unseen[site]), spec.sign * unseen[site]))
    loss = {one.label: one for one in losses}
    rows = []
    for left_out in order:
        cells = [replace(Cell.of(values[site][left_out]), note="unseen" * (site == left_out)) for site in order]
        own = loss[left_out]
        cells += [Cell.number(own.difference, own.low, own.high, why=own.why or ""), Cell(p_value(own.p_holm))]
        rows.append(Row(f"without {left_out}", cells))
    heads = [replace(score_column(("in_domain", score), with_set=False), label=f"on {site}") for site in order]
    return Table(
        f"{spec.label} of {name} by the site that training left out and the site of the test images",
        [Block([*heads, Column("unseen − seen"), Column("p (Holm)")], rows)],
        "trained",
    )
