"""The cross-sectional mechanism of synthetic control: donors enter as rows, one release of moments predicts any target.

Ridge weights on donors, f = X (X'X + (lambda/2) I)^-1 y, predict X_post' f = [(X'X + (lambda/2) I)^-1 X'X_post]' y: a
regression of a donor's periods after the intervention on those before it, applied to the target. So only the moments of
bounded donor rows have to be released. Rows may be summed about a centre, to reduce their norms. The prediction is then
relative to the centre and shrinks towards it. (Nonnegative rows may also be summed about the middle of their box with
their sums, from which the moments about the origin follow.)

A donor is one row of both blocks. Both parts of the row are clipped to public norms as they are summed. The release is
that of `dpfast.releases.moments`, calibrated for these norms once rows are rounded. A donor beyond either norm is
scaled by one factor in both parts. This lowers its weight and keeps the relation between its two parts.

*Predictors.* Further columns of a donor's row, declared with public limits. A predictor enters in the outcomes' units:
clipped to its limits, which become the range of the outcomes, times its weight. So a row is bounded as it is without
predictors, by the same norms. Each entry is computed from this entry and public numbers alone.

*Predictions* of any target, and their limits, are post-processing of the released moments.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast._redacted import redact_errors, suppress_float_warnings
from dpfast._threads import single_threaded_blas
from dpfast.io import target_rows
from dpfast.io.partitions import Partitions
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.releases.mechanism import Drawn, SingleRelease
from dpfast.releases.moments import JointMoments, unpacked
from dpfast.solvers.inference import NoisyRatio
from dpfast.solvers.ridge import (
    DenoisedMoments,
    coefficients_of_moments,
    coefficients_of_solution,
    damped_solve,
    hidden_reach,
    noise_edge,
    noise_floor,
    ridge_from_rows,
)
from dpfast.statistics import Gram, gram, rounded_bound
from dpfast.statistics.rows import RowMap

if TYPE_CHECKING:
    from dpfast.synthetic_control.steps import Solution

# Part of the hidden sum of squares that predictions without noise would not miss: the rest is the outcomes' own noise,
# or the release's. Of .3 to 1 the one that warned in 96% of fits that lost over 1.25 of what is warned of, and in 4% of
# those that lost less than .8, on twelve kinds of panels of 50 to 10,000 donors.
_PREDICTABLE = 0.4


@dataclass(frozen=True)
class Predictors:
    """Predictors as declared, by name: limits and weights, of shape (n_predictors,)."""

    names: tuple[str, ...]
    low: FloatArray
    high: FloatArray
    weights: FloatArray

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, declared: object) -> Self:
        """Read a declaration, ValueError or TypeError if it is none; None stands for no predictors."""
        if declared is None:
            declared = {}
        if not isinstance(declared, Mapping):
            raise TypeError(
                "predictors must be a dict of (low, high) or (low, high, weight) by name, got "
                f"{type(declared).__name__}"
            )
        rows = []
        for name, numbers in declared.items():
            if not isinstance(name, str):
                raise TypeError(f"predictors must have text for names, got {type(name).__name__}")
            called = f"predictors[{name!r}]"
            if not isinstance(numbers, tuple | list) or len(numbers) not in (2, 3):
                raise ValueError(f"{called} must be (low, high), or (low, high, weight), got {numbers!r}")
            low, high = check.limits(called, tuple(numbers[:2]))
            if low == high:
                raise ValueError(f"{called} must have its low below its high, got ({low!r}, {high!r})")
            weight = check.positive(f"weight of {called}", numbers[2] if len(numbers) == 3 else 1.0)
            if weight > 1.0:
                raise ValueError(
                    f"weight of {called} must be at most 1, which is that of an outcome before the intervention, got "
                    f"{weight!r}"
                )
            rows.append((low, high, weight))
        return cls(tuple(declared), *np.array(rows, np.float64).reshape(-1, 3).T)

    def mapping(self, offset: float, half_width: float, least: float) -> PredictorMap:
        """Return the map of rows whose outcomes are `offset` + `half_width` times something from `least` to 1."""
        width = self.weights * (half_width * (1.0 - least))
        return PredictorMap(self, offset + half_width * least * self.weights, width)


@dataclass(frozen=True)
class PredictorMap:
    """Maps rows whose first columns are predictors, and back: those columns between their units and the outcomes'."""

    predictors: Predictors
    #: In units of the outcomes: the image of the low limit, and of the distance to the high one.
    start: FloatArray
    width: FloatArray

    def __call__(self, rows: FloatArray, *, clips: bool = False) -> FloatArray:
        """Return rows in units of the outcomes; of donors, whose predictors are clipped to their limits."""
        known = self.predictors
        mapped = np.array(rows, np.float64)
        values = mapped[..., : len(known)]
        with np.errstate(all="ignore"):  # a warning would be about a row
            values = np.clip(values, known.low, known.high) if clips else values
            # Halved first: the width of what doubles hold is none of them.
            shares = (values / 2.0 - known.low / 2.0) / (known.high / 2.0 - known.low / 2.0)
            mapped[..., : len(known)] = self.start + self.width * shares
        return mapped

    def of_donors(self, donors: FloatArray | Partitions) -> FloatArray | Partitions:
        """Map donors, or those of each part."""
        if isinstance(donors, Partitions):
            return donors.mapped(partial(_of_x, partial(self, clips=True)), donors.n_features, 0)
        return self(donors, clips=True)

    def back(self, rows: FloatArray) -> FloatArray:
        """Return rows in the units of their predictors."""
        known = self.predictors
        shares = (rows[..., : len(known)] - self.start) / self.width
        unmapped = rows.copy()
        unmapped[..., : len(known)] = 2.0 * (known.low / 2.0 + shares * (known.high / 2.0 - known.low / 2.0))
        return unmapped


