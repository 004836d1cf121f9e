"""Which logistic loss and how much strong convexity fit a budget, from public numbers.

A slope of 1 is hidden, and where nothing is known yet, at margins of 0, rows have a slope of 1/2 on the logistic loss:
half of what noise pays for. With a shift of the margins it is nearly all, but then the curvature, which tells
directions apart, is small until parameters are long. So where noise is large the shift is `_LARGEST`, and the strong
convexity the least that costs nothing of epsilon (releases/objective_bounds.py): parameters then are near the sum of
y x, and of more than that little could be seen. Where noise is small the shift ends, and the convexity falls until what
it costs would be felt.

Between the two stands `v`, what rows tell of one parameter over the noise in it: n/(25 d s), s the deviation of noise
for a change of 1, about 4/epsilon. The constants were chosen on breast cancer, pairs of digits, patches of pictures and
synthetic tables of 200 to 100,000 rows and 5 to 200 features, at epsilon 1/2 to 4. Where features are correlated and
the model is wrong, as on the patches, less convexity and less of a shift do better at small v, by .02 to .08; on breast
cancer and digits, as much of either loses .02 to .2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpfast.privacy import Privacy, gaussian_scale

_LARGEST = 6.0
_LEAST_PART = 0.125
# Under add/remove the number of rows is private: between the ends.
_UNKNOWN = 4.0, 1.0


class Fitting(NamedTuple):
    """What fits a budget."""

    #: Of the logistic loss.
    shift: float
    #: Strong convexity over the least that costs nothing of epsilon.
    convexity: float


def fitting(privacy: Privacy, n_parameters: int, n_rows: int | None) -> Fitting:
    """Choose for a minimiser with this budget of its own; `n_rows` is None where it is private."""
    if n_rows is None:
        return Fitting(*_UNKNOWN)
    epsilon, delta = privacy.epsilon, privacy.delta
    deviation = gaussian_scale(epsilon, delta) if delta > 0.0 else math.sqrt(n_parameters + 1.0) / epsilon
    v = max(n_rows / (25.0 * n_parameters * deviation), 1.0)
    return Fitting(max(_LARGEST - math.log(v), 0.0), max(1.0 / v, _LEAST_PART))
