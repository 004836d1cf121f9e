"""Attacks on our own promises: lower bounds on epsilon, to be held against the claim."""

from dpfast.audit.attacks import Attack, Finding
from dpfast.audit.everything import all_attacks
from dpfast.audit.lower_bounds import epsilon_lower_bound, mu_lower_bound

__all__ = ["Attack", "Finding", "all_attacks", "epsilon_lower_bound", "mu_lower_bound"]
