"""Features of jobs that are made of columns: what they become is what the same declaration becomes in Python."""

import numpy as np
import pytest
from jobs.examples import table_of, write_job

from dpfast import MultiOutcomeRidge, ObjectivePerturbationClassifier
from dpfast.cli import main
from dpfast.io import Boolean, Category, Columns, Interaction, Log, Number, Polynomial, Spline

pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::dpfast.privacy.guarantee.ReleasedUtilityWarning")

PLAIN = "dose = { low = -3, high = 3 }\n"
AGE = "age = { low = 18, high = 100, missing = 50 }\n"
DECLARED = """\
age = { kind = "spline", low = 18, high = 100, knots = [40, 65], missing = 50 }
log_age = { kind = "log", column = "age", low = 18, high = 100, missing = 50 }
age2 = { kind = "polynomial", column = "age", low = 18, high = 100, degree = 2, missing = 50 }
"age2 by smoker" = { of = ["age2", "smoker"] }
"site by smoker" = { kind = "interaction", of = ["site", "smoker"] }
"""
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "bound_y": 30.0, "random_state": 0}


def declared():
    age = Number("age", missing=50.0, low=18.0, high=100.0)
    smoker = Boolean("smoker", missing=False)
    site = Category("site", ("Bern", "Basel", "Genf"), drop_first=True, undeclared="zeros")
    several = [Spline(age, (40.0, 65.0)), Log(age), Polynomial(age, 2)]
    products = [Interaction(Polynomial(age, 2), smoker), Interaction(site, smoker)]
    return Columns([*several, *products, smoker, site], [Number("days"), Boolean("readmitted")])


def job(folder, features=DECLARED, kind="multi_outcome_ridge", table=None):
    changes = ("# random_state = 10", "random_state = 0"), ("# plots = false", "plots = false")
    return write_job(folder, kind, (AGE if kind == "multi_outcome_ridge" else PLAIN, features), *changes, table=table)


def test_transforms_of_a_job_are_those_of_python(tmp_path):
    frame = table_of("multi_outcome_ridge")
    frame.loc[::7, "age"] = np.nan
    assert main(["fit", str(job(tmp_path, table=frame))]) == 0
    model = MultiOutcomeRidge.load(tmp_path / "fit" / "model.json")
    columns = declared()
    expected = MultiOutcomeRidge(**BUDGET, box_x=columns.box).fit(columns.encode(frame))
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert list(model.feature_names_in_) == list(columns.feature_names)


def test_a_plan_knows_how_many_features_they_are(tmp_path, capsys):
    assert main(["plan", str(job(tmp_path))]) == 0
    assert "people" in capsys.readouterr().out


@pytest.mark.parametrize("bound", ["", "bound_x = 3.0"])
def test_transforms_are_limits_and_go_with_numbers_without_any_where_rows_have_a_bound(tmp_path, bound):
    age = 'age = { kind = "polynomial", low = 18, high = 100, degree = 1 }\n'
    features = age + '"age by smoker" = { of = ["age", "smoker"] }\n'
    path = job(tmp_path, features + 'dose = "number"\n' * bool(bound), "objective_perturbation_classifier")
    path.write_text(path.read_text().replace("# bound_x = 1.0", bound))
    assert main(["fit", str(path)]) == 0
    model = ObjectivePerturbationClassifier.load(tmp_path / "fit" / "model.json")
    assert (model.box_x is None) == bool(bound)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ('age = { kind = "log", low = 0, high = 9 }\n', r"[features.age] low of column 'age' must be above 0"),
        ('age = { kind = "log" }\n', "[features.age] lacks the key 'low'"),
        ('age = { kind = "spline", low = 0, high = 9, knots = [] }\n', "[features.age] knots of bs(age) must hold"),
        ('age = { kind = "polynomial", low = 0, high = 9, degree = 0 }\n', "[features.age] degree of poly(age)"),
        ('age = { kind = "root", low = 0, high = 9 }\n', "kind"),
        ('age = { low = 0, high = 9 }\nboth = { of = ["age"] }\n', "[features.both] of must hold at least two names"),
        ('age = "number"\nboth = { of = ["age", "smoker"] }\n', "[features.both] column 'age' is declared without low"),
        ('age = { low = 0, high = 9 }\nboth = { of = ["age", "sex"] }\n', "[features.both] of must hold names of"),
        ('age = { kind = "log", column = "size", low = 1, high = 9 }\n', "has no column 'size'"),
    ],
)
def test_bad_declarations_are_refused_in_words(features, message, tmp_path, capsys):
    assert main(["check", str(job(tmp_path, features))]) == 2
    assert message in capsys.readouterr().err


def test_a_list_is_the_levels_of_a_category(tmp_path):
    path = job(tmp_path, AGE)
    text = path.read_text(encoding="utf-8")
    site = next(line for line in text.splitlines() if line.startswith("site = "))
    levels = ["Bern", "Basel", "Genf"]
    models = []
    for name, line in (("short", f"site = {levels}"), ("whole", f"site = {{ levels = {levels} }}")):
        changed = text.replace(site, line.replace("'", '"')).replace('folder = "fit"', f'folder = "{name}"')
        path.write_text(changed, encoding="utf-8")
        assert main(["fit", str(path)]) == 0
        models.append(MultiOutcomeRidge.load(tmp_path / name / "model.json"))
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    assert [name for name in models[0].feature_names_in_ if name.startswith("site")] == [
        f"site={one}" for one in levels
    ]


CATEGORIES = """
[input]
path = "table.csv"
[features]
smoker = "boolean"
site = ["Bern", "Basel", "Genf"]
[outcomes]
days = "number"
[estimator]
kind = "multi_outcome_ridge"
bound_y = 30.0
[privacy]
epsilon = 1.0
delta = 1e-6
[output]
folder = "fit"
plots = false
"""


def test_categories_and_booleans_are_limits_by_themselves(tmp_path, capsys):
    """They have 0 and 1: nobody has to declare low and high of numbers that are not there."""
    table_of("multi_outcome_ridge").to_csv(tmp_path / "table.csv", index=False)
    path = tmp_path / "job.toml"
    path.write_text(CATEGORIES)
    assert main(["fit", str(path)]) == 0
    columns = Columns([Boolean("smoker"), Category("site", ("Bern", "Basel", "Genf"))])
    fitted = MultiOutcomeRidge.load(tmp_path / "fit" / "model.json")
    np.testing.assert_array_equal(fitted.box_x, columns.box)
    assert fitted.bound_x is None
    path.write_text(CATEGORIES.replace("[outcomes]", 'age = "number"\n[outcomes]'))
    assert main(["check", str(path)]) == 2
    assert "nothing bounds the rows: declare low and high of every number" in capsys.readouterr().err
