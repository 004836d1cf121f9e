"""Every picture, of public numbers that are the same every time."""

from types import SimpleNamespace

import numpy as np

from dpfast import Privacy, plotting

RNG = np.random.default_rng(0)
PERIODS = np.arange("2001-01", "2001-09", dtype="datetime64[M]")
OBSERVED = np.linspace(1.0, 2.0, 8)
COEFFICIENTS = RNG.normal(size=(2, 4))
TRUE = RNG.integers(0, 2, 300)
SCORES = np.clip(0.25 + 0.5 * TRUE + 0.2 * RNG.normal(size=300), 0.0, 1.0)
COUNTS = [3.0, 50.0, 80.0, 30.0, 4.0, -1.0]
WORLD = np.linspace(0.0, 1.0, 12)
CURVE = {"epsilon 1": [0.5, 0.1, 0.02], "epsilon 4": [0.2, 0.04, 0.01]}


#: What a ledger says of itself.
LEDGER = SimpleNamespace(
    budget=Privacy(1.0, 1e-6),
    costs=(Privacy(0.2, 1e-8),) * 4,
    spending=tuple(Privacy(epsilon, 1e-6) for epsilon in (0.15, 0.2, 0.24, 0.27)),
)
#: Every picture, by name.
PICTURES = {
    "coefficients": lambda **options: plotting.coefficients(
        ["age", "smoker", "income", "height"],
        ["days", "cost"],
        COEFFICIENTS,
        noise=(COEFFICIENTS - 0.2, COEFFICIENTS + 0.2),
        total=(COEFFICIENTS - 0.5, COEFFICIENTS + 0.5),
        reference=COEFFICIENTS + 0.1,
        **options,
    ),
    "map": lambda **options: plotting.coefficients(
        list("abcd"), list("vwxyz"), np.arange(20.0).reshape(5, 4) - 9.5, **options
    ),
    "path": lambda **options: plotting.synthetic_control_paths(
        PERIODS, 6, OBSERVED, OBSERVED + 0.05, OBSERVED[6:] - 0.1, OBSERVED[6:] + 0.2, **options
    ),
    "gap": lambda **options: plotting.synthetic_control_gaps(
        PERIODS, 6, OBSERVED - 1.5, np.full(2, -0.2), np.full(2, 0.7), **options
    ),
    "placebo": lambda **options: plotting.placebo_distribution(
        2.0 ** np.arange(-2.0, 3.0),
        COUNTS,
        6.0,
        (0.03, 0.01, 0.06),
        deviation=4.0,
        **options,
    ),
    "values": lambda **options: plotting.value_function(
        np.linspace(-1.0, 1.0, 8), np.full(8, 0.1), start=0, goal=7, holes=[2, 3], **options
    ),
    "grid": lambda **options: plotting.value_function(
        WORLD,
        np.full(12, 0.1),
        (3, 4),
        limits=(0.0, 1.0),
        start=0,
        goal=11,
        holes=[5, 6],
        **options,
    ),
    "calibration": lambda **options: plotting.calibration(TRUE, SCORES, **options),
    "roc": lambda **options: plotting.roc(TRUE, SCORES, **options),
    "plan": lambda **options: plotting.plan_curves([1e3, 1e4, 1e5], CURVE, target=0.1, **options),
    "scores": lambda **options: plotting.score_curves(
        [0.5, 1.0, 2.0], np.linspace(0.4, 0.9, 30).reshape(10, 3), exact=0.95, **options
    ),
    "ledger": lambda **options: plotting.budget_spent(LEDGER, **options),
}
#: Of one series, whatever is drawn on them.
MAPS = {"map", "grid"}
