"""Documents: floats and arrays to the bit, whole or refused."""

import hashlib
import math
import os
import stat
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfast._documents import array_from_lists, array_to_lists, inert, read_document, replace_file, write_document


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "document.json")


def written(path, content, kind="test", version=1):
    write_document(path, kind, version, content, temporary=f"{path}.tmp")
    return read_document(path, "test", 1)


def sealed(path, text):
    """Write any text with a checksum that fits it."""
    rest = b'",\n' + text
    with open(path, "wb") as file:
        file.write(b'{"sha256": "' + hashlib.sha256(rest).hexdigest().encode() + rest)


@given(st.lists(st.floats(allow_nan=False), max_size=20))
def test_floats_come_back_to_the_bit(tmp_path_factory, floats):
    path = str(tmp_path_factory.getbasetemp() / "floats.json")
    again = written(path, {"floats": floats, "nested": {"inside": {"deeper": floats}}})
    for read in (again["floats"], again["nested"]["inside"]["deeper"]):
        assert [struct.pack("d", x) for x in read] == [struct.pack("d", x) for x in floats]


def test_it_is_json_that_any_reader_takes(path):
    import json

    written(path, {"floats": [math.inf, -math.inf, math.nan, -0.0], "words": "é\n"})
    text = Path(path).read_text()
    whole = json.loads(text, parse_constant=pytest.fail)
    assert whole["floats"] == [{"float": "inf"}, {"float": "-inf"}, {"float": "nan"}, -0.0]
    assert whole["sha256"] == hashlib.sha256(text.encode()[76:]).hexdigest()


def test_kind_and_version_are_checked(path):
    with pytest.raises(ValueError, match="'other' file"):
        written(path, {}, kind="other")
    with pytest.raises(ValueError, match="version 2"):
        written(path, {}, version=2)


@pytest.mark.parametrize(
    "text", [b"", b"}", b'"a": NaN}', b'"a": Infinity}', b'"a": ' + b"[" * 10**5, b'"a": 1}}', b"\xff}"]
)
def test_text_that_is_no_document_is_refused_even_if_sealed(path, text):
    sealed(path, text)
    with pytest.raises(ValueError, match="is not a test file"):
        read_document(path, "test", 1)


def test_a_folder_that_is_not_there_is_named_and_not_the_temporary_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"b' cannot be written: there is no folder .*a'$"):
        write_document(str(tmp_path / "a" / "b"), "test", 1, {}, temporary=str(tmp_path / "a" / "tmp"))


def test_a_failed_write_leaves_the_old_document_alone(path, monkeypatch):
    written(path, {"old": 1})

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        written(path, {"new": 1})
    assert read_document(path, "test", 1) == {"old": 1}
    assert os.listdir(os.path.dirname(path)) == ["document.json"]


def test_what_stands_in_the_way_of_the_temporary_file_is_removed_not_followed(path):
    victim = f"{path}.victim"
    Path(victim).write_text("untouched")
    os.symlink(victim, f"{path}.tmp")
    assert written(path, {"a": 1}) == {"a": 1}
    assert Path(victim).read_text() == "untouched"


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, -0.0], [math.pi, 5e-324]]),
        np.array([1.7, 3e38], dtype=np.float32),
        np.array([0.1], dtype=np.float16),
        np.array([np.inf, -np.inf, np.nan]),
        np.array(2.5),
        np.empty((0, 3)),
        np.empty((3, 0), dtype=np.int32),
        np.array([2**64 - 1, 0], dtype=np.uint64),
        np.array([-(2**63)], dtype=np.int64),
        np.array([True, False]),
        np.array(["age", "Größe"]),
        np.array(["age", "weight"], dtype=object),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
)
def test_arrays_come_back_to_the_bit(path, array):
    lists = written(path, {"array": array_to_lists(array)})["array"]
    again = array_from_lists("array", lists, array.dtype.str, list(array.shape))
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tolist() == array.tolist() if array.dtype == object else again.tobytes() == array.tobytes()


@pytest.mark.parametrize("array", [np.array([1j]), np.array([object()]), np.array([1], dtype="m8[D]")])
def test_other_arrays_are_not_written(array):
    with pytest.raises(TypeError, match="numbers, booleans, dates and strings"):
        array_to_lists(array)


@pytest.mark.parametrize(
    ("lists", "dtype", "shape"),
    [
        ([1.0, 2.0], "<f8", [3]),
        ([1.0, 2.0], "<f8", [1, 2]),
        ([[1.0], [2.0, 3.0]], "<f8", [2, 1]),
        ([1, 2], "<f8", [2]),
        (["1.0"], "<f8", [1]),
        ([None], "<f8", [1]),
        ([1.0], "<i8", [1]),
        ([300], "|u1", [1]),
        ([1], "|b1", [1]),
        ([{}], "|O", [1]),
        ([1.0], "complex", [1]),
        ([1.0], "f8,f8", [1]),
        ([1.0], "no type", [1]),
        ([1.0], 8, [1]),
        ([1.0], "<f8", [True]),
        ([1.0], "<f8", [-1]),
        ([1.0], "<f8", 1),
        ({}, "<f8", [1]),
    ],
)
def test_lists_that_are_no_such_array_are_refused(lists, dtype, shape):
    with pytest.raises(ValueError, match="that array"):
        array_from_lists("that array", lists, dtype, shape)


def test_what_nests_too_deeply_to_be_spelled_out_is_refused(tmp_path):
    deep = float("nan")
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nest"):
        write_document(str(tmp_path / "a"), "kind", 1, {"a": deep}, temporary=str(tmp_path / "b"))


def test_all_bytes_are_the_disks_before_a_file_takes_its_place(tmp_path, monkeypatch):
    """In this order: what is flushed, then synchronised, then renamed, and then the folder."""
    path, steps, fsync, replace = tmp_path / "file", [], os.fsync, os.replace

    def spied_fsync(descriptor):
        found = os.fstat(descriptor)
        steps.append("folder" if stat.S_ISDIR(found.st_mode) else found.st_size)
        fsync(descriptor)

    def spied_replace(*arguments):
        steps.append("renamed")
        replace(*arguments)

    monkeypatch.setattr(os, "fsync", spied_fsync)
    monkeypatch.setattr(os, "replace", spied_replace)
    replace_file(str(path), b"x" * 1000, f"{path}.tmp")
    assert steps == [1000, "renamed", "folder"]


@given(st.text())
def test_inert_text_is_printed_and_begins_no_formula(text):
    shown = inert(text)
    assert shown.isprintable()
    assert len(shown) - len(text) in (0, 1)
    try:
        float(shown)
    except ValueError:
        assert shown.lstrip()[:1] not in ("=", "+", "-", "@") or not shown
    assert inert(shown) == shown


@pytest.mark.parametrize("text", ["=cmd|'/C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", " =1", "\x1b]0;x\x07=1"])
def test_what_a_spreadsheet_would_compute_is_text(text):
    shown = inert(text)
    assert "\x1b" not in shown
    assert "\t" not in shown
    assert shown[0] in "' "
    assert inert("-5.5") == "-5.5"
