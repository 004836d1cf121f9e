"""Fits of a standardising transformer."""

import math

from catalogue import of_people, of_rows

from dpfast import PrivateStandardScaler


def scaler(**facts):
    parameters = {"box_x": (-1.0, 1.0)} | facts
    releases = 1 + (parameters["box_x"] == "private")
    # A box that is found takes a second reading.
    table = "rows" if parameters["box_x"] == "private" else "blocks"
    return of_rows(PrivateStandardScaler(1.0, 1e-6, **parameters), lambda y: None, table=table, releases=releases)


FITS = {
    "scaler": scaler(),
    "scaler without means": scaler(with_mean=False, box_x=(-0.5, 0.6)),
    "scaler without deviations": scaler(with_std=False),
    "scaler in a box that is found": scaler(box_x="private"),
    "scaler of people": of_people(scaler().estimator, lambda y: None),
    "scaler of people, in a box that is found": of_people(
        scaler(box_x="private").estimator, lambda y: None, releases=2
    ),
}

#: What scikit-learn's checks of conventions are run on.
CONVENTIONS = [
    PrivateStandardScaler(math.inf, box_x=(-1.0, 1.0)),
    PrivateStandardScaler(1.0, 1e-6, box_x=(-100.0, 100.0)),
]

#: Public numbers that an estimator plans from, as flags of the command line.
PLANS = {"PrivateStandardScaler": "--rows 1000 --features 3 --box-x 0,1"}
