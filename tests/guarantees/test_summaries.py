"""What every fit owes those who publish it: a table of what was estimated, by name, and pages that show no more."""

import re
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, RELATED, SOME, people
from sklearn import config_context
from sklearn.pipeline import make_pipeline

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    Privacy,
    PrivateStandardScaler,
    Release,
    describe,
    private_bounds,
    select,
)
from dpfast.io import write_table
from dpfast.ledger.entries import guarantee_of, releases_html

pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning", "ignore::dpfast.UnsoundCalibrationWarning")
#: What columns are called where they hold the same.
KNOWN = {"estimate", "mean", "std_privacy", "std_error", "low", "high", "p_value"}
OWN = {"observed", "effect", "variance", "scale", "low_privacy", "high_privacy"}
OWN |= {f"{ratio}{limit}" for ratio in ("odds_ratio", "rate_ratio") for limit in ("", "_low", "_high")}


def fitted(name, **parameters):
    return FITS[name](*people(60), **parameters)


@pytest.mark.parametrize("name", FITS)
def test_every_fit_is_summed_up_in_a_frame_by_what_was_estimated(name, tmp_path):
    model = fitted(name)
    if not hasattr(model, "summary"):
        return  # batches of repeated fits
    table = model.summary()
    assert isinstance(table, pd.DataFrame)
    assert len(table) > 0
    assert table.index.is_unique
    assert all(level is not None for level in table.index.names)
    assert set(table.columns) <= KNOWN | OWN
    assert table.columns[0] in ("estimate", "mean", "observed")
    known = table.dropna()
    if "low" in table and len(known):
        assert np.all(known["low"] <= known["high"])
        # Those of synthetic control need not hold the estimate: they are of a ratio, or simulated.
        if "mean" in table or "std_privacy" in table:
            center = known["mean" if "mean" in known else "estimate"]
            assert np.all((known["low"] <= center) & (center <= known["high"]))
    pd.testing.assert_frame_equal(model.summary(), table)
    assert table.attrs["estimator"] == type(model).__name__
    assert table.attrs["guarantee"] == guarantee_of(model.releases_, model.privacy_spent_)
    # How many there are is said where that is public, and never what a private table holds.
    assert model.adjacency == "replace_one" or "n" not in table.attrs
    assert table.attrs.get("n", 60) in (60, 20, 40)
    assert "..." not in str(table).splitlines()[len(table.attrs) :]
    write_table(table, tmp_path / "table.csv")


PRIVATE_NUMBER = [name for name, fit in RELATED.items() if fit.estimator.adjacency == "add_remove"]


@pytest.mark.parametrize("name", PRIVATE_NUMBER)
def test_nothing_kept_says_how_many_people_there_are_where_that_is_private(name):
    """Of two tables the header and what it is made from differ in nothing but what was released."""
    assert len(PRIVATE_NUMBER) > len(FITS) / 2
    headers = []
    for n in (60, 61):
        model = RELATED[name](*people(n))
        if hasattr(model, "summary"):
            headers.append({k: v for k, v in model.summary().attrs.items() if k in ("estimator", "n", "unit")})
            assert model._n_public is None
    assert headers == headers[:1] * len(headers)


@pytest.mark.parametrize("name", [*FITS][::9])
def test_no_summary_without_a_fit_or_without_pandas(name, monkeypatch):
    fit = FITS[name]
    with pytest.raises(ValueError, match="not fitted yet"):
        fit.new().summary()
    model = fitted(name)
    if hasattr(model, "summary"):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match=r"pip install 'dpfast\[pandas\]'"):
            model.summary()


def parsed(page):
    """The text of a page: it is well formed, nothing in it runs, and nothing is loaded."""
    tree = ElementTree.fromstring(f"<page>{page}</page>")
    tags = {one.tag for one in tree.iter()}
    assert tags <= {"page", "style", "div", "details", "summary", "pre", *("table", "thead", "tbody", "tr", "th", "td")}
    assert {name for one in tree.iter() for name in one.attrib} <= {"class"}
    assert "url(" not in page
    assert "@import" not in page
    tree.remove(tree.find("style"))
    return " ".join(tree.itertext())


