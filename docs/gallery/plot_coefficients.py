"""
Coefficients, with both kinds of uncertainty
============================================

A private coefficient is uncertain for two reasons: noise was added to protect
people, and the people are a sample. `MultiOutcomeRidge` knows both. The thick
bar is what the noise alone makes of the coefficient; the thin one counts the
sample too, as a textbook's standard error would.
"""

# %%
# Outcomes of 3,000 simulated patients. The true coefficients are known
# here, and drawn as diamonds; with people's data nobody knows them.
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
# Limits and bounds are what is known without looking: features lie in [-1,
# 1], outcomes hardly leave [-4, 4].
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
# On the left, noise is most of it: more people would help, or more epsilon.
# On the right, it is the sample: more epsilon would not. As a table:
print(model.summary().round(3))
