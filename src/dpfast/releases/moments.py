"""The release that regressions and policy evaluation share: exact moments, one joint calibration, one draw of noise.

Up to five blocks leave together: X'X, X'Y, and where an intercept or a public centre asks for them the sums of rows and
of outcomes, and under add/remove the number of rows. No row can be worst for all of them at once, so they are
calibrated jointly (privacy.moment_scales; privacy.block_moments for people of several rows), not one by one. X'X may
also be released of a secret sample of the rows, which saves time and costs noise (privacy.subsampling). Where
X'X is known to be diagonal, only its diagonal is released: no other entry moves, so its Frobenius norm is the
diagonal's length, and all that is said of it here holds.

Gaussian noise on X'X is isotropic in the Frobenius norm: half the variance off the diagonal, where every entry stands
twice. L2-Laplace noise is one vector over all blocks, X'X by its upper triangle, which moves no further than the
symmetric matrix; each block is stretched by a power of two first, which keeps its exact sums exact, to what its noise
should be beside the others'. Its center is held on one grid, in 128 bits: a row is at most 2^46 units of its own
block's grid long (2^30 where X'X is diagonal), stretched rows of two blocks differ by up to 2^40, so a sum of n rows is
below n 2^86 of the finest units, and that leaves room for 2^41 rows. It is checked before any data is read, since an
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
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.noise import BitSource, default_grid
from dpfast.privacy import Calibration, Composition, Privacy, Unit, compose_mu, share_of_mu
from dpfast.privacy.block_moments import (
    BlockBounds,
    block_moment_mu,
    block_moment_scales,
    person_moment_mu,
    person_moment_scales,
)
from dpfast.privacy.gaussian import gaussian_mu
from dpfast.privacy.guarantee import Law, coordinate_deviation, law_for
from dpfast.privacy.moment_scales import MomentScales, moment_mu, moment_scales
from dpfast.privacy.pure import l2_laplace_scale
from dpfast.privacy.subsampling import subsampled_moment_delta, subsampled_moment_scales
from dpfast.privacy.visit_moments import VisitLimits, visit_moment_mu, visit_moment_scales
from dpfast.releases.mechanism import Drawn, SingleRelease, draw
from dpfast.releases.printed import printed
from dpfast.solvers.ridge import MomentNoise, NoisyMoments
from dpfast.statistics import Gram, PersonUnit, SampledGram, SufficientStatistics, person_block_bounds

_LARGEST_SPREAD_EXPONENT = 40
# Of rows and outcomes.
_SMALLEST_RADIUS, _LARGEST_RADIUS = 1e-70, 1e70

_Blocks = dict[str, FixedPoint]
Summed: TypeAlias = Gram | SampledGram | SufficientStatistics


@dataclass(frozen=True)
class DeclaredPeople:
    """Public bounds on what a person who owns several rows adds: as declared, and of their block once rows are rounded.

    A person's block may have no bounds of its own: then those of its rows are all that it is calibrated with.
    """

    unit: PersonUnit
    bounds: BlockBounds | VisitLimits | None
    #: Whose data the noise then protects, as a release records it: a trajectory's rows are one row.
    counted_as: Unit = "person"

    @classmethod
    def of(
        cls,
        max_rows: int,
        block_bounds: tuple[float | None, float | None],
        bound_x: float,
        bound_y: float,
        shape: tuple[int, int],
    ) -> Self:
        """Return what is declared of people whose rows are held to `bound_x` and `bound_y`."""
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
    shape: tuple[int, int]
    #: Standard deviations in an entry of each block, of X'X on its diagonal; with a sample, of the sample's sum.
    deviations: MomentScales
    off_diagonal: float
    law: Law = "Gaussian"
    #: Of all that is released, where the noise is Gaussian.
    mu: float | None = None
    #: Of the one L2-Laplace vector, in units of X'X.
    joint_scale: float = 0.0
    calibration: Calibration = "sound"
    guaranteed: bool = True
    #: What was declared of people who own several rows, where the noise protects people and not rows.
    people: PersonUnit | None = None
    unit: Unit = "row"
    #: Rows in the secret sample that X'X is summed over, and in all.
    sample: tuple[int, int] | None = None
    #: Whether X'X is released anew with every column of X'Y.
    each_outcome: bool = False
    #: Whether X'X is known to be diagonal, and released so.
    diagonal: bool = False

    @classmethod
    def calibrate(
        cls,
        privacy: Privacy,
        radii: tuple[float, float],
        shape: tuple[int, int],
        weights: Mapping[str, float],
        *,
        nonnegative: bool = False,
        people: DeclaredPeople | None = None,
        diagonal: bool = False,
    ) -> Self:
        """Noise for the blocks named in `weights`, the least in their weighted sum of squares.

        The radii are the largest norms of rows as they are summed. For `people` the number of rows is private, and the
        noise the lesser of what bounds on their blocks ask for and what those on their rows do. A `diagonal` X'X is
        summed by people's blocks: their bounds alone count, and the radii are the roots of their largest entries.
        """
        if privacy.epsilon == math.inf:
            raise ValueError("epsilon must be finite: without noise there is no moment release to calibrate")
        bounds = _bounds(privacy, radii, shape, nonnegative, people, diagonal)
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
        deviation = coordinate_deviation(law, scale, _dimension(_shapes(shape, diagonal), weights))
        deviations = {name: math.ldexp(deviation, -exponent) for name, exponent in exponents.items()}
        if not all(sys.float_info.min <= one < math.inf for one in deviations.values()):
            raise ValueError("epsilon and radii ask for noise outside the range of floats")
        scales = MomentScales(**deviations)
        return cls(privacy, shape, scales, scales.xx, law, joint_scale=scale, **facts)

    @classmethod
    def calibrate_each_outcome(
        cls,
        privacy: Privacy,
        radii: tuple[float, float],
        shape: tuple[int, int],
        weights: Mapping[str, float],
        composition: Composition,
    ) -> Self:
        """Noise of the naive baseline: a Gaussian release of X'X and X'Y_i for every outcome i, the budget composed."""
        features, outcomes = shape
        share = share_of_mu(privacy, outcomes, composition)
        scales = moment_scales(share, *radii, weights, adjacency=privacy.adjacency, n_features=features, n_outcomes=1)
        return cls._gaussian(privacy, shape, scales, compose_mu([share] * outcomes), each_outcome=True)

    @classmethod
    def calibrate_sampled(
        cls,
        privacy: Privacy,
        radii: tuple[float, float],
        shape: tuple[int, int],
        weights: Mapping[str, float],
        sample: tuple[int, int],
    ) -> Self:
        """Noise for X'X of a secret sample and X'Y of all rows: PRIMO's Algorithm 4, with noise that suffices.

        Under replace-one, both sizes public; the weight of X'X is for its noise once it stands for all rows. The pair
        is no Gaussian-DP release, and so has no mu.
        """
        features, outcomes = shape
        scales = subsampled_moment_scales(
            *privacy.target, *sample, *radii, weights, n_features=features, n_outcomes=outcomes
        )
        return cls._gaussian(privacy, shape, scales, sample=sample)

    @classmethod
    def printed(
        cls,
        privacy: Privacy,
        radii: tuple[float, float],
        shape: tuple[int, int],
        sample: tuple[int, int] | None = None,
    ) -> Self:
        """PRIMO's Algorithm 1, or with a sample 4, as printed: every entry of the upper triangle has the same noise.

        It protects as Frobenius noise with that diagonal: `primo_printed_delta`. Not `guaranteed` where its delta, or
        the one that can be proved of a sample, is above the claimed one.
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
        cls, privacy: Privacy, shape: tuple[int, int], scales: MomentScales, mu: float | None = None, **facts: Any
    ) -> Self:
        off_diagonal = math.nextafter(scales.xx * math.sqrt(0.5), math.inf)
        return cls(privacy, shape, scales, off_diagonal, mu=mu, **facts)

    @cached_property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry of each released block, of X'X on its diagonal."""
        return {name: float(getattr(self.deviations, name)) for name in self.deviations.released}

    @property
    def xx_factor(self) -> float:
        """What the released X'X is multiplied by to stand for all rows: n/s for a sample of s of n."""
        return 1.0 if self.sample is None else self.sample[1] / self.sample[0]

    @property
    def noise(self) -> MomentNoise:
        """The same scales, for the solvers; there is none off a diagonal."""
        scales, factor, sampling = dict(self.scales), self.xx_factor, 0.0
        cross, diagonal, off_diagonal = (
            scales.pop("xy", 0.0),
            scales.pop("xx"),
            0.0 if self.diagonal else self.off_diagonal,
        )
        if self.sample is not None:
            n_sampled, n_total = self.sample
            sampling = (1.0 - n_sampled / n_total) / n_sampled
        return MomentNoise(factor * diagonal, factor * off_diagonal, cross, **scales, sampling=sampling)

    @property
    def bound_to(self) -> tuple[object, ...]:
        """What seeded noise is bound to: the calibration, but for whose it is, as one row each is a row."""
        return self.privacy, self.deviations, self.off_diagonal, self.law, self.joint_scale, self.sample

    def cost(self, weights: Mapping[str, float]) -> float:
        """Return the weighted sum of squared noise scales, that of X'X as it stands for all rows."""
        return _weighted(replace(self.deviations, xx=self.xx_factor * self.deviations.xx), weights)

    def seeds(self, statistic: Summed) -> tuple[object, ...]:
        """Return what seeded noise is bound to."""
        shapes = _shapes(self.shape, self.diagonal)
        if statistic.exact_xy is not None:  # a column, or a vector
            shapes["xy"] = statistic.exact_xy.shape
        return *self.bound_to, {name: shapes[name] for name in self.scales}

    def draw(self, statistic: Summed, source: BitSource) -> Drawn:
        """Add the noise to exact sums.

        Values are "xx" (symmetric, or its diagonal; of the sample as it is, where it is sampled; (outcomes, features,
        features) with `each_outcome`), "xy" and, where calibrated, "x", "y" and "n". ValueError if the sums are of
        people who own several rows, or of a sample, and the noise is not, or the other way about.
        """
        exact = self.exact(statistic)
        if not self.each_outcome:
            values, grids = self.drawn(exact, source)
            return self.told(unpacked(values), grids)
        draws = [self.drawn(exact | {"xy": exact["xy"][:, [column]]}, source) for column in range(exact["xy"].shape[1])]
        each = [unpacked(values) for values, _ in draws]
        values = {"xx": np.array([one["xx"] for one in each]), "xy": np.hstack([one["xy"] for one in each])}
        return self.told(values, draws[0][1])

    def noise_alone(self, repeats: int, source: BitSource) -> dict[str, FloatArray]:
        """Draw the noise `repeats` times with no data under it, to simulate what it does to what is computed from it.

        The source is not to be the one that the release was drawn from.
        """
        shapes = _shapes(self.shape, self.diagonal)
        zeros = {name: FixedPoint.zeros(shapes[name], 0) for name in self.scales}
        return unpacked(self.drawn(zeros, source, repeats)[0])

    def told(self, values: Mapping[str, FloatArray], grids: Mapping[str, float]) -> Drawn:
        """Return values with what a record says of them."""
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
        if isinstance(gram, Gram):
            exact |= {"x": gram.exact_x_sum, "y": gram.exact_y_sum, "n": FixedPoint.from_integers(gram.n_rows, 0)}
        return {name: block for name, block in exact.items() if name in self.scales and block is not None}

    def drawn(
        self, exact: _Blocks, source: BitSource, repeats: int | None = None
    ) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """Add noise to every block, X'X in its two parts; return them, and the grid of each block."""
        parts = dict(exact)
        if not self.diagonal:
            side, xx = self.shape[0], parts.pop("xx")
            # With one feature there is nothing above the diagonal.
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
    (`unpacked` puts them together). What all of them cost is added up.
    """

    joint: JointMoments
    repeats: int

    @cached_property
    def privacy(self) -> Privacy:
        """What all of them cost."""
        own = self.joint.privacy
        return Privacy.of_sum(self.repeats * own.epsilon, min(self.repeats * own.delta, 1.0), own.adjacency)

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry of each block."""
        return self.joint.scales

    def seeds(self, statistic: Gram) -> tuple[object, ...]:
        """Return what seeded noise is bound to."""
        return *self.joint.seeds(statistic), self.repeats

    def draw(self, statistic: Gram, source: BitSource) -> Drawn:
        """Add the noise to exact sums."""
        values, grids = self.joint.drawn(self.joint.exact(statistic), source, self.repeats)
        for value in values.values():
            value.flags.writeable = False
        # Rounded up, by more than a square root and a product can have rounded down.
        mu = None if self.joint.mu is None else self.joint.mu * math.sqrt(self.repeats) * (1.0 + 2.0**-50)
        return self.joint.told(values, grids)._replace(mu=mu)


