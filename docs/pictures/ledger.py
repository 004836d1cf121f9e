"""Twenty fits in one ledger."""

import matplotlib.pyplot as plt
import numpy as np

from dpfast import Ledger, MultiOutcomeRidge, Privacy

rows = np.random.default_rng(0).uniform(0.0, 0.5, size=(1_000, 3))
ledger = Ledger(Privacy(epsilon=1.0, delta=1e-4))
small = MultiOutcomeRidge(0.1, 1e-7, bound_x=1.0, bound_y=1.0, refine=0, ledger=ledger)
for _ in range(20):
    small.fit(rows, rows[:, 0])
ledger.plot(ax=plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1])
