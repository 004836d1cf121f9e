"""Whether parts are those of people is told by yes or no, of ids as Python compares them."""

import datetime
from functools import partial
from importlib import import_module

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from engines import Listed

from dpfast.io import RowOwners
from dpfast.io import is_partitioned_by_person as requested

is_partitioned_by_person = partial(requested, key=bytes(range(32)))


def split_budget(*ids):
    return Listed([(np.ones((1, 1)), None, one) for one in ids], 1, partitioned_by="person")


def owners(*ids):
    return RowOwners(pd.DataFrame({"who": ids}), "who")


class Watched(Listed):
    """Keeps what leaves the parts."""

    def run(self, function, combine):
        seen = super().run(function, combine)
        self.seen = [*getattr(self, "seen", []), seen]
        return seen


PEOPLE = pa.table({"who": pa.array(["a", "b", "c", "d"]).dictionary_encode()})


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (RowOwners(PEOPLE.slice(0, 2), "who"), RowOwners(PEOPLE.slice(2, 2), "who"), True),
        (RowOwners(PEOPLE.slice(0, 3), "who"), RowOwners(PEOPLE.slice(2, 2), "who"), False),
        ([1, 1, 2], [3, 4], True),
        ([1, 1, 2], [3, 2], False),
        ([1, 2], np.array([2.0, 5.5]), False),
        (["1", "a"], [1, b"a"], True),
        (np.array(["a", "b"]), pd.Series(["c", "b"]), False),
        ([("a", 1)], [("a", 1.0)], False),
        ([("a", "bc")], [("ab", "c")], True),
        ([-0.0], [0.0], False),
        ([True], [1], False),
        ([datetime.date(2020, 1, 2)], np.array(["2020-01-02"], "M8[D]"), False),
        ([], [1], True),
        (
            RowOwners(pd.DataFrame({"who": ["b", "a"]}), "who"),
            RowOwners(pd.DataFrame({"who": ["c", "b"]}), "who"),
            False,
        ),
        (
            RowOwners(pd.DataFrame({"who": ["b", "a"]}), "who"),
            RowOwners(pd.DataFrame({"who": ["c", "d"]}), "who"),
            True,
        ),
    ],
)
def test_people_of_two_parts(one, other, apart):
    assert is_partitioned_by_person(split_budget(one, [], other)) is apart
    assert is_partitioned_by_person(split_budget(one))


def test_a_share_of_the_hashes_moves_at_a_time(monkeypatch):
    monkeypatch.setattr(import_module("dpfast.io.people"), "_MOST_WORDS", 50)
    ids = np.arange(900)
    cuts = [ids[:300], ids[300:], [], ids[899:] + 1]
    declared = Watched(split_budget(*cuts).parts, 1, partitioned_by="person")
    assert is_partitioned_by_person(declared)
    words = [one for one in declared.seen if not isinstance(one, str)]
    assert len(words) > 16
    assert max(map(len, words)) <= 50
    assert np.array_equal(np.sort(np.unique(np.concatenate(words))), np.sort(np.concatenate(words)))
    assert sum(map(len, words)) == 901
    assert not is_partitioned_by_person(split_budget(*cuts, ids[450:451]))


def test_hashes_are_of_a_secret_key():
    seen = [Watched(split_budget([1], [2]).parts, 1, partitioned_by="person") for _ in range(2)]
    assert all(requested(one, key) for one, key in zip(seen, (bytes(32), bytes(range(32))), strict=True))
    assert set(seen[0].seen[0].tolist()).isdisjoint(seen[1].seen[0].tolist())


def test_what_cannot_be_told_is_refused():
    with pytest.raises(ValueError, match="declared to be partitioned by person"):
        is_partitioned_by_person(Listed([np.ones((1, 1))], 1))
    with pytest.raises(TypeError, match="partitions must be"):
        is_partitioned_by_person([1])
    for key in ("secret", b"short", bytes(65)):
        with pytest.raises(ValueError, match="16 to 64 secret bytes"):
            requested(split_budget([1]), key)
    with pytest.raises(ValueError, match="ids are needed"):
        is_partitioned_by_person(Listed([np.ones((1, 1))], 1, partitioned_by="person"))
    with pytest.raises(ValueError, match="missing ids"):
        is_partitioned_by_person(split_budget([None]))
    with pytest.raises(TypeError, match="to be checked where they lie") as raised:
        is_partitioned_by_person(split_budget([frozenset({"secret"})]))
    assert "secret" not in str(raised.value)
