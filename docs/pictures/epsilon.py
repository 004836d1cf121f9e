"""Expected error against people, as epsilon's page asks plan."""

import matplotlib.pyplot as plt
import numpy as np

from dpfast import MultiOutcomeRidge

people = np.geomspace(300, 100_000, 25).astype(int)
MultiOutcomeRidge.plot_plan(
    people, 10, 1, epsilon=[0.1, 0.3, 1.0, 3.0], delta=1e-6,
    bound_x=None, box_x=(0, 1), bound_y=1.0,
    ax=plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1],
)  # fmt: skip
