"""Coefficients of the guide to several outcomes."""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_diabetes

from dpfast import MultiOutcomeRidge

people = load_diabetes(as_frame=True, scaled=False).frame
outcomes = pd.DataFrame(
    {
        "pressure": (people.bp - 93) / 15,
        "cholesterol": (people.s1 - 200) / 40,
        "glucose": (people.s6 - 90) / 15,
    }
)
box = [18, 1, 15], [80, 2, 45]
model = MultiOutcomeRidge(3.0, 1e-5, bound_x=None, box_x=box, bound_y=3.0)
model.fit(people[["age", "sex", "bmi"]], outcomes)
model.plot(ax=plt.subplots(figsize=(9.0, 3.4), layout="constrained")[1])
