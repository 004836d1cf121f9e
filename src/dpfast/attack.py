"""An attack on a mechanism: neighbouring tables, the outputs seen on them, and the conclusion.

Each family attacks its mechanisms with these parts. Epsilon follows from the distance of neighbours in units of the
noise. An attacker knows everything but which of two neighbouring tables was used. In every output the attacker sees the
noise: the output minus its noiseless value on either table. The distance of the tables is then arithmetic (`shift`),
and only the size of the noise is unknown. Sums of squares, or of norms, of a few hundred outputs bound the size from
above with confidence, and so epsilon from below. This holds for noise of the stated form and of any size, with any
covariance if it is Gaussian. The form itself is tested too (`goodness_of_fit`).
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

from dpfast._arrays import FloatArray
from dpfast.ledger import Release
from dpfast.privacy import Adjacency, Privacy
from dpfast.privacy.guarantee import gaussian_delta, gaussian_epsilon

# Arguments of `np.linalg.norm` for the L1 and the L2 norm.
_NORMS = {"Laplace": 1, "L2-Laplace": 2}


class Law(ABC):
    """InputType of the attacker's view on either table, up to the size of the noise."""

    @abstractmethod
    def epsilon(self, seen: tuple[FloatArray, FloatArray], delta: float, error: float) -> float:
        """Epsilon that the mechanism exceeds at the claim's delta, wrong with probability `error` at most.

        The views of n outputs, on the table and on its neighbour, have the shape (n, k) each.
        """

    def attainable(self, delta: float) -> float:
        """Epsilon that no number of outputs on these tables exceeds if noise is as its record says; nan without one."""
        return math.nan

    def goodness_of_fit(self, seen: tuple[FloatArray, FloatArray]) -> float:
        """Upper bound on the goodness-of-fit p-value; 1 without a test."""
        return 1.0


@dataclass(frozen=True, eq=False)
class GaussianShift(Law):
    """Gaussian noise about centres a known distance apart: a test along any direction bounds mu."""

    #: Distance of the centres as a vector, or a part of it.
    shift: FloatArray
    #: Recorded standard deviations; they only suggest directions. None if they are equal, and not recorded.
    scales: FloatArray | None
    #: Coordinates to be tested alone too: a block of a release may lack its noise.
    parts: tuple[NDArray[np.bool_], ...] = ()

    @property
    def _directions(self) -> FloatArray:
        best = self.shift if self.scales is None else self.shift / self.scales**2
        chosen = [best, *(np.where(part, best, 0.0) for part in self.parts if len(self.parts) > 1)]
        return np.array([direction for direction in chosen if direction.any()])

    def epsilon(self, seen: tuple[FloatArray, FloatArray], delta: float, error: float) -> float:
        """Bound mu through the variance along each direction: mu >= |direction . shift|/deviation."""
        directions = self._directions
        along = np.concatenate(seen) @ directions.T
        mu = max(
            abs(float(direction @ self.shift)) / _most_deviation(noise, error / len(directions))
            for direction, noise in zip(directions, along.T, strict=True)
        )
        return _epsilon_of_mu(mu, delta)

    def attainable(self, delta: float) -> float:
        """Epsilon of the recorded scales; not a number if there are none."""
        if self.scales is None:
            return math.nan
        return _epsilon_of_mu(float(np.linalg.norm(self.shift / self.scales)), delta)

    def goodness_of_fit(self, seen: tuple[FloatArray, FloatArray]) -> float:
        """Kolmogorov-Smirnov test along each direction; each table alone, with the noise scale of both together."""
        along = [noise @ self._directions.T for noise in seen]
        deviations = np.sqrt(np.mean(np.concatenate(along) ** 2, axis=0))
        return _least(_distance_from(noise / deviations, special.ndtr) for noise in along)


