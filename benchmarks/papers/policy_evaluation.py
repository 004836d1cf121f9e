"""Private policy evaluation, measured on the conference paper's chain (Balle, Gomrokchi, Precup 2016, Section 6).

40 states, stay with probability 0.5, discount 0.99, reward 1 in the last; epsilon = delta = 0.1; 20 runs, each on
trajectories of its own. The four plots of Figure 1, every one with the constants of the supplement, of the conference
and of this package, and sufficient statistics beside them:

- a: RMSE against the number of trajectories m, for LSL and LSW; b: RMSE against lambda, at two sizes;
- c: RMSE with pairs of states aggregated; d: log10 of the excess risk, the mean square that privacy adds.

And what the paper has not: `needed.csv`, the number of trajectories with which each method comes within 10% of its RMSE
without privacy, by calculation (every trajectory visits all states, so counts are m); `which.csv`, which method to use:
the error that privacy adds over m at epsilon 0.1, 1 and 10, where all states are visited and where some rarely are.
Run ``python benchmarks/papers/policy_evaluation.py --output DIR``: CSV files and plots in some minutes; ``--quick`` in
some seconds.
"""

import argparse
import csv
import math
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np

from dpfast import PolicyEvaluation, Privacy, UnsoundCalibrationWarning, UtilityWarning
from dpfast.datasets.decision_processes import adjacent_pairs, chain_trajectories, chain_values, markov_trajectories
from dpfast.policy_evaluation.mechanism import Problem, RidgeFit, WeightedMeans
from dpfast.releases.mechanism import DataDependentGaussian
from dpfast.statistics import ReturnGrid, Trajectories

N, GAMMA, EPSILON, DELTA = 40, 0.99, 0.1, 0.1
RANGE = (0.0, 1.0)
TRUTH = chain_values(GAMMA, n_states=N)
# Per trajectory: a mean return is the mean of gamma^T, and gamma^2 is a discount too.
VARIANCE = float(np.mean(chain_values(GAMMA**2, n_states=N) - TRUTH**2))
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
RIDGE_SIZES = (1_000, 30_000)
RIDGES = tuple(10.0**e for e in np.arange(-1.0, 6.1, 0.5))
METHODS = {
    f"{name}, {constants}": {"method": method, "calibration": key}
    for method, name in (("lsw", "LSW"), ("lsl", "LSL"))
    for key, constants in (("sound", "sound"), ("icml", "conference"), ("paper", "supplement"))
} | {"sufficient statistics": {"method": "sufficient_statistics"}}
STYLES = {"sound": "-", "conference": "--", "supplement": ":", "sufficient statistics": "-"}
COLOURS = {"LSW": "tab:blue", "LSL": "tab:orange", "sufficient statistics": "tab:green", "no privacy": "0.4"}


def fit(walks, epsilon=EPSILON, delta=DELTA, **options):
    """Values of one fit with the paper's weights and range."""
    model = PolicyEvaluation(epsilon, delta, gamma=GAMMA, return_range=RANGE, weights=np.full(N, 1 / N), **options)
    return model.fit(walks).value_


def errors(sizes, runs, features=None):
    """A row for each method and m: RMSE to the truth, and the mean square added to the fit without privacy."""
    rows = []
    for m in sizes:
        found = {name: ([], []) for name in ("no privacy", *METHODS)}
        for run in range(runs):
            walks = even_walks(m, 1000 * m + run)
            exact = fit(walks, math.inf, features=features)
            for name in found:
                values = exact if name == "no privacy" else fit(walks, features=features, **METHODS[name])
                found[name][0].append(np.mean((values - TRUTH) ** 2))
                found[name][1].append(np.mean((values - exact) ** 2))
        for name, (squares, excess) in found.items():
            rows.append({"method": name, "m": m, "rmse": math.sqrt(np.mean(squares)), "excess": float(np.mean(excess))})
    return rows


