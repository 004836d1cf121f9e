"""How long things take beside each other: absolute times on shared machines mean nothing."""

import os
import statistics
import time

#: Set where benchmarks are only to be seen to run: tables are small then, and what is measured means nothing.
SMALL = bool(os.environ.get("DPFAST_SMALL_BENCHMARKS"))
_FEW = 20_000


def sized(n):
    """Return how many rows a table has of which a benchmark wants so many."""
    return min(n, _FEW) if SMALL else n


def often(n):
    """Return how often something is timed that a benchmark wants timed so often."""
    return 1 if SMALL else n


def seconds(work, clock=time.perf_counter, repeats=1):
    """Time of a call, the mean of some."""
    start = clock()
    for _ in range(repeats):
        work()
    return (clock() - start) / repeats


def median_ratio(ours, theirs, rounds, *, clock=time.perf_counter, pause=0.0):
    """Median over alternating rounds of their time over ours, after one call of each; pauses go before each call."""

    def timed(work):
        time.sleep(pause)
        return seconds(work, clock)

    ours(), theirs()
    return statistics.median(timed(theirs) / timed(ours) for _ in range(often(rounds)))


def fastest_ratio(ours, theirs, rounds):
    """Their fastest call over our fastest one, alternating."""
    spent = [(seconds(theirs), seconds(ours)) for _ in range(often(rounds))]
    return min(theirs for theirs, _ in spent) / min(ours for _, ours in spent)
