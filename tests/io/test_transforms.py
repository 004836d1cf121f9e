"""Features made of declared columns: what they are, that they lie in their box, and that a row has its own bits."""

import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import legvander
from scipy.interpolate import BSpline

from dpfast import MultiOutcomeRidge, describe
from dpfast.io import Boolean, Category, Columns, Interaction, Log, Number, Polynomial, Spline
from dpfast.io.transforms import logarithm
from dpfast.kernels.columns import CodedBlock

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

AGE = Number("age", missing=50.0, low=18.0, high=90.0)
INCOME = Number("income", missing=2e4, low=1e3, high=1e6)
SMOKER = Boolean("smoker", missing=False)
SITE = Category("site", ("Bern", "Basel", "Genf"), drop_first=True, missing="Genf", undeclared="zeros")
SEX = Category("sex", (1, 2), missing=2)

COLUMNS = Columns(
    [
        AGE,
        Log(INCOME),
        Interaction(SITE, SEX),
        Interaction(SEX, SITE),
        Polynomial(AGE, 4),
        SITE,
        Spline(AGE, [30.0, 55.5, 70.0]),
        Interaction(AGE, SMOKER),
        Interaction(Log(INCOME), SITE, AGE),
        Interaction(Spline(AGE, [40.0], degree=1), SEX),
    ],
    [Log(Number("days", low=1.0, high=365.0))],
)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    n = 1500
    hostile = [5e-324, -0.0, -0.5, -1.0, 1e300, -1e300, np.nan, 1.0, 17.999999999999996, 18.0, 90.0, 1e-310, 30.0, 55.5]
    return pd.DataFrame(
        {
            "site": rng.choice(["Bern", "Basel", "Genf", None, "Chur"], n),
            "sex": rng.choice([1.0, 2.0, np.nan], n),
            "smoker": rng.choice([0.0, 1.0, np.nan], n),
            "age": np.where(rng.uniform(size=n) < 0.2, rng.choice(hostile, n), rng.uniform(10, 100, n)),
            "income": np.where(rng.uniform(size=n) < 0.2, rng.choice(hostile, n), np.exp(rng.normal(10, 2, n))),
            "days": np.exp(rng.normal(3, 1, n)),
        }
    )


def rows_of(columns, table):
    """Rows of X and of Y, side by side."""
    return np.concatenate([np.column_stack([x, y]) for x, y in columns.encode(table)])


def bits(rows):
    return np.ascontiguousarray(rows).view(np.uint64)


def test_logarithms_are_within_a_unit_in_the_last_place():
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [np.exp(rng.uniform(-744, 709, 800)), rng.uniform(0.5, 2, 800), 1 + 1e-12 * rng.normal(size=99)]
    )
    values = np.append(values, [1.0, 5e-324, 2.0**-1022, np.finfo(float).max, np.sqrt(0.5)])
    with mpmath.workprec(120):
        exact = [mpmath.log(mpmath.mpf(value)) for value in values.tolist()]
    found = logarithm(values)
    for one, true in zip(found.tolist(), exact, strict=True):
        assert abs(mpmath.mpf(one) - true) <= np.spacing(abs(float(true)))
    assert logarithm(np.array([1.0])).tolist() == [0.0]


def test_they_are_what_they_are_called(frame):
    found = COLUMNS.transform(frame)
    age = np.clip(frame["age"].fillna(50.0), 18.0, 90.0).to_numpy()
    log = np.log(np.clip(frame["income"].fillna(2e4), 1e3, 1e6)).to_numpy()
    smoker = frame["smoker"].fillna(0.0).to_numpy()
    site = frame["site"].fillna("Genf")
    sex = frame["sex"].fillna(2.0)
    unit = (age - 54.0) / 36.0
    expected = {
        "log(income)": log,
        "poly(age)[1]": unit,
        "poly(age)[2]": (3 * unit**2 - 1) / 2,
        "poly(age)[4]": (35 * unit**4 - 30 * unit**2 + 3) / 8,
        "age:smoker": age * smoker,
        "log(income):site=Genf:age": log * (site == "Genf") * age,
        "site=Basel:sex=1": (site == "Basel") & (sex == 1),
        "site=Genf:sex=2": (site == "Genf") & (sex == 2),
        "sex=1:site=Genf": (site == "Genf") & (sex == 1),
        "sex=2:site=Basel": (site == "Basel") & (sex == 2),
        "bs(age)[1]:sex=1": np.where(age < 40, (age - 18) / 22, (90 - age) / 50) * (sex == 1),
        "bs(age)[2]:sex=2": np.clip((age - 40) / 50, 0, 1) * (sex == 2),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-13, atol=1e-13)
    basis = BSpline.design_matrix(age, np.array([18.0] * 4 + [30.0, 55.5, 70.0] + [90.0] * 4), 3).toarray()
    np.testing.assert_allclose(found.filter(regex=r"^bs\(age\)\[.\]$"), basis[:, 1:], atol=1e-14)
    days = rows_of(COLUMNS, frame)[:, -1]
    np.testing.assert_allclose(days, np.log(np.clip(frame["days"], 1.0, 365.0)), rtol=1e-14)


