"""
A private classifier: is it right, and is it calibrated?
========================================================

Do not evaluate a classifier on its private training data: the result would
cost budget. Public rows may be used as often as you like. This page shows two
evaluations: the ROC curve, and the calibration of probabilities.
"""

# %%
# We declare a third of scikit-learn's breast cancer data public. Limits of the
# measurements are round numbers known without the table.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dpfast import ObjectivePerturbationClassifier

measured, benign = load_breast_cancer(return_X_y=True, as_frame=True)
limits = {
    "mean radius": (5, 30),
    "mean texture": (5, 40),
    "mean concavity": (0, 0.5),
    "mean symmetry": (0.1, 0.35),
}
low, high = np.transpose(list(limits.values()))
X = np.clip((measured[list(limits)].to_numpy() - low) / (high - low) * 2.0 - 1.0, -1.0, 1.0)
X_private, X_public, y_private, y_public = train_test_split(
    X, benign.to_numpy(), test_size=1 / 3, random_state=0
)

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.8), layout="constrained")
for epsilon in (0.3, 3.0):
    model = ObjectivePerturbationClassifier(
        epsilon, 1e-6, bound_x=2.0, classes=[0, 1], random_state=0
    )
    model.fit(X_private, y_private)
    right_share = model.score(X_public, y_public)
    print(f"epsilon = {epsilon:g}: {right_share:.1%} of public rows right")
    text = {"positive": 1, "label": f"epsilon = {epsilon:g}"}
    model.plot_roc(X_public, y_public, ax=left, title="ROC: benign found", **text)
    model.plot_calibration(
        X_public, y_public, n_bins=5, ax=right, title="calibration", **text
    )
plt.show()

# %%
# The ranking of probabilities is good at epsilon = 3, and fair at 0.3. They are
# calibrated by noisy counts of the private rows by margin and class, within the
# budget. At 0.3 the counts are uninformative, and probabilities stay away from 0
# and 1.