@dataclass(frozen=True, eq=False)
class NormShift(Law):
    """Noise of density exp(-||v||/scale) about centres a known distance apart: one such vector, or several."""

    #: Distance of the centres, for each vector; together they have the length of the view.
    shifts: tuple[FloatArray, ...]
    #: Recorded scales.
    scales: tuple[float, ...]
    #: Name of the law: "L2-Laplace", or "Laplace" for the L1 norm.
    kind: str = "L2-Laplace"

    def _norms(self, noise: FloatArray) -> list[FloatArray]:
        ends = np.cumsum([len(shift) for shift in self.shifts])[:-1]
        return [np.linalg.norm(part, _NORMS[self.kind], axis=1) for part in np.split(noise, ends, axis=1)]

    def epsilon(self, seen: tuple[FloatArray, FloatArray], delta: float, error: float) -> float:
        """Bound each scale: a vector's norm has Gamma's law, and so has their sum. The tails show all of epsilon."""
        total = 0.0
        for shift, norms in zip(self.shifts, self._norms(np.concatenate(seen)), strict=True):
            # P(sum of norms < quantile scale) = error: the scale is above sum/quantile with that probability.
            most = norms.sum() / stats.gamma.ppf(error / len(self.shifts), len(norms) * len(shift))
            length = float(np.linalg.norm(shift, _NORMS[self.kind]))
            total += math.inf if most == 0.0 else length / most
        return _pure_epsilon(total, delta)

    def attainable(self, delta: float) -> float:
        """Epsilon of the recorded scales."""
        lengths = [float(np.linalg.norm(shift, _NORMS[self.kind])) for shift in self.shifts]
        return _pure_epsilon(sum(length / scale for length, scale in zip(lengths, self.scales, strict=True)), delta)

    def goodness_of_fit(self, seen: tuple[FloatArray, FloatArray]) -> float:
        """Test norms against Gamma's law and the direction: as often towards the neighbour as away from it."""
        pooled, found = self._norms(np.concatenate(seen)), []
        for noise in seen:
            start = 0
            for shift, norms, every in zip(self.shifts, self._norms(noise), pooled, strict=True):
                size = len(shift)
                part, start = noise[:, start : start + size], start + size
                found.append(_distance_from((norms / (every.mean() / size))[:, None], stats.gamma(size).cdf))
                found.append(self._sidedness(part, shift))
        return _least(found)

    def _sidedness(self, noise: FloatArray, shift: FloatArray) -> float:
        towards = noise @ np.sign(shift) if self.kind == "Laplace" else noise @ shift
        if self.kind == "Laplace" or len(shift) == 1:
            return float(stats.binomtest(int(np.sum(towards > 0.0)), len(noise)).pvalue)
        lengths = np.linalg.norm(noise, axis=1) * np.linalg.norm(shift)
        half = 0.5 * (len(shift) - 1)
        return _distance_from((towards / lengths)[:, None], stats.beta(half, half, -1.0, 2.0).cdf)


@dataclass(frozen=True, eq=False)
class SampledShift(Law):
    """Two Gaussian releases: the first sees the differing person with some probability, the second always.

    The view is the noise along the shift of both. For the first release it is seen only where nobody differs: `NaN`
    elsewhere.
    """

    #: Shift, and below it noise scale, of the first release and of the second.
    shifts: tuple[float, float]
    scales: tuple[float, float]
    #: Number of times the real sampler took the differing person, and number of trials.
    rate: tuple[int, int]

    def epsilon(self, seen: tuple[FloatArray, FloatArray], delta: float, error: float) -> float:
        """Bound both deviations, and the rate; the mixture's trade-off curve is then exact."""
        noise = np.concatenate(seen)
        first, second = (_most_deviation(column[~np.isnan(column)], error / 3.0) for column in noise.T)
        rate = frequency_limits(*self.rate, error / 3.0)[0]
        if first == 0.0 or second == 0.0:
            return math.inf
        return _mixture_epsilon(self.shifts[0] / first, self.shifts[1] / second, rate, delta)

    def attainable(self, delta: float) -> float:
        """Epsilon of the recorded scales."""
        first, second = (shift / scale for shift, scale in zip(self.shifts, self.scales, strict=True))
        return _mixture_epsilon(first, second, self.rate[0] / self.rate[1], delta)

    def goodness_of_fit(self, seen: tuple[FloatArray, FloatArray]) -> float:
        """Kolmogorov-Smirnov test of each, on each table with visible noise."""
        deviations = np.sqrt(np.nanmean(np.concatenate(seen) ** 2, axis=0))
        columns = [column[~np.isnan(column)] for noise in seen for column in (noise / deviations).T]
        return _least(_distance_from(column[:, None], special.ndtr) for column in columns if len(column))