finite = st.floats(allow_nan=False, allow_infinity=False)
hostile = st.one_of(
    finite, st.floats(-200, 200), st.sampled_from([-0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, -0.5, np.nan])
)


@st.composite
def numbers(draw, name, positive=False):
    """A column of numbers with limits, far apart or near each other, of either sign."""
    low = draw(st.floats(1e-80, 1e90) if positive else st.floats(-1e90, 1e90))
    width = draw(st.floats(1e-3, 1e3)) * max(abs(low), 1e-3)
    return Number(name, draw(st.sampled_from([low, low + width])), low, low + width)


@st.composite
def declarations(draw):
    number, other, positive = draw(numbers("a")), draw(numbers("b")), draw(numbers("c", positive=True))
    places = sorted(set(draw(st.lists(st.integers(1, 15), min_size=1, max_size=4))))
    knots = [number.low + (number.high - number.low) * place / 16 for place in places]
    spline = Spline(number, knots, draw(st.integers(1, 4)))
    polynomial = Polynomial(other, draw(st.integers(1, 9)))
    category = Category("d", (0, 1, 2), undeclared="zeros", missing=1, drop_first=draw(st.booleans()))
    several = [spline, polynomial, Log(positive), category, number, other, positive]
    pairs = draw(st.lists(st.permutations(several), min_size=1, max_size=3))
    features = {one.name: one for one in [spline, polynomial, Log(positive)]}
    for first, second, third, *_ in pairs:
        chosen = {source: one for one in (first, second, third) for source in [getattr(one, "column", one).name]}
        if len(chosen) > 1:
            interaction = Interaction(*chosen.values())
            features.setdefault(interaction.name, interaction)
    return Columns(features.values())


