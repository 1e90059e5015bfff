"""The parts of the documentation that registries and modules write themselves, for pages of `docs/` and for `formulas.md`."""

import inspect
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import retinabench
from retinabench.concepts.banks.definition import bank_names, find_definition
from retinabench.core import errors
from retinabench.core.registry import import_location
from retinabench.data.registry import DATASETS, TASKS
from retinabench.data.tasks import SPLITS
from retinabench.experiments import uci
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import Optimizer
from retinabench.metrics.registry import ON_REQUEST, SCORES, ScoreSpec

METHOD_GROUPS = {
    "A network, and dropout": ("map", "dropout", "dropout_off"),
    "Variational inference": ("mfvi", "radial", "rank1", "fsvi", "vbll", "ivon", "vogn", "gaussian_vi"),
    "Markov chain Monte Carlo": ("sgld", "sghmc", "csghmc", "hmc", "nuts", "mclmc", "mile"),
    "Ensembles and averages along a training": (
        "swag", "multiswag", "anchored", "sequential_anchored", "batch_ensemble", "head_ensemble", "lora_ensemble", "ensemble",
    ),
    "After training": ("laplace", "sngp", "ddu", "tta", "temperature"),
}  # fmt: skip
"""Heading -> names of the methods whose cards stand below it; others stand under the last one."""
FORMULAS = {
    "Preprocessing": "data.preprocessing.preprocess", "Damage": "data.preprocessing.corruption",
    "Findings of an inspection": "inspection.inspection", "Uncertainty": "metrics.image_sets",
    "Selective summaries": "metrics.classification", "Calibration": "metrics.calibration",
    "Smooth calibration": "metrics.smooth_calibration", "Grades": "metrics.grades", "Sets of grades": "metrics.grades:GradeSets",
    "Baseline": "metrics.scoring:Baseline", "Other thresholds": "metrics.clinical.screening_table:PolicyGrid",
    "Patients": "metrics.patients:patient_uncertainty", "Readings of a referral": "metrics.clinical.screening_table",
    "Certified thresholds": "metrics.guarantees.certificate", "Targets of a certificate": "metrics.guarantees.goals",
    "Tests by betting": "metrics.guarantees.sequence", "Three zones": "metrics.guarantees.triage",
    "Thresholds of groups": "metrics.guarantees.triage:Within", "Actions for new patients": "metrics.actions",
    "The best simple rule": "metrics.clinical.decision_curve:best_simple_rule", "Recalibration": "metrics.recalibration",
    "Monitoring": "metrics.monitoring", "Evidence at any time": "metrics.follow_up",
    "Differences of two models": "metrics.paired", "Ranks of methods": "metrics.comparison",
    "Labels of predictions files": "reports.papers.measurements", "Subgroups": "metrics.clinical.groups",
    "Between groups": "metrics.clinical.groups:between_groups", "Readers": "metrics.clinical.readers",
    "Planning a study": "metrics.planning", "Confidence sequences and claims": "concepts.inference.claims",
    "Unpredictability, and AUROC of answers": "concepts.inference.unpredictability",
    "Rates of a concept, also for new patients": "concepts.inference.rates",
    "Questioning strategies": "concepts.questioning.strategies", "Convergence of a reference": "fidelity.reference.convergence",
    "References of the competition": "fidelity.leaderboard.importing",
    "Measures of fidelity, and marks on submissions": "fidelity.scoring.measures",
    "Submissions to the fidelity benchmark": "fidelity.submissions.submission",
    "Places on a fidelity board": "fidelity.scoring.resolution", "Contract of a method": "methods.base",
    "Cold posteriors": "methods.natural_gradients", "Steps whose memory is short": "methods.training.gradients",
    "Folder of a study": "experiments.study.study", "Predictions of a study": "experiments.study.prediction_files",
    "Criteria of a search": "experiments.search.criteria", "Search spaces": "experiments.search.space",
}  # fmt: skip
"""Heading -> module, or `module:name`, whose docstring states the formulas, assumptions and sources."""


