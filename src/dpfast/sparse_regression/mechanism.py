"""Least squares on a public support by objective perturbation, over the box ``|theta_j| <= 1``.

The release is the minimiser of ``theta'A theta/2 - g'theta + (m/2) ||theta||**2 + b'theta``, A and g the exact moments
of bounded records, b noise, with a little more noise that hides how far a solver's minimiser is from the exact one.
That is within tau of it for every table and every b:

- the solver's own tolerance;
- with u = 2^-53, rounding A and then A + m I changes them by at most u n B^2 and u (n B^2 + m) in the L2 norm, and the
  gradient by sqrt(s) times that;
- b - g is drawn at once, about the exact g, and rounded to a grid eta and to double. Where an entry of it exceeds
  K = (n B^2 + m) sqrt(s), which bounds the entries of (A + m I) theta, its coordinate ends at a bound of the box,
  whatever else; up to K rounding moves it by at most eta/2 + u K.

A change of the gradient by e moves the minimiser by at most e/m.

References
----------
Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization. COLT. Algorithm 1, and
Algorithm 6, step 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Adjacency, Calibration, ObjectiveNoise, Privacy, meets_its_claim, objective_noise
from dpfast.privacy.objective import Geometry
from dpfast.releases.printed import printed
from dpfast.releases.selection import RecordBounds
from dpfast.solvers import Box
from dpfast.solvers.quadratic import minimise_quadratic, smallest_quadratic_tolerance

_UNIT = 2.0**-53
# The finest grid that noise can be drawn on, in units of its scale.
_FINEST_STEPS = 2.0**24
# Least tolerance that is asked of the solver.
_LEAST_TOLERANCE = 2.0**-40
# Root mean square of a coefficient that convexity is chosen for.
_USUAL_COEFFICIENT = 0.5


@dataclass(frozen=True)
class SupportRegression:
    """Coefficients of one support, calibrated.

    Parameters
    ----------
    bounds : RecordBounds
        What is public of a record.
    most_rows : int
        Number of rows, at most.
    calibrated : ObjectiveNoise
        The noise, and the convexity that goes with it.
    calibration : {"sound", "paper"}, default "sound"
        Whether they are the proved or the printed ones.
    """

    bounds: RecordBounds
    most_rows: int
    calibrated: ObjectiveNoise
    calibration: Calibration = "sound"

    @classmethod
    def calibrate(cls, privacy: Privacy, bounds: RecordBounds, most_rows: int) -> Self:
        """Calibrate from public numbers.

        Noise and convexity share epsilon so that the noise and the pull towards 0 add least to the coefficients' error
        together.
        """
        gradient, geometry = _gradient_change(privacy.adjacency, bounds)
        calibrated = objective_noise(
            privacy,
            gradient=gradient,
            curvature=bounds.curvature,
            strong_convexity=0.0,
            geometry=geometry,
            dim=bounds.size,
            cost=lambda deviation, convexity: math.hypot(deviation, _USUAL_COEFFICIENT * convexity),
        )
        return cls(bounds, most_rows, calibrated)

    @classmethod
    def printed(cls, privacy: Privacy, bounds: RecordBounds, most_rows: int) -> Self:
        """Take the printed Delta and noise."""
        calibrated = printed("convex_erm", "printed_objective_perturbation")(
            privacy, gradient=bounds.gradient, curvature=bounds.curvature
        )
        return cls(bounds, most_rows, calibrated, "paper")

    @property
    def guaranteed(self) -> bool:
        """Whether the promise is proved: printed noise is for one record more or less, not one in another's place."""
        if self.calibration == "sound":
            return True
        gradient, geometry = _gradient_change(self.privacy.adjacency, self.bounds)
        return meets_its_claim(self.calibrated, gradient=gradient, geometry=geometry)

    @property
    def privacy(self) -> Privacy:
        """What is promised."""
        return self.calibrated.privacy

    @property
    def tolerance(self) -> float:
        """Tau: bound on the distance of the computed coefficients from the exact minimiser."""
        size, rows = math.sqrt(self.bounds.size), self.most_rows * self.bounds.curvature
        reached = (rows + self.calibrated.strong_convexity) * size
        moved = size * (0.5 * self._grid + _UNIT * (2.0 * reached + rows))
        return (moved / self.calibrated.strong_convexity + self._solver_tolerance) * (1.0 + 2.0**-40)

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""
        return {"objective": self.calibrated.scale, "coef": self.calibrated.finishing_scale(self.tolerance)}

    def error(self, n: int, spread: float) -> float:
        """Root mean squared error of predictions that noise and convexity add, for n records of even spread.

        The noise moves coefficients by (A + m I)^-1 b, the convexity by m (A + m I)^-1 theta; A = n v I with v the mean
        square of an entry of x.
        """
        size, m = self.bounds.size, self.calibrated.strong_convexity
        v = spread * self.bounds.curvature / size
        moved = math.hypot(self.calibrated.coordinate_scale(size), m * _USUAL_COEFFICIENT) / (n * v + m)
        finish = self.scales["coef"] * math.sqrt(size + 1.0)
        return math.sqrt(size * v) * math.hypot(moved, finish)

    def minimise(self, xx: FloatArray, linear: FloatArray) -> FloatArray:
        """Minimise ``theta'(A + m I) theta/2 + linear'theta`` over the box; not public.

        Parameters
        ----------
        xx : ndarray of shape (s, s)
            A, rounded to double.
        linear : ndarray of shape (s,)
            b - g, on its grid.

        Returns
        -------
        ndarray of shape (s,)
            Within `tolerance` of the exact minimiser.
        """
        least, largest = self._eigenvalues
        matrix = xx + self.calibrated.strong_convexity * np.eye(len(xx))
        return minimise_quadratic(
            matrix,
            linear,
            constraint=Box(1.0),
            strong_convexity=least,
            smoothness=largest,
            tolerance=self._solver_tolerance,
        ).x

    def release(self, xx: FloatArray, xy: FixedPoint, source: noise.BitSource, name: str) -> Release:
        """Draw the noise on exact moments of the support: A rounded to double, and g."""
        source = source.bound(name, self)
        size, mechanism = self.bounds.size, self.calibrated.mechanism
        negative = FixedPoint.from_integers([-xy.integer(i) for i in range(size)], xy.exponent)
        if mechanism == "Gaussian":
            linear = noise.gaussian(self.calibrated.scale, size, source, center=negative, grid=self._grid)
        else:
            linear = noise.l2_laplace(self.calibrated.scale, size, source, center=negative, grid=self._grid)
        scale = self.scales["coef"]
        finished = noise.l2_laplace(scale, size, source, center=self.minimise(xx, linear))
        hidden = f"epsilon {self.calibrated.finishing_epsilon:.3g} of it hides a solver's error of {self.tolerance:.3g}"
        return Release(
            f"{name} ({hidden})",
            f"{mechanism} objective",
            self.privacy,
            # Back into the box, which is public.
            {"coef": np.clip(finished, -1.0, 1.0)},
            self.scales,
            grid={"coef": noise.default_grid(scale)},
            calibration=self.calibration,
            guaranteed=self.guaranteed,
            reproducible=source.reproducible,
        )

    @property
    def _grid(self) -> float:
        """The finest grid for the noise in the objective."""
        return math.ldexp(1.0, math.frexp(self.calibrated.scale / _FINEST_STEPS)[1])

    @property
    def _eigenvalues(self) -> tuple[float, float]:
        """Bounds on the eigenvalues of A + m I as a matrix of floats, whose rounding they allow for."""
        m, rows = self.calibrated.strong_convexity, self.most_rows * self.bounds.curvature
        rounding = 2.0 * _UNIT * (rows + self.bounds.size * m)
        return m - rounding, rows + m + rounding

    @property
    def _solver_tolerance(self) -> float:
        least, largest = self._eigenvalues
        attainable = smallest_quadratic_tolerance(
            self.bounds.size, constraint=Box(1.0), strong_convexity=least, smoothness=largest
        )
        return max(_LEAST_TOLERANCE, attainable)


def _gradient_change(adjacency: Adjacency, bounds: RecordBounds) -> tuple[float, Geometry]:
    """Bound how far one person can move the gradient of the loss on the box, and say what the move keeps to.

    A record's gradient x (x'theta - y) keeps to the line of x. Of two records in turn the difference keeps to a plane:
    (xx' - zz') theta - (x y - z w). A difference of two positive semidefinite matrices has at most the larger of their
    L2 norms, so the norm is at most B^2 ||theta|| + 2 B max|y|.
    """
    if adjacency == "add_remove":
        return bounds.gradient, "line"
    return bounds.length * (bounds.reach + 2.0 * bounds.outcome) * (1.0 + 2.0**-50), "plane"
