"""Nothing is decided from labels, dtypes found or the order of private records: every fit, every kind of table.

A path fits one estimator from people: records that a label goes with. Other labels must leave all as it was, to the bit
under one seed; so must another order, where sums are what leaves. A neighbour, with a label and a record of its own,
must leave shapes, public attributes, warnings and messages.
"""

import datetime
import json
import warnings
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pytest
from catalogue import FITS, RELATED, SOME, thinned
from hypothesis import example, given, settings
from hypothesis import strategies as st
from multi_outcome.fits import ridge
from synthetic_control.fits import from_long, path_of_target

from dpfast import ObjectivePerturbationClassifier
from dpfast.io import Boolean, Columns, RowOwners
from dpfast.jobs import run
from dpfast.privacy.guarantee import ReleasedUtilityWarning
from dpfast.statistics import Trajectories

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

N, WIDTH = 24, 6
SEEDED = {"random_state": 0, "n_threads": 1}

LABELS = {
    "numbers": range(1, N + 1),
    "numbers from 0": range(N),
    "falling numbers": range(N, 0, -1),
    "scattered numbers": [7919 * i % 1009 for i in range(1, N + 1)],
    "wide numbers": [(2**45 + 1) * (i + 1) for i in range(N)],
    "fractions": [0.5 + i for i in range(N)],
    "years": range(1980, 1980 + N),
    "counted": [f"p{i}" for i in range(1, N + 1)],
    "text of years": [f"{1980 + i}" for i in range(N)],
    "names": [f"{chr(122 - i % 26)}{i:03d}" for i in range(N)],
    "dates": [pd.Timestamp("2001-01-31") + pd.DateOffset(months=i) for i in range(N)],
    "days": [datetime.date(2001, 1, 1) + datetime.timedelta(i) for i in range(N)],
    "periods": list(pd.period_range("1980", periods=N, freq="Y")),
    "pairs": [(i % 3, f"ward {i}") for i in range(N)],
    "mixed": [i if i % 2 else f"t{i}" for i in range(N)],
    "all kinds": [2001, "2001", (2001,), 2001.5, datetime.date(2001, 1, 1)] + [f"q{i}" for i in range(N - 5)],
}
labels = st.sampled_from(sorted(LABELS)).map(lambda name: list(LABELS[name]))
drawn = st.lists(
    st.one_of(
        st.integers(-3000, 3000),
        st.integers(1900, 2100),
        st.sampled_from(["t", "p", "y", "", "q"]).flatmap(
            lambda letter: st.integers(0, 2100).map(f"{letter}{{}}".format)
        ),
        st.text("abcz ", min_size=1, max_size=3).map("_{}".format),
        st.tuples(st.integers(0, 9), st.integers(0, 2100)),
        st.dates(datetime.date(1990, 1, 1), datetime.date(2010, 1, 1)),
    ),
    min_size=N,
    max_size=N,
    unique=True,
)


@dataclass
class People:
    """Records, numbers in [-1, 1] of shape (n, WIDTH), whose they are, and what frames hold them as."""

    values: np.ndarray
    ids: list
    dtype: str = "float64"

    def taken(self, places):
        return People(self.values[places], [self.ids[place] for place in places], self.dtype)

    def frame(self, values=None, **labels):
        frame = pd.DataFrame(self.values if values is None else values, **labels)
        dtype, *one = self.dtype.split(" in ")
        return frame.astype(dict.fromkeys(frame.columns[:1] if one else frame.columns, dtype))


def people(ids=None):
    rng = np.random.default_rng(3)
    # Multiples of 1/64: the same numbers whatever their dtype.
    return People(np.round(64.0 * rng.uniform(-1, 1, (N, WIDTH))) / 64.0, list(LABELS["names"] if ids is None else ids))


def rows_of(who):
    """Features and an outcome a person, with labels of their own."""
    frame = who.frame(index=who.ids, columns=[f"x{i}" for i in range(WIDTH)])
    return frame.iloc[:, :-1], frame["x5"]


def listed(fit):
    """Fit people as the catalogue does; outcomes that are public do not depend on them."""

    def run(who):
        x, y = rows_of(who)
        if fit.public_outcomes:
            y = pd.Series(np.linspace(-1, 1, len(y)), y.index)
        fitted = fit(x, y, **SEEDED)
        if fit.releases is None:
            # How many follow, and which, hangs on what was released before.
            fitted.releases_ = fitted.releases_[:1]
        return fitted if hasattr(fitted, "fit") else fitted[0]

    return run


def seeded(**parameters):
    return ridge(bound_x=2.0, **SEEDED, **parameters)


