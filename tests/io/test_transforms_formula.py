"""Formulas as declared columns: formulaic parses them, and learns nothing from rows."""

import sys

import numpy as np
import pytest

from dpfast import MultiOutcomeRidge
from dpfast.io import Boolean, Category, Columns, Interaction, Log, Number, Polynomial, Spline

pytest.importorskip("formulaic")
pd = pytest.importorskip("pandas")

SITES = ["Bern", "Basel", "Genf"]
LIMITS = {
    "age": (18, 90),
    "smoker": Boolean("smoker", missing=False),
    "site": SITES,
    "income": Number("income", missing=2e4, low=1e3, high=1e6),
    "body mass": (15, 45),
}
AGE, SMOKER, INCOME = Number("age", low=18.0, high=90.0), LIMITS["smoker"], LIMITS["income"]
SITE, ALL_SITES = Category("site", SITES, drop_first=True), Category("site", SITES)
SEX = Category("sex", ("f", "m"), drop_first=True)
MASS = Number("body mass", low=15.0, high=45.0)


@pytest.mark.parametrize(
    ("formula", "features", "outcomes"),
    [
        ("days ~ age + C(sex, levels=['f', 'm']) + age:smoker", [AGE, SEX, Interaction(AGE, SMOKER)], ["days"]),
        ("~ age", [AGE], []),
        ("age", [AGE], []),
        ("days ~ height", [Number("height")], ["days"]),
        ("days + cost ~ age * smoker", [AGE, SMOKER, Interaction(AGE, SMOKER)], ["days", "cost"]),
        ("log(income) ~ 1 + smoker", [SMOKER], [Log(INCOME)]),
        ("y ~ log(income) + np.log(`body mass`)", [Log(INCOME), Log(MASS)], ["y"]),
        ("y ~ poly(age, 3) + poly(`body mass`, degree=2)", [Polynomial(AGE, 3), Polynomial(MASS, 2)], ["y"]),
        ("y ~ bs(age, knots=[40, 65.5])", [Spline(AGE, (40.0, 65.5))], ["y"]),
        ("y ~ bs(age, (40,), 1):smoker", [Interaction(Spline(AGE, (40.0,), 1), SMOKER)], ["y"]),
        ("y ~ C(site, undeclared='zeros')", [Category("site", SITES, True, undeclared="zeros")], ["y"]),
        ("y ~ C(site, drop_first=False, missing='Genf')", [Category("site", SITES, missing="Genf")], ["y"]),
        ("y ~ C(ward, levels=[-1, 20])", [Category("ward", (-1, 20), drop_first=True)], ["y"]),
        ("y ~ C(`a b`, levels=['x`y`', '\"'])", [Category("a b", ("x`y`", '"'), drop_first=True)], ["y"]),
        # R's rule of which levels have indicators.
        ("y ~ site", [SITE], ["y"]),
        ("y ~ site:age", [Interaction(ALL_SITES, AGE)], ["y"]),
        ("y ~ age + site:age", [AGE, Interaction(SITE, AGE)], ["y"]),
        ("y ~ site + site:age", [SITE, Interaction(ALL_SITES, AGE)], ["y"]),
        ("y ~ site / smoker", [SITE, Interaction(ALL_SITES, SMOKER)], ["y"]),
        ("site ~ age", [AGE], [ALL_SITES]),
        # In the order of R: by the number of factors.
        (
            "y ~ (site + age + smoker) ** 2 - site:age",
            [SITE, AGE, SMOKER, Interaction(SITE, SMOKER), Interaction(AGE, SMOKER)],
            ["y"],
        ),
    ],
)
def test_terms_are_declared_columns(formula, features, outcomes):
    found = Columns.from_formula(formula, LIMITS)
    expected = Columns(features, outcomes)
    assert found.features == expected.features
    assert found.outcomes == expected.outcomes


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ bs(age, df=4)", r"formula has 'bs\(age, df=4\)', whose arguments are not those below"),
        ("y ~ bs(age, knots=knots)", "'bs.*', whose arguments are not those below, written out"),
        ("y ~ bs(age)", "'bs.*', whose arguments"),
        ("y ~ poly(age)", "'poly.*', whose arguments"),
        ("y ~ C(site, contr.sum)", "'C.*', whose arguments"),
        ("y ~ C(site, **{'levels': ['a', 'b']})", "'C.*', whose arguments|\"C.*\", whose arguments"),
        ("y ~ scale(age)", r"'scale\(age\)', which is not known, and might learn from rows"),
        ("y ~ center(age) + age", r"'center\(age\)', which is not known"),
        ("y ~ I(age ** 2)", r"'I\(age \*\* 2\)', which is not known"),
        ("y ~ {age + 1}", r"'age \+ 1', which is not known"),
        ("y ~ __import__('os')", "which is not known"),
        ("y ~ __import__('os').getcwd()", "cannot be read: a call is no Python"),
        ("y ~ log(age + 1)", r"'log\(age \+ 1\)', which is of no column by name"),
        ("y ~ log()", r"'log\(\)', which is of no column"),
        ("y ~ C(zip)", r"'C\(zip\)', whose levels are not declared, here or in limits"),
        ("y ~ C(age)", r"'C\(age\)', whose levels are not declared"),
        ("y ~ poly(site, 2)", r"'poly\(site, 2\)', and 'site' is no number"),
        ("y ~ 2:age", "'2', which is a number"),
        ("a:b ~ age", "'a:b', an interaction as an outcome"),
        ("y ~ age | site", "formula 'y ~ age | site' cannot be read: Operator"),
        ("y ~ .", "cannot be read"),
        ("y ~ age +", "cannot be read"),
        ("y ~ age)", "cannot be read"),
        ("y ~ age - 1", "the estimator's: fit_intercept=False"),
        ("y ~ 0 + age", "the estimator's: fit_intercept=False"),
        ("y ~ 1", "features must name at least one column"),
        ("y ~ height:age", "column 'height' is declared without low and high, which height:age needs"),
        ("y ~ log(height)", r"column 'height' is declared without low and high, which log\(height\) needs"),
        ("y ~ bs(age, knots=[200])", r"knots of bs\(age\) must ascend, between low and high"),
        ("age ~ log(age)", "declared as a feature and as an outcome"),
    ],
)
def test_what_is_not_declared_is_refused_by_name(formula, message):
    with pytest.raises(ValueError, match=message) as raised:
        Columns.from_formula(formula, LIMITS)
    if "formula" in str(raised.value) and "intercept" not in message:
        assert "accepted: names of columns, C(name, levels=[...])" in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("formula", "limits", "error", "message"),
    [
        (3, {}, TypeError, "formula must be a string, got int"),
        ("y ~ age", [("age", 1)], TypeError, "limits must be a mapping of names to limits or levels, got list"),
        (
            "y ~ age",
            {"age": "old"},
            TypeError,
            r"limits\['age'\] must be limits, \(low, high\), a list of levels, 'boolean'",
        ),
        ("y ~ age", {"age": [18, 90]}, ValueError, r"limits\['age'\] is ambiguous"),
        ("y ~ age", {"age": Number("wage")}, ValueError, r"limits\['age'\] declares another column, 'wage'"),
    ],
)
def test_bad_arguments(formula, limits, error, message):
    with pytest.raises(error, match=message):
        Columns.from_formula(formula, limits)