def ridge_errors(sizes, ridges, runs):
    """RMSE of LSL for each lambda; none where the printed algorithm has no such lambda."""
    exact = {"no privacy": {"method": "lsl", "epsilon": math.inf}}
    fits = exact | {name: options for name, options in METHODS.items() if options["method"] == "lsl"}
    rows = []
    for m in sizes:
        squares = defaultdict(list)
        for run in range(runs):
            walks = even_walks(m, 1000 * m + run)
            for name, options in fits.items():
                for ridge in ridges:
                    if options.get("calibration", "sound") == "sound" or ridge > 1 / N:
                        squares[name, ridge].append(np.mean((fit(walks, ridge=ridge, **options) - TRUTH) ** 2))
        rows += [
            {"method": name, "m": m, "lambda": ridge, "rmse": math.sqrt(np.mean(found))}
            for (name, ridge), found in squares.items()
        ]
    return rows


def expected_squares(name, m, privacy):
    """Mean squares on the chain, where all counts are m: of the error without privacy, and of what privacy adds.

    LSL is held against itself without noise at the same lambda, which shrinks values by an eleventh: m/200.
    """
    options, weights = METHODS[name], np.full(N, 1 / N)
    if options["method"] == "sufficient_statistics":
        public = {"epsilon": privacy.epsilon, "delta": privacy.delta, "gamma": GAMMA, "return_range": RANGE}
        scales = PolicyEvaluation.plan(m, N, visited=1.0, weights=weights, **public, **options).scales
        # Returns are summed about the middle of their range.
        above = scales["xx"] * (TRUTH - 0.5 * sum(RANGE))
        return VARIANCE / m, float(np.mean(scales["xy"] ** 2 + above**2)) / (m / N) ** 2
    problem, printed = Problem(None, weights, ReturnGrid.for_range(*RANGE), None), options["calibration"] != "sound"
    if options["method"] == "lsw":
        statistic, kept = WeightedMeans(problem, m, printed), 1.0
    else:
        ridge = m / 200.0
        statistic, kept = RidgeFit(problem, m, ridge, printed), (m / N) / (m / N + ridge / 2.0)
    mechanism = DataDependentGaussian.calibrate(privacy, statistic, options["calibration"])
    scale = mechanism.scale(statistic.sensitivity_of_counts(np.full(N, m), mechanism.smoothness))
    exact = kept**2 * VARIANCE / m + (1.0 - kept) ** 2 * float(np.mean(TRUTH**2))
    return exact, (scale * statistic.spread) ** 2


def needed(epsilons):
    """Least m, to 2%, with which privacy makes the RMSE at most 1.1 times what it is without; inf beyond 10^14."""
    rows = []
    for epsilon in epsilons:
        for name in METHODS:
            if name.endswith("supplement") and epsilon > 5.0:
                continue
            low, high = 2.0, 14.0
            while high - low > 0.008:
                middle = (low + high) / 2.0
                exact, added = expected_squares(name, round(10.0**middle), Privacy(epsilon, DELTA))
                low, high = (low, middle) if added <= 0.21 * exact else (middle, high)
            rows.append({"method": name, "epsilon": epsilon, "m": round(10.0**high) if high < 14.0 else math.inf})
    return rows


def even_walks(m, seed):
    """Trajectories of the paper's chain."""
    return Trajectories(*chain_trajectories(m, n_states=N, seed=seed))


def uneven_walks(m, seed):
    """Trajectories of the chain that begin anywhere, in each state 1.19 times as often as in the one before."""
    transitions = 0.5 * np.eye(N) + 0.5 * np.eye(N, k=1)
    transitions[-1] = 0.0
    start = 2.0 ** (np.arange(N) / 4.0)
    rewards = np.zeros(N)
    rewards[-1] = 1.0
    return Trajectories(
        *markov_trajectories(transitions, m, start=start / start.sum(), horizon=2000, rewards=rewards, seed=seed)
    )


def which(sizes, epsilons, runs):
    """Root mean square that privacy adds, over epsilon and m, where visits are even and where they are not."""
    rows = []
    sound = {name: options for name, options in METHODS.items() if options.get("calibration", "sound") == "sound"}
    for visits, walks_of in (("even", even_walks), ("uneven", uneven_walks)):
        for m in sizes:
            added = defaultdict(list)
            for run in range(runs):
                walks = walks_of(m, 7000 + run)
                exact = fit(walks, math.inf)
                for epsilon in epsilons:
                    for name, options in sound.items():
                        added[epsilon, name].append(np.mean((fit(walks, epsilon, 1e-6, **options) - exact) ** 2))
            rows += [
                {"visits": visits, "epsilon": epsilon, "m": m, "method": name, "added": math.sqrt(np.mean(squares))}
                for (epsilon, name), squares in added.items()
            ]
    return rows


