"""The numbers that docs/guides and docs/concepts quote, page by page, with the noise of an ordinary release.

``python -m benchmarks.guides`` prints all in some four minutes on one processor, ``python -m benchmarks.guides PAGE``
those of one page. No release is seeded, so the last digit moves from run to run; data that are made up are seeded.
"Rows" beyond what a table has are the same table several times over: what a study of that size, of people like these,
would meet.
"""

import argparse
import collections
import warnings

import numpy as np
from sklearn import datasets
from threadpoolctl import threadpool_limits

from dpfast import (
    MultiOutcomeRidge,
    PrivateStandardScaler,
    UtilityWarning,
    private_bounds,
)

RUNS = 40


def line(label, scores, digits=3):
    """Print a median, and what one run in ten is below and above."""
    low, middle, high = np.nanquantile(np.asarray(scores, float), [0.1, 0.5, 0.9], axis=0)
    print(f"  {label:52} {middle:8.{digits}f}   ({low:.{digits}f} to {high:.{digits}f})", flush=True)


def r2(model, rows, outcomes):
    """Share of the variance that is explained, mean over outcomes."""
    left = ((outcomes - model.predict(rows)) ** 2).sum(axis=0)
    return np.mean(1.0 - left / ((outcomes - outcomes.mean(axis=0)) ** 2).sum(axis=0))


def diabetes():
    return datasets.load_diabetes(as_frame=True, scaled=False).frame


# ---- multi_outcome ---------------------------------------------------------------------------------------------------

PEOPLE = {"bound_x": None, "box_x": ([18, 1, 15], [80, 2, 45]), "bound_y": 3.0, "fit_intercept": True}


def multi_outcome():
    frame = diabetes()
    rows = frame[["age", "sex", "bmi"]].to_numpy()
    outcomes = np.column_stack([(frame.bp - 93) / 15, (frame.s1 - 200) / 40, (frame.s6 - 90) / 15])

    def runs(copies, epsilon=1.0, delta=1e-5, runs=RUNS, **options):
        x, y = np.tile(rows, (copies, 1)), np.tile(outcomes, (copies, 1))
        return [r2(MultiOutcomeRidge(epsilon, delta, **PEOPLE | options).fit(x, y), x, y) for _ in range(runs)]

    print("blood pressure, cholesterol and glucose by age, sex and bmi: mean R2, epsilon 1, delta 1e-5")
    line("442 people, no privacy", runs(1, np.inf, 0.0, 1))
    for copies in (1, 3, 5, 20):
        line(f"{442 * copies} people", runs(copies))
    for epsilon in (0.3, 3.0):
        line(f"442 people, epsilon {epsilon}", runs(1, epsilon))
        line(f"2210 people, epsilon {epsilon}", runs(5, epsilon))
    for label, options in {
        "refine=0": {"refine": 0},
        "bound_y=1.5": {"bound_y": 1.5},
        "bound_y=2": {"bound_y": 2.0},
        "bound_y=6": {"bound_y": 6.0},
        "bound_y=30": {"bound_y": 30.0},
        "bound_y=30, refine=0": {"bound_y": 30.0, "refine": 0},
        "bound_y='private'": {"bound_y": "private"},
        "box_x='private'": {"box_x": "private"},
        "box_x of 0 to 120, 1 to 2, 0 to 100": {"box_x": ([0, 1, 0], [120, 2, 100])},
        "fit_intercept=False": {"fit_intercept": False},
        "adjacency='add_remove'": {"adjacency": "add_remove"},
        "delta=1e-3": {"delta": 1e-3},
        "delta=0": {"delta": 0.0},
    }.items():
        for copies in (1, 5):
            line(f"{442 * copies} people, {label}", runs(copies, **options))
    raw = np.column_stack([frame.bp, frame.s1, frame.s6])
    for label, y, bound in (("in their own units", raw, 350.0), ("about typical values", outcomes, 3.0)):
        x, y = np.tile(rows, (5, 1)), np.tile(y, (5, 1))
        fits = (MultiOutcomeRidge(1.0, 1e-5, **PEOPLE | {"bound_y": bound, "refine": 0}) for _ in range(RUNS))
        line(f"2210 people, refine=0, outcomes {label}", [r2(fit.fit(x, y), x, y) for fit in fits])
    images, labels = datasets.load_digits(return_X_y=True)
    indicators = (labels[:, None] == range(10)).astype(float)
    print("ten digits by 64 pixels, 1797 images: mean R2, epsilon 1, delta 1e-6")
    for label, epsilon, options in (
        ("no privacy", np.inf, {}),
        ("one covariance for all", 1.0, {}),
        ("nonnegative=True", 1.0, {"nonnegative": True}),
        ("mechanism='independent'", 1.0, {"mechanism": "independent"}),
        ("mechanism='projection', public labels", 1.0, {"mechanism": "projection", "public_labels": True}),
    ):
        fits = (MultiOutcomeRidge(epsilon, 1e-6, bound_x=60.0, bound_y=1.0, **options) for _ in range(10))
        found = [fit.fit(images, indicators) for fit in fits]
        line(label, [r2(model, images, indicators) for model in found])
        line(f"{label}: right digits", [np.mean(model.predict(images).argmax(1) == labels) for model in found])


