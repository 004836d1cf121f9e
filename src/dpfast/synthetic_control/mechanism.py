"""The cross-sectional mechanism of synthetic control: donors enter as rows, one release of moments predicts any target.

Ridge weights on donors, f = X (X'X + (lambda/2) I)^-1 y, predict X_post' f = [(X'X + (lambda/2) I)^-1 X'X_post]' y: a
regression of a donor's periods after the intervention on those before it, applied to the target. So the moments of
bounded donor rows are all that has to be released. Rows may be summed about a public centre, which makes them shorter;
the moments about the origin, and so the paper's estimate, follow from the sums. `DonorRows` is what is public of this:
how a donor becomes a row, and how blocks of moments, or of noise in them, are brought back to the origin.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.io import target_rows
from dpfast.kernels.threads import single_threaded_blas
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.releases.moments import JointMoments, unpacked
from dpfast.solvers.damped import DenoisedMoments, components_beyond, damped_solve, hidden_reach, noise_floor
from dpfast.statistics import Gram, gram, rounded_bound
from dpfast.statistics.rows import RowMap

# Draws that an interval's quantiles are taken from: they are then off by 0.01 in coverage, up or down.
_SIMULATIONS = 500
# Entries of X'X that are simulated at a time.
_BATCH_ENTRIES = 1 << 19


@dataclass(frozen=True)
class DonorRows:
    """How a donor becomes a row: public numbers alone.

    Parameters
    ----------
    offset, half_width : float
        Outcomes v are mapped to (v - offset)/half_width, which lies in [-1, 1] once clipped.
    n_pre, n_post : int
        Periods before and after the intervention.
    bound_pre, bound_post : float
        L2 norms of a row's two parts, about the centre, at most; longer parts are scaled onto them.
    nonnegative : bool, default False
        Mapped outcomes are clipped to [0, 1].
    center : ndarray of shape (n_pre + n_post,), optional
        A public path in mapped units that is subtracted from every donor.
    basis : ndarray of shape (n_pre, n_features), optional
        Orthonormal columns; the features are the donor's coordinates in them.
    observation_rate : float, optional
        Public share of entries that are observed; the others are filled with the centre.
    """

    offset: float
    half_width: float
    n_pre: int
    n_post: int
    bound_pre: float
    bound_post: float
    nonnegative: bool = False
    center: FloatArray | None = None
    basis: FloatArray | None = None
    observation_rate: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of features and of outcomes."""
        return (self.n_pre if self.basis is None else self.basis.shape[1]), self.n_post

    def scaled(self, values: FloatArray) -> FloatArray:
        """Map outcomes to the range that bounds are meant in; nothing is clipped."""
        # Overflow ends beyond the range, as it should, and a warning would tell of a value.
        with np.errstate(over="ignore", under="ignore"):
            return (values - self.offset) / self.half_width

    def features(self, pre: FloatArray) -> FloatArray:
        """Return the features of rows before the intervention, each computed from its row alone."""
        if self.basis is None:
            return pre
        features = RowMap(basis=self.basis)(pre.reshape(-1, self.n_pre))
        return features.reshape(*pre.shape[:-1], self.basis.shape[1])

    @property
    def row_map(self) -> RowMap:
        """How a donor's outcomes become a row about the centre, all periods of it."""
        return RowMap(
            low=np.full(1, 0.0 if self.nonnegative else -1.0),
            high=np.ones(1),
            center=self.center,
            offset=self.offset,
            unit=self.half_width,
            fills=True,
        )

    def sums(self, donors: FloatArray, n_threads: int | None) -> Gram:
        """Sum the donors' rows exactly.

        Parameters
        ----------
        donors : ndarray of shape (n_donors, n_pre + n_post)
            In input units; NaN where missing.
        n_threads : int or None
            For `dpfast.statistics.gram`.

        Returns
        -------
        Gram
            The data owner's.
        """
        rows = self.row_map(donors)
        return gram(
            self.features(rows[:, : self.n_pre]),
            rows[:, self.n_pre :],
            bound_x=self.bound_pre,
            bound_y=self.bound_post,
            sums=self.center is not None,
            n_threads=n_threads,
        )

    def about_origin(self, blocks: Mapping[str, Any], n: Any) -> tuple[FloatArray, FloatArray]:
        """Return X'X and X'X_post about the origin from released blocks; linear, so that noise may be put in too.

        Parameters
        ----------
        blocks : mapping of str to ndarray
            "xx", "xy" and, about a centre, "x" and "y", with any leading axes in common.
        n : float or ndarray
            The number of donors (0 for noise where it is public).

        Returns
        -------
        xx : ndarray of shape (..., d, d)
        xy : ndarray of shape (..., d, n_post)
        """
        rate = 1.0 if self.observation_rate is None else self.observation_rate
        xx, xy = blocks["xx"] / rate**2, blocks["xy"] / rate**2
        if rate < 1.0:
            # An entry meets itself wherever it is observed, and another one where both are.
            diagonal = np.arange(xx.shape[-1])
            xx[..., diagonal, diagonal] *= rate
        if self.center is None:
            return xx, xy
        x_sum, y_sum = blocks["x"][..., :, None] / rate, blocks["y"][..., None, :] / rate
        pre, post = self.features(self.center[: self.n_pre])[:, None], self.center[None, self.n_pre :]
        count = np.asarray(n)[..., None, None]
        xx = xx + pre * np.swapaxes(x_sum, -1, -2) + x_sum * pre.T + count * (pre * pre.T)
        return xx, xy + x_sum * post + pre * y_sum + count * (pre * post)

    def costs(self) -> dict[str, float]:
        """Weights of the blocks' noise variances in the squared relative error of a prediction.

        In units of the squared eigenvalue of X'X along the target, for a target like its donors. Noise in X'X counts
        once along the target, and by its second-order effect in the directions across (d/16, at the floor of
        `dpfast.solvers.noise_floor`); that in X'X_post by the target's length. Noise in sums is multiplied by the
        centre.
        """
        features = self.shape[0]
        costs = {"xx": 1.0 + features / 16.0, "xy": float(self.n_pre)}
        if self.center is not None:
            pre, post = (float(np.sum(part**2)) for part in np.split(self.center, [self.n_pre]))
            # A target on the centre's own path has no other cost: keep the weights of blocks above zero.
            squared = max(pre, 1e-6 * self.n_pre)
            costs |= {"x": 2.0 * squared, "y": self.n_pre * squared}
            costs["n"] = self.n_pre * squared * max(post / self.n_post, 1e-6) / 4.0
        return costs


