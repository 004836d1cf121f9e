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
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dpfast import (
    L2Ball,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    PolicyEvaluation,
    PrivateStandardScaler,
    SparseRegression,
    SyntheticControl,
    Trajectories,
    UtilityWarning,
    private_bounds,
    select,
)
from dpfast.datasets import california_prop99, gymnasium_values
from dpfast.datasets.decision_processes import gymnasium_table, table_trajectories
from dpfast.solvers import SmoothedQuantile
from dpfast.statistics import first_visit_returns

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
        ("refine=0", 1.0, {"refine": 0}),
        ("nonnegative=True", 1.0, {"nonnegative": True}),
        ("mechanism='independent'", 1.0, {"mechanism": "independent"}),
        ("mechanism='projection', public labels", 1.0, {"mechanism": "projection", "public_labels": True}),
    ):
        fits = (MultiOutcomeRidge(epsilon, 1e-6, bound_x=60.0, bound_y=1.0, **options) for _ in range(10))
        found = [fit.fit(images, indicators) for fit in fits]
        line(label, [r2(model, images, indicators) for model in found])
        line(f"{label}: right digits", [np.mean(model.predict(images).argmax(1) == labels) for model in found])


# ---- classification --------------------------------------------------------------------------------------------------

TYPICAL = np.array([13, 18, 85, 550, 0.095, 0.09, 0.06, 0.04, 0.18, 0.062])
SPREAD = np.array([4, 5, 25, 350, 0.015, 0.05, 0.07, 0.04, 0.03, 0.007])
LIMITS = np.array([30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1])
USUAL = (
    np.array([5, 8, 35, 0, 0.065, 0, 0, 0, 0.12, 0.05]),
    np.array([21, 28, 135, 1200, 0.125, 0.2, 0.2, 0.12, 0.24, 0.075]),
)


def right(make, rows, labels, copies=1, runs=RUNS):
    """Share of people held out that models are right on, over splits."""
    shares = []
    for split in range(runs):
        x, kept, y, sought = train_test_split(rows, labels, test_size=0.25, random_state=split, stratify=labels)
        shares.append(make().fit(np.tile(x, (copies, 1)), np.tile(y, copies)).score(kept, sought))
    return shares


def classification():
    table = datasets.load_breast_cancer()
    cells, benign = table.data[:, :10], table.target
    options = {"box_x": USUAL, "classes": [0, 1]}

    def private(epsilon=1.0, delta=1e-5, **others):
        return lambda: ObjectivePerturbationClassifier(epsilon, delta, **options | others)

    print("breast cancer, 426 people learn, 143 judge: share right at epsilon 1, delta 1e-5")
    print(f"  the larger class alone {benign.mean():.3f}")
    standardised = make_pipeline(StandardScaler(), LogisticRegression())
    line("no privacy, standardised", right(lambda: standardised, cells, benign))
    for epsilon in (0.1, 0.3, 1.0, 3.0):
        line(f"epsilon {epsilon}", right(private(epsilon), cells, benign))
    for copies in (3, 10):
        line(f"{426 * copies} people", right(private(), cells, benign, copies))
    kept = np.random.default_rng(0).permutation(len(cells))
    for people in (100, 200):
        line(f"{people * 3 // 4} people", right(private(), cells[kept[:people]], benign[kept[:people]]))
    middle, half = (USUAL[0] + USUAL[1]) / 2.0, (USUAL[1] - USUAL[0]) / 2.0
    for label, others in {
        "bound_x=2700, no box": {"box_x": None, "bound_x": 2700.0},
        "box_x of 0 to the most that is possible": {"box_x": (0.0 * LIMITS, LIMITS)},
        **{f"limits {k} times as wide": {"box_x": (middle - k * half, middle + k * half)} for k in (0.25, 0.5, 2, 4)},
        "fit_intercept=False": {"fit_intercept": False},
        "method='objective'": {"method": "objective"},
        "method='gradient'": {"method": "gradient"},
        "loss='logistic'": {"loss": "logistic"},
        "loss='hinge'": {"loss": "hinge"},
        "ridge=1": {"ridge": 1.0},
        "ridge=100": {"ridge": 100.0},
        "constraint=L2Ball(2)": {"constraint": L2Ball(2.0)},
        "adjacency='add_remove'": {"adjacency": "add_remove"},
        "delta=1e-3": {"delta": 1e-3},
        "delta=0": {"delta": 0.0},
    }.items():
        line(label, right(private(**others), cells, benign))
    images, digits = datasets.load_digits(return_X_y=True)
    images = images / 16.0 - 0.5
    print("ten digits, 1347 images learn, 450 judge: share right at delta 1e-5")
    options = {"bound_x": 3.5, "classes": range(10), "fit_intercept": True}
    line("no privacy", right(lambda: LogisticRegression(max_iter=1_000), images, digits, runs=5))
    for epsilon in (0.3, 1.0, 3.0):
        line(f"epsilon {epsilon}", right(private(epsilon), images, digits))
    for copies in (4, 10):
        line(f"epsilon 1, {1347 * copies} images", right(private(), images, digits, copies, runs=10))
    line("epsilon 1, method='objective'", right(private(method="objective"), images, digits, runs=10))
    wine = datasets.load_wine()
    low = np.array([10, 0.5, 1, 10, 70, 0.5, 0, 0, 0, 1, 0.4, 1, 200])
    high = np.array([15, 6, 3.5, 30, 165, 4, 5.5, 0.7, 4, 13, 1.8, 4, 1700])
    bottles = 2.0 * (wine.data - low) / (high - low) - 1.0
    options = {"bound_x": 2.5, "classes": [0, 1, 2], "fit_intercept": True}
    for epsilon in (0.3, 1.0):
        line(f"wine: 133 bottles, epsilon {epsilon}", right(private(epsilon), bottles, wine.target))


