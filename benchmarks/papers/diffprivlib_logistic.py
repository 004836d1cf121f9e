"""Fit diffprivlib's LogisticRegression for benchmarks/classification.py, in an interpreter that has it.

diffprivlib 0.6.6 imports with scikit-learn 1.6 and no newer one, so that it gets an environment of its own:

    python -m venv ENV && ENV/bin/pip install diffprivlib==0.6.6 scikit-learn==1.6.1

``ENV/bin/python diffprivlib_logistic.py FOLDER`` reads x.npy, y.npy and fits.json there, and writes coefficients,
shape (number of fits, 1 or n_classes, n_features). It minds nothing of dpfast.
"""

import json
import sys
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
    coefficients = []
    for fit in task["fits"]:
        rows = splits[fit["split"]]
        own_x, own_y = np.ascontiguousarray(x[rows]), y[rows]
        model = LogisticRegression(
            epsilon=fit["epsilon"],
            data_norm=task["bound_x"],
            C=fit["C"],
            fit_intercept=False,
            random_state=fit["split"],
        ).fit(own_x, own_y)
        coefficients.append(model.coef_)
    np.save(folder / "coefficients.npy", coefficients)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
