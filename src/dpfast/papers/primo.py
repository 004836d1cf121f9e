"""Private regression in multiple outcomes (PRIMO, Neel): printed noise scales, and the delta that they really give.

The paper splits the budget in halves, calibrates each with the classic constant, and takes half of the association's
replace-one sensitivity and 1/sqrt(2) of the covariance's, so each of the two sub-releases is less private than
claimed. The classic constant and basic composition waste more than that at small epsilon: the whole algorithm keeps
its promise there, and breaks it between epsilon = 6 and 8 (delta = 1e-6). Its variant on a sample of the rows has too
little noise by about the ratio of all rows to those in the sample.

Scales are on sums, where the paper prints 1/n for means. ``xx`` is the standard deviation on **every** upper-triangular
entry of X'X, diagonal and off-diagonal alike. (In the Frobenius convention of `MomentScales` off-diagonal noise is
smaller by sqrt(2); the guarantee is the same, see `primo_printed_delta`.) ``xy`` is the standard deviation on every
entry of X'Y.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpfast import _arguments as check
from dpfast.privacy import MomentScales, classic_gaussian_scale, gaussian_delta, moment_mu
from dpfast.privacy.subsampling import sample_sizes


def primo_printed_scales(epsilon: float, delta: float, bound_x: float, bound_y: float) -> MomentScales:
    """Noise of Algorithm 1: ``xx = c bound_x**2``, ``xy = c bound_x bound_y``, ``c = 2 sqrt(2 ln(2.5/delta))/epsilon``.

    >>> from dpfast.papers.primo import primo_printed_scales
    >>> scales = primo_printed_scales(1.0, 1e-6, bound_x=1.0, bound_y=2.0)
    >>> round(scales.xx, 3), round(scales.xy, 3)
    (10.856, 21.712)
    """
    constant = classic_gaussian_scale(check.positive_or_inf("epsilon", epsilon) / 2.0, check.delta_value(delta) / 2.0)
    bound_x, bound_y = check.positive("bound_x", bound_x), check.positive("bound_y", bound_y)
    if constant == 0.0:
        return MomentScales(xx=0.0, xy=0.0)
    xx, xy = constant * (bound_x * bound_x), constant * (bound_x * bound_y)
    # 0 would mean no noise, and inf a block that is not released.
    if not (0.0 < xx < math.inf and 0.0 < xy < math.inf):
        raise ValueError("epsilon, bound_x and bound_y ask for noise outside the range of floats")
    return MomentScales(xx=xx, xy=xy)


def primo_printed_sampled_scales(
    epsilon: float, delta: float, n_sampled: int, n_total: int, bound_x: float, bound_y: float
) -> MomentScales:
    """Noise of Algorithm 4 (SubSampReuseCov): ``xx`` on the sum over a secret sample of s of n rows.

    Printed are ``epsilon_1 = (n/s) epsilon/2`` and ``sigma_1 = (1/n) 2 sqrt(2 ln(2.5/delta)) bound_x**2/epsilon_1`` on
    the mean over the sample, so ``s sigma_1`` on its sum. A mean over s rows moves by 1/s, not by 1/n, and the
    amplification is to first order only: `subsampled_moment_delta` says what can be proved of these scales.
    """
    sampled, total = sample_sizes(n_sampled, n_total)
    all_rows = primo_printed_scales(epsilon, delta, bound_x, bound_y)
    # s/n twice, for 1/n and for epsilon_1; 2 because the printed constant is already that of epsilon/2.
    xx = all_rows.xx * float(2 * Fraction(sampled, total) ** 2)
    if xx == 0.0 < all_rows.xx:
        raise ValueError("epsilon, bound_x and the sample ask for noise outside the range of floats")
    return MomentScales(xx=xx, xy=all_rows.xy)


def primo_printed_delta(epsilon: float, delta: float, adjacency: str = "replace_one") -> float:
    """Return the delta that Algorithm 1 really gives at its claimed epsilon (Theorem 1), rounded up.

    For two or more features (tight), and one feature (an upper bound). Both scales are in units of their bounds, so
    neither bound matters, and the joint worst case of `moment_mu` gives ``mu**2 = 4.5/c**2`` under replace-one, the
    paper's own relation, and ``2/c**2`` under add/remove. Independent noise of one size on the upper triangle has the
    worst case of noise that is isotropic in the Frobenius norm with the same diagonal:

    - It is no worse: ``sum over i <= j of D_ij**2 <= ||D||_F**2``, with equality for a diagonal change D.
    - It is no better: the change xx' - vv' is symmetric, so an orthogonal matrix applied to both rows x and v makes it
      diagonal. Norms, x'v and the Frobenius norm of the change in X'Y stay the same.
    """
    scales = primo_printed_scales(epsilon, delta, bound_x=1.0, bound_y=1.0)
    mu = moment_mu(scales, 1.0, 1.0, adjacency=adjacency, n_features=2)
    return 0.0 if mu == math.inf else gaussian_delta(1.0, epsilon, sensitivity=mu)
