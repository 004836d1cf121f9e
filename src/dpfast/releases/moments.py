"""The release that the regressions share: exact moments of bounded rows, one joint calibration, one draw of noise.

Up to five blocks leave together: X'X, X'Y, and where an intercept or a public centre asks for them the sums of rows and
of outcomes, and under add/remove the number of rows. No row can be worst for all of them at once, so they are
calibrated jointly (privacy.moments), not one by one. X'X may also be released of a secret sample of the rows, which
saves time and costs noise (privacy.subsampled_moments).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.papers.primo import primo_printed_delta, primo_printed_sampled_scales, primo_printed_scales
from dpfast.privacy import Calibration, Composition, Privacy, Unit, compose_mu, share_of_mu
from dpfast.privacy.block_moments import (
    BlockBounds,
    block_moment_mu,
    block_moment_scales,
    person_moment_mu,
    person_moment_scales,
)
from dpfast.privacy.gaussian import gaussian_mu
from dpfast.privacy.laplace import l2_laplace_scale
from dpfast.privacy.moment_scales import MomentScales, moment_mu, moment_scales
from dpfast.privacy.subsampled_moments import subsampled_moment_delta, subsampled_moment_scales
from dpfast.solvers import MomentNoise, NoisyMoments
from dpfast.statistics import Gram, PersonUnit, SampledGram, person_block_bounds

# One draw for all blocks holds their exact sums on one grid, in 128 bits: a row is at most 2^46 units of its own
# block's grid long, blocks differ by up to 2^40, and that leaves room for 2^41 rows. It is checked before any data is
# read, since an overflow would depend on them.
_LARGEST_SPREAD_EXPONENT = 40


@dataclass(frozen=True)
class MomentCalibration:
    """How much noise each block gets, and what that promises.

    Parameters
    ----------
    privacy : Privacy
        The guarantee of all blocks together.
    scales : MomentScales
        Standard deviation of the noise in an entry of each block (on the diagonal, for X'X).
    off_diagonal : float
        The same for the entries of X'X off the diagonal.
    mechanism : {"Gaussian", "L2-Laplace"}
        The law; L2-Laplace is one joint draw for all blocks.
    mu : float or None
        Gaussian-differential-privacy parameter of a Gaussian release.
    joint_scale : float
        Scale of the joint L2-Laplace draw in units of X'X; 0 for Gaussian noise.
    calibration, guaranteed
        As in Release.
    unit : PersonUnit, optional
        What was declared of people who own several rows, where the noise protects people and not rows.
    sample : tuple of int, optional
        Rows in the secret sample that X'X is summed over, and in all; the scales of X'X are those of that sum.
    """

    privacy: Privacy
    scales: MomentScales
    off_diagonal: float
    mechanism: str
    mu: float | None = None
    joint_scale: float = 0.0
    calibration: Calibration = "sound"
    guaranteed: bool = True
    unit: PersonUnit | None = None
    sample: tuple[int, int] | None = None

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of the blocks that are released."""
        return self.scales.released

    @property
    def bound_to(self) -> tuple[object, ...]:
        """What seeded noise is bound to: the calibration, but for whose it is, as one row each is a row."""
        return self.privacy, self.scales, self.off_diagonal, self.mechanism, self.joint_scale, self.sample

    @property
    def released_unit(self) -> Unit:
        """Whose data the noise protects, as a release records it."""
        return "row" if self.unit is None else "person"

    @property
    def noise(self) -> MomentNoise:
        """The same scales, for the solvers."""
        scales = {name: getattr(self.scales, name) for name in self.blocks}
        cross, factor = scales.pop("xy"), self.xx_factor
        sampling = 0.0
        if self.sample is not None:
            n_sampled, n_total = self.sample
            sampling = (1.0 - n_sampled / n_total) / n_sampled
        return MomentNoise(factor * scales.pop("xx"), factor * self.off_diagonal, cross, **scales, sampling=sampling)

    @property
    def xx_factor(self) -> float:
        """What the released X'X is multiplied by to stand for all rows: n/s for a sample of s of n."""
        return 1.0 if self.sample is None else self.sample[1] / self.sample[0]


@dataclass(frozen=True)
class DeclaredPeople:
    """Public bounds on what a person who owns several rows adds to the sums.

    Parameters
    ----------
    unit : PersonUnit
        As declared: what the rows are clipped by.
    bounds : BlockBounds or None
        The same once rows are rounded: what to calibrate with. None where a person's block has no bounds of its own.
    """

    unit: PersonUnit
    bounds: BlockBounds | None

    @classmethod
    def of(
        cls,
        max_rows: int,
        block_bounds: tuple[float | None, float | None],
        bound_x: float,
        bound_y: float,
        shape: tuple[int, int],
    ) -> DeclaredPeople:
        """Return what is declared of people whose rows are held to `bound_x` and `bound_y`."""
        unit = PersonUnit.checked(max_rows, *block_bounds, bound_x, bound_y)
        if not unit.clips_blocks:
            return cls(unit, None)
        bounds = person_block_bounds(
            max_rows, *shape, bound_x=bound_x, bound_y=bound_y, bound_xx=unit.bound_xx, bound_xy=unit.bound_xy
        )
        return cls(unit, bounds)


def calibrate(
    privacy: Privacy,
    radius_x: float,
    radius_y: float,
    shape: tuple[int, int],
    weights: Mapping[str, float],
    *,
    nonnegative: bool = False,
    people: DeclaredPeople | None = None,
) -> MomentCalibration:
    """Noise for the blocks named in `weights`, the least in their weighted sum of squares.

    Parameters
    ----------
    privacy : Privacy
        Target; Gaussian noise, or L2-Laplace noise where delta is 0.
    radius_x, radius_y : float
        Largest L2 norm of a row of X and of Y, as they are summed.
    shape : tuple of int
        Numbers of features and of outcomes.
    weights : mapping of str to float
        What the squared noise scale of each released block costs.
    nonnegative : bool, default False
        Every entry of X and Y is known to be at least 0.
    people : DeclaredPeople, optional
        What is declared of people who own several rows; the number of rows is private then. Where their blocks are
        bounded, the noise is the lesser of what that asks for and what the bounds on their rows do.

    Returns
    -------
    MomentCalibration

    Raises
    ------
    ValueError
        If epsilon is infinite, which needs no release; if radii or weights are so far apart that noise leaves the range
        of floats, or the exact sums of a joint L2-Laplace draw leave 128 bits.
    """
    if privacy.epsilon == math.inf:
        raise ValueError("epsilon must be finite: without noise there is no moment release to calibrate")
    laws = _laws(privacy, radius_x, radius_y, shape, weights, nonnegative, people)
    law = min(laws, key=lambda law: _weighted(law.least_noise(1.0), weights))
    unit = None if people is None else people.unit
    if privacy.delta > 0.0:
        mu = gaussian_mu(*privacy.target)
        scales = law.least_noise(mu)
        # Frobenius-isotropic noise: half the variance off the diagonal, where every entry stands twice.
        off_diagonal = math.nextafter(scales.xx * math.sqrt(0.5), math.inf)
        return MomentCalibration(privacy, scales, off_diagonal, "Gaussian", mu, unit=unit)
    best = law.least_noise(1.0)
    # One spherical draw for all: each block is stretched by a power of two first, which keeps its exact sums exact.
    exponents = {name: round(math.log2(best.xx) - math.log2(getattr(best, name))) for name in weights}
    _check_spread(exponents, radius_x, radius_y)
    stretch = {name: math.ldexp(1.0, exponent) for name, exponent in exponents.items()}
    stretched = MomentScales(**{name: 1.0 / stretch[name] for name in weights})
    scale = l2_laplace_scale(privacy.target[0], law.mu(stretched))
    # A coordinate of the draw has variance scale^2 (dim + 1).
    deviation = scale * math.sqrt(_joint_dimension(shape, weights) + 1.0)
    scales = MomentScales(**{name: deviation / stretch[name] for name in weights})
    if not all(sys.float_info.min <= getattr(scales, name) < math.inf for name in weights):
        raise ValueError("epsilon, radius_x and radius_y ask for noise outside the range of floats")
    return MomentCalibration(privacy, scales, scales.xx, "L2-Laplace", joint_scale=scale, unit=unit)


@dataclass(frozen=True)
class _Law:
    """How much noise makes a joint release mu-GDP, and what mu given noise makes it; at unit noise, its sensitivity."""

    least_noise: Callable[[float], MomentScales]
    mu: Callable[[MomentScales], float]


def _laws(
    privacy: Privacy,
    radius_x: float,
    radius_y: float,
    shape: tuple[int, int],
    weights: Mapping[str, float],
    nonnegative: bool,
    people: DeclaredPeople | None,
) -> list[_Law]:
    """Every law that holds for what is declared.

    A block beyond its bounds has its rows, integers on the grid, scaled by one factor below 1 and rounded: no entry of
    them grows, so they stay within the rows' own bounds, and the law of the rows holds too.
    """
    options: dict[str, Any] = {"adjacency": privacy.adjacency, "nonnegative": nonnegative}
    table = options | {"n_features": shape[0], "n_outcomes": shape[1]}
    if people is None:
        return [
            _Law(
                lambda mu: moment_scales(mu, radius_x, radius_y, weights, **table),
                lambda scales: moment_mu(scales, radius_x, radius_y, **table),
            )
        ]
    rows = people.unit.max_rows
    laws = [
        _Law(
            lambda mu: person_moment_scales(mu, rows, radius_x, radius_y, weights, **table),
            lambda scales: person_moment_mu(scales, rows, radius_x, radius_y, **table),
        )
    ]
    bounds = people.bounds
    if bounds is not None:
        laws.append(
            _Law(
                lambda mu: block_moment_scales(mu, bounds, weights, **options),
                lambda scales: block_moment_mu(scales, bounds, **options),
            )
        )
    return laws


def calibrate_each_outcome(
    privacy: Privacy,
    radius_x: float,
    radius_y: float,
    shape: tuple[int, int],
    weights: Mapping[str, float],
    composition: Composition,
) -> MomentCalibration:
    """Noise of the naive baseline: a Gaussian release of X'X and X'Y_i for every outcome i, the budget composed.

    Parameters
    ----------
    privacy : Privacy
        Guarantee of all outcomes together; its delta must be above 0.
    radius_x, radius_y : float
        Largest L2 norm of a row of X and of an outcome, as they are summed.
    shape : tuple of int
        Numbers of features and of outcomes.
    weights : mapping of str to float
        What the squared noise scale of each released block costs.
    composition : {"basic", "advanced", "mu"}
        How the budget is shared.

    Returns
    -------
    MomentCalibration
        Of one outcome's release; `mu` is that of all of them.
    """
    features, outcomes = shape
    share = share_of_mu(privacy, outcomes, composition)
    scales = moment_scales(
        share, radius_x, radius_y, weights, adjacency=privacy.adjacency, n_features=features, n_outcomes=1
    )
    off_diagonal = math.nextafter(scales.xx * math.sqrt(0.5), math.inf)
    return MomentCalibration(privacy, scales, off_diagonal, "Gaussian", compose_mu([share] * outcomes))


def calibrate_sampled(
    privacy: Privacy,
    radius_x: float,
    radius_y: float,
    shape: tuple[int, int],
    weights: Mapping[str, float],
    sample: tuple[int, int],
) -> MomentCalibration:
    """Noise for X'X of a secret sample and X'Y of all rows: PRIMO's Algorithm 4, with noise that suffices.

    Parameters
    ----------
    privacy : Privacy
        Target, under replace-one, with a delta above 0.
    radius_x, radius_y : float
        Largest L2 norm of a row of X and of Y, as they are summed.
    shape : tuple of int
        Numbers of features and of outcomes.
    weights : mapping of str to float
        What the squared noise of X'X, once it stands for all rows, and that of X'Y cost.
    sample : tuple of int
        Rows in the sample and in all, both public.

    Returns
    -------
    MomentCalibration
        Its `mu` is None: the pair is no Gaussian-DP release.
    """
    features, outcomes = shape
    scales = subsampled_moment_scales(
        *privacy.target, *sample, radius_x, radius_y, weights, n_features=features, n_outcomes=outcomes
    )
    off_diagonal = math.nextafter(scales.xx * math.sqrt(0.5), math.inf)
    return MomentCalibration(privacy, scales, off_diagonal, "Gaussian", sample=sample)


def _check_spread(exponents: Mapping[str, int], radius_x: float, radius_y: float) -> None:
    """Refuse blocks that one joint draw cannot hold: too far apart in what a row contributes once it is stretched."""
    x, y = math.log2(radius_x), math.log2(radius_y)
    lengths = {"xx": 2.0 * x, "x": x, "xy": x + y, "y": y, "n": 0.0}
    stretched = [lengths[name] + exponent for name, exponent in exponents.items()]
    spread = max(stretched) - min(stretched)
    if spread > _LARGEST_SPREAD_EXPONENT:
        raise ValueError(
            f"weights and radii must keep the blocks of one L2-Laplace draw within 2^{_LARGEST_SPREAD_EXPONENT} of "
            f"each other once stretched, got 2^{spread:.1f}"
        )


def printed_primo(privacy: Privacy, radius_x: float, radius_y: float) -> MomentCalibration:
    """PRIMO's Algorithm 1 as printed: every entry of the upper triangle of X'X has the same noise.

    Parameters
    ----------
    privacy : Privacy
        What the algorithm claims; it is computed whether it holds.
    radius_x, radius_y : float
        Largest L2 norm of a row of X and of Y.

    Returns
    -------
    MomentCalibration
        Not `guaranteed` where the exact delta is above the claimed one.
    """
    scales = primo_printed_scales(privacy.epsilon, privacy.delta, radius_x, radius_y)
    true_delta = primo_printed_delta(privacy.epsilon, privacy.delta, privacy.adjacency)
    return MomentCalibration(
        privacy, scales, scales.xx, "Gaussian", calibration="paper", guaranteed=true_delta <= privacy.delta
    )


def printed_sampled_primo(
    privacy: Privacy, radius_x: float, radius_y: float, shape: tuple[int, int], sample: tuple[int, int]
) -> MomentCalibration:
    """PRIMO's Algorithm 4 as printed: every entry of the upper triangle of the sample's X'X has the same noise.

    Parameters
    ----------
    privacy, radius_x, radius_y
        As for `printed_primo`; the claim is made under replace-one.
    shape, sample
        As for `calibrate_sampled`.

    Returns
    -------
    MomentCalibration
        Not `guaranteed` where the delta that can be proved is above the claimed one.
    """
    scales = primo_printed_sampled_scales(privacy.epsilon, privacy.delta, *sample, radius_x, radius_y)
    # Noise of one size on the upper triangle protects as Frobenius noise with that diagonal: primo_printed_delta.
    features, outcomes = shape
    delta = subsampled_moment_delta(
        scales, privacy.epsilon, *sample, radius_x, radius_y, n_features=features, n_outcomes=outcomes
    )
    return MomentCalibration(
        privacy,
        scales,
        scales.xx,
        "Gaussian",
        calibration="paper",
        guaranteed=delta <= privacy.delta,
        sample=sample,
    )


def weighted_cost(calibration: MomentCalibration, weights: Mapping[str, float]) -> float:
    """Return the weighted sum of squared noise scales, that of X'X as it stands for all rows."""
    return _weighted(replace(calibration.scales, xx=calibration.xx_factor * calibration.scales.xx), weights)


def _weighted(scales: MomentScales, weights: Mapping[str, float]) -> float:
    return math.fsum(weight * getattr(scales, name) ** 2 for name, weight in weights.items())


def _joint_dimension(shape: tuple[int, int], blocks: Iterable[str]) -> int:
    """Count the distinct entries in the blocks of a release."""
    features, outcomes = shape
    sizes = {"xx": features * (features + 1) // 2, "x": features, "xy": features * outcomes, "y": outcomes, "n": 1}
    return sum(sizes[name] for name in blocks)


def draw(gram: Gram | SampledGram, calibration: MomentCalibration, source: noise.BitSource, name: str) -> Release:
    """Add the noise to exact sums; the only place where they turn into something public.

    Parameters
    ----------
    gram : Gram or SampledGram
        The data owner's exact sums, with column sums where `calibration` releases them.
    calibration : MomentCalibration
        The noise.
    source : BitSource
        Where its bits come from.
    name : str
        What the release is called in the ledger's report.

    Returns
    -------
    Release
        Its values are "xx" (symmetric; of the sample as it is, where it is sampled), "xy" and, where calibrated, "x",
        "y" and "n".

    Raises
    ------
    ValueError
        If the sums are of people who own several rows, or of a sample, and the noise is not, or the other way about.
    """
    unit, sample = (None, gram.sample) if isinstance(gram, SampledGram) else (gram.unit, None)
    if unit != calibration.unit:
        raise ValueError(f"gram sums rows of {unit}, the noise was calibrated for {calibration.unit}")
    if sample != calibration.sample:
        raise ValueError(f"gram has a sample of {sample} rows, the noise was calibrated for {calibration.sample}")
    exact = _exact_blocks(gram, calibration.blocks)
    source = source.bound(name, *calibration.bound_to, _shapes(exact))
    if calibration.mechanism == "Gaussian":
        values, grid = _gaussian_blocks(exact, calibration, source)
    else:
        values, grid = _laplace_blocks(exact, calibration, source)
    return Release(
        name,
        calibration.mechanism,
        calibration.privacy,
        {key: _mirrored(value) if key == "xx" else value for key, value in values.items()},
        {key: float(getattr(calibration.scales, key)) for key in calibration.blocks},
        mu=calibration.mu,
        grid=grid,
        calibration=calibration.calibration,
        guaranteed=calibration.guaranteed,
        reproducible=source.reproducible,
        sample=calibration.sample,
        unit=calibration.released_unit,
    )


def draw_repeatedly(
    gram: Gram, calibration: MomentCalibration, source: noise.BitSource, name: str, repeats: int
) -> Release:
    """Release the same sums many times over, each time with fresh noise: an experiment's repetitions in one draw.

    Parameters
    ----------
    gram, calibration, source, name
        As for `draw`.
    repeats : int
        How many times.

    Returns
    -------
    Release
        A repetition along the first axis of each value; X'X is split into "xx_diagonal" (repeats, d) and "xx_above"
        (repeats, d (d - 1)/2), its entries above the diagonal row by row (`unpacked` puts them together). What all of
        them cost is added up.
    """
    exact = _exact_blocks(gram, calibration.blocks)
    source = source.bound(name, *calibration.bound_to, _shapes(exact), repeats)
    side = _side(exact["xx"].shape[0])
    if calibration.mechanism == "Gaussian":
        values, grids = {}, {}
        for key, center in exact.items():
            scale = getattr(calibration.scales, key)
            grids[key] = noise.default_grid(scale)
            parts = {key: (scale, center)}
            if key == "xx":
                parts = {"xx_diagonal": (scale, center[:side])}
                if side > 1:
                    parts["xx_above"] = (calibration.off_diagonal, center[side:])
            for part, (sigma, sums) in parts.items():
                shape = (repeats, *sums.shape)
                values[part] = noise.gaussian(sigma, shape, source, center=sums, grid=grids[key])
    else:
        draws = [_laplace_blocks(exact, calibration, source) for _ in range(repeats)]
        values = {key: np.array([one[key] for one, _ in draws]) for key in exact}
        together = values.pop("xx")
        values |= {"xx_diagonal": together[:, :side].copy(), "xx_above": together[:, side:].copy()}
        grids = draws[0][1]
    for value in values.values():
        value.flags.writeable = False
    privacy = calibration.privacy
    return Release(
        name,
        calibration.mechanism,
        Privacy.of_sum(repeats * privacy.epsilon, min(repeats * privacy.delta, 1.0), privacy.adjacency),
        values,
        {key: float(getattr(calibration.scales, key)) for key in calibration.blocks},
        # Rounded up, by more than a square root and a product can have rounded down.
        mu=None if calibration.mu is None else calibration.mu * math.sqrt(repeats) * (1.0 + 2.0**-50),
        grid=grids,
        reproducible=source.reproducible,
        unit=calibration.released_unit,
    )


def unpacked(values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Put the X'X of every repetition together.

    Parameters
    ----------
    values : mapping of str to ndarray
        As `draw_repeatedly` releases them.

    Returns
    -------
    dict of str to ndarray
        With "xx" of shape (repeats, d, d).
    """
    rest = {key: value for key, value in values.items() if not key.startswith("xx_")}
    parts = [values[key] for key in ("xx_diagonal", "xx_above") if key in values]
    return rest | {"xx": _mirrored(np.concatenate(parts, axis=-1))}


def draw_each_outcome(gram: Gram, calibration: MomentCalibration, source: noise.BitSource, name: str) -> Release:
    """Release X'X and X'Y_i anew for every outcome i: the naive baseline, which pays for X'X once an outcome.

    Parameters
    ----------
    gram : Gram
        The data owner's exact sums.
    calibration : MomentCalibration
        The noise of one outcome's release; its `privacy` is the guarantee of all of them together.
    source : BitSource
        Where its bits come from.
    name : str
        What the release is called in the ledger's report.

    Returns
    -------
    Release
        "xx" of shape (n_outcomes, n_features, n_features) and "xy" of shape (n_features, n_outcomes).
    """
    exact = _exact_blocks(gram, calibration.blocks)
    source = source.bound(name, *calibration.bound_to, _shapes(exact))
    draws = []
    for column in range(gram.n_outcomes):
        one = exact | {"xy": exact["xy"][:, [column]]}
        draws.append(_gaussian_blocks(one, calibration, source))
    return Release(
        name,
        calibration.mechanism,
        calibration.privacy,
        {
            "xx": np.array([_mirrored(values["xx"]) for values, _ in draws]),
            "xy": np.concatenate([values["xy"] for values, _ in draws], axis=1),
        },
        {key: float(getattr(calibration.scales, key)) for key in calibration.blocks},
        mu=calibration.mu,
        grid=draws[0][1],
        reproducible=source.reproducible,
        unit=calibration.released_unit,
    )


def noise_alone(
    calibration: MomentCalibration, shape: tuple[int, int], repeats: int, source: noise.BitSource
) -> dict[str, FloatArray]:
    """Draw the noise with no data under it, to simulate what it does to whatever is computed from a release.

    Parameters
    ----------
    calibration : MomentCalibration
        The noise.
    shape : tuple of int
        Numbers of features d and of outcomes l.
    repeats : int
        How many draws.
    source : BitSource
        Where the bits come from; not the one that the release was drawn from.

    Returns
    -------
    dict of str to ndarray
        A draw along the first axis of each block: "xx" of shape (repeats, d, d), "xy" of shape (repeats, d, l), ...
    """
    features, outcomes = shape
    shapes = {"xx": (features * (features + 1) // 2,), "xy": (features, outcomes), "x": (features,), "y": (outcomes,)}
    exact = {name: FixedPoint.zeros(shapes.get(name, ()), 0) for name in calibration.blocks}
    if calibration.mechanism == "Gaussian":
        values, _ = _gaussian_blocks(_repeated(exact, repeats), calibration, source)
    else:
        draws = [_laplace_blocks(exact, calibration, source)[0] for _ in range(repeats)]
        values = {name: np.array([one[name] for one in draws]) for name in exact}
    return {name: _mirrored(value) if name == "xx" else value for name, value in values.items()}


def _repeated(exact: dict[str, FixedPoint], repeats: int) -> dict[str, FixedPoint]:
    """Put every block on top of itself so many times, along a new first axis."""
    return {
        name: FixedPoint(
            np.broadcast_to(block.high, (repeats, *block.shape)),
            np.broadcast_to(block.low, (repeats, *block.shape)),
            block.exponent,
        )
        for name, block in exact.items()
    }


def noisy_moments(release: Release, calibration: MomentCalibration, n_rows: int | None) -> NoisyMoments:
    """Return what solvers need of a release; the number of rows where it is public, unless it was released."""
    values = release.values
    n = float(values["n"]) if "n" in values else None if n_rows is None else float(n_rows)
    xx = values["xx"] if calibration.sample is None else calibration.xx_factor * values["xx"]
    return NoisyMoments(xx, values["xy"], calibration.noise, values.get("x"), values.get("y"), n)


def exact_moments(gram: Gram) -> NoisyMoments:
    """Return the exact sums as moments without noise, for epsilon = inf."""
    assert gram.xy is not None
    x, y = (total if total is None else total.to_float64() for total in (gram.exact_x_sum, gram.exact_y_sum))
    return NoisyMoments(gram.xx, gram.xy, MomentNoise(0.0, 0.0, 0.0), x, y, float(gram.n_rows))


def _exact_blocks(gram: Gram | SampledGram, blocks: tuple[str, ...]) -> dict[str, FixedPoint]:
    """Return the exact entries of every block, X'X as its upper triangle (diagonal first)."""
    features = gram.exact_xx.shape[0]
    rows, columns = _triangle(features)
    exact: dict[str, FixedPoint | None] = {"xx": gram.exact_xx[rows, columns], "xy": gram.exact_xy}
    if isinstance(gram, Gram):
        exact |= {"x": gram.exact_x_sum, "y": gram.exact_y_sum, "n": FixedPoint.from_integers(gram.n_rows, 0)}
    return {name: block for name, block in exact.items() if name in blocks and block is not None}


@lru_cache(maxsize=4)
def _triangle(features: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of the diagonal, then of the entries above it."""
    upper = np.triu_indices(features, 1)
    diagonal = np.arange(features)
    rows, columns = np.concatenate([diagonal, upper[0]]), np.concatenate([diagonal, upper[1]])
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns


def _mirrored(entries: FloatArray) -> FloatArray:
    features = _side(entries.shape[-1])
    matrix = np.empty((*entries.shape[:-1], features, features))
    rows, columns = _triangle(features)
    matrix[..., rows, columns] = entries
    matrix[..., columns, rows] = entries
    return matrix


def _shapes(exact: Mapping[str, FixedPoint]) -> dict[str, tuple[int, ...]]:
    return {name: sums.shape for name, sums in exact.items()}


def _side(n_entries: int) -> int:
    """Return the side of the symmetric matrix that has so many distinct entries."""
    return (math.isqrt(8 * n_entries + 1) - 1) // 2


def _gaussian_blocks(
    exact: dict[str, FixedPoint], calibration: MomentCalibration, source: noise.BitSource
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    values, grids = {}, {}
    for name, center in exact.items():
        scale = getattr(calibration.scales, name)
        grids[name] = noise.default_grid(scale)
        if name != "xx":
            values[name] = noise.gaussian(scale, center.shape, source, center=center, grid=grids[name])
            continue
        features = _side(center.shape[-1])
        parts = ((scale, center[..., :features]), (calibration.off_diagonal, center[..., features:]))
        values[name] = np.concatenate(
            [noise.gaussian(sigma, part.shape, source, center=part, grid=grids[name]) for sigma, part in parts], axis=-1
        )
    return values, grids


def _laplace_blocks(
    exact: dict[str, FixedPoint], calibration: MomentCalibration, source: noise.BitSource
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Draw one vector for all blocks, each stretched by its power of two and shrunk again afterwards."""
    stretch = {name: round(math.log2(calibration.scales.xx / getattr(calibration.scales, name))) for name in exact}
    unit = min(center.exponent + stretch[name] for name, center in exact.items())
    integers: list[int] = []
    for name, center in exact.items():
        shift = center.exponent + stretch[name] - unit
        integers += [center.integer(index) << shift for index in np.ndindex(center.shape)]
    grid = noise.default_grid(calibration.joint_scale)
    joint = noise.l2_laplace(
        calibration.joint_scale,
        len(integers),
        source,
        center=FixedPoint.from_integers(integers, unit),
        grid=grid,
    )
    values, grids, start = {}, {}, 0
    for name, center in exact.items():
        size = math.prod(center.shape)
        values[name] = np.ldexp(joint[start : start + size], -stretch[name]).reshape(center.shape)
        grids[name] = math.ldexp(grid, -stretch[name])
        start += size
    return values, grids
