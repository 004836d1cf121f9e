"""The release shared by regressions and policy evaluation: exact moments, one joint calibration, one draw of noise.

Up to five blocks are released together: X'X and X'Y; the sums of rows and of outcomes, if an intercept or a public
centre needs them; and under add/remove the number of rows. No row can be worst for all of them at once, so they are
calibrated jointly, not one by one (privacy.moment_scales; privacy.block_moments for people with several rows). X'X may
also be released from a secret sample of the rows, at less time and more noise (privacy.subsampling). If X'X is known to
be diagonal, only its diagonal is released. No other entry moves, so its Frobenius norm is the diagonal's length, and
every statement about it here holds.

Gaussian noise on X'X is isotropic in the Frobenius norm: half the variance off the diagonal, where every entry stands
twice. L2-Laplace noise is one vector over all blocks. It has X'X by its upper triangle, which moves no further than the
symmetric matrix. Each block is first scaled by a power of two, to set its noise relative to the others'; this keeps its
exact sums exact. The noise's center is stored on one grid, in 128 bits. A row is at most 2^46 units of its own block's
grid long (2^30 if X'X is diagonal), and scaled rows of two blocks differ by up to 2^40. So a sum of n rows is below n
2^86 of the finest units, and this leaves room for 2^41 rows. The room is checked before any data is read, since an
overflow would depend on them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Release
from dpfast.noise import BitSource, default_grid
from dpfast.privacy import Calibration, Composition, Privacy, Unit, compose_mu, share_of_mu
from dpfast.privacy.block_moments import (
    BlockBounds,
    VisitLimits,
    block_moment_mu,
    block_moment_scales,
    person_moment_mu,
    person_moment_scales,
    visit_moment_mu,
    visit_moment_scales,
)
from dpfast.privacy.guarantee import Law, coordinate_deviation, gaussian_mu, l2_laplace_scale, law_for
from dpfast.privacy.moment_scales import MomentScales, moment_mu, moment_scales
from dpfast.privacy.subsampling import subsampled_moment_delta, subsampled_moment_scales
from dpfast.releases import printed
from dpfast.releases.mechanism import Drawn, SingleRelease, draw
from dpfast.solvers.ridge import MomentNoise, NoisyMoments
from dpfast.statistics import Gram, PersonUnit, SampledGram, SufficientStatistics, person_block_bounds

_LARGEST_SPREAD_EXPONENT = 40
# Bounds on rows and outcomes.
_SMALLEST_RADIUS, _LARGEST_RADIUS = 1e-70, 1e70

#: Bounds on the norms of rows and of outcomes; numbers of features and of outcomes; weights of blocks by name.
Radii: TypeAlias = tuple[float, float]
Shape: TypeAlias = tuple[int, int]
Weights: TypeAlias = Mapping[str, float]

_Blocks = dict[str, FixedPoint]


class WeightedMoments(NamedTuple):
    """Exact weighted moments of rows, as a `Gram` has them: not private."""

    exact_xx: FixedPoint
    exact_x_sum: FixedPoint | None
    unit: PersonUnit | None
    exact_xy: FixedPoint | None = None


Summed: TypeAlias = Gram | SampledGram | SufficientStatistics | WeightedMoments


@dataclass(frozen=True)
class DeclaredPeople:
    """Public bounds on the contribution of a person with several rows: as declared, and of their block after rounding.

    A person's block may have no bounds of its own; the calibration then uses those of its rows alone.
    """

    unit: PersonUnit
    bounds: BlockBounds | VisitLimits | None
    #: Whose data the noise then protects, as recorded in a release: all rows of a trajectory count as one row.
    counted_as: Unit = "person"

    @classmethod
    def of(
        cls,
        max_rows: int,
        block_bounds: tuple[float | None, float | None],
        bound_x: float,
        bound_y: float,
        shape: Shape,
    ) -> Self:
        """Return the declared bounds for people with rows clipped to `bound_x` and `bound_y`."""
        unit = PersonUnit.checked(max_rows, *block_bounds, bound_x, bound_y)
        if not unit.clips_blocks:
            return cls(unit, None)
        bounds = person_block_bounds(
            max_rows, *shape, bound_x=bound_x, bound_y=bound_y, bound_xx=unit.bound_xx, bound_xy=unit.bound_xy
        )
        return cls(unit, bounds)


@dataclass(frozen=True)
class JointMoments(SingleRelease):
    """The mechanism: noise for all blocks of one release, calibrated together for rows of X and Y of a `shape`."""

    privacy: Privacy
    shape: Shape
    #: Standard deviations in an entry of each block, of X'X on its diagonal; with a sample, of the sample's sum.
    deviations: MomentScales
    off_diagonal: float
    law: Law = "Gaussian"
    #: Mu of the whole release, if the noise is Gaussian.
    mu: float | None = None
    #: Scale of the one L2-Laplace vector, in units of X'X.
    joint_scale: float = 0.0
    calibration: Calibration = "sound"
    guaranteed: bool = True
    #: Declared bounds for people with several rows, if the noise protects people and not rows.
    people: PersonUnit | None = None
    unit: Unit = "row"
    #: Number of rows in the secret sample for X'X, and number of all rows.
    sample: tuple[int, int] | None = None
    #: Whether X'X is released again with every column of X'Y.
    each_outcome: bool = False
    #: Whether X'X is known to be diagonal, and released so.
    diagonal: bool = False

    @classmethod
    def calibrate(
        cls,
        privacy: Privacy,
        radii: Radii,
        shape: Shape,
        weights: Weights,
        *,
        nonnegative: bool = False,
        people: DeclaredPeople | None = None,
        diagonal: bool = False,
    ) -> Self:
        """Noise for the blocks named in `weights`, the least in their weighted sum of squares.

        The radii are the largest norms of rows as summed. With `people` the number of rows is private, and the noise is
        the lesser of two: for the bounds on their blocks, and for those on their rows. A `diagonal` X'X is summed by
        people's blocks: their bounds alone count, and the radii are the roots of their largest entries.
        """
        if privacy.epsilon == math.inf:
            raise ValueError("epsilon must be finite: without noise there is no moment release to calibrate")
        bounds = _bounds(privacy, radii, shape, nonnegative, people, diagonal)
        bound, *others = bounds
        if others:
            bound = min(bounds, key=lambda bound: _weighted(bound.scales(1.0, weights), weights))
        facts: dict[str, Any] = {"diagonal": diagonal}
        if people is not None:
            facts |= {"people": people.unit, "unit": people.counted_as}
        law = law_for(privacy)
        if law == "Gaussian":
            mu = gaussian_mu(*privacy.target)
            return cls._gaussian(privacy, shape, bound.scales(mu, weights), mu, **facts)
        best = bound.scales(1.0, weights)
        exponents = {name: round(math.log2(best.xx) - math.log2(getattr(best, name))) for name in weights}
        _check_spread(exponents, radii)
        stretched = MomentScales(**{name: math.ldexp(1.0, -exponent) for name, exponent in exponents.items()})
        scale = l2_laplace_scale(privacy.target[0], bound.mu(stretched))
        deviation = coordinate_deviation(law, scale, sum(math.prod(_shapes(shape, diagonal)[name]) for name in weights))
        deviations = {name: math.ldexp(deviation, -exponent) for name, exponent in exponents.items()}
        if not all(sys.float_info.min <= one < math.inf for one in deviations.values()):
            raise ValueError("epsilon and radii ask for noise outside the range of floats")
        scales = MomentScales(**deviations)
        return cls(privacy, shape, scales, scales.xx, law, joint_scale=scale, **facts)

    @classmethod
    def calibrate_each_outcome(
        cls, privacy: Privacy, radii: Radii, shape: Shape, weights: Weights, composition: Composition
    ) -> Self:
        """Noise of the naive baseline: a Gaussian release of X'X and X'Y_i for every outcome i, the budget composed."""
        features, outcomes = shape
        share = share_of_mu(privacy, outcomes, composition)
        scales = moment_scales(share, *radii, weights, adjacency=privacy.adjacency, n_features=features, n_outcomes=1)
        return cls._gaussian(privacy, shape, scales, compose_mu([share] * outcomes), each_outcome=True)

    @classmethod
    def calibrate_sampled(
        cls, privacy: Privacy, radii: Radii, shape: Shape, weights: Weights, sample: tuple[int, int]
    ) -> Self:
        """Noise for X'X of a secret sample and X'Y of all rows: PRIMO's Algorithm 4, with noise that suffices.

        Under replace-one, both sizes public. The weight of X'X is for its noise after scaling to all rows. The pair is
        no Gaussian-DP release, and so has no mu.
        """
        features, outcomes = shape
        scales = subsampled_moment_scales(
            *privacy.target, *sample, *radii, weights, n_features=features, n_outcomes=outcomes
        )
        return cls._gaussian(privacy, shape, scales, sample=sample)

    @classmethod
    def printed(cls, privacy: Privacy, radii: Radii, shape: Shape, sample: tuple[int, int] | None = None) -> Self:
        """PRIMO's Algorithm 1, or with a sample 4, as printed: every entry of the upper triangle has the same noise.

        It protects as Frobenius noise with that diagonal: `primo_printed_delta`. Not `guaranteed` if its delta, or the
        delta proved for a sample, is above the claimed one.
        """
        target = privacy.epsilon, privacy.delta
        if sample is None:
            scales = printed("primo", "primo_printed_scales")(*target, *radii)
            delta = printed("primo", "primo_printed_delta")(*target, privacy.adjacency)
        else:
            scales = printed("primo", "primo_printed_sampled_scales")(*target, *sample, *radii)
            features, outcomes = shape
            delta = subsampled_moment_delta(
                scales, privacy.epsilon, *sample, *radii, n_features=features, n_outcomes=outcomes
            )
        guaranteed = delta <= privacy.delta
        return cls(privacy, shape, scales, scales.xx, calibration="paper", guaranteed=guaranteed, sample=sample)

    @classmethod
    def _gaussian(
        cls, privacy: Privacy, shape: Shape, scales: MomentScales, mu: float | None = None, **facts: Any
    ) -> Self:
        off_diagonal = math.nextafter(scales.xx * math.sqrt(0.5), math.inf)
        return cls(privacy, shape, scales, off_diagonal, mu=mu, **facts)

    @cached_property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry of each released block, of X'X on its diagonal."""
        return {name: float(getattr(self.deviations, name)) for name in self.deviations.released}

    @property
    def xx_factor(self) -> float:
        """Factor that scales the released X'X to all rows: n/s for a sample of s of n."""
        return 1.0 if self.sample is None else self.sample[1] / self.sample[0]

    @property
    def noise(self) -> MomentNoise:
        """The same scales, for the solvers; zero off a diagonal X'X."""
        scales, factor, sampling = dict(self.scales), self.xx_factor, 0.0
        diagonal, cross = scales.pop("xx"), scales.pop("xy", 0.0)
        off_diagonal = 0.0 if self.diagonal else self.off_diagonal
        if self.sample is not None:
            n_sampled, n_total = self.sample
            sampling = (1.0 - n_sampled / n_total) / n_sampled
        return MomentNoise(factor * diagonal, factor * off_diagonal, cross, **scales, sampling=sampling)

    @property
    def bound_to(self) -> tuple[object, ...]:
        """The context of seeded noise: the calibration, except its unit, as people with one row each are rows."""
        return self.privacy, self.deviations, self.off_diagonal, self.law, self.joint_scale, self.sample

    def cost(self, weights: Weights) -> float:
        """Return the weighted sum of squared noise scales, with X'X scaled to all rows."""
        return _weighted(replace(self.deviations, xx=self.xx_factor * self.deviations.xx), weights)

    def seeds(self, statistic: Summed) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        shapes = _shapes(self.shape, self.diagonal)
        if statistic.exact_xy is not None:  # a column, or a vector
            shapes["xy"] = statistic.exact_xy.shape
        return *self.bound_to, {name: shapes[name] for name in self.scales}

    def draw(self, statistic: Summed, source: BitSource) -> Drawn:
        """Add the noise to exact sums.

        Values are "xx", "xy" and, if calibrated, "x", "y" and "n". "xx" is symmetric, or its diagonal; of a sample it
        is unscaled; with `each_outcome` its shape is (outcomes, features, features). ValueError if the sums are of
        people with several rows, or of a sample, and the noise is not, or the reverse.
        """
        exact = self.exact(statistic)
        if not self.each_outcome:
            values, grids = self.drawn(exact, source)
            return self.recorded(unpacked(values), grids)
        draws = [self.drawn(exact | {"xy": exact["xy"][:, [column]]}, source) for column in range(exact["xy"].shape[1])]
        each = [unpacked(values) for values, _ in draws]
        values = {"xx": np.array([one["xx"] for one in each]), "xy": np.hstack([one["xy"] for one in each])}
        return self.recorded(values, draws[0][1])

    def noise_alone(self, repeats: int, source: BitSource) -> dict[str, FloatArray]:
        """Draw the noise `repeats` times without data, to simulate its effect on later computations.

        The source must not be the one used for the release.
        """
        shapes = _shapes(self.shape, self.diagonal)
        zeros = {name: FixedPoint.zeros(shapes[name], 0) for name in self.scales}
        return unpacked(self.drawn(zeros, source, repeats)[0])

    def recorded(self, values: Mapping[str, FloatArray], grids: Mapping[str, float]) -> Drawn:
        """Return values with their record."""
        return Drawn(self.law, values, grids, self.mu, self.unit, self.sample)

    def exact(self, gram: Summed) -> _Blocks:
        """Return the exact entries of every block, X'X as its upper triangle (diagonal first)."""
        people, sample = (None, gram.sample) if isinstance(gram, SampledGram) else (gram.unit, None)
        if people != self.people:
            raise ValueError(f"gram sums rows of {people}, the noise was calibrated for {self.people}")
        if sample != self.sample:
            raise ValueError(f"gram has a sample of {sample} rows, the noise was calibrated for {self.sample}")
        exact: dict[str, FixedPoint | None] = {
            "xx": gram.exact_xx if self.diagonal else gram.exact_xx[_triangle(gram.exact_xx.shape[0])],
            "xy": gram.exact_xy,
        }
        if isinstance(gram, WeightedMoments):
            exact["x"] = gram.exact_x_sum
        if isinstance(gram, Gram):
            exact |= {"x": gram.exact_x_sum, "y": gram.exact_y_sum}
            if "n" in self.scales:
                exact["n"] = FixedPoint.from_integers(gram.n_rows, 0)
        return {name: block for name, block in exact.items() if name in self.scales and block is not None}

    def drawn(
        self, exact: _Blocks, source: BitSource, repeats: int | None = None
    ) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """Add noise to every block, X'X in its two parts; return them, and the grid of each block."""
        parts = dict(exact)
        if not self.diagonal:
            side, xx = self.shape[0], parts.pop("xx")
            # With one feature nothing is above the diagonal.
            parts = {"xx_diagonal": xx[:side]} | ({"xx_above": xx[side:]} if side > 1 else {}) | parts
        if self.law == "Gaussian":
            scales = {**self.scales, "xx_diagonal": self.deviations.xx, "xx_above": self.off_diagonal}
            grids = {name: default_grid(scales[name]) for name in exact}
            values = {
                part: draw(self.law, scales[part], center, source, grids[_block_of(part)], repeats)
                for part, center in parts.items()
            }
            return values, grids
        stretch = {name: round(math.log2(self.deviations.xx / self.scales[name])) for name in exact}
        unit = min(center.exponent + stretch[name] for name, center in exact.items())
        integers: list[int] = []
        for name, center in exact.items():
            shift = center.exponent + stretch[name] - unit
            integers += [center.integer(index) << shift for index in np.ndindex(center.shape)]
        grid = default_grid(self.joint_scale)
        joint = draw(self.law, self.joint_scale, FixedPoint.from_integers(integers, unit), source, grid, repeats)
        values, start = {}, 0
        for part, center in parts.items():
            stop = start + math.prod(center.shape)
            block = np.ldexp(joint[..., start:stop], -stretch[_block_of(part)])
            values[part] = block.reshape((*joint.shape[:-1], *center.shape))
            start = stop
        return values, {name: math.ldexp(grid, -stretch[name]) for name in exact}