@dataclass(frozen=True)
class OddsShift(Law):
    """One of two choices; one person multiplies the odds by the same factor, whatever the odds were.

    With many choices the less likely one's probability changes by the same factor.
    """

    #: Logarithm of the factor.
    recorded: float

    def epsilon(self, seen: tuple[FloatArray, FloatArray], delta: float, error: float) -> float:
        """Bound the ratio of odds given the total count of each choice: Fisher's exact limits."""
        (one, n), (other, m) = ((int(choices.sum()), len(choices)) for choices in seen)
        table, level = [[one, n - one], [other, m - other]], 1.0 - 0.5 * error
        either_way = map(stats.contingency.odds_ratio, (table, table[::-1]))
        limits = (odds.confidence_interval(level, "greater").low for odds in either_way)
        return _pure_epsilon(max(0.0, *(math.log(limit) for limit in limits if limit > 0.0)), delta)

    def attainable(self, delta: float) -> float:
        """Epsilon of the recorded rate."""
        return _pure_epsilon(self.recorded, delta)


@dataclass(frozen=True, eq=False)
class Events(Law):
    """Events fixed before any output is seen, without assumptions: whether each happened, as 0 or 1."""

    def epsilon(self, seen: tuple[FloatArray, FloatArray], delta: float, error: float) -> float:
        """Bound the ratio of the probabilities of each event, either way, by limits of its frequencies."""
        here, there = ([(int(hits), len(table)) for hits in table.sum(axis=0)] for table in seen)
        pairs = list(zip(here, there, strict=True)) + list(zip(there, here, strict=True))
        tail = error / (2.0 * len(pairs))
        limits = ((frequency_limits(*often, tail)[0], frequency_limits(*rare, tail)[1]) for often, rare in pairs)
        return max([0.0, *(math.log((least - delta) / most) for least, most in limits if least > delta)])


def shift_law(mechanism: str, shifts: tuple[FloatArray, ...], scales: tuple[float, ...]) -> Law:
    """Return the law of vectors to which a mechanism, by its name in records, adds noise, each of its own scale."""
    if not mechanism.startswith("Gaussian"):
        return NormShift(shifts, scales, "Laplace" if mechanism == "Laplace" else "L2-Laplace")
    vector = np.repeat(np.arange(len(shifts)), [len(shift) for shift in shifts])
    parts = tuple(vector == index for index in range(len(shifts)))
    return GaussianShift(np.concatenate(shifts), np.asarray(scales)[vector], parts)


def flattened(values: Mapping[str, FloatArray], names: tuple[str, ...]) -> FloatArray:
    """Concatenate blocks of a release; of a symmetric "xx" the diagonal, then each entry above it, once."""
    parts = []
    for name in names:
        block = np.asarray(values[name], np.float64)
        if name == "xx" and block.ndim > 1:
            rows, columns = _above_diagonal(block.shape[-1])
            diagonal = np.diagonal(block, axis1=-2, axis2=-1)
            block = np.concatenate([diagonal.ravel(), block[..., rows, columns].ravel()])
        parts.append(block.ravel())
    return np.concatenate(parts)


@cache  # hundreds of candidates of each attack have one shape
def _above_diagonal(side: int) -> tuple[NDArray[np.intp], ...]:
    return np.triu_indices(side, 1)


def _most_deviation(noise: FloatArray, error: float) -> float:
    """Bound the deviation of Gaussian noise about 0 from above, wrong with probability `error` at most."""
    return math.sqrt(float(noise @ noise) / float(stats.chi2.ppf(error, len(noise))))


def _epsilon_of_mu(mu: float, delta: float) -> float:
    return math.inf if math.isinf(mu) else gaussian_epsilon(1.0 / mu, delta) if mu > 0.0 else 0.0


def _pure_epsilon(epsilon: float, delta: float) -> float:
    """Pure laws are attacked at delta 0 only: a delta would need the rest of the curve."""
    assert delta == 0.0
    return epsilon


def _mixture_epsilon(mu: float, always: float, rate: float, delta: float) -> float:
    """Epsilon at a delta of a pair of tests: mu with a probability, and another that always holds."""

    def excess(epsilon: float) -> float:
        def at(z: float) -> float:
            # Likelihood ratio of the first at z, under the table on which nobody differs.
            ratio = math.log1p(rate * math.expm1(min(mu * z - 0.5 * mu * mu, 700.0)))
            left = epsilon - ratio
            if left >= 0.0:
                rest = gaussian_delta(1.0, left, always)
            else:
                # delta(-e) = 1 - e^-e (1 - delta(e)).
                rest = -math.expm1(left) + math.exp(left) * gaussian_delta(1.0, -left, always)
            return math.exp(ratio - 0.5 * z * z) / math.sqrt(2.0 * math.pi) * rest

        total, _ = integrate.quad(at, -12.0, 12.0 + mu, limit=400, points=(0.0, mu), epsabs=1e-4 * delta)
        return float(total) - delta

    if excess(0.0) <= 0.0:
        return 0.0
    return float(optimize.brentq(excess, 0.0, 60.0, xtol=1e-6))


