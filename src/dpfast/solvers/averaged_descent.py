"""Least squares by averaged noisy preconditioned descent: decisions between releases, from released and public numbers.

Every step receives the noisy sum over people of p r', clipped. Here p is a row in the coordinates of the step, with a 1
as last entry if there is a constant, and r are the residuals of its outcomes at the current coefficients. Coordinates
are whitened by the released X'X plus a ridge as large as its noise. So a step is Newton's in directions above the
noise, and one of plain descent in the others. With G the released X'X and g_t the sums at coefficients theta_t,

    theta_(t+1) = theta_t + (G + Lambda)^-1 g_t,    found = mean of theta_t + (G + lambda)^-1 mean of g_t,

means over late steps, weighted by precision. In a direction above the noise this is generalised least squares over
these steps, as each measures G theta by g_t + G theta_t. In the others it is the average of the iterates (Polyak and
Juditsky 1992). Last, coefficients are shrunk according to their noise (empirical Bayes).

The clip aims at a share of clipped people: the fewer people relative to the noise, the larger this share. Each step's
noisy count of clipped people sets the change of the next clip.

*Bounds* are read from noisy histograms of sizes: the smallest one with few people above it. The people above a bound
are counted by a sum of released bins, whose noise grows with the number of bins. So a histogram is read by runs of few
bins (`_RUNS`). Counts are nonnegative, so each run gives a lower limit of the people above the bin before it. A bound
is too small as long as some run above it shows more people than may be clipped. The threshold is exceeded by noise
alone in one histogram of a thousand. This rule would miss a tail too thin for any single run. So from there the bound
rises while the next bins hold more people than that by a standard deviation. Noise can cause this too, and makes the
bound a bin or two too large.

If nothing is above the noise, the bound is the end of the run with the largest count, and is marked as a guess.

Signed sizes have two ends. Runs above the noise show people on one side of 0. They do not exclude people on the other,
who may be half of all. So an end is nearer to 0 than the other one only if the released counts between say that few
people are there (`upper_quantile_of_side`). Too wide an interval costs little, too narrow a one moves half of them.

Constants were chosen on tables of 400 to 50,000 people, 5 to 30 features, 1 to 20 outcomes, condition 1 to 1,000, with
rare, skewed and heavy-tailed columns, at epsilon .3, 1 and 3: `benchmarks/accuracy.py` has others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from dpfast._arrays import FloatArray
from dpfast.solvers.ridge import MomentNoise, eigh, hidden_columns, qr, symmetric

_RUNS = (1, 2, 4, 8)
#: Bins that are added up if nothing is above the noise.
_GUESSED = 4
#: Half-octaves of sizes that count beside the largest one; those below are about 0 to it.
_BESIDE = 8


class Caution(NamedTuple):
    """How sure it must be that there are people above a bound."""

    #: How often noise alone may raise it without limit.
    false_alarm: float = 1e-3
    #: Bins next above it that may raise it, and the standard deviations of noise that people in them exceed.
    next_bins: int = 4
    exceeded: float = 1.0


DEFAULT_CAUTION = Caution()


class UpperQuantileBin(NamedTuple):
    """The smallest bin with all but few people in it or below it."""

    place: int
    #: Whether the histogram shows people there, beyond noise.
    is_certain: bool


def upper_quantile_bin(
    counts: FloatArray,
    deviation: float,
    *,
    share: float,
    people: float | None = None,
    heavy: bool = False,
    caution: Caution = DEFAULT_CAUTION,
) -> UpperQuantileBin:
    """Find the last bin that is needed if a share of the people may be clipped.

    Parameters
    ----------
    counts : ndarray
        Released.
    deviation : float
        Of the noise in a bin; 0 for none.
    share : float
        Of the people.
    people : float, optional
        Number of people; by default the sum of the noisy counts.
    heavy : bool
        Whether the noise is Laplace, and not Gaussian.
    caution : Caution
        How sure it must be that people are above the bound.
    """
    few = share * max(0.0, float(counts.sum()) if people is None else people)
    n_bins = len(counts)
    runs = [length for length in _RUNS if length <= n_bins]
    below = np.concatenate([[0.0], np.cumsum(counts)])
    last = -1
    for length in runs:
        limit = few + deviation * _beyond_noise(length, caution.false_alarm / (n_bins * len(runs)), heavy)
        (beyond,) = (below[length:] - below[:-length] > limit).nonzero()
        last = max(last, int(beyond[-1]) if len(beyond) else -1)
    is_certain = last >= 0
    if not is_certain:
        longest = min(_GUESSED, n_bins)
        last = int(np.argmax(below[longest:] - below[:-longest])) + longest - 1
    while last + 1 < n_bins:
        end = min(last + 1 + caution.next_bins, n_bins)
        if below[end] - below[last + 1] <= few + caution.exceeded * deviation * math.sqrt(end - last - 1):
            break
        last += 1
    return UpperQuantileBin(last, is_certain)


def upper_quantile_of_side(
    counts: FloatArray, place: int, zero: int, reach: int, deviation: float, *, share: float, people: float
) -> int:
    """Find the last bin on the upper side, if the last of both sides is `reach` bins from that of zeros.

    Parameters
    ----------
    counts : ndarray
        Released, from the least size to the largest.
    place : int
        The last bin seen above the noise.
    zero : int
        The bin of zeros; 0 if sizes have one sign.
    reach : int
        Bins from zero to the farther one of the two ends.
    deviation, share, people
        As for `upper_quantile_bin`.

    Returns
    -------
    int
        The bin as far from zero as the other end, unless few people are beyond `place` there; then zero, unless few
        people are between it and `place`; then `place`.
    """
    end = min(zero + reach, len(counts) - 1)
    if place >= end:
        return place
    farther = max(zero - reach, 0)
    others = float(counts[farther : min(farther + _BESIDE, zero)].sum())

    def may_hold(first: int, stop: int) -> bool:
        if first >= stop:
            return False
        noise = deviation * math.sqrt(stop - first)
        # Where a quarter of the others would be seen, noise may be up to two standard deviations; else up to one.
        return float(counts[first:stop].sum()) > share * people + max(noise, min(2.0 * noise, others / 4.0))

    if may_hold(max(place, zero, end - _BESIDE) + 1, end + 1):
        return end
    if place < zero and may_hold(place + 1, min(place + 1 + _BESIDE, zero)):
        return zero
    return place


class WithoutZeros(NamedTuple):
    """A histogram without its bin of zeros."""

    counts: FloatArray
    #: The people few of whom may be clipped: all, or those with a nonzero size if most are zero.
    people: float
    #: Whether the count of zeros is above the noise.
    has_zeros: bool


def without_zeros(
    counts: FloatArray, zero: int, deviation: float, *, people: float | None = None, heavy: bool = False
) -> WithoutZeros:
    """Exclude the bin of zeros: the scale is that of nonzero sizes.

    1% of all people may be everyone with a nonzero size. So if most are zero, the rule is 1% of the others.
    """
    total = max(0.0, float(counts.sum()) if people is None else people)
    zeros = float(counts[zero])
    others = counts.copy()
    others[zero] = 0.0
    are_most = zeros - deviation > total / 2.0
    return WithoutZeros(
        others,
        max(total - zeros, 0.0) if are_most else total,
        zeros > deviation * _beyond_noise(1, DEFAULT_CAUTION.false_alarm, heavy),
    )


class QuantileBin(NamedTuple):
    """The first bin with a share of the people in it and below it, and the share that these are."""

    place: int
    share: float


def quantile_bin(counts: FloatArray, share: float, people: float | None = None) -> QuantileBin:
    """Find the first bin of a released histogram with this many people in it or below it.

    `people` is the number of people, by default the sum of the noisy counts. People below are counted from either end,
    and the mean of the two has half the variance.
    """
    total = max(float(counts.sum()) if people is None else people, 1.0)
    above = np.append(np.cumsum(counts[:0:-1])[::-1], 0.0)
    below = (np.cumsum(counts) + (total - above)) / (2.0 * total)
    reached = np.flatnonzero(below >= share)
    place = int(reached[0]) if len(reached) else len(counts) - 1
    return QuantileBin(place, min(max(float(below[place]), share), 1.0))


def _beyond_noise(length: int, probability: float, heavy: bool) -> float:
    """Return the level that noise in a run exceeds with a small probability, in standard deviations of one bin."""
    normal = -float(special.ndtri(probability))
    # The tail of a sum of Laplace noise is that of one of them, to which the others add as normal noise would.
    single = math.log(0.5 / probability) / math.sqrt(2.0) - normal if heavy else 0.0
    return normal * math.sqrt(length) + single


#: People times mu below which scores show no more than a level, and least squares without one hardly more.
FEW = 60.0
# People times mu, over features^(3/2), from which X'X is released, and the factor from there to where it has its whole
# share.
_RESOLVED, _WHOLLY = 1.0, 4.0
# Ridges in units of the noise's spectrum: before whitening, in a step, and in the final estimate.
_FIRST_RIDGE, _STEP_RIDGE, _LAST_RIDGE = 2.0, 4.0, 0.5
# The share of a clipped part that still moves with coefficients across its direction.
_TURNS = 0.8
# An eigenvalue near zero means that the true one is of the size of its noise, not that it is zero.
_EIGENVALUE_FLOOR = 0.25
# The same for limits, where a hidden direction is to say next to nothing.
_FLOOR_OF_LIMITS = 0.075
# Deviations of its error that an eigenvalue for limits may be off by: of which .6 are the bias that steps have left.
_MAY_BE_NOISE = 2.4
# The same for the noise in coefficients, twice over, where nearly all of a row may be clipped; and the part of an
# eigenvalue that is not worth asking the steps for.
_MAY_BE_LESS, _HARDLY_LESS = 4.0, 0.2
# How often X'X is found from its own effect on the steps.
_CORRECTIONS = 3
# Steps where all is resolved, more where the slowest direction is not, most; and where X'X is not released.
_LEAST_STEPS, _SLOW_STEPS, MOST_STEPS, _PLAIN_STEPS = 6, 12, 40, 60
#: Most steps where every one of them reads a file, or asks an engine.
MOST_STEPS_OF_FILES = 3
# Share of the steps before those that are averaged.
_BURN_IN = 0.25
# Of plain descent: a step's length over the largest that is stable, and momentum.
_PLAIN_SIZE, _MOMENTUM = 0.5, 0.8
# Of few people: steps, the least number of these that are averaged, and how far rows are taken to be in one direction;
# lengths of steps, at most and by people times mu, if they are averaged and if not; and the part of a sum that moves
# with coefficients.
_FEW_STEPS, _FEWEST_AVERAGED, _IN_ONE = 30, 12, 0.25
_LENGTHS_OF_FEW, _LENGTHS_OF_FEWER, _MOVING = (1.5, 0.04), (3.0, 0.13), 0.5
# The power of the seeming variance of their noise, beside that of a random walk's; the bound on normal outcomes over
# their clip; and what is lost over this noise.
_SEEMS, _USUAL_REACH, _LOST = 0.6, 12.0, 1.2
# The largest share of people that is clipped, and how fast it is reached as noise grows.
_MOST_CLIPPED, _CLIPPED_SCALE, _CLIPPED_POWER = 0.6, 6.0, 0.8
# How far the clip follows a step's count, and the count's weight in a sum: its unit over what the sum may move.
_CLIP_RATE, COUNT_UNIT = 0.4, 0.3
# Norms of whitened rows are known by their bins, except those usual for normal rows.
_TYPICAL_LENGTH = 1.6
# Thresholds of a bin above the noise: with one false result in a million fits; and how far below the largest size.
_ABOVE_NOISE, _SURELY, _FAR_BELOW = 3.5, 6.0, 2.0**-5
# The same for X'X. Noise alone has 2 (Wigner 1955), and more in one fit of a hundred with a few features.
_SPECTRUM_ABOVE_NOISE = 2.5
# Half-octaves beyond the last bin above the noise that may still contain people.
_HIDDEN = 2
# How much farther out the same share of Laplace noise is.
_HEAVY = 1.7
# Noise of a count, over people, from which on single bins are uninformative, and the number to combine then.
_DROWNS, _WINDOW = 0.03, 4
# Where more of the people have nothing, the share of the others that is clipped at most.
_MANY_ZEROS, _FEW_OF_OTHERS = 0.1, 0.15
# The noise of a count, over people, below which later histograms give a better clip than counts of the clipped.
_TELLS_CLIP = 0.05
# Mean squared coefficients tried.
_SIGNALS = np.geomspace(1e-8, 1e8, 161)
#: How unlikely the largest of them may be that is taken.
LIKELIHOOD_DROP = 0.5
#: Square error of shrunk coefficients over that of noise before, on tables of all kinds, where it is about the signal's
#: size; of few people, whose steps are too short to reach all.
SHRUNK_VARIANCE, SHRUNK_VARIANCE_OF_FEW = 0.58, 1.5
_TINY = 1e-280
# Mean squared residual over the square of their clip, at most: more of it tells nothing of the residuals beyond.
_MOST_OF_LIMIT = 0.8
# Bisections of an interval of logarithms.
_HALVINGS = 60


class Schedule(NamedTuple):
    """Shares of mu^2 (of epsilon where delta is 0) of the releases of one fit, adding to 1."""

    means: float
    row_sizes: float
    moments: float
    #: Each of the histograms of whitened rows, by the power of the whitening.
    whitened_sizes: float
    whitened_moments: float
    #: Each of the histograms of residual parts: before the first step, and of two later ones if they tell.
    sizes: float
    n_sizes: int
    steps: float
    last_sizes: float
    mean_residual: float
    squares: float
    #: Of what exceeds the clip of steps.
    excess: float

    @property
    def powers(self) -> tuple[float, ...]:
        """Powers of X'X that whitening tries: 1/2 keeps rows of rare groups short, 1 suits normal rows."""
        return (0.5, 1.0) if self.moments > 0.0 else ()