# ---- convex_regression -----------------------------------------------------------------------------------------------


NORMAL = (
    np.array([20, 1, 15, 65, 120, 50, 20, 1, 3.5, 60]),
    np.array([80, 2, 35, 120, 280, 190, 80, 7, 5.7, 120]),
)


def convex_regression():
    frame = diabetes()
    rows, score = frame.iloc[:, :10].to_numpy(), frame.target.to_numpy() - 150.0

    def runs(copies, epsilon=1.0, delta=1e-5, runs=RUNS, judged=r2, **options):
        x, y = np.tile(rows, (copies, 1)), np.tile(score, copies)
        options = {"box_x": NORMAL, "bound_y": 150.0, "loss": "huber"} | options
        fits = (ObjectivePerturbationRegressor(epsilon, delta, **options) for _ in range(runs))
        return [judged(fit.fit(x, y), x, y) for fit in fits]

    print("progression of diabetes by ten measurements: R2, epsilon 1, delta 1e-5")
    line("no privacy", runs(1, np.inf, 0.0, 1))
    for radius in (37.5, 75.0, 150.0):
        line(f"no privacy, ball of {radius}", runs(1, np.inf, 0.0, 1, constraint=L2Ball(radius)))
    for copies in (1, 5, 20):
        x, y = np.tile(rows, (copies, 1)), np.tile(score, copies)
        for epsilon in (0.3, 1.0, 3.0):
            line(f"epsilon {epsilon}, {442 * copies} people", runs(copies, epsilon))
            line("the same, ball of 75", runs(copies, epsilon, constraint=L2Ball(75.0)))
            fits = (MultiOutcomeRidge(epsilon, 1e-5, box_x=NORMAL, bound_y=150.0) for _ in range(RUNS))
            line("the same, MultiOutcomeRidge", [r2(fit.fit(x, y), x, y) for fit in fits])
    middle, half = (NORMAL[0] + NORMAL[1]) / 2.0, (NORMAL[1] - NORMAL[0]) / 2.0
    ball = {"constraint": L2Ball(75.0)}
    for copies in (1, 5):
        for label, options in {
            "method='objective'": {"method": "objective"},
            **{f"ball of {r}": {"constraint": L2Ball(r)} for r in (19.0, 37.5, 150.0, 300.0)},
            "squared, ball of 75": ball | {"loss": "squared"},
            "squared, ball of 300": {"loss": "squared", "constraint": L2Ball(300.0)},
            "quantile": {"loss": "quantile"},
            **{f"limits {k} times as wide": {"box_x": (middle - k * half, middle + k * half)} for k in (0.5, 2, 4)},
            "bound_y=450": {"bound_y": 450.0},
            "no intercept": {"fit_intercept": False},
            "add_remove": {"adjacency": "add_remove"},
            "delta=0": {"delta": 0.0},
            "delta=0, ball of 75": ball | {"delta": 0.0},
        }.items():
            line(f"{442 * copies} people, {label}", runs(copies, **options))

    def below(model, x, y):
        return np.mean(y <= model.predict(x))

    print("share of people below the predicted quantile")
    for copies in (1, 5, 20):
        for quantile in (0.5, 0.9):
            options = {"loss": SmoothedQuantile(quantile, 18.75)}
            line(f"{442 * copies} people, quantile {quantile}", runs(copies, judged=below, **options))


