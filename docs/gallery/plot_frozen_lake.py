"""
The value of states, on a frozen lake
=====================================

FrozenLake is a game of Gymnasium: walk from the start to the goal over slippery
ice, and avoid the holes. Patients are similar: they have states of health,
treatments, and an outcome at the end. What is the value of each state, estimated
from many trajectories? Each person's whole trajectory is protected.
"""

# %%
# These are 20,000 simulated players; they take a good action four times out of
# five. True values are known, because the game is known.
import matplotlib.pyplot as plt
import numpy as np

from dpfast import PolicyEvaluation, Trajectories
from dpfast.datasets.decision_processes import (
    exploring_policy,
    gymnasium_table,
    table_trajectories,
    table_values,
)

GAMMA = 0.95
table, start = gymnasium_table("frozen_lake_4x4")
policy = exploring_policy(table, GAMMA, 0.2)
players = Trajectories(
    *table_trajectories(table, 20_000, start=start, horizon=60, policy=policy, seed=0)
)
truth = table_values(table, GAMMA, policy)

model = PolicyEvaluation(
    1.0, 1e-6, gamma=GAMMA, return_range=(0.0, 1.0), horizon=60, random_state=0
).fit(players)

# %%
# Holes are known from the rules: S the start, H holes, G the goal.
lake = np.array(list("SFFFFHFHFFFHHFFG"))
marks = {"start": 0, "goal": 15, "holes": np.flatnonzero(lake == "H")}
fig, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.8), layout="constrained")
model.plot(
    (4, 4), **marks, ax=left, title="private values, epsilon = 1", unit="discounted reward"
)
model.plot(
    reference=truth,
    ax=right,
    title="the same as points, with the true values",
    unit="discounted reward",
)
plt.show()

# %%
# The game ends in a hole and at the goal, so there is no later reward: the true
# value is 0. The interval is wide because no trajectory continues from there.
# Elsewhere errors are small.
seen = np.setdiff1d(np.arange(16), [*marks["holes"], 15])
errors = np.abs(model.value_ - truth)[seen]
print(f"largest error where the game goes on: {errors.max():.3f}")
