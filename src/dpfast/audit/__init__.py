"""Attacks on our own promises: lower bounds on epsilon, to be held against the claim."""

from dpfast.audit.attacks import Attack, moment_attack, primitive_attacks, sampled_moment_attack, smooth_gaussian_attack
from dpfast.audit.lower_bounds import epsilon_lower_bound, mu_lower_bound
from dpfast.audit.mechanisms import all_attacks
from dpfast.audit.minimisers import minimiser_attack, minimiser_attacks
from dpfast.audit.policy import policy_evaluation_attack
from dpfast.audit.supports import coefficient_attack, score_attack, support_attacks, vote_attack
from dpfast.audit.weights import objective_attack, output_attack, weight_attacks

__all__ = [
    "Attack",
    "all_attacks",
    "coefficient_attack",
    "epsilon_lower_bound",
    "minimiser_attack",
    "minimiser_attacks",
    "moment_attack",
    "mu_lower_bound",
    "objective_attack",
    "output_attack",
    "policy_evaluation_attack",
    "primitive_attacks",
    "sampled_moment_attack",
    "score_attack",
    "smooth_gaussian_attack",
    "support_attacks",
    "vote_attack",
    "weight_attacks",
]
