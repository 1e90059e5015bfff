"""What an examination costs, and how soon it decides a claim.

    python benchmarks/examine.py

1. 10,000 questions over 20 concepts (1,000 samples), without the examinee, and the ratio to scikit-learn. Compared is the same
   bookkeeping: after every question, the posterior mean and deviation on the grid of 101 points, by a new
   GaussianProcessRegressor (fixed kernel) fitted to all counts so far: of the concept asked, and of all concepts as Algorithm 1
   has it. scikit-learn's time is extrapolated from 60 refits at moments spread evenly over this very examination, best of 3 each.
2. A claim about one of the 14 observations of a chest radiograph: questions until "sensitivity of Edema >= 85 %" is decided, by the
   default strategy, which spends them on it, and by two others. 500 studies, shares from 2 to 50 % of them (Edema 17 %), a model
   that is right about 98 % of the samples with an observation and 90 % of those without.
3. Questions until a claim is decided and the share of wrong decisions, in a cell of 200 samples, with a look after every question.

Times are of one process; they mean something on a quiet machine only, ratios on any. Which strategy needs the fewest questions:
`benchmarks/strategies.py`; whether intervals, findings and claims keep their word: `benchmarks/examination_guarantees.py`.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Answers
from retinabench.concepts.inference.claims import Claim
from retinabench.concepts.inference.unpredictability import CENTRES, GRID, PUBLISHED, Performance, bin_of
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategy_comparison import COMPARED


def drawn_bank(samples, shares, seed=0):
    random = np.random.default_rng(seed)
    truth = (random.random((samples, len(shares))) < shares).astype(np.int8)
    return Bank(None, [f"concept {k}" for k in range(len(shares))], truth)


def drawn_answers(bank, seed=1):
    random = np.random.default_rng(seed)
    return Answers(bank, np.clip(0.3 + 0.4 * bank.truth + random.normal(0, 0.25, bank.truth.shape), 0, 1))


def scikit_learn_seconds(counts, repeats=3):
    """Seconds of one refit and prediction with the observations of these counts: the best of a few."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    places = np.flatnonzero(counts)
    kernel = ConstantKernel(PUBLISHED.signal, "fixed") * RBF(PUBLISHED.length, "fixed")
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        model = GaussianProcessRegressor(kernel, alpha=PUBLISHED.noise, optimizer=None)
        model.fit(CENTRES[places, None], counts[places]).predict(GRID[:, None], return_std=True)
        best = min(best, time.perf_counter() - start)
    return best


def speed(questions, samples=1000, concepts=20):
    print(f"## {questions:,} questions, {concepts} concepts, {samples:,} samples\n")
    bank = drawn_bank(samples, np.linspace(0.03, 0.6, concepts))
    answers = drawn_answers(bank)
    order = []

    def ask(sample, concept):
        order.append((sample, concept))
        return answers(sample, concept)

    examine(bank, ask, strategy="uncertainty", questions=questions)
    # What scikit-learn would take: refits at 60 moments of this very examination, spread evenly over it.
    place = {name: k for k, name in enumerate(bank.concepts)}
    asked = [(place[name], bin_of(int(bank.truth[s, place[name]]), answers(s, name))) for s, name in order]
    counts, refits = np.zeros((concepts, 100), np.int64), []
    moments = set(np.linspace(concepts, questions - 1, 60).astype(int).tolist())
    for number, (concept, where) in enumerate(asked):
        counts[concept, where] += 1
        if number in moments:
            refits.append(scikit_learn_seconds(counts[concept]))
    refit = float(np.mean(refits)) * questions
    models = [Performance() for _ in range(concepts)]
    start = time.perf_counter()
    for concept, where in asked:
        if models[concept].add(where):
            models[concept].uncertainty("std")
    update = time.perf_counter() - start
    print("| what | seconds | scikit-learn, concept asked | scikit-learn, all concepts |\n|---|---|---|---|")
    print(f"| scikit-learn | | {refit:.1f} s | {refit * concepts:.0f} s |")
    print(f"| the process alone | {update:.3f} | {refit / update:.0f}x | {refit * concepts / update:.0f}x |")
    for name in COMPARED:
        start = time.perf_counter()
        examine(bank, answers, strategy=name, questions=questions)
        took = time.perf_counter() - start
        print(f"| {name} | {took:.2f} | {refit / took:.0f}x | {refit * concepts / took:.0f}x |")


OBSERVATIONS = {
    "No Finding": 0.10, "Enlarged Cardiomediastinum": 0.30, "Cardiomegaly": 0.25, "Lung Opacity": 0.50, "Lung Lesion": 0.04,
    "Edema": 0.17, "Consolidation": 0.07, "Pneumonia": 0.05, "Atelectasis": 0.30, "Pneumothorax": 0.03,
    "Pleural Effusion": 0.25, "Pleural Other": 0.02, "Fracture": 0.03, "Support Devices": 0.50,
}  # fmt: skip


def edema(repetitions=20, studies=500):
    text = "sensitivity of Edema >= 0.85"
    print(f"\n## '{text}' among 14 observations of {studies} radiographs, {repetitions} repetitions\n")
    print("| strategy | questions until decided | decisions |\n|---|---|---|")
    counts, said = {"claims (default)": [], "precision": [], "random": []}, {}
    for number in range(repetitions):
        random = np.random.default_rng([9, number])
        truth = (random.random((studies, 14)) < list(OBSERVATIONS.values())).astype(np.int8)
        right = random.random(truth.shape) < np.where(truth == 1, 0.98, 0.9)
        bank = Bank(None, list(OBSERVATIONS), truth)
        answers = Answers(bank, np.where(right == (truth == 1), 0.9, 0.1))
        for strategy in counts:
            chosen = None if "default" in strategy else strategy
            found = examine(bank, answers, strategy=chosen, claim=text, seed=number)
            assert found.strategy == (chosen or "claims")
            (one,) = found.claims
            counts[strategy].append(one.after)
            said.setdefault(strategy, []).append(one.decided)
    for strategy, after in counts.items():
        low, mid, high = np.percentile(after, (10, 50, 90))
        decided = ", ".join(f"{said[strategy].count(one)} {one}" for one in sorted(set(said[strategy])))
        print(f"| {strategy} | {mid:.0f} (10 to 90 %: {low:.0f} to {high:.0f}) | {decided} |")


def claims(studies, of=200, goal=0.85):
    print(f"\n## 'sensitivity >= {goal:g}' in a cell of {of}, confidence 95 %, {studies} studies each\n")
    print("| right in the bank | questions until decided | wrong decisions |\n|---|---|---|")
    for share in (0.6, 0.7, 0.8, goal - 1 / of, goal, 0.9, 0.95, 1.0):
        truly, counts, wrong = round(share * of), [], 0
        for number in range(studies):
            answers = np.random.default_rng([truly, number]).permutation(np.arange(of) < truly)
            one = Claim("", 0, 1, True, goal, 0.95, of)
            while one.decided == "undecided":
                one.update(0, 1, bool(answers[one.asked]), one.asked + 1)
            counts.append(one.asked)
            wrong += (one.decided == "holds") != (truly >= goal * of)
        low, mid, high = np.percentile(counts, (10, 50, 90))
        print(
            f"| {truly} of {of} | {mid:.0f} (10 to 90 %: {low:.0f} to {high:.0f}) | {wrong / studies:.3f} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--studies", type=int, default=300)
    options = parser.parse_args()
    if options.questions:
        speed(options.questions)
    edema()
    claims(options.studies)


if __name__ == "__main__":
    main()
