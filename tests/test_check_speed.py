"""tools/check_speed.py: what counts as slower, what is asked again, and that every kernel is asked."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))
import check_speed  # noqa: E402

KERNELS = ROOT / "src" / "dpfast" / "kernels"


def benchmark(name, method="time_it"):
    return check_speed.Benchmark("bench_of_tests", "Group", method, 0, name)


class Pretended:
    """A process that takes as long as `seconds` says of its side and of the look at it."""

    def __init__(self, number, seconds, looks):
        self.number, self.seconds, self.looks = number, seconds, looks

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, name, **arguments):
        if name == "open":
            self.label = arguments["label"]
            self.looks[self.label, self.number] += 1
        if name == "warm_up":
            return 3
        if name in ("turn", "weigh"):
            return self.seconds(self.label, self.number, self.looks[self.label, self.number])
        return None


def compared(seconds, *benchmarks):
    looks = Counter()
    return check_speed.compare(list(benchmarks), lambda number: Pretended(number, seconds, looks), 1.15)


def test_what_is_slower_in_every_look_is_named_with_its_factor():
    report = compared(
        lambda label, side, look: 1.3 if (label, side) == ("b", 1) else 1.0, benchmark("a"), benchmark("b")
    )
    assert report.slower == {"of_tests.Group.time_it(b)": pytest.approx(1.3)}
    assert report.n_compared == 2
    assert "SLOWER: of_tests.Group.time_it(b): 1.30 times" in list(report.lines(1.15))


@pytest.mark.parametrize("quiet_look", [1, 2, 3])
def test_one_look_that_sees_nothing_is_enough_to_be_silent(quiet_look):
    report = compared(lambda label, side, look: 1.3 if side == 1 and look != quiet_look else 1.0, benchmark("a"))
    assert report.slower == {}


def test_what_is_faster_or_cannot_be_run_is_said_and_is_not_slower():
    def seconds(label, side, look):
        if label == "new" and side == 0:
            raise check_speed.Failed("TypeError")
        return 0.5 if side == 1 else 1.0

    report = compared(seconds, benchmark("new"), benchmark("fast"))
    assert (report.slower, report.n_compared) == ({}, 1)
    assert report.faster == {"of_tests.Group.time_it(fast)": 0.5}
    assert list(report.not_compared) == ["of_tests.Group.time_it(new)"]


def test_memory_counts_from_megabytes_on():
    def growth(label, side, look):
        return {"little": 2**20, "much": 2**24}[label] * (2 if side == 1 else 1)

    report = compared(growth, benchmark("little", "peakmem_it"), benchmark("much", "peakmem_it"))
    assert report.slower == {"of_tests.Group.peakmem_it(much)": 2.0}


def test_turns_that_were_disturbed_do_not_count():
    disturbed = [1.0, 1.0, 3.0, 1.0, 1.0, 2.0, 1.0]
    assert check_speed.compare_turns([1.0] * 7, disturbed).factor == 1.0
    assert check_speed.compare_turns(disturbed, [1.3 * t for t in disturbed]).factor == pytest.approx(1.3)
    # A fast turn of the one, or of the other, decides nothing.
    assert check_speed.compare_turns([0.5, *[1.0] * 6], [1.0] * 7).factor == 1.0
    assert check_speed.compare_turns([1.0] * 7, [0.5, *[1.3] * 6]).factor < 1.0 + 1e-9


def test_every_extension_has_a_benchmark_of_its_own():
    extensions = re.findall(r"^  '(\w+)': ", (KERNELS / "meson.build").read_text(), re.MULTILINE)
    code = (ROOT / "benchmarks" / "bench_kernels.py").read_text()
    assert len(extensions) > 15
    assert [name for name in extensions if not re.search(rf'case\(f?"{name}\b', code)] == []