# ---- sparse_regression -----------------------------------------------------------------------------------------------


def sparse_regression():
    frame = diabetes()
    typical = np.array([50, 1.5, 25, 93, 200, 120, 50, 4, 4.6, 90])
    reach = np.array([30, 0.5, 15, 40, 100, 90, 40, 4, 1.3, 30])
    single = np.clip((frame.iloc[:, :10].to_numpy() - typical) / reach, -1.0, 1.0)
    pairs = [(i, j) for i in range(10) for j in range(i, 10) if (i, j) != (1, 1)]
    rows = np.column_stack([single, *(single[:, i] * single[:, j] for i, j in pairs)])
    names = [*frame.columns[:10], *(f"{frame.columns[i]}*{frame.columns[j]}" for i, j in pairs)]
    score = (frame.target.to_numpy() - 150.0) / 150.0

    def runs(copies, epsilon=1.0, delta=1e-5, runs=RUNS, x=rows, **options):
        options = {"n_nonzero": 3, "bound_y": 1.0} | options
        x, y = np.tile(x, (copies, 1)), np.tile(score, copies)
        models = [SparseRegression(epsilon, delta, **options).fit(x, y) for _ in range(runs)]
        chosen = collections.Counter(name for model in models for name in np.array(names)[model.support_].tolist())
        often = ", ".join(f"{name} {100 * count // runs}%" for name, count in chosen.most_common(5))
        return [r2(model, x, y) for model in models], often

    def show(label, *args, **options):
        scores, often = runs(*args, **options)
        line(label, scores)
        print(f"    {often}")

    print(f"progression of diabetes, 3 of {len(names)} features: R2 and picks, delta 1e-5")
    for size in (1, 2, 3, 5):
        show(f"no privacy, n_nonzero={size}", 1, np.inf, 0.0, 1, n_nonzero=size)
    for copies in (1, 5, 20):
        for epsilon in (0.3, 1.0, 3.0):
            show(f"{442 * copies} people, epsilon {epsilon}", copies, epsilon)
    for label, options in {
        "n_nonzero=1": {"n_nonzero": 1},
        "n_nonzero=2": {"n_nonzero": 2},
        "n_nonzero=5": {"n_nonzero": 5},
        "the ten measurements alone": {"x": single},
        "bound_y=3": {"bound_y": 3.0},
        "bound_y='private'": {"bound_y": "private"},
        "bound_x=8": {"bound_x": 8.0},
        "bound_x='private'": {"bound_x": "private"},
        "selection_share=0.3": {"selection_share": 0.3},
        "selection_share=0.7": {"selection_share": 0.7},
        "selector='exponential'": {"selector": "exponential", "runs": 10},
        "selector='sample_aggregate'": {"selector": "sample_aggregate", "runs": 10},
        "adjacency='add_remove'": {"adjacency": "add_remove"},
        "delta=0": {"delta": 0.0},
    }.items():
        for copies in (1, 5):
            show(f"{442 * copies} people, {label}", copies, **options)
    images, digits = datasets.load_digits(return_X_y=True)
    zero = (digits == 0) - 0.1
    print("is it a zero, by 3 of 64 pixels: R2, 1797 images")
    for label, epsilon in (("no privacy", np.inf), ("epsilon 1", 1.0), ("epsilon 3", 3.0)):
        fits = (SparseRegression(epsilon, 1e-5, n_nonzero=3, bound_y=1.0) for _ in range(RUNS))
        line(label, [r2(fit.fit(images / 16.0, zero), images / 16.0, zero) for fit in fits])
    print("3 of 60 made-up independent features, as in the guide: share of runs that find all three")
    for selector in ("pursuit", "exponential", "sample_aggregate"):
        for people in (500, 1_000, 4_000):
            found = []
            for seed in range(RUNS if selector == "pursuit" else 10):
                rng = np.random.default_rng(seed)
                x = rng.uniform(-1, 1, size=(people, 60))
                y = 0.9 * x[:, 7] - 0.6 * x[:, 20] + 0.5 * x[:, 41] + 0.2 * rng.normal(size=people)
                model = SparseRegression(1.0, 1e-5, n_nonzero=3, selector=selector).fit(x, y)
                found.append(model.support_.tolist() == [7, 20, 41])
            print(f"  {selector}, {people} people: {np.mean(found):.2f}", flush=True)


