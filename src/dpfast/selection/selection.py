"""Model selection within a budget: candidates and the choice among them paid for as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray, IntArray
from dpfast._documents import card, grid, section
from dpfast._redacted import suppress_float_warnings
from dpfast.estimator.base import warn
from dpfast.estimator.bounded import check_people, columns_of
from dpfast.estimator.persistence import Waiting
from dpfast.estimator.representation import spent_html
from dpfast.io.summaries import Estimates
from dpfast.ledger import Ledger, PaidFailure, Release, paying
from dpfast.ledger.entries import header_of, releases_html
from dpfast.ledger.ledger import apart
from dpfast.privacy import Adjacency, Privacy, Unit, UtilityWarning
from dpfast.privacy.guarantee import ReleasedUtilityWarning
from dpfast.selection import candidates as candidate
from dpfast.selection.mechanism import HeldOutPick, Scoring, cost_of_labels, cost_of_outcomes, count_held_out, held_out

if TYPE_CHECKING:
    from pandas import DataFrame


# Costs of outcomes are shares of their squared bound; the explainable part is assumed to be a quarter of it.
_WHOLE: dict[str, float] = {"accuracy": 1.0, "squared_error": 0.25}
# A pick that may lose this share of the explainable part is mostly noise.
_USELESS = 0.1


def _best_has(name: str) -> Callable[[Selection], bool]:
    return lambda selection: hasattr(selection.best_estimator_, name)


@dataclass(eq=False, repr=False)
class Selection:
    """Result of `select`: the selected estimator, fitted, and the cost of the selection.

    Attributes
    ----------
    best_estimator_ : estimator
        The selected estimator; fitted again on all rows if a share of the budget was kept for that.
    best_index_ : int
        Its place among the candidates.
    estimators_ : tuple of estimators
        All candidates as fitted on the rows not held out: they were paid for.
    releases_ : tuple of Release
        All releases: those of the candidates in turn, the pick, and the last fit.
    privacy_spent_ : Privacy
        Total cost.
    """

    best_estimator_: Any
    best_index_: int
    estimators_: tuple[Any, ...]
    releases_: tuple[Release, ...]
    privacy_spent_: Privacy

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return int(self.best_estimator_.n_features_in_)

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels that a classifier distinguishes."""
        labels: NDArray[Any] = self.best_estimator_.classes_
        return labels

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict with the estimator that was chosen."""
        predicted: NDArray[Any] = self.best_estimator_.predict(X)
        return predicted

    @available_if(_best_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, by the estimator that was chosen."""
        probabilities: FloatArray = self.best_estimator_.predict_proba(X)
        return probabilities

    @available_if(_best_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> FloatArray:
        """Margins, by the estimator that was chosen."""
        margins: FloatArray = self.best_estimator_.decision_function(X)
        return margins

    def score(self, X: Any, y: Any) -> float:
        """Score of the selected estimator, as scikit-learn defines it: private if these rows are."""
        return float(self.best_estimator_.score(X, y))

    def summary(self) -> DataFrame:
        """Tabulate the candidates; `best_estimator_` has a separate summary.

        It has no scores: only the index of the best candidate was released.

        Returns
        -------
        pandas.DataFrame
            A row a candidate. Columns ``estimator``, its name and the parameters not shared by all candidates;
            ``epsilon`` and ``delta``, the cost of its fit on the rows not held out, summed over steps; ``chosen``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        costs = [[step.privacy_spent_ for step in candidate.private_steps(one)] for one in self.estimators_]
        columns: dict[str, Any] = {"estimator": candidate.shown(self.estimators_)}
        for name in ("epsilon", "delta"):
            columns[name] = [math.fsum(getattr(one, name) for one in own) for own in costs]
        columns["chosen"] = [place == self.best_index_ for place in range(len(costs))]
        header = {"estimator": "Selection"} | header_of(self.releases_, self.privacy_spent_)
        return Estimates({"candidate": range(len(costs))}, columns, header).frame()

    def _repr_html_(self) -> str:
        shown = enumerate(candidate.shown(self.estimators_))
        rows = [(place, text, "chosen" * (place == self.best_index_)) for place, text in shown]
        cost, kept = spent_html(self.releases_, self.privacy_spent_), releases_html(self.releases_)
        return card("Selection", cost, grid(("", "candidate", ""), rows), section("Releases", kept))

    def __repr__(self) -> str:
        return f"Selection(best_index_={self.best_index_}, best_estimator_={self.best_estimator_!r})"


@suppress_float_warnings
def select(
    estimators: Sequence[Any],
    X: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: Adjacency = "replace_one",
    bound_y: float | None = None,
    test_size: float = 0.25,
    refit_share: float = 0.5,
    groups: ArrayLike | None = None,
    max_rows: int | None = None,
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> Selection:
    """Choose among estimators by their predictions for held-out people, fits and choice within one budget.

    A secret random part of the rows is held out. Every candidate is fitted on the others, for an equal part of the
    budget. Its cost on the held-out people is summed exactly, and the exponential mechanism picks one candidate. A
    person is in one part only, so fits and pick together cost the larger of the two. The selected candidate is fitted
    again on all rows, for the remaining share of the budget.

    Privacy: all releases together, those of every candidate, of the pick and of the last fit, are (epsilon,
    delta)-differentially private under `adjacency`. They are paid for at once, from the ledger if one is given.

    Parameters
    ----------
    estimators : list of estimators
        Candidates: estimators of dpfast that predict outcomes of rows, or scikit-learn pipelines of such, with
        `PrivateStandardScaler` before one of them. Their epsilon, delta and adjacency are replaced. In a pipeline, the
        epsilons of the steps set the proportions of their shares. Every candidate costs budget: list few and different
        ones.
    X : array or DataFrame of shape (n_rows, n_features)
        One person a row, unless `groups` are given.
    y : array of shape (n_rows,) or (n_rows, n_outcomes)
        Their labels or outcomes.
    epsilon, delta : float
        Budget of everything together. Gaussian candidates (`MultiOutcomeRidge`, with delta above 0) share it by its
        square, so that k of them have about 1/sqrt(k) of it each; others have 1/k of it.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of people is public.
    bound_y : float, optional
        Needed where outcomes are predicted: outcomes and predictions are clipped to [-bound_y, bound_y], and a held-out
        person costs the squared error, no more than `bound_y` squared. With classifiers an error costs 1.
    test_size : float, default 0.25
        Share of the people held out.
    refit_share : float, default 0.5
        Share of the budget kept for the last fit; 0 for none: the selected candidate is then the one fitted without the
        held-out rows. The best candidate at a small part of the budget is more regularised than the best at the whole
        budget.
    groups : array of shape (n_rows,), optional
        The owner of each row, if people may own several: the person is then the unit of privacy. All rows of a person
        are in one part, and the cost of a person is the mean of that of their rows. Every candidate must take people
        with several rows.
    max_rows : int, optional
        Goes with `groups`: most rows of a person that count, a public number; further ones are left out.
    ledger : Ledger, optional
        The budget to pay from. Later fits of the selected estimator pay from it too.
    random_state : int, optional
        A seed for tests, which voids the guarantee.

    Returns
    -------
    Selection
        The estimator chosen, as ``best_estimator_``; it predicts itself.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong kind, or a candidate cannot be fitted; nothing is spent then.
    BudgetExceeded
        If the ledger has too little left; no data is read then.

    Warns
    -----
    UtilityWarning
        If the pick is mostly noise by public numbers. Also if this is true, by public or released numbers, of most
        candidates at their parts of the budget, or of the last fit.

    References
    ----------
    McSherry, F., Talwar, K. (2007). Mechanism design via differential privacy. FOCS. Section 3.
    McSherry, F. (2009). Privacy integrated queries. SIGMOD. Theorem 4 (parallel composition).

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import MultiOutcomeRidge, select
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 4))
    >>> y = X @ [0.5, 0.0, 0.5, -0.5]
    >>> candidates = [MultiOutcomeRidge(1.0, bound_x=1.0, bound_y=1.0, ridge=ridge) for ridge in (1e1, 1e5)]
    >>> chosen = select(candidates, X, y, epsilon=1.0, delta=1e-6, bound_y=1.0, random_state=0)
    >>> chosen.best_index_, chosen.privacy_spent_
    (0, Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one'))
    """
    privacy = Privacy(epsilon, delta, adjacency)
    if math.isinf(privacy.epsilon):
        raise ValueError("epsilon must be finite: without a budget to share, use scikit-learn's GridSearchCV")
    if ledger is not None and not isinstance(ledger, Ledger):
        raise TypeError(f"ledger must be a dpfast.Ledger or None, got {type(ledger).__name__}")
    fitted = candidate.checked(estimators, privacy, ledger)
    scoring = _scoring(fitted)
    cost_of = _cost(scoring, bound_y)
    check.share("test_size", test_size)
    if check.nonnegative("refit_share", refit_share) >= 1.0:
        raise ValueError(f"refit_share must be below 1, got {refit_share!r}: something must be left to choose by")
    if 0.0 < refit_share < 2.0**-40:
        raise ValueError(f"refit_share must be 0 or at least 2**-40, got {refit_share!r}")
    unit: Unit = "person" if check_people(groups, max_rows) else "row"
    parts = candidate.budgets(fitted, privacy, float(refit_share))
    pick = HeldOutPick.calibrate(parts.pick, unit=unit)
    public_count = privacy.adjacency == "replace_one"
    releases: tuple[Release, ...] = ()
    with paying(ledger, privacy).reserving(privacy, unit=unit, random_state=random_state) as reservation:
        source = noise.resolve_source(random_state, reservation)
        people = _People(*_tables(X, y, fitted, scoring, groups))
        if groups is not None:
            people = people.counted(groups, max_rows)
        if public_count and people.number < 2:
            what = "rows" if groups is None else "people"
            raise ValueError(f"X must have at least 2 {what}, one to fit and one to hold out, got {people.number}")
        n_held_out = count_held_out(people.number, float(test_size))
        _rehearse(fitted, parts.fits, people, people.number - n_held_out if public_count else 0)
        split = source.bound("select: who is held out", pick, float(test_size))
        others = held_out(people.number, float(test_size), split, public_count=public_count)
        own = np.setdiff1d(np.arange(people.number), others, assume_unique=True)
        learned, judged = people.of(own), people.of(others)
        unfitted, said = [clone(one) for one in fitted], []
        for index, (estimator, part) in enumerate(zip(fitted, parts.fits, strict=True)):
            name, seeds = f"select, estimators[{index}]", _seeds(source, index, part)
            with apart(candidate.allowance(name, part, reservation, unit=unit)):
                said.append(candidate.fit(estimator, part, seeds, *learned.fitted))
            releases += candidate.record(estimator, name, ledger)
        picked = pick.release([judged.cost(cost_of, one) for one in fitted], source, "select: which estimator")
        releases += (picked,)
        best = int(picked.values["index"])
        chosen, cautions = fitted[best], said[best]
        if parts.refits[best]:
            name, seeds = "select, refit", _seeds(source, len(fitted), parts.refits[best])
            chosen = unfitted[best]
            with apart(candidate.allowance(name, parts.refits[best], reservation, unit=unit, part=None)):
                cautions = candidate.fit(chosen, parts.refits[best], seeds, *people.fitted)
            releases += candidate.record(chosen, name, ledger, part=None)
        selection = Selection(chosen, best, tuple(fitted), releases, privacy)
        waiting = Waiting(releases, lambda: selection)
        reservation.commit(*releases)
    noisy = sum(any(issubclass(one.category, UtilityWarning) for one in own) for own in said)
    told = [(str(caution.message), caution.category) for caution in cautions]
    told += _cautions(pick, len(fitted), noisy, n_held_out if public_count else None, scoring)
    for message, category in told:
        # A user who turns warnings into errors has paid, and gets the result.
        with suppress(category):
            warn(message, category)
    return waiting.complete()


class _People(NamedTuple):
    """Rows of people: not private."""

    X: Any
    y: NDArray[Any]
    #: If people own several: the number of each row's person, and the most rows of one that count.
    whose: IntArray | None = None
    max_rows: int | None = None

    def counted(self, groups: ArrayLike, max_rows: int | None) -> _People:
        """Return the rows that count, person after person."""
        found = io.people(groups, check.positive_integer("max_rows", max_rows))
        found.check_length(len(self.y))
        rows = np.arange(found.n_rows) if found.order is None else found.order
        whose = np.repeat(np.arange(found.n_people), np.diff(found.offsets))
        return _People(_safe_indexing(self.X, rows), self.y[rows], whose, max_rows)

    @property
    def number(self) -> int:
        """How many there are."""
        if self.whose is None:
            return len(self.y)
        return int(self.whose[-1]) + 1 if len(self.whose) else 0

    def of(self, chosen: IntArray) -> _People:
        """Return some of them."""
        if self.whose is None:
            return _People(_safe_indexing(self.X, chosen), self.y[chosen])
        rows = np.flatnonzero(np.isin(self.whose, chosen))
        return _People(_safe_indexing(self.X, rows), self.y[rows], self.whose[rows], self.max_rows)

    @property
    def fitted(self) -> tuple[Any, ...]:
        """What a candidate is fitted to."""
        return (self.X, self.y) if self.whose is None else tuple(self)

    def cost(self, cost_of: Callable[..., int], model: Any) -> int:
        """Return what a model costs on them."""
        return cost_of(model, self.y, self.X, **({} if self.whose is None else {"whose": self.whose}))


def _scoring(estimators: Sequence[Any]) -> Scoring:
    classifiers = {is_classifier(estimator) for estimator in estimators}
    if len(classifiers) > 1:
        raise ValueError("estimators must all be classifiers, or all predict numbers")
    return "accuracy" if classifiers.pop() else "squared_error"


def _cost(scoring: Scoring, bound_y: float | None) -> Callable[..., int]:
    """Return a function that sums the costs of held-out people, from a model, their outcomes and their rows."""
    if scoring == "accuracy":
        return cost_of_labels
    if bound_y is None:
        raise ValueError("bound_y must be given for squared errors: it bounds what one person adds to a score")
    return partial(cost_of_outcomes, bound_y=check.positive("bound_y", bound_y))


def _seeds(source: noise.BitSource, index: int, parts: Sequence[Privacy]) -> list[int | None]:
    """Return a seed for each step of a fit: from the seed given, none where none was."""
    if not source.reproducible:
        return [None] * len(parts)
    return [int(source.bound("select: a fit", index, step).words(1)[0]) for step in range(len(parts))]


def _rehearse(estimators: Sequence[Any], parts: Sequence[Sequence[Privacy]], people: _People, n_fitted: int) -> None:
    """Fit made-up data of as many people and the same columns: errors raised by it are public.

    After the held-out rows are drawn, an error would reveal the part a row is in. It is then paid for, and its text is
    not shown.
    """
    X, y, several = people.X, people.y, people.whose is not None
    rows: Any = np.zeros((n_fitted, io.open_table(X, may_copy=True).n_features))
    # A row each, as how many there are is private.
    whose = (np.arange(n_fitted), people.max_rows) if several else ()
    names = columns_of(X).get("feature_names_in_")
    if names is not None:
        # Limits by name are for columns that have one: frames, of pandas or Polars, which both are made so.
        rows = type(X)(dict(zip(names, rows.T, strict=True)))
    for index, (estimator, part) in enumerate(zip(estimators, parts, strict=True)):
        public = clone(estimator)
        outcome = candidate.private_steps(public)[-1].classes[0] if is_classifier(public) else 0.0
        outcomes = np.full((n_fitted, *y.shape[1:]), outcome)
        try:
            with apart(candidate.allowance("", part, unit="person" if several else "row")):
                candidate.fit(public, part, [None] * len(part), rows, outcomes, *whose)
        except (TypeError, ValueError) as error:
            raise type(error)(f"estimators[{index}]: {error}") from None
        except PaidFailure:
            raise ValueError(f"estimators[{index}] must be one that can be fitted, and rows of zeros cannot") from None


def _tables(X: Any, y: Any, estimators: Sequence[Any], scoring: Scoring, groups: Any) -> tuple[Any, NDArray[Any]]:
    """Return tables with separable rows; bad ones are refused as a whole, so errors do not depend on the split."""
    io.check_aligned(X=X, y=y, groups=groups)
    for name, table in (("X", X), ("y", y)):
        is_frame = hasattr(table, "iloc") or hasattr(table, "rows")
        # Labels may be a column of Polars or Arrow, which are arrays as they are.
        is_column = table is y and hasattr(table, "__array__")
        if not (isinstance(table, list | tuple | np.ndarray) or is_frame or is_column):
            raise TypeError(f"{name} must be an array or a data frame in memory, got a {type(table).__name__}")
        if hasattr(table, "dask"):
            raise TypeError(f"{name} must be in memory: its rows are taken apart")
    X = io.as_matrix(X, "X") if isinstance(X, list | tuple) else X
    if scoring == "accuracy":
        # Entries of a list stay as they are: one among them must not make text, or doubles, of all.
        kind = object if isinstance(y, list | tuple) else None
        outcomes = io.redact_errors(lambda: np.asarray(y, kind), "y must hold a label for each row of X")
        outcomes = outcomes[:, 0] if outcomes.ndim == 2 and outcomes.shape[1] == 1 else outcomes
    else:
        # Lists that begin with text would be read as paths.
        listed = isinstance(y, list | tuple)
        read = io.as_matrix(y, "y", is_outcome=True) if listed else io.in_memory(y, "y", is_outcome=True, may_copy=True)
        if read is None:
            raise TypeError(f"y must be an array or a data frame in memory, got a {type(y).__name__}")
        outcomes = read.astype(np.float64)
        outcomes = outcomes[:, 0] if np.ndim(y) == 1 else outcomes
        if not np.isfinite(outcomes).all():
            raise check.not_finite("y")
    if outcomes.ndim not in ((1,) if scoring == "accuracy" else (1, 2)) or len(X) != len(outcomes):
        raise ValueError("y must have a label, or outcomes, for each row of X")
    io.open_table(X, may_copy=True).check_finite()
    if scoring == "accuracy":
        for estimator in estimators:
            candidate.private_steps(estimator)[-1]._opened(X, outcomes)
    return X, outcomes


def _cautions(
    pick: HeldOutPick, n_models: int, noisy: int, n_held_out: int | None, scoring: Scoring
) -> Iterator[tuple[str, type[Warning]]]:
    """Warn if models are mostly noise, by their number of warnings, or if the pick is, by public numbers."""
    if 2 * noisy > n_models:
        yield (
            f"{noisy} of {n_models} candidates are mostly noise, fitted with their part of the budget: what is picked "
            "among them says little of what is best with the rest of it. List fewer candidates, or trust the defaults.",
            ReleasedUtilityWarning,
        )
    lost = 0.0 if n_held_out is None else pick.lost(n_models, n_held_out) / _WHOLE[scoring]
    if lost >= _USELESS:
        what = "of accuracy" if scoring == "accuracy" else "of what there is to explain"
        yield (
            f"with {n_held_out} people held out and {n_models} candidates, the pick at epsilon "
            f"{pick.privacy.epsilon:.6g} is expected to lose up to {100.0 * min(lost, 1.0):.0f}% {what}: mostly noise. "
            "List fewer candidates, or hold out more people.",
            UtilityWarning,
        )