# What fails is not made smaller: declarations of columns are many ways to fail alike.
@settings(max_examples=50, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(declarations(), st.lists(st.tuples(*[hostile] * 3, st.sampled_from([0.0, 1, 2, 3, np.nan])), min_size=1))
def test_rows_lie_in_their_box_whatever_they_hold(columns, entries):
    frame = pd.DataFrame(entries, columns=list("abcd"))
    with np.errstate(all="raise"):
        x = columns.transform(frame).to_numpy()
    low, high = columns.box
    assert np.isfinite(x).all()
    assert np.all(low <= x)
    assert np.all(x <= high)
    assert not np.any(np.signbit(x) & (x == 0.0))
    # Of a row alone: the same.
    alone = np.concatenate([columns.transform(frame[row : row + 1]) for row in range(len(frame))])
    assert np.array_equal(bits(alone), bits(x))


A, B = (Number(name, low=-1.0, high=1.0) for name in "ab")


@pytest.mark.parametrize(
    "made",
    [
        Interaction(A, B),
        Interaction(Polynomial(A, 2), Spline(B, [0.5])),
        Interaction(A, Category("d", (0, 1), undeclared="zeros", missing=1)),
        Polynomial(A, 9),
        Spline(A, [0.0], degree=3),
        Log(Number("a", low=5e-324, high=1.0)),
    ],
    ids=lambda made: made.name,
)
def test_entries_too_small_for_products_raise_no_error(made):
    """Whatever the caller lets NumPy raise: an error would tell that some entry is tiny."""
    tiny = [5e-324, -5e-324, 1e-200, -1e-200, 1e-160, 0.0, 1.0]
    frame = pd.DataFrame([(a, b, d) for a in tiny for b in tiny for d in (0, 1)], columns=["a", "b", "d"])
    with np.errstate(all="raise"):
        x = Columns([made]).transform(frame).to_numpy()
    assert np.isfinite(x).all()


def test_zeros_are_positive_wherever_they_stand():
    a, b = (Number(name, low=-1.0, high=1.0) for name in "ab")
    entries = [(-0.0, 1.0), (0.0, -1.0), (-0.0, -0.0), (0.0, 0.0), (-1e-320, 1e-320)] * 9
    x = Columns([Interaction(a, b), Polynomial(a, 1)]).transform(pd.DataFrame(entries, columns=["a", "b"]))
    assert not np.any(np.signbit(x) & (x == 0.0))


def test_boxes_are_no_larger_than_what_rows_attain_and_clip_none_of_it():
    a, b = Number("a", low=-2.0, high=3.0), Number("b", low=-5.0, high=-1.0)
    columns = Columns([Polynomial(a, 6), Spline(a, [-1.0, 0.5]), Interaction(a, b), Interaction(a, Polynomial(b, 2))])
    fine, few = np.linspace(-2.0, 3.0, 4001), [-5.0, -3.0, -1.0]
    frame = pd.DataFrame({"a": np.repeat(fine, 3), "b": np.tile(few, 4001)})
    x = columns.transform(frame)
    low, high = columns.box
    np.testing.assert_allclose(x.min(), low, atol=1e-5)
    np.testing.assert_allclose(x.max(), high, atol=1e-5)
    knots = np.array([-2.0] * 4 + [-1.0, 0.5] + [3.0] * 4)
    unit = (frame["b"] + 3.0) / 2.0
    expected = [
        legvander((frame["a"] - 0.5) / 2.5, 6)[:, 1:],
        BSpline.design_matrix(frame["a"].to_numpy(), knots, 3).toarray()[:, 1:],
        frame["a"] * frame["b"],
        frame["a"] * unit,
        frame["a"] * (3.0 * unit**2 - 1.0) / 2.0,
    ]
    np.testing.assert_allclose(x, np.column_stack(expected), atol=1e-13)


def test_every_table_gives_the_same_bits(frame, tmp_path):
    import polars as pl

    dd = pytest.importorskip("dask.dataframe")
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=300)
    expected = bits(rows_of(COLUMNS, frame))
    block = frame[["age", "income", "days", "smoker", "sex"]].to_numpy()
    for table in (
        pd.DataFrame(block, columns=["age", "income", "days", "smoker", "sex"]).assign(site=frame["site"]),
        frame.astype({"site": "category", "age": "Float64"}),
        arrow,
        pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(max_chunksize=7)),
        pl.from_arrow(arrow),
        pl.from_arrow(arrow).lazy(),
        tmp_path / "t.csv",
        tmp_path / "t.parquet",
        [frame[:701], arrow.slice(701)],
        dd.from_pandas(frame, npartitions=5),
        [dd.from_pandas(frame[:800], npartitions=2), dd.from_pandas(frame[800:], npartitions=1)],
    ):
        assert np.array_equal(bits(rows_of(COLUMNS, table)), expected)
    shuffled = np.random.default_rng(0).permutation(len(frame))
    assert np.array_equal(bits(rows_of(COLUMNS, frame.iloc[shuffled])), expected[shuffled])
    assert np.array_equal(bits(rows_of(pickle.loads(pickle.dumps(COLUMNS)), frame)), expected)


def test_fits_are_those_of_the_rows_that_they_become(frame):
    def model(refine):
        bounds = {"box_x": COLUMNS.box, "bound_y": 6.0}
        return MultiOutcomeRidge(1.0, 1e-6, **bounds, refine=refine, random_state=2)

    rows = rows_of(COLUMNS, frame)
    for refine in (0, 2):
        expected = model(refine).fit(rows[:, :-1], rows[:, -1:])
        fitted = model(refine).fit(COLUMNS.encode([frame[:900], frame[900:]]), None)
        # Residual steps of rows with codes round otherwise than those of indicators.
        near = {"rtol": 1e-4, "atol": 1e-6} if refine else {"rtol": 0.0}
        np.testing.assert_allclose(fitted.coef_, expected.coef_, **near)
        np.testing.assert_allclose(
            fitted.predict(COLUMNS.transform(frame[:3])), expected.predict(rows[:3, :-1]), **near
        )
    assert tuple(fitted.feature_names_in_) == COLUMNS.feature_names


def test_categories_stay_codes_beside_what_is_made_of_numbers(frame):
    _, (block, _) = COLUMNS.encode(frame).blocks()
    assert isinstance(block, CodedBlock)
    assert block.layout.levels == (4, 4, 2)
    names = [COLUMNS.feature_names[first] for first in block.layout.firsts]
    assert names == ["site=Basel:sex=1", "sex=1:site=Basel", "site=Basel"]