def _of_x(function: Callable[[FloatArray], FloatArray], x: FloatArray, y: Any, ids: Any) -> tuple[FloatArray, Any, Any]:
    return function(x), y, ids


@dataclass(frozen=True)
class DonorRows:
    """How a donor becomes a row, and blocks of moments, or of noise in them, those that predict: public numbers.

    Outcomes v become (v - offset)/half_width, clipped to [-1, 1], or to [0, 1] if they are `nonnegative`. Those missing
    are put at `center`, a path of shape (n_pre + n_post,) in these units, which is then subtracted. The features are
    coordinates in `basis`, orthonormal columns of shape (n_pre, n_features). Both parts of a row are clipped to their
    L2 norms, about the centre. Predictions are made about the centre too, unless rows are `restored`.
    """

    offset: float
    half_width: float
    n_pre: int
    n_post: int
    bound_pre: float = math.inf
    bound_post: float = math.inf
    nonnegative: bool = False
    center: FloatArray | None = None
    basis: FloatArray | None = None
    #: Public share of entries that are observed; None for all.
    observation_rate: float | None = None
    #: Whether moments are brought back to the origin, from sums of rows.
    restored: bool = False
    #: How many of the first columns are predictors, in units of the outcomes: `n_pre` counts them.
    n_predictors: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of features and of outcomes."""
        return (self.n_pre if self.basis is None else self.basis.shape[1]), self.n_post

    @property
    def rate(self) -> float:
        """Share of entries that are observed."""
        return self.observation_rate or 1.0

    @property
    def least(self) -> float:
        """Least entry of a donor."""
        return 0.0 if self.nonnegative else -1.0

    @property
    def maps(self) -> tuple[RowMap, RowMap]:
        """Transformation of a donor's outcomes before and after the intervention."""
        centers = (None, None) if self.center is None else np.split(self.center, [self.n_pre])
        return self._map(centers[0], self.basis), self._map(centers[1])

    def _map(self, center: FloatArray | None, basis: FloatArray | None = None) -> RowMap:
        limits = np.full(1, self.least), np.ones(1)
        return RowMap(*limits, center=center, basis=basis, offset=self.offset, unit=self.half_width, fills=True)

    def mapped(self, series: FloatArray, center: FloatArray | None, basis: FloatArray | None = None) -> FloatArray:
        """Return series of all periods, in input units, about a path in mapped units, in a basis if there is one."""
        return self._map(center, basis)(series)

    def pre_and_post(self, donors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return both parts of donors' rows, from input units, before they are clipped to their norms."""
        before, after = self.maps
        return before(donors[:, : self.n_pre]), after(donors[:, self.n_pre :])

    @property
    def path(self) -> FloatArray:
        """Path to shrink predictions towards, in mapped units."""
        return np.zeros(self.n_pre + self.n_post) if self.center is None or self.restored else self.center

    def features(self, pre: FloatArray) -> FloatArray:
        """Return the features of series before the intervention, in input units, each from its series alone."""
        about = (pre - self.offset) / self.half_width - self.path[: self.n_pre]
        return self.coordinates(about)

    def predicted(self, about: FloatArray) -> FloatArray:
        """Return predictions about the path in input units, and in the declared range."""
        mapped = np.clip(self.path[self.n_pre :] + about, self.least, 1.0)
        return np.asarray(self.offset + self.half_width * mapped)

    def coordinates(self, pre: FloatArray) -> FloatArray:
        """Return the features of series before the intervention that are about the path."""
        if self.basis is None:
            return pre
        features = RowMap(basis=self.basis)(pre.reshape(-1, self.n_pre))
        return features.reshape(*pre.shape[:-1], self.basis.shape[1])

    def about(self, center: FloatArray) -> Self:
        """Return the rows summed about a centre, clipped to norms valid there too and no larger than the box."""
        farthest = np.maximum(np.abs(1.0 - center), np.abs(self.least - center))
        pre, post = (math.nextafter(float(np.linalg.norm(part)), math.inf) for part in np.split(farthest, [self.n_pre]))
        return replace(self, center=center, bound_pre=min(self.bound_pre, pre), bound_post=min(self.bound_post, post))

    def ways(
        self, center: FloatArray | None, declared: tuple[float, float] | None, *, restored: bool = False
    ) -> list[Self]:
        """Return all ways to sum the donors within the declared norms. These (`declared`) are relative to the centre.

        About a centre that is `restored` they are brought back to the origin.
        """
        given = (math.inf, math.inf) if declared is None else (float(declared[0]), float(declared[1]))
        if center is not None:
            return [replace(self, bound_pre=given[0], bound_post=given[1], restored=restored).about(center)]
        # Rounded up: a row in the box must not be scaled.
        longest = (math.nextafter(math.sqrt(length), math.inf) for length in (self.n_pre, self.n_post))
        pre, post = map(min, given, longest)
        rows = replace(self, bound_pre=pre, bound_post=post)
        if not self.nonnegative or declared is not None:
            return [rows]
        middle = rows.about(np.full(self.n_pre + self.n_post, 0.5))
        return [rows, replace(middle, restored=True)]

    def penalty(self, ridge: float | Literal["auto"]) -> float:
        """Return the paper's lambda: by itself the squared length of the longest row, as in the paper."""
        if ridge != "auto":
            return float(ridge)
        longest = math.sqrt(self.n_pre) if self.restored else self.bound_pre
        return min(longest**2, float(self.n_pre))

    def about_path(self, blocks: Mapping[str, Any], n: Any) -> tuple[FloatArray, FloatArray]:
        """Return the predicting X'X and X'X_post from released blocks; linear, so blocks of noise can be passed too.

        Blocks are "xx", "xy" and, if rows are restored, "x" and "y", with the same leading axes; `n` is the number of
        donors (0 for a block of noise if the number is public).
        """
        rate = self.rate
        xx, xy = blocks["xx"] / rate**2, blocks["xy"] / rate**2
        if rate < 1.0:
            # An entry meets itself wherever it is observed, and another one where both are.
            diagonal = np.arange(xx.shape[-1])
            xx[..., diagonal, diagonal] *= rate
        if self.center is None or not self.restored:
            return xx, xy
        x_sum, y_sum = blocks["x"][..., :, None] / rate, blocks["y"][..., None, :] / rate
        pre, post = self.coordinates(self.center[: self.n_pre])[:, None], self.center[None, self.n_pre :]
        count = np.asarray(n)[..., None, None]
        xx = xx + pre * np.swapaxes(x_sum, -1, -2) + x_sum * pre.T + count * (pre * pre.T)
        return xx, xy + x_sum * post + pre * y_sum + count * (pre * post)

    def costs(self) -> dict[str, float]:
        """Return the weights of the blocks' noise variances in the squared relative error of a prediction.

        In units of the squared eigenvalue of X'X along the target, for a target like its donors. Noise in X'X counts
        once along the target, and by its second-order effect in the directions across (d/16, at the floor of
        `dpfast.solvers.noise_floor`); that in X'X_post by the target's length. Noise in sums is multiplied by the
        centre.
        """
        costs = {"xx": 1.0 + self.shape[0] / 16.0, "xy": float(self.n_pre)}
        if self.restored:
            assert self.center is not None
            pre, post = (float(np.sum(part**2)) for part in np.split(self.center, [self.n_pre]))
            # A target on the centre's own path has no other cost: keep the weights of blocks above zero.
            squared = max(pre, 1e-6 * self.n_pre)
            costs |= {"x": 2.0 * squared, "y": self.n_pre * squared}
            costs["n"] = self.n_pre * squared * max(post / self.n_post, 1e-6) / 4.0
        return costs


def sum_donors(donors: FloatArray, rows: DonorRows, n_threads: int | None) -> Gram:
    """Sum the rows of donors, in input units and NaN where missing, exactly: the data owner's."""
    pre, post = rows.pre_and_post(donors)
    with np.errstate(divide="ignore"):
        factors = np.minimum(rows.bound_pre / lengths_of(pre), rows.bound_post / lengths_of(post))
    x, y = (np.minimum(factors, 1.0)[:, None] * part for part in (pre, post))
    return gram(x, y, bound_x=rows.bound_pre, bound_y=rows.bound_post, sums=rows.restored, n_threads=n_threads)


def lengths_of(rows: FloatArray) -> FloatArray:
    """Return the L2 norms of rows, each from its own entries in their order, as reductions along rows have not."""
    squares = np.zeros(len(rows))
    for column in rows.T:
        squares += column * column
    return np.sqrt(squares)


@dataclass(frozen=True)
class CrossSection(SingleRelease):
    """The mechanism: moments of donor rows; `DonorRows.costs` has the weights of its noise variances."""

    joint: JointMoments
    #: Cost of the noise: the least is chosen.
    cost: float
    rows: DonorRows

    @cached_property
    def privacy(self) -> Privacy:
        """Privacy cost of one release."""
        return self.joint.privacy

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry of each block."""
        return self.joint.scales

    @classmethod
    def calibrate(cls, privacy: Privacy, *ways: DonorRows) -> Self:
        """Calibrate every way to sum the same donors, and return the one whose noise costs least."""
        return min((cls._of(rows, privacy) for rows in ways), key=lambda one: one.cost)

    @classmethod
    def _of(cls, rows: DonorRows, privacy: Privacy) -> Self:
        features, outcomes = rows.shape
        bounds = rounded_bound(rows.bound_pre, features), rounded_bound(rows.bound_post, outcomes)
        public = {"n"} if privacy.adjacency == "replace_one" else set()
        weights = {name: cost for name, cost in rows.costs().items() if name not in public}
        is_nonnegative = rows.nonnegative and rows.center is None and rows.basis is None
        joint = JointMoments.calibrate(privacy, bounds, rows.shape, weights, nonnegative=is_nonnegative)
        return cls(joint, joint.cost(weights), rows)

    @property
    def off_diagonal(self) -> float:
        """Standard deviation of the noise in X'X off the diagonal, as `moments` returns it."""
        return self.joint.off_diagonal / self.rows.rate**2

    @property
    def floor(self) -> float:
        """Least that an eigenvalue of X'X counts for."""
        return noise_floor(self.rows.shape[0], self.off_diagonal)

    def expected_error(self, eigenvalues: FloatArray, ridge: float, hidden: float = 0.0) -> float:
        """Return the relative root mean squared error of predictions.

        It includes shrinkage and noise, to first and second order, for a target like its donors. Donors vary along the
        directions of these eigenvalues of X'X. The `hidden` ones, given by their sum, are not predicted: a part of them
        would be. It is 1 if no eigenvalue is above the noise.
        """
        total = float(np.sum(eigenvalues)) + hidden
        if not np.any(eigenvalues > 0.0):
            return 1.0
        counted = np.maximum(eigenvalues + ridge / 2.0, self.floor)
        squares = (1.0 - eigenvalues / counted) ** 2 + self.cost / counted**2
        return math.sqrt((float(np.sum(eigenvalues * squares)) + _PREDICTABLE * hidden) / total)

    def bound_to_rows(self, source: noise.BitSource) -> noise.BitSource:
        """Bind seeded noise to how donors become rows, in mapped units: it does not depend on those of the panel."""
        rows = self.rows
        return source.bound(rows.n_pre, rows.center, rows.basis, rows.observation_rate)

    def seeds(self, statistic: Gram) -> tuple[object, ...]:
        """Return the other values it is bound to."""
        return self.joint.seeds(statistic)

    def bound(self, source: noise.BitSource, name: str, statistic: Gram) -> noise.BitSource:
        """Bind seeded noise to both."""
        return super().bound(self.bound_to_rows(source), name, statistic)

    def draw(self, statistic: Gram, source: noise.BitSource) -> Drawn:
        """Add the noise to the sums of donors."""
        return self.joint.draw(statistic, source)

    def noise_alone(self, repeats: int, source: noise.BitSource) -> tuple[FloatArray, FloatArray]:
        """Draw the noise in X'X and X'X_post as `moments` returns them, with no data under it."""
        drawn = self.joint.noise_alone(repeats, source)
        return self.rows.about_path(drawn, drawn.get("n", 0.0))

    def moments(self, values: Mapping[str, FloatArray], n_donors: int | None) -> tuple[FloatArray, FloatArray]:
        """Return X'X and X'X_post that predict from a release; `n_donors` is needed to restore them, if public."""
        return self.rows.about_path(values, values.get("n", n_donors or 0))


def orthonormal_basis(basis: object, n_pre: int) -> FloatArray | None:
    """Return orthonormal columns that span public paths: those given, or this many polynomials of lowest degree."""
    if basis is None:
        return None
    if isinstance(basis, int | np.integer):
        number = check.positive_integer("basis", basis)
        if number > n_pre:
            raise ValueError(f"basis must have at most as many paths as there are periods, {n_pre}, got {number}")
        paths = np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, n_pre), number - 1)
    else:
        paths = redact_errors(lambda: np.asarray(basis), "basis must be a number of paths or an array")
        if paths.dtype.kind not in "iuf" or paths.ndim != 2 or len(paths) != n_pre or not np.all(np.isfinite(paths)):
            raise ValueError(f"basis must be a number of paths or a finite array with {n_pre} rows, one a period")
        if not 1 <= paths.shape[1] <= n_pre or np.linalg.matrix_rank(paths) < paths.shape[1]:
            raise ValueError("basis must have linearly independent columns, at least one")
    return np.asarray(np.linalg.qr(paths.astype(np.float64))[0])