class _Bound(NamedTuple):
    """How much noise makes a joint release mu-GDP, and what mu given noise makes it; at unit noise, its sensitivity."""

    scales_for: Callable[..., MomentScales]
    mu_of: Callable[..., float]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def scales(self, mu: float, weights: Mapping[str, float]) -> MomentScales:
        """Return the least noise, in the weighted sum of its squares."""
        return self.scales_for(mu, *self.arguments, weights, **self.options)

    def mu(self, scales: MomentScales) -> float:
        """Return what it makes the release."""
        return self.mu_of(scales, *self.arguments, **self.options)


def _bounds(
    privacy: Privacy,
    radii: tuple[float, float],
    shape: tuple[int, int],
    nonnegative: bool,
    people: DeclaredPeople | None,
    diagonal: bool,
) -> list[_Bound]:
    """Every bound that holds for what is declared.

    A block beyond its bounds has its rows, integers on the grid, scaled by one factor below 1 and rounded: no entry of
    them grows, so they stay within the rows' own bounds, and what holds for the rows holds too. Diagonals have no rows.
    """
    if people is not None and isinstance(people.bounds, VisitLimits):
        # What is known state by state says more than any norm.
        limits = (people.bounds,)
        return [_Bound(visit_moment_scales, visit_moment_mu, limits, {"adjacency": privacy.adjacency})]
    options: dict[str, Any] = {"adjacency": privacy.adjacency, "nonnegative": nonnegative}
    table = options | {"n_features": shape[0], "n_outcomes": shape[1]}
    if people is None:
        return [_Bound(moment_scales, moment_mu, radii, table)]
    of_rows = _Bound(person_moment_scales, person_moment_mu, (people.unit.max_rows, *radii), table)
    of_blocks = _Bound(block_moment_scales, block_moment_mu, (people.bounds,), options)
    return ([] if diagonal else [of_rows]) + ([] if people.bounds is None else [of_blocks])