# ---- synthetic_control -----------------------------------------------------------------------------------------------


def counties(each):
    """Made-up counties: the series of 38 states times a factor, and noise of five packs a year."""
    rng = np.random.default_rng(0)
    states = california_prop99().drop("California").to_numpy()[:, None, :]
    factors, noise = rng.normal(1.0, 0.1, (38, each, 1)), rng.normal(0.0, 5.0, (38, each, 31))
    return np.clip(states * factors + noise, 0.0, None).reshape(-1, 31)


def synthetic_control():
    panel = california_prop99()
    california = panel.loc["California"].to_numpy()
    states = panel.drop("California").to_numpy()

    def show(label, donors, epsilon=1.0, delta=1e-6, runs=RUNS, **options):
        options = {"bound": (0.0, 300.0)} | options
        public = {name: options[name] for name in ("bound", "center") if options.get(name) not in (None, "private")}
        exact = SyntheticControl(np.inf, **{"bound": (0.0, 300.0)} | public).fit(donors, 19, target=california)
        means, errors, held = [], [], []
        for _ in range(runs):
            model = SyntheticControl(epsilon, delta, **options).fit(donors, 19, target=california)
            path = model.predict(california[:19])
            means.append(np.mean(california[19:] - path))
            errors.append(np.sqrt(np.mean((path - exact.predict(california[:19])) ** 2)))
            if options.get("mechanism") is None:
                same = {"ridge": model.ridge_, "center": model.center_, "bound": getattr(model, "bound_", model.bound)}
                alike = SyntheticControl(np.inf, **{"bound": (0.0, 300.0)} | public | same).fit(donors, 19)
                low, high = model.interval(california[:19], 0.9)
                held.append(np.mean((low <= alike.predict(california[:19])) & (alike.predict(california[:19]) <= high)))
        line(f"{label}: effect", means, 1)
        line("  off by, a year", errors, 1)
        if held:
            print(f"    90% limits hold {np.mean(held):.2f} of the years without noise")

    def exact(donors):
        model = SyntheticControl(np.inf, bound=(0.0, 300.0)).fit(donors, 19, target=california)
        gap = california[19:] - model.predict(california[:19])
        print(f"  {len(donors)} donors, no privacy: effect {gap.mean():.1f}")

    print("California's Proposition 99: mean effect, packs a head and year, 1989 to 2000; epsilon 1, delta 1e-6")
    exact(states)
    for epsilon in (1.0, 10.0, 100.0):
        show(f"38 states, epsilon {epsilon}", states, epsilon, 1e-4)
    for each in (10, 30, 100, 300):
        exact(counties(each))
        show(f"{38 * each} counties", counties(each))
    many = counties(100)
    for epsilon in (0.3, 3.0, 10.0):
        show(f"3800 counties, epsilon {epsilon}", many, epsilon)
    for label, options in {
        "row_bound=None": {"row_bound": None},
        "row_bound=(4.4, 3.5)": {"row_bound": (4.4, 3.5)},
        "bound=(0, 200)": {"bound": (0.0, 200.0)},
        "bound=(0, 1000)": {"bound": (0.0, 1_000.0)},
        "bound=300": {"bound": 300.0},
        "bound='private'": {"bound": "private"},
        "center='private'": {"center": "private"},
        "center=120": {"center": 120.0},
        "center='target'": {"center": "target"},
        "basis=3": {"basis": 3},
        "basis=2": {"basis": 2},
        "n_components='noise'": {"n_components": "noise"},
        "ridge=19": {"ridge": 19.0},
        "placebo_share=0.1": {"placebo_share": 0.1},
        "delta=0": {"delta": 0.0},
        "adjacency='add_remove'": {"adjacency": "add_remove"},
        "mechanism='output'": {"mechanism": "output"},
    }.items():
        show(f"3800 counties, {label}", many, **options)


