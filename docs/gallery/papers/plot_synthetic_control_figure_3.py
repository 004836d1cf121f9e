"""
Synthetic control, figure 3: a panel like the paper's
=====================================================

The paper's third figure (Rho, Cummings and Misra, 2023) shows one simulated
panel of 10 donors and 10 earlier periods, with the target among them: every
series rises along a line of its own, with a little noise. All data here are
simulated.

The left plot shows this panel. The right plot shows a hundred of a thousand
such donors, and dpfast's prediction from all of them at epsilon = 1: the
target's path without the intervention, with its interval.
"""

# %%
import matplotlib.pyplot as plt

from dpfast import SyntheticControl
from dpfast.datasets import synthetic_control_panel

small, its_target, _ = synthetic_control_panel(10, 10, 3, seed=0)
donors, target, signal = synthetic_control_panel(1000, 10, 3, seed=0)
model = SyntheticControl(epsilon=1.0, delta=1e-6, nonnegative=True, random_state=0)
model.fit(donors, n_pre=10, target=target)

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10.0, 4.4), sharey=True, layout="constrained"
)
for ax, among in ((left, small), (right, donors[:100])):
    ax.plot(among.T, color="0.75", linewidth=0.8, zorder=0)
left.plot(its_target, color="#8c2d04", linewidth=2.0)
left.axvline(9.5, color="0.3", linestyle="--", linewidth=1.0)
left.set_title("10 donors (grey) and the target: the paper's figure", fontsize=10)
left.set_xlabel("period")
left.spines[["top", "right"]].set_visible(False)
left.set_ylabel("outcome (share of the range)")
model.plot(
    ax=right,
    title="1,000 donors (100 drawn), epsilon = 1, delta = 1e-6",
    unit="share of the range",
)
right.set_xlabel("period")
plt.show()

# %%
# The signal that the target follows is known here, as it is simulated:
predicted = model.predict(target[:10])
print("signal   ", signal[10:].round(3))
print("predicted", predicted.round(3))

# %%
# ``nonnegative=True`` declares that outcomes are never below 0, which
# lowers the noise. ``random_state`` makes this page come out the same every
# time it is built. Leave it out where people's data are protected: a seed
# voids the guarantee.