def visits(who):
    """Three rows a person, scattered: the periods in pairs, the same for one person whoever else is there."""
    pairs = who.values.reshape(len(who.ids), 3, 2)
    frame = who.frame(np.concatenate(list(pairs.swapaxes(0, 1))), columns=["x", "y"])
    frame["id"] = pd.Series(who.ids * 3, dtype=object).infer_objects()
    return frame


def fit_groups(kind, **parameters):
    def fit(who):
        frame = visits(who)
        groups = {"list": who.ids * 3, "series": frame["id"], "objects": frame["id"].astype(object)}[kind]
        return seeded(**parameters).fit(frame[["x"]], frame[["y"]], groups=groups, max_rows=2)

    return fit


def fit_classes(**parameters):
    def fit(who):
        frame = visits(who)
        options = {"epsilon": 1.0, "delta": 1e-6, "bound_x": 2.0, "classes": [0, 1], **SEEDED} | parameters
        labels = (frame["y"] > 0.0).astype(int)
        return ObjectivePerturbationClassifier(**options).fit(frame[["x"]], labels, groups=frame["id"], max_rows=2)

    return fit


def fit_owners(who):
    # Ids of tables are numbers or text; others are objects there.
    frame = visits(who)
    frame["id"] = frame["id"].astype(object)
    return seeded().fit(Columns(["x"], ["y"]).encode(frame), None, groups=RowOwners(frame, "id"), max_rows=2)


def fit_owners_of_parts(who):
    frame = visits(who).assign(id=[repr(one) for one in who.ids * 3])
    parts = [pa.table(frame[:10]), pa.table(frame[10:])]
    return seeded().fit(Columns(["x"], ["y"]).encode(parts), None, groups=RowOwners(parts, "id"), max_rows=2)


def fit_turned(who):
    x, _ = rows_of(who)
    turned = who.frame(who.values[:, :-1].T, index=range(2001, 2006), columns=who.ids)
    return FITS["donors"].new(**SEEDED).fit(turned, 3, path_of_target(x), orientation="periods_by_units")


def fit_episodes(who):
    episodes = [[(int(2.0 * (one + 1.0)) % 4, one) for one in row] for row in who.values.tolist()]
    return FITS["visits"].new(**SEEDED).fit(Trajectories.from_episodes(episodes, 4))


#: With the number of people private.
PRIVATE = {name: fit for name, fit in RELATED.items() if fit.estimator.adjacency == "add_remove"}
#: What is fitted from people, and whether another order of them leaves it the same.
LISTED = FITS | {name: fit for name, fit in PRIVATE.items() if name.removesuffix(", add_remove") in SOME}
PATHS = {name: (listed(fit), fit.any_order) for name, fit in LISTED.items()} | {
    "donors in columns": (fit_turned, True),
    "ids in a list": (fit_groups("list"), True),
    "ids in a series": (fit_groups("series"), True),
    "ids as objects, add_remove": (fit_groups("objects", adjacency="add_remove"), True),
    "ids, clipped by person": (fit_groups("series", block_bounds=(1.0, 1.0)), True),
    "ids of a classifier": (fit_classes(), True),
    "ids of a classifier, add_remove": (fit_classes(adjacency="add_remove"), True),
    "ids of a table": (fit_owners, True),
    "ids of parts": (fit_owners_of_parts, True),
    "episodes": (fit_episodes, True),
}
DTYPES = ["float32", "Float64", "float32 in one column", "Int8 in one column"]
PUBLIC = ("periods_", "classes_", "feature_names_in_", "n_pre_", "n_post_", "n_features_in_", "target_")


def seen(fit, who):
    """Return all that somebody sees of a fit: warnings, an error or the attributes, by name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = dict(vars(fit(who)))
        except (ValueError, TypeError) as error:
            found = {"error": (type(error).__name__, str(error))}
    # What was released may say that it is mostly noise.
    told = [one for one in caught if not issubclass(one.category, ReleasedUtilityWarning)]
    found["warnings"] = [(one.category.__name__, str(one.message)) for one in told]
    for at, release in enumerate(found.pop("releases_", ())):
        found |= {f"release {at} {name}": array for name, array in release.values.items()}
        # What comes later is calibrated by what was released before, which is seen.
        scales = sorted(release.scales.items() if at == 0 else release.scales)
        found |= {f"release {at} says": (str(release.guarantee), scales)}
    return found


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, np.ndarray):
            assert value.dtype == other[name].dtype, name
            np.testing.assert_array_equal(value, other[name], err_msg=name)
        elif isinstance(value, int | float | str | list | tuple):
            np.testing.assert_equal(value, other[name], err_msg=name)


def assert_same_but_released(one, other):
    """The same shapes and kinds; public values too."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert type(value) is type(other[name]), name
        if isinstance(value, np.ndarray):
            assert (value.dtype, value.shape) == (other[name].dtype, other[name].shape), name
        if name in ("warnings", "error") or name.endswith("says"):
            assert value == other[name]
        elif name in PUBLIC:
            np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.fixture(scope="module", params=PATHS)
