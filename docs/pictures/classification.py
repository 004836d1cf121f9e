"""ROC and calibration of the guide to classification."""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dpfast import ObjectivePerturbationClassifier

table = load_breast_cancer(as_frame=True)
typical = [13, 18, 85, 550, 0.095, 0.09, 0.06, 0.04, 0.18, 0.062]
spread = [4, 5, 25, 350, 0.015, 0.05, 0.07, 0.04, 0.03, 0.007]
rows = (table.data.iloc[:, :10] - typical) / spread / 10**0.5
learn, judge, learn_benign, judge_benign = train_test_split(
    rows, table.target, random_state=0, stratify=table.target
)
left, right = plt.subplots(1, 2, figsize=(10.0, 4.2), layout="constrained")[1]
for epsilon in (0.1, 1.0):
    model = ObjectivePerturbationClassifier(epsilon, 1e-5, bound_x=1.0, classes=[0, 1]).fit(
        learn, learn_benign
    )
    model.plot_roc(judge, judge_benign, ax=left, label=f"epsilon {epsilon}")
model.plot_calibration(judge, judge_benign, n_bins=4, ax=right, label="epsilon 1")
