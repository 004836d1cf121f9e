"""Fit diffprivlib's LogisticRegression for convex_erm_comparison.py, in an interpreter that has it.

diffprivlib 0.6.6 imports with scikit-learn 1.6 and no newer one, so that it gets an environment of its own:

    python -m venv ENV && ENV/bin/pip install diffprivlib==0.6.6 scikit-learn==1.6.1

``ENV/bin/python diffprivlib_logistic.py FOLDER`` reads x.npy, y.npy and fits.json there, and writes coefficients,
shape (number of fits, n_features), and seconds. It minds nothing of dpfast.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LogisticRegression


def main(folder):
    x, y = np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy")
    splits = np.load(folder / "splits.npy", mmap_mode="r")
    task = json.loads((folder / "fits.json").read_text())
    # Its own convergence warnings: it stops after max_iter steps whatever the noise.
    warnings.simplefilter("ignore")
    coefficients, seconds = [], []
    for fit in task["fits"]:
        rows = splits[fit["split"]]
        own_x, own_y = np.ascontiguousarray(x[rows]), y[rows]
        start = time.perf_counter()
        model = LogisticRegression(
            epsilon=fit["epsilon"],
            data_norm=task["bound_x"],
            C=fit["C"],
            fit_intercept=False,
            random_state=fit["split"],
        ).fit(own_x, own_y)
        seconds.append(time.perf_counter() - start)
        coefficients.append(model.coef_[0])
    np.save(folder / "coefficients.npy", coefficients)
    np.save(folder / "seconds.npy", seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