def path(request):
    fit, any_order = PATHS[request.param]
    before = seen(fit, people())
    assert "error" not in before, before
    return fit, any_order, before


@pytest.mark.parametrize(("path", "kind"), thinned(PATHS, LABELS, 8), indirect=["path"])
def test_other_labels_change_nothing(path, kind):
    fit, _, before = path
    assert_same(before, seen(fit, people(LABELS[kind])))


@given(ids=drawn)
@settings(max_examples=2)
def test_labels_of_any_kind_change_nothing(path, ids):
    fit, _, before = path
    assert_same(before, seen(fit, people(ids)))


@given(ids=labels, order=st.permutations(range(N)))
@settings(max_examples=2)
def test_another_order_of_people_changes_nothing(path, ids, order):
    fit, any_order, before = path
    (assert_same if any_order else assert_same_but_released)(before, seen(fit, people(ids).taken(order)))


ODD = [N + 1, 0, -5, 2100, 1999.5, "p0", "2100", "zz", (1, 2), datetime.date(1990, 1, 1), pd.Timestamp("2100-01-01")]


@given(ids=labels, place=st.integers(0, N - 1), odd=st.sampled_from(ODD), record=st.integers(-64, 64))
@settings(max_examples=2)
def test_a_neighbour_changes_no_shape_no_message_and_nothing_public(path, ids, place, odd, record):
    fit, _, before = path
    who = people(ids)
    if odd in who.ids:
        odd = "nobody else"
    other = who.taken(range(N))
    other.values[place], other.ids[place] = record / 64.0, odd
    assert_same_but_released(before, seen(fit, other))


@pytest.mark.parametrize("name", [*PRIVATE, "ids as objects, add_remove"])
@given(ids=labels, place=st.integers(0, N - 1))
@settings(max_examples=2)
def test_one_person_less_changes_no_shape_no_message_and_nothing_public(name, ids, place):
    fit = listed(PRIVATE[name]) if name in PRIVATE else PATHS[name][0]
    left = [one for one in range(N) if one != place]
    assert_same_but_released(seen(fit, people()), seen(fit, people(ids).taken(left)))


def strange_rows(one):
    """Rows of one donor in periods that the target has not, each with what it may make of the columns' dtypes."""
    times = [
        1999,
        2001.5,
        2100,
        "2001",
        "soon",
        None,
        float("nan"),
        (2001, 1),
        [2001],
        pd.Timestamp("2001-01-01"),
        2**70,
    ]
    return [[(one, time, value)] for time in times for value in (0.25, 3, np.inf)] + [[(one, 1999, 0.1)] * 2]


@pytest.mark.parametrize("parameters", [{}, {"adjacency": "add_remove"}, {"observation_rate": 0.9}])
@pytest.mark.parametrize("extra", strange_rows("z000"), ids=repr)
def test_rows_of_a_donor_in_periods_that_the_target_has_not_change_nothing(parameters, extra):
    def fit(rows):
        donors = FITS["long donors"].new(**SEEDED, **parameters)
        return lambda who: from_long(donors, *rows_of(who), rows)

    assert_same(seen(fit([]), people()), seen(fit(extra), people()))


@given(missing=st.sets(st.integers(0, WIDTH - 2), max_size=WIDTH - 2), place=st.integers(0, N - 1))
@settings(max_examples=20)
def test_a_donor_that_lacks_periods_changes_no_shape(missing, place):
    for name in ("long donors, some entries missing", "long donors, some entries missing, add_remove"):
        fit = listed(RELATED[name])
        who = people()
        who.values[place, sorted(missing)] = np.nan
        assert_same_but_released(seen(fit, people()), seen(fit, who))


@pytest.mark.parametrize(("name", "dtype"), thinned([*LISTED, "donors in columns"], DTYPES))
def test_the_dtype_of_a_column_changes_nothing_of_its_numbers(name, dtype):
    """One entry with a fraction, or a missing one, decides the dtype of a whole column of a frame."""
    fit, _ = PATHS[name]
    values = np.round(people().values)
    assert_same(seen(fit, People(values, people().ids)), seen(fit, People(values, people().ids, dtype)))