@dataclass(frozen=True)
class RepeatedMoments(SingleRelease):
    """The same sums released many times over, each with fresh noise: an experiment's repetitions in one draw.

    Values have a repetition along their first axis, X'X in two parts: "xx_diagonal" and, row by row, "xx_above"
    (`unpacked` puts them together). The costs of all repetitions are added up.
    """

    joint: JointMoments
    repeats: int

    @cached_property
    def privacy(self) -> Privacy:
        """Joint cost of all repetitions."""
        own = self.joint.privacy
        return Privacy.of_sum(self.repeats * own.epsilon, min(self.repeats * own.delta, 1.0), own.adjacency)

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry of each block."""
        return self.joint.scales

    def seeds(self, statistic: Gram) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        return *self.joint.seeds(statistic), self.repeats

    def draw(self, statistic: Gram, source: BitSource) -> Drawn:
        """Add the noise to exact sums."""
        values, grids = self.joint.drawn(self.joint.exact(statistic), source, self.repeats)
        for value in values.values():
            value.flags.writeable = False
        # Rounded up, by more than the rounding errors of a square root and a product.
        mu = None if self.joint.mu is None else self.joint.mu * math.sqrt(self.repeats) * (1.0 + 2.0**-50)
        return self.joint.recorded(values, grids)._replace(mu=mu)


class _Bound(NamedTuple):
    """The noise that makes a joint release mu-GDP, and the mu of given noise; at unit noise, its sensitivity."""

    scales_for: Callable[..., MomentScales]
    mu_of: Callable[..., float]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def scales(self, mu: float, weights: Weights) -> MomentScales:
        """Return the least noise, in the weighted sum of its squares."""
        return self.scales_for(mu, *self.arguments, weights, **self.options)

    def mu(self, scales: MomentScales) -> float:
        """Return the mu of the release."""
        return self.mu_of(scales, *self.arguments, **self.options)


def _bounds(
    privacy: Privacy, radii: Radii, shape: Shape, nonnegative: bool, people: DeclaredPeople | None, diagonal: bool
) -> list[_Bound]:
    """Every bound that holds under the declared ones.

    A block beyond its bounds has its rows, integers on the grid, scaled by one factor below 1 and rounded. No entry of
    them grows, so they stay within the rows' own bounds, and the bounds for rows hold too. Diagonals have no rows.
    """
    if people is not None and isinstance(people.bounds, VisitLimits):
        # Bounds known state by state are tighter than any norm.
        limits = (people.bounds,)
        return [_Bound(visit_moment_scales, visit_moment_mu, limits, {"adjacency": privacy.adjacency})]
    options: dict[str, Any] = {"adjacency": privacy.adjacency, "nonnegative": nonnegative}
    table = options | {"n_features": shape[0], "n_outcomes": shape[1]}
    if people is None:
        return [_Bound(moment_scales, moment_mu, radii, table)]
    of_rows = _Bound(person_moment_scales, person_moment_mu, (people.unit.max_rows, *radii), table)
    of_blocks = _Bound(block_moment_scales, block_moment_mu, (people.bounds,), options)
    return ([] if diagonal else [of_rows]) + ([] if people.bounds is None else [of_blocks])


def _check_spread(exponents: Mapping[str, int], radii: Radii) -> None:
    """Refuse blocks too different in the size of a scaled row for one joint draw."""
    x, y = map(math.log2, radii)
    lengths = {"xx": 2.0 * x, "x": x, "xy": x + y, "y": y, "n": 0.0}
    stretched = [lengths[name] + exponent for name, exponent in exponents.items()]
    spread = max(stretched) - min(stretched)
    if spread > _LARGEST_SPREAD_EXPONENT:
        raise ValueError(
            f"weights and radii must keep the blocks of one L2-Laplace draw within 2^{_LARGEST_SPREAD_EXPONENT} of "
            f"each other once stretched, got 2^{spread:.1f}"
        )


def _weighted(scales: MomentScales, weights: Weights) -> float:
    return math.fsum([weight * getattr(scales, name) ** 2 for name, weight in weights.items()])


def _shapes(shape: Shape, diagonal: bool) -> dict[str, tuple[int, ...]]:
    """Return the shape of every possible block, X'X as its upper triangle or its diagonal."""
    features, outcomes = shape
    entries = features if diagonal else features * (features + 1) // 2
    return {"xx": (entries,), "xy": shape, "x": (features,), "y": (outcomes,), "n": ()}