def test_without_formulaic_the_extra_is_named(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "formulaic"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"^a formula needs formulaic, .* pip install 'dpfast\[formula\]'$"):
        Columns.from_formula("y ~ age")


def test_a_formula_fits_what_declared_columns_do_and_warns_of_no_row():
    rng = np.random.default_rng(0)
    n = 2000
    frame = pd.DataFrame(
        {
            "age": rng.uniform(10, 100, n),
            "site": rng.choice([*SITES, "Chur"], n),
            "smoker": rng.choice([True, False, None], n),
            "income": np.exp(rng.normal(10, 1, n)),
            "days": rng.uniform(0, 20, n),
        }
    )
    formula = "days ~ age*smoker + log(income) + C(site, undeclared='zeros'):age + bs(age, knots=[40, 60])"
    site = Category("site", SITES, drop_first=True, undeclared="zeros")
    declared = Columns(
        [
            AGE,
            SMOKER,
            Log(INCOME),
            Spline(AGE, [40, 60]),
            Interaction(AGE, SMOKER),
            Interaction(site, AGE),
        ],
        ["days"],
    )
    fits = []
    for columns in (Columns.from_formula(formula, LIMITS), declared):
        model = MultiOutcomeRidge(1.0, 1e-6, box_x=columns.box, bound_y=20.0, random_state=1)
        fits.append(model.fit(columns.encode(frame), None))
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    assert tuple(fits[0].feature_names_in_) == declared.feature_names
