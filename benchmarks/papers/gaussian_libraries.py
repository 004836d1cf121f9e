"""The delta that Gaussian noise of other libraries' calibrations gives, against the one asked of them.

For every (epsilon, delta) of a grid a library is asked for its scale; the exact delta of that scale, in 60 digits
(Balle and Wang 2018, Theorem 8), over delta is printed where it is largest. Above 1 the claim is broken. Corners are
included: epsilon from 1e-6 to 100, delta from 1e-2 to 1e-30.

Run ``python -m benchmarks.papers.gaussian_libraries``: some seconds. A library that does not import is left out;
diffprivlib 0.6.6 wants scikit-learn 1.6 or older, and so an environment of its own, in which this file is a script:

    python -m venv ENV && ENV/bin/pip install diffprivlib==0.6.6 scikit-learn==1.6.1 autodp==0.2.3.1 mpmath
    ENV/bin/python benchmarks/papers/gaussian_libraries.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.metadata import version

from mpmath import mp

EPSILONS = (1e-6, 1e-4, 1e-2, 0.1, 1.0, 10.0, 100.0)
DELTAS = (1e-2, 1e-5, 1e-10, 1e-15, 1e-20, 1e-30)
#: A ratio of the exact delta to the one asked for that rounding alone may leave.
ROUNDING = 1e-6

Calibration = Callable[[float, float], float]


def exact_delta(scale: float, epsilon: float) -> mp.mpf:
    """Delta of Gaussian noise at sensitivity 1."""
    s, e = mp.mpf(scale), mp.mpf(epsilon)
    first, second = 1 / (2 * s) - e * s, -1 / (2 * s) - e * s
    return mp.erfc(-first / mp.sqrt(2)) / 2 - mp.exp(e) * mp.erfc(-second / mp.sqrt(2)) / 2


def libraries() -> Iterator[tuple[str, Calibration]]:
    """Name what can be imported, with its calibration at sensitivity 1."""
    try:
        from dpfast.privacy import gaussian_scale

        yield "dpfast", gaussian_scale
    except ImportError:
        pass
    try:
        from diffprivlib.mechanisms import GaussianAnalytic

        yield "diffprivlib", lambda epsilon, delta: GaussianAnalytic(epsilon=epsilon, delta=delta, sensitivity=1)._scale
    except ImportError:
        pass
    try:
        from autodp.calibrator_zoo import ana_gaussian_calibrator
        from autodp.mechanism_zoo import GaussianMechanism

        def calibrated(epsilon: float, delta: float) -> float:
            return ana_gaussian_calibrator()(GaussianMechanism, epsilon, delta).params["sigma"]

        yield "autodp", calibrated
    except ImportError:
        pass
    try:
        from dp_accounting.pld import accountant, common

        yield (
            "dp-accounting",
            lambda epsilon, delta: accountant.get_smallest_gaussian_noise(
                common.DifferentialPrivacyParameters(epsilon, delta), 1, 1.0
            ),
        )
    except ImportError:
        pass


def main() -> None:
    """Print the largest ratio of each library, and how often it is above 1."""
    mp.dps = 60
    for name, scale in libraries():
        ratios, refused = {}, 0
        for epsilon in EPSILONS:
            for delta in DELTAS:
                try:
                    found = float(scale(epsilon, delta))
                except Exception:  # whatever a library says where it gives up
                    refused += 1
                    continue
                if math.isfinite(found) and found > 0.0:
                    ratios[epsilon, delta] = float(exact_delta(found, epsilon) / mp.mpf(delta))
                else:
                    refused += 1
        print(f"{name} {version(name)}: {refused} of {len(EPSILONS) * len(DELTAS)} refused")
        for least in (1e-5, 1e-10, 1e-30):
            some = {one: ratio for one, ratio in ratios.items() if one[1] >= least}
            worst = max(some, key=lambda one: some[one])
            broken = sum(ratio > 1.0 + ROUNDING for ratio in some.values())
            print(f"  delta >= {least:g}: {broken} of {len(some)} broken; at most {some[worst]:.6g} times, at {worst}")


if __name__ == "__main__":
    main()
