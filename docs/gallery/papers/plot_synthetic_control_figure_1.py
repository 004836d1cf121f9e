"""
Synthetic control, figure 1: what is private
============================================

The paper's first figure (Rho, Cummings and Misra, 2023) is a drawing of the
data: rows are donors, columns are periods, and an intervention divides them.
Here is such a panel, filled with the paper's own generator. Nobody in it is
real.

A donor is a person: all of its periods are protected together. The target is
public, and is used only before the intervention. The aim is to predict the
hatched part: the target's path without the intervention.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from dpfast.datasets import synthetic_control_panel

n_donors, n_pre, n_post = 20, 15, 5
donors, target, _ = synthetic_control_panel(n_donors, n_pre, n_post, seed=1)
unknown = np.append(target[:n_pre], np.full(n_post, np.nan))

fig, (above, below) = plt.subplots(
    2,
    1,
    figsize=(8.0, 5.2),
    height_ratios=[1, n_donors / 2],
    sharex=True,
    layout="constrained",
)
shades = {"cmap": "cividis", "vmin": 0.0, "vmax": 1.0, "aspect": "auto"}
above.imshow(unknown[np.newaxis], **shades)
above.add_patch(
    Rectangle((n_pre - 0.5, -0.5), n_post, 1.0, fill=False, hatch="///", edgecolor="0.4")
)
image = below.imshow(donors, **shades)
for ax in (above, below):
    ax.axvline(n_pre - 0.5, color="white", linewidth=3)
    ax.axvline(n_pre - 0.5, color="black", linestyle="--", linewidth=1.5)
    ax.spines[:].set_visible(False)
above.set(yticks=[0], yticklabels=["target (public)"])
above.set_title("before the intervention", loc="left", fontsize=10)
above.set_title("after it", loc="right", fontsize=10)
below.set(ylabel="donors (private), a person a row", xlabel="period", yticks=[])
below.set_xticks(range(0, n_pre + n_post, 5), range(1, n_pre + n_post + 1, 5))
fig.colorbar(image, ax=(above, below), label="outcome (share of its declared range)")
plt.show()

# %%
# The paper learns *weights of donors* from the columns on the left, and
# needs the donors' columns on the right again to predict: it pays for both.
# By default dpfast transposes the problem: every donor is a row, and its later
# periods are regressed on its earlier ones. This needs only sums over donors.
# One release of them serves any number of targets, and their noise does not
# grow with the number of donors. The next figures show the gain.