# Draws that an interval's quantiles are taken from: they are then off by 0.01 in coverage, up or down.
_SIMULATIONS = 500
# An eigenvalue beyond this many edges of the noise is the panel's: noise alone passes one edge in one panel of a
# hundred, but where panels' own eigenvalues are as large as the noise the largest is often twice what it was. Of 1.5,
# 2.5 and 4 the one with the narrowest intervals of those that cover, on panels of 100 to 10,000 donors.
_CERTAIN = 2.5
# Entries of X'X that are simulated at a time.
_BATCH_ENTRIES = 1 << 19


def predictions(
    xx: FloatArray, xy: FloatArray, targets: FloatArray, ridge: float, floor: float, n_components: int | None
) -> FloatArray:
    """Predict targets, features of shape (n_targets, d), from moments of shape (..., d, d) and (..., d, n_post)."""
    weights = damped_solve(xx, targets.T, ridge / 2.0, floor, n_components)
    return np.asarray(np.swapaxes(weights, -1, -2) @ xy)


def prediction_interval(released: Solution, targets: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Limits for the prediction without privacy noise at the same ridge, about the path, from released values.

    The prediction is not linear in the noise, so its errors are simulated. First, the released moments are denoised
    (`dpfast.solvers.DenoisedMoments`). Then fresh noise with the known law is added to them. The quantiles of the
    errors are subtracted from the prediction: the parametric bootstrap's basic interval (Davison and Hinkley 1997,
    "Bootstrap Methods and their Application", section 5.2).

    If the penalty is below the floor, directions hidden in the noise may contribute to the prediction without noise. If
    donors vary along one path, with a target t of direction u, the prediction is the ratio of t'X'X_post to
    u'X'X u + lambda/2. `dpfast.solvers.NoisyRatio` gives its limits, however noisy the denominator. Three cases:

    - The largest eigenvalue is beyond 2.5 edges of the noise. If the target visibly has a component in other
      directions, the ratio's limits for it are added, but no more than the largest contribution of hidden directions
      (`_hidden_reach`).
    - It exceeds the noise, but by less. This may well be chance, and the simulation, which assumes signal, would be far
      too narrow. The limits are the ratio's for the whole target plus the largest contribution of hidden directions.
    - No eigenvalue exceeds the noise: the ratio's limits for the whole target.
    """
    section, xx, xy, ridge, keep = released.section, released.xx, released.xy, released.ridge, released.n_components
    denoised = DenoisedMoments.of(xx, section.off_diagonal)
    source_xx, source_xy = denoised.xx, denoised.inside(xy)
    paths = denoised.turned_back(targets.T).T
    hidden = targets - (targets @ denoised.vectors) @ denoised.vectors.T
    # A stream of its own: with the fit's seed the noise simulated would be the noise that was added.
    digest = hashlib.sha256(released.values["xx"].tobytes() + released.values["xy"].tobytes()).digest()
    source = noise.SeededSource(int.from_bytes(digest, "little"))
    centre = predictions(source_xx, source_xy, paths, ridge, 0.0, keep)
    batch = max(1, min(_SIMULATIONS, _BATCH_ENTRIES // xx.size))
    errors = np.empty((_SIMULATIONS, *centre.shape))
    whole, part = (_SimulatedRatio.of(one, xx, xy, ridge / 2.0) for one in (targets, hidden))
    # The matrices are small: further BLAS threads only wait for each other.
    with single_threaded_blas():
        for start in range(0, _SIMULATIONS, batch):
            stop = min(start + batch, _SIMULATIONS)
            noise_xx, noise_xy = section.noise_alone(stop - start, source)
            noisy = source_xx + noise_xx, source_xy + noise_xy
            errors[start:stop] = predictions(*noisy, paths, ridge, section.floor, keep) - centre
            for ratio in (whole, part):
                ratio.add(noise_xx, noise_xy)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(errors, [tail, 1.0 - tail], axis=0)
    predicted = predictions(xx, xy, targets, ridge, section.floor, keep)
    low, high = predicted - high, predicted - low
    reach = _hidden_reach(released, denoised, targets)[:, None]
    if ridge / 2.0 >= section.floor or keep is not None:
        return low - reach, high + reach
    quantile = float(ndtri(1.0 - tail))
    largest = float(np.linalg.eigvalsh(xx)[-1])
    if largest <= _CERTAIN * noise_edge(len(xx), section.off_diagonal):
        path = section.rows.path[section.rows.n_pre :]
        ends = np.broadcast_to(section.rows.least - path, low.shape), np.broadcast_to(1.0 - path, low.shape)
        low, high = whole.known.limits(quantile, *ends)
        return (low - reach, high + reach) if len(denoised.values) else (low, high)
    # In the prediction this part has been divided by the floor.
    counted = part.known.numerator / section.floor
    most = np.linalg.norm(hidden, axis=1)[:, None] * _reach_a_length(section, xx, denoised, ridge) + np.abs(counted)
    least_added, most_added = (one - counted for one in part.known.limits(quantile, -most, most))
    return low - np.clip(-least_added, 0.0, reach), high + np.clip(most_added, 0.0, reach)


@dataclass
class _SimulatedRatio:
    """Ratio of the targets' components of X'X_post to those of X'X in their directions, with simulated noise."""

    paths: FloatArray
    units: FloatArray
    numerator: FloatArray
    denominator: FloatArray
    draws: list[tuple[FloatArray, FloatArray]]

    @classmethod
    def of(cls, paths: FloatArray, xx: FloatArray, xy: FloatArray, penalty: float) -> Self:
        """Start from released moments."""
        lengths = np.linalg.norm(paths, axis=1, keepdims=True)
        units = np.divide(paths, lengths, out=np.zeros_like(paths), where=lengths > 0.0)
        squares = np.maximum(np.einsum("td,de,te->t", units, xx, units), 0.0)
        return cls(paths, units, paths @ xy, squares + penalty, [])

    def add(self, noise_xx: FloatArray, noise_xy: FloatArray) -> None:
        """Keep what draws of the noise do to both."""
        squares = np.sum((self.units @ noise_xx) * self.units, axis=-1)
        self.draws.append((self.paths @ noise_xy, squares))

    @property
    def known(self) -> NoisyRatio:
        """The ratio as it was found, and the variances of its noise."""
        above, below = (np.concatenate(one) for one in zip(*self.draws, strict=True))
        covariance = np.mean(above * below[..., None], axis=0)
        squares = np.mean(above**2, axis=0), np.mean(below**2, axis=0)[:, None]
        return NoisyRatio(self.numerator, self.denominator[:, None], *squares, covariance)


