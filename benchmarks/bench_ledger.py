"""Time of a ledger's transactions, in memory and in a file, against the number of releases on record."""

import tempfile
from pathlib import Path

import numpy as np

from dpfast import Ledger, MultiOutcomeRidge, Privacy, Release


class Transactions:
    """Reserve and give back: two transactions."""

    params = (["memory", "file"], [1, 100])
    param_names = ("kept in", "releases")

    def setup(self, kept, releases):
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name, "ledger.json") if kept == "file" else None
        self.ledger = Ledger(Privacy(10.0, 1e-3), path)
        unit = Privacy(1e-3, 1e-9)
        arrays = {"xx": np.zeros((10, 10)), "xy": np.zeros((10, 3))}
        for _ in range(releases):
            self.ledger.spend(Release("moments", "Gaussian", unit, arrays, {"xx": 1.0, "xy": 1.0}, mu=0.1))

    def teardown(self, kept, releases):
        self.folder.cleanup()

    def time_reserve_and_give_back(self, kept, releases):
        self.ledger.reserve(Privacy(1e-3)).give_back()

    def time_remaining(self, kept, releases):
        _ = self.ledger.remaining


class Models:
    """A model of 100 features and 1,000 outcomes, without noise."""

    def setup(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "model.json")
        rows = np.random.default_rng(0).normal(size=(200, 100))
        outcomes = rows @ np.random.default_rng(1).normal(size=(100, 1000))
        self.model = MultiOutcomeRidge(float("inf"), bound_x=1.0, bound_y=1.0, fit_intercept=False).fit(rows, outcomes)
        self.model.save(self.path)

    def teardown(self):
        self.folder.cleanup()

    def time_save(self):
        self.model.save(self.path)

    def time_load(self):
        MultiOutcomeRidge.load(self.path)