def write(path, rows):
    """Write rows of one kind as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def panel_of(axes, rows, x, y):
    """Draw a curve for each method."""
    for name in dict.fromkeys(row["method"] for row in rows):
        chosen = [row for row in rows if row["method"] == name]
        family, _, constants = name.partition(", ")
        axes.plot(
            [row[x] for row in chosen],
            [row[y] for row in chosen],
            STYLES.get(constants or name, "-."),
            color=COLOURS[family],
            marker=".",
            label=name,
        )
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axes.grid(alpha=0.2)


def plots(output, tables):
    """Draw the four plots of Figure 1, and which method to use."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 9.0), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    panel_of(panels[0], tables["a"], "m", "rmse")
    panels[0].set_title("a: one feature a state")
    for axes, m in zip(panels[1:3], dict.fromkeys(row["m"] for row in tables["b"]), strict=True):
        panel_of(axes, [row for row in tables["b"] if row["m"] == m], "lambda", "rmse")
        axes.set_title(f"b: LSL at m = {m:,}")
    panel_of(panels[3], tables["c"], "m", "rmse")
    panels[3].set_title("c: pairs of states aggregated")
    for axes, key, title in ((panels[4], "a", "one feature a state"), (panels[5], "c", "pairs aggregated")):
        panel_of(axes, [row for row in tables[key] if row["method"] != "no privacy"], "m", "excess")
        axes.set_title(f"d: excess risk, {title}")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(output / "figure1.png", dpi=110)

    epsilons = list(dict.fromkeys(row["epsilon"] for row in tables["which"]))
    figure = Figure(figsize=(4.2 * len(epsilons), 7.0), layout="constrained")
    grid = figure.subplots(2, len(epsilons), squeeze=False, sharex=True, sharey=True)
    for line, visits in zip(grid, ("even", "uneven"), strict=True):
        for axes, epsilon in zip(line, epsilons, strict=True):
            chosen = [row for row in tables["which"] if (row["visits"], row["epsilon"]) == (visits, epsilon)]
            panel_of(axes, chosen, "m", "added")
            axes.set_title(f"epsilon = {epsilon:g}, visits {visits}")
            axes.label_outer()
    grid[0, 0].legend(fontsize=8)
    figure.savefig(output / "which.png", dpi=110)


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="two runs of small sizes")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UtilityWarning)
    warnings.simplefilter("ignore", UnsoundCalibrationWarning)
    runs = 2 if options.quick else options.runs
    sizes = SIZES[::2][:3] if options.quick else SIZES
    epsilons = (EPSILON, 1.0, 10.0)
    tables = {
        "a": errors(sizes, runs),
        "b": ridge_errors((100, 1_000) if options.quick else RIDGE_SIZES, RIDGES[:: 4 if options.quick else 1], runs),
        "c": errors(sizes, runs, adjacent_pairs(N)),
        "needed": needed(epsilons),
        "which": which(sizes, epsilons, runs),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        write(options.output / f"{name}.csv", rows)
    plots(options.output, tables)
    for row in tables["a"]:
        if row["m"] == 1_000 or options.quick:
            excess = math.log10(row["excess"]) if row["excess"] > 0.0 else -math.inf
            print(f"m = {row['m']:6}  {row['method']:24} RMSE {row['rmse']:10.4g}  log10 excess risk {excess:6.2f}")
    print(f"\ntrajectories to come within 10% of the RMSE without privacy, delta = {DELTA:g}; LSL at lambda = m/200")
    for row in tables["needed"]:
        print(f"epsilon = {row['epsilon']:4g}  {row['method']:24} {row['m']:14.3g}")
    print("\nroot mean square that privacy adds, delta = 1e-6, the least of three methods marked")
    for visits, epsilon, m in dict.fromkeys((row["visits"], row["epsilon"], row["m"]) for row in tables["which"]):
        chosen = [row for row in tables["which"] if (row["visits"], row["epsilon"], row["m"]) == (visits, epsilon, m)]
        least = min(row["added"] for row in chosen)
        cells = (f"{row['method']} {row['added']:.3g}{'*' if row['added'] == least else ' '}" for row in chosen)
        print(f"{visits:7} epsilon = {epsilon:4g}  m = {m:6}  " + "  ".join(cells))


if __name__ == "__main__":
    main()