def _hidden_reach(released: Solution, denoised: DenoisedMoments, targets: FloatArray) -> FloatArray:
    """Bound the contribution of directions hidden in the noise to the prediction of each target without noise."""
    if released.n_components is not None and released.n_components <= len(denoised.values):
        return np.zeros(len(targets))
    section, turning, rows = released.section, 1.0, released.rows
    if rows.restored:
        # Bringing moments back to the origin adds the noise of sums, times the centre's length, along the centre.
        assert rows.center is not None
        length = float(np.linalg.norm(rows.center[: rows.n_pre]))
        turning += (section.scales["x"] / rows.rate * length / section.off_diagonal) ** 2
    return denoised.hidden(targets.T, turning) * _reach_a_length(section, released.xx, denoised, released.ridge)


def _reach_a_length(section: CrossSection, xx: FloatArray, denoised: DenoisedMoments, ridge: float) -> float:
    """Bound the contribution of hidden directions to the prediction of a path of norm 1 in them.

    The hidden part is assumed to be no larger in a period after the intervention than in an average period before it.
    The latter is bounded by the 95% limit of the remaining trace of X'X.
    """
    features = len(xx)
    trace = max(float(np.trace(xx)) - float(np.sum(denoised.values)), 0.0)
    # The diagonal has twice the variance of the entries off it.
    trace += 1.645 * math.sqrt(2.0 * features) * section.off_diagonal
    return hidden_reach(trace / features, ridge / 2.0, section.floor)