# Noise in the mean residual, relative to the clip of residuals, that is paid for.
_LEVEL = 0.03
# Shares of the excess of residuals: the least, for a feature by people times mu^2, and the most; the more of these, the
# more is the error that of sampling, and not that of steps. And people times mu below which noise hides the bias.
_EXCESS, _EXCESS_BY_PEOPLE, _MOST_EXCESS, _SHOWS_BIAS = 0.06, 4e-4, 0.2, 400.0
# Shares of the histograms of residual parts, each, and how many there are where they tell.
_SIZES, _MOST_SIZES = 0.015, 3


def schedule(people: float, mu: float, features: int, *, constant: bool, squares: bool) -> Schedule:
    """Return the shares for about this many people; X'X has none if it would not be above the noise."""
    resolution = people * mu / features**1.5
    # The noise of a count, under replace-one.
    tells = math.sqrt(2.0 / _SIZES) / mu < _TELLS_CLIP * people
    excess = min(max(_EXCESS_BY_PEOPLE * people * mu**2 / features, _EXCESS), _MOST_EXCESS)
    weight = min(max(math.log(max(resolution, _TINY) / _RESOLVED) / math.log(_WHOLLY), 0.0), 1.0)
    shares = Schedule(
        means=0.02 if constant else 0.0,
        row_sizes=0.02,
        moments=0.06 * weight,
        whitened_sizes=0.01 if weight > 0.0 else 0.0,
        whitened_moments=0.06 * weight,
        sizes=_SIZES,
        n_sizes=_MOST_SIZES if tells else 1,
        steps=0.0,
        last_sizes=0.02,
        mean_residual=min(max((2.0 / (_LEVEL * people * mu)) ** 2, 0.05), 0.3) if constant else 0.0,
        squares=0.02 if squares else 0.0,
        excess=excess if weight > 0.0 and people * mu >= _SHOWS_BIAS else 0.0,
    )
    powers = len(shares.powers)
    once = shares.means + shares.row_sizes + shares.moments + shares.whitened_moments
    last = shares.last_sizes + shares.mean_residual + shares.squares + shares.excess
    return shares._replace(steps=1.0 - once - last - powers * shares.whitened_sizes - shares.n_sizes * shares.sizes)


