"""Fits of quantiles."""

import math

from catalogue import of_rows

from dpfast import ColumnQuantiles

CANDIDATES = [-1.0, -0.5, 0.0, 0.5, 1.0]
FITS = {
    "ColumnQuantiles": of_rows(ColumnQuantiles(1.0, candidates=CANDIDATES), lambda y: None),
    "ColumnQuantiles, upper": of_rows(
        ColumnQuantiles(1.0, candidates=CANDIDATES, percent=90, adjacency="add_remove"), lambda y: None
    ),
}

CONVENTIONS = [ColumnQuantiles(1.0, candidates=CANDIDATES), ColumnQuantiles(math.inf, candidates=CANDIDATES)]

PLANS = {"ColumnQuantiles": "--rows 1000 --features 3 --candidates 0,1"}
