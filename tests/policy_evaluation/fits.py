"""Fits of policy evaluation: a person is a walk, one step a column, over states that the entries say."""

import numpy as np
import pandas as pd
from catalogue import Fit

from dpfast import PolicyEvaluation
from dpfast.statistics import Trajectories

FEATURES = np.array([[1.0, 0.0], [1.0, 0.5], [0.0, 2.0], [-1.0, 1.0]])
N_STATES = len(FEATURES)


def walks(x):
    entries = np.asarray(x, np.float64)
    states = np.floor(2.0 * (np.clip(entries, -1.0, 1.0) + 1.0)).clip(0, N_STATES - 1).astype(int)
    rewards = np.clip(entries, -1e199, 1e199)
    n, steps = entries.shape
    if not hasattr(x, "index"):
        return Trajectories(states.ravel(), rewards.ravel(), np.arange(n + 1) * steps, N_STATES)
    frame = pd.DataFrame({"state": states.T.ravel(), "reward": rewards.T.ravel()})
    frame["who"] = pd.Series([*x.index] * steps, dtype=object).infer_objects()
    frame["when"] = np.repeat(np.arange(steps), n)
    return Trajectories.from_frame(frame, N_STATES, trajectory="who", state="state", reward="reward", step="when")


def fit(one, x, y):
    return one.fit(walks(x))


def evaluated(method, releases=1, **parameters):
    options = {"gamma": 0.9, "horizon": 4, "method": method} | parameters
    return Fit(PolicyEvaluation(1.0, 1e-6, **options), fit, releases=releases)


FITS = {
    "visits in stages": evaluated("sufficient_statistics", releases=None),
    "visits in stages, but the last": evaluated("sufficient_statistics", releases=None, lag=1),
    "visits": evaluated("sufficient_statistics", ridge=1.0),
    "visits with a private range": evaluated("sufficient_statistics", releases=2, return_range="private"),
    "visits but the last": evaluated("sufficient_statistics", ridge=1.0, lag=1),
    "visits, shrunken": evaluated("sufficient_statistics", shrinkage=True),
    "visits of states unlike in weight": evaluated("sufficient_statistics", weights=np.arange(1.0, N_STATES + 1.0)),
    "visits with features": evaluated("sufficient_statistics", features=FEATURES),
    "visits with a range of returns": evaluated(
        "sufficient_statistics", horizon=None, return_range=(0.0, 2.0), releases=None
    ),
    "DP-LSW": evaluated("lsw"),
    "DP-LSW of visits but the last": evaluated("lsw", lag=1),
    "DP-LSW with features": evaluated("lsw", features=FEATURES),
    "DP-LSW of costs": evaluated("lsw", reward_range=(-1.0, 0.0)),
    "DP-LSW, as printed": evaluated("lsw", calibration="paper"),
    "DP-LSW, icml": evaluated("lsw", calibration="icml"),
    "DP-LSL": evaluated("lsl", ridge=10.0),
    "DP-LSL with features": evaluated("lsl", features=FEATURES),
    "DP-LSL, as printed": evaluated("lsl", calibration="paper"),
    "DP-LSL, icml": evaluated("lsl", calibration="icml"),
}

CONVENTIONS = []

#: Public numbers that an estimator plans from, as flags of the command line.
PLANS = {
    "PolicyEvaluation": "--m 1000 --n-states 3 --gamma 0.9 --reward-range 0,1 --horizon 4 --method lsw",
}