@dataclass(frozen=True, repr=False)
class CrossSectionBatch:
    """Repeated releases of one panel's moments, from which predictions at any ridge are computed on request.

    Attributes
    ----------
    section : CrossSection
        The rows and the calibration of each release.
    release : Release
        All of them; see `dpfast.releases.moments`.
    n_donors : int or None
        Number of donors, None where it is private.
    ridge : float
        The paper's lambda, unless another is requested.
    mapping : PredictorMap
        The map of rows from the units of predictors to those of outcomes.
    """

    section: CrossSection
    release: Release
    n_donors: int | None
    ridge: float
    mapping: PredictorMap

    @suppress_float_warnings
    def predict(self, target_pre: ArrayLike, ridge: float | None = None) -> FloatArray:
        """Predict a target, or several, from every release.

        Parameters
        ----------
        target_pre : array of shape (n_pre,) or (n_targets, n_pre)
            Public outcomes before the intervention, in the units of the donors, after their predictors, if any.
        ridge : float, optional
            The paper's lambda; by default the estimator's. Another one costs no further privacy.

        Returns
        -------
        ndarray of shape (repeats, n_post) or (repeats, n_targets, n_post)
        """
        rows = self.section.rows
        penalty = self.ridge if ridge is None else check.nonnegative("ridge", ridge)
        names = self.mapping.predictors.names
        pre = target_rows(target_pre, {"n_pre": rows.n_pre - len(names)}, "target_pre", predictors=names)
        pre = self.mapping(pre)
        features = np.atleast_2d(rows.features(pre))
        xx, xy = self.section.moments(unpacked(self.release.values), self.n_donors)
        with single_threaded_blas():
            predicted = rows.predicted(predictions(xx, xy, features, penalty, self.section.floor, None))
        return predicted[:, 0] if pre.ndim == 1 else predicted

    def __repr__(self) -> str:
        repeats = self.release.values["xy"].shape[0]
        return f"<{repeats} releases of a panel's moments, together at {self.release.privacy}>"


