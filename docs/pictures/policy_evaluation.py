"""Values of FrozenLake's squares."""

import gymnasium
import matplotlib.pyplot as plt

from dpfast import PolicyEvaluation, Trajectories

policy = [0, 3, 0, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0]
lake = gymnasium.make("FrozenLake-v1")
trajectories = Trajectories.from_gymnasium(
    lake, policy, n_trajectories=2_000, horizon=60, seed=0
)
model = PolicyEvaluation(1.0, 1e-6, gamma=0.95, return_range=(0, 1), horizon=60).fit(
    trajectories
)

left, right = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained")[1]
places = {"start": 0, "goal": 15, "holes": [5, 7, 11, 12]}
model.plot(shape=(4, 4), ax=left, title="The lake", **places)
model.plot(ax=right, title="Its squares, with 95% limits", **places)