@dataclass(frozen=True)
class CrossSection:
    """Donor rows with the calibration of their release.

    Parameters
    ----------
    rows : DonorRows
        How donors become rows.
    calibration : JointMoments
        The noise.
    cost : float
        Of the noise: `DonorRows.costs` times the variances.
    """

    rows: DonorRows
    calibration: JointMoments
    cost: float

    @classmethod
    def cheapest(cls, candidates: list[DonorRows], privacy: Privacy) -> CrossSection:
        """Calibrate every way to sum donors, and return the one whose noise costs least.

        Parameters
        ----------
        candidates : list of DonorRows
            Ways to sum the same donors.
        privacy : Privacy
            The guarantee wanted.

        Returns
        -------
        CrossSection
        """
        return min((cls.of(rows, privacy) for rows in candidates), key=lambda one: one.cost)

    @classmethod
    def of(cls, rows: DonorRows, privacy: Privacy) -> CrossSection:
        """Calibrate one way to sum donors."""
        features, outcomes = rows.shape
        left_out = {"n"} if privacy.adjacency == "replace_one" else set()
        weights = {name: cost for name, cost in rows.costs().items() if name not in left_out}
        calibration = JointMoments.calibrate(
            privacy,
            rounded_bound(rows.bound_pre, features),
            rounded_bound(rows.bound_post, outcomes),
            rows.shape,
            weights,
            nonnegative=rows.nonnegative and rows.center is None and rows.basis is None,
        )
        return cls(rows, calibration, calibration.cost(weights))

    @property
    def off_diagonal(self) -> float:
        """Standard deviation of the noise in X'X off the diagonal, as `moments` returns it."""
        return self.calibration.off_diagonal / (self.rows.observation_rate or 1.0) ** 2

    @property
    def floor(self) -> float:
        """Least that an eigenvalue of X'X counts for."""
        return noise_floor(self.rows.shape[0], self.off_diagonal)

    def moments(self, values: Mapping[str, FloatArray], n_donors: int | None) -> tuple[FloatArray, FloatArray]:
        """Return X'X and X'X_post about the origin from a release; `n_donors` is needed about a centre, if public."""
        return self.rows.about_origin(values, values.get("n", n_donors or 0))

    def expected_error(self, n: int, ridge: float, spread: float) -> float:
        """Root mean squared error of a prediction relative to the signal, from public numbers.

        Parameters
        ----------
        n : int
            Number of donors.
        ridge : float
            The paper's lambda.
        spread : float
            Mean square of the mapped outcomes, about the origin. The target is taken to be like its donors, which vary
            along one path.

        Returns
        -------
        float
            Of shrinking towards the centre of the range and of noise, first order and second.
        """
        signal = n * min(spread * self.rows.n_pre, self._longest_squared())
        damped = max(signal + ridge / 2.0, self.floor)
        return math.hypot(1.0 - signal / damped, math.sqrt(self.cost) / damped)

    def _longest_squared(self) -> float:
        """Square of the longest a row can be before the intervention, about the origin."""
        center = 0.0 if self.rows.center is None else float(np.linalg.norm(self.rows.center[: self.rows.n_pre]))
        return (self.rows.bound_pre + center) ** 2