def _distance_from(columns: FloatArray, law: Callable[[FloatArray], FloatArray]) -> float:
    """Goodness-of-fit p-value: the least over columns for the distance from the law; 0 for missing noise."""
    if not np.isfinite(columns).all():
        return 0.0
    return _least(float(stats.kstest(column, law).pvalue) for column in columns.T)


def _least(probabilities: Iterable[float]) -> float:
    found = list(probabilities)
    return float(min(1.0, min(found) * len(found)))


def frequency_limits(hits: int, n: int, tail: float) -> tuple[float, float]:
    """Return Clopper and Pearson's limits of a frequency, each wrong with probability `tail` at most."""
    low = 0.0 if hits == 0 else float(special.betaincinv(hits, n - hits + 1, tail))
    high = 1.0 if hits == n else float(special.betaincinv(hits + 1, n - hits, 1.0 - tail))
    return low, high


Released = TypeVar("Released")


@dataclass(frozen=True)
class Attack:
    """A mechanism, its claim, and an attacker with knowledge of two neighbouring tables.

    Parameters
    ----------
    name : str
        The mechanism attacked.
    privacy : Privacy
        Its claim.
    law : Law
        InputType of the noise in the attacker's view.
    seen : callable
        ``seen(neighbour)``: the attacker's view of one output, on the table or on its neighbour. Every call runs the
        mechanism as users do, with fresh noise.
    estimators : tuple
        The estimators that are run.
    effort : float
        Multiplier of the number of outputs: above 1 if more are needed, below 1 if the mechanism is slow.
    defect : str
        Flaw of a mechanism of the literature that is known to break its claim; "" if the claim must hold.
    """

    name: str
    privacy: Privacy
    law: Law
    seen: Callable[[bool], FloatArray]
    estimators: tuple[Any, ...] = ()
    effort: float = 1.0
    defect: str = ""

    @classmethod
    def on(cls, name: str, record: Release, law: Law, seen: Callable[[bool], FloatArray], estimator: object) -> Self:
        """Attack the mechanism of a release; the attack is named after its noise and relation too."""
        full = f"{name}, {record.mechanism}, {record.privacy.adjacency}"
        return cls(full, record.privacy, law, seen, () if estimator is None else (estimator,))

    def run(self, n: int, error: float = 0.001) -> Finding:
        """Run the mechanism n times on either table.

        Parameters
        ----------
        n : int
            Number of calls, times `effort`. Each call of `seen` makes one output, or several in rows.
        error : float, default 0.001
            Largest probability of a bound above the true epsilon, and of rejecting noise of the stated form.

        Returns
        -------
        Finding
        """
        start = time.perf_counter()
        n = math.ceil(n * self.effort)
        with warnings.catch_warnings():
            # Warnings that the answer is mostly noise are expected here.
            warnings.simplefilter("ignore")
            here, there = (
                np.concatenate([np.atleast_2d(self.seen(neighbour)) for _ in range(n)]) for neighbour in (False, True)
            )
        delta = self.privacy.delta
        found, attainable = self.law.epsilon((here, there), delta, error), self.law.attainable(delta)
        fits, seconds = self.law.goodness_of_fit((here, there)) >= error, time.perf_counter() - start
        return Finding(self.name, self.privacy, found, attainable, fits, len(here), seconds, self.defect)


