"""Fits of the mean of rows."""

from catalogue import Fit

from dpfast import MeanOfRows

FITS = {
    "mean of rows": Fit(MeanOfRows(1.0, 1e-6, bound=1.0), lambda one, x, y: one.fit(x), table="rows"),
}

CONVENTIONS = []

PLANS = {}