# ---- policy_evaluation -----------------------------------------------------------------------------------------------

#: The actions that reach the goal of FrozenLake most often: left 0, down 1, right 2, up 3.
POLICY = [0, 3, 0, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0]


def policy_evaluation():
    table, start = gymnasium_table("frozen_lake_4x4")
    policy = np.eye(4)[POLICY]
    true = gymnasium_values("frozen_lake_4x4", 0.95, policy)
    states = np.flatnonzero((true > 0.0) & (np.arange(16) != 3))  # this policy never comes to the corner

    def walks(people, horizon=60):
        flat = table_trajectories(table, people, start=start, horizon=horizon, policy=policy, seed=people)
        return Trajectories(*flat)

    def show(label, people=2_000, epsilon=1.0, delta=1e-6, runs=RUNS, **options):
        options = {"gamma": 0.95, "return_range": (0, 1), "horizon": 60} | options
        data = walks(people, options["horizon"] or 60)
        exact = PolicyEvaluation(np.inf, **options).fit(data).value_
        models = [PolicyEvaluation(epsilon, delta, **options).fit(data) for _ in range(runs)]
        line(
            f"{label}: states' root mean square error",
            [np.sqrt(np.mean((m.value_ - true)[states] ** 2)) for m in models],
        )
        line("  of the first state", [abs(m.value_[0] - true[0]) for m in models])
        if hasattr(models[0], "value_std_"):
            reach = [np.abs(m.value_ - true)[states] <= 1.96 * m.value_std_[states] for m in models]
            print(f"    without privacy {np.sqrt(np.mean((exact - true)[states] ** 2)):.3f};", end=" ")
            print(f"true values within 1.96 value_std_: {np.mean(reach):.2f}")

    visits = first_visit_returns(walks(2_000), 0.95, horizon=60).counts
    print("FrozenLake 4x4, gamma .95: epsilon 1, delta 1e-6; of 2,000 people so many visit a state")
    print(visits.reshape(4, 4), true.reshape(4, 4).round(2), sep="\n")
    for people in (200, 500, 2_000, 20_000):
        show(f"{people} people", people)
    for epsilon in (0.1, 0.3, 3.0):
        show(f"2000 people, epsilon {epsilon}", epsilon=epsilon)
    for label, options in {
        "return_range from rewards of 0 to 1": {"return_range": None},
        "return_range='private'": {"return_range": "private"},
        "return_range=(0, 0.5)": {"return_range": (0, 0.5)},
        "return_range=(0, 10)": {"return_range": (0, 10)},
        "horizon=15": {"horizon": 15},
        "horizon=30": {"horizon": 30},
        "horizon=100": {"horizon": 100},
        "lag=0": {"lag": 0},
        "ridge=0.01, at once": {"ridge": 0.01},
        "shrinkage=True": {"shrinkage": True},
        "adjacency='add_remove'": {"adjacency": "add_remove"},
        "delta=0": {"delta": 0.0},
        "method='lsw'": {"method": "lsw"},
        "method='lsl'": {"method": "lsl"},
        "rows and columns as features": {"features": np.column_stack([np.ones(16), *np.divmod(np.arange(16), 4)])},
    }.items():
        show(label, **options)


# ---- scaling_and_selection -------------------------------------------------------------------------------------------


