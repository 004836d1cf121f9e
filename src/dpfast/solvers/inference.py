"""Inference on coefficients from released sums, with errors from all sources.

A ridge against the noise shrinks: its coefficients have two errors, the known noise and the shrinkage. The shrinkage is
as unknown as the coefficients, so it enters by its mean square. The prior is theta ~ N(0, tau^2 I), with a flat prior
on tau^2 to account for its estimation [1]_. X'Y then gives a posterior. With little noise it is that of unshrunk least
squares; in directions of X'X below the noise it has the standard deviation tau. Limits are wide in directions without
information.

For smoothing splines such limits have their nominal coverage on average over the points of the true curve, even though
the curve is no draw from the prior: the prior variance estimates its mean squared bias [2]_ [3]_. The same holds here.
Coverage is nominal on average over the coefficients of a fit, not for each coefficient over many fits. A large
coefficient among small ones, in a direction hidden by noise, is covered less often, and small ones more often. If the
size of rows is known, the prior always allows coefficients that explain half of the variance: `least_signal`.

X'X is known with noise too. Its regression on the released matrix has the same eigenvectors. The eigenvalues are
corrected for the effect of noise on a spectrum [4]_, and are 0 below the noise. The remaining error is noise in
X'Y - X'X theta, proportional to ||theta||: regression calibration [5]_. Descent released X'(Y - X theta_t) instead, at
many theta_t near theta: there the error is proportional to ||theta - theta_t||. Their change from step to step shows
X'X once more, most precisely in directions where X'X is small and steps are long: `averaged_descent.StepHistory`.

That takes the distance as it seems. If noise exceeds what rows vary by in a direction, X'X can seem several times too
large along it, and the distance seems as much too small. So descent says nothing of directions in which X'X may be
noise, and less of those near: `averaged_descent._MAY_BE_NOISE`. There limits are the prior's. Its tau is for columns
that vary as much as others. Coefficients of those that vary less may be as much larger: `squares`.

Beside a known size of rows limits hold more than coefficients that are alike. Of d coefficients of mean square tau^2,
(I - K) theta is what shrinkage takes away. It is up to sqrt(d) tau times the length of a row of I - K, whatever theta
is, and of this deviation on average (Cauchy and Schwarz). Limits are wide enough for either, in quadrature with the
noise: one coefficient may have all of the signal. A coefficient has no limits if the squared length of its row is more
than half: mainly the prior would say where it is.

Outcomes are assumed to have the same variance about their linear function in all rows.

*Minimisers of an expected loss*, from noisy sums of curvatures and scores. For people drawn at random, coefficients
without noise have the covariance H^-1 J H^-1, whether the model is true or not [7]_ [8]_. H is the sum of second
derivatives of the loss times x x', J that of squared first derivatives. One Newton step [9]_ from nearby coefficients,
along the sum of scores g, reaches the minimiser up to terms of second order. So noise in the sum, of covariance s^2 I,
adds H^-1 s^2 H^-1. The step removes earlier errors of the coefficients: from noise, a ridge or clipped slopes.

Noise E in H, of deviation h off its diagonal, multiplies the step d: E d has the covariance h^2 (||d||^2 I + d d'). The
step that should be taken is known up to the covariance V of the coefficients, which adds h^2 (tr(V) I + V). Noise makes
the inverse larger on average, so standard errors are overestimated. Directions of H below its noise are not identified.
The mean squared error there may be as large as that of the coefficients themselves. A coefficient with more than a
small part in them is not identified either. Nor is one that E multiplies by more than `_BLURRED`: H may look so much
larger along it than it is.

*Counts.* A shift of all predictions by t multiplies rates, and so curvatures, by exp(t). The score at the shifted
coefficients then follows from the same sums: with the constant feature k it is g - (exp(t) - 1) H_k/k, H_k the
constant's column of H. So the shift after which rates sum to counts is log(1 + k g_k/H_kk), however far that is. A
Newton step would lower the logarithms of too large rates by 1 at most, and raise those of small ones too far. Newton's
step d follows at the shifted coefficients. Noise in H is multiplied by exp(t) d + (exp(t) - 1)/k of the constant. The
error of d is of second order in the change of predictions. So a step is cut where it would change that of any row by
more than `_FAR`. If the last one was, or the released sum of counts is not distinct from its noise, steps have not
converged, and nothing is known.

References
----------
.. [1] Morris, C. (1983). Parametric empirical Bayes inference: theory and applications. JASA 78, section 4.
.. [2] Wahba, G. (1983). Bayesian "confidence intervals" for the cross-validated smoothing spline. JRSS B 45.
.. [3] Nychka, D. (1988). Bayesian confidence intervals for smoothing splines. JASA 83.
.. [4] Bun, J., Allez, R., Bouchaud, J.-P., Potters, M. (2016). Rotational invariant estimator for general noisy
   matrices. IEEE Transactions on Information Theory 62: additive noise.
.. [5] Carroll, R., Ruppert, D., Stefanski, L., Crainiceanu, C. (2006). Measurement error in nonlinear models,
   chapter 4.
.. [6] Edelman, A. (1988). Eigenvalues and condition numbers of random matrices. SIAM Journal on Matrix Analysis and
   Applications 9.
.. [7] Huber, P. (1967). The behavior of maximum likelihood estimates under nonstandard conditions. Fifth Berkeley
   Symposium.
.. [8] White, H. (1982). Maximum likelihood estimation of misspecified models. Econometrica 50.
.. [9] Le Cam, L. (1956). On the asymptotic theory of estimation and testing hypotheses. Third Berkeley Symposium: one
   step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from dpfast._arrays import FloatArray
from dpfast.solvers.ridge import (
    MomentNoise,
    NoisyMoments,
    ReducedMoments,
    denoised_eigenvalues,
    eigh,
    hidden_columns,
    reduced_moments,
    symmetric,
)

if TYPE_CHECKING:
    from dpfast.solvers.averaged_descent import StepHistory

# Prior standard deviations tried: from this fraction of the least error in any direction to so many times what the
# coefficients seem to be.
_SMALLEST, _LARGEST, _TRIED = 1e-2, 1e2, 161
# Weights of a mixture, to the largest, that are left out.
_NEGLIGIBLE = 1e-9
# Bisections of the interval between the lowest and highest quantiles of a mixture's parts.
_BISECTIONS = 40
# Noise in X'X counts by the squared norm of the coefficients, which noise hides in turn: so often one is found from the
# other.
_ENERGY_STEPS = 8
# Least mean square of a column, over that of all, that is distinguished.
_LEAST_SIZE = 1e-3
# Largest part of a coefficient, by squares, that shrinkage may take away.
_UNRESOLVED = 0.5
# The probability below the upper 95% limit, and a relative error of variances far below those that matter.
_WIDENED, _LEAST_NOISE = 0.975, 1e-3


class Posterior(NamedTuple):
    """Posterior of the coefficients given the releases; shapes (l, d)."""

    center: FloatArray
    deviation: FloatArray  # half of what lies between the quantiles at one standard deviation of a normal law
    low: FloatArray
    high: FloatArray
    opposite: FloatArray  # probability of the sign that the median has not


@dataclass(frozen=True, eq=False)
class InferenceState:
    """Released normal equations X'Y = X'X theta + error of d features and l outcomes, and how large the error is."""

    xx: FloatArray  # (d, d), X'X as expected from its release, or its replacement beside such an X'Y
    inverse: FloatArray  # (d, d), of the least that X'X may be
    xy: FloatArray  # (d, l)
    covariance: FloatArray  # (m, d, d) of the error, m = l, or 1 for one that all outcomes have
    spread: float = 0.0  # contribution of noise in X'X, in units of it, for coefficients of mean square 1
    sampling: float = 0.0  # the variance (1 - s/n)/s of a mean, where X'X was estimated from s of n rows
    units: FloatArray | None = None  # (d,): coefficients are for features divided by them
    outcome_unit: float | FloatArray = 1.0  # and for outcomes divided by it, each by its own where there are several
    least_signal: float = 0.0  # mean square that coefficients may have in any case, for a residual variance of 1
    # Of an intercept, level + constant @ theta: (d,) in these coordinates; level and its noise in outcome units, (l,).
    constant: FloatArray | None = None
    level: FloatArray | float = 0.0
    level_noise: FloatArray | float = 0.0
    n_rows: float = math.inf  # that the level is a mean of
    bias: FloatArray | None = None  # (l, d, d), covariance of what coefficients may be off besides, as they are
    residual_noise: FloatArray | float = 0.0  # standard error of a released residual variance, as a part of it, (l,)
    # `spread` is for |lengths @ (coefficients - start)| = 1, (d, d) and (d, l): by default their mean square about 0.
    lengths: FloatArray | None = None
    start: FloatArray | None = None
    hidden: NDArray[np.bool_] | None = None  # (d,), features whose unit is neither declared nor seen
    squares: FloatArray | None = None  # (d,), of features: of those below the mean coefficients may be larger
    history: StepHistory | None = None  # of the descent that `xy`, `covariance` and what goes with them follow from

    @property
    def signal_to_noise(self) -> float:
        """Mean square of X'Y, in units of its error: about 1 where there is no signal."""
        groups = np.split(self.xy, len(self.covariance), axis=1)
        squares = (np.sum(xy * (linalg.pinvh(own) @ xy)) for xy, own in zip(groups, self.covariance, strict=True))
        return float(sum(squares)) / self.xy.size

    def with_steps(self) -> InferenceState:
        """Return it with what the steps of its history say of least squares."""
        if self.history is None:
            return self
        coordinates, found = self.history.coordinates, self.history.unshrunk()
        whitening = coordinates.whitening
        features = len(whitening)
        return replace(
            self,
            xy=whitening.T @ found.theta[:features],
            covariance=(whitening.T @ found.covariance[:features, :features] @ whitening)[None],
            spread=1.0,
            start=whitening.T @ found.mean[:features],
            lengths=found.lengths[:, :features] @ coordinates.unwhitening.T,
            history=None,
        )

    def _in_own_units(self, squares: FloatArray) -> InferenceState:
        """Return it in units in which features of less than the mean of these squares may explain as much as that.

        For normal equations whose X'X was replaced by the identity.
        """
        allowed = 1.0 / np.clip(squares / np.mean(squares), _LEAST_SIZE, 1.0)
        unit = np.sqrt(allowed)
        products = np.outer(unit, unit)
        return replace(
            self,
            xy=self.xy / unit[:, None],
            inverse=self.inverse / products,
            covariance=self.covariance / products,
            bias=None if self.bias is None else self.bias / products,
            lengths=None if self.lengths is None else self.lengths * unit,
            start=None if self.start is None else self.start / unit[:, None],
            units=(1.0 if self.units is None else self.units) / unit,
            constant=None if self.constant is None else self.constant * unit,
            least_signal=self.least_signal * float(np.sum(squares) / (squares @ allowed)),
            squares=None,
        )

    def widened(self, residual_variance: FloatArray) -> FloatArray:
        """Return a released residual variance, increased by so much that limits allow for the noise in it.

        A variance of relative standard error r is known like one from 2/r^2 degrees of freedom: Satterthwaite, F.
        (1946). An approximate distribution of estimates of variance components. Biometrics Bulletin 2. So the quantile
        of Student's law replaces the normal one. The quantile is that of 95% limits for every level, so that limits and
        p-values agree.
        """
        relative = np.maximum(self.residual_noise, _LEAST_NOISE)
        students = special.stdtrit(2.0 / relative**2, _WIDENED) / special.ndtri(_WIDENED)
        return np.asarray(residual_variance * students**2)

    def posterior(self, residual_variance: FloatArray, level: float, *, of_population: bool) -> Posterior:
        """Posterior of the coefficients of the population, or of those of least squares on the rows that were summed.

        `residual_variance`, shape (l,), is that of the outcomes about their linear function of the features; the limits
        hold `level` of the law, and leave as much on either side. Where there is an intercept it comes last. All are
        NaN if nothing of X'X is above its noise: a prior would be of any size.
        """
        if self.history is not None:
            return self.with_steps().posterior(residual_variance, level, of_population=of_population)
        if self.squares is not None:
            sized = self._in_own_units(self.squares)
            return sized.posterior(residual_variance, level, of_population=of_population)
        directions = [_Directions.of(self.xx, self.inverse, each, self.least_signal) for each in self.covariance]
        outcomes = self.xy.shape[1]
        sampling = self.sampling * float(np.trace(self.xx))
        variances = residual_variance / self.outcome_unit**2
        features = len(self.xx)
        start = np.zeros_like(self.xy) if self.start is None else self.start
        lengths = np.eye(features) / math.sqrt(features) if self.lengths is None else self.lengths
        columns = zip(
            directions * (outcomes // len(directions)),
            self.xy.T,
            (_Distance(self.spread, lengths @ each, lengths) for each in start.T),
            variances,
            np.broadcast_to(self.level, outcomes),
            np.broadcast_to(self.level_noise, outcomes),
            strict=True,
        )
        laws = []
        biases = np.zeros((outcomes, *self.xx.shape)) if self.bias is None else np.asarray(self.bias)
        size = features + (self.constant is not None)
        for (each, column, distance, variance, mean, noise), bias in zip(columns, biases, strict=True):
            if not np.any(each.gains**2):
                laws.append(Posterior(*np.full((5, size), np.nan)))
                continue
            constant = None
            if self.constant is not None:
                sampled = float(variance) / self.n_rows if of_population else 0.0
                constant = _Constant(self.constant, float(mean), float(noise), sampled)
            rest = sampling, constant, bias
            law = each.law(column, float(variance), distance, *rest, of_population=of_population)
            laws.append(law.summary(level))
        posterior = Posterior(*(np.array(part) for part in zip(*laws, strict=True)))
        units = np.ones(features) if self.units is None else np.asarray(self.units, np.float64)
        if self.constant is not None:
            units = np.append(units, 1.0)
        own = np.reshape(self.outcome_unit, (-1, 1)) / units
        center, deviation, low, high = (part * own for part in posterior[:-1])
        posterior = Posterior(center, deviation, low, high, posterior.opposite)
        if self.hidden is None or not np.any(self.hidden):
            return posterior
        # The intercept has what a hidden feature contributes on average.
        hidden = np.append(self.hidden, np.ones(size - features, np.bool_))
        return Posterior(*(np.where(hidden, np.nan, part) for part in posterior))


class _Constant(NamedTuple):
    """An intercept as a function of the coefficients, and what else its error is made of."""

    weights: FloatArray
    level: float
    noise: float
    #: Variance of the mean outcome by sampling, which coefficients about the mean row are not correlated with.
    sampled: float


class _Distance(NamedTuple):
    """What noise in X'X counts by: its contribution, and |lengths @ coefficients - start|^2."""

    spread: float
    start: FloatArray
    lengths: FloatArray

    def squared(self, vectors: FloatArray, means: FloatArray, variances: FloatArray) -> FloatArray:
        """Return its expected squares, (m, 1), for means and variances along these vectors, (m, d)."""
        rotated = self.lengths @ vectors
        apart: FloatArray = np.sum((means @ rotated.T - self.start) ** 2, axis=1) + variances @ np.sum(
            rotated**2, axis=0
        )
        return apart[:, None]


@dataclass(frozen=True)
class _Directions:
    """Directions of the features in which the errors of X'Y, of covariance C, are independent, of unit variance.

    With W C W' = I and U diag(gains) V' = W X'X: U'W X'Y = gains * (V'theta) + error.
    """

    gains: FloatArray
    vectors: FloatArray  # V, in columns
    whitened: FloatArray  # U'W
    sampled: FloatArray  # variance of V'theta in samples of outcomes of residual variance 1
    least_signal: float

    @classmethod
    def of(cls, xx: FloatArray, inverse: FloatArray, covariance: FloatArray, least_signal: float) -> _Directions:
        values, vectors = eigh(covariance)
        least = max(len(values) * np.finfo(np.float64).eps * float(values[-1]), np.finfo(np.float64).tiny)
        white = vectors.T / np.sqrt(np.maximum(values, least))[:, None]
        left, gains, right = linalg.svd(white @ xx)
        whitened = left.T @ white
        return cls(gains, right.T, whitened, np.sum((right @ inverse) * right, axis=1), least_signal)

    def law(
        self,
        xy: FloatArray,
        variance: float,
        distance: _Distance,
        sampling: float,
        constant: _Constant | None,
        bias: FloatArray,
        *,
        of_population: bool,
    ) -> _Mixture:
        """Posterior law of the coefficients of one outcome: normal given tau^2.

        Coefficients of least squares are those of the population and a sampling error, of prior variance
        tau^2 + variance * sampled, direction by direction. The noise of a level may be correlated with that of the
        coefficients: their standard deviations add up, as they do at most.
        """
        gains, observed = self.gains, self.whitened @ xy
        sampled = variance * self.sampled
        tried = self._priors(observed, sampled)
        taus = np.maximum(tried, self.least_signal * variance)[:, None]
        means, variances = np.zeros((len(taus), len(gains))), np.broadcast_to(taus, (len(taus), len(gains)))
        for _ in range(_ENERGY_STEPS):
            energy = distance.squared(self.vectors, means, variances)
            errors = 1.0 + distance.spread * energy + gains**2 * sampling * taus * self.sampled
            marginal = errors + gains**2 * (taus + sampled)
            prior, rest = (taus, errors + gains**2 * sampled) if of_population else (taus + sampled, errors)
            means, variances = gains * prior / marginal * observed, prior * rest / marginal
        # On a geometric grid, the weight of a point of a flat law is its own size.
        logs = -0.5 * np.sum(observed**2 / marginal + np.log(marginal), axis=1) + np.log(tried)
        weights = np.exp(logs - np.max(logs))
        kept = weights > _NEGLIGIBLE
        weights = weights[kept] / np.sum(weights[kept])
        lost = ((1.0 - gains**2 * prior / marginal) ** 2)[kept]
        shrunk = lost * taus[kept]
        functions = self.vectors
        centers, squares = means[kept] @ functions.T, (functions**2).T
        # By how much the square of the largest loss is beyond that of the usual one, at 95% limits.
        widest = max(len(gains) / special.ndtri(_WIDENED) ** 2 - 1.0, 0.0) * (self.least_signal > 0.0)
        spreads = np.sqrt((variances[kept] + widest * shrunk) @ squares + np.diag(bias))
        if constant is not None:
            functions = np.vstack([functions, constant.weights @ functions])
            squares = functions[-1] ** 2
            own = (variances[kept] + widest * shrunk) @ squares
            noise = np.sqrt(own + constant.weights @ bias @ constant.weights) + constant.noise
            centers = np.column_stack([centers, constant.level + centers @ constant.weights])
            spreads = np.column_stack([spreads, np.sqrt(noise**2 + constant.sampled)])
        # Not of spreads: few large sizes would decide these.
        unresolved = weights @ (lost @ (functions**2).T) > _UNRESOLVED * np.sum(functions**2, axis=1)
        return _Mixture(weights, centers, spreads, unresolved & (self.least_signal > 0.0))

    def _priors(self, observed: FloatArray, sampled: FloatArray) -> FloatArray:
        """Return the tau^2 that are tried."""
        precisions = self.gains**2 / (1.0 + self.gains**2 * sampled)
        if not np.any(precisions):
            return np.ones(1)
        least = 1.0 / float(np.max(precisions))
        # The mean square of estimated coefficients, each by how well it is known.
        signal = float(np.sum((self.gains * observed) ** 2) / np.sum(self.gains**4))
        largest = _LARGEST**2 * max(least, signal)
        return np.geomspace(_SMALLEST**2 * least, largest, _TRIED)


@dataclass(frozen=True)
class _Mixture:
    """A mixture of m normal laws, for each of d coefficients."""

    weights: FloatArray  # (m,)
    centers: FloatArray  # (m, d)
    deviations: FloatArray  # (m, d)
    unknown: NDArray[np.bool_]  # (d,), of which the law says what was assumed, mostly

    def below(self, points: FloatArray) -> FloatArray:
        """Return the probability of less, coefficient by coefficient."""
        with np.errstate(divide="ignore", invalid="ignore"):
            # Where nothing is uncertain a point is on neither side of itself.
            standard = np.nan_to_num((points - self.centers) / self.deviations, nan=0.0)
        return np.asarray(self.weights @ special.ndtr(standard))

    def quantile(self, probability: float) -> FloatArray:
        """Return where so much of the law is below."""
        quantiles = self.centers + special.ndtri(probability) * self.deviations
        low, high = np.min(quantiles, axis=0), np.max(quantiles, axis=0)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2.0
            beyond = self.below(middle) > probability
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return np.asarray((low + high) / 2.0)

    def summary(self, level: float) -> Posterior:
        """Return its mean, spread and limits."""
        tail = (1.0 - level) / 2.0
        spread = (self.quantile(special.ndtr(1.0)) - self.quantile(special.ndtr(-1.0))) / 2.0
        # Each side by itself: 1 less the part below 0 would be rounded to 0 or less.
        origin = np.zeros(self.centers.shape[1])
        opposite = np.minimum(self.below(origin), replace(self, centers=-self.centers).below(origin))
        limits = self.quantile(tail), self.quantile(1.0 - tail)
        parts = self.weights @ self.centers, spread, *limits, opposite
        return Posterior(*(np.where(self.unknown, np.nan, part) for part in parts))


class Textbook(NamedTuple):
    """Least squares without noise; shapes (l, d), and the degrees of freedom of the residual variance."""

    center: FloatArray
    deviation: FloatArray
    degrees: float
    r_squared: FloatArray | None = None  # (l,)

    @classmethod
    def of(
        cls, rows: FloatArray, outcomes: FloatArray, *, functions: FloatArray | None = None, robust: bool = False
    ) -> Textbook:
        """Fit rows and outcomes; of minimum norm if singular.

        Errors are those of one residual variance, or robust: the sandwich with the rows' own squares (HC0). What is
        told is of `functions` @ coefficients, by default of these themselves.
        """
        left, singular, right = linalg.svd(rows, full_matrices=False)
        kept = singular > max(rows.shape) * np.finfo(np.float64).eps * singular[0]
        half = right[kept].T / singular[kept]
        theta = half @ (left[:, kept].T @ outcomes)
        degrees = len(rows) - int(np.sum(kept))
        residuals = outcomes - rows @ theta
        if functions is not None:
            half, theta = functions @ half, functions @ theta
        if robust:
            return cls(theta.T.copy(), np.sqrt((residuals**2).T @ (left[:, kept] @ half.T) ** 2), float(degrees))
        squares = np.sum(residuals**2, axis=0)
        variance = squares / degrees if degrees > 0 else np.full_like(squares, math.inf)
        return cls(theta.T.copy(), np.sqrt(np.outer(variance, np.sum(half**2, axis=1))), float(degrees))

    def posterior(self, level: float) -> Posterior:
        """Return Student's limits and probabilities."""
        degrees = max(self.degrees, 1.0)
        reach = float(special.stdtrit(degrees, (1.0 + level) / 2.0)) * self.deviation
        with np.errstate(divide="ignore", invalid="ignore"):
            standard = np.where(self.deviation > 0.0, np.abs(self.center) / self.deviation, math.inf)
        opposite = special.stdtr(degrees, -np.where(self.center == 0.0, 0.0, standard))
        return Posterior(self.center, self.deviation, self.center - reach, self.center + reach, opposite)


def inference_of_moments(
    moments: NoisyMoments,
    *,
    center: FloatArray | None = None,
    units: FloatArray | None = None,
    outcome_unit: float = 1.0,
    fit_intercept: bool = False,
    reduced: ReducedMoments | None = None,
    alike: bool = True,
) -> InferenceState:
    """Return the posterior from moments as released, `reduced` if that is known: shrunk ones are not unbiased.

    `alike` says that features are in units that tell how large their coefficients are.
    """
    if moments.shrinkage is not None:
        raise ValueError("moments must be as they were released")
    reduced = reduced or reduced_moments(moments, center, fit_intercept)
    noise, features = reduced.noise, len(reduced.xx)
    values, vectors = reduced.spectrum
    least = _least_eigenvalues(values, vectors, np.full_like(reduced.xx, noise.off_diagonal**2))
    values = denoised_eigenvalues(values, noise.off_diagonal)
    xx, inverse = (vectors * values) @ vectors.T, (vectors / np.maximum(values, least)) @ vectors.T
    levels = np.zeros(1)
    if reduced.shift is not None:
        assert moments.y is not None
        assert moments.n is not None
        levels = moments.y / max(moments.n, 1.0)
    covariance = np.array([_error_covariance(moments.noise, reduced.shift, float(level), features) for level in levels])
    # Noise in X'X times coefficients of mean square 1; by its symmetry their own direction counts twice.
    added = (features + 1) * noise.off_diagonal**2
    size = float(np.mean(np.einsum("mii->mi", covariance)))
    spread = added / size if added > 0.0 else 0.0
    state = InferenceState(
        symmetric(xx), symmetric(inverse), reduced.xy, covariance, spread, noise.sampling, units, outcome_unit
    )
    if not alike:
        state = replace(state, hidden=hidden_columns(np.diag(reduced.xx), noise.diagonal))
    if not fit_intercept:
        return state
    assert reduced.shift is not None
    assert moments.y is not None
    rows = max(moments.n or 0.0, 1.0)
    mean = moments.y / rows
    # The noise of sums: of outcomes, of the number of rows, and of rows times the coefficients as they seem.
    squares = np.sum((state.inverse @ reduced.xy) ** 2, axis=0)
    own = moments.noise
    level_noise = np.sqrt(own.y**2 + (own.n * mean) ** 2 + own.x**2 * squares) / rows
    at = reduced.shift if center is None else reduced.shift - center
    return replace(state, constant=at, level=mean, level_noise=level_noise, n_rows=rows)


def _least_eigenvalues(values: FloatArray, vectors: FloatArray, variance: FloatArray) -> FloatArray:
    """Return how small eigenvalues of X'X below the noise in its entries may be.

    The ratio of the least hidden eigenvalue to their mean is taken from a square random matrix [6].
    """
    squares = vectors**2
    hidden = np.sqrt(np.mean(squares.T @ variance @ squares, axis=1)) / len(values) ** 2
    rounding = len(values) * np.finfo(np.float64).eps * float(np.max(values))
    return np.asarray(np.maximum(hidden, max(rounding, np.finfo(np.float64).tiny)))


def _error_covariance(noise: MomentNoise, shift: FloatArray | None, level: float, features: int) -> FloatArray:
    """Covariance of the errors of a column of X'Y, without the noise in X'X times the coefficients.

    `ridge._coefficient_std` has all of it; `level`, the mean outcome, stands for the prediction at the centre.
    """
    covariance: FloatArray = (noise.cross**2 + (noise.x * level) ** 2) * np.eye(features)
    if shift is not None:
        covariance += (noise.y**2 + (noise.n * level) ** 2) * np.outer(shift, shift)
    return covariance


class NoisyRatio(NamedTuple):
    """Numerators and denominators as they were found, and variances and covariances of their errors.

    A denominator may be pure noise. Errors are normal, of known size. Whatever the ratio is, numerator minus ratio
    times denominator is normal with mean 0. The ratios that keep it below its quantile are a confidence set at the
    stated level [1]_, however small the denominator is; no interval about the estimate has this property. The set may
    be an interval, all numbers, or all but an interval. The last occurs if the denominator is not above the noise, and
    its estimate may be chance. The same test is used in regression with noisy instruments [2]_.

    References
    ----------
    .. [1] Fieller, E. C. (1954). Some problems in interval estimation. Journal of the Royal Statistical Society B 16.
    .. [2] Anderson, T. W., Rubin, H. (1949). Estimation of the parameters of a single equation in a complete system of
       stochastic equations. Annals of Mathematical Statistics 20.
    """

    numerator: FloatArray
    denominator: FloatArray
    numerator_variance: FloatArray
    denominator_variance: FloatArray
    covariance: FloatArray

    def limits(self, quantile: float, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the set within the ranges [low, high], elementwise; those of the range if it is empty."""
        squared = quantile**2
        # a theta^2 - 2 b theta + c <= 0.
        a = self.denominator**2 - squared * self.denominator_variance
        b = self.numerator * self.denominator - squared * self.covariance
        c = self.numerator**2 - squared * self.numerator_variance
        root = np.sqrt(np.maximum(b * b - a * c, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = (b - root) / a, (b + root) / a
        first, last = np.minimum(*ends), np.maximum(*ends)
        # An interval about the estimate; or all numbers except between the roots; or all numbers.
        inside = np.clip(first, low, high), np.clip(last, low, high)
        below, above = first >= low, last <= high
        outside = np.where(below, low, np.maximum(low, last)), np.where(above, high, np.minimum(high, first))
        is_interval, is_all = a > 0.0, (b * b - a * c < 0.0) | ~(below | above) | (a == 0.0)
        smallest: FloatArray = np.where(is_interval, inside[0], np.where(is_all, low, outside[0]))
        largest: FloatArray = np.where(is_interval, inside[1], np.where(is_all, high, outside[1]))
        return smallest, largest


# An eigenvalue is above the noise beyond this many deviations times the root of their number (Wigner 1955: 2).
_ABOVE_NOISE = 2.25
# A coefficient is identified if its unit vector has no more than this, squared, in unidentified directions.
_UNSEEN = 0.05
# It is not, either, if noise in curvatures multiplies a step along it by more than this.
_BLURRED = 0.25
# Change of predictions of counts in a step, at most, for the longest row, and by a shift of all of them.
_FAR, _FARTHEST_SHIFT = 2.0, 3.0
# The same in the last step, as a mean square over rates, at most: half of it is of second order.
_CLOSE = 0.5
# Deviations of the noise that the sum of counts is above, if anything is known.
_DISTINCT = 2.0
_TINY = 1e-280


class Rates(NamedTuple):
    """Public numbers of rows with a loss of counts."""

    #: The constant feature, 0 for none, and the length of the longest row with it.
    constant: float
    length: float

    def most(self, theta: FloatArray) -> float:
        """Return the largest prediction that any row can have."""
        features = theta[:-1] if self.constant > 0.0 else theta
        rest = math.sqrt(max(self.length**2 - self.constant**2, 0.0)) * float(np.linalg.norm(features))
        return rest + self.constant * float(theta[-1])


class Sums(NamedTuple):
    """Noisy sums over people at some coefficients, and the deviations of the noise in their entries."""

    #: Of curvature times x x', (d, d), of score^2 times x x', and of score times x, minus the gradient, (d,).
    curvature: FloatArray
    squares: FloatArray
    score: FloatArray
    #: Off the diagonal of the first, and in the last.
    noise_of_curvature: float
    noise_of_score: float
    #: Of counts alone.
    rates: Rates | None = None


class Errors(NamedTuple):
    """Coefficients (d,), their covariance, and whether each is known."""

    theta: FloatArray
    covariance: FloatArray
    known: NDArray[np.bool_]
    #: The last curvature of the diagonal, a constant feature's where there is one, and the deviation of its noise.
    curvature_of_last: FloatArray


class _Step(NamedTuple):
    """A step, the sums that it is computed from, with the curvatures' spectrum, and whether it ends where it should."""

    moved: FloatArray
    #: What noise in the sum of curvatures is multiplied by.
    blurred: FloatArray
    sums: Sums
    values: FloatArray
    vectors: FloatArray
    is_close: bool


def newton_step(theta: FloatArray, sums: Sums) -> FloatArray:
    """Return the end of a Newton step; directions below the noise are given the noise's curvature."""
    return np.asarray(theta + _step(sums, is_last=False).moved)


def errors(theta: FloatArray, sums: Sums) -> Errors:
    """Return the result of the last step."""
    moved, blurred, sums, values, vectors, is_close = _step(sums, is_last=True)
    seen = values > _least(sums)
    found = theta + moved
    inverse = (vectors / np.maximum(values, _least(sums))) @ vectors.T
    spread, rotated = eigh(sums.squares)
    meat = (rotated * np.maximum(spread, 0.0)) @ rotated.T + sums.noise_of_score**2 * np.eye(len(theta))
    meat += sums.noise_of_curvature**2 * (float(blurred @ blurred) * np.eye(len(theta)) + np.outer(blurred, blurred))
    # The step is known no better than the coefficients are.
    first = inverse @ meat @ inverse
    meat += sums.noise_of_curvature**2 * (float(np.trace(first)) * np.eye(len(theta)) + first)
    hidden = vectors[:, ~seen] @ vectors[:, ~seen].T
    last = np.array([sums.curvature[-1, -1], math.sqrt(2.0) * sums.noise_of_curvature])
    covariance = inverse @ meat @ inverse + float(np.mean(found**2)) * hidden
    blur = math.sqrt(2.0) * sums.noise_of_curvature * np.linalg.norm(inverse, axis=1)
    known = (np.diag(hidden) <= _UNSEEN) & (blur <= _BLURRED) & is_close
    return Errors(found, 0.5 * (covariance + covariance.T), known, last)


def _step(sums: Sums, *, is_last: bool) -> _Step:
    rates, shift, blurred, is_close = sums.rates, 0.0, 0.0, True
    if rates is not None and rates.constant > 0.0:
        shift, blurred, sums, is_close = _shifted(sums, rates.constant)
    values, vectors = eigh(sums.curvature)
    moved = (vectors / np.maximum(values, _least(sums))) @ (vectors.T @ sums.score)
    if rates is not None:
        # Without a constant, rates are at least the trace's part of the longest row.
        k, curvature = rates.constant, sums.curvature
        rate = float(curvature[-1, -1]) / k**2 if k > 0.0 else float(np.trace(curvature)) / rates.length**2
        is_close &= float(moved @ sums.score) <= _CLOSE * rate
        if not (is_last and is_close):
            moved = moved * min(1.0, _FAR / max(rates.most(moved), rates.most(-moved), _TINY))
    last = np.eye(len(moved))[-1]
    return _Step(moved + shift * last, moved + blurred * last, sums, values, vectors, is_close)


def _shifted(sums: Sums, constant: float) -> tuple[float, float, Sums, bool]:
    """Return the shift of the last coefficient, its part in `blurred`, the sums there, and if counts are not noise."""
    last = max(float(sums.curvature[-1, -1]), _least(sums))
    ratio, noise = 1.0 + constant * float(sums.score[-1]) / last, constant * sums.noise_of_score / last
    factor = min(max(ratio, noise, math.exp(-_FARTHEST_SHIFT)), math.exp(_FARTHEST_SHIFT))
    shifted = sums._replace(
        curvature=factor * sums.curvature,
        score=sums.score - (factor - 1.0) / constant * sums.curvature[-1],
        noise_of_curvature=factor * sums.noise_of_curvature,
    )
    return math.log(factor) / constant, (1.0 - 1.0 / factor) / constant, shifted, ratio > _DISTINCT * noise


def _least(sums: Sums) -> float:
    noise = _ABOVE_NOISE * sums.noise_of_curvature * math.sqrt(len(sums.score))
    return max(noise, 1e-14 * float(np.trace(sums.curvature)), _TINY)