@pytest.mark.parametrize("name", FITS)
def test_every_fit_has_a_page_before_and_after(name):
    before = FITS[name].new(ledger=Ledger(Privacy(10.0, 1e-3, FITS[name].estimator.adjacency)))
    said = parsed(before._repr_html_())
    assert "not fitted" in said
    assert f"a fit costs {Privacy(before.epsilon, before.delta, before.adjacency)}" in said
    assert "left in its ledger" in said
    assert before.get_params(deep=False).keys() - {"epsilon", "delta", "adjacency", "ledger"} <= {*said.split()}
    after = fitted(name)
    if hasattr(after, "releases_"):
        said = parsed(after._repr_html_())
        assert "not fitted" not in said
        assert all(release.name[:90] in said for release in after.releases_[-12:])


def test_of_many_releases_a_page_shows_the_last_by_their_numbers():
    releases = [replace(fitted("ridge").releases_[0], name=f"release no. {number}") for number in range(1, 6)]
    for most in range(1, 8):
        page = ElementTree.fromstring(f"<page>{releases_html(releases, most)}</page>")
        first = max(0, 5 - most)
        shown = [[cell.text for cell in row.iter("td")][:2] for row in page.iter("tr")]
        shown = [row for row in shown if len(row) == 2 and "release no." in str(row[1])]
        assert shown == [[f"{number}", f"release no. {number}"] for number in range(first + 1, 6)]
        assert (f"and {first} before these" in " ".join(page.itertext())) == (first > 0)


@pytest.mark.parametrize("name", SOME)
def test_a_seed_is_marked_and_not_shown(name):
    ledger = Ledger(Privacy(10.0, 1e-3, FITS[name].estimator.adjacency))
    model = FITS[name].new(random_state=917_253_114, ledger=ledger)
    assert "no guarantee, for anybody" in parsed(model._repr_html_())
    FITS[name].run(model, *people(60))
    for page in (model._repr_html_(), ledger._repr_html_(), model.releases_[0]._repr_html_()):
        said = parsed(page)
        assert "917253114" not in said
        assert re.search("void: the noise came from a seed|void that of all", said)
        assert "changes the odds" not in said


def test_no_name_or_parameter_becomes_a_part_of_a_page():
    hostile = "<script>alert(1)</script>&<img src=http://a.b/c onerror=x>"
    classifier = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=[hostile, "b"], fit_intercept=False)
    assert "<script>" in parsed(classifier._repr_html_())
    x, y = people(400)
    frame = pd.DataFrame(x, columns=[hostile, *"bcd"])
    found = private_bounds(frame, epsilon=1.0, delta=1e-6, box=True)
    assert "<script>" in parsed(found._repr_html_())
    found = describe(frame, {hostile: (-1, 1)}, 1.0, 1e-6, ledger=Ledger(Privacy(1.0, 1e-5)))
    assert "<script>" in parsed(found._repr_html_())
    candidates = [
        MultiOutcomeRidge(1.0, bound_x=1.0, bound_y=1.0, ridge=ridge, fit_intercept=False) for ridge in (1.0, 10.0)
    ]
    chosen = select(candidates, frame, y, epsilon=1.0, delta=1e-6, bound_y=1.0)
    assert parsed(chosen._repr_html_()).count("chosen") == 1
    assert "MultiOutcomeRidge" in parsed(chosen._repr_html_())
    refused = MultiOutcomeRidge(1.0, bound_x=1.0, bound_y=1.0, mechanism=hostile, fit_intercept=False)
    assert "A fit will be refused: mechanism must be" in parsed(refused._repr_html_())
    release = Release(hostile, hostile, Privacy(1.0), {hostile: np.zeros(1)}, {hostile: 1.0}, part=hostile)
    assert parsed(release._repr_html_()).count("<script>") == 7
    assert "2.72" in parsed(Privacy(1.0)._repr_html_())
    assert "people" in parsed(
        MultiOutcomeRidge.plan(100, 2, epsilon=1.0, bound_x=1.0, bound_y=1.0, fit_intercept=False)._repr_html_()
    )


def test_a_fit_that_would_be_refused_says_so():
    said = parsed(MultiOutcomeRidge(-1.0, bound_x=1.0, bound_y=1.0, fit_intercept=False)._repr_html_())
    assert "A fit will be refused: epsilon must be positive" in said


def test_scikit_learn_shows_pipelines_as_ever_and_its_configuration_holds():
    model = MultiOutcomeRidge(1.0, bound_x=1.0, bound_y=1.0, fit_intercept=False)
    scaler = PrivateStandardScaler(1.0, box_x=(0, 1))
    assert "sk-top-container" in make_pipeline(scaler, model)._repr_html_()
    assert model._repr_mimebundle_() == {"text/plain": repr(model), "text/html": model._repr_html_()}
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]