@pytest.mark.parametrize(
    ("classes", "plain", "odd"),
    [
        ([0, 1], [0, 1], [True, 1.0]),
        ([2**53, 2**53 + 1], [2**53, 2**53 + 1], [float(2**53), np.float32(2**53)]),
        (["0", "1"], ["0", "1"], [np.str_("1")]),
    ],
)
def test_how_one_label_is_written_changes_no_other(classes, plain, odd):
    x, _ = rows_of(people())

    def fit(labels):
        estimator = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=2.0, classes=classes, **SEEDED)
        return seen(lambda _: estimator.fit(x, labels), None)

    y = [plain[i % 2] for i in range(N)]
    for one in odd:
        assert_same(fit([plain[classes.index(one)], *y[1:]]), fit([one, *y[1:]]))


ALIKE = [1, True, 1.0, np.int8(1), np.float32(1), Decimal(1), "1", (1,), (1.0,), np.str_("1"), b"1"]


@given(ids=st.permutations(ALIKE))
@example(ids=[np.int8(1), 2, (1,)])
@settings(max_examples=20)
def test_whether_two_ids_are_one_person_depends_on_these_two_alone(ids):
    kinds = [
        str if isinstance(one, str) else type(one) if isinstance(one, tuple | bytes) else float(one) for one in ids
    ]
    numbers = [list(dict.fromkeys(kinds)).index(kind) for kind in kinds]
    frame = pd.DataFrame({"id": pd.Series(ids, dtype=object)})
    assert np.asarray(RowOwners(frame, "id")).tolist() == numbers


def test_a_label_that_no_class_has_is_refused_in_one_way():
    x, _ = rows_of(people())
    messages = set()
    for one in (2, -1, 0.5, "0", "someone", None, float("nan"), (0,), [0], {}, b"0", pd.NA, 10**400):
        others = [i % 2 for i in range(N - 1)]
        for y in ([one, *others], [*others, one]):
            estimator = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=2.0, classes=[0, 1], **SEEDED)
            messages.add(seen(lambda _, m=estimator, y=y: m.fit(x, y), None)["error"])
    ((kind, message),) = messages
    assert kind == "ValueError"
    assert message.startswith("y holds labels outside the declared classes: declare in classes ")


@pytest.mark.parametrize("place", [0, 1, N - 1])
def test_a_row_that_is_a_tuple_among_lists_changes_nothing(place):
    def fit(kinds):
        values = people().values
        return seeded().fit(
            [kind(row) for kind, row in zip(kinds, values[:, :2].tolist(), strict=True)], values[:, 2:3]
        )

    kinds = [list] * N
    before = seen(fit, kinds)
    kinds[place] = tuple
    assert_same(before, seen(fit, kinds))
    assert_same(before, seen(fit, [tuple] * N))


def test_a_missing_boolean_changes_no_shape_and_no_message():
    def fit(answers):
        frame = pd.DataFrame({"a": answers, "y": np.linspace(-1, 1, N)})
        return seeded().fit(Columns([Boolean("a", missing=False)], ["y"]).encode(frame), None)

    plain = [i % 3 == 0 for i in range(N)]
    before = seen(fit, plain)
    assert_same(before, seen(fit, [plain[0], None, *plain[2:]]))
    assert_same(before, seen(fit, [plain[0], float("nan"), *plain[2:]]))
    assert_same(before, seen(fit, [plain[0], 0, *plain[2:]]))


def test_a_job_is_the_same_to_read_whoever_is_in_it(tmp_path):
    job = {
        "input": {"path": "visits.csv"},
        "features": {"x": {"low": -1.0, "high": 1.0}},
        "outcomes": {"y": "number"},
        "people": {"id": "id", "max_rows": 2},
        "estimator": {"kind": "multi_outcome_ridge", "bound_y": 1.0},
        "privacy": {"epsilon": 1.0, "delta": 1e-6},
        "output": {"folder": "fit"},
    }

    def toml(value):
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
        return json.dumps(value)

    found = []
    for place, kind in enumerate(LABELS):
        folder = tmp_path / str(place)
        folder.mkdir()
        visits(people([f"{i} {one}" for i, one in enumerate(LABELS[kind])])).to_csv(folder / "visits.csv", index=False)
        lines = [f"{section} = {toml(content)}" for section, content in job.items()]
        (folder / "job.toml").write_text("\n".join(lines))
        said = run(folder / "job.toml", progress=False).replace(str(folder), "")
        header = (folder / "fit" / "coefficients.csv").read_text().splitlines()
        report = json.loads((folder / "fit" / "report.json").read_text())
        found.append(
            (said, sorted(file.name for file in (folder / "fit").iterdir()), len(header), header[0], [*report])
        )
    assert all(one == found[0] for one in found)
