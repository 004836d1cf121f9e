"""Modules that have moved, under the names by which programs may still import them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:  # importlib.abc takes twice as long to import as all of this package's front
    Loader = object

MOVED = {
    "dpfast.audit.attacks": "dpfast.attack.attack",
    "dpfast.audit.donors": "dpfast.synthetic_control.attacks",
    "dpfast.audit.laws": "dpfast.attack.laws",
    "dpfast.audit.lower_bounds": "dpfast.attack.lower_bounds",
    "dpfast.audit.mechanisms": "dpfast.audit",
    "dpfast.audit.minimisers": "dpfast.convex_erm.attacks",
    "dpfast.audit.moments": "dpfast.multi_outcome.attacks",
    "dpfast.audit.policy": "dpfast.policy_evaluation.attacks",
    "dpfast.audit.supports": "dpfast.sparse_regression.attacks",
    "dpfast.datasets.policy_evaluation": "dpfast.datasets.decision_processes",
    "dpfast.demo.policy_evaluation": "dpfast.demo.games",
    "dpfast.demo.regression": "dpfast.demo.people",
    "dpfast.demo.synthetic_control": "dpfast.demo.counterfactuals",
    "dpfast.effects": "dpfast.synthetic_control.reports",
    "dpfast.feature_names": "dpfast.estimator.feature_names",
    "dpfast.jobs.sections": "dpfast.jobs.values",
    "dpfast.noise.blocks": "dpfast.noise.subsets",
    "dpfast.noise.pick": "dpfast.noise.exponential",
    "dpfast.noise.sampling": "dpfast.noise.subsets",
    "dpfast.objective_perturbation": "dpfast.convex_erm",
    "dpfast.persistence": "dpfast.estimator.persistence",
    "dpfast.privacy.accounting": "dpfast.ledger.export",
    "dpfast.privacy.accounts": "dpfast.ledger.entries",
    "dpfast.privacy.budget": "dpfast.ledger.ledger",
    "dpfast.privacy.donors_printed": "dpfast.papers.synthetic_control",
    "dpfast.privacy.holder": "dpfast.ledger.process",
    "dpfast.privacy.ledger_file": "dpfast.ledger.file",
    "dpfast.privacy.moments": "dpfast.privacy.moment_scales",
    "dpfast.privacy.objective_printed": "dpfast.papers.convex_erm",
    "dpfast.privacy.planning": "dpfast.estimator.plan",
    "dpfast.privacy.primo": "dpfast.papers.primo",
    "dpfast.privacy.release": "dpfast.ledger.release",
    "dpfast.privacy.smooth": "dpfast.privacy.smooth_gaussian",
    "dpfast.privacy.supports": "dpfast.privacy.support_noise",
    "dpfast.releases.donor_weights": "dpfast.synthetic_control.donor_weights",
    "dpfast.releases.frames": "dpfast.multi_outcome.mechanism",
    "dpfast.releases.smooth": "dpfast.policy_evaluation.mechanism",
    "dpfast.releases.support_coefficients": "dpfast.sparse_regression.mechanism",
    "dpfast.releases.supports": "dpfast.releases.selection",
    "dpfast.releases.visit_moments": "dpfast.policy_evaluation.mechanism",
    "dpfast.solvers.callable_loss": "dpfast.solvers.losses",
    "dpfast.solvers.constrained": "dpfast.solvers.quadratic",
    "dpfast.solvers.least_squares": "dpfast.solvers.loss_sums",
    "dpfast.solvers.ridge_from_rows": "dpfast.solvers.ridge",
    "dpfast.solvers.singular": "dpfast.solvers.ridge",
    "dpfast.solvers.smooth": "dpfast.solvers.smooth_convex",
    "dpfast.spending": "dpfast.estimator.base",
    "dpfast.statistics.people": "dpfast.statistics.person_unit",
    "dpfast.statistics.sampled": "dpfast.statistics.sampled_gram",
    "dpfast.statistics.states": "dpfast.io.states",
    "dpfast.statistics.trajectories": "dpfast.io.trajectories",
    "dpfast.statistics.trajectory_sources": "dpfast.io.trajectory_sources",
    "dpfast.statistics.visit_moments": "dpfast.statistics.visits",
    "dpfast.synthetic_control.cross_section": "dpfast.synthetic_control.mechanism",
    "dpfast.synthetic_control.moments": "dpfast.synthetic_control.estimator",
    "dpfast.synthetic_control.weights": "dpfast.synthetic_control.estimator",
    "dpfast.synthetic_control.parameters": "dpfast.synthetic_control.estimator",
    "dpfast.theory": "dpfast.papers",
    "dpfast.theory.bound": "dpfast.papers.bound",
    "dpfast.theory.convex_erm": "dpfast.papers.convex_erm",
    "dpfast.theory.policy_evaluation": "dpfast.papers.policy_evaluation",
    "dpfast.theory.sparse_regression": "dpfast.papers.sparse_regression",
    "dpfast.theory.synthetic_control": "dpfast.papers.synthetic_control",
}

#: Those that were attributes of the package itself.
TOP = {"effects": "dpfast.effects", "theory": "dpfast.theory"}


def _home(name: str) -> str | None:
    """Return the module that a name now stands for: of a package that has moved, its modules too."""
    parent, _, last = name.rpartition(".")
    return MOVED.get(name) or (f"{MOVED[parent]}.{last}" if parent in MOVED else None)


class _Finder(Loader):
    """Finds a module under its old name, and hands out the one that there is."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if _home(name) is not None else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(str(_home(spec.name)))
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the old name's in its place


def install() -> None:
    """Let old names be imported: first of all, or a package under its old name would have its modules loaded again."""
    sys.meta_path.insert(0, _Finder())