def test_what_a_table_is_asked_for_is_what_they_are_made_of(frame):
    assert COLUMNS.names == ("age", "income", "site", "sex", "smoker", "days")
    columns = Columns([Interaction(AGE, SMOKER), Log(INCOME)])
    for table in (frame[["age", "smoker", "income"]], pa.table(frame[["age", "smoker", "income"]])):
        assert columns.transform(table).shape == (1500, 2)
    with pytest.raises(ValueError, match="no column 'income'"):
        columns.check(frame[["age", "smoker"]])
    counted = describe(frame, columns, np.inf).summary()
    assert set(counted.index.get_level_values("column")) == {"(table)", "age", "smoker", "income"}


@pytest.mark.parametrize(
    "column",
    [
        Log(Number("a", low=1.0, high=100.0)),
        Polynomial(Number("a", low=1.0, high=100.0), 2),
        Spline(Number("a", low=1.0, high=100.0), [50.0]),
        Interaction(Number("a", low=1.0, high=100.0), Boolean("b")),
        Interaction(Category("a", (1, 2)), Boolean("b")),
        Interaction(Category("a", (1, 2)), Category("b", (0, 1))),
    ],
)
def test_entries_that_are_refused_are_not_quoted(column):
    for entry, message in ((np.nan, "'a' has missing entries"), (np.inf, "'a' holds"), ("77", "'a'.* holds")):
        with pytest.raises((ValueError, TypeError), match=f"column {message}") as raised:
            list(Columns([column]).encode(pd.DataFrame({"a": [1.0, entry], "b": [1, 0]})))
        assert "77" not in str(raised.value)
        assert "inf " not in str(raised.value)


A, B = Number("a", low=-1.0, high=1.0), Boolean("b")


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        (lambda: Log("a"), TypeError, "Log is made of a dpfast.io.Number, got str"),
        (lambda: Log(Number("a")), ValueError, r"column 'a' is declared without low and high, which log\(a\) needs"),
        (lambda: Log(A), ValueError, r"low of column 'a' must be above 0 for log\(a\)"),
        (lambda: Log(Number("a", low=1e9, high=1e9 + 2e-7)), ValueError, r"limits of what log\(a\) .* too near"),
        (lambda: Polynomial(A, 0), ValueError, r"degree of poly\(a\) must be at least 1, got 0"),
        (lambda: Polynomial(A, 2.0), TypeError, r"degree of poly\(a\) must be an integer"),
        (lambda: Polynomial(Number("a", low=1e9, high=1e9 + 1e-6), 2), ValueError, "too near each other"),
        (lambda: Spline(A, []), ValueError, r"knots of bs\(a\) must hold at least one number"),
        (lambda: Spline(A, 0.5), TypeError, r"knots of bs\(a\) must be a sequence of numbers, got float"),
        (lambda: Spline(A, ["x"]), TypeError, r"knots of bs\(a\) must be a real number"),
        (lambda: Spline(A, [0.5, 0.5]), ValueError, r"knots of bs\(a\) must ascend"),
        (lambda: Spline(A, [1.0]), ValueError, r"knots of bs\(a\) must ascend, between low and high"),
        (lambda: Spline(A, [float("nan")]), ValueError, r"knots of bs\(a\) must ascend"),
        (lambda: Spline(A, [0.5], 0), ValueError, r"degree of bs\(a\) must be at least 1"),
        (lambda: Spline(A, [1e-320, 2e-320]), ValueError, "too near each other"),
        (lambda: Interaction(A), ValueError, "at least two columns of the table, each of them once, got \\['a'\\]"),
        (lambda: Interaction(A, Spline(A, [0.5])), ValueError, "each of them once, got \\['a', 'a'\\]"),
        (lambda: Interaction(A, "b"), TypeError, "Interaction must be of Number, Boolean.*, got str"),
        (lambda: Interaction(Interaction(A, B), A), TypeError, "got Interaction"),
        (lambda: Interaction(B, Number("a")), ValueError, "column 'a' is declared without low and high, which b:a"),
        (
            lambda: Interaction(Number("a", low=0, high=1e200), Number("b", low=0, high=1e200)),
            ValueError,
            "limits of what a:b is made of are too near each other, or too large",
        ),
        (lambda: Columns([Log(INCOME), Log(INCOME)]), ValueError, r"column 'log\(income\)' is declared twice"),
        (lambda: Columns([A, Interaction(Category("a", ("x",)), B)]), ValueError, "'a' is declared as Number, and as"),
        (lambda: Columns([Polynomial(A, 2)], ["a"]), ValueError, "'a' is declared as a feature and as an outcome"),
    ],
)
def test_bad_declarations(declare, error, message):
    with pytest.raises(error, match=message):
        declare()
