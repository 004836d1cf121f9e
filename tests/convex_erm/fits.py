"""Fits by objective perturbation."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from catalogue import Fit, of_people, of_rows

from dpfast import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
from dpfast.solvers import (
    Box,
    CallableLoss,
    CappedLogisticLoss,
    ElasticNet,
    L1Ball,
    L2Ball,
    Lasso,
    SmoothedHinge,
    SmoothedHuber,
)

PSEUDO_HUBER = CallableLoss(
    lambda z, y: np.sqrt(1.0 + (z - y) ** 2),
    lambda z, y: (z - y) / np.sqrt(1.0 + (z - y) ** 2),
    lambda z, y: (1.0 + (z - y) ** 2) ** -1.5,
    slope_bound=1.0,
    curvature_bound=1.0,
)
BALL = {"constraint": L2Ball(1.0)}
#: Sums that standard errors are computed from.
SUMS = 8


def regression(epsilon=1.0, delta=1e-6, *, any_order=False, **parameters):
    estimator = ObjectivePerturbationRegressor(
        epsilon, delta, **{"bound_x": 1.0, "bound_y": 1.0, "fit_intercept": False} | parameters
    )
    # Of descent it hangs on earlier ones how many there are.
    finds = "private" in parameters.values() or estimator._may_be_lower is not None
    counted = 1 + finds + SUMS * ("inference" in parameters)
    releases = None if parameters.get("method") == "gradient" else counted
    return of_rows(estimator, table="rows", any_order=any_order, releases=releases)


def two_classes(y):
    return np.where(np.asarray(y) > 0.0, "yes", "no").tolist()


def three_classes(y):
    return np.array(["a", "b", "c"])[np.digitize(np.asarray(y), (-0.1, 0.4))]


def classification(outcomes=two_classes, epsilon=1.0, **parameters):
    parameters = {"method": "objective"} | parameters
    classes = ["no", "yes"] if outcomes is two_classes else ["a", "b", "c"]
    estimator = ObjectivePerturbationClassifier(
        epsilon, 1e-6, **{"bound_x": 1.0, "classes": classes, "fit_intercept": False} | parameters
    )
    descends = parameters["method"] == "gradient"
    steps = 30 if descends else len(classes) * (len(classes) > 2) or 1
    counted = parameters.get("calibration") != "paper" and parameters.get("probabilities") != "link"
    # A public few are counted twice, by class and by link; a private number is counted itself, and they once.
    counted += counted and descends
    releases = steps + (parameters.get("bound_x") == "private") + counted + SUMS * ("inference" in parameters)
    return of_rows(estimator, outcomes, table="rows", any_order=False, releases=releases, counts_people=False)


def weighed(fit, outcomes=lambda y: y):
    """The same of rows with weights within 2, and some beyond, as the rows have them."""

    def run(one, x, y):
        weights = 3.0 * np.clip(np.nan_to_num(np.asarray(x, np.float64)[:, 0]), 0.0, 1.0)
        weights = pd.Series(weights, x.index) if hasattr(x, "index") else weights
        return one.fit(x, outcomes(y), sample_weight=weights)

    return Fit(fit.new(max_weight=2.0), run, releases=fit.releases, any_order=False, counts_people=fit.counts_people)


# The squared loss is summed exactly, others are not: their order is in the last bit.
FITS = {
    "squared loss": regression(**BALL, any_order=True),
    "squared loss with an intercept": regression(constraint=L2Ball(2.0), fit_intercept=True, any_order=True),
    "squared loss in an L1 ball, pure": regression(
        delta=0.0, constraint=L1Ball(2.0), penalty=Lasso(1.0), any_order=True
    ),
    "squared loss, as printed": regression(**BALL, calibration="paper", adjacency="add_remove", any_order=True),
    "squared loss within bounds that are found": regression(
        **BALL, bound_x="private", bound_y="private", any_order=True
    ),
    "Huber loss": regression(loss="huber", method="objective"),
    "Huber loss by descent": regression(loss="huber", method="gradient", any_order=True),
    "a quantile by descent, with an intercept": regression(
        10.0, loss="quantile", method="gradient", fit_intercept=True, any_order=True
    ),
    "a quantile by descent, within bounds that are found": regression(
        loss="quantile", method="gradient", bound_x="private", bound_y="private", any_order=True
    ),
    "Huber loss in a ball": regression(loss="huber", **BALL),
    "Huber loss with a penalty": regression(loss="huber", penalty=Lasso(0.1)),
    "narrow Huber loss in a box": regression(
        10.0, loss=SmoothedHuber(1.0, 2.0**-7), constraint=Box(1.0), penalty=ElasticNet(0.1, 0.2)
    ),
    "a quantile": regression(loss="quantile", method="objective"),
    "counts": regression(loss="poisson", method="objective", fit_intercept=True),
    "counts, of which a smaller bound is found": regression(
        loss="poisson", method="objective", bound_y=20.0, fit_intercept=True
    ),
    "counts with standard errors": regression(loss="poisson", method="objective", fit_intercept=True, inference=True),
    "counts by descent": regression(10.0, loss="poisson", method="gradient", fit_intercept=True, any_order=True),
    "counts by descent, with standard errors": regression(
        10.0, loss="poisson", method="gradient", fit_intercept=True, inference=True, any_order=True
    ),
    "a quantile by descent, with standard errors": regression(
        10.0, loss="quantile", method="gradient", inference=True, any_order=True
    ),
    "given loss": regression(loss=PSEUDO_HUBER),
    "two classes": classification(),
    "two classes with an intercept": classification(fit_intercept=True, method="auto", ridge=1.0),
    "two classes within a bound that is found": classification(bound_x="private", fit_intercept=True),
    "two classes with weights": classification(class_weight={"no": 3.0}),
    "two classes, slope capped": classification(loss=CappedLogisticLoss()),
    "two classes, as printed": classification(loss="logistic", calibration="paper", adjacency="add_remove"),
    "two classes by descent": classification(method="gradient", fit_intercept=True),
    "two classes with standard errors": classification(method="gradient", fit_intercept=True, inference=True),
    "two classes with standard errors, pure": replace(
        classification(inference=True), estimator=classification(inference=True).new(delta=0.0)
    ),
    "three classes by descent": classification(three_classes, method="gradient"),
    "three classes by descent within a bound that is found": classification(
        three_classes, method="gradient", bound_x="private"
    ),
    "Huber loss of people by descent, with an intercept": of_people(
        regression(10.0, loss="huber", method="gradient", fit_intercept=True).estimator, releases=None
    ),
    "a quantile of people by descent, within bounds that are found": of_people(
        regression(loss="quantile", method="gradient", bound_x="private", bound_y="private").estimator, releases=None
    ),
    "counts of people by descent": of_people(
        regression(20.0, loss="poisson", method="gradient", fit_intercept=True).estimator, releases=None
    ),
    "two classes of people by descent": of_people(
        classification(method="gradient", fit_intercept=True).estimator, two_classes, releases=None
    ),
    "three classes of people by descent within a bound that is found": of_people(
        classification(three_classes, method="gradient", bound_x="private").estimator, three_classes, releases=None
    ),
    "three classes": classification(three_classes),
    "three classes, hinge in a box": classification(three_classes, loss="hinge", constraint=Box(1.0)),
    "two classes, probabilities by the link": classification(probabilities="link"),
    "squared loss in limits of columns": regression(
        constraint=L2Ball(4.0), bound_x=None, box_x=(0.5, 2.0), fit_intercept=True, any_order=True
    ),
    "counts in limits of columns by descent, with standard errors": regression(
        10.0,
        loss="poisson",
        bound_x=None,
        box_x=(0.5, 2.0),
        fit_intercept=True,
        inference=True,
        method="gradient",
        any_order=True,
    ),
    "two classes in limits of columns": classification(bound_x=None, box_x=(-0.5, 2.0), fit_intercept=True),
    "three classes in limits of columns by descent": classification(
        three_classes, method="gradient", bound_x=3.0, box_x=(-0.5, 2.0)
    ),
    "squared loss of weighed rows": weighed(regression(constraint=L2Ball(2.0), fit_intercept=True)),
    "Huber loss of weighed rows": weighed(regression(loss="huber", method="objective", fit_intercept=True)),
    "counts of weighed rows with standard errors": weighed(
        regression(loss="poisson", method="objective", fit_intercept=True, inference=True)
    ),
    "two classes of weighed rows": weighed(classification(fit_intercept=True), two_classes),
    "three classes of weighed rows by descent": weighed(
        classification(three_classes, method="gradient"), three_classes
    ),
    "narrow hinge": classification(epsilon=10.0, loss=SmoothedHinge(2.0**-7)),
}

CONVENTIONS = [
    ObjectivePerturbationRegressor(math.inf, bound_x=1.0, bound_y=1.0, max_weight=10.0, fit_intercept=False),
    ObjectivePerturbationRegressor(
        1.0, 1e-6, bound_x=100.0, bound_y=100.0, max_weight=10.0, constraint=L2Ball(100.0), fit_intercept=False
    ),
    ObjectivePerturbationRegressor(
        1.0, bound_x=100.0, bound_y=100.0, max_weight=10.0, loss="huber", fit_intercept=False
    ),
    # With a ridge, as most of these tables are separable: without one it takes a hundred times as long.
    ObjectivePerturbationClassifier(math.inf, bound_x=1.0, max_weight=1.0, classes=None, fit_intercept=True, ridge=0.1),
    ObjectivePerturbationClassifier(
        1.0, 1e-6, bound_x=100.0, max_weight=10.0, classes=[0, 1, 2, 3], fit_intercept=False
    ),
]

#: Public numbers that an estimator plans from, as flags of the command line.
PLANS = {
    "ObjectivePerturbationRegressor": "--rows 1000 --features 3 --bound-x 1 --bound-y 1 --loss huber",
    "ObjectivePerturbationClassifier": "--rows 1000 --features 3 --bound-x 1 --classes 0,1 --adjacency add_remove",
}