def shrunk_mean(mean: FloatArray, deviation: float) -> FloatArray:
    """Shrink a noisy vector towards zero, to nothing where it is no longer than its noise (James and Stein 1961)."""
    squares = float(np.add.reduce(mean**2))
    kept = max(0.0, 1.0 - len(mean) * deviation**2 / squares) if squares > 0.0 else 0.0
    return np.asarray(kept * mean)


def surely_moved(level: FloatArray, mean: FloatArray, variance: float, surely: float) -> FloatArray:
    """Move a level of clipped residuals, if it is surely off the mean of outcomes, by so many deviations of noise."""
    return level + shrunk_mean(mean - level, surely * math.sqrt(variance))


def last_size(counts: FloatArray, deviation: float, sizes: FloatArray, *, heavy: bool = False) -> float | None:
    """Return the largest size in the last bin above the noise; None if no bin is.

    The threshold is higher far below the largest possible size, since all rows are clipped to the result. It is also
    higher with Laplace noise.
    """
    needed = np.where(sizes < _FAR_BELOW * sizes[-1], _SURELY, _ABOVE_NOISE) * (_HEAVY if heavy else 1.0)
    (found,) = (counts > needed * deviation).nonzero()
    return float(sizes[found[-1]]) if len(found) else None


def size_of_share(counts: FloatArray, deviation: float, sizes: FloatArray, share: float, people: float) -> float | None:
    """Return the first size with at most this share of people beyond it; None if nobody is above the noise.

    The first bin counts people at zero. If it is above the noise, the share is of the others. If single bins are below
    the noise, the result is the middle of the few adjacent bins with the largest count.
    """
    others = counts[1:]
    if deviation > _DROWNS * people:
        windows = np.convolve(others, np.ones(_WINDOW), mode="valid")
        best = int(np.argmax(windows))
        if windows[best] < _ABOVE_NOISE * deviation * math.sqrt(_WINDOW):
            return None
        return float(sizes[1 + best + _WINDOW // 2 - 1])
    if counts[0] > max(_ABOVE_NOISE * deviation, _MANY_ZEROS * people):
        people, share = max(people - float(counts[0]), 1.0), min(share, _FEW_OF_OTHERS)
    # People below are counted from either end: the mean has half the variance.
    above = np.concatenate([others[:0:-1].cumsum()[::-1], [0.0]])
    below = (others.cumsum() + (people - above)) / (2.0 * people)
    (reached,) = (below >= 1.0 - share).nonzero()
    # Far beyond the last that are seen it is noise that adds up.
    (seen,) = (others > _ABOVE_NOISE * deviation).nonzero()
    farthest = seen[-1] + _HIDDEN if len(seen) else len(others) - 1
    return float(sizes[1 + min(reached[0] if len(reached) else farthest, farthest, len(others) - 1)])


#: Ascending eigenvalues of a symmetric matrix, and eigenvectors.
Spectrum: TypeAlias = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of rows: ``whitening @ (row - center)``, and a 1 after them where there is a constant."""

    whitening: FloatArray  # (d, d)
    center: FloatArray  # (d,)
    constant: bool
    xx: FloatArray  # (k, k), released; n times the identity where it is not
    #: Standard deviation of the noise in an entry off its diagonal; 0 where it is not released.
    noise: float
    #: Effect on predictions of noise equal in all coordinates.
    cost: float = math.inf
    #: Part of X'X, by precision, whose noise was whitened with it.
    whitened_part: float = 1.0
    #: Norm of the longest rows before whitening; and the clip of whitened rows, over their norm.
    radius: float = 0.0
    clipped_to: float = 1.0

    @classmethod
    def plain(cls, center: FloatArray, length: float, people: float, *, constant: bool) -> Coordinates:
        """Return those of plain descent: rows in units of so much a direction."""
        features = len(center)
        whitening = np.eye(features) * (math.sqrt(features) / length)
        return cls(whitening, center, constant, people * np.eye(features + constant), 0.0, radius=length)

    @classmethod
    def whitened(
        cls,
        xx: FloatArray,
        spectrum: Spectrum,
        noise: float,
        power: float,
        center: FloatArray,
        people: float,
        *,
        constant: bool,
    ) -> Coordinates:
        """Whiten by a power of X'X about the center and the spectrum of its noise; rows get the mean square d."""
        features = len(xx)
        values, vectors = spectrum
        kept = np.maximum(values, 0.0)
        ridge = max(_FIRST_RIDGE * noise * math.sqrt(features), 1e-12 * float(kept[-1]), _TINY)
        lengths = ((kept + ridge) / people) ** (-power / 2.0)
        # If no eigenvalue is above the noise, rows may be as large as the noise can hide.
        hidden = _EIGENVALUE_FLOOR * ridge * (float(np.add.reduce(lengths**2)) / features)
        lengths /= math.sqrt(max(float(np.add.reduce(lengths**2 * kept)), hidden) / (people * features))
        # Rotated to need few products: noise equal in all coordinates stays equal.
        whitening = _triangular((vectors * lengths) @ vectors.T)
        seen = people * np.eye(features + constant)
        seen[:features, :features] = symmetric(whitening @ xx @ whitening.T)
        scaled = noise * (float(np.add.reduce(np.add.reduce(whitening**2, axis=1))) / features)
        cost = float(np.add.reduce(1.0 / (lengths**2 * (kept + ridge))))
        return cls(whitening, center, constant, seen, scaled, cost)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigenvalues and eigenvectors of X'X."""
        return eigh(self.xx)

    @cached_property
    def unwhitening(self) -> FloatArray:
        """The inverse of whitening."""
        return inverse(self.whitening)

    @property
    def is_above_noise(self) -> bool:
        """Whether X'X is above its noise."""
        features = len(self.whitening)
        edge = _SPECTRUM_ABOVE_NOISE * self.noise * math.sqrt(features)
        # An eigenvalue is above it if the difference is not positive definite.
        difference = edge * np.eye(features) - self.xx[:features, :features]
        return 0.0 < edge < math.inf and bool(linalg.lapack.dpotrf(difference)[1] > 0)

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Columns of rows whose own unit noise hides."""
        xx = without_constant(self.xx, has_constant=self.constant)
        squares = np.sum((self.unwhitening @ xx) * self.unwhitening, axis=1)
        return hidden_columns(squares, math.sqrt(2.0) * self.noise * np.sum(self.unwhitening**2, axis=1))

    def noise_along(self, vectors: FloatArray) -> FloatArray:
        """Return the noise in squares of rows along unit vectors: more where whitening made rows, and it, larger."""
        features = len(self.whitening)
        squares = np.sum((self.whitening.T @ vectors[:features]) ** 2, axis=0)
        relative = features * squares / np.sum(self.whitening**2)
        evenness = 1.0 + self.whitened_part * (np.maximum(relative, 1.0) ** 2 - 1.0)
        return np.asarray(math.sqrt(2.0) * self.noise * np.sqrt(evenness))

    def typical_length(self) -> float:
        """Return a length beyond which few rows are, were they normal."""
        return _TYPICAL_LENGTH * math.sqrt(len(self.whitening))

    def with_moments(self, xx: FloatArray, noise: MomentNoise, x: FloatArray | None, people: float) -> Coordinates:
        """Pool with released moments of rows in these coordinates, by precision; `x` is the sum of such rows."""
        features = len(self.whitening)
        own, other = max(self.noise, _TINY) ** 2, max(noise.off_diagonal, _TINY) ** 2
        pooled = (self.xx[:features, :features] * other + xx * own) / (own + other)
        if x is not None:
            pooled = np.block([[pooled, x[:, None]], [x[None, :], np.full((1, 1), people)]])
        noise_in_entry, first = math.sqrt(own * other / (own + other)), other / (own + other)
        return replace(self, xx=symmetric(pooled), noise=noise_in_entry, whitened_part=first)

    def of_unclipped(self, clipped: float, outcomes: int) -> Coordinates:
        """Return X'X of the unclipped people, as the change of the sums with the coefficients shows it.

        Clipped contributions keep their norm, but with several outcomes their direction still changes.
        """
        kept = 1.0 - clipped * (1.0 - _TURNS * (1.0 - 1.0 / outcomes))
        return replace(self, xx=kept * self.xx, noise=kept * self.noise)

    def resolved(self) -> FloatArray:
        """Return X'X as the data can have it, positive definite."""
        values, vectors = self.spectrum
        least = _EIGENVALUE_FLOOR * self.noise * math.sqrt(len(self.whitening))
        return np.asarray((vectors * np.maximum(values, max(least, _TINY))) @ vectors.T)

    @cached_property
    def of_features(self) -> FloatArray:
        """X'X about the rows' mean, made feasible, for rows in their own coordinates."""
        xx = without_constant(self.resolved(), has_constant=self.constant)
        return np.asarray(self.unwhitening @ xx @ self.unwhitening.T)

    def ridged_inverse(self) -> FloatArray:
        """Return the inverse of X'X and the ridge of the final estimate."""
        values, vectors = self.spectrum
        ridge = _LAST_RIDGE * _STEP_RIDGE * self.noise * math.sqrt(len(self.whitening))
        return np.asarray((vectors / np.maximum(np.maximum(values, 0.0) + ridge, _TINY)) @ vectors.T)

    def as_summed(self, theta: FloatArray, rows: float, outcomes: float) -> FloatArray:
        """Return coefficients (d, l) and a constant after them, in units of rows and outcomes as they come."""
        features = len(self.whitening)
        summed = np.empty((features + 1, theta.shape[1]))
        coef = self.whitening.T.dot(theta[:features])  # `@` takes twice as long for few columns
        np.multiply(coef, outcomes / rows, out=summed[:-1])
        moved = self.center.dot(coef)
        np.multiply(theta[-1] - moved if self.constant else -moved, outcomes, out=summed[-1])
        return summed

    def of_rows(self, rows: float) -> FloatArray:
        """Return the matrix that takes rows as they come, with a 1 after them, to these coordinates."""
        moved = np.hstack([self.whitening / rows, -(self.whitening @ self.center)[:, None]])
        return np.vstack([moved, np.eye(moved.shape[1])[-1:]]) if self.constant else moved


def clipped_share(entries: int, people: float, mu: float) -> float:
    """Return the share of people to clip, for sums of this many entries: noise of a step against bias of clipping."""
    noise = (_CLIPPED_SCALE * entries / (_MOST_CLIPPED * people * mu**2)) ** _CLIPPED_POWER
    return float(_MOST_CLIPPED * noise / (noise + _MOST_CLIPPED))


class Steps(NamedTuple):
    """How to descend."""

    n_steps: int
    #: Factor of the sum in a step, (k, k).
    size: FloatArray
    momentum: float
    #: Part of a whole step that is taken.
    damping: float = 1.0

    @property
    def first_averaged(self) -> int:
        """How many steps come before those that are averaged."""
        return max(1, int(self.n_steps * _BURN_IN)) if self.n_steps > 1 else 0

    @property
    def counted(self) -> tuple[int, ...]:
        """Later steps before which residual parts are counted by size again."""
        return tuple(sorted({1, max(2, self.first_averaged)} & set(range(self.n_steps))))


def steps(
    coordinates: Coordinates,
    people: float,
    *,
    most: int = MOST_STEPS,
    requested: int | None = None,
    damping: float = 1.0,
) -> Steps:
    """Return steps and their number: the requested number, or as many as the slowest direction needs."""
    size = len(coordinates.xx)
    if coordinates.noise == 0.0:
        length = 2.0 * _PLAIN_SIZE * damping / (people * len(coordinates.whitening))
        n_steps = min(_PLAIN_STEPS, most) if requested is None else requested
        return Steps(n_steps, length * np.eye(size), _MOMENTUM, damping)
    ridge = _STEP_RIDGE * coordinates.noise * math.sqrt(len(coordinates.whitening))
    values, vectors = coordinates.spectrum
    damped = np.maximum(values, 0.0) + ridge
    slowest = float(np.min(np.clip(np.maximum(values, _EIGENVALUE_FLOOR * ridge) / damped, 0.02, 1.0)))
    n_steps = (
        min(math.ceil(_LEAST_STEPS + _SLOW_STEPS * (1.0 / slowest - 1.0)), most) if requested is None else requested
    )
    return Steps(n_steps, damping * ((vectors / damped) @ vectors.T), 0.0, damping)


def few_steps(
    shape: tuple[int, int], people: float, resolution: float, *, most: int = MOST_STEPS, requested: int | None = None
) -> Steps:
    """Return steps where people are few: shorter ones where noise would take them far.

    `shape` is that of coefficients with the constant, and `resolution` is people times mu. Rows have a mean square of
    about their number of entries, and are somewhere between all directions and one.
    """
    n_steps, size = min(_FEW_STEPS, most) if requested is None else requested, shape[0]
    longest, by_resolution = _LENGTHS_OF_FEW if n_steps >= _FEWEST_AVERAGED else _LENGTHS_OF_FEWER
    length = min(longest, by_resolution * resolution / math.sqrt(math.prod(shape)))
    return Steps(n_steps, length / (people * (1.0 + _IN_ONE * (size - 1.0))) * np.eye(size), 0.0)


class Iterate(NamedTuple):
    """Where descent is, how fast it goes, sums over late steps, each by its precision, and the noise of every step."""

    theta: FloatArray
    velocity: FloatArray
    thetas: FloatArray
    sums: FloatArray
    #: Standard deviation in an entry of each step's sum.
    deviations: tuple[float, ...] = ()
    #: Coefficients before each step, and its sum.
    steps: tuple[tuple[FloatArray, FloatArray], ...] = ()

    @classmethod
    def start(cls, theta: FloatArray) -> Iterate:
        """Return the position before the first step."""
        nothing = np.zeros_like(theta)
        return cls(theta, nothing, nothing, nothing)

    def weights(self, rule: Steps) -> FloatArray:
        """Return how much each step counts in the means over late ones."""
        precisions = np.maximum(self.deviations, _TINY) ** -2.0
        precisions[: rule.first_averaged] = 0.0
        return np.asarray(precisions / np.sum(precisions))


def next_iterate(iterate: Iterate, rule: Steps, released: FloatArray, deviation: float, *, averaged: bool) -> Iterate:
    """Take a step, `averaged` or an early one, along a released sum whose entries have noise of this deviation."""
    theta, velocity, thetas, sums, deviations, steps = iterate
    steps = (*steps, (theta, released))
    if averaged:
        weight = max(deviation, _TINY) ** -2.0
        thetas, sums = thetas + weight * theta, sums + weight * released
    push = rule.size.dot(released)
    velocity = push if rule.momentum == 0.0 else rule.momentum * velocity + push
    # Of steps with momentum the mean velocity is as long as without.
    theta = theta + (velocity if rule.momentum == 0.0 else 2.0 * (1.0 - rule.momentum) * velocity)
    return Iterate(theta, velocity, thetas, sums, (*deviations, deviation), steps)


def next_clip(clip: float, beyond: float, share: float) -> float:
    """Return the clip for the next step, when such a share of people were beyond this one."""
    return clip * math.exp(_CLIP_RATE * max(-1.0, min(1.0, beyond - share)))


class Curvature(NamedTuple):
    """X'X given its release and the steps: errors of its entries in a basis are normal and independent."""

    xx: FloatArray
    #: In columns, and the precision that steps add along each.
    basis: FloatArray
    precisions: FloatArray
    coordinates: Coordinates

    def variances(self, evenness: float = 1.0) -> FloatArray:
        """Return variances of entries off the diagonal, half of those on it, for a release of uneven noise."""
        own = 1.0 / (evenness * self.coordinates.noise**2)
        return np.asarray(1.0 / (self.precisions[:, None] + self.precisions + own))

    def noise_along(self, vectors: FloatArray) -> FloatArray:
        """Return the standard error in squares of rows along unit vectors."""
        uneven = self.coordinates.noise_along(vectors) ** 2 / (2.0 * self.coordinates.noise**2)
        squares = (self.basis.T @ vectors).T ** 2
        variances = [one @ self.variances(each) @ one for one, each in zip(squares, uneven.tolist(), strict=True)]
        return np.sqrt(2.0 * np.array(variances))


class UnshrunkEstimate(NamedTuple):
    """What the mean sum of late steps says of least squares: it is X'X (theta - mean theta_t) and noise, solved."""

    theta: FloatArray
    #: Of a column, from noise in the sums.
    covariance: FloatArray
    #: The mean theta_t. Errors of X'X add |lengths @ (theta - mean)|^2 times this covariance.
    mean: FloatArray
    lengths: FloatArray


@dataclass(frozen=True, eq=False)
class StepHistory:
    """The steps of a descent with a released X'X: what they say of least squares, if limits are requested."""

    iterate: Iterate
    rule: Steps
    coordinates: Coordinates
    #: By how much coefficients were moved since.
    moved: FloatArray | float = 0.0

    @property
    def _precisions(self) -> FloatArray:
        return np.asarray(np.maximum(self.iterate.deviations, _TINY) ** -2.0)

    def least_eigenvalues(self, values: FloatArray) -> FloatArray:
        """Return about the least that eigenvalues of X'X may be; `values` as they are if that is hardly less.

        A rare level of a column has long rows. Clipped, they are hidden by the noise in X'X, and soon have residuals
        beyond the clip, so that the sums of steps hardly move with coefficients: these go as far as a random walk. The
        farther rows may be beyond twice their clip, the more deviations an eigenvalue may be off by.
        """
        vectors, off = self.coordinates.spectrum[1], _MAY_BE_LESS * max(0.0, 0.5 - self.coordinates.clipped_to)
        if np.all(off * self.coordinates.noise_along(vectors) <= _HARDLY_LESS * values):
            return values
        curvature = self.curvature()
        seen = np.add.reduce(vectors * (curvature.xx @ vectors), axis=0)
        return np.asarray(np.maximum(np.minimum(values, seen - off * curvature.noise_along(vectors)), 0.0))

    def curvature(self) -> Curvature:
        """Return X'X as its release shows it, and the change of sums with coefficients.

        Of early and of late steps, each about their own mean. The noise of a step moves later coefficients, and their
        mean. So its product with coefficients about the mean has an expectation, which is subtracted: else small
        eigenvalues seem larger by up to three standard errors (Marriott, F., Pope, J. (1954). Bias in the estimation of
        autocorrelations. Biometrika 41).
        """
        thetas, sums = (np.array(each) for each in zip(*self.iterate.steps, strict=True))
        first, size = self.rule.first_averaged, len(self.coordinates.xx)
        squares, products, later = np.zeros((size, size)), np.zeros((size, size)), np.zeros(len(sums))
        for part in (slice(first), slice(first, None)):
            weights = self._precisions[part]
            if len(weights) < 2:
                continue
            shares = weights / np.sum(weights)
            theta, released = (each[part] - np.tensordot(shares, each[part], 1) for each in (thetas, sums))
            squares += np.einsum("t,tkl,tml->km", weights, theta, theta)
            products -= np.einsum("t,tkl,tml->km", weights, released, theta)
            later[: len(shares) - 1] += np.cumsum(shares[:0:-1])[::-1]
        precisions, basis = eigh(squares)
        found = Curvature(self.coordinates.xx, basis, np.maximum(precisions, 0.0), self.coordinates)
        variances, expected = found.variances(), np.zeros((size, size))
        lengths, vectors = eigh(self.rule.size)
        root = (vectors * np.sqrt(np.maximum(lengths, 0.0))) @ vectors.T
        for _ in range(1 + _CORRECTIONS):
            products_of_all = symmetric(products - expected) + self.coordinates.xx / (2.0 * self.coordinates.noise**2)
            found = found._replace(xx=basis @ (basis.T @ products_of_all @ basis * 2.0 * variances) @ basis.T)
            # How far the noise of a step moves coefficients so many steps later, direction by direction.
            gains, turned = eigh(root @ found.xx @ root)
            kept = (1.0 - np.clip(gains, 0.0, 2.0)) ** np.arange(len(later))[:, None]
            half = root @ turned
            expected = thetas.shape[2] * (half * (later @ kept)) @ half.T
        return found

    def unshrunk(self) -> UnshrunkEstimate:
        """Return the estimate; given the steps, nothing is to be said of how far they reach."""
        precision = float(np.sum(self._precisions[self.rule.first_averaged :]))
        theta, sums = self.iterate.thetas / precision, self.iterate.sums / precision
        curvature = self.curvature()
        variances = np.mean(curvature.variances(), axis=0)
        values, vectors = eigh(curvature.xx)
        least = _FLOOR_OF_LIMITS * math.sqrt(float(np.mean(variances)) * len(self.coordinates.whitening))
        values = np.maximum(values, least)
        # Fieller's limits are wider by this factor than those for the eigenvalue as it seems; infinite if it is noise.
        off = _MAY_BE_NOISE * curvature.noise_along(vectors)
        certain = np.sqrt(np.maximum(values**2 - off**2, least**2))
        return UnshrunkEstimate(
            theta + (vectors / values) @ (vectors.T @ sums) + self.moved,
            (vectors / certain**2) @ vectors.T / precision,
            theta,
            np.sqrt(precision * variances)[:, None] * curvature.basis.T,
        )


class DescentResult(NamedTuple):
    """Result of the descent: coefficients (k, l) and their error estimates."""

    theta: FloatArray
    #: Of a column, from noise in the steps' sums, and from that in X'X, where X'X is as released.
    covariance: FloatArray
    covariance_of_xx: FloatArray
    #: None if X'X was not released.
    history: StepHistory | None = None
    #: Part of the squared predictions, about their mean, that is expected to be wrong, if few people show it.
    expected_error: float | None = None
    #: Usual mean square of coefficients.
    usual: float = math.inf

    def at(self, theta: FloatArray) -> DescentResult:
        """Return the result with coefficients moved there."""
        history = self.history and replace(self.history, moved=self.history.moved + theta - self.theta)
        return self._replace(theta=theta, history=history)


def pooled_estimate(iterate: Iterate, rule: Steps, coordinates: Coordinates) -> DescentResult:
    """Return the pooled estimate of all late steps.

    Along an eigenvector of G with eigenvalue g, a step of size s multiplies the distance to the minimiser by 1 - s g
    and adds s times its noise. The mean sum is g times the mean distance, plus noise; m times that is added at the end.
    So the estimate is linear in the minimiser and in the noise of every step, by a recursion from the last step.
    """
    precision = float(np.sum(np.maximum(iterate.deviations[rule.first_averaged :], _TINY) ** -2.0))
    theta, sums = iterate.thetas / precision, iterate.sums / precision
    features = len(coordinates.whitening)
    if coordinates.noise == 0.0:
        covariance = max(_random_walk_variance(iterate, rule), 1.0 / precision) * rule.size @ rule.size
        return DescentResult(theta, covariance, np.zeros_like(covariance))
    values, vectors = coordinates.spectrum
    ridge = _STEP_RIDGE * coordinates.noise * math.sqrt(features)
    kept = np.maximum(values, 0.0)
    size, last = rule.damping / (kept + ridge), 1.0 / (kept + _LAST_RIDGE * ridge)
    edge = coordinates.noise * math.sqrt(features)
    at_least = np.maximum(values, _EIGENVALUE_FLOOR * edge)
    variances, found = _along_eigenvectors(iterate, rule, size, last, at_least)
    # Noise in X'X multiplies the error of coefficients, equally in every step.
    of_xx = (found / at_least * coordinates.noise) ** 2 * float(np.sum(variances))
    history = StepHistory(iterate, rule, coordinates)
    least = history.least_eigenvalues(at_least)
    if least is not at_least:
        variances = np.maximum(variances, _along_eigenvectors(iterate, rule, size, last, least)[0])
    return DescentResult(
        theta + (vectors * last) @ (vectors.T @ sums),
        (vectors * variances) @ vectors.T,
        (vectors * of_xx) @ vectors.T,
        history,
    )


def _along_eigenvectors(
    iterate: Iterate, rule: Steps, size: FloatArray, last: FloatArray, values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return variances by noise in steps, and the part of the minimiser that is found, if X'X has these values."""
    weights = iterate.weights(rule)
    kept_of_step, by_noise = 1.0 - size * values, (1.0 - last * values) * size
    missed, later, sums_later = np.zeros(len(values)), np.zeros(len(values)), []
    for number in reversed(range(len(weights))):
        sums_later.append(later)
        missed += weights[number] * kept_of_step**number
        later = weights[number] + kept_of_step * later
    of_noise = by_noise * np.array(sums_later) + last * weights[::-1, None]
    variances = np.add.accumulate((of_noise * np.array(iterate.deviations)[::-1, None]) ** 2)[-1]
    return variances, 1.0 - missed * (1.0 - last * values)


def pooled_estimate_of_few(iterate: Iterate, rule: Steps, people: float, reach: float = _USUAL_REACH) -> DescentResult:
    """Return the mean of late positions, or if steps are few the last one, with about the variance of its noise.

    Noise alone takes positions as far as a random walk does; but where sums draw them back, no farther than from one
    least-squares solution. Of both the sum of precisions is taken.
    """
    size, expected_error = len(iterate.theta), None
    walked = float(rule.size[0, 0]) ** 2 * _random_walk_variance(iterate, rule)
    if rule.n_steps < _FEWEST_AVERAGED:
        theta, variance = iterate.theta, float(rule.size[0, 0] ** 2 * np.sum(np.square(iterate.deviations)))
    else:
        precision = float(np.sum(np.maximum(iterate.deviations[rule.first_averaged :], _TINY) ** -2.0))
        theta = iterate.thetas / precision
        drawn = 1.0 / (precision * (_MOVING * people) ** 2)
        variance = walked * drawn / max(walked + drawn, _TINY)
        expected_error = _lost_of_few(theta, variance, walked, reach)
    return DescentResult(theta, variance * np.eye(size), np.zeros((size, size)), expected_error=expected_error)


def _lost_of_few(theta: FloatArray, variance: float, walked: float, reach: float) -> float:
    """Return the part of the squared predictions, about their mean, that is expected to be wrong: 1 at most.

    `reach` is the bound on outcomes over the clip of residuals. The farther outcomes may be beyond it, the more may
    their mean differ from the middle that steps lead to, and the less do coefficients say of it. Where most residuals
    draw coefficients back to this middle, there is less noise in these, and less of the signal: so noise is between
    what it seems and a random walk's. Constants were chosen on tables of 4 to 16 features, 60 to 145 people times mu,
    with normal, heavy-tailed, skewed, binary and mostly zero outcomes.
    """
    noise = variance**_SEEMS * walked ** (1.0 - _SEEMS) * math.sqrt(reach / _USUAL_REACH)
    return float(min(1.0, _LOST * noise / max(float(np.mean(theta[:-1] ** 2)), _TINY)))


def _random_walk_variance(iterate: Iterate, rule: Steps) -> float:
    """Return the variance of the mean over late steps, of size 1, where nothing draws them back: a random walk's."""
    weights = iterate.weights(rule)
    # How far the noise of a step has moved the iterates of later ones, from the next one on.
    moved = np.ones(len(weights))
    if rule.momentum > 0.0:
        moved = 2.0 * (1.0 - rule.momentum ** np.arange(1.0, len(weights) + 1.0))
    means = np.array([weights[start:] @ moved[: len(weights) - start] for start in range(1, len(weights) + 1)])
    return float(np.sum((means * iterate.deviations) ** 2))


class Shrunk(NamedTuple):
    """Coefficients (d, l) of features, the covariance of a column from noise, and the effective addition to X'X."""

    coef: FloatArray
    covariance: FloatArray
    ridge: float


def shrunk(
    coef: FloatArray,
    covariance: FloatArray,
    xx: FloatArray,
    likelihood_drop: float = LIKELIHOOD_DROP,
    usual: float = math.inf,
) -> Shrunk:
    """Shrink coefficients according to their noise; a priori all have one variance, in the units of the sums.

    Their mean square is the largest with a probability not much below the maximum. A larger one is safer, but loses
    accuracy if people are few. A priori its root has a half-Cauchy distribution, with the root of a usual mean square
    for its median: far more than usual must be seen beyond the noise (Gelman, A. (2006). Prior distributions for
    variance parameters in hierarchical models. Bayesian Analysis 1).
    """
    outcomes = coef.shape[1]
    variances, vectors = eigh(covariance)
    variances = np.maximum(variances, _TINY)
    rotated = vectors.T @ coef
    squares = np.add.reduce(rotated**2, axis=1)
    # Ascending, the middle one, or the mean of two.
    size = len(variances)
    signals = _SIGNALS * ((float(variances[(size - 1) // 2]) + float(variances[size // 2])) / 2.0)
    totals = signals[:, None] + variances
    likelihoods = -0.5 * np.add.reduce(squares / totals + outcomes * np.log(totals), axis=1)
    likelihoods -= np.log1p(signals / usual)
    signal = signals[(likelihoods >= np.maximum.reduce(likelihoods) - likelihood_drop).nonzero()[0][-1]]
    factors = signal / (signal + variances)
    half = vectors * factors
    kept = symmetric(half @ (variances[:, None] * half.T))
    # A ridge p removes p/(g + p) of a direction, g the value of X'X there.
    sizes = np.add.reduce(vectors * (xx @ vectors), axis=0)
    ridge = float(np.exp(np.mean(np.log(np.maximum(sizes * variances / signal, _TINY)))))
    return Shrunk(half @ rotated, kept, ridge)


def expected_error(coef: FloatArray, covariance: FloatArray, xx: FloatArray, left: float) -> float:
    """Return the part of the squared predictions, about their mean, that is expected to be wrong: 1 at most.

    `coef` are shrunk. `covariance` is that before, of which so much is left.
    """
    noise = left * coef.shape[1] * float(np.sum(xx * covariance))
    return float(min(1.0, noise / max(float(np.sum(coef * (xx @ coef))), _TINY)))


def penalised(coef: FloatArray, covariance: FloatArray, xx: FloatArray, penalty: float | FloatArray) -> Shrunk:
    """Return the least-squares coefficients after adding a ridge to X'X."""
    factor = np.asarray(np.linalg.solve(xx + np.diag(np.broadcast_to(penalty, len(xx))), xx), np.float64)
    return Shrunk(factor @ coef, symmetric(factor @ covariance @ factor.T), float(np.max(penalty)))


class Unclipped(NamedTuple):
    """Factors that undo the clip of squared residuals."""

    #: Of their mean square,
    square: float
    #: and of its relative error.
    error: float


def unclipped(squares: FloatArray, people: float, limit: float) -> Unclipped:
    """Return the factors for squares (l,), summed over people whose residuals had a norm of at most `limit`.

    They make the mean square consistent for normal residuals (Huber, P. (1964). Robust estimation of a location
    parameter. Annals of Mathematical Statistics 35, proposal 2). A squared norm of mean v is about v/k times chi-square
    of k degrees of freedom. Clipped at limit^2 = v x/k it has the mean v F_{k+2}(x) + limit^2 (1 - F_k(x)), which grows
    with v at the rate F_{k+2}(x). If few people have residuals near the limit both factors are about 1.
    """
    total = float(np.sum(squares))
    degrees = total**2 / float(np.sum(squares**2))
    part = min(total / (people * limit**2), _MOST_OF_LIMIT)
    least, most = -40.0, 40.0
    for _ in range(_HALVINGS):
        logarithm = (least + most) / 2.0
        x = math.exp(logarithm)
        within = float(special.chdtr(degrees + 2.0, x))
        is_more = degrees / x * within + float(special.chdtrc(degrees, x)) > part
        least, most = (logarithm, most) if is_more else (least, logarithm)
    return Unclipped(degrees / x / part, part * x / (degrees * within))


def without_constant(xx: FloatArray, *, has_constant: bool) -> FloatArray:
    """Return X'X about the rows' mean."""
    if not has_constant:
        return xx
    features: FloatArray = xx[:-1, :-1] - np.outer(xx[:-1, -1], xx[-1, :-1]) / xx[-1, -1]
    return symmetric(features)


def inverse(matrix: FloatArray) -> FloatArray:
    """Invert a matrix known to be regular, without a warning on its condition: that would reveal released values."""
    return np.asarray(np.linalg.inv(matrix), np.float64)


def _triangular(whitening: FloatArray) -> FloatArray:
    """Rotate coordinates: whitening = rotation @ lower; return lower."""
    return np.ascontiguousarray(qr(whitening[:, ::-1])[1][::-1, ::-1])