def scaling_and_selection():
    table = datasets.load_breast_cancer()
    cells, benign = table.data[:, :10], table.target

    def scaled(copies, epsilon, **options):
        x = np.tile(cells, (copies, 1))
        options = {"box_x": (np.zeros(10), LIMITS)} | options
        models = [PrivateStandardScaler(epsilon, 1e-5, **options).fit(x) for _ in range(RUNS)]
        spread = cells.std(axis=0)
        means = [np.median(np.abs(model.mean_ - cells.mean(axis=0)) / spread) for model in models]
        line(
            f"{569 * copies} people, epsilon {epsilon}, {options if len(options) > 1 else ''}: means, in spreads", means
        )
        line("  spreads, relative", [np.median(np.abs(model.scale_ / spread - 1.0)) for model in models])

    print("ten measurements of cells: the middle error of ten means and spreads, delta 1e-5")
    for copies in (1, 5, 20):
        for epsilon in (0.1, 0.3, 1.0):
            scaled(copies, epsilon)
    scaled(5, 0.3, adjacency="add_remove")
    for copies in (1, 5, 20):
        x = np.tile(cells, (copies, 1))
        models = [PrivateStandardScaler(0.3, 1e-5, box_x="private").fit(x) for _ in range(RUNS)]
        means = [np.median(np.abs(model.mean_ - cells.mean(axis=0)) / cells.std(axis=0)) for model in models]
        line(f"{569 * copies} people, epsilon 0.3, box_x='private'", means)

    def classifier(epsilon, **options):
        options = {"bound_x": 3.0, "classes": [0, 1], "fit_intercept": True} | options
        return ObjectivePerturbationClassifier(epsilon, 5e-6, **options)

    def pipeline(share):
        scaler = PrivateStandardScaler(share, 5e-6, box_x=(np.zeros(10), LIMITS))
        return lambda: make_pipeline(scaler, classifier(1.0 - share))

    rows = (cells - TYPICAL) / SPREAD
    print("classification of the same, epsilon 1 in all: share right on people held out")
    for copies in (1, 5, 20):
        line(f"{426 * copies} people, about typical values", right(lambda: classifier(1.0), rows, benign, copies))
        for share in (0.1, 0.3, 0.5):
            line(f"{426 * copies} people, scaler with {share}", right(pipeline(share), cells, benign, copies))

    bounds = (0.3, 1.0, 3.0, 10.0)
    print(f"select among bound_x {bounds}, rows about typical values; bound_x=10 fits the whole budget")
    for copies in (1, 5, 20):
        for bound in bounds:
            make = lambda: classifier(1.0, bound_x=bound)  # noqa: B023, E731
            line(f"{426 * copies} people, bound_x={bound} alone", right(make, rows, benign, copies))
        shares, picks = [], collections.Counter()
        for split in range(RUNS):
            x, kept, y, sought = train_test_split(rows, benign, test_size=0.25, random_state=split, stratify=benign)
            candidates = [classifier(1.0, bound_x=bound) for bound in bounds]
            x, y = np.tile(x, (copies, 1)), np.tile(y, copies)
            chosen = select(candidates, x, y, epsilon=1.0, delta=1e-5)
            shares.append(chosen.score(kept, sought))
            picks[bounds[chosen.best_index_]] += 1
        line(f"{426 * copies} people, select", shares)
        print(f"    picks {dict(sorted(picks.items()))}")


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
            seen = np.mean([one.box_x[0] < one.box_x[1] for one in found])
            print(
                f"    certain in {np.mean([one.are_certain for one in found]):.2f}; limits for {seen:.2f} of features"
            )


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
        centred = x - x.mean(axis=0)
        squares = np.linalg.lstsq(centred, y)[0]
        ridge = np.linalg.solve(centred.T @ centred + model.ridge_ * np.eye(5), centred.T @ y)
        scale = {} if model.residual_std_ is not None else {"residual_std": 0.15}
        for target, sought in (("population", true), ("least_squares", squares), ("ridge", ridge)):
            table = model.summary(target=target, **scale).drop(index="(intercept)")
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


PAGES = {
    page.__name__: page
    for page in (
        multi_outcome,
        classification,
        convex_regression,
        sparse_regression,
        synthetic_control,
        policy_evaluation,
        scaling_and_selection,
        bounds,
        inference,
    )
}


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