def _check_spread(exponents: Mapping[str, int], radii: tuple[float, float]) -> None:
    """Refuse blocks that one joint draw cannot hold: too far apart in what a row contributes once it is stretched."""
    x, y = map(math.log2, radii)
    lengths = {"xx": 2.0 * x, "x": x, "xy": x + y, "y": y, "n": 0.0}
    stretched = [lengths[name] + exponent for name, exponent in exponents.items()]
    spread = max(stretched) - min(stretched)
    if spread > _LARGEST_SPREAD_EXPONENT:
        raise ValueError(
            f"weights and radii must keep the blocks of one L2-Laplace draw within 2^{_LARGEST_SPREAD_EXPONENT} of "
            f"each other once stretched, got 2^{spread:.1f}"
        )


def _weighted(scales: MomentScales, weights: Mapping[str, float]) -> float:
    return math.fsum(weight * getattr(scales, name) ** 2 for name, weight in weights.items())


def _shapes(shape: tuple[int, int], diagonal: bool) -> dict[str, tuple[int, ...]]:
    """Return the shape of every block there may be, X'X as its upper triangle or its diagonal."""
    features, outcomes = shape
    entries = features if diagonal else features * (features + 1) // 2
    return {"xx": (entries,), "xy": shape, "x": (features,), "y": (outcomes,), "n": ()}


def _dimension(shapes: Mapping[str, tuple[int, ...]], blocks: Mapping[str, object]) -> int:
    """Count the distinct entries in the blocks of a release."""
    return sum(math.prod(shapes[name]) for name in blocks)


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
    """Put X'X together, (..., d, d), where it stands in its two parts."""
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
    """Return what solvers need of a release; the number of rows where it is public, unless it was released."""
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
    """Refuse a bound on rows or outcomes whose moments, and all that is solved from them, floats do not hold."""
    number = check.positive(name, bound)
    if not _SMALLEST_RADIUS <= number <= _LARGEST_RADIUS:
        raise ValueError(f"{name} must lie between 1e-70 and 1e70, got {number!r}: measure in another unit")


def weights_of(blocks: Iterable[str], shape: tuple[int, int], radius: float, bound_y: float) -> dict[str, float]:
    """Return the weights of these blocks in the error of predictions, where rows explain outcomes at their bound."""
    costs = prediction_costs(*shape, radius, bound_y, shape[0] * (bound_y / radius) ** 2)
    return {name: costs[name] for name in blocks}
