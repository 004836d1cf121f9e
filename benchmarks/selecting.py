"""What choosing a classifier within a budget costs, beside fixing one, and beside the best of them in hindsight.

Eight candidates, four slopes of the loss by two ridges, on tables of ``benchmarks.classification``; replace-one,
delta = 1e-5. "best fixed" and "worst fixed" are of candidates fitted with the whole budget, by mean accuracy on the
held-out rows themselves; "mean fixed" is what a choice at random gets. `select` is shown by the share of the budget
that it keeps for its last fit.

Run ``python -m benchmarks.selecting``: half an hour on one processor; ``--splits 3`` takes minutes.
"""

import argparse
import itertools
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.accuracy import show
from benchmarks.classification import DELTA, EPSILONS, affairs, cancer, synthetic, two_digits
from dpfast import ObjectivePerturbationClassifier, UtilityWarning, select
from dpfast.solvers import CappedLogisticLoss

CAPS, RIDGES = (0.125, 0.25, 0.5, 1.0), (1.0, 30.0)
SHARES = (0.0, 0.5, 0.8, 0.9)


def candidates():
    losses = [CappedLogisticLoss(cap) if cap < 1.0 else "logistic" for cap in CAPS]
    options = {"bound_x": 1.0, "classes": [0, 1]}
    return [
        ObjectivePerturbationClassifier(1.0, DELTA, loss=loss, ridge=ridge, **options)
        for loss, ridge in itertools.product(losses, RIDGES)
    ]


def fixed(task, epsilon, candidate, **options):
    found = []
    for run in range(task.n_splits):
        model = candidate.set_params(epsilon=epsilon, delta=DELTA, **options).fit(*task.learning(run))
        found.append(model.score(*task.judged(run)))
    return np.mean(found)


def selected(task, epsilon, share):
    found = []
    for run in range(task.n_splits):
        chosen = select(candidates(), *task.learning(run), epsilon=epsilon, delta=DELTA, refit_share=share)
        found.append(chosen.score(*task.judged(run)))
    return np.mean(found), np.std(found) / np.sqrt(len(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=25)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UtilityWarning)
    with threadpool_limits(1):
        for make in (cancer, two_digits, affairs, synthetic(20_000, max(1, options.splits // 4))):
            task = make(options.splits)
            if task is None:
                continue
            rows = []
            for epsilon in EPSILONS:
                each = [fixed(task, epsilon, candidate) for candidate in candidates()]
                row = {f"{task.name}: epsilon": f"{epsilon:g}", "best fixed": f"{max(each):.3f}"}
                row |= {"mean fixed": f"{np.mean(each):.3f}", "worst fixed": f"{min(each):.3f}"}
                default = ObjectivePerturbationClassifier(
                    epsilon, DELTA, bound_x=1.0, classes=[0, 1], fit_intercept=False
                )
                row["default"] = f"{fixed(task, epsilon, default):.3f}"
                for share in SHARES:
                    row[f"select, {share:g} kept"] = "{:.3f} +- {:.3f}".format(*selected(task, epsilon, share))
                rows.append(row)
            show(rows, whole=True)
            print(flush=True)


if __name__ == "__main__":
    main()
