"""
California's smoking programme
==============================

This is the classic example of synthetic control (Abadie, Diamond and
Hainmueller, 2010): yearly sales of cigarettes in the states of the USA. In 1989
California taxed them. What would its sales have been without the tax? The other
38 states are the donors. All data are public; we treat each state as a person to
be protected.

Thirty-eight donors are few. This page first shows a panel with enough donors, and
then the effect of few.
"""

# %%
# In panels of people, donors are thousands. This made-up panel has 5,000, with as
# many periods. After the intervention the target loses a tenth of the range. At
# epsilon = 1 the effect is found.
import warnings

import matplotlib.pyplot as plt

from dpfast import SyntheticControl, UtilityWarning
from dpfast.datasets import california_prop99, synthetic_control_panel

many, target, _ = synthetic_control_panel(5_000, 19, 12, seed=0)
target[19:] -= 0.1
fig, axes = plt.subplots(1, 2, figsize=(11.0, 4.2), layout="constrained")
model = SyntheticControl(1.0, 1e-6, basis=3, random_state=0).fit(many, 19, target)
model.plot(ax=axes[0], title="5,000 donors, epsilon = 1")
model.plot_gap(ax=axes[1], title="the effect is -0.1")
for ax in axes:
    ax.set_xlabel("period")
plt.show()

# %%
# Back to California. ``plan`` shows from public numbers alone that so few donors
# are not enough at a small epsilon.
sales = california_prop99()
california, donors = (sales.loc["California"].to_numpy(), sales.drop("California"))
print(
    SyntheticControl.plan(
        len(donors), n_periods=31, n_pre=19, epsilon=1.0, delta=1e-6, bound=(0.0, 300.0)
    )
)

# %%
# So the fit warns. Before 1989 the prediction follows California's path. After
# 1989, at epsilon = 10, the noise spans the declared range, and the limits show
# it.
warnings.simplefilter("ignore", UtilityWarning)
fig, axes = plt.subplots(2, 2, figsize=(11.0, 8.0), sharex=True, layout="constrained")
for (above, below), epsilon in zip(axes.T, (10.0, 1000.0), strict=True):
    model = SyntheticControl(epsilon, 1e-6, bound=(0.0, 300.0), basis=3, random_state=0)
    model.fit(donors, 1989, target=california)
    model.plot(ax=above, title=f"epsilon = {epsilon:g}", unit="packs a head")
    model.plot_gap(ax=below, title="", unit="packs a head")
for ax in axes[-1]:
    ax.set_xlabel("year")
plt.show()

# %%
# An epsilon of 1,000 protects nobody: it only shows the method. With thousands
# of donors, for example patients, epsilon = 1 is enough: see the paper's figures
# below.
