"""
How many people, and which epsilon?
===================================

``plan`` computes the expected error before any data are read, from public
numbers alone: sizes, bounds and the budget. It costs nothing and can be repeated.
``plot_plan`` draws it.
"""

# %%
# The example is a regression of one outcome on ten features. Rows and outcomes
# have norm at most 1. Errors are relative to the signal: an estimate with an
# error of 1 is useless.
import matplotlib.pyplot as plt

from dpfast import MultiOutcomeRidge, SyntheticControl

people = [300, 1000, 3000, 10_000, 30_000, 100_000]
epsilons = [0.1, 0.3, 1.0, 3.0, 10.0]
fig, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.6), layout="constrained")
bounds = {"delta": 1e-6, "bound_x": 1.0, "bound_y": 1.0}
MultiOutcomeRidge.plot_plan(
    people, 10, 1, epsilon=[0.1, 1.0, 10.0], ax=left, title="MultiOutcomeRidge", **bounds
)
SyntheticControl.plot_plan(
    1000,
    10,
    13,
    epsilon=epsilons,
    delta=1e-6,
    ax=right,
    title="SyntheticControl, 1,000 donors",
)
plt.show()

# %%
# In numbers:
print(MultiOutcomeRidge.plan(10_000, 10, 1, epsilon=1.0, **bounds))