def formulas() -> str:
    lead = "Definitions, formulas, assumptions, proofs and sources, as the modules state them that compute with them."
    parts = ["# Formulas and definitions", lead]
    for title, location in FORMULAS.items():
        text = inspect.getdoc(import_location(f"retinabench.{location}")) or ""
        if ":" in location:  # what a function returns is for readers of the code
            text = text.partition("\n\n")[2]
        head, named, sources = text.partition("References:\n")
        parts += [f"## {title}", head.strip(), *([f"**References.** {inspect.cleandoc(sources)}"] if named else [])]
    return "\n\n".join(parts) + "\n"


def methods() -> str:
    parts = []
    options = "    options:\n      members: [Config]\n      show_root_heading: false\n      heading_level: 4"
    grouped = {name for names in METHOD_GROUPS.values() for name in names}
    rest = tuple(name for name in METHODS if METHODS.is_builtin(name) and name not in grouped)
    for title, names in METHOD_GROUPS.items():
        parts.append(f"## {title}")
        for name in names + (rest if title == "After training" else ()):
            parts.append(f"### {name}\n\n::: {card_of(METHODS[name])}\n{options}")
    return "\n\n".join(parts)


def card_of(method: Any) -> str:
    return f"{method.__module__}.{method.__qualname__}" if isinstance(method, type) else method.__name__


def scores() -> str:
    parts = []
    head = ["name", "score", "formula", "it misleads when"]
    for title, asked in (("Every score", False), ("On request", True)):
        alike: dict[tuple[str, str], list[str]] = {}
        for name, score in SCORES.items():
            if (score.sets == ON_REQUEST) == asked:
                alike.setdefault((score.formula, score.misleads), []).append(name)
        cells = [(_code(names), _heading([SCORES[name] for name in names]), *key) for key, names in alike.items()]
        parts.append(f"## {title}\n\n{_table(head[:3] if asked else head, cells)}")
    sources: dict[str, list[str]] = {}
    for name, score in SCORES.items():
        sources.setdefault(_source_of(score.function), []).append(re.sub(r"_at_\d+$", "_at_…", name))
    listed = [f"- {source} {_code(dict.fromkeys(names))}" for source, names in sources.items() if source]
    return "\n\n".join([*parts, "## Sources", "\n".join(listed)])


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _heading(alike: list[ScoreSpec]) -> str:
    """Return the heading of scores with one definition; labels of several differ behind the last comma."""
    first = alike[0]
    return first.heading if len(alike) == 1 else replace(first, label=first.label.rpartition(", ")[0]).heading


def intervals() -> str:
    found: dict[type, list[str]] = {}
    for name, score in SCORES.items():
        found.setdefault(type(score.interval), []).append(re.sub(r"_at_\d+$", "_at_…", name))
    about = {kind: (inspect.getdoc(kind) or "").partition("\n")[0] for kind in found}
    cells = [(f"`{kind.__name__}`", about[kind], _code(dict.fromkeys(names))) for kind, names in found.items()]
    return f"## The method of every score\n\n{_table(['method', 'what it is', 'scores'], cells)}"


def _source_of(function: Any) -> str:
    """Return the reference that the docstring of a score's function gives, on one line."""
    text = inspect.getdoc(getattr(function, "func", function)) or ""
    return " ".join(text.partition("References:\n")[2].split())


def data() -> str:
    names = ", ".join(split.replace("_", " ") for split in SPLITS)
    head = ["`--task`", "what it does", "referable from grade", f"released counts: {names}"]
    cells = []
    for name, one in TASKS.items():
        what, counts = " ".join((inspect.getdoc(one.divide) or "").split()), [f"{k:,}" for k in one.published or ()]
        cells.append((f"`{name}`", what, str(one.referable_from), " / ".join(counts)))
    parts = ["## The tasks", _table(head, cells), "## The data sets"]
    for name, dataset in DATASETS.items():
        title, _, card = dataset.card.partition("\n")
        rows = [line for line in card.splitlines() if not line.startswith("| how to get it |")]
        parts += [f"### {name}", title, "\n".join(rows).strip(), f"**How to get it.** {dataset.steps}"]
    return "\n\n".join(parts)


