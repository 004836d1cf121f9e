"""
A ledger fills up
=================

The owner of a table sets a budget, once. Every fit on the table is charged to a
ledger, and a fit beyond the budget is refused before it reads a row. Many small
releases cost less than the sum of their epsilons: the ledger composes Gaussian
noise by the squares of mu.
"""

# %%
# A budget of epsilon = 2, and fits of epsilon = 0.4 each on simulated
# people, until one is refused.
import matplotlib.pyplot as plt
import numpy as np

from dpfast import BudgetExceeded, Ledger, MultiOutcomeRidge, Privacy

rng = np.random.default_rng(0)
X = rng.uniform(-0.5, 0.5, size=(20_000, 4))
ledger = Ledger(Privacy(2.0, 1e-5))

made = 0
try:
    while True:
        y = X @ rng.normal(size=4) / 4.0
        MultiOutcomeRidge(0.4, 1e-6, bound_x=1.0, bound_y=1.0, refine=0, ledger=ledger).fit(
            X, y
        )
        made += 1
except BudgetExceeded as refused:
    print(f"{made} fits were made; the next one was refused: {refused}")

# %%
fig, ax = plt.subplots(figsize=(8.0, 4.6), layout="constrained")
ledger.plot(ax=ax, title="a budget of epsilon = 2, delta = 1e-5")
plt.show()

# %%
# The curve ends below the budget for two reasons: a part is reserved for noise
# that is not Gaussian, and the limits allow adaptive choice of fits. By plain
# sums each fit would cost 0.4:
print(f"{made} fits, sum of their epsilons {0.4 * made:.1f}")
print(f"spent together: {ledger.spent}; left: {ledger.remaining}")
