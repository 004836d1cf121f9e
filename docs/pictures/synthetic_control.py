"""California beside its synthetic control of made-up counties."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpfast import SyntheticControl
from dpfast.datasets import california_prop99

panel = california_prop99()
california, states = panel.loc["California"], panel.drop("California")
rng = np.random.default_rng(0)
factors, noise = rng.normal(1.0, 0.1, (38, 100, 1)), rng.normal(0.0, 5.0, (38, 100, 31))
made_up = (states.to_numpy()[:, None, :] * factors + noise).clip(0.0)
counties = pd.DataFrame(made_up.reshape(-1, 31), columns=panel.columns)
model = SyntheticControl(1.0, 1e-6, bound=(0, 300)).fit(counties, 1989, target=california)

left, right = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained")[1]
model.plot(
    ax=left, title="California and its synthetic control", unit="packs a head and year"
)
model.plot_gap(ax=right, title="The difference", unit="packs a head and year")