# ---- bounds ----------------------------------------------------------------------------------------------------------


def bounds():
    table = datasets.load_breast_cancer(as_frame=True).data
    area = table[["mean area"]].to_numpy()
    print(f"mean area of 569 nuclei, {area.mean():.0f}: size of the error at epsilon 1, delta 1e-5")
    for high in (500, 1_000, 2_000, 5_000, 20_000, 100_000):
        clipped = abs(np.clip(area, 0, high).mean() - area.mean())
        for copies in (1, 100):
            fits = (PrivateStandardScaler(1.0, 1e-5, box_x=(0, high)) for _ in range(RUNS))
            errors = [abs(fit.fit(np.tile(area, (copies, 1))).mean_[0] - area.mean()) for fit in fits]
            line(f"{569 * copies} people, limits 0 to {high} (clipping {clipped:.0f})", errors, 1)
    print("a norm by private_bounds, over the one that one person in a hundred is beyond; epsilon, people")
    norms = np.linalg.norm(table, axis=1)
    for epsilon in (0.1, 0.3, 1.0):
        for people in (100, 300, 569, 2_000, 10_000):
            draw = np.random.default_rng(people).integers(0, 569, people)
            rows, sought = table.to_numpy()[draw], np.quantile(norms[draw], 0.99)
            found = [private_bounds(rows, epsilon=epsilon, delta=1e-5) for _ in range(RUNS)]
            line(f"epsilon {epsilon}, {people} people", [one.bound_x / sought for one in found], 2)
    print("the worst of 30 limits by private_bounds(box=True), over the feature's largest entry")
    for epsilon in (0.3, 1.0):
        for people in (300, 569, 2_000, 10_000):
            draw = np.random.default_rng(people).integers(0, 569, people)
            rows = table.to_numpy()[draw]
            found = [private_bounds(rows, epsilon=epsilon, delta=1e-5, norms=False, box=True) for _ in range(RUNS)]
            line(f"epsilon {epsilon}, {people} people", [np.max(one.box_x[1] / rows.max(axis=0)) for one in found], 2)
            print(f"    certain in {np.mean([one.are_certain for one in found]):.2f}")


# ---- inference -------------------------------------------------------------------------------------------------------


def coverage(people, epsilon, fits=200, **options):
    """How often 95% limits hold the three kinds of coefficients, and how often p < .05 where the coefficient is 0."""
    rng = np.random.default_rng(people)
    true = np.array([0.6, -0.3, 0.1, 0.0, 0.0])
    held, said, wide = collections.Counter(), [], []
    for _ in range(fits):
        x = rng.uniform(-0.4, 0.4, (people, 5))
        y = x @ true + rng.normal(0.0, 0.15, people)
        model = MultiOutcomeRidge(epsilon, 1e-6, bound_x=0.9, bound_y=1.0, **options).fit(x, y)
        squares = np.linalg.lstsq(x, y)[0]
        ridge = np.linalg.solve(x.T @ x + model.ridge_ * np.eye(5), x.T @ y)
        scale = {} if model.residual_std_ is not None else {"residual_std": 0.15}
        for target, sought in (("population", true), ("least_squares", squares), ("ridge", ridge)):
            table = model.summary(target=target, **scale)
            held[target] += np.mean((table.low <= sought) & (sought <= table.high)) / fits
            if target == "population":
                said.append(np.mean(table.p_value.to_numpy()[3:] < 0.05))
                wide.append(np.mean(table.std_error))
    covered = ", ".join(f"{target} {share:.3f}" for target, share in held.items())
    print(f"  {people} people, epsilon {epsilon}, {options}: 95% limits cover {covered};", end=" ")
    print(f"p < .05 for {np.mean(said):.3f} of zeros; standard error {np.median(wide):.4f}", flush=True)


def inference():
    print("five features, sampling standard error .15 / (.23 sqrt(n)) each; 200 fits a line")
    for people in (1_000, 2_000, 10_000, 50_000):
        print(f"  without privacy the standard error is {0.15 / (0.8 / 12**0.5) / people**0.5:.4f}")
        coverage(people, 1.0)
        coverage(people, 1.0, refine=0)


PAGES = {page.__name__: page for page in (multi_outcome, bounds, inference)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="*", choices=[*PAGES, []])
    warnings.simplefilter("ignore", UtilityWarning)
    with threadpool_limits(1):
        for page in parser.parse_args().page or PAGES:
            print(f"\n== {page}")
            PAGES[page]()


if __name__ == "__main__":
    main()
