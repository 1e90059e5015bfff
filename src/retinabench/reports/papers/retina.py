"""Tables 1 to 13 of the Retina Benchmark paper (Band et al. 2021), for the tasks and criteria that the files hold.

The numbers of the tables follow the order of the paper's text. A task that the paper does not know gets the same tables
without numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.papers.collect import STANDARD_BLUR, Collection, Group, Study
from retinabench.reports.papers.inference import column
from retinabench.reports.papers.layout import Block, Cell, Column, Row, Table
from retinabench.reports.papers.words import CRITERIA, in_words, needs, slug, task_words

COUNTRY, SEVERITY, JOINTLY = "country_shift", "severity_shift", "balanced_joint_accuracy_area"
NUMBERS = {  # (kind, task, tuned on the joint validation set as well)
    ("referral", COUNTRY, False): 1, ("referral", SEVERITY, False): 2,
    ("prediction", COUNTRY, False): 4, ("prediction", SEVERITY, False): 5,
    ("areas", COUNTRY, False): 6, ("areas", SEVERITY, False): 7,
    ("prediction", COUNTRY, True): 8, ("prediction", SEVERITY, True): 9,
    ("areas", COUNTRY, True): 10, ("areas", SEVERITY, True): 11,
    ("blur", SEVERITY, False): 12, ("blur", COUNTRY, False): 13,
}  # fmt: skip
DETECTION = 3
OF_SETS = (("nll", "accuracy", "auprc"), ("auroc", "ece_top_label"))
AREAS = (
    ("referral_auroc_area", "referral_accuracy_area"),
    ("referral_nll_area", "referral_auprc_area"),
)
PERCENT = ("accuracy", "auroc", "auprc", "ood_auroc", "ood_auprc")
"""Scores that the paper prints in percent."""
Built = tuple[list[Table], list[str]]


def tables(collection: Collection) -> Built:
    """Return all tables that the files allow, and a line for each that they do not."""
    made: list[Table] = []
    lacking: list[str] = []
    for build in (_referral, _prediction, _areas, _blur):
        for study in collection.studies:
            found = build(study, collection)
            if isinstance(found, Table):
                made.append(found)
            else:
                lacking.append(found)
    found = _detection(collection)
    (made if isinstance(found, Table) else lacking).append(found)  # type: ignore[arg-type]
    made.sort(key=lambda table: (int(table.number) if table.number else 99, table.name))
    return made, [line for line in lacking if line]


def _number(kind: str, study: Study) -> str:
    task = study.task.removesuffix("_published")
    if study.criterion not in ("", "in_domain_auroc", JOINTLY):
        return ""
    return str(NUMBERS.get((kind, task, study.criterion == JOINTLY), ""))


def _table(kind: str, study: Study, title: str, caption: str, blocks: Sequence[Block]) -> Table:
    number = _number(kind, study)
    name = "-".join(
        part for part in (f"table-{int(number):02d}" if number else "table", kind, slug(study)) if part
    )
    return Table(name, number, f"{title}, {in_words(study)}", caption, blocks, study.task, study.criterion)


def rows(
    groups: Sequence[Group],
    columns: Sequence[Column],
    rules: str,
    rule: Callable[[int], bool] = lambda k: False,
) -> list[Row]:
    """One row per method; the best of every column in bold. rule: before which rows a line is drawn."""
    cells = [column(groups, (one.set, one.score), rules) for one in columns]
    return [Row(group.name, [of_column[k] for of_column in cells], rule(k)) for k, group in enumerate(groups)]


def has(groups: Sequence[Group], name: str) -> bool:
    """Whether any run holds images of a set."""
    return any(key[0] == name for group in groups for run in group.runs for key in run.value)


def referral_columns(name: str, shares: Sequence[tuple[float, str]]) -> list[Column]:
    """AUROC and accuracy of a set where these shares are referred: (share, what stands above)."""
    return [
        Column(name, f"{metric}_at_{round(100 * share)}", above, _label(metric))
        for share, above in shares
        for metric in ("auroc", "accuracy")
    ]


def _label(score: str) -> str:
    return f"{SCORES[score].label} (%)" if score in PERCENT else SCORES[score].label


SHARES = ((0.0, "No referral"), (0.5, "50 % referred"), (0.7, "70 % referred"))


def _referral_blocks(
    groups: Sequence[Group], study: Study, rules: str, rule: Callable[[int], bool] = lambda k: False
) -> list[Block]:
    blocks = []
    for name in ("in_domain", "shifted"):
        if has(groups, name):
            columns = referral_columns(name, SHARES)
            blocks.append(Block(task_words(study.task, name), columns, rows(groups, columns, rules, rule)))
    return blocks


def _referral(study: Study, collection: Collection) -> Table | str:
    if not study.groups:
        return needs("referral", study, f"no file at the standard blur {STANDARD_BLUR}")
    caption = (
        "AUROC and accuracy of the images that are kept where the most uncertain are referred to an expert."
    )
    return _table(
        "referral", study, "Expert referral", caption, _referral_blocks(study.groups, study, collection.rules)
    )


def _prediction(study: Study, collection: Collection) -> Table | str:
    if not study.groups:
        return needs("prediction", study, f"no file at the standard blur {STANDARD_BLUR}")
    sets = [name for name in ("in_domain", "shifted", "joint") if has(study.groups, name)]
    blocks = []
    for part in OF_SETS:
        columns = [
            Column(name, score, _label(score), SET_LABELS[name], score in PERCENT)
            for score in part
            for name in sets
        ]
        blocks.append(Block("", columns, rows(study.groups, columns, collection.rules)))
    caption = "Predictive performance and calibration of all images, none referred. NLL in nats; ECE of the top label, 15 bins."
    return _table("prediction", study, "Prediction and calibration", caption, blocks)


def _areas(study: Study, collection: Collection) -> Table | str:
    if not study.groups:
        return needs("areas", study, f"no file at the standard blur {STANDARD_BLUR}")
    sets = [name for name in ("in_domain", "shifted", "joint", "balanced") if has(study.groups, name)]
    blocks = []
    for part in AREAS:
        columns = [
            Column(name, score, _label(score), SET_LABELS[name], False) for score in part for name in sets
        ]
        blocks.append(Block("", columns, rows(study.groups, columns, collection.rules)))
    caption = (
        "Areas under the selective prediction curves: each metric of the kept images, averaged over the share referred. "
        "Balanced: both domains with the same mass."
    )
    return _table("areas", study, "Selective prediction", caption, blocks)


def _detection(collection: Collection) -> Table | str:
    """Table 3: all tasks side by side, where uncertainty shall tell the shifted images from the others."""
    studies = [study for study in collection.studies if has(study.groups, "joint")]
    primary = [study for study in studies if study.criterion != JOINTLY] or studies
    if not primary:
        return "Table 3 (detection of shifted images) needs a file with images of both domains."
    alike = len({study.criterion for study in primary}) == 1
    names = list(dict.fromkeys(group.name for study in primary for group in study.groups))
    columns: list[Column] = []
    cells: dict[str, list[Cell]] = {name: [] for name in names}
    for study in primary:
        for score in ("ood_auroc", "ood_auprc"):
            columns.append(
                Column(
                    "joint",
                    score,
                    in_words(study, not alike),
                    _label(score),
                    task=study.task,
                    criterion=study.criterion,
                )
            )
            of_groups = column(study.groups, ("joint", score), collection.rules)
            found = dict(zip((group.name for group in study.groups), of_groups, strict=True))
            for name in names:
                cells[name].append(found.get(name, Cell(float("nan"), runs=0, why="there is no such file")))
    block = Block("", columns, [Row(name, cells[name]) for name in names])
    caption = "How well the uncertainty that drives the referral tells shifted images from those of the training domain."
    tuned = CRITERIA.get(primary[0].criterion, "") if alike else ""
    title = f"Detection of shifted images, {tuned}" if tuned else "Detection of shifted images"
    return Table(f"table-{DETECTION:02d}-detection", str(DETECTION), title, caption, [block])


def _blur(study: Study, collection: Collection) -> Table | str:
    if not study.variants:
        if study.criterion == JOINTLY:
            return ""
        return needs("blur", study, "files of several blur constants (metadata or label `blur`)")
    groups = sorted(
        study.variants,
        key=lambda g: ([h.base for h in study.variants].index(g.base), g.ensemble, g.blur or STANDARD_BLUR),
    )
    named = [
        Group(
            f"{g.name}, blur {g.blur or STANDARD_BLUR}",
            g.base,
            g.ensemble,
            g.blur,
            g.runs,
            g.tests,
            g.members,
        )
        for g in groups
    ]
    blocks = _referral_blocks(
        named, study, collection.rules, lambda k: k > 0 and groups[k].name != groups[k - 1].name
    )
    caption = "Referral by the blur constant of the preprocessing: the local average's deviation is the disc's radius / blur."
    return _table("blur", study, "Effect of the blur constant", caption, blocks)
