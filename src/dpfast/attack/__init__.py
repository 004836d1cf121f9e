"""Building blocks of attacks, used by each family: laws of noise, lower bounds, rows at the worst angle."""

from dpfast.attack.attack import Attack, Finding, claimed, claims, probe
from dpfast.attack.laws import Events, GaussianShift, Law, NormShift, OddsShift, SampledShift, shift_law
from dpfast.attack.lower_bounds import epsilon_lower_bound, mu_lower_bound

__all__ = [
    "Attack",
    "Events",
    "Finding",
    "GaussianShift",
    "Law",
    "NormShift",
    "OddsShift",
    "SampledShift",
    "claimed",
    "claims",
    "epsilon_lower_bound",
    "mu_lower_bound",
    "probe",
    "shift_law",
]
