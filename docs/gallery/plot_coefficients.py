"""
Coefficients, with both kinds of uncertainty
============================================

A private coefficient has two errors: the noise that protects people, and
sampling error. `MultiOutcomeRidge` estimates both. The thick bar is the interval
from the noise alone; the thin one includes sampling error, as a textbook's
standard error does.
"""

# %%
# These are outcomes of 3,000 simulated patients, so the true coefficients are
# known. They are drawn as diamonds.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpfast import MultiOutcomeRidge

rng = np.random.default_rng(0)
names = ["age", "dose", "weight", "smoker", "placebo"]
X = pd.DataFrame(rng.uniform(-1.0, 1.0, size=(3000, 5)), columns=names)
truth = np.array([0.5, -0.8, 0.3, 0.15, 0.0])
y = X.to_numpy() @ truth + rng.normal(scale=1.0, size=len(X))

# %%
# Limits and bounds are prior knowledge: features lie in [-1, 1], outcomes almost
# always in [-4, 4].
fig, axes = plt.subplots(1, 2, figsize=(10.0, 4.2), sharex=True, layout="constrained")
for ax, epsilon in zip(axes, (0.3, 3.0), strict=True):
    model = MultiOutcomeRidge(
        epsilon, 1e-6, bound_x=None, box_x=(-1.0, 1.0), bound_y=4.0, random_state=0
    )
    model.fit(X, y)
    model.plot(
        reference=truth,
        ax=ax,
        title=f"epsilon = {epsilon:g}, delta = 1e-6",
        unit="outcome per unit",
    )
plt.show()

# %%
# On the left the noise dominates: more people or a larger epsilon would help. On
# the right sampling error dominates: a larger epsilon would not help. As a table:
print(model.summary().round(3))