def textbook(
    donors: FloatArray,
    about: float | FloatArray,
    n_pre: int,
    basis: FloatArray | None,
    ridge: float,
    keep: int | None,
    observation_rate: float | None,
) -> tuple[FloatArray, dict[str, Any]]:
    """Return the path that donors are summed about, and the coefficients without noise."""
    center = np.zeros(donors.shape[1]) + about
    pre, post = np.split(donors - center, [n_pre], axis=1)
    if not np.any(np.isnan(donors)):
        pre = pre if basis is None else pre @ basis
        theta = ridge_from_rows(pre, np.concatenate([post, pre], axis=1), ridge / 2.0, keep)
        return center, coefficients_of_solution(theta, basis, post.shape[1])
    rows = DonorRows(0.0, 1.0, n_pre, post.shape[1], observation_rate=observation_rate)
    pre, post = np.nan_to_num(pre, nan=0.0), np.nan_to_num(post, nan=0.0)
    xx, xy = rows.about_path({"xx": pre.T @ pre, "xy": pre.T @ post}, len(donors))
    # A floor just above zero: the rounding error of a zero eigenvalue has no meaningful inverse.
    floor = len(xx) * float(np.finfo(np.float64).eps) * float(np.trace(xx))
    return center, coefficients_of_moments(xx, xy, basis, ridge, floor, keep)
