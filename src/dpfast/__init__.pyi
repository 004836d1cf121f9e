# The registry: every public name stands here once, and only here. Families are the modules with an estimator.
from dpfast.convex_erm import ObjectivePerturbationClassifier as ObjectivePerturbationClassifier
from dpfast.convex_erm import ObjectivePerturbationRegressor as ObjectivePerturbationRegressor
from dpfast.description import Description as Description
from dpfast.description import describe as describe
from dpfast.estimator import Plan as Plan
from dpfast.estimator import complete as complete
from dpfast.io import Trajectories as Trajectories
from dpfast.kernels import get_include as get_include
from dpfast.ledger import BudgetExceeded as BudgetExceeded
from dpfast.ledger import Ledger as Ledger
from dpfast.ledger import PaidFailure as PaidFailure
from dpfast.ledger import Release as Release
from dpfast.multi_outcome import MultiOutcomeRidge as MultiOutcomeRidge
from dpfast.policy_evaluation import PolicyEvaluation as PolicyEvaluation
from dpfast.privacy import LargeDeltaWarning as LargeDeltaWarning
from dpfast.privacy import Privacy as Privacy
from dpfast.privacy import UnsoundCalibrationWarning as UnsoundCalibrationWarning
from dpfast.privacy import UtilityWarning as UtilityWarning
from dpfast.scaling import PrivateStandardScaler as PrivateStandardScaler
from dpfast.scaling.estimator import PrivateBounds as PrivateBounds
from dpfast.scaling.estimator import private_bounds as private_bounds
from dpfast.selection import select as select
from dpfast.solvers import Box as Box
from dpfast.solvers import L1Ball as L1Ball
from dpfast.solvers import L2Ball as L2Ball
from dpfast.sparse_regression import SparseRegression as SparseRegression
from dpfast.synthetic_control import SyntheticControl as SyntheticControl

__version__: str
