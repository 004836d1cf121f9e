"""The base of all estimators: what a family has to give, and the order of a fit's steps."""

import pytest

from dpfast.estimator.base import PrivateEstimator

PARTS = ["_check_parameters", "_fit_without_noise", "_solve", "_sum", "summary"]


@pytest.mark.parametrize("missing", PARTS)
def test_an_estimator_that_lacks_a_part_of_its_fit_cannot_be_made(missing):
    given = {part: lambda self, *data: None for part in PARTS if part != missing}
    with pytest.raises(TypeError, match=missing):
        type("Lacking", (PrivateEstimator,), given)(1.0)
    type("Whole", (PrivateEstimator,), given | {missing: lambda self, *data: None})(1.0)
