"""ROC and calibration of the guide to classification."""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dpfast import ObjectivePerturbationClassifier

table = load_breast_cancer(as_frame=True)
lows = [5, 8, 35, 0, 0.065, 0, 0, 0, 0.12, 0.05]
highs = [21, 28, 135, 1200, 0.125, 0.2, 0.2, 0.12, 0.24, 0.075]
learn, judge, learn_benign, judge_benign = train_test_split(
    table.data.iloc[:, :10], table.target, random_state=0, stratify=table.target
)
left, right = plt.subplots(1, 2, figsize=(10.0, 4.2), layout="constrained")[1]
for epsilon in (0.1, 1.0):
    model = ObjectivePerturbationClassifier(
        epsilon, 1e-5, box_x=(lows, highs), classes=[0, 1]
    ).fit(learn, learn_benign)
    model.plot_roc(judge, judge_benign, ax=left, label=f"epsilon {epsilon}")
model.plot_calibration(judge, judge_benign, n_bins=4, ax=right, label="epsilon 1")