def _block_of(part: str) -> str:
    return part.partition("_")[0]


@lru_cache(maxsize=4)
def _triangle(features: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of the diagonal, then of the entries above it."""
    upper = np.triu_indices(features, 1)
    diagonal = np.arange(features)
    rows, columns = np.concatenate([diagonal, upper[0]]), np.concatenate([diagonal, upper[1]])
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns


def unpacked(values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Put X'X together, (..., d, d), if it is in its two parts."""
    if "xx" in values:
        return dict(values)
    diagonal = values["xx_diagonal"]
    features = diagonal.shape[-1]
    entries = np.concatenate([diagonal, *([values["xx_above"]] if "xx_above" in values else [])], axis=-1)
    matrix = np.empty((*entries.shape[:-1], features, features))
    rows, columns = _triangle(features)
    matrix[..., rows, columns] = entries
    matrix[..., columns, rows] = entries
    return {"xx": matrix} | {name: value for name, value in values.items() if not name.startswith("xx_")}


def noisy_moments(release: Release, calibrated: JointMoments, n_rows: int | None) -> NoisyMoments:
    """Return the moments of a release for solvers; the number of rows if it is public, unless it was released."""
    values = release.values
    n = float(values["n"]) if "n" in values else None if n_rows is None else float(n_rows)
    xx = values["xx"] if calibrated.sample is None else calibrated.xx_factor * values["xx"]
    return NoisyMoments(xx, values["xy"], calibrated.noise, values.get("x"), values.get("y"), n)


def exact_moments(gram: Gram) -> NoisyMoments:
    """Return the exact sums as moments without noise, for epsilon = inf."""
    assert gram.xy is not None
    x, y = (total if total is None else total.to_float64() for total in (gram.exact_x_sum, gram.exact_y_sum))
    return NoisyMoments(gram.xx, gram.xy, MomentNoise(0.0, 0.0, 0.0), x, y, float(gram.n_rows))


def prediction_costs(features: int, outcomes: int, radius: float, bound_y: float, signal: float) -> dict[str, float]:
    """Weight of each block's noise variance in the error of the predictions, up to one factor common to all.

    The error is r'(X'X)^-1 r for the noise r in X'Y - X'X theta, summed over outcomes. With rows spread evenly, X'X is
    a multiple of the identity and the weights are those in ||r||^2. Noise in the sum of rows is multiplied by a
    prediction at the centre, at most bound_y; noise in the sum of outcomes moves the mean prediction alone.
    The signal is the assumed squared norm of all coefficients: outcomes at their bound, explained by rows at theirs.
    """
    spread = radius**2 / features
    return {
        "xx": signal * (features + 1) / 2.0,
        "xy": float(features * outcomes),
        "x": features * bound_y**2 + signal * spread,
        "y": outcomes * spread,
        "n": bound_y**2 * spread,
    }


def check_radius(name: str, bound: object) -> None:
    """Refuse a bound on rows or outcomes if floats cannot hold the moments or their solutions."""
    number = check.positive(name, bound)
    if not _SMALLEST_RADIUS <= number <= _LARGEST_RADIUS:
        raise ValueError(f"{name} must lie between 1e-70 and 1e70, got {number!r}: measure in another unit")


def weights_of(blocks: Iterable[str], shape: Shape, radius: float, bound_y: float) -> dict[str, float]:
    """Return the weights of these blocks in the error of predictions, if rows explain outcomes at their bound."""
    costs = prediction_costs(*shape, radius, bound_y, shape[0] * (bound_y / radius) ** 2)
    return {name: costs[name] for name in blocks}
