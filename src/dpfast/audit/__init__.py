"""Attacks on our own promises: lower bounds on epsilon, to be held against the claim."""

from dpfast.audit.attacks import Attack, all_attacks, moment_attack, primitive_attacks, smooth_gaussian_attack
from dpfast.audit.lower_bounds import epsilon_lower_bound, mu_lower_bound

__all__ = [
    "Attack",
    "all_attacks",
    "epsilon_lower_bound",
    "moment_attack",
    "mu_lower_bound",
    "primitive_attacks",
    "smooth_gaussian_attack",
]