@dataclass(frozen=True)
class Finding:
    """The result of an attack.

    Parameters
    ----------
    name : str
        The mechanism attacked.
    privacy : Privacy
        The claim.
    epsilon : float
        Lower bound on the true epsilon at the delta claimed.
    attainable : float
        The largest bound possible on these tables with noise as recorded; not a number if the noise is private. The
        calibration may have slack that no pair of tables uses.
    fits : bool
        Whether the view has the form of noise assumed by the bound.
    runs : int
        Outputs drawn on either table.
    seconds : float
        Duration.
    defect : str
        The defect of the attack.
    """

    name: str
    privacy: Privacy
    epsilon: float
    attainable: float
    fits: bool
    runs: int
    seconds: float
    defect: str = ""

    @property
    def share(self) -> float:
        """Part of the claim that was found."""
        return self.epsilon / self.privacy.epsilon

    @property
    def broken(self) -> bool:
        """Whether the mechanism loses more than it claims, or its noise is of another form than stated."""
        return self.epsilon > self.privacy.epsilon or not self.fits

    @property
    def expected(self) -> bool:
        """Whether a claim that must hold does, or a mechanism known to be broken was caught."""
        return self.broken == bool(self.defect)

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.defect:
            return "broken, as is known" if self.broken else "NOT CAUGHT"
        return "BROKEN" if self.broken else "holds"

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON; an infinite bound, from missing noise, is None."""
        numbers = {"found": self.epsilon, "attainable": self.attainable, "share": self.share}
        finite = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        plain = ("fits", "broken", "expected", "verdict", "defect", "runs", "seconds")
        return {"mechanism": self.name} | claimed(self.privacy) | finite | {name: getattr(self, name) for name in plain}


class View(NamedTuple):
    """A release as an attacker sees it, in units of the recorded noise in every entry."""

    release: Release
    #: The noise: what was released, less what was summed.
    noise: FloatArray
    #: The sum of the neighbour, less that of the table.
    moved: FloatArray


def view_attack(name: str, estimator: Any, view: Callable[[bool], View]) -> Attack:
    """Attack a released sum by the noise where neighbours differ, in units of the difference.

    The entries that differ, and their noise, may be others in each run: they depend on earlier releases.
    """
    record, _, differs = probe(lambda: view(False))
    # L2-Laplace noise has a known law as a whole; of other noise what is the same on both tables says nothing.
    is_whole = record.mechanism == "L2-Laplace"

    def chosen(moved: FloatArray) -> NDArray[np.intp]:
        order = np.argsort(moved, kind="stable")
        return order if is_whole else order[moved[order] != 0.0]

    def length(moved: FloatArray) -> float:
        return float(np.linalg.norm(moved, _NORMS.get(record.mechanism)))

    def seen(neighbour: bool) -> FloatArray:
        _, off, moved = view(neighbour)
        return off[chosen(moved)] * (length(differs) / length(moved))

    shift = differs[chosen(differs)]
    # The record states the standard deviation of an entry: of Laplace noise, of vectors of one.
    scale = 1.0 if record.mechanism == "Gaussian" else 1.0 / math.sqrt((len(shift) if is_whole else 1) + 1.0)
    law = shift_law(record.mechanism, (shift,), (scale,))
    if isinstance(law, GaussianShift):
        law = replace(law, parts=tuple(np.eye(len(shift), dtype=bool)))
    # A pure sum may leave all of delta to what comes after.
    beside = " beside a delta" if getattr(estimator, "delta", 0.0) > record.privacy.delta == 0.0 else ""
    return Attack.on(f"{name}{beside}", record, law, seen, estimator)


def sum_attack(name: str, estimator: Any, fit: Callable[[bool], Release], exact: Sequence[FloatArray]) -> Attack:
    """Attack a released sum, by its exact values on the table and on its neighbour."""

    def view(neighbour: bool) -> View:
        release = fit(neighbour)
        scale = release.scales["sum"]
        off = release.values["sum"].ravel() - exact[neighbour]
        return View(release, off / scale, (exact[1] - exact[0]) / scale)

    return view_attack(name, estimator, view)


def claims(privacy: Privacy, *, delta: bool | None = None) -> Iterator[Privacy]:
    """Yield a claim under both relations, with its delta and with none; or only with one, or with none."""
    for amount in (privacy.delta, 0.0) if delta is None else (privacy.delta,) if delta else (0.0,):
        for adjacency in get_args(Adjacency):
            yield Privacy(privacy.epsilon, amount, adjacency)


def claimed(privacy: Privacy) -> dict[str, Any]:
    """Return a claim as arguments of estimators."""
    return {"epsilon": privacy.epsilon, "delta": privacy.delta, "adjacency": privacy.adjacency}


def probe(fit: Callable[[], Released]) -> Released:
    """Return the release of one fit, for the public numbers in its record, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit()
