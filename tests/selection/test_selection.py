"""Selection end to end: it finds what predicts, pays once, keeps nothing but what was released."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from dpfast import (
    BudgetExceeded,
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    PaidFailure,
    Privacy,
    PrivateStandardScaler,
    SparseRegression,
    UtilityWarning,
    select,
)
from dpfast._arguments import NotFiniteError, not_finite
from dpfast.privacy import compose_mu, gaussian_mu
from dpfast.privacy.guarantee import ReleasedUtilityWarning
from dpfast.selection import candidates
from dpfast.solvers import Box, L2Ball

N = 4000
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def ridge(penalty=1.0, **options):
    return MultiOutcomeRidge(1.0, 1e-6, **{"bound_x": 1.0, "bound_y": 1.0, "ridge": penalty, "refine": 0} | options)


def classifier(penalty=1.0, **options):
    return ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=["no", "yes"], ridge=penalty, **options)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (N, 3))
    return X, X @ [1.0, 0.0, -0.5]


@pytest.fixture(scope="module")
def labels(table):
    return table[0], np.where(table[1] > 0.0, "yes", "no")


def sure(signs):
    """Regressors that predict about the sign times the first feature, whatever is drawn."""
    edges = [Box(low=[sign - 1e-3, -1e-3, -1e-3], high=[sign + 1e-3, 1e-3, 1e-3]) for sign in signs]
    return [
        ObjectivePerturbationRegressor(1.0, bound_x=1.0, bound_y=1.0, constraint=edge, fit_intercept=False)
        for edge in edges
    ]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_what_predicts_people_held_out_is_chosen(table, adjacency):
    X, _ = table
    chosen = select(sure([0.0, -1.0, 1.0]), X, X[:, 0], epsilon=4.0, adjacency=adjacency, bound_y=1.0)
    assert chosen.best_index_ == 2
    assert np.abs(chosen.predict(X) - X[:, 0]).max() < 0.01


@pytest.mark.parametrize("refit", [0.0, 0.5])
def test_a_ledger_is_charged_once_with_every_release_on_record(table, refit):
    ledger = Ledger(Privacy(1.0, 1e-6))
    candidates = [ridge(1.0), ridge(1e3)]
    chosen = select(candidates, *table, **BUDGET, bound_y=1.0, ledger=ledger, refit_share=refit)
    assert (ledger.spent, chosen.privacy_spent_) == (Privacy(1.0, 1e-6), Privacy(1.0, 1e-6))
    assert ledger.releases == chosen.releases_
    parts = ["fitted", "fitted", "held-out"] + [None] * (refit > 0.0)
    assert [release.part for release in chosen.releases_] == parts
    assert {release.time for release in chosen.releases_} == {chosen.releases_[0].time}
    assert chosen.releases_[:2] == tuple(one for fitted in chosen.estimators_ for one in fitted.releases_)
    if refit:
        assert chosen.best_estimator_.releases_ == chosen.releases_[3:]
    else:
        assert chosen.best_estimator_ is chosen.estimators_[chosen.best_index_]
    # What is returned pays from the ledger too, and what was given is as it was.
    assert chosen.best_estimator_.ledger is ledger
    assert all(one.ledger is None and not hasattr(one, "coef_") and one.epsilon == 1.0 for one in candidates)
    with pytest.raises(BudgetExceeded):
        chosen.best_estimator_.fit(*table)


def test_the_release_of_the_one_chosen_is_the_estimator(table):
    chosen = select([ridge(1.0), ridge(2.0)], *table, **BUDGET, bound_y=1.0)
    index = int(next(release for release in chosen.releases_ if release.part == "held-out").values["index"])
    assert chosen.best_index_ == index
    assert chosen.best_estimator_.ridge == [1.0, 2.0][index]
    assert chosen.n_features_in_ == 3


def test_a_summary_names_candidates_and_what_they_cost_but_no_scores(table):
    scaled = make_pipeline(PrivateStandardScaler(1.0, box_x=(-1, 1)), ridge(bound_x=3.0))
    chosen = select([ridge(1.0).set_output(predict="pandas"), scaled], *table, epsilon=1.0, delta=1e-6, bound_y=1.0)
    told = chosen.summary()
    assert told["estimator"].tolist() == [
        "MultiOutcomeRidge(bound_x=1.0)",
        "PrivateStandardScaler(box_x=(-1, 1)) + MultiOutcomeRidge(bound_x=3.0)",
    ]
    assert told["epsilon"][0] == chosen.estimators_[0].privacy_spent_.epsilon
    assert np.flatnonzero(told["chosen"]).tolist() == [chosen.best_index_]
    assert list(told) == ["estimator", "epsilon", "delta", "chosen"]


def test_candidates_of_one_kind_are_told_apart_by_their_settings(table):
    chosen = select([ridge(1.0), ridge(1e7)], *table, epsilon=1.0, delta=1e-6, bound_y=1.0)
    shown = ["MultiOutcomeRidge(ridge=1.0)", "MultiOutcomeRidge(ridge=10000000.0)"]
    assert chosen.summary()["estimator"].tolist() == shown
    assert "ridge=10000000.0" in chosen._repr_html_()


def test_pipelines_scale_within_the_budget(table):
    X, y = table
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(N) + 7)
    scaler = PrivateStandardScaler(0.3, 1e-6, box_x=(-0.5, 0.5))
    ledger = Ledger(Privacy(8.0, 1e-6))
    candidates = [make_pipeline(scaler, ridge(penalty, bound_x=3.0)) for penalty in (1.0, 1e7)]
    chosen = select(candidates, frame, pd.Series(y, frame.index), epsilon=8.0, delta=1e-6, bound_y=1.0, ledger=ledger)
    assert chosen.best_index_ == 0
    assert chosen.score(frame, y) > 0.9
    assert [release.part for release in ledger.releases] == ["fitted"] * 4 + ["held-out"] + [None] * 2


def test_classifiers_and_sparse_regressions_are_selected_too(table, labels):
    X, y = labels
    chosen = select([classifier(1.0), classifier(1e5)], X, y.tolist(), epsilon=16.0, delta=1e-6)
    assert chosen.best_index_ == 0
    assert chosen.classes_.tolist() == ["no", "yes"]
    assert chosen.predict_proba(X[:5]).shape == (5, 2)
    assert chosen.decision_function(X[:5]).shape == (5,)
    sparse = [SparseRegression(1.0, 1e-6, n_nonzero=k, selector="exponential") for k in (1, 2)]
    chosen = select(sparse, *table, epsilon=4.0, delta=1e-6, bound_y=1.0)
    assert chosen.predict(X[:2]).shape == (2,)
    assert not hasattr(chosen, "predict_proba")


def test_candidates_that_pick_features_share_mu(table):
    """Alone their picks have a longer range, and would cost more than their part of what all share."""
    sparse = [SparseRegression(1.0, 1e-6, n_nonzero=k) for k in (1, 2)]
    ledger = Ledger(Privacy(**BUDGET))
    chosen = select(sparse, *table, **BUDGET, bound_y=1.0, ledger=ledger)
    fitted = [one for one in ledger.releases if one.part is None or one.part == candidates.FITTED]
    assert sum(one.log_range is not None for one in fitted) >= 4
    assert compose_mu(one.mu for one in fitted) <= gaussian_mu(**BUDGET)
    assert not any("_shares_mu" in vars(one) for one in (*chosen.estimators_, *sparse))


def test_rows_may_be_a_frame_of_pandas_or_polars(labels):
    X, y = labels
    frames = [
        pytest.importorskip(name).DataFrame(dict(zip("abcdefgh", X.T, strict=False))) for name in ("pandas", "polars")
    ]
    picks = [
        select([classifier(), classifier(5.0)], one, y, **BUDGET, random_state=0).best_estimator_.coef_.tolist()
        for one in (X, *frames)
    ]
    assert picks == picks[:1] * 3


def test_labels_may_be_a_column_of_polars_or_arrow(labels):
    X, y = labels
    polars = pytest.importorskip("polars")
    columns = polars.Series("ill", y), polars.Series("ill", y).to_arrow()
    picks = [
        select([classifier(), classifier(5.0)], X, one, **BUDGET, random_state=0).best_estimator_.coef_.tolist()
        for one in (y, *columns)
    ]
    assert picks == picks[:1] * 3


@pytest.mark.parametrize("methods", [["gradient", "gradient"], ["objective", "gradient"], ["auto", "auto"]])
def test_methods_that_release_at_every_step_compose_with_others(labels, methods):
    X, y = labels
    ledger = Ledger(Privacy(2.0, 1e-6))
    options = {"bound_x": 1.0, "classes": ["no", "yes"]}
    # Delta is the selection's, where a candidate has none.
    candidates = [ObjectivePerturbationClassifier(1.0, method=method, **options) for method in methods]
    chosen = select(candidates, X, y, epsilon=2.0, delta=1e-6, ledger=ledger)
    assert ledger.spent == Privacy(2.0, 1e-6)
    assert chosen.score(X, y) > 0.9


@pytest.mark.parametrize("n", [0, 1, 2])
def test_where_their_number_is_private_any_number_of_people_will_do(labels, n):
    X, y = labels
    steps = [make_pipeline(PrivateStandardScaler(1.0, 1e-6, box_x=(-1.0, 1.0)), classifier(k)) for k in (1.0, 2.0)]
    with warnings.catch_warnings():
        # Nothing but what was released may be warned of.
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ReleasedUtilityWarning)
        chosen = select(steps, X[:n], y[:n], **BUDGET, adjacency="add_remove")
    assert chosen.best_index_ in (0, 1)


def test_a_seed_repeats_a_selection_and_nothing_else_does(table):
    candidates = [ridge(1.0), ridge(1.0)]
    one, same, other, fresh = (
        select(candidates, *table, **BUDGET, bound_y=1.0, random_state=seed) for seed in (1, 1, 2, None)
    )
    assert np.array_equal(one.best_estimator_.coef_, same.best_estimator_.coef_)
    assert not np.array_equal(one.best_estimator_.coef_, other.best_estimator_.coef_)
    # Candidates that are alike have noise of their own.
    assert not np.array_equal(one.estimators_[0].coef_, one.estimators_[1].coef_)
    assert all(release.reproducible for release in one.releases_)
    assert not any(release.reproducible for release in fresh.releases_)


def test_who_is_held_out_is_drawn_anew_and_leaves_no_trace(monkeypatch, table):
    from dpfast import noise

    drawn = []
    draw = noise.sample_without_replacement

    def seen(n, m, source):
        assert isinstance(source, noise.SecureSource)
        drawn.append(draw(n, m, source))
        return drawn[-1]

    monkeypatch.setattr(noise, "sample_without_replacement", seen)
    fitted = [select([ridge(1.0), ridge(2.0)], *table, **BUDGET, bound_y=1.0) for _ in range(2)]
    assert len(drawn[0]) == len(drawn[1]) == N // 4
    assert set(drawn[0]) != set(drawn[1])
    for chosen in fitted:
        assert set(vars(chosen)) == {"best_estimator_", "best_index_", "estimators_", "releases_", "privacy_spent_"}
        # No list of who was held out is anywhere in it.
        assert len(pickle.dumps(chosen)) < 8 * len(drawn[0])


def test_nobody_held_out_is_fitted_and_nobody_fitted_is_asked(monkeypatch, table):
    from dpfast.selection import selection

    X, y = table
    numbered = np.column_stack([X, np.arange(N) / N / 2])
    learned, judged = [], []
    fit, cost = selection.candidate.fit, selection.cost_of_outcomes

    def fitting(estimator, parts, seeds, rows, outcomes):
        # A rehearsal has rows of zeros.
        learned.extend([set(rows[:, 3].tolist())] if rows.any() else [])
        return fit(estimator, parts, seeds, rows, outcomes)

    def costing(model, outcomes, rows, bound_y):
        judged.append(set(rows[:, 3].tolist()))
        return cost(model, outcomes, rows, bound_y)

    monkeypatch.setattr(selection.candidate, "fit", fitting)
    monkeypatch.setattr(selection, "cost_of_outcomes", costing)
    select([ridge(1.0), ridge(2.0)], numbered, y, **BUDGET, bound_y=1.0)
    everybody = set(numbered[:, 3].tolist())
    assert learned[0] == learned[1] == everybody - judged[0]
    assert judged[0] == judged[1]
    assert len(judged[0]) == N // 4
    assert learned[2] == everybody


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"epsilon": math.inf}, ValueError, "epsilon"),
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"delta": 2.0}, ValueError, "delta"),
        ({"adjacency": "both"}, ValueError, "adjacency"),
        ({"bound_y": None}, ValueError, "bound_y"),
        ({"bound_y": -1.0}, ValueError, "bound_y"),
        ({"test_size": 0.0}, ValueError, "test_size"),
        ({"test_size": 1.0}, ValueError, "test_size"),
        ({"refit_share": 1.0}, ValueError, "refit_share"),
        ({"refit_share": -0.5}, ValueError, "refit_share"),
        ({"ledger": "file"}, TypeError, "ledger"),
        ({"random_state": np.random.default_rng(0)}, TypeError, "random_state"),
        ({"estimators": [ridge(), classifier()]}, ValueError, "estimators"),
        ({"estimators": [ridge(), Ridge()]}, TypeError, "estimators"),
        ({"X": iter([1])}, TypeError, "X"),
        ({"y": iter([1])}, TypeError, "y"),
        ({"y": np.zeros(3)}, ValueError, "y must"),
        ({"y": np.full(N, np.nan)}, ValueError, "y contains NaN"),
        ({"y": ["word"] * N}, TypeError, "y has dtype str"),
        ({"X": np.zeros((1, 3)), "y": np.zeros(1)}, ValueError, "2 rows"),
        ({"X": np.full((N, 3), np.inf)}, ValueError, "X"),
    ],
)
def test_what_cannot_be_selected_by_is_refused_and_costs_nothing(table, arguments, error, words):
    ledger = Ledger(Privacy(1.0, 1e-6))
    given = {"estimators": [ridge(), ridge()], "X": table[0], "y": table[1], "bound_y": 1.0, "ledger": ledger} | BUDGET
    with pytest.raises(error, match=words):
        select(**given | arguments)
    assert ledger.releases == ()
    assert ledger.remaining == Privacy(1.0, 1e-6)


def test_a_candidate_that_fails_on_the_table_fails_the_selection_at_no_cost(labels):
    X, y = labels
    ledger = Ledger(Privacy(1.0, 1e-6))
    undeclared = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=["no", "perhaps"], fit_intercept=False)
    with pytest.raises(ValueError, match="declared classes"):
        select([classifier(), undeclared], X, y, **BUDGET, ledger=ledger)
    assert ledger.remaining == Privacy(1.0, 1e-6)
    assert ledger.releases == ()


FEW = 24
LABELLED = {"classifier", "scaled classifier"}
CANDIDATES = {
    "ridge": ridge,
    "huber": lambda: ObjectivePerturbationRegressor(1.0, bound_x=1.0, bound_y=1.0, loss="huber", fit_intercept=False),
    "sparse": lambda: SparseRegression(1.0, 1e-6, n_nonzero=1, selector="exponential"),
    "scaled": lambda: make_pipeline(PrivateStandardScaler(1.0, 1e-6, box_x=(-1.0, 1.0)), ridge(bound_x=3.0)),
    "classifier": classifier,
    "scaled classifier": lambda: make_pipeline(PrivateStandardScaler(1.0, 1e-6, box_x=(-1.0, 1.0)), classifier()),
}
X_REFUSED, Y_REFUSED = (str(not_finite(name)) for name in "Xy")
NO_NUMBER = "y has dtype {}; real numbers are needed (float, integer or bool)"
BAD_OUTCOMES = [
    (np.nan, NotFiniteError, Y_REFUSED),
    (-np.inf, NotFiniteError, Y_REFUSED),
    (None, TypeError, NO_NUMBER.format("object")),
    ("word", TypeError, NO_NUMBER.format("str")),
    (1j, ValueError, "Complex data not supported: y has dtype complex128"),
]
UNDECLARED = (
    "y holds labels outside the declared classes: declare in classes every label that may occur, from public "
    "knowledge; or leave rows of others out, with adjacency='add_remove', which hides how many"
)
BAD_LABELS = [(label, ValueError, UNDECLARED) for label in ("perhaps", None, np.nan, 1, ("no",), {})]


def refusals(name, X, y, adjacency, refit_share):
    """What is said over several draws of who is held out; nothing is to be spent."""
    said = set()
    scored = {} if name in LABELLED else {"bound_y": 1.0}
    for seed in range(6):
        ledger = Ledger(Privacy(1.0, 1e-6, adjacency))
        options = {"adjacency": adjacency, "refit_share": refit_share, "test_size": 0.5, "random_state": seed}
        try:
            select([CANDIDATES[name]()], X, y, **BUDGET, **options, **scored, ledger=ledger)
        except Exception as error:
            said.add((type(error), str(error), error.__context__))
        else:
            said.add(None)
            continue
        assert (ledger.remaining, ledger.releases) == (Privacy(1.0, 1e-6, adjacency), ())
    return said


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", CANDIDATES)
def test_a_bad_row_is_refused_in_the_same_words_whether_it_is_held_out_or_not(table, labels, name, adjacency):
    X, y = table[0][:FEW], (labels if name in LABELLED else table)[1][:FEW].tolist()
    for place, refit_share in ((0, 0.0), (FEW // 2, 0.5), (FEW - 1, 0.0)):
        for entry, kinds in ((np.nan, (np.array, pd.DataFrame)), (np.inf, (np.ndarray.tolist, np.float32))):
            bad = X.copy()
            bad[place, 1] = entry
            for given in (kind(bad) for kind in kinds):
                assert refusals(name, given, y, adjacency, refit_share) == {(NotFiniteError, X_REFUSED, None)}
        for entry, kind, words in BAD_LABELS if name in LABELLED else BAD_OUTCOMES:
            given = [*y[:place], entry, *y[place + 1 :]]
            assert refusals(name, X, given, adjacency, refit_share) == {(kind, words, None)}
        for entry in ([], ["word", 0.0, 0.0], [0.0, None, 0.0], [0.0, 10**400, 0.0], [0.0, 1j, 0.0]):
            said = refusals(name, [*X[:place].tolist(), entry, *X[place + 1 :].tolist()], y, adjacency, refit_share)
            assert len(said) == 1
            assert None not in said
        assert len(refusals(name, X[:-1], y, adjacency, refit_share) - {None}) == 1


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_what_fails_in_either_part_is_said_in_the_same_words(monkeypatch, table, adjacency):
    from dpfast.selection import selection

    X, y = table[0][:FEW], table[1][:FEW]
    fit, cost = selection.candidate.fit, selection.cost_of_outcomes

    def fitting(estimator, parts, seeds, rows, outcomes):
        if X[3, 0] in rows[:, 0]:
            raise TypeError("it is fitted")
        return fit(estimator, parts, seeds, rows, outcomes)

    def costing(model, outcomes, rows, bound_y):
        if X[3, 0] in rows[:, 0]:
            raise ZeroDivisionError("it is held out")
        return cost(model, outcomes, rows, bound_y)

    monkeypatch.setattr(selection.candidate, "fit", fitting)
    monkeypatch.setattr(selection, "cost_of_outcomes", costing)
    said = set()
    for seed in range(6):
        ledger = Ledger(Privacy(1.0, 1e-6, adjacency))
        options = {"adjacency": adjacency, "refit_share": 0.0, "test_size": 0.5, "random_state": seed}
        with pytest.raises(PaidFailure) as failure:
            select([ridge()], X, y, **BUDGET, **options, bound_y=1.0, ledger=ledger)
        said.add((str(failure.value), failure.value.__cause__, failure.value.__context__))
        assert ledger.spent == Privacy(1.0, 1e-6, adjacency)
    assert len(said) == 1
    assert next(iter(said))[1:] == (None, None)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("name", CANDIDATES)
def test_rows_far_out_and_parts_of_nobody_are_no_failure(table, labels, name, adjacency, n):
    X, y = (labels if name in LABELLED else table)[:2]
    assert refusals(name, X[:n], y[:n], adjacency, 0.0) == {None}
    if not name.startswith("scaled"):
        far = X[:n].copy()
        far[0] = -1.7e308
        assert refusals(name, far, y[:n], adjacency, 0.0) == {None}


def test_what_no_table_of_that_shape_could_be_fitted_with_is_said(table):
    sparse = SparseRegression(1.0, 1e-6, n_nonzero=5, selector="exponential")
    with pytest.raises(ValueError, match=r"^estimators\[1\]: n_nonzero must be at most the number of features, 3"):
        select([ridge(), sparse], *table, **BUDGET, bound_y=1.0)


def test_an_exhausted_ledger_stops_it_before_a_row_is_read():
    class Unread:
        iloc = None

        def __len__(self):
            raise AssertionError("read")

    with pytest.raises(BudgetExceeded):
        select([ridge()], Unread(), Unread(), **BUDGET, bound_y=1.0, ledger=Ledger(Privacy(0.5, 1e-6)))


def test_public_numbers_tell_where_the_pick_is_mostly_noise(labels):
    X, y = labels
    with pytest.warns(UtilityWarning, match=r"with 5 people held out and 2 candidates"):
        select([classifier(), classifier()], X[:20], y[:20], **BUDGET)


def test_it_tells_where_candidates_are_mostly_noise_with_their_parts_of_the_budget(table):
    X, y = table
    with pytest.warns(UtilityWarning, match="8 of 8 candidates are mostly noise"):
        select([ridge()] * 8, X[:200], y[:200], **BUDGET, bound_y=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        select([ridge()] * 2, X, y, epsilon=8.0, delta=1e-6, bound_y=1.0)


def test_whoever_makes_errors_of_warnings_gets_what_was_paid_for(table):
    X, y = table
    ledger = Ledger(Privacy(0.01, 1e-6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = select([ridge(), ridge()], X[:50], y[:50], epsilon=0.01, delta=1e-6, bound_y=1.0, ledger=ledger)
    assert chosen.predict(X).shape == (N,)
    assert ledger.spent == Privacy(0.01, 1e-6)
    assert len(ledger.releases) == 4


def test_several_outcomes_and_a_ball_are_selected_by(table):
    X, y = table
    chosen = select([ridge(1.0), ridge(1e6)], X, np.column_stack([y, -y]), epsilon=8.0, delta=1e-6, bound_y=1.0)
    assert chosen.best_index_ == 0
    assert chosen.predict(X).shape == (N, 2)
    ball = ObjectivePerturbationRegressor(1.0, bound_x=1.0, bound_y=1.0, constraint=L2Ball(1.0), fit_intercept=False)
    assert select([ball], X, y, epsilon=1.0, bound_y=1.0).best_index_ == 0


@pytest.mark.parametrize("refit", [0.0, 0.5])
def test_a_block_pays_once_for_all_that_is_fitted(table, refit):
    with Ledger(Privacy(1.0, 1e-6)) as ledger:
        chosen = select([ridge(1.0), ridge(1e3)], *table, **BUDGET, bound_y=1.0, refit_share=refit)
    assert ledger.costs == (Privacy(1.0, 1e-6),)
    assert ledger.releases == chosen.releases_


def test_what_the_last_fit_released_is_on_record_where_it_fails(monkeypatch, table):
    fit, ledger = candidates.fit, Ledger(Privacy(1.0, 1e-6))

    def failing(estimator, parts, seeds, rows, outcomes):
        said = fit(estimator, parts, seeds, rows, outcomes)
        if len(rows) == N:
            raise ValueError("it is fitted to all rows")
        return said

    monkeypatch.setattr(candidates, "fit", failing)
    with pytest.raises(PaidFailure):
        select([ridge(1.0), ridge(1e3)], *table, **BUDGET, bound_y=1.0, ledger=ledger, refit_share=0.5)
    assert [one.name.partition(":")[0] for one in ledger.releases][-1] == "select, refit"
    assert ledger.costs == (Privacy(1.0, 1e-6),)