def predictions(
    xx: FloatArray, xy: FloatArray, targets: FloatArray, ridge: float, floor: float, n_components: int | None
) -> FloatArray:
    """Predict targets from moments, one set of them or many.

    Parameters
    ----------
    xx : ndarray of shape (..., d, d)
        X'X.
    xy : ndarray of shape (..., d, n_post)
        X'X_post.
    targets : ndarray of shape (n_targets, d)
        Features of the targets.
    ridge : float
        The paper's lambda.
    floor : float
        See `dpfast.solvers.damped_solve`.
    n_components : int or None
        Eigenvalues of X'X that are kept.

    Returns
    -------
    ndarray of shape (..., n_targets, n_post)
    """
    weights = damped_solve(xx, targets.T, ridge / 2.0, floor, n_components)
    predicted: FloatArray = np.swapaxes(weights, -1, -2) @ xy
    return predicted


def prediction_interval(
    section: CrossSection,
    values: Mapping[str, FloatArray],
    n_donors: int | None,
    targets: FloatArray,
    *,
    ridge: float,
    n_components: int | None,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """Limits for the prediction without privacy noise at the same ridge, from released values and the known noise.

    The prediction is not linear in the noise, so its errors are simulated: fresh noise with the known law is added to
    moments from which what does not stand out of the released noise has been removed
    (`dpfast.solvers.DenoisedMoments`), and the errors' quantiles are taken off the prediction (the parametric
    bootstrap's basic interval [1]_). Where the target visibly has a part in directions that do not stand out, the most
    that they may add is put on either side; at a ridge with lambda/2 beyond the floor there is no such part.

    Parameters
    ----------
    section : CrossSection
        The rows and their calibration.
    values : mapping of str to ndarray
        The release's.
    n_donors : int or None
        Number of donors, None where it is private.
    targets : ndarray of shape (n_targets, d)
        Features of the targets.
    ridge, n_components
        As for `predictions`.
    level : float
        Nominal coverage of each period's interval.

    Returns
    -------
    low, high : ndarray of shape (n_targets, n_post)
        In mapped units.

    References
    ----------
    .. [1] Davison, A. C., Hinkley, D. V. (1997). Bootstrap Methods and their Application. Section 5.2.
    """
    xx, xy = section.moments(values, n_donors)
    denoised = DenoisedMoments.of(xx, section.off_diagonal)
    source_xx, source_xy = denoised.xx, denoised.inside(xy)
    paths = denoised.turned_back(targets.T).T
    # A stream of its own: with the fit's seed the noise simulated would be the noise that was added.
    digest = hashlib.sha256(values["xx"].tobytes() + values["xy"].tobytes()).digest()
    source = noise.SeededSource(int.from_bytes(digest, "little"))
    centre = predictions(source_xx, source_xy, paths, ridge, 0.0, n_components)
    batch = max(1, min(_SIMULATIONS, _BATCH_ENTRIES // xx.size))
    errors = np.empty((_SIMULATIONS, *centre.shape))
    # The matrices are small: further BLAS threads only wait for each other.
    with single_threaded_blas():
        for start in range(0, _SIMULATIONS, batch):
            stop = min(start + batch, _SIMULATIONS)
            drawn = section.calibration.noise_alone(stop - start, source)
            noise_xx, noise_xy = section.rows.about_origin(drawn, drawn.get("n", 0.0))
            noisy = source_xx + noise_xx, source_xy + noise_xy
            errors[start:stop] = predictions(*noisy, paths, ridge, section.floor, n_components) - centre
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(errors, [tail, 1.0 - tail], axis=0)
    predicted = predictions(xx, xy, targets, ridge, section.floor, n_components)
    reach = _hidden_reach(section, xx, denoised, targets, ridge, n_components)[:, None]
    return predicted - high - reach, predicted - low + reach


def _hidden_reach(
    section: CrossSection,
    xx: FloatArray,
    denoised: DenoisedMoments,
    targets: FloatArray,
    ridge: float,
    n_components: int | None,
) -> FloatArray:
    """Bound what directions that are hidden in the noise add to the prediction of each target without noise.

    What hides is taken to be no larger in a period after the intervention than, on average, in one before: no more
    than the 95% limit of what is left of the trace of X'X.
    """
    if n_components is not None and n_components <= len(denoised.values):
        return np.zeros(len(targets))
    features = len(xx)
    trace = max(float(np.trace(xx)) - float(np.sum(denoised.values)), 0.0)
    # The diagonal has twice the variance of the entries off it.
    trace += 1.645 * math.sqrt(2.0 * features) * section.off_diagonal
    turning, rows = 1.0, section.rows
    if rows.center is not None:
        # Bringing moments back to the origin adds the noise of sums, times the centre's length, along the centre.
        length = float(np.linalg.norm(rows.features(rows.center[: rows.n_pre])))
        scale = section.calibration.scales["x"] / (rows.observation_rate or 1.0)
        turning += (scale * length / section.off_diagonal) ** 2
    return denoised.hidden(targets.T, turning) * hidden_reach(trace / features, ridge / 2.0, section.floor)


@dataclass(frozen=True, repr=False)
class CrossSectionBatch:
    """Repeated releases of one panel's moments, from which predictions at any ridge are computed when asked for.

    Parameters
    ----------
    section : CrossSection
        The rows and the calibration of each release.
    release : Release
        All of them; see `JointMoments.release_repeatedly`.
    n_donors : int or None
        Number of donors, None where it is private or not needed.
    ridge : float
        The paper's lambda, where no other is asked for.
    """

    section: CrossSection
    release: Release
    n_donors: int | None
    ridge: float

    def predict(self, target_pre: FloatArray, ridge: float | None = None) -> FloatArray:
        """Predict a target, or several, from every release.

        Parameters
        ----------
        target_pre : array of shape (n_pre,) or (n_targets, n_pre)
            Public outcomes before the intervention, in the units of the donors.
        ridge : float, optional
            The paper's lambda; by default the estimator's. Another one costs no further privacy.

        Returns
        -------
        ndarray of shape (repeats, n_post) or (repeats, n_targets, n_post)
        """
        rows = self.section.rows
        penalty = self.ridge if ridge is None else check.nonnegative("ridge", ridge)
        pre = target_rows(target_pre, {"n_pre": rows.n_pre}, "target_pre")
        features = np.atleast_2d(rows.features(rows.scaled(pre)))
        xx, xy = self.section.moments(unpacked(self.release.values), self.n_donors)
        with single_threaded_blas():
            predicted = predictions(xx, xy, features, penalty, self.section.floor, None)
        unscaled: FloatArray = rows.offset + rows.half_width * predicted
        return unscaled[:, 0] if pre.ndim == 1 else unscaled

    def __repr__(self) -> str:
        repeats = self.release.values["xy"].shape[0]
        return f"<{repeats} releases of a panel's moments, together at {self.release.privacy}>"


def kept_components(xx: FloatArray, n_components: object, threshold: float) -> int | None:
    """Return the number of eigenvalues to keep: as given, or for "noise" those beyond the threshold."""
    if n_components is None or isinstance(n_components, int):
        return n_components
    return components_beyond(xx, threshold)


def with_center(rows: DonorRows, center: FloatArray) -> DonorRows:
    """Return the rows summed about another centre, no longer than the box allows.

    Parameters
    ----------
    rows : DonorRows
        Their bounds hold about the new centre too.
    center : ndarray of shape (n_pre + n_post,)
        In mapped units.

    Returns
    -------
    DonorRows
    """
    low = 0.0 if rows.nonnegative else -1.0
    farthest = np.maximum(np.abs(1.0 - center), np.abs(low - center))
    pre, post = (math.nextafter(float(np.linalg.norm(part)), math.inf) for part in np.split(farthest, [rows.n_pre]))
    return replace(rows, center=center, bound_pre=min(rows.bound_pre, pre), bound_post=min(rows.bound_post, post))


def orthonormal_basis(basis: object, n_pre: int) -> FloatArray | None:
    """Return orthonormal columns that span public paths.

    Parameters
    ----------
    basis : int, array of shape (n_pre, n_features) or None
        So many polynomials of lowest degree, or the paths.
    n_pre : int
        Number of periods.

    Returns
    -------
    ndarray of shape (n_pre, n_features) or None

    Raises
    ------
    ValueError
        If there are no paths, or they are not finite, or not linearly independent.
    """
    if basis is None:
        return None
    if isinstance(basis, int | np.integer):
        number = check.positive_integer("basis", basis)
        if number > n_pre:
            raise ValueError(f"basis must have at most as many paths as there are periods, {n_pre}, got {number}")
        paths = np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, n_pre), number - 1)
    else:
        paths = np.asarray(basis)
        if paths.dtype.kind not in "iuf" or paths.ndim != 2 or len(paths) != n_pre or not np.all(np.isfinite(paths)):
            raise ValueError(f"basis must be a number of paths or a finite array with {n_pre} rows, one a period")
        if not 1 <= paths.shape[1] <= n_pre or np.linalg.matrix_rank(paths) < paths.shape[1]:
            raise ValueError("basis must have linearly independent columns, at least one")
    columns: FloatArray = np.linalg.qr(paths.astype(np.float64))[0]
    return columns