def targets() -> str:
    head = ["target", "data", "network", "weights", "training points", "test points"]
    cells = [
        (f"`{name}`", one.title, one.network, f"{one.parameters:,}", f"{one.train:,}", ", ".join(one.groups))
        for name, one in TARGETS.items()
    ]
    return f"## The targets\n\n{_table(head, cells)}"


def banks() -> str:
    head = ["bank", "what", "where its files come from", "licence", "reference"]
    found = {name: find_definition(name) for name in bank_names()}
    cells = [(f"`{name}`", one.title, one.download, one.licence, one.reference) for name, one in found.items()]
    return f"## The banks\n\n{_table(head, cells)}"


def limits() -> str:
    """Return what is refused of files from strangers, as `core.errors` states it."""
    return "| limits" + (inspect.getdoc(errors) or "").partition("| limits")[2]


def settings_of_uci() -> str:
    return f"## Settings\n\n{(inspect.getdoc(uci) or '').partition(chr(10))[2].strip()}"


def _table(head: list[str], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table; of rows that are longer than the head the last cells are left out."""
    lines = [" | ".join(one.replace("|", "\\|") for one in row[: len(head)]) for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {line} |" for line in lines)])


def posteriors() -> str:
    """Return a table of the posterior that each method approximates, asked of its settings, under a prior of variance 1."""
    points = 100
    optimizer = Optimizer(l2=0.5 / points, l2_on="everything", reweight="none", augment="none")
    options: dict[str, dict[str, Any]] = {"laplace": {"prior_precision": 1.0}, "multiswag": {"path": "sgld"}}
    options["mfvi"] = {"prior_mean": "zero", "prior_stddev": 1.0}
    cells = []
    for name, method in METHODS.items():
        for given in ({}, options.get(name, {})):
            words = ", ".join(f"{key} = {value}" for key, value in given.items())
            found = method.Config(name=name, **given).target_posterior(optimizer, points)
            which = "yes" if found.temperature is not None else "none"
            cells.append((f"`{name}`" + (f", {words}" if words else ""), which, found.how))
    head = ["method and settings", "stated posterior", "in which sense, or why there is none"]
    return f"## Every method\n\n{_table(head, dict.fromkeys(cells))}"


PARTS_OF_API = {
    "Fidelity": ("fidelity.problems.problem", "fidelity.problems.Problem", "fidelity.problems.Submitted", "fidelity.targets.target.Target"),
    "Concepts": (
        "concepts.banks.bank.Bank", "concepts.questioning.examination.examine",
        "concepts.questioning.examination.Examination", "concepts.questioning.examination.ConceptResult",
        "concepts.inference.rates.Rate", "concepts.inference.claims.Claim", "concepts.inference.claims.parse_claim",
    ),
    "Methods": (
        "methods.base.Method", "methods.settings.MethodConfig", "methods.settings.TrainingRun",
        "methods.training.posterior.Posterior", "methods.training.posterior.UncertaintyPosterior", "methods.training.loop.train",
    ),
    "Plug-ins": (
        "core.registry.Registry", "metrics.registry.ScoreSpec", "data.image_dataset.ImageDataset", "data.splits.Division",
    ),
}  # fmt: skip
"""Heading -> names beside those of `retinabench.__all__` that the reference of the Python interface documents."""


def interface() -> str:
    public = [f"{module}.{name}" for name, module in sorted(retinabench._MODULES.items()) if name != "Problem"]
    options = "    options:\n      heading_level: 4"
    parts = ["## Definitions"]
    for title, names in {"Scores and decisions": [*public, "predictions.table.Constructors"], **PARTS_OF_API}.items():
        parts += [f"### {title}", *(f"::: retinabench.{name}\n{options}" for name in names)]
    return "\n\n".join(parts)


ENTRIES = {
    "api.md": interface, "beliefs.md": posteriors, "methods.md": methods, "scores.md": scores, "intervals.md": intervals, "data.md": data,
    "fidelity.md": targets, "concept-banks.md": banks, "security.md": limits, "uci.md": settings_of_uci,
}  # fmt: skip
"""Page of `docs/` -> what is written below its text."""
