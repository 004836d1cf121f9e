"""What a ledger says that mixtures of releases come to, against Google's accountant of privacy-loss distributions.

    python benchmarks/papers/ledger_composition.py

Gaussian releases are compared as what they are, others as the worst pair of laws of their (epsilon, delta), rounded
pessimistically by dp-accounting (Doroshenko et al. 2022, "Connect the dots"; steps of 1e-4). All numbers are epsilons
at the budget's delta, of releases whose costs were decided on beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dpfast import Ledger, Privacy, Release
from dpfast.privacy import gaussian_mu

STEP = 1e-4


class Part(NamedTuple):
    """So many releases of one kind."""

    count: int
    epsilon: float
    delta: float = 0.0
    gaussian: bool = False

    def __str__(self) -> str:
        cost = f"({self.epsilon:g}, {self.delta:g})" if self.delta else f"{self.epsilon:g}"
        return f"{self.count} {'Gaussian' if self.gaussian else 'pure' if not self.delta else 'others'} at {cost}"


def gaussians(count: int, epsilon: float, delta: float) -> Part:
    """Gaussian releases."""
    return Part(count, epsilon, delta, gaussian=True)


#: Budgets and what is released of each.
MIXTURES: tuple[tuple[Privacy, tuple[Part, ...]], ...] = (
    (Privacy(1.0, 1e-4), (gaussians(1, 0.1, 1e-7),)),
    (Privacy(1.0, 1e-4), (gaussians(10, 0.1, 1e-7),)),
    (Privacy(1.0, 1e-4), (gaussians(100, 0.1, 1e-7),)),
    (Privacy(1.0, 1e-6), (gaussians(5, 0.3, 1e-7),)),
    (Privacy(8.0, 1e-5), (gaussians(20, 1.0, 1e-6),)),
    (Privacy(1.0, 1e-4), (gaussians(50, 0.1, 1e-7), Part(5, 0.01))),
    (Privacy(1.0, 1e-4), (gaussians(50, 0.1, 1e-7), Part(20, 0.01, 1e-8))),
    (Privacy(1.0, 1e-4), (gaussians(20, 0.1, 1e-7), Part(2, 0.05))),
    (Privacy(1.0, 1e-4), (gaussians(10, 0.1, 1e-7), Part(1, 0.1))),
    (Privacy(1.0, 1e-6), (gaussians(3, 0.3, 1e-7), Part(1, 0.1))),
    (Privacy(1.0, 1e-6), (gaussians(2, 0.3, 1e-7), Part(3, 0.05, 1e-8))),
    (Privacy(2.0, 1e-6), (gaussians(4, 0.4, 1e-7), Part(2, 0.1), Part(10, 0.01, 1e-9))),
    (Privacy(8.0, 1e-5), (gaussians(10, 1.0, 1e-6), Part(3, 0.2), Part(5, 0.1, 1e-8))),
    (Privacy(1.0, 1e-6), (Part(3, 0.2),)),
    (Privacy(1.0, 1e-6), (Part(20, 0.02),)),
    (Privacy(1.0, 1e-4), (Part(50, 0.02, 1e-8),)),
)


def spent(budget: Privacy, parts: Sequence[Part]) -> float:
    """Return what a ledger says."""
    ledger = Ledger(budget)
    for part in parts:
        mu = gaussian_mu(part.epsilon, part.delta) if part.gaussian else None
        cost = Privacy(part.epsilon, part.delta)
        for _ in range(part.count):
            ledger.spend(Release("a release", "some", cost, {}, {}, mu=mu))
    return ledger.spent.epsilon


def accounted(budget: Privacy, parts: Sequence[Part]) -> float:
    """Return what the accountant says, which is an upper bound too."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as losses

    composed: Any = None
    for part in parts:
        if part.gaussian:
            one = losses.from_gaussian_mechanism(
                1.0 / gaussian_mu(part.epsilon, part.delta), value_discretization_interval=STEP
            )
        else:
            one = losses.from_privacy_parameters(
                common.DifferentialPrivacyParameters(part.epsilon, part.delta), value_discretization_interval=STEP
            )
        several = one.self_compose(part.count)
        composed = several if composed is None else composed.compose(several)
    return float(composed.get_epsilon_for_delta(budget.delta))


def table() -> Iterator[tuple[Privacy, str, float, float]]:
    """Yield budget, mixture, and both numbers."""
    for budget, parts in MIXTURES:
        yield budget, ", ".join(map(str, parts)), spent(budget, parts), accounted(budget, parts)


def main() -> None:
    """Print the table."""
    print(f"{'budget':>14}  {'ledger':>9}  {'accountant':>10}  {'above':>7}  releases")
    for budget, mixture, own, other in table():
        stated = f"({budget.epsilon:g}, {budget.delta:g})"
        print(f"{stated:>14}  {own:9.6f}  {other:10.6f}  {100.0 * (own / other - 1.0):6.2f}%  {mixture}")


if __name__ == "__main__":
    sys.exit(main())
