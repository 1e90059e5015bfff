"""How tasks, sets and criteria are called in tables and figures, and what captions say of numbers."""

from __future__ import annotations

import re

from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.papers.collect import Collection, Study

TASKS = {
    "country_shift": "Country Shift",
    "severity_shift": "Severity Shift",
    "severity_shift_published": "Severity Shift as released",
    "severity_shift_mild": "Severity Shift, mild",
    "severity_shift_mild_published": "Severity Shift, mild, as released",
    "in_domain": "one population",
    "hold_out_2019": "hold-out of 2019",
    "": "task not stated",
}
CRITERIA = {
    "": "",
    "in_domain_auroc": "tuned on in-domain validation AUROC",
    "balanced_joint_accuracy_area": "tuned on the joint validation metric",
}
OF_TASK = {
    ("country_shift", "in_domain"): "In-domain (EyePACS in the paper)",
    ("country_shift", "shifted"): "Population shift (APTOS 2019 in the paper)",
    ("severity_shift", "in_domain"): "In-domain (no, mild or moderate: grades 0 to 2)",
    ("severity_shift", "shifted"): "Severity shift (severe or proliferative: grades 3 and 4)",
}


def in_words(study: Study, criterion: bool = True) -> str:
    """Return a study's task and, if asked for, criterion: `Country Shift, tuned on …`."""
    task = TASKS.get(study.task, study.task)
    tuned = CRITERIA.get(study.criterion, f"tuned on {study.criterion}") if criterion else ""
    return f"{task}, {tuned}" if tuned else task


def slug(study: Study) -> str:
    """Return a study's task and criterion for the name of a file."""
    short = {"in_domain_auroc": "tuned-in-domain", "balanced_joint_accuracy_area": "tuned-jointly"}
    parts = (study.task, short.get(study.criterion, study.criterion))
    return "-".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts if part)


def task_words(task: str, name: str) -> str:
    """Return what a set of a task is called."""
    return OF_TASK.get((task.removesuffix("_published"), name), SET_LABELS[name])


def needs(kind: str, study: Study, what: str) -> str:
    """Return the line about a table or figure that cannot be made."""
    return f"{kind[0].upper()}{kind[1:]}, {in_words(study)}: needs {what}."


def spread(collection: Collection, studies: list[Study]) -> str:
    """Return what the numbers of a table are, which is the end of its caption."""
    runs = {len(group.runs) for study in studies for group in (study.groups or study.variants)}
    single, several = 1 in runs, max(runs, default=1) > 1
    if collection.rules == "published":
        means = "mean ± standard error over runs (ddof 0, runs without a value dropped). " if several else ""
        return f"Published rules: {means}Bold: the best mean; the published protocol has no test and no intervals."
    parts = []
    if several:
        count = _counted(runs - {1})
        parts.append(f"Mean ± standard error over runs that differ by their seed ({count}; ddof 1).")
    if single and collection.bootstrap:
        parts.append(
            f"{'A method with a single run: its value' if several else 'One run per method: value'} with the 95 % interval "
            f"over patients ({collection.bootstrap:,} bootstrap replicates); seeds would add to it."
        )
    elif single:
        parts.append("One run: its value alone, for no bootstrap was asked for.")
    parts.append(
        "Bold: the best mean and all that it does not beat at the 5 % level (paired test over patients"
        f"{' and runs' if several else ''}, Holm's correction over all pairs of a column); nothing is bold where the best beats none."
    )
    return " ".join(parts)


def _counted(runs: set[int]) -> str:
    known = sorted(runs)
    return f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}"
