"""Noise in an objective at a given strong convexity m: ours against Redberg, Koskela and Wang's, and what signs save.

Their Theorem 3.1 (NeurIPS 2023, add/remove) is the profile of a line at epsilon - |log(1 - c/m)|. It is compared as
printed, and with log(1 + c/m) in that place, which is enough; under replace-one, which it does not cover, with twice
the gradient. Ours is all that a release needs, the part of epsilon that hides the solver's error included. The second
table holds noise at equal epsilon against that for no known sign: a line's under add/remove, a plane's under
replace-one.
Run ``python benchmarks/papers/objective_noise.py``: a second or so.
"""

import math

from dpfast import Privacy
from dpfast.privacy import objective_noise, objective_scale
from dpfast.releases.objective_bounds import ObjectiveBounds
from dpfast.solvers import L2Ball, LogisticLoss, SmoothedHinge, SmoothedHuber, SquaredLoss

EPSILONS = (0.5, 1.0, 2.0, 4.0)
DELTAS = (1e-9, 1e-6, 1e-5, 1e-3)
CONVEXITIES = (1.0, 3.0, 10.0, 30.0, 100.0)
LOSSES = {
    "logistic": (LogisticLoss(), None),
    "hinge": (SmoothedHinge(), None),
    "Huber": (SmoothedHuber(), None),
    "squared, reach 1": (SquaredLoss(), L2Ball(1.0)),
    "squared, reach 0.05": (SquaredLoss(), L2Ball(0.05)),
}


def theirs(epsilon, delta, gradient, curvature_epsilon):
    left = epsilon - curvature_epsilon
    return objective_scale(left, delta, gradient, geometry="line") if left > 0.0 else math.inf


def ours(privacy, bounds, convexity):
    """Noise at exactly this strong convexity, the least allowed."""
    noise = objective_noise(
        privacy,
        changes=bounds.gradient_changes,
        curvature=bounds.curvature,
        strong_convexity=convexity,
        dim=bounds.n_features,
        cost=lambda deviation, convexity: convexity,
    )
    return noise.scale if noise.strong_convexity == convexity else math.inf


def against_theirs():
    """Ratios of our noise to theirs, with log(1 + c/m) and as printed; - where theirs has no epsilon left."""
    worst = 0.0
    for adjacency, factor, n_rows in (("add_remove", 1.0, None), ("replace_one", 2.0, 1000)):
        bounds = ObjectiveBounds(LogisticLoss(), 10, 1.0, 1.0, n_rows=n_rows)
        print(f"\n{adjacency}, logistic loss: our noise over theirs (over theirs as printed)")
        print("epsilon  delta " + "".join(f"{f'm = {m:g}':>16}" for m in CONVEXITIES))
        for epsilon in EPSILONS:
            for delta in DELTAS:
                cells = []
                for m in CONVEXITIES:
                    own = ours(Privacy(epsilon, delta, adjacency), bounds, m)
                    c, gradient = bounds.curvature, factor * bounds.gradient
                    ratios = [
                        own / theirs(epsilon, delta, gradient, taken)
                        for taken in (math.log1p(c / m), -math.log1p(-c / m))
                    ]
                    worst = max(worst, *ratios)
                    cells.append("{:.3f} ({:.3f})".format(*ratios))
                print(f"{epsilon:7g} {delta:6.0e}" + "".join(f"{cell:>16}" for cell in cells))
    print(f"\nlargest ratio: {worst:.4f}")


def against_no_sign():
    epsilons = (0.25, *EPSILONS)
    for adjacency, n_rows in (("add_remove", None), ("replace_one", 1000)):
        print(f"\n{adjacency}, delta = 1e-5 (1e-6): noise less, in percent, at what curvature leaves of epsilon")
        print(f"{'':22}" + "".join(f"{epsilon:>14g}" for epsilon in epsilons))
        for name, (loss, region) in LOSSES.items():
            bounds = ObjectiveBounds(loss, 10, 1.0, 1.0, region, n_rows=n_rows)
            before = ("line", bounds.gradient) if n_rows is None else ("plane", bounds.gradient_change)
            cells = []
            for epsilon in epsilons:
                falls = []
                for delta in (1e-5, 1e-6):
                    old = objective_scale(epsilon, delta, before[1], geometry=before[0])
                    new = min(
                        objective_scale(epsilon, delta, length, geometry=geometry)
                        for geometry, length in bounds.gradient_changes.items()
                    )
                    falls.append(100.0 * (1.0 - new / old))
                cells.append("{:.1f} ({:.1f})".format(*falls))
            print(f"{name:22}" + "".join(f"{cell:>14}" for cell in cells))


if __name__ == "__main__":
    against_theirs()
    against_no_sign()
