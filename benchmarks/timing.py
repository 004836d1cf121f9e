"""How long things take beside each other: absolute times on shared machines mean nothing."""

import statistics
import time


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
    return statistics.median(timed(theirs) / timed(ours) for _ in range(rounds))


def fastest_ratio(ours, theirs, rounds):
    """Their fastest call over our fastest one, alternating."""
    spent = [(seconds(theirs), seconds(ours)) for _ in range(rounds)]
    return min(theirs for theirs, _ in spent) / min(ours for _, ours in spent)
