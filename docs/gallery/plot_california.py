"""
California's smoking programme
==============================

The table that synthetic control is known by (Abadie, Diamond and Hainmueller,
2010): yearly sales of cigarettes in the states of the USA. In 1989 California
taxed them. What would it have smoked without the tax? The other 38 states are
the donors. All of it is public; we act as if each state were a person to be
protected.

Thirty-eight is few. This page first shows a panel with donors enough, and then
what few donors mean.
"""

# %%
# Where donors are people, there are thousands of them. Here are 5,000, made
# up, with as many periods. After the intervention the target was made to
# lose a tenth of the range. At epsilon = 1 the effect is found.
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
# Back to California. ``plan`` knows beforehand, from public numbers: so few
# donors cannot carry a small epsilon.
sales = california_prop99()
california, donors = (sales.loc["California"].to_numpy(), sales.drop("California"))
print(
    SyntheticControl.plan(
        len(donors), n_periods=31, n_pre=19, epsilon=1.0, delta=1e-6, bound=(0.0, 300.0)
    )
)

# %%
# So it warns. Before 1989 the path is California's own, as its neighbours
# tell it. After it, at epsilon = 10, there is noise from one end of the
# declared range to the other, and the limits say so.
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
# An epsilon of 1,000 protects nobody: it is there to show the method. With
# thousands of donors, as where donors are patients and not states, epsilon
# = 1 is enough: see the paper's figures below.
