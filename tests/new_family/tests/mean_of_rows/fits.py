"""Fits of the mean of rows."""

import math

from catalogue import of_rows

from dpfast import MeanOfRows

FITS = {"MeanOfRows": of_rows(MeanOfRows(1.0, 1e-6, bound=1.0), lambda y: None)}

CONVENTIONS = [MeanOfRows(1.0, 1e-6, bound=100.0), MeanOfRows(1.0, bound=100.0), MeanOfRows(math.inf, bound=1.0)]

PLANS = {"MeanOfRows": "--rows 1000 --features 3 --bound 1"}
